"""Where the kernels' machine code is kept: a folder that may only be read is used as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamnb.kernels import jit as _jit

SOURCES = Path(_jit.__file__).parent
# Models that are taught by several threads at once, before any kernel is compiled.
AT_ONCE = """
import threading
import streamnb as nb
from streamnb.kernels.jit import entry_points
models = [
    nb.NaiveBayes(["a", "b"], None, {"t": nb.Words(nb.Multinomial())}, n_threads=1 + i % 2)
    for i in range(4)
]
assert not any(each.is_compiled for each in entry_points if each.name.endswith(".encode"))
texts, labels = ["one two", "two three four"] * 3000, ["a", "b"] * 3000
together = threading.Barrier(len(models))
found = [None] * len(models)
def learn(i):
    together.wait()
    found[i] = models[i].prequential_many({"t": texts}, labels).tobytes()
threads = [threading.Thread(target=learn, args=(i,)) for i in range(len(models))]
for each in threads: each.start()
for each in threads: each.join()
assert found[0] and len(set(found)) == 1
names = {each.name.split(".")[2] for each in entry_points if each.is_compiled}
assert "word_table" in names and not names & {"gaussian", "flags", "categorical"}, names
"""


def test_a_folder_that_can_only_be_read_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine code comes from a copy that this process may write to; the folder stays."""
    monkeypatch.setenv("STREAMNB_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(_jit, "read_only", {})
    find = _jit.cache_folder.__wrapped__
    folder = find(SOURCES)
    assert folder is not None
    assert folder.parent == tmp_path
    (folder / "sub").mkdir()
    (folder / "sub" / "kernel.nbc").write_bytes(b"code")
    monkeypatch.setattr(_jit, "_writable", lambda _: False)
    copy = find(SOURCES)
    assert copy is not None
    assert copy != folder
    assert (copy / "sub" / "kernel.nbc").read_bytes() == b"code"
    assert _jit.read_only == {copy: folder}


def test_where_no_folder_can_be_made_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then kernels are compiled in memory."""
    monkeypatch.setenv("STREAMNB_CACHE_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setattr(_jit, "_writable", lambda _: False)
    assert _jit.cache_folder.__wrapped__(SOURCES) is None


def test_checked_code_is_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels compiled with checked indices have a folder of their own; numba would mix them up."""
    monkeypatch.setenv("STREAMNB_CACHE_DIR", str(tmp_path))
    found = []
    for checks in (0, 1):
        monkeypatch.setattr("numba.config.BOUNDSCHECK", checks)
        found.append(_jit.cache_folder.__wrapped__(SOURCES))
    assert len({None, *found}) == 3


def test_threads_may_call_a_kernel_first_at_the_same_time() -> None:
    """Each gets the same answers, and nobody's kernels but those of the models are compiled."""
    compiled = os.environ | {"NUMBA_DISABLE_JIT": "0"}
    done = subprocess.run(
        [sys.executable, "-c", AT_ONCE], env=compiled, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
