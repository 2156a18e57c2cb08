"""Files that end without a line break: the last line counts once, and no rest of it as another."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from consumers.cli.record import RecordLimits, record
from consumers.config.addresses import FileSettings
from consumers.config.settings import Settings
from consumers.messages import Partition
from consumers.sources.base import LogFacts
from consumers.sources.file import FileSource
from consumers.sources.records import split_lines

LOGS = Mapping[Partition, LogFacts]
PACKERS: dict[str, Callable[[bytes], bytes]] = {"plain": bytes, "gzip": gzip.compress}
JSON = b'{"id":0,"text":"a"}\n', b'{"id":1,"text":"not good', b' at all"}\n', b'{"id":2}\n'
CSV = b"label,text\nnegative,a\n", b"negative,not good a", b"t all\n", b"positive,b\n"


class Reading:
    """What runs with `--until-end` read of a file, each on behind the one before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.partition = Partition(f"file:{path.name}", 0)
        self.position = 0
        self.logs: LOGS = {}
        self.values: list[bytes | None] = []
        self.n_lost = 0

    def run(self, *, follow: bool = False, line_bytes_max: int | None = None) -> None:
        """Read to the end, and keep what a checkpoint does, after an error too."""
        source = FileSource(self.path, FileSettings(), follow=follow, wait=lambda _: None)
        if line_bytes_max is not None:
            source._split = partial(split_lines, bytes_max=line_bytes_max)
        source.resume(msgspec.convert(msgspec.to_builtins(self.logs, str_keys=False), LOGS))
        source.open({self.partition: self.position}.get)
        try:
            while not source.at_end():
                for raw in source.poll(0.0):
                    self.values += [raw.value(i) for i in range(len(raw))]
                    self.position = raw.next_offset
        finally:
            self.logs = source.logs({self.partition: self.position})
            self.n_lost += source.lost_messages
            source.close()


@pytest.mark.parametrize("packing", PACKERS)
@pytest.mark.parametrize("parts", [JSON, CSV], ids=["json", "csv"])
@pytest.mark.parametrize("follow", [False, True])
def test_the_rest_of_a_line_that_was_read_is_no_message(
    tmp_path: Path, packing: str, parts: tuple[bytes, ...], *, follow: bool
) -> None:
    """It is passed over, told and counted as lost; what stands behind it is read, once."""
    whole, begun, rest, behind = parts
    pack, path = PACKERS[packing], tmp_path / "x"
    path.write_bytes(pack(whole + begun))
    reading = Reading(path)
    reading.run()
    before = list(reading.values)
    assert before[-1] == begun
    path.write_bytes(pack(whole + begun) + pack(rest + behind))
    with capture_logs() as logs:
        reading.run(follow=follow)
    (told,) = [each for each in logs if each["event"] == "rest_of_line_passed_over"]
    assert told["byte"] == len(whole + begun)
    assert reading.n_lost == 1
    reading.run(follow=follow)
    assert reading.values == [*before, behind.strip(b"\n")]
    assert reading.n_lost == 1


@pytest.mark.parametrize("parts", [JSON, CSV], ids=["json", "csv"])
def test_a_line_that_goes_on_piece_by_piece_is_passed_over_whole(
    tmp_path: Path, parts: tuple[bytes, ...]
) -> None:
    """However many runs end within it, no piece is a message but the first."""
    whole, begun, rest, behind = parts
    path = tmp_path / "x"
    path.write_bytes(whole + begun)
    reading = Reading(path)
    reading.run()
    before = list(reading.values)
    for piece in (rest[:2], rest[2:-1], rest[-1:], behind):
        with path.open("ab") as file:
            file.write(piece)
        reading.run()
    assert reading.values == [*before, behind.strip(b"\n")]


@pytest.mark.parametrize("packing", PACKERS)
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b" \n"])
@pytest.mark.parametrize("n_idle", [0, 2])
def test_a_last_line_without_a_line_break_counts_once(
    tmp_path: Path, packing: str, end: bytes, n_idle: int
) -> None:
    """However often it is read to its end, and if it goes on with a line break."""
    pack, path = PACKERS[packing], tmp_path / "x"
    first, last, more = b'{"id":0}\n', b'{"id":1}', b'{"id":2}\n'
    path.write_bytes(pack(first + last))
    reading = Reading(path)
    for _ in range(1 + n_idle):
        reading.run()
    assert reading.values == [b'{"id":0}', b'{"id":1}']
    path.write_bytes(pack(first + last) + pack(end + more))
    reading.run()
    reading.run()
    assert reading.values == [b'{"id":0}', b'{"id":1}', b'{"id":2}']


def test_a_heading_that_was_not_whole_costs_no_row(tmp_path: Path) -> None:
    """Its beginning was a line of JSON that is none; what stands behind the whole one is read."""
    path = tmp_path / "x"
    path.write_bytes(b"lab")
    reading = Reading(path)
    reading.run()
    path.write_bytes(b"".join(CSV))
    reading.run()
    assert reading.values == [b"lab", b"negative,a", CSV[1] + CSV[2][:-1], CSV[3][:-1]]


def test_who_reads_from_the_beginning_passes_over_nothing(tmp_path: Path) -> None:
    """As `verify` does, with what the checkpoint knows of the file."""
    path = tmp_path / "x"
    path.write_bytes(b"".join(JSON[:2]))
    reading = Reading(path)
    reading.run()
    reading.position, first = 0, list(reading.values)
    reading.run()
    assert reading.values == first * 2
    assert reading.n_lost == 0


def test_what_an_older_version_knew_of_a_file_is_read_on(tmp_path: Path) -> None:
    """Its checkpoints do not say whether a file ended amid a line."""
    path = tmp_path / "x"
    path.write_bytes(b'{"id":0}\n{"id":1}\n')
    reading = Reading(path)
    reading.position = 9
    reading.logs = {reading.partition: msgspec.convert({"begin": 0}, LogFacts)}
    reading.run()
    assert reading.values == [b'{"id":1}']
    assert "open_end" not in msgspec.to_builtins(reading.logs[reading.partition])


def test_a_line_that_is_cut_for_its_length_ends_no_file(tmp_path: Path) -> None:
    """Its pieces are read one after the other, also by the next run."""
    path = tmp_path / "x"
    path.write_bytes(b"x" * 25)
    reading = Reading(path)
    reading.run(line_bytes_max=10)
    assert reading.values == [b"x" * 10, b"x" * 10, b"x" * 5]


def test_a_recorder_passes_the_rest_of_a_line_over(tmp_path: Path) -> None:
    """A recording knows it of its file as a checkpoint does."""
    path, target = tmp_path / "x.jsonl", tmp_path / "r.gz"
    settings, limits = (
        Settings.model_validate({"source": f"file:{path}"}),
        RecordLimits(until_end=True),
    )
    path.write_bytes(b"".join(JSON[:2]))
    assert record(settings, target, limits, threading.Event(), show=False).messages == 2
    path.write_bytes(b"".join(JSON))
    assert record(settings, target, limits, threading.Event(), show=False).messages == 1
