"""What a million words weigh, in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ALLOWED_BYTES = 150_000_000


@pytest.mark.deep
@pytest.mark.parametrize("family", ["bernoulli", "multinomial"])
def test_a_million_words_take_at_most_150_megabytes(family: str, tmp_path: Path) -> None:
    """The model, its one part and two snapshots stay below 150 MB, and so does saving it.

    Resident bytes, above the same process with an untrained model and a running predictor.
    """
    command = [
        sys.executable,
        "-m",
        "tests.library.memory_process",
        family,
        str(tmp_path / "model.nb"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["words"] >= 990_000
    held = sum(found["arrays"].values())
    # Were it less than the arrays, something else would have been weighed.
    assert 0.9 * held < found["rss"] <= ALLOWED_BYTES, found
    assert found["rss"] <= found["peak_while_saving"] <= ALLOWED_BYTES, found
    assert found["file"] <= 50_000_000, found
