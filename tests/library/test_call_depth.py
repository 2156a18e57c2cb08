"""How many Python functions a warm call enters on its way to the compiled loops and back.

What counts is each entry into a function of the library (a generator counts each time that it goes
on), as `sys.setprofile` tells them. Compiled loops are not entered; a comprehension counts as a
function up to Python 3.11. The limits are what was measured, and may only be lowered.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

import pytest

from tests.endtoend.daemon_process import ROOT, environment

# By the model: words and pairs alone, and the daemon's by default, which also rewrites texts that
# have accents or entities to undo, and learns a hybrid.
LIMITS = {
    "plain": {
        "prequential_many": 40,
        "prequential_many of a part": 44,
        "learn_one": 12,
        "learn_one of a part": 14,
        "predict_one": 10,
    },
    "default": {
        "prequential_many": 41,
        "prequential_many of a part": 45,
        "learn_one": 13,
        "learn_one of a part": 15,
        "predict_one": 11,
    },
}


@cache
def entered() -> dict[str, dict[str, list[str]]]:
    """Return the functions of the library that each model's calls enter."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.library.call_depth"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        check=True,
    )
    found: dict[str, dict[str, list[str]]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("model", "call"), [(model, call) for model, limits in LIMITS.items() for call in limits]
)
def test_a_warm_call_enters_few_functions(model: str, call: str) -> None:
    """A batch of a thousand texts, or one short text, enters no more functions than its limit."""
    names = entered()[model][call]
    assert 0 < len(names) <= LIMITS[model][call], f"{len(names)}: {', '.join(names)}"
