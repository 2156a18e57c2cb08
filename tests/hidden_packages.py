"""Runs code in a process where some packages are hidden, as if they were not installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.endtoend.daemon_process import environment

# What an import and a look for a package find where it is not installed.
_HIDE = """
import importlib.util, sys
HIDDEN = tuple(filter(None, sys.argv.pop(1).split(",")))
def is_hidden(name):
    return any(name == each or name.startswith(each + ".") for each in HIDDEN)
class Hiding:
    def find_spec(self, name, path=None, target=None):
        if is_hidden(name):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hiding())
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if is_hidden(name) else find(name)
"""


def run_without(
    modules: Iterable[str], code: str, *arguments: str | Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run code where modules, and those below them, are hidden; `variables` are the environment's.

    The code finds its arguments in ``sys.argv[1:]``.
    """
    return subprocess.run(
        [sys.executable, "-c", _HIDE + code, ",".join(modules), *arguments],
        env=environment(**variables), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
