"""Records are found by the hash of their id, and read wherever their chunks lie."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from structlog.testing import capture_logs

from consumers.config.model import FieldKind
from consumers.kernels import learned_records as kernels
from consumers.kernels.learned_records import CREATED, EARLY_DELETE, ERASED
from consumers.messages import CheckpointEntry, Column, Partition
from consumers.pipeline import erasure, learned_memory, learned_records
from consumers.pipeline.erasure import ErasedIds, erase_records
from consumers.pipeline.group_parts import shared_records, take_over_records
from consumers.pipeline.learned_memory import FOLDER_NAME, LearnedMemory
from consumers.pipeline.learned_records import (
    DamagedError,
    FoundRecords,
    Hashes,
    IdIndex,
    Segment,
    Values,
    add_checksums,
    listed,
    no_spans,
    pack,
    parse,
)
from consumers.pipeline.part_files import SharedRecords
from consumers.pipeline.waiting_messages import records_at
from consumers.private_files import MappedFiles
from streamnb import TextColumn
from streamnb.kernels.layout import Texts
from tests.consumers.test_private_files import Cache
from tests.system_calls import hooked

Record = tuple[str | None, str | None, float]
FIELDS: dict[str, FieldKind] = {"text": "words", "age": "numbers"}
TEXTS = st.none() | st.text(alphabet="abé/", max_size=4)
RECORDS = st.tuples(TEXTS, TEXTS, st.floats(allow_nan=False))
CHUNKS = st.lists(st.lists(RECORDS, min_size=1, max_size=5), min_size=1, max_size=6)


def segment_of(chunks: list[list[Record]], path: Path | None) -> Segment:
    """Return a segment with these chunks: in memory, or in a file alone."""
    segment = Segment(0, path, MappedFiles(1))
    for own in chunks:
        ids, texts = texts_of([each[0] for each in own]), texts_of([each[1] for each in own])
        numbers = np.array([each[2] for each in own])
        n = len(own)
        first = segment.n
        columns: list[Texts | NDArray[np.float64]] = [texts, numbers]
        data = pack(
            np.arange(first, first + n) * 10, np.arange(n, dtype=np.int32) - 1,
            np.full(n, CREATED, np.uint8), ids, columns,
        )  # fmt: skip
        segment.append(data, n)
    segment.is_sealed = True
    if path is not None:
        segment.store(segment.n_bytes)
        segment.release()
        assert segment.held is None
    return segment


def texts_of(values: list[str | None]) -> Texts:
    """Return texts in one buffer."""
    data = b"".join((value or "").encode() for value in values)
    sizes = np.array([len((value or "").encode()) for value in values], np.int64)
    ends = np.cumsum(sizes)
    missing = np.array([value is None for value in values])
    buffer = np.frombuffer(bytearray(data), np.uint8)
    return Texts(buffer, ends - sizes, np.where(missing, -1, ends))


def _read(segment: Segment, at: list[int]) -> FoundRecords:
    numbers = np.array(at, np.int64)
    spans = no_spans(len(at), len(FIELDS))
    values = Values()
    values.add(segment.locate(numbers, spans), spans)
    return FoundRecords(numbers, spans, values.data)


@given(CHUNKS, st.data(), st.booleans(), st.sampled_from([1, 2, 1 << 10]))
def test_records_are_read_from_memory_and_file(
    tmp_path_factory: pytest.TempPathFactory,
    chunks: list[list[Record]],
    data: st.DataObject,
    in_file: bool,
    at_once: int,
) -> None:
    """Whatever records are asked for, and however many at once, their values are as appended."""
    path = tmp_path_factory.mktemp("segment") / "0.records" if in_file else None
    segment = segment_of(chunks, path)
    every = [(row, each) for own in chunks for row, each in enumerate(own)]
    at = sorted(data.draw(st.sets(st.integers(0, len(every) - 1))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learned_records, "RECORDS_AT_ONCE", at_once)
        found = _read(segment, at)
    assert [
        (each.number, each.kind, each.offset, each.label, each.id) for each in found.records()
    ] == [(i, CREATED, 10 * i, every[i][0] - 1, _bytes(every[i][1][0])) for i in at]
    columns: Mapping[str, Column] = found.columns(FIELDS)
    texts = columns["text"]
    assert isinstance(texts, TextColumn)
    values = [
        None if end < 0 else texts.texts.data[start:end].tobytes()
        for start, end in zip(texts.texts.starts, texts.texts.ends, strict=True)
    ]
    assert values == [_bytes(every[i][1][1]) for i in at]
    assert np.asarray(columns["age"]).tolist() == [every[i][1][2] for i in at]
    assert found.parts(len(FIELDS)) == [None] * len(at)


def _colliding(texts: Texts) -> NDArray[np.uint64]:
    """Return one of three hashes of each text."""
    bounds = zip(texts.starts.tolist(), texts.ends.tolist(), strict=True)
    sums = [int(texts.data[start:end].sum()) % 3 for start, end in bounds]
    return np.array(sums, np.uint64)


@given(
    CHUNKS,
    st.dictionaries(
        st.text("abé/", min_size=1, max_size=3), st.integers(0, 9).map(lambda i: 10 * i)
    ),
    st.lists(st.integers(0, 30).map(lambda i: 10 * i), max_size=3),
    st.booleans(),
    st.sampled_from([0, 1 << 14]),
)
def test_what_is_erased_is_what_each_record_says(
    tmp_path_factory: pytest.TempPathFactory,
    chunks: list[list[Record]],
    ids: dict[str, int],
    places: list[int],
    of_accounts: bool,
    gap_bytes: int,
) -> None:
    """One by one the records tell which go; of these nothing is left, and the rest is as it was."""
    path = tmp_path_factory.mktemp("erased") / "0.records"
    segment_of(chunks, path)
    accounts = {name: at + 10 for name, at in ids.items() if "/" not in name and of_accounts}
    named = {name.encode(): at for name, at in ids.items()}
    named |= {f"{name}/~".encode(): at for name, at in accounts.items()}
    erased = ErasedIds(named, places, _colliding, accounts=of_accounts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(erasure, "_GAP_BYTES", gap_bytes)
        erase_records(path, erased)
    data, at, number = path.read_bytes(), 0, 0
    for own in chunks:
        chunk = parse(memoryview(data), at, check=True)
        for row, (name, text, age) in enumerate(own):
            account, slash, _ = (name or "").partition("/")
            last = max(ids.get(name or "", -1), accounts.get(account, -1) if slash else -1)
            is_gone = 10 * number in places if name is None else 10 * number <= last
            value = (text or "").encode()
            wanted = (ERASED, bytes(len(value)), bytes(8)) if is_gone else (
                CREATED, value, np.float64(age).tobytes(),
            )  # fmt: skip
            spans = chunk.contents(np.array([row]))[:, 0].tolist()
            assert (chunk.kinds()[row], *(data[a:b] for a, b in spans)) == wanted
            number += 1
        at = chunk.end


@pytest.mark.parametrize("failing_sync", [1, 2, 3])
def test_records_whose_sync_failed_are_erased_again(tmp_path: Path, failing_sync: int) -> None:
    """The system takes the file for safe after a sync that failed; the disk still has the text."""
    path = tmp_path / "0.records"
    segment_of([[("a", "secret", 1.0), ("b", "kept", 2.0)]], path)
    erased = ErasedIds({b"a": 10}, [], _colliding, accounts=False)
    cache = Cache(path, failing_sync)
    with hooked(tmp_path, cache.note):
        with pytest.raises(OSError, match="Input/output"):
            erase_records(path, erased)
        erase_records(path, erased)
    assert b"secret" not in cache.disk
    assert b"kept" in cache.disk


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


@given(st.integers(0, 200), st.integers(0, 255))
def test_a_changed_byte_is_read_or_refused(place: int, byte: int) -> None:
    """No byte that was changed behind our back leads out of the buffer."""
    segment = segment_of([[("a", "b", 1.0), ("c", None, 2.0)]], None)
    data = segment.held
    assert data is not None
    data[place % segment.n_bytes] = byte
    numbers, spans = np.array([0, 1]), no_spans(2, len(FIELDS))
    try:
        found = segment.locate(numbers, spans)
    except DamagedError:
        return
    begins, ends = spans[:, kernels.ID :: 2], spans[:, kernels.ID + 1 :: 2]
    is_there = ends >= 0
    assert (begins >= 0)[is_there].all()
    assert (begins <= ends)[is_there].all()
    assert (ends <= segment.n_bytes).all()
    size, values = (ends - begins)[is_there].sum(), Values()
    values.add(found, spans)
    assert len(values.data) == size


def poked(what: str, row: int, value: int) -> bytes:
    """Return the one chunk of a segment with a number changed, and the right checksums."""
    segment = segment_of([[("a", "b", 1.0), ("c", "d", 2.0), ("e", None, 3.0)]], None)
    held = segment.held
    assert held is not None
    data = held[: segment.n_bytes]
    _, labels, id_ends, text_ends = map(int, kernels.array_places(0, segment.n, len(FIELDS)))
    heads = kernels.HEAD_BYTES + kernels.FIELD_BYTES * row + 8
    place, kind = {
        "label": (labels + 4 * row, "<i"),
        "end of an id": (id_ends + 8 * row, "<q"),
        "end of a text": (text_ends + 8 * row, "<q"),
        "bytes of a field": (heads, "<q"),
    }[what]
    struct.pack_into(kind, data.data, place, value)
    add_checksums(data.data)
    return data.tobytes()


def is_sound(data: bytes, n_classes: int) -> bool:
    """Return what the kernel of this name returns, by whole numbers of any size."""
    magic, n, n_fields, _, _, n_structure, _ = struct.unpack_from("<4sIIIIIQ", data)
    begin, body = kernels.HEAD_BYTES + kernels.FIELD_BYTES * n_fields, 32 + n_structure
    if magic != b"SNL1" or begin + 20 * n > body or body + n > len(data):
        return False
    heads = [struct.unpack_from("<qq", data, 32 + 16 * k) for k in range(n_fields)]
    n_texts = sum(not is_numbers for is_numbers, _ in heads)
    ids = begin + 20 * n + 8 * n * n_texts
    labels = struct.unpack_from(f"<{n}i", data, begin + 8 * n)
    if ids > body or any(not -1 <= label < n_classes for label in labels):
        return False
    ends = struct.unpack_from(f"<{n * (1 + n_texts)}q", data, begin + 12 * n)
    columns = [ends[n * k : n * (k + 1)] for k in range(1 + n_texts)]
    sizes = [body - ids, *(size for is_numbers, size in heads if not is_numbers)]
    for column, size in zip(columns, sizes, strict=True):
        reach = [0, *(-1 - end if end < 0 else end for end in column)]
        if reach != sorted(reach) or reach[-1] > size:
            return False
    has_room = all(size >= 8 * n for is_numbers, size in heads if is_numbers)
    return has_room and sum(size for _, size in heads) <= len(data) - body - n


@given(
    CHUNKS,
    st.integers(0, 1_000),
    st.integers(-9, 40) | st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(["<q", "<i", "<b"]),
)
def test_a_chunk_is_sound_if_its_plain_twin_says_so(
    chunks: list[list[Record]], place: int, value: int, kind: str
) -> None:
    """Whatever number stands where, nothing is read behind the buffer."""
    segment = segment_of(chunks[:1], None)
    assert segment.held is not None
    data = bytearray(segment.held[: segment.n_bytes].tobytes())
    n_bytes = struct.calcsize(kind)
    cut = (value + (1 << 8 * n_bytes - 1)) % (1 << 8 * n_bytes) - (1 << 8 * n_bytes - 1)
    struct.pack_into(kind, data, place % (len(data) - n_bytes + 1), cut)
    found = kernels.is_sound(np.frombuffer(bytes(data), np.uint8), 0, len(chunks[0]) - 1)
    assert found == is_sound(bytes(data), len(chunks[0]) - 1)


POKED = [
    ("label", 1, 2), ("label", 2, 1 << 30), ("label", 0, -2), ("label", 0, -(1 << 31)),
    ("end of an id", 0, 10**12), ("end of an id", 2, 10**12), ("end of an id", 1, -(2**63)),
    ("end of an id", 1, 0), ("end of an id", 2, 4), ("end of a text", 0, 10**12),
    ("end of a text", 2, 2**63 - 1), ("end of a text", 2, -5), ("end of a text", 1, 0),
    ("bytes of a field", 0, 1), ("bytes of a field", 0, 2**62), ("bytes of a field", 0, -1),
    ("bytes of a field", 1, 16), ("bytes of a field", 1, 32),
]  # fmt: skip


@pytest.mark.parametrize(("what", "row", "value"), POKED)
@pytest.mark.parametrize("theirs", [("negative", "positive"), ("positive", "negative")])
def test_a_forged_memory_is_lost_and_ends_nothing(
    what: str, row: int, value: int, theirs: tuple[str, ...]
) -> None:
    """Who can write a checksum can write any number: it must not lead out of the buffer."""
    log, ours = Partition("t", 0), ("negative", "positive")
    values = {"records": 3, "is_whole": True, "first_offset": 0, "files": [0]}
    with capture_logs() as said, closing(LearnedMemory(None, FIELDS, 100, 1)) as memory:
        shared = SharedRecords(values, {}, poked(what, row, value))
        take_over_records(memory, log, shared, theirs, ours)
        assert memory.trouble is not None
        assert len(memory.log(log).find(memory.hashed(texts_of(["a", "c"])))) == 0
    assert [each["event"] for each in said] == ["learned_damaged"]


@pytest.mark.parametrize(("row", "value"), [(1, 2), (2, 1 << 30), (0, -2)])
def test_a_label_of_no_class_in_the_daemons_own_file_is_refused(
    tmp_path: Path, row: int, value: int
) -> None:
    """A file that the checkpoint names may be damaged too: no label leads out of the classes."""
    path = tmp_path / FOLDER_NAME / "t%2F0" / "0.records"
    path.parent.mkdir(parents=True)
    path.write_bytes(poked("label", row, value))
    values = {"records": 3, "is_whole": True, "first_offset": 0, "files": [0]}
    with capture_logs() as said, closing(LearnedMemory(tmp_path, FIELDS, 100, 1)) as memory:
        memory.n_classes = 2
        memory.unpack(CheckpointEntry({"t/0": values}))
        assert memory.trouble is not None
        assert len(memory.log(Partition("t", 0)).find(memory.hashed(texts_of(["a", "c"])))) == 0
    assert [(each["event"], each["file"]) for each in said] == [("learned_damaged", "t/0/0")]
    assert f"label {value} of 2 classes, in the chunk at byte 0" in said[0]["detail"]
    assert "put the file back" in said[0]["detail"]


@pytest.mark.parametrize("what", ["end of an id", "end of a text"])
def test_numbers_that_were_written_are_taken(what: str) -> None:
    """The same bytes, nothing changed, are known: it is the change that is refused."""
    end = {"end of an id": 3, "end of a text": -3}[what]  # the third text is missing
    log = Partition("t", 0)
    values = {"records": 3, "is_whole": True, "first_offset": 0, "files": [0]}
    with closing(LearnedMemory(None, FIELDS, 100, 1)) as memory:
        shared = SharedRecords(values, {}, poked(what, 2, end))
        take_over_records(memory, log, shared, ("positive", "negative"), ("negative", "positive"))
        assert memory.trouble is None
        found = memory.log(log).find(memory.hashed(texts_of(["a", "c", "e"])))
    assert found.labels.tolist() == [-1, 1, 0]


ORDERED: dict[str, FieldKind] = {"text": "words", "age": "numbers", "lang": "categories"}
TURNED = {name: ORDERED[name] for name in ("age", "lang", "text")}
OTHERS: dict[str, FieldKind] = {"text": "words", "age": "numbers", "user": "categories"}


def append(memory: LearnedMemory, first: int) -> None:
    """Remember two records, each with a value of its own in each field and one behind them."""
    log, rows = memory.log(Partition("t", 0)), np.arange(first, first + 2)
    fields: dict[str, Column] = {
        name: rows.astype(np.float64)
        if kind == "numbers"
        else TextColumn(texts_of([f"{name} of {row}" for row in rows]))
        for name, kind in memory.fields.items()
    }
    ids = TextColumn(texts_of([f"m{row}" for row in rows]))
    more = TextColumn(texts_of([f"more of {row}" for row in rows]))
    created = np.full(2, CREATED, np.uint8)
    log.append(rows, np.zeros(2, np.int32), created, ids, {**fields, "": more})


def values_of(memory: LearnedMemory) -> list[list[object]]:
    """Return of each record its number of text, age and lang, and what stands behind them."""
    log = memory.log(Partition("t", 0))
    found = log.read(np.arange(log.n))
    columns = found.columns(memory.fields)
    more = [each.more for each in found.records(len(memory.fields))]
    values: list[Sequence[object]] = []
    for name in ORDERED:
        column = columns[name]
        values.append(listed(column.texts) if isinstance(column, TextColumn) else list(column))
    return [list(each) for each in zip(*values, more, strict=True)]


EXPECTED = [
    [f"text of {i}".encode(), float(i), f"lang of {i}".encode(), f"more of {i}".encode()]
    for i in range(6)
]


@pytest.mark.parametrize("is_handed_on", [False, True])
def test_columns_are_found_by_the_names_of_their_fields(tmp_path: Path, is_handed_on: bool) -> None:
    """Groups may stand in another order, as often as one likes: no value changes its field."""
    log = Partition("t", 0)
    entry = CheckpointEntry({})
    shared: SharedRecords | None = None
    for k, fields in enumerate((ORDERED, TURNED, ORDERED)):
        folder = tmp_path / str(k) if is_handed_on else tmp_path
        with closing(LearnedMemory(folder, fields, 100, 1)) as memory:
            if is_handed_on and k:
                take_over_records(memory, log, shared, ("positive",), ("positive",))
            elif not is_handed_on:
                memory.unpack(entry)
            append(memory, 2 * k)
            assert values_of(memory) == EXPECTED[: 2 * k + 2]
            entry = memory.pack()
            memory.sync()
            shared = shared_records(memory, log)
            assert memory.trouble is None


def test_files_of_a_version_without_names_go_on_in_the_order_of_the_fields(tmp_path: Path) -> None:
    """Nothing says otherwise; from then on the checkpoint does."""
    with closing(LearnedMemory(tmp_path, ORDERED, 100, 1)) as memory:
        append(memory, 0)
        ((name, values),) = memory.pack().values.items()
        memory.sync()
    unnamed = {key: value for key, value in values.items() if key != "fields"}
    with closing(LearnedMemory(tmp_path, ORDERED, 100, 1)) as memory:
        memory.unpack(CheckpointEntry({name: unnamed}))
        assert values_of(memory) == EXPECTED[:2]
        assert memory.pack().values[name] == values


@pytest.mark.parametrize(("fields", "is_named"), [(OTHERS, True), (TURNED, False)])
def test_columns_of_other_fields_are_lost(
    tmp_path: Path, fields: dict[str, FieldKind], is_named: bool
) -> None:
    """Those by another name, as other settings wrote them, which is no trouble once it is told;
    and, where no name is known, texts in the place of numbers.
    """
    with closing(LearnedMemory(tmp_path, ORDERED, 100, 1)) as memory:
        append(memory, 0)
        ((name, values),) = memory.pack().values.items()
        memory.sync()
    said = {key: value for key, value in values.items() if is_named or key != "fields"}
    with capture_logs() as logs, closing(LearnedMemory(tmp_path, fields, 100, 1)) as memory:
        memory.unpack(CheckpointEntry({name: said}))
        assert (memory.trouble is None) == is_named
        assert memory.log(Partition("t", 0)).n_kept == 0
        assert memory.pack().values[name]["fields"] == list(fields)
    assert [each["event"] for each in logs] == ["learned_damaged"]


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.booleans())),
    st.data(),
)
def test_an_index_finds_what_a_dictionary_does(
    batches: list[tuple[list[int], bool]], data: st.DataObject
) -> None:
    """However often it is asked amid, and whether hashes come with records or are asked for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learned_records, "RUN_RECORDS", 8)
        index, expected, number = IdIndex(), defaultdict[int, list[int]](list), 0
        every: list[int] = []
        floor = 0

        def made(begin: int, end: int) -> list[tuple[int, Hashes]]:
            cut = (begin + end) // 2
            pieces = [(begin, every[begin:cut]), (cut, every[cut:end])]
            return [(at, np.array(piece, np.uint64)) for at, piece in pieces if piece]

        for hashes, is_later in batches:
            own = np.array(hashes, np.uint64)
            every += hashes
            index.add(number, len(own), None if is_later else own)
            for i, each in enumerate(hashes):
                expected[each].append(number + i)
            number += len(hashes)
            if data.draw(st.booleans()):
                floor = data.draw(st.integers(floor, number))
                index.forget(floor)
            if data.draw(st.booleans()):
                wanted = sorted(data.draw(st.sets(st.integers(0, 9), min_size=1)))
                asked = np.array(wanted, np.uint64)
                found = index.find(asked, made)
                known = [each for name in wanted for each in expected[name] if each >= floor]
                assert [each for each in found.tolist() if each >= floor] == sorted(known)
                knows = index.knows(asked, made).tolist()
                for name, is_known in zip(wanted, knows, strict=True):
                    assert is_known or not any(each >= floor for each in expected[name])
                    assert not is_known or expected[name]


