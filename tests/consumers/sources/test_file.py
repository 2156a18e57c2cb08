"""Recorded files: each record once, from any position, whatever the packing and the damage."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import zstandard

from consumers.config.addresses import FileSettings
from consumers.config.message import FieldLabels, MessageSettings
from consumers.decode.decoder import Decoder
from consumers.decode.labels import FieldLabeller
from consumers.decode.rows import RecordFormat
from consumers.errors import ReplacedError, SourceError
from consumers.messages import Partition, Reason
from consumers.sources.base import LogFacts
from consumers.sources.file import FileSource

SMALL = FileSettings(batch_bytes=1024)
LINES = [b'{"id":%d,"text":"message %d"}' % (n, n * n) for n in range(500)]
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstandard": zstandard.ZstdCompressor().compress,
}


class Waits(list[float]):
    """A wait that takes no time, and is remembered."""

    def __call__(self, seconds: float) -> None:
        """Remember a wait."""
        self.append(seconds)


OPENED: list[FileSource] = []


@pytest.fixture(autouse=True)
def _closed_files() -> Iterator[None]:
    """Close whatever a test has opened."""
    yield
    while OPENED:
        OPENED.pop().close()


def begun(
    path: Path,
    settings: FileSettings = SMALL,
    position: int | None = None,
    *,
    follow: bool = False,
    logs: Mapping[Partition, LogFacts] | None = None,
) -> FileSource:
    """Return an opened source."""
    source = FileSource(path, settings, follow=follow, wait=Waits())
    source.resume(logs or {})
    source.open({Partition(f"file:{path.name}", 0): position}.get)
    OPENED.append(source)
    return source


def rest(source: FileSource) -> list[tuple[int, bytes]]:
    """Read to the end; return offsets and records."""
    found: list[tuple[int, bytes]] = []
    read_into(found, source)
    return found


def read_into(found: list[tuple[int, bytes]], source: FileSource) -> None:
    """Read to the end, or to an error."""
    while not source.at_end():
        for raw in source.poll(0.0):
            found += [(int(raw.offsets[i]), raw.value(i) or b"") for i in range(len(raw))]
            assert not raw.times_ms.size or raw.times_ms.max() == -1
            assert raw.key(0) is None


def values(path: Path, settings: FileSettings = SMALL) -> list[bytes]:
    """Return all records of a file."""
    return [value for _, value in rest(begun(path, settings))]


def written(path: Path, data: bytes) -> Path:
    """Write a file."""
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("packing", PACKERS)
def test_every_packing_gives_the_same_records(tmp_path: Path, packing: str) -> None:
    """Plain or packed, told by its bytes and not its name, a file is the same stream."""
    data = b"\n".join(LINES) + b"\n"
    found = rest(begun(written(tmp_path / "x.dat", PACKERS[packing](data))))
    assert [value for _, value in found] == LINES
    assert all(data[at : at + len(value)] == value for at, value in found)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("packing", ["plain", "gzip"])
def test_utf_16_is_told_and_not_read_as_lines_of_nul(
    tmp_path: Path, packing: str, encoding: str
) -> None:
    """What Windows writes by `>` is refused with the way out, unless the encoding is given."""
    text = '\ufeff{"id":1,"text":"a, b"}\n'.encode(encoding)
    path = written(tmp_path / "x.jsonl", PACKERS[packing](text))
    with pytest.raises(SourceError, match=r"UTF-16.*iconv -f UTF-16 -t UTF-8"):
        begun(path)
    begun(path, FileSettings(encoding="latin-1"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"id;text;label\n1;lovely, really;positive\n", r"semicolons .*delimiter=';'"),
        (b'\xef\xbb\xbf"id";"text"\r\n"1";"[a] b"\r\n', r"semicolons"),
        (b"id\tcreated at\ttext\n1\tnow\ta, b\n", r"tabs .*delimiter='\\t'"),
        (b"id;text, or so;label\n1;a;b\n", r"semicolons"),
        ("größe;text\n".encode("latin-1"), r"semicolons"),
    ],
)
@pytest.mark.parametrize("packing", PACKERS)
def test_columns_without_commas_between_them_are_told(
    tmp_path: Path, packing: str, text: bytes, told: str
) -> None:
    """What a spreadsheet writes is refused with the way out, which makes a file that is read."""
    path = written(tmp_path / "x.csv", PACKERS[packing](text))
    with pytest.raises(SourceError, match=rf"x\.csv: its header looks as if {told}"):
        begun(path)
    with pytest.raises(SourceError, match=told):
        begun(path, FileSettings(format="csv"))


@pytest.mark.parametrize("sign", [";", "\t"])
def test_the_way_out_of_other_separators_works(tmp_path: Path, sign: str) -> None:
    """The command that the error names writes a file of the same cells."""
    text = f'id{sign}text\n1{sign}"a, b{sign}\nc"\n'
    with pytest.raises(SourceError) as refused:
        begun(written(tmp_path / "x.csv", text.encode()))
    command = str(refused.value).split("`")[1].replace("OLD", "x.csv").replace("NEW", "y.csv")
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert values(tmp_path / "y.csv") == [f'1,"a, b{sign}\nc"'.encode()]


@pytest.mark.parametrize(
    "text",
    [
        b"id,text\n1,a; b; c\n",
        b"text; german\nhello world\n",
        b'{"a": 1; broken\n',
        b'a;b\n{"a":1}\n',
        b"id;text,label,lang\n1;a,b,c\n",
        b"\n" * (1 << 18),
    ],
)
def test_a_semicolon_elsewhere_separates_nothing(tmp_path: Path, text: bytes) -> None:
    """A file is only refused if its first two lines look separated by another sign."""
    begun(written(tmp_path / "x", text)).close()


@pytest.mark.parametrize("packing", PACKERS)
def test_reading_goes_on_at_any_record(tmp_path: Path, packing: str) -> None:
    """From each batch's next offset on, a second run reads exactly what is left."""
    path = written(tmp_path / "x", PACKERS[packing](b"\n".join(LINES)))
    whole = rest(begun(path))
    batch = begun(path).poll(0.0)[0]
    after = rest(begun(path, position=batch.next_offset))
    assert after == [record for record in whole if record[0] > batch.offsets[-1]]
    for k in (1, 250, 499):
        assert rest(begun(path, position=whole[k][0])) == whole[k:]


