"""The JSON scan: where it is sure it is right, and it is sure of all that is plain."""

from __future__ import annotations

import ctypes
import json
import mmap
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from consumers.decode.json import JsonScanner, Node, name_table_of
from consumers.kernels.json_scan import (
    ABSENT,
    ARRAY,
    ESCAPED,
    FALSE,
    INTEGER,
    NOBODY,
    NOTHING,
    NULL,
    NUMBER,
    OBJECT,
    OTHER,
    PLAIN,
    TRUE,
    find_byte,
    gather,
    lay_out,
    name_table,
)
from streamnb.kernels.layout import Texts
from tests.broken_json import broken_json
from tests.kernels.json_spans import MISSING, found, kinds_of, meaning, scanned, value_at

PATHS = ("id", "text", "label", "user", "user.name", "commit.record.text")
NAMES = ("id", "text", "label", "user", "name", "commit", "record", "", "other")

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18) + 1, 10**19 - 1)
    | st.decimals(-1000, 1000, allow_nan=False, places=3).map(float)
    | texts,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=8,
)
messages = st.dictionaries(st.sampled_from(NAMES), values).map(
    # Where a path leads on, an object stands, as in every message that its network sends.
    lambda message: (
        message
        | {
            "commit": {"record": {"text": message.get("text")}, "user": 1},
            "user": message.get("user"),
        }
    )
)
layouts = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n\t", "\r\n:  ")])
pads = st.binary(max_size=17)


@given(st.lists(messages, max_size=4), layouts, st.booleans(), pads)
def test_plain_messages_are_read_at_once(
    batch: list[dict[str, Any]], layout: tuple[str, str], ascii_only: bool, pad: bytes
) -> None:
    """Of every plain message, however it is laid out, each field's kind and value are found."""
    data = [json.dumps(m, ensure_ascii=ascii_only, separators=layout).encode() for m in batch]
    scan = scanned(data, PATHS, pad)
    for i, (message, value) in enumerate(zip(batch, data, strict=True)):
        assert not scan.undecided[i], value
        for path in PATHS:
            wanted = value_at(message, path)
            kind, span = found(scan, path, i)
            assert kind in kinds_of(wanted), (path, value)
            assert meaning(kind, span) == wanted


@given(broken_json(messages), pads)
def test_it_is_sure_of_nothing_wrong(value: bytes, pad: bytes) -> None:
    """What the scan is sure of, a careful reader takes too, and finds the same values."""
    scan = scanned([value], PATHS, pad)
    if scan.undecided[0]:
        assert all(found(scan, path, 0)[0] == ABSENT for path in PATHS)
        return
    value.decode()
    message = msgspec.json.decode(value)
    assert isinstance(message, dict)
    for path in PATHS:
        kind, span = found(scan, path, 0)
        assert meaning(kind, span) == value_at(message, path)


@given(st.binary(max_size=40))
def test_any_bytes_can_be_scanned(value: bytes) -> None:
    """Whatever the bytes, the scan ends, and is sure only of objects."""
    scan = scanned([value, b"{" + value + b"}"], PATHS)
    for i, data in enumerate((value, b"{" + value + b"}")):
        assert scan.undecided[i] or isinstance(msgspec.json.decode(data), dict)


@pytest.mark.parametrize(
    "value",
    [
        b"", b" ", b"{", b"}", b"[]", b"null", b'"a"', b"1", b"{}x", b"{} {}", b"\xef\xbb\xbf{}",
        b'{"id":1,}', b'{,"id":1}', b'{"id" 1}', b'{"id":}', b"{id:1}", b'{"id":1 "text":2}',
        b'{"x":[1,]}', b'{"x":[1 2]}', b'{"x":[}', b'{"x":{]}', b'{"x":[1}', b'{"x":{"y":1]}',
        b'{"id":01}', b'{"id":-}', b'{"id":1.}', b'{"id":.5}', b'{"id":1e}', b'{"id":+1}',
        b'{"id":-0}', b'{"id":00}', b'{"id":1e999}', b'{"x":123456789012345678901}',
        b'{"x":-1234567890123456789}', b'{"x":NaN}', b'{"x":tru}', b'{"x":nulll}', b'{"x":True}',
        b'{"id":"a', b'{"id":"\n"}', b'{"id":"\x1f"}', b'{"id":"\\x"}', b'{"id":"\\u12g4"}',
        b'{"id":"\\u123"}', b'{"id":"\\', b'{"id":"a\x00b"}', b'{"x":"\\u0000"}',
        b'{"x":"\\ud83d"}', b'{"x":"\\ude00"}', b'{"x":"\\ud83d\\ud83d"}', b'{"x":"\\ud83dxxxxxx"}',
        b'{"x":"\\ud83d\\n12345"}', b'{"x":"\xff"}', b'{"x":"\xc3"}', b'{"x":"\xc0\xaf"}',
        b'{"x":"\xed\xa0\x80"}', b'{"x":"\xf4\x90\x80\x80"}', b'{"x":"\xe2\x82"}', b'{"\xff":1}',
        b'{"id":1}\x00', b'{"id":1\x00}', b'{"id":1,"id":2}', b'{"i\\u0064":1}',
        b'{"user":{"name":"a"},"user":null}', b'{"user":{"name":1,"name":2}}', b'{"commit":1}',
        b'{"commit":{"record":[]}}', b'{"x":' + b"[" * 70 + b"]" * 70 + b"}",
    ],
)  # fmt: skip
def test_what_is_odd_is_left_to_another_look(value: bytes) -> None:
    """Broken, ambiguous or unusual messages are not decided here, whatever bytes stand around."""
    for pad in (b"", b'"}]', b"x" * 20):
        assert scanned([value], PATHS, pad).undecided.tolist() == [True]


