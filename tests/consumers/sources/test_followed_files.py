"""Followed files whose writer mends them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from consumers.config.addresses import FileSettings
from consumers.messages import Partition
from consumers.sources.base import LogFacts
from consumers.sources.file import FileSource


def begun(
    path: Path, position: int | None = None, logs: Mapping[Partition, LogFacts] | None = None
) -> FileSource:
    """Return an opened source that follows a file."""
    source = FileSource(path, FileSettings(), follow=True, wait=lambda _: None)
    source.resume(logs or {})
    source.open({source.partition: position}.get)
    return source


@pytest.mark.parametrize("n_before", [0, 1])
@pytest.mark.parametrize("is_seen_cut", [True, False])
def test_a_torn_line_that_was_written_anew_is_read_anew(
    tmp_path: Path, n_before: int, *, is_seen_cut: bool
) -> None:
    """As a writer mends its file after a kill: no two lines become one, and the file is known."""
    kept = b'{"id":0}\n' * n_before
    path = tmp_path / "x"
    path.write_bytes(kept + b'{"id":1,"text":"old te')
    source = begun(path)
    assert sum(map(len, source.poll(0.0))) == n_before
    assert source.poll(0.0) == []
    os.truncate(path, len(kept))
    if is_seen_cut:
        assert source.poll(0.0) == []
    with path.open("ab") as file:
        file.write(b'{"id":2,"text":"completely other text"}\n{"id":3}\n')
    found, position = list[bytes | None](), 0
    for raw in source.poll(0.0):
        found += [raw.value(i) for i in range(len(raw))]
        position = raw.next_offset
    assert found == [b'{"id":2,"text":"completely other text"}', b'{"id":3}']
    assert source.poll(0.0) == []
    logs = source.logs({source.partition: position})
    again = begun(path, position, logs)
    assert again.poll(0.0) == []
    source.close()
    again.close()
