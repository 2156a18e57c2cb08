"""The journal of corrections: what was answered for is safe, and of what was not nothing stays."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from consumers.corrections.journal import Journal, JournalSource
from consumers.corrections.model import NotWritten
from consumers.errors import CheckpointError, SourceError
from tests.consumers.full_disk import disk_full_at

KEY = b"m1"
LONG_S = 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a journal may be."""
    return tmp_path / "corrections.jsonl"


def read_back(journal: Journal, position: int | None = None) -> list[tuple[int, bytes | None]]:
    """Return offset and value of each line that a source hands over, from a position on."""
    source = JournalSource(journal)
    source.open(lambda _: position)
    found = []
    while batches := source.poll(0.0):
        for raw in batches:
            found += [(int(raw.offsets[i]), raw.value(i)) for i in range(len(raw))]
    assert source.at_end()
    return found


def test_lines_come_back_in_their_order(path: Path) -> None:
    """What was appended is read back, from any line on, also by the next one to open it."""
    with closing(Journal(path)) as journal:
        assert [journal.append(KEY, line).offset for line in (b"{1}", b"{22}")] == [0, 4]
        assert read_back(journal) == [(0, b"{1}"), (4, b"{22}")]
    with closing(Journal(path)) as again:
        assert again.append(KEY, b"{3}").offset == 9
        assert read_back(again, 4) == [(4, b"{22}"), (9, b"{3}")]
    assert path.read_bytes() == b"{1}\n{22}\n{3}\n"
    assert path.stat().st_mode & 0o077 == 0  # it holds what people wrote


def test_a_journal_is_read_only_once_it_has_grown(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever follows it looks ten times a second, and mostly there is nothing new."""
    with closing(Journal(path)) as journal:
        journal.append(KEY, b"{1}")
        source, n_reads = JournalSource(journal), 0
        source.open(lambda _: None)
        read = journal.read

        def counted(at: int, n_bytes: int) -> bytes:
            nonlocal n_reads
            n_reads += 1
            return read(at, n_bytes)

        monkeypatch.setattr(journal, "read", counted)
        found = [len(source.poll(0.0)) for _ in range(3)]
        journal.append(KEY, b"{2}")
        found += [len(source.poll(0.0)) for _ in range(3)]
        assert found == [1, 0, 0, 1, 0, 0]
        assert n_reads == 2


@pytest.mark.parametrize("torn", [b"{", b"{2}", b"x" * 200_000])
def test_a_torn_last_line_is_cut_off(path: Path, torn: bytes) -> None:
    """What a power cut left of a line is gone at the next start, however long it is."""
    path.write_bytes(b"{1}\n" + torn)
    with capture_logs() as said, closing(Journal(path)) as journal:
        assert journal.append(KEY, b"{3}").offset == 4
        assert read_back(journal) == [(0, b"{1}"), (4, b"{3}")]
    assert path.read_bytes() == b"{1}\n{3}\n"
    assert [(line["event"], line["torn_bytes"]) for line in said] == [("journal_cut", len(torn))]


def test_a_torn_line_that_cannot_be_cut_off_is_told_as_that(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was opened and read well: what is to be seen to is whether it may be written."""
    path.write_bytes(b"{1}\n{2")

    def failing(*_args: object) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", failing)
        said = r"jsonl: .* cannot be cut off \(Read-only file system, errno 30\)"
        with pytest.raises(CheckpointError, match=said):
            Journal(path)
    assert path.read_bytes() == b"{1}\n{2"


def test_a_journal_of_a_torn_line_alone_begins_anew(path: Path) -> None:
    """A first line that never became whole leaves an empty journal."""
    path.write_bytes(b'{"kind"')
    with closing(Journal(path)) as journal:
        assert (journal.end, read_back(journal)) == (0, [])


@pytest.mark.parametrize("room", [0, 1, 5])
def test_nothing_stays_of_a_line_that_the_disk_has_no_room_for(path: Path, room: int) -> None:
    """Where the disk is full, the caller hears it, and the file is as it was before."""
    with closing(Journal(path)) as journal:
        journal.append(KEY, b"{1}")
        disk = disk_full_at(4 + room)
        with capture_logs(), disk, pytest.raises(NotWritten, match="Make room") as caught:
            journal.append(KEY, b"{a long one}")
        assert "nothing was changed" in str(caught.value)
        assert path.read_bytes() == b"{1}\n"
        assert journal.append(KEY, b"{2}").offset == 4
        assert read_back(journal) == [(0, b"{1}"), (4, b"{2}")]


def failing(error: OSError, *, times: int) -> Callable[[int], None]:
    """Return a `fdatasync` that fails so many times and then works."""
    left = [times]
    sync = os.fdatasync

    def run(fd: int) -> None:
        if left[0]:
            left[0] -= 1
            raise error
        sync(fd)

    return run


def test_a_line_that_was_not_synced_is_taken_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written is not safe: where the sync fails the line is cut off, and nobody ever reads it."""
    with closing(Journal(path)) as journal:
        journal.append(KEY, b"{1}")
        monkeypatch.setattr(os, "fdatasync", failing(OSError(5, "no disk"), times=2))
        with pytest.raises(NotWritten, match="no disk"):
            journal.append(KEY, b"{lost}")
        assert read_back(journal) == [(0, b"{1}")]
        assert journal.append(KEY, b"{2}").offset == 4
    assert path.read_bytes() == b"{1}\n{2}\n"


def test_requests_that_come_together_share_a_sync(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one line is synced the others wait, and then all of them are made safe at once."""
    syncing, go_on, n_syncs = threading.Event(), threading.Event(), [0]
    sync = os.fdatasync

    def slow(fd: int) -> None:
        n_syncs[0] += 1
        syncing.set()
        assert go_on.wait(LONG_S)
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", slow)
    lines = [b"{%d}" % number for number in range(12)]
    with closing(Journal(path)) as journal, ThreadPoolExecutor(len(lines)) as pool:
        first = pool.submit(journal.append, KEY, lines[0])
        assert syncing.wait(LONG_S)
        others = [pool.submit(journal.append, KEY, line) for line in lines[1:]]
        with journal._changed:
            assert journal._changed.wait_for(lambda: True)
        while len(journal._waiting) < len(others):
            journal.wait_beyond(0, 0.01)
        assert read_back(journal) == []  # nothing is safe yet
        go_on.set()
        places = {each.result(LONG_S).offset for each in [first, *others]}
        assert n_syncs[0] == 2
        found = read_back(journal)
    assert {offset for offset, _ in found} == places
    assert {value for _, value in found} == set(lines)


def test_a_shorter_journal_than_was_read_before_is_refused(path: Path) -> None:
    """A position behind the end tells of another journal, and the sentence says what to do."""
    with closing(Journal(path)) as journal:
        journal.append(KEY, b"{1}")
        with pytest.raises(SourceError, match="Put the journal back"):
            JournalSource(journal).open(lambda _: 5)


def test_a_journal_that_cannot_be_opened_is_an_error_with_a_way_out(path: Path) -> None:
    """A folder in the journal's place is told before anything is learned."""
    path.mkdir()
    with pytest.raises(CheckpointError, match=r"corrections\.to: none"):
        Journal(path)
