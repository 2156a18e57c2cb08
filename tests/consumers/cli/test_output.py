"""What commands print: in any encoding, at any width."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.consumers.cli.test_commands import ROOT, model_file

ENCODINGS = ["ascii", "latin-1", "utf-8"]


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
