"""Turns a lesson into a notebook: its text, its blocks of code, and what they print and draw.

A lesson is Markdown whose code runs; see `scripts/lessons.py`. The notebook has the same blocks in
the same order, and is made when the site is, so that the two cannot differ.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

from scripts.lessons import blocks

# A lesson saves its figures here; where a notebook is run the folder has to be made first.
FIRST_CELL = 'from pathlib import Path\n\nPath("figures").mkdir(exist_ok=True)'

_FIGURE = re.compile(r"!\[(?P<text>[^]]+)\]\((?P<path>figures/(?P<name>\w+\.svg))\)")
_LESSON = re.compile(r"\]\((\d\d_\w+)\.md(?:#[^)]*)?\)")
_OTHER = re.compile(r"(?<!!)\[([^]]+)\]\((?!https?:|attachment:|\d\d_\w+\.ipynb)[^)]+\)")


def notebook(lesson: Path) -> str:
    """Return a lesson as a notebook of Jupyter, version 4.5, as JSON."""
    text = lesson.read_text(encoding="utf-8")
    cells: list[dict[str, Any]] = []
    at = 0
    for block in blocks(text):
        cells += _markdown(text[at : block.start], lesson.parent)
        if at == 0:
            cells.append(_code(FIRST_CELL, ""))
        cells.append(_code(block.code.rstrip("\n"), block.output))
        at = block.end
    cells += _markdown(text[at:], lesson.parent)
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    found = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _code(source: str, output: str) -> dict[str, Any]:
    """Return a cell of code with what it prints."""
    printed = {"name": "stdout", "output_type": "stream", "text": output}
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [printed] if output else [],
        "source": source,
    }


def _markdown(text: str, folder: Path) -> list[dict[str, Any]]:
    """Return a cell of text with its figures in it; none where there is no text."""
    if not text.strip():
        return []
    attachments = {}
    for figure in _FIGURE.finditer(text):
        drawing = base64.b64encode((folder / figure["path"]).read_bytes()).decode("ascii")
        attachments[figure["name"]] = {"image/svg+xml": drawing}
    text = _FIGURE.sub(r"![\g<text>](attachment:\g<name>)", text)
    text = _LESSON.sub(r"](\1.ipynb)", text)
    text = _OTHER.sub(r"\1", text)  # a notebook stands alone: guides are not beside it
    cell: dict[str, Any] = {"cell_type": "markdown", "metadata": {}, "source": text.strip()}
    return [cell | {"attachments": attachments} if attachments else cell]