@pytest.mark.parametrize("packing", [name for name in PACKERS if name != "plain"])
def test_members_may_follow_each_other(tmp_path: Path, packing: str) -> None:
    """Packed files that were joined are one stream, with zeros between them too."""
    pack = PACKERS[packing]
    data = pack(b"\n".join(LINES[:9]) + b"\n") + bytes(1024) + pack(LINES[9]) + bytes(8)
    assert values(written(tmp_path / "x", data)) == LINES[:10]


@pytest.mark.parametrize(
    "packing",
    [
        pytest.param(name, marks=pytest.mark.deep) if name == "xz" else name  # it packs slowly
        for name in PACKERS
        if name != "plain"
    ],
)
def test_a_file_that_was_cut_off_says_so_after_its_records(tmp_path: Path, packing: str) -> None:
    """What can be unpacked is handed over, then the error names file, position and way out."""
    noise = [b'{"text":"%s"}' % os.urandom(40).hex().encode() for _ in range(30_000)]
    packed = PACKERS[packing](b"\n".join(noise))
    source = begun(written(tmp_path / "cut", packed[: len(packed) * 3 // 4]))
    found: list[tuple[int, bytes]] = []
    with pytest.raises(SourceError, match=r"cut: cannot be unpacked .*cut off.* copy") as caught:
        read_into(found, source)
    assert len(found) > 5_000
    assert [value for _, value in found] == noise[: len(found)]
    at, value = found[-1]
    assert f"byte {at + len(value) + 1})" in str(caught.value)


@pytest.mark.parametrize("packing", ["gzip", "xz", "zstandard", "bzip2"])
def test_a_damaged_file_says_so(tmp_path: Path, packing: str) -> None:
    """Bytes that are no packed data end the stream with an error, not with silence."""
    pack = PACKERS[packing]
    data = pack(b"\n".join(LINES) + b"\n") + b"garbage" * 9
    source = begun(written(tmp_path / "bad", data))
    with pytest.raises(SourceError, match="damaged"):
        rest(source)


def test_lines_end_as_they_like(tmp_path: Path) -> None:
    """Line ends of Windows, blank lines, a byte order mark and a bare last line are all read."""
    data = b'\xef\xbb\xbf{"a":1}\r\n\r\n\n{"b":2}\n{"c":3}'
    found = rest(begun(written(tmp_path / "x.jsonl", data)))
    assert found == [(3, b'{"a":1}'), (15, b'{"b":2}'), (23, b'{"c":3}')]


def test_an_empty_file_is_at_its_end(tmp_path: Path) -> None:
    """A file without records ends at once."""
    assert values(written(tmp_path / "x", b"")) == []
    assert values(written(tmp_path / "x", b"\n\n")) == []


def test_a_growing_file_is_followed(tmp_path: Path) -> None:
    """A followed file waits for the end of its last line, and then hands it over."""
    path = written(tmp_path / "log.jsonl", b'{"a":1}\n{"b"')
    source = begun(path, follow=True)
    assert [len(raw) for raw in source.poll(0.0)] == [1]
    assert source.poll(0.0) == []
    assert not source.at_end()
    with path.open("ab") as file:
        file.write(b':2}\n{"c":3}\n')
    (raw,) = source.poll(0.0)
    assert [raw.value(i) for i in range(2)] == [b'{"b":2}', b'{"c":3}']
    assert source.at_end()
    assert source.poll(0.0) == []


def test_at_the_end_a_poll_waits(tmp_path: Path) -> None:
    """A source that has nothing lets the time pass, and no longer than it may."""
    source = FileSource(written(tmp_path / "x", b"{}"), SMALL, wait=(waits := Waits()))
    source.open(lambda _: None)
    assert len(source.poll(5.0)) == 1
    assert source.poll(0.05) == []
    assert waits == [0.05]
    assert (source.lag(), source.trouble()) == ({}, None)
    source.report_positions({})
    source.close()


def test_a_shorter_file_is_another_file(tmp_path: Path) -> None:
    """A position behind the end of the file is refused, plain or packed, with the way out."""
    for packing in ("plain", "gzip"):
        path = written(tmp_path / packing, PACKERS[packing](b"{}\n" * 9))
        with pytest.raises(SourceError, match=r"byte 28.*checkpoint\.folder"):
            rest(begun(path, position=28))
    followed = begun(written(tmp_path / "log", b"{}\n" * 9), follow=True)
    assert len(followed.poll(0.0)[0]) == 9
    (tmp_path / "log").write_bytes(b"{}\n")
    with pytest.raises(SourceError, match="another file"):
        followed.poll(0.0)


def learned(path: Path, **options: Any) -> tuple[int, Mapping[Partition, LogFacts]]:
    """Read a batch; return the next position and what a checkpoint there knows of the file."""
    source = begun(path, **options)
    position = source.poll(0.0)[0].next_offset
    return position, source.logs({source.partition: position})


@pytest.mark.parametrize("packing", PACKERS)
def test_a_longer_file_of_that_name_is_another_file(tmp_path: Path, packing: str) -> None:
    """Its bytes before the position differ, by one line or by all, plain or packed."""
    pack = PACKERS[packing]
    path = written(tmp_path / "x", pack(b"\n".join(LINES)))
    position, logs = learned(path)
    for changed in (0, 3):
        other = [*LINES[:changed], b'{"text":"another"}', *LINES[changed + 1 :]] * 3
        written(path, pack(b"\n".join(other)))
        with pytest.raises(ReplacedError, match=r"x: its bytes .*checkpoint\.folder"):
            begun(path, position=position, logs=logs)


@pytest.mark.parametrize("packing", PACKERS)
def test_a_copy_and_a_longer_copy_are_the_same_file(tmp_path: Path, packing: str) -> None:
    """The bytes decide, not the inode; what was appended meanwhile is read."""
    pack = PACKERS[packing]
    path = written(tmp_path / "x", pack(b"\n".join(LINES) + b"\n"))
    position, logs = learned(path)
    for more in (b"", pack(b"{}\n")):
        copy = written(tmp_path / "copy", path.read_bytes() + more)
        copy.replace(path)
        source = begun(path, position=position, logs=logs)
        whole = rest(begun(path))
        assert [value for _, value in whole] == [*LINES, *([b"{}"] if more else [])]
        assert rest(source) == [record for record in whole if record[0] >= position]


def test_a_position_deep_in_a_batch_knows_its_file(tmp_path: Path) -> None:
    """The last bytes before the position decide, also far behind the file's beginning."""
    data = b"".join(b'{"text":"%d"}\n' % n for n in range(20_000))
    path = written(tmp_path / "x", data)
    source = begun(path, FileSettings())
    assert len(source.poll(0.0)[0]) == 20_000
    position = data.index(b"\n", 150_000) + 1
    logs = source.logs({source.partition: position})
    assert len(rest(begun(path, position=position, logs=logs))) > 1_000
    written(path, data[: position - 20] + b"*" + data[position - 19 :] + data)
    with pytest.raises(ReplacedError):
        begun(path, position=position, logs=logs)


def test_a_damaged_file_may_be_put_right(tmp_path: Path) -> None:
    """The undamaged copy has other bytes, and reading goes on in it as the error says."""
    packed = gzip.compress(b"\n".join(LINES) + b"\n")
    path = written(tmp_path / "x", packed[:-8] + bytes(8))  # its checksum
    source = begun(path)
    found: list[tuple[int, bytes]] = []
    with pytest.raises(SourceError, match="undamaged copy"):
        read_into(found, source)
    position = found[-1][0] + len(found[-1][1]) + 1
    logs = source.logs({source.partition: position})
    written(path, packed)
    after = rest(begun(path, position=position, logs=logs))
    assert [value for _, value in found + after] == LINES


def test_a_followed_file_that_is_written_over_ends_the_run(tmp_path: Path) -> None:
    """Cut and longer again between two polls: nothing of it is handed over as what comes next.

    The checkpoint that is written at the end still knows the file as it was.
    """
    path = written(tmp_path / "x", b"\n".join(LINES) + b"\n")
    source = begun(path, FileSettings(), follow=True)
    position = source.poll(0.0)[0].next_offset
    logs = source.logs({source.partition: position})
    path.write_bytes(b'{"text":"another"}\n' * 5_000)
    told = rf"written over .* up to byte {position} .* --cursor\)"
    with pytest.raises(ReplacedError, match=told):
        source.poll(0.0)
    assert source.logs({source.partition: position}) == logs


def test_another_file_that_takes_the_name_ends_the_run(tmp_path: Path) -> None:
    """All that was appended to the old one is read first, under whatever name it has now."""
    path = written(tmp_path / "x", b"\n".join(LINES) + b"\n")
    source = begun(path, FileSettings(), follow=True)
    assert len(source.poll(0.0)[0]) == len(LINES)
    path.replace(tmp_path / "x.1")
    assert source.poll(0.0) == []
    assert "renamed or deleted" in (source.trouble() or "")
    with (tmp_path / "x.1").open("ab") as old:
        old.write(b'{"last":1}\n')
    written(path, b'{"text":"another"}\n' * 5_000)
    assert source.poll(0.0)[0].value(0) == b'{"last":1}'
    with pytest.raises(ReplacedError, match="another file has taken its name"):
        source.poll(0.0)


def test_a_longer_copy_that_takes_the_name_is_followed(tmp_path: Path) -> None:
    """As rsync puts it there: the same bytes, and more."""
    path = written(tmp_path / "x", b"\n".join(LINES) + b'\n{"ha')
    source = begun(path, FileSettings(), follow=True)
    assert len(source.poll(0.0)[0]) == len(LINES)
    copy = written(tmp_path / ".x.new", path.read_bytes() + b'lf":1}\n')
    copy.replace(path)
    assert source.poll(0.0) == []
    (raw,) = source.poll(0.0)
    assert raw.value(0) == b'{"half":1}'
    assert source.trouble() is None


def appended(path: Path, data: bytes) -> None:
    """Write on at the end of a file."""
    with path.open("ab") as file:
        file.write(data)


MARK = b"\xef\xbb\xbf"
CSV = FileSettings(format="csv", batch_bytes=1024)


@pytest.mark.parametrize(
    ("begin", "more", "settings"),
    [
        (b"", b"text,label\nhi,a\n", SMALL),
        (b"", b"text,label\nhi,a\n", CSV),
        (MARK, b"text,label\nhi,a\n", SMALL),
        (b"\n\n", b"text,label\nhi,a\n", SMALL),
        (b"text", b",label\nhi,a\n", SMALL),
        (b"text,la", b"bel\nhi,a\n", SMALL),
        (b"text,la", b"bel\nhi,a\n", CSV),
    ],
)
def test_a_header_that_comes_after_the_start_is_read_after_the_next(
    tmp_path: Path, begin: bytes, more: bytes, settings: FileSettings
) -> None:
    """No row is handed over as another format; the error has the way out, which works."""
    path = written(tmp_path / "x.csv", begin)
    source = begun(path, settings, follow=True)
    assert source.poll(0.0) == []
    appended(path, more[:3])
    assert source.poll(0.0) == []
    appended(path, more[3:])
    for _ in range(2):
        with pytest.raises(SourceError, match=r"x\.csv: .*text, label.* start again") as caught:
            source.poll(0.0)
        assert caught.value.exit_code == 69
    again = begun(path, settings, follow=True, position=0, logs=source.logs({source.partition: 0}))
    assert again.record_format.columns == ("text", "label")
    assert [value for _, value in rest(again)] == [b"hi,a"]


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"", b'{"a":1}\n{"a":2}\n'),
        (b"", MARK + b'{"a":1}\n'),
        (MARK[:2], MARK[2:] + b'{"a":1}\n'),
        (b"\n", b' \n{"a":1}\n'),
        (b'{"a"', b':1}\n{"a":2}\n'),
        (b"text,label", b"\r\nhi,a\nho,b\n"),
    ],
)
def test_a_file_that_was_empty_is_read_as_one_that_was_not(
    tmp_path: Path, begin: bytes, more: bytes
) -> None:
    """The same records at the same offsets, however much of the first line was there."""
    path = written(tmp_path / "x", begin)
    source = begun(path, follow=True)
    assert source.poll(0.0) == []
    appended(path, more)
    found = [
        (int(raw.offsets[i]), raw.value(i)) for raw in source.poll(0.0) for i in range(len(raw))
    ]
    assert found == rest(begun(path))
    assert found


