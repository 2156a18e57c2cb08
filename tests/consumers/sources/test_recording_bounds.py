"""Recordings of messages too long for a line, or of none: what is written is read again."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from consumers.cli.record import RecordLimits, record
from consumers.config.settings import Settings
from consumers.messages import Headers, Partition, RawColumns
from consumers.sources import recording
from consumers.sources.file import FileBytes
from consumers.sources.recording import RecordingWriter
from consumers.sources.records import from_parts
from tests.consumers.sources.test_recording import HEAD, read, written

PLACE = Partition("t", 0)
LINE_BYTES = 2000
ESCAPED = b"\x01" * 1000  # 6,000 bytes as text, 1,336 in base64
TOO_LONG = b"x" * LINE_BYTES


def batch(
    values: list[bytes | None], first: int = 0, key: bytes | None = None, headers: Headers = ()
) -> RawColumns:
    """Return messages with one key and the same headers."""
    n = len(values)
    offsets = list(range(first, first + n))
    return from_parts(PLACE, [key] * n, values, offsets, [1] * n, first + n, [headers] * n)


def lines_in(path: Path) -> list[bytes]:
    """Return the lines of a recording."""
    with contextlib.closing(FileBytes(path)) as file:
        return file.read(1 << 20).split(b"\n")


@pytest.mark.parametrize("suffix", recording.SUFFIXES)
@pytest.mark.parametrize(
    ("value", "key", "header"),
    [(ESCAPED, None, b"h"), (b"a", ESCAPED, b"h"), (b"a", b"k", ESCAPED)],
    ids=["value", "key", "header"],
)
def test_what_escapes_make_too_long_is_written_in_base64(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
    value: bytes,
    key: bytes | None,
    header: bytes,
) -> None:
    """Each comes back as it was, and the recording is gone on with."""
    monkeypatch.setattr(recording, "LINE_BYTES_MAX", LINE_BYTES)
    monkeypatch.setattr(recording, "_FRAME_BYTES_MAX", 2 * LINE_BYTES)
    path, headers = tmp_path / f"r{suffix}", [("name", header)]
    written(path, [batch([value], 0, key, headers)])
    written(path, [batch([b"behind"], 1)])
    assert max(map(len, lines_in(path))) <= LINE_BYTES
    assert read(path) == {PLACE: [(0, 1, key, value, tuple(headers)), (1, 1, None, b"behind", ())]}


@pytest.mark.parametrize("suffix", recording.SUFFIXES)
def test_a_message_that_no_line_has_room_for_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """It is counted and logged, and its place passed over: all others are read."""
    monkeypatch.setattr(recording, "LINE_BYTES_MAX", LINE_BYTES)
    monkeypatch.setattr(recording, "_FRAME_BYTES_MAX", 2 * LINE_BYTES)
    path = tmp_path / f"r{suffix}"
    writer = RecordingWriter(path, HEAD)
    with capture_logs() as logs:
        writer.add(batch([b"a", TOO_LONG]))
    writer.flush()
    writer.close()
    assert (writer.n_refused, writer.positions) == (1, {PLACE: 2})
    (said,) = logs
    assert (said["event"], said["partition"], said["offset"]) == ("record_refused", "t[0]", 1)
    again = RecordingWriter(path, HEAD)
    assert again.positions == {PLACE: 2}
    again.add(batch([b"b"], 2))
    again.flush()
    again.close()
    assert read(path) == {PLACE: [(0, 1, None, b"a", ()), (2, 1, None, b"b", ())]}


def test_a_run_says_how_many_messages_were_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count as read, as those that a topic refuses of a bridge."""
    first, second = tmp_path / "first.gz", tmp_path / "second.gz"
    written(first, [batch([b"a", TOO_LONG, b"b"])])
    monkeypatch.setattr(recording, "LINE_BYTES_MAX", LINE_BYTES)
    settings = Settings.model_validate({"source": f"recording:{first}"})
    limits = RecordLimits(until_end=True)
    done = record(settings, second, limits, threading.Event(), show=False)
    assert (done.messages, done.refused, done.positions) == (3, 1, {"t[0]": 3})
    assert read(second) == {PLACE: [(0, 1, None, b"a", ()), (2, 1, None, b"b", ())]}


def test_a_batch_without_messages_moves_the_position(tmp_path: Path) -> None:
    """The next run begins behind it, and nothing is read of it."""
    path = tmp_path / "r.gz"
    written(path, [batch([b"a"]), batch([b"b"], 7).head(0)])
    again = RecordingWriter(path, HEAD)
    assert again.positions == {PLACE: 7}
    again.close()
    assert read(path) == {PLACE: [(0, 1, None, b"a", ())]}