def test_one_call_finds_records_of_many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch's deletes name records of many chunks, and each call costs more than its records."""
    segment = segment_of([[("a", "b", 1.0)]] * 9, None)
    calls, locate = list[int](), kernels.locate

    def counted(data: Any, firsts: Any, places: Any, wanted: Any, found: Any) -> Any:
        calls.append(len(wanted))
        return locate(data, firsts, places, wanted, found)

    monkeypatch.setattr(kernels, "locate", counted)
    assert _read(segment, [0, 4, 8]).records()[1].offset == 40
    assert calls == [3]


def held_open(folder: Path) -> int:
    """Return how many files of a folder this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return len({line.split(maxsplit=5)[5] for line in lines if str(folder) in line})


@pytest.mark.parametrize("accounts", [False, True])
def test_few_files_are_held_open_however_many_partitions_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accounts: bool
) -> None:
    """Whoever reads them, one bound holds for all, and a read of many files stays below it too."""
    monkeypatch.setattr(learned_memory, "MAPPED_MAX", 2)
    monkeypatch.setattr(learned_memory, "SEGMENT_RECORDS", 4)
    most, locate = [0], kernels.locate

    def counted(*arrays: Any) -> Any:
        most.append(held_open(tmp_path))
        return locate(*arrays)

    monkeypatch.setattr(kernels, "locate", counted)
    with closing(LearnedMemory(tmp_path, FIELDS, 100, 1, accounts=accounts)) as memory:
        for k in range(3):
            log, rows = memory.log(Partition("t", k)), np.arange(12)
            ids = TextColumn(texts_of([f"a/{row}" for row in rows]))
            texts = TextColumn(texts_of([f"text {row}" for row in rows]))
            columns: dict[str, Column] = {"text": texts, "age": rows.astype(np.float64)}
            kinds = np.full(12, CREATED, np.uint8)
            memory.wrote(log, log.append(rows, np.zeros(12, np.int32), kinds, ids, columns))
        memory.pack()
        memory.sync()
        hashes = memory.hashed(texts_of([f"a/{row}" for row in range(12)]))
        for log in memory.logs.values():
            memory.wrote(log, [])  # what is written leaves the process's own memory
            assert log.knows(hashes).all()
            found = log.of_accounts(memory.hashed(texts_of(["a/"]))) if accounts else None
            found = log.find(hashes) if found is None else found
            assert found.spans[:, kernels.OFFSET].tolist() == list(range(12))
            assert [len(records_at(log, row)) for row in range(12)] == [0] * 12
        assert memory.trouble is None
    assert 0 < max(most) <= 2


def test_chunks_of_one_message_each_cost_no_call_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quiet stream has a batch a message; its first delete goes by segments, with a beat each."""
    monkeypatch.setattr(learned_memory, "SEGMENT_RECORDS", 8)
    with closing(LearnedMemory(tmp_path, ORDERED, 100, 1, accounts=True)) as memory:
        beats, hashed = list[int](), list[int]()
        memory.beat = lambda: beats.append(1)
        log, own = memory.log(Partition("t", 0)), memory.hashed
        ids = [None if i == 9 else f"a{i % 3}/{i}" for i in range(20)]
        for i, name in enumerate(ids):
            text, number = TextColumn(texts_of(["word"])), np.zeros(1)
            fields: dict[str, Column] = {"text": text, "age": number, "lang": text}
            rows, label = np.array([10 * i]), np.zeros(1, np.int32)
            kinds = np.array([CREATED], np.uint8)
            log.append(rows, label, kinds, TextColumn(texts_of([name])), fields)

        def counted(texts: Texts) -> Hashes:
            hashed.append(len(texts.ends))
            return own(texts)

        log.hashed = counted
        asked = own(texts_of(["a2/11"]))
        assert log.find(asked).spans[:, kernels.OFFSET].tolist() == [110]
        assert log.knows(own(texts_of(["a2/11", "a9/11"]))).tolist() == [True, False]
        assert hashed == [8, 8, 4]
        assert len(beats) == 3
        found = log.of_accounts(own(texts_of(["a1/"])))
        assert found.spans[:, kernels.OFFSET].tolist() == [10 * i for i in range(1, 20, 3)]
        assert len(beats) == 6
        assert [each.offset for each in records_at(log, 90)] == [90]
        assert len(beats) == 9


