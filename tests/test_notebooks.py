"""The lessons' notebooks run as they are, in a kernel of Jupyter, and print what they show."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

from scripts.lessons import blocks, lessons
from scripts.website.notebooks import FIRST_CELL, notebook

LESSONS = lessons()


def printed(cell: Any) -> str:
    """Return what a cell of code has printed."""
    return "".join(each["text"] for each in cell["outputs"] if each["output_type"] == "stream")


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_notebook_has_what_the_lesson_has(lesson: Path) -> None:
    """It is valid, with all blocks, outputs, words and figures of the lesson, and stands alone."""
    text = lesson.read_text(encoding="utf-8")
    found = json.loads(notebook(lesson))
    nbformat.validate(found)
    setup, *code = [cell for cell in found["cells"] if cell["cell_type"] == "code"]
    assert setup["source"] == FIRST_CELL
    assert [(cell["source"] + "\n", printed(cell)) for cell in code] == [
        (block.code, block.output) for block in blocks(text)
    ]
    prose = [cell for cell in found["cells"] if cell["cell_type"] == "markdown"]
    assert prose[0]["source"].startswith(text.partition("\n")[0])
    assert "## To try" in prose[-1]["source"]
    drawn = {name: each for cell in prose for name, each in cell.get("attachments", {}).items()}
    assert sorted(drawn) == sorted(re.findall(r"\(figures/(\w+\.svg)\)", text))
    for name, kinds in drawn.items():
        kept = (lesson.parent / "figures" / name).read_bytes()
        assert base64.b64decode(kinds["image/svg+xml"]) == kept
    links = re.findall(r"\]\(([^)#]+)", "\n".join(cell["source"] for cell in prose))
    assert all(re.match(r"https?:|attachment:|\d\d_\w+\.ipynb$", link) for link in links)


@pytest.mark.deep
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_notebook_runs(lesson: Path, tmp_path: Path) -> None:
    """A fresh kernel in an empty folder prints what the notebook shows, and draws its figures."""
    read: Any = nbformat.reads  # it carries no types
    shown, run = (read(notebook(lesson), as_version=4) for _ in range(2))
    # By sockets in the file system: ports are chosen a second before they are taken.
    own = Config({"KernelManager": {"transport": "ipc", "ip": str(tmp_path / "kernel")}})
    where = {"metadata": {"path": str(tmp_path)}}
    client = NotebookClient(run, config=own, timeout=240, startup_timeout=240, resources=where)
    client.execute()
    for before, after in zip(shown.cells, run.cells, strict=True):
        if before.cell_type == "code":
            assert printed(after) == printed(before), before.source
    named = {name for cell in shown.cells for name in cell.get("attachments", {})}
    assert {path.name for path in (tmp_path / "figures").iterdir()} == named
