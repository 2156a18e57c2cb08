"""What a user can see and name is the recorded interface; see golden/interface/CHANGES.md."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from tests.golden.interface.record import config_lines, daemon_lines, help_lines, python_lines

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


def name_in(line: str) -> str:
    """Return what a line of a recorded file is about: a name, without what is said of it.

    >>> name_in("streamnb.Words.fit(self, x=1)"), name_in("file.batch_bytes = 4194304")
    ('streamnb.Words.fit', 'file.batch_bytes')
    >>> name_in("streamnb run: --source -s <text> Where from."), name_in("x_total counter")
    ('streamnb run: --source', 'x_total')
    """
    of_a_command = re.match(r"streamnb[^:]*: \S+", line)
    return of_a_command[0] if of_a_command else re.split(r" |\(", line, maxsplit=1)[0]


def stands_for(pattern: str, line: str, names: set[str]) -> bool:
    """Return whether a pattern of CHANGES.md stands for a line that came (+) or went (-).

    A beginning does for whatever has it; but a name that is gone wants an entry of its own, or the
    reason of an addition would excuse whatever else is lost.
    """
    if line[0] == "-" and (name := name_in(line[1:])) not in names:
        return line[1:].startswith(pattern) and len(pattern) >= len(name)
    return fnmatchcase(line[1:], f"{pattern}*")


@pytest.mark.parametrize("name", NOW)
def test_the_interface_is_the_recorded_one(name: str) -> None:
    """Names, options, routes, metrics and keys change on purpose only."""
    found = changed(recorded(FOLDER / name), NOW[name]())
    assert not found, "\n".join(
        [f"{name} has changed; if it is meant: {RENEW}, and say why in CHANGES.md", *found]
    )


def test_each_difference_from_the_first_version_has_its_reason() -> None:
    """A pattern of CHANGES.md stands for each changed line, and none stands for nothing.

    One that stands for a name that is gone is that name.
    """
    text = (FOLDER / "CHANGES.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- `([\w.]+)` `([^`]+)`: \S", text, flags=re.MULTILINE)
    missing, used = [], set()
    for name in NOW:
        today = recorded(FOLDER / name)
        names = {name_in(line) for line in today}
        for line in changed(recorded(FOLDER / "0.1.0" / name), today):
            fitting = {
                (file, pattern)
                for file, pattern in listed
                if file == name and stands_for(pattern, line, names)
            }
            used |= fitting
            if not fitting:
                missing.append(f"{name} {line}")
    wanted = "CHANGES.md wants a line such as - `metrics.txt` `streamnb_new_`: why, for each of:"
    assert not missing, "\n".join([wanted, *missing])
    assert not set(listed) - used, "CHANGES.md lists what has not changed"


def test_a_prefix_excuses_no_loss() -> None:
    """A beginning stands for what came and what changed; for what is gone its name alone does."""
    names = {"streamnb.Words(fields", "streamnb.Words"}
    for line in ("+streamnb.Words.new(self)", "-streamnb.Words(fields)"):
        assert stands_for("streamnb.Words", line, names)
    assert not stands_for("streamnb.Words", "-streamnb.Words.old(self, x)", names)
    assert not stands_for("streamnb.*", "-streamnb.Words.old(self, x)", names)
    assert stands_for("streamnb.Words.old", "-streamnb.Words.old(self, x)", names)
    assert stands_for("streamnb.Words.old(", "-streamnb.Words.old(self, x)", names)