def test_a_start_goes_by_segments_however_small_the_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids whose message is still to come are looked for once in each, and health has a beat."""
    monkeypatch.setattr(learned_memory, "SEGMENT_RECORDS", 8)
    log = Partition("t", 0)
    with closing(LearnedMemory(tmp_path, FIELDS, 100, 1)) as memory:
        for i in range(20):
            ids, kinds = TextColumn(texts_of([f"m{i}"])), np.array([EARLY_DELETE], np.uint8)
            fields: dict[str, Column] = {"text": ids, "age": np.zeros(1)}
            rows, hashes = np.array([i]), memory.hashed(ids.texts)
            own = memory.log(log)
            memory.wrote(own, own.append(rows, np.zeros(1, np.int32), kinds, ids, fields, hashes))
        entry = memory.pack()
        memory.sync()
    with closing(LearnedMemory(tmp_path, FIELDS, 100, 1)) as memory:
        beats, asked, hashed = list[int](), list[int](), memory.hashed
        memory.beat = lambda: beats.append(1)

        def counted(texts: Texts) -> Hashes:
            asked.append(len(texts.ends))
            return hashed(texts)

        monkeypatch.setattr(memory, "hashed", counted)
        memory.unpack(entry)
        assert asked == [8, 8, 4]
        assert len(beats) == 3
        pending = memory.log(log).is_pending(hashed(texts_of(["m0", "m13", "m20"])))
        assert pending is not None
        assert pending.tolist() == [True, True, False]
