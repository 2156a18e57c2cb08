"""Where the kernels' machine code is kept: a folder that may only be read is used as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamnb.kernels import jit as _jit
from streamnb.kernels import word_table as table

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
KEEP = """
from streamnb.kernels import gaussian, multinomial, posterior, word_table
from streamnb.kernels.jit import entry_points, warm_up
warm_up(entry_points)
"""
# Kernels are loaded, but one, whose index is gone, is compiled; and so is a function of others.
LOADED = """
import sys
import numba
from streamnb.kernels import gaussian, multinomial, posterior, word_table as table
from streamnb.kernels.jit import cache_folder, entry_points
folder = cache_folder(table.find_many.sources)
for each in entry_points:
    assert each.is_kept
    if each is not table.byte_bounds:
        each.compile()
assert "numba.np.linalg" not in sys.modules
indexes = list(folder.glob("*/word_table.byte_bounds-*.nbi"))  # one for each line it ever began at
assert indexes
for index in indexes: index.unlink()
table.byte_bounds.compile()
assert "numba.np.linalg" in sys.modules
assert sum(table.byte_bounds.dispatcher.stats.cache_hits.values()) == 0
assert numba.njit(lambda n: [n, n])(3) == [3, 3]
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


def test_a_user_without_a_home_compiles_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that no account has, as some containers run, and no HOME: nothing is kept."""
    for name in ("STREAMNB_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)

    def nobody(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert _jit.cache_folder.__wrapped__(SOURCES) is None


def test_a_folder_that_others_can_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies there is run: our own folder is closed to others, a stranger's is left alone."""
    monkeypatch.setenv("STREAMNB_CACHE_DIR", str(tmp_path))
    find = _jit.cache_folder.__wrapped__
    folder = find(SOURCES)
    assert folder is not None
    (folder / "sub").mkdir()
    for each in (folder, folder / "sub"):
        each.chmod(0o777)
    assert find(SOURCES) == folder
    assert [each.stat().st_mode & 0o777 for each in (folder, folder / "sub")] == [0o755] * 2
    owner = folder.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)  # the folder is now another user's
    folder.chmod(0o777)
    assert find(SOURCES) is None


def test_checked_code_is_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels compiled with checked indices have a folder of their own; numba would mix them up."""
    monkeypatch.setenv("STREAMNB_CACHE_DIR", str(tmp_path))
    found = []
    for checks in (0, 1):
        monkeypatch.setattr("numba.config.BOUNDSCHECK", checks)
        found.append(_jit.cache_folder.__wrapped__(SOURCES))
    assert len({None, *found}) == 3


@pytest.mark.deep
def test_kept_kernels_are_loaded_without_the_rest_of_the_compiler(tmp_path: Path) -> None:
    """It is prepared where something must be compiled, which works before and after."""
    folder = _jit.cache_folder(SOURCES)
    assert folder is not None
    environment = os.environ | {"NUMBA_DISABLE_JIT": "0"}
    subprocess.run([sys.executable, "-c", KEEP], env=environment, check=True)
    shutil.copytree(folder, tmp_path / folder.name)
    environment["STREAMNB_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", LOADED], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.deep
@pytest.mark.compiled
def test_what_a_copy_of_the_sources_elsewhere_compiled_is_not_kept(tmp_path: Path) -> None:
    """It cannot be loaded: to take it as kept would compile each kernel at its first call."""
    folder = _jit.cache_folder(SOURCES)
    assert folder is not None
    kernel: Any = table.find_many
    own = Path(kernel.dispatcher.stats.cache_path)
    elsewhere = tmp_path / folder.name / "kernels_elsewhere"
    shutil.copytree(own, elsewhere)
    environment = os.environ | {"NUMBA_DISABLE_JIT": "0", "STREAMNB_CACHE_DIR": str(tmp_path)}
    asked = "from streamnb.kernels import word_table as t; assert t.find_many.is_kept is "
    for place, is_kept in ((elsewhere, False), (elsewhere.with_name(own.name), True)):
        elsewhere = elsewhere.rename(place)
        done = subprocess.run(
            [sys.executable, "-c", f"{asked}{is_kept}"],
            env=environment, capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_threads_may_call_a_kernel_first_at_the_same_time() -> None:
    """Each gets the same answers, and nobody's kernels but those of the models are compiled."""
    compiled = os.environ | {"NUMBA_DISABLE_JIT": "0"}
    done = subprocess.run(
        [sys.executable, "-c", AT_ONCE], env=compiled, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
