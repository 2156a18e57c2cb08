"""Records: how files are recognised, and how their bytes are cut, however they arrive."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.config.addresses import FileSettings
from consumers.decode.rows import SENTIMENT140_COLUMNS, RecordFormat, recognise
from consumers.sources.records import Records, split_csv, split_lines


def pieces(split: Callable[..., Records], data: bytes, sizes: list[int], limit: int) -> list[bytes]:
    """Cut data that arrives in portions of the given sizes."""
    found: list[bytes] = []
    buffer, at = b"", 0
    while at < len(data) or buffer:
        size = sizes[len(found) % len(sizes)]
        buffer, last = buffer + data[at : at + size], at >= len(data)
        at += size
        records = split(buffer, last=last, bytes_max=limit)
        spans = zip(records.starts.tolist(), records.ends.tolist(), strict=True)
        found += [buffer[start:end] for start, end in spans]
        buffer = buffer[records.consumed :]
    return found


def test_the_official_file_is_known_without_a_header() -> None:
    """Six columns that begin with a polarity are Sentiment140's own file, in Latin-1."""
    line = b'"0","146","Mon Apr 06 22:19:45 PDT 2009","NO_QUERY","mia","caf\xe9, ok"\n'
    official = RecordFormat("csv", SENTIMENT140_COLUMNS, "latin-1")
    assert recognise(line * 3, FileSettings()) == (official, 0)
    broken = b'"4","1","d","NO_QUERY","mia","two\nlines"\n'
    assert recognise(broken, FileSettings()) == (official, 0)


@pytest.mark.parametrize(
    ("head", "settings", "kind", "encoding", "skipped"),
    [
        (b'{"a":1}\n', {}, "jsonl", "utf-8", 0),
        (b'half, a line"}\n{"a":1}\n{"b":2}\n', {}, "jsonl", "utf-8", 0),
        (b"\x00\x01\x02", {}, "jsonl", "utf-8", 0),
        (b'{"a":1}\n', {"encoding": "latin-1"}, "jsonl", "latin-1", 0),
        (b"id,text\r\n1,a\r\n", {}, "csv", "utf-8", 9),
        (b"\xef\xbb\xbfid,text\n1,a\n", {}, "csv", "utf-8", 11),
        (b"id,text\n1,\xe9\n", {}, "csv", "latin-1", 8),
        (b"id,text\n1,\xe2\x82", {}, "csv", "utf-8", 8),
        (b"id,text\n1,\xe9\n", {"encoding": "utf-8"}, "csv", "utf-8", 8),
        (b"text\n{1}\n{2}\n", {"format": "csv"}, "csv", "utf-8", 5),
        (b"id,text", {}, "csv", "utf-8", 7),
        (b"\n\r\nid,text\n1,a\n", {}, "csv", "utf-8", 11),
        (b"\xef\xbb\xbf\n\n", {"format": "csv"}, "csv", "utf-8", 5),
    ],
)
def test_formats_are_recognised(
    head: bytes, settings: dict[str, str], kind: str, encoding: str, skipped: int
) -> None:
    """The first bytes tell format, encoding and where the records begin; settings win."""
    form, first = recognise(head, FileSettings.model_validate(settings))
    assert (form.kind, form.encoding, first) == (kind, encoding, skipped)
    if b"id,text" in head:
        assert form.columns == ("id", "text")


@pytest.mark.parametrize(
    ("data", "records"),
    [
        (b'1,"open\n2,b\n3,c\n', [b'1,"open', b"2,b", b"3,c"]),
        (b'"1","a\n"2","b"\n"3","c"\n', [b'"1","a', b'"2","b"', b'"3","c"']),
        (b'1,5" disk\n2,7" disk\n3,c', [b'1,5" disk', b'2,7" disk', b"3,c"]),
        (b'1,"a\nb"\n2,"x"y\n3,"c\r\nd"\r\n', [b'1,"a\nb"', b'2,"x"y', b'3,"c\r\nd"']),
    ],
)
def test_a_runaway_quote_costs_one_line(data: bytes, records: list[bytes]) -> None:
    """A quote that cannot be one leaves its line alone, and the next lines are read as ever."""
    assert pieces(split_csv, data, [len(data)], 1 << 20) == records
    assert pieces(split_csv, data, [1], 1 << 20) == records


def test_a_line_without_end_is_cut() -> None:
    """Of a line above the limit each full piece is a record, and the next line is whole again."""
    data = b"a" * 25 + b"\nbb\n" + b"c" * 10 + b"\n"
    parts = [b"a" * 10, b"a" * 10, b"a" * 5, b"bb", b"c" * 10]
    for split in (split_lines, split_csv):
        for size in (1, 7, 100):
            assert pieces(split, data, [size], 10) == parts


@given(st.binary(max_size=60), st.lists(st.integers(1, 9), min_size=1), st.integers(3, 40))
def test_records_do_not_depend_on_how_the_bytes_arrive(
    data: bytes, sizes: list[int], limit: int
) -> None:
    """However the bytes are portioned, the records are the same, and no byte but line ends goes."""
    data = data.translate(bytes(b'\n"a,\r'[n % 5] if n % 2 else n for n in range(256)))
    ends = bytes.maketrans(b"", b"")
    for split in (split_lines, split_csv):
        whole = pieces(split, data, [len(data) or 1], limit)
        assert pieces(split, data, sizes, limit) == whole
        if split is split_csv:
            kept = b"".join(whole).translate(ends, b"\r\n")
            assert kept == data.translate(ends, b"\r\n")
        else:
            assert whole == plain_lines(data, limit)


def plain_lines(data: bytes, limit: int) -> list[bytes]:
    """Cut at line breaks as `split_lines` does, in plain Python."""
    found = []
    for line in data.split(b"\n"):
        # A line as long as the limit is whole; of a longer one the rest is cut again.
        cuts = range(0, len(line), limit)
        found += [line[at : at + limit].removesuffix(b"\r") for at in cuts]
    return [line for line in found if line.strip()]


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_line_of_blanks_is_passed_over_like_an_empty_one(size: int) -> None:
    """So are all blanks that an editor leaves; blanks around JSON stay. In CSV they are a cell."""
    data = b'{"a":1}\n \n\t \r\n\r\r\n \x0b\x0c\n  {"b":2} \n{"c":3}\n   '
    lines = [b'{"a":1}', b'  {"b":2} ', b'{"c":3}']
    assert pieces(split_lines, data, [size], 1 << 20) == lines
    assert pieces(split_csv, b"text\n \na\n", [size], 1 << 20) == [b"text", b" ", b"a"]


@given(
    st.lists(st.tuples(st.just("4"), st.text(st.sampled_from('ab",\n é'))), min_size=1, max_size=8),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    st.lists(st.integers(1, 9), min_size=1),
)
def test_what_a_csv_writer_writes_is_read(
    rows: list[tuple[str, str]], quoting: int, sizes: list[int]
) -> None:
    """Records of Python's own CSV writer come out one by one, however they arrive."""
    file = io.StringIO()
    csv.writer(file, quoting=quoting, lineterminator="\n").writerows(rows)  # type: ignore[arg-type]
    found = pieces(split_csv, file.getvalue().encode(), sizes, 1 << 20)
    assert [tuple(next(csv.reader([value.decode()]))) for value in found] == rows
