"""What commands print: in any encoding, at any width."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from consumers.cli.conventions import print_json, progress_bar
from consumers.cli.figures import JudgedExamples, figures
from consumers.cli.output import print_inspection, verdict
from tests.consumers.cli.test_commands import ROOT, model_file

ENCODINGS = [
    "ascii",
    *(pytest.param(each, marks=pytest.mark.deep) for each in ("latin-1", "utf-8")),
]


def printed(folder: Path, *arguments: str, **env: str) -> bytes:
    """Return what a command prints, in a process of its own that succeeds."""
    done = subprocess.run(
        [sys.executable, "-m", "consumers", *arguments], cwd=folder, capture_output=True,
        stdin=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(ROOT)} | env, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_people_read_is_printed_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    """What the terminal's encoding lacks stands there as its escape, and nothing fails."""
    out = printed(tmp_path, "inspect", str(model_file(tmp_path)), PYTHONIOENCODING=encoding)
    pi = "π" if encoding == "utf-8" else r"\u03c0"
    assert f"prior {pi}" in out.decode(encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_programs_read_is_utf_8(tmp_path: Path, encoding: str) -> None:
    """JSON and the settings are read as such, whatever the terminal's encoding is."""
    model, text = str(model_file(tmp_path)), "café – 宽"
    asked = ("predict", "--model", model, "--json", "--", text)
    out = printed(tmp_path, *asked, PYTHONIOENCODING=encoding)
    assert json.loads(out.decode())["text"] == text
    (tmp_path / "config.yaml").write_text(f"page: {{title: {text}}}\n", encoding="utf-8")
    out = printed(tmp_path, "check-config", "-c", "config.yaml", PYTHONIOENCODING=encoding)
    assert f"title: {text}" in out.decode()


CLASSES = [f"class_{c}" for c in range(14)]


def inspection(word: str) -> dict[str, Any]:
    """Return what `inspect` finds in a model of many classes that knows one word."""
    counts = {name: 123_456 + c for c, name in enumerate(CLASSES)}
    likelihoods = {name: 0.000401 + c / 1e6 for c, name in enumerate(CLASSES)}
    return {
        "path": "model.nb", "digest": "0", "n_examples": 9, "n_features": 1, "vocabulary_size": 1,
        "words_dropped": 0, "values_dropped": 0, "values": [], "flags": [], "numbers": [],
        "classes": [{"label": name, "count": 7, "prior": 0.071429} for name in CLASSES],
        "words": [{"word": word, "counts": counts, "likelihoods": likelihoods}], "sections": [],
    }  # fmt: skip


def figures_of(found: dict[str, Any]) -> list[str]:
    """Return the figures of the word as they are printed, in order."""
    (row,) = found["words"]
    return [f"{each:,}" for each in row["counts"].values()] + [
        f"{each:.3g}" for each in row["likelihoods"].values()
    ]


def test_a_table_in_a_file_is_as_wide_as_it_needs() -> None:
    """Nobody can widen a file: its lines are whole, with every heading and every figure."""
    found, file = inspection("sun"), io.StringIO()
    print_inspection(Console(file=file, _environ={}), found)
    lines = file.getvalue().splitlines()
    heads = [f"{what} {name}" for what in ("N_jc", "θ") for name in CLASSES]
    assert ["word", *" ".join(heads).split()] in [line.split() for line in lines]
    assert ["sun", *figures_of(found)] in [line.split() for line in lines]


@pytest.mark.parametrize("width", [1, 40, 80, 400])
def test_a_terminal_never_cuts_a_figure(width: int) -> None:
    """Names and headings give way; the terminal breaks what is still too wide."""
    found, file = inspection("w" * 50), io.StringIO()
    print_inspection(
        Console(file=file, force_terminal=True, color_system=None, width=width, _environ={}), found
    )
    (row,) = [line.split() for line in file.getvalue().splitlines() if "123,456" in line]
    assert row[1:] == figures_of(found)
    assert row[0] == ("w" * 50 if width == 400 else "w" * 19 + "…")


def test_a_heading_of_wide_signs_is_no_narrower_than_a_sign() -> None:
    """Rich prints nothing of a sign that takes two places where there is one."""
    found, file = inspection("sun"), io.StringIO()
    (row,) = found["words"]
    row["counts"] = dict(zip("陽陰晴雨曇雪風霧雷虹月星", [7] * 12, strict=True))
    row["likelihoods"] = dict.fromkeys(row["counts"], 0.5)
    found["classes"] = [{"label": name, "count": 7, "prior": 0.1} for name in row["counts"]]
    print_inspection(
        Console(file=file, force_terminal=True, color_system=None, width=40, _environ={}), found
    )
    assert all(file.getvalue().count(name) == 3 for name in row["counts"])


def test_a_name_that_is_not_utf_8_is_printed_as_it_is() -> None:
    """Where Python takes the names of files as bytes, as it does in containers."""
    code = (
        "import os, sys; from consumers.process import open_standard_streams;"
        "open_standard_streams(); print(os.fsdecode(os.fsencode(sys.argv[1])))"
    )
    name = b"caf\xc3\xa9-\xff"
    env = os.environ | {"PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [sys.executable, "-c", code, name], capture_output=True, env=env, check=True
    )
    assert done.stdout == name + b"\n"


def test_data_is_printed_where_only_text_can_be() -> None:
    """Who runs a command in a process of his own may read its output as text."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        print_json({"text": "宽"})
    assert json.loads(out.getvalue()) == {"text": "宽"}


@pytest.mark.parametrize(
    "size", ["0", *(pytest.param(each, marks=pytest.mark.deep) for each in ("00", ""))]
)
def test_a_size_of_zero_is_none(tmp_path: Path, size: str) -> None:
    """Rich would print nothing in no columns."""
    asked = ("predict", "--model", str(model_file(tmp_path)), "lovely sun")
    usual = printed(tmp_path, *asked, COLUMNS="80", LINES="25")
    assert b"positive" in usual
    assert printed(tmp_path, *asked, COLUMNS=size, LINES=size) == usual


def test_what_a_model_holds_for_impossible_is_counted_and_told() -> None:
    """The joint NLL is of the others; of a class that came first, the answer says it too."""
    even, none = np.log(0.5), -np.inf
    judged = JudgedExamples(
        ("a", "b"),
        np.array([0, 1, 1, 0, 0]),
        np.array([[even, even]] * 4 + [[none, 0.0]], np.float32),
        joint=np.array([-2.0, none, none, -4.0, none]),
    )
    found = figures(judged)
    assert found["figures"]["joint_nll"]["value"] == 3.0
    assert (found["joint_impossible"], found["impossible"], found["joint_left_out"]) == (3, 1, 0)
    (note,) = found["notes"]
    assert "the model held 2 of 5 examples for impossible" in note
    judged.joint = np.array([-2.0, -3.0, -3.0, -4.0, none])
    assert figures(judged)["notes"] == []
    judged.joint = None
    assert figures(judged)["joint_impossible"] == 0


def test_progress_says_how_much_time_is_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands behind the time that has passed, and goes by how fast that was."""
    monkeypatch.setenv("COLUMNS", "120")
    clock = [0.0]
    with progress_bar(show=True) as bar:
        monkeypatch.setattr(bar, "get_time", lambda: clock[0])
        task = bar.add_task("tweets.jsonl", total=500)
        for seconds in (10.0, 20.0):
            clock[0] = seconds
            bar.update(task, advance=100)
    assert re.search(r"40% +0:00:20 +0:00:30", capsys.readouterr().err)


def test_accuracy_of_one_class_says_what_it_is_worth() -> None:
    """A file that is sorted by its labels begins with one class, which anything gets right."""
    sure = np.log([[0.9, 0.1]] * 4)
    (note,) = figures(JudgedExamples(("bad", "good"), np.zeros(4, np.int64), sure))["notes"]
    assert note.startswith("all examples are of one class, bad: accuracy does not say")
    assert figures(JudgedExamples(("bad", "good"), np.array([0, 1, 0, 0]), sure))["notes"] == []


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (-0.0111, -0.0035, "pairs is right more often than words, by 0.35 to 1.11 points"),
        (0.0035, 0.0111, "words is right more often than pairs, by 0.35 to 1.11 points"),
        (-0.001, 0.0, "words and pairs: no difference in accuracy is shown, as the interval"),
        (float("nan"), float("nan"), "words and pairs: no difference in accuracy is shown"),
    ],
)
def test_a_sentence_says_which_model_is_better(low: float, high: float, said: str) -> None:
    """By the interval of the difference: those of the two models may overlap all the same."""
    row = {"first": "words", "second": "pairs", "accuracy": {"low": low, "high": high}}
    assert verdict(row).startswith(said)