def test_what_a_start_refuses_is_refused_when_it_comes_later(tmp_path: Path) -> None:
    """Separators, UTF-16 and a packed file are told; given as JSON lines, lines are lines."""
    data = b"id;text\n1;a\n"
    utf16 = '\ufeff{"a":1}\n'.encode("utf-16-le")
    for more, told in ((data, "semicolons"), (utf16, "UTF-16"), (gzip.compress(data), "packed")):
        path = written(tmp_path / "x", b"")
        source = begun(path, follow=True)
        lines = begun(path, FileSettings(format="jsonl"), follow=True)
        appended(path, more)
        with pytest.raises(SourceError, match=told):
            source.poll(0.0)
    written(path, data)
    assert [raw.value(0) for raw in lines.poll(0.0)] == [b"id;text"]


@pytest.mark.parametrize("n_before", [0, 1])
def test_a_file_that_grew_from_nothing_is_known(tmp_path: Path, n_before: int) -> None:
    """Its first bytes are those that were read of it, not those that stood there at the start."""
    path = written(tmp_path / "x", b"".join(line + b"\n" for line in LINES[:n_before]))
    source = begun(path, FileSettings(), follow=True)
    appended(path, b"".join(line + b"\n" for line in LINES[n_before:]))
    position = source.poll(0.0)[0].next_offset
    logs = source.logs({source.partition: position})
    known = logs[source.partition].head
    assert known is not None
    assert (known.begin, known.end) == (0, position)
    assert begun(path, position=position, logs=logs).poll(0.0) == []
    data = bytearray(path.read_bytes())
    data[position // 2] ^= 1
    with pytest.raises(ReplacedError, match="not those that were read before"):
        begun(written(path, bytes(data)), position=position, logs=logs)


def test_a_head_ends_where_its_print_does(tmp_path: Path) -> None:
    """However a file grew, what identifies it is what a reader of the whole file finds."""
    path = written(tmp_path / "x", b"")
    source = begun(path, FileSettings(), follow=True)
    position = 0
    for _ in range(3):
        appended(path, b"\n".join(LINES * 3) + b"\n")
        position = source.poll(0.0)[0].next_offset
    fresh = begun(path, FileSettings())
    assert fresh.poll(0.0)[0].next_offset == position > 1 << 16
    at = {source.partition: position}
    assert source.logs(at) == fresh.logs(at)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A missing file, a folder and a named pipe are refused at once, by name."""
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (("no", "check the path"), (".", "regular file"), ("pipe", "stdin")):
        with pytest.raises(SourceError, match=reason):
            FileSource(tmp_path / name, SMALL)


HEADED = b'row,polarity,id,date,exact,user,text\n0,4,1,d,1,mia,"a ""b""\nc, d"\n1,0,2,d,1,leo,e\n'


def test_csv_records_may_hold_line_breaks(tmp_path: Path) -> None:
    """A quoted line break is part of its record, and the header is none."""
    path = written(tmp_path / "x.csv", HEADED)
    source = begun(path)
    columns = ("row", "polarity", "id", "date", "exact", "user", "text")
    assert source.record_format == RecordFormat("csv", columns, "utf-8")
    found = rest(source)
    assert [value for _, value in found] == [b'0,4,1,d,1,mia,"a ""b""\nc, d"', b"1,0,2,d,1,leo,e"]
    assert rest(begun(path, position=found[1][0])) == found[1:]


def decoded(source: FileSource, decoder: Decoder) -> tuple[int, list[Reason]]:
    """Return how many messages a file holds, and why the others are rejected."""
    n, reasons = 0, list[Reason]()
    while not source.at_end():
        for raw in source.poll(0.0):
            done = decoder.decode(raw)
            n += len(done)
            reasons += [found.reason for found in done.rejects]
    return n, reasons


def test_an_open_quote_is_given_up_after_a_megabyte(tmp_path: Path) -> None:
    """A quote that never closes does not swallow a long file: its line is rejected, alone."""
    lines = [b"%d,some words" % n for n in range(2, 120_000)]
    data = b'id,text\n1,"open\n' + b"\n".join(lines)
    source = begun(written(tmp_path / "x.csv", data), FileSettings())
    decoder = Decoder(MessageSettings(), FieldLabeller(FieldLabels(), ("a",)), source.record_format)
    assert decoded(source, decoder) == (len(lines), [Reason.NOT_CSV])


@pytest.mark.deep
@pytest.mark.data
def test_the_recorded_tweets_are_all_read(data_folder: Path) -> None:
    """The raw subset of Sentiment140 decodes without a reject, with its labels, users and times."""
    path = data_folder / "sentiment140" / "s140_raw_subset.csv.xz"
    source = begun(path, FileSettings())
    classes = ("negative", "positive")
    decoder = Decoder(
        MessageSettings(), FieldLabeller(FieldLabels(), classes), source.record_format
    )
    n, labels = 0, set[str | None]()
    while not source.at_end():
        for raw in source.poll(0.0):
            done = decoder.decode(raw)
            assert done.rejects == []
            envelopes = [done.envelope(i) for i in range(len(done))]
            assert None not in {envelope.user for envelope in envelopes}
            assert min(envelope.time_ms for envelope in envelopes) > 1_238_000_000_000
            n += len(done)
            labels.update(envelope.label for envelope in envelopes)
    assert (n, labels) == (66_433, set(classes))


JETSTREAM_ID = ["did", "commit.collection", "commit.rkey"]


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "settings", "texts", "missing"),
    [
        ("twitter_v1_stream_2016.jsonl.xz", {"user": "user.screen_name"}, 427, 0),
        ("x_v2_filtered_stream_sample.jsonl", {"id": "data.id", "text": "data.text"}, 2, 0),
        (
            "jetstream_corpus_expected_v1.jsonl",
            {"text": "commit.record.text", "operation": "commit.operation", "id": JETSTREAM_ID},
            21,
            131,
        ),
    ],
)
def test_recorded_streams_are_read(
    data_folder: Path, name: str, settings: dict[str, Any], texts: int, missing: int
) -> None:
    """Messages of three networks are understood by paths alone; likes have no text."""
    source = begun(data_folder / "streams" / name)
    labeller = FieldLabeller(FieldLabels(), ("negative", "positive"))
    decoder = Decoder(MessageSettings.model_validate(settings), labeller, source.record_format)
    assert decoded(source, decoder) == (texts, [Reason.MISSING_TEXT] * missing)
