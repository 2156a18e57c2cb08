"""How many Python functions a warm call enters on its way to the compiled loops and back.

What counts is each entry into a function of the library (a generator counts each time that it goes
on), as `sys.setprofile` tells them. Compiled loops are not entered; a comprehension counts as a
function up to Python 3.11. The limits may only be lowered.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

import pytest

from tests.endtoend.daemon_process import ROOT, environment

# What is allowed; behind it what is wanted, if that is less.
LIMITS = {
    "prequential_many": 45,
    "prequential_many of a part": 60,  # 45
    "learn_one": 15,
    "learn_one of a part": 28,  # 15
    "predict_one": 11,
}


@cache
def entered() -> dict[str, list[str]]:
    """Return the functions of the library that each call enters."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.library.call_depth"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        check=True,
    )
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("call", LIMITS)
def test_a_warm_call_enters_few_functions(call: str) -> None:
    """A batch of a thousand texts, or one short text, enters no more functions than its limit."""
    names = entered()[call]
    assert 0 < len(names) <= LIMITS[call], f"{len(names)}: {', '.join(names)}"