def test_a_message_that_is_not_there_is_looked_at_again() -> None:
    """An end of -1 marks a message of which there are no bytes."""
    root = Node()
    root.add(["text"])
    starts, ends = np.array([0, 2]), np.array([-1, 4])
    assert JsonScanner(root, ["text"]).scan(b"{}{}", starts, ends).undecided.tolist() == [
        True,
        False,
    ]


def test_every_kind_has_its_span() -> None:
    """Strings lie within their quotes, other values with all their bytes, objects with theirs."""
    value = (
        b'{"s":"plain","e":"\\n","i":-12,"n":1.5e-3,"t":true,"f":false,"z":null,"a":[1,{"s":2}],'
        b'"o":{"p":{"q":[]},"s":3},"m":{},"":4,"\xc3\xa9":5}'
    )
    paths = ("s", "e", "i", "n", "t", "f", "z", "a", "o", "o.s", "m", "", "é", "gone")
    scan = scanned([value], paths)
    assert {path: found(scan, path, 0) for path in paths} == {
        "s": (PLAIN, b"plain"),
        "e": (ESCAPED, b"\\n"),
        "i": (INTEGER, b"-12"),
        "n": (NUMBER, b"1.5e-3"),
        "t": (TRUE, b"true"),
        "f": (FALSE, b"false"),
        "z": (NULL, b"null"),
        "a": (ARRAY, b'[1,{"s":2}]'),
        "o": (OBJECT, b'{"p":{"q":[]},"s":3}'),
        "o.s": (INTEGER, b"3"),
        "m": (OBJECT, b"{}"),
        "": (INTEGER, b"4"),
        "é": (INTEGER, b"5"),
        "gone": (ABSENT, b""),
    }


@given(st.lists(st.none() | st.integers(0, 10**18) | texts, max_size=6), st.booleans(), pads)
def test_texts_come_out_unescaped(
    batch: list[str | int | None], ascii_only: bool, pad: bytes
) -> None:
    """Each string is copied as what it means, in UTF-8; a number's digits only if asked for."""
    data = [json.dumps({"text": text}, ensure_ascii=ascii_only).encode() for text in batch]
    scan = scanned(data, ("text",), pad)
    for with_integers in (False, True):
        copied, starts, ends = scan.texts("text", (INTEGER,) if with_integers else ())
        for text, start, end in zip(batch, starts.tolist(), ends.tolist(), strict=True):
            if isinstance(text, str) or (with_integers and text is not None):
                assert copied[start:end].tobytes().decode() == str(text)
            else:
                assert end == -1


def test_every_escape_means_what_json_says() -> None:
    """Each short escape, and those of all lengths in UTF-8, come out as Python reads them."""
    written = rb"\"\\\/\b\f\n\r\t\u0041\u00e9\u20AC\uffff\ud83d\uDE00\u007f"
    scan = scanned([b'{"text":"' + written + b'"}'], ("text",))
    data, starts, ends = scan.texts("text")
    assert data[starts[0] : ends[0]].tobytes().decode() == json.loads(b'"' + written + b'"')


@given(
    st.lists(st.sampled_from([0, 4, "4", "spam", "sp\nam", True, None, 4.0, [], 44]), max_size=9)
)
def test_values_are_told_by_their_bytes(batch: list[Any]) -> None:
    """A value is the name that its JSON text is, nothing, or something else."""
    names = ("spam", "4", "true", "")
    scan = scanned([json.dumps({"label": value}).encode() for value in batch], ("label",))
    known: dict[Any, int] = {"spam": 0, "4": 1, "true": 2, "null": NOTHING}
    wanted = [
        known.get(value if isinstance(value, str) else json.dumps(value), OTHER) for value in batch
    ]
    assert scan.match("label", name_table_of(names)).tolist() == wanted


