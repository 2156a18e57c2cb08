"""The guide to River and scikit-learn: its code runs, and says what it should."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "river-and-scikit-learn.md"
TOLD = [
    r"Accuracy: 8\d\.\d\d%",
    r"spam",
    r"True",
    r"\{'variance': 'shared'\}",
    r"\['spam'\]",
    r"\['spam' 'spam' 'ham' 'ham'\] \['prize'\]",
    r"\['spam', 'ham'\]",
]


def test_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Each block runs with what those before it made, and prints what the guide is about."""
    names: dict[str, object] = {}
    text = GUIDE.read_text(encoding="utf-8")
    for block in re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        exec(compile(block, GUIDE.name, "exec"), names)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(TOLD)
    for line, wanted in zip(lines, TOLD, strict=True):
        assert re.fullmatch(wanted, line), line
