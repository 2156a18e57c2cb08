"""What a user can see and name is the recorded interface; see golden/interface/CHANGES.md."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from tests.golden.interface.record import (
    config_lines,
    daemon_lines,
    help_lines,
    python_lines,
)

FOLDER = Path(__file__).parent / "golden" / "interface"
RENEW = "python -m tests.golden.interface.record"

_daemon_lines = cache(daemon_lines)
NOW: dict[str, Callable[[], list[str]]] = {
    "python.txt": python_lines,
    "config.txt": config_lines,
    "help.txt": help_lines,
    "openapi.txt": lambda: _daemon_lines()["openapi.txt"],
    "metrics.txt": lambda: _daemon_lines()["metrics.txt"],
}


def recorded(path: Path) -> list[str]:
    """Return the lines of a recorded file."""
    return path.read_text(encoding="utf-8").splitlines()


def changed(before: list[str], after: list[str]) -> list[str]:
    """Return the lines that came (+) or went (-)."""
    diff = difflib.unified_diff(before, after, lineterm="", n=0)
    return [line for line in diff if line[0] in "+-" and line[:3] not in {"+++", "---"}]


@pytest.mark.parametrize("name", NOW)
def test_the_interface_is_the_recorded_one(name: str) -> None:
    """Names, options, routes, metrics and keys change on purpose only."""
    found = changed(recorded(FOLDER / name), NOW[name]())
    assert not found, "\n".join(
        [f"{name} has changed; if it is meant: {RENEW}, and say why in CHANGES.md", *found]
    )


def test_each_difference_from_the_first_version_has_its_reason() -> None:
    """A pattern of CHANGES.md stands for each changed line, and none stands for nothing."""
    text = (FOLDER / "CHANGES.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- `([\w.]+)` `([^`]+)`: \S", text, flags=re.MULTILINE)
    missing, used = [], set()
    for name in NOW:
        for line in changed(recorded(FOLDER / "0.1.0" / name), recorded(FOLDER / name)):
            fitting = {
                (file, pattern)
                for file, pattern in listed
                if file == name and fnmatchcase(line[1:], f"{pattern}*")
            }
            used |= fitting
            if not fitting:
                missing.append(f"{name} {line}")
    wanted = "CHANGES.md wants a line such as - `metrics.txt` `streamnb_new_`: why, for each of:"
    assert not missing, "\n".join([wanted, *missing])
    assert not set(listed) - used, "CHANGES.md lists what has not changed"