@given(st.lists(st.binary(max_size=9), unique=True, max_size=200), st.binary(max_size=9))
def test_names_are_found(names: list[bytes], other: bytes) -> None:
    """Each name of a table is matched by its own bytes alone, however many there are."""
    own = [name for name in names if all(32 <= byte < 127 and byte not in b'"\\' for byte in name)]
    data = [json.dumps({"label": name.decode()}).encode() for name in own]
    found_at = scanned(data, ("label",)).match("label", name_table(names))
    assert found_at.tolist() == [names.index(name) for name in own]
    assert NOBODY < 0
    if other.isalnum() and other not in names:
        message = json.dumps({"label": other.decode()}).encode()
        assert scanned([message], ("label",)).match("label", name_table(names)).tolist() == [OTHER]


def test_an_empty_batch_is_scanned() -> None:
    """Nothing in, nothing out."""
    scan = scanned([], PATHS)
    assert len(scan.undecided) == 0
    assert len(scan.texts("text").data) == 0


def test_missing_is_not_null() -> None:
    """What is absent and what is null are told apart."""
    scan = scanned([b"{}", b'{"text":null}'], ("text",))
    assert scan.kinds("text").tolist() == [ABSENT, NULL]
    assert meaning(ABSENT, b"") is MISSING
    assert np.array_equal(scan.is_any("text", (NULL,)), [False, True])


@given(st.lists(st.tuples(st.none() | st.binary(max_size=9), st.booleans(), st.integers(0, 2))))
def test_texts_are_brought_together(each: list[tuple[bytes | None, bool, int]]) -> None:
    """Kept ones stand one behind the other, whatever gaps were between them."""
    data, starts, ends, wanted, wanted_ends = b"", [], [], b"", []
    for text, is_kept, gap in each:
        data += b"." * gap
        starts.append(len(data))
        data += text or b""
        ends.append(-1 if text is None else len(data))
        if text is not None and is_kept:
            wanted += text
        wanted_ends.append(len(wanted) if text is not None and is_kept else -1 - len(wanted))
    buffer = np.frombuffer(bytearray(data), np.uint8)
    texts = Texts(buffer, np.array(starts, np.int64), np.array(ends, np.int64))
    found = np.empty(len(each), np.int64)
    kept = np.array([is_kept for _, is_kept, _ in each], np.bool_)
    out = np.empty(lay_out(texts, kept, found), np.uint8)
    gather(texts, found, out)
    assert (out.tobytes(), found.tolist()) == (wanted, wanted_ends)


@given(st.text("ab\v\n").map(str.encode), st.integers(0, 9))
def test_bytes_are_found_in_all_places(data: bytes, room: int) -> None:
    """The first ones fill the room that there is, and all are counted."""
    places = [at for at, byte in enumerate(data) if byte == ord("\n")]
    out = np.full(room, -1, np.int64)
    assert find_byte(np.frombuffer(data, np.uint8), ord("\n"), out) == len(places)
    assert out.tolist() == [*places[:room], *[-1] * (room - len(places))]


@pytest.fixture(scope="module")
def last_page() -> NDArray[np.uint8]:
    """Return a page behind which none may be read: a byte too far ends the process."""
    pages, size = mmap.mmap(-1, 2 * mmap.PAGESIZE), ctypes.c_size_t(mmap.PAGESIZE)
    behind = ctypes.addressof(ctypes.c_char.from_buffer(pages, mmap.PAGESIZE))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(behind), size, 0) == 0  # PROT_NONE
    return np.frombuffer(pages, np.uint8, mmap.PAGESIZE)


@given(messages.map(json.dumps), st.booleans(), st.integers(0, 30), pads)
def test_nothing_behind_the_buffer_is_read(
    last_page: NDArray[np.uint8], message: str, is_whole: bool, cut: int, pad: bytes
) -> None:
    """Whole or broken off anywhere, a message at the very end is read as with bytes behind it."""
    value = message.encode()[: None if is_whole else -1 - cut]
    data = (pad + value)[-len(last_page) :]
    start, end = np.array([min(len(pad), len(data))]), np.array([len(data)])
    at_edge: Any = last_page[len(last_page) - len(data) :]
    at_edge[:] = np.frombuffer(data, np.uint8)
    at_edge = at_edge.view()
    at_edge.flags.writeable = False  # the only kind that kernels take
    root = Node()
    for path in PATHS:
        root.add(path.split("."))
    scanner = JsonScanner(root, PATHS)
    found, wanted = (scanner.scan(each, start, end) for each in (at_edge, data + b'"' * 64))
    assert found.undecided.tolist() == wanted.undecided.tolist()
    assert found.spans.kinds.tolist() == wanted.spans.kinds.tolist()
    n, out = data.count(b'"'), np.empty(len(data), np.int64)
    assert find_byte(at_edge, ord('"'), out) == n
    assert out[:n].tolist() == [k for k, byte in enumerate(data) if byte == ord('"')]
