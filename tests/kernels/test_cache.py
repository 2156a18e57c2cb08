"""Where the kernels' machine code is kept: a folder that may only be read is used as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamnb.kernels import jit as _jit

SOURCES = Path(_jit.__file__).parent


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
