"""Messages of text, and Avro, Protobuf and JSON behind a schema's id, are read as JSON is."""

from __future__ import annotations

import datetime as dt
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from hypothesis import given
from hypothesis import strategies as st

from consumers.config.message import FieldLabels, MessageSettings
from consumers.decode.decoder import Decoder
from consumers.decode.fields import DecodeError
from consumers.decode.labels import FieldLabeller
from consumers.decode.rows import RecordFormat
from consumers.decode.schemas import avro_reader, payloads_of
from consumers.messages import Messages, RawColumns, Reason
from tests.consumers.raw_batches import CLASSES, raw, strings
from tests.schema_registry import RegistryServer, framed

POST = {
    "type": "record",
    "name": "Post",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "text", "type": "string"},
        {"name": "label", "type": ["null", "string"]},
    ],
}
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
enum Kind { KIND_UNSPECIFIED = 0; KIND_POST = 1; }
enum Size { SMALL = 0; LARGE = 1; }
message Other {
  string text = 1; message Inner { string text = 1; } message Second { string text = 1; }
}
message Post {
  int64 id = 1; string text = 2; optional string label = 3; double price = 4; bool open = 5;
  Kind kind = 6; Size size = 7; Post first = 8; repeated string tags = 9;
  map<string, Size> sizes = 10;
  google.protobuf.Timestamp created_at = 11; google.protobuf.Int64Value count = 12;
  google.protobuf.Struct more = 13; bytes blob = 14; repeated Post all = 15;
  map<bool, int32> flags = 16;
  oneof one { int32 a = 17; string b = 18; }
}
"""
CONFLUENT = """
syntax = "proto3";
import "confluent/meta.proto";
import "confluent/types/decimal.proto";
message Post {
  option (confluent.message_meta).doc = "a post";
  string text = 1 [(confluent.field_meta) = {params: {key: "a", value: "b"}, tags: "PII"}];
  confluent.type.Decimal price = 2;
}
"""


class Time:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    """Return a registry that runs."""
    with RegistryServer() as server:
        yield server


@pytest.fixture
def clock() -> Time:
    """Return a clock that stands."""
    return Time()


def decoder_of(kind: str, server: RegistryServer | None, clock: Time, **more: Any) -> Decoder:
    """Return a decoder of a format."""
    url = {} if server is None else {"url": server.url}
    given = {"format": kind, "registry": url | more.pop("registry", {}), **more}
    message = MessageSettings.model_validate(given)
    payloads = payloads_of(message, RecordFormat(), clock)
    reads = {"text": "words", "price": "numbers", "open": "flags", "size": "categories"}
    labeller = FieldLabeller(FieldLabels(), CLASSES)
    return Decoder(message, labeller, reads=reads, payloads=payloads)  # type: ignore[arg-type]


def avro(schema: Any, value: Any) -> bytes:
    """Return a value as Avro's own library writes it."""
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return file.getvalue()


def post(name: int, text: str, label: str | None = None, schema: int = 1) -> bytes:
    """Return a framed post in Avro."""
    return framed(schema, avro(POST, {"id": name, "text": text, "label": label}))


def classes_of(proto: str, folder: Path) -> Any:
    """Return the messages of a .proto file by name, compiled by Google's own tools."""
    (folder / "made.proto").write_text(proto)
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports"]
    subprocess.run([*command, f"--descriptor_set_out={folder}/out", "made.proto"], check=True)
    files = descriptor_pb2.FileDescriptorSet.FromString((folder / "out").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)

    def named(name: str) -> Any:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))

    return named


def rejected(messages: Messages) -> list[tuple[Reason, bytes | None]]:
    """Return reasons and bytes of the rejects."""
    return [(each.reason, each.value) for each in messages.rejects]


def values_of(decoder: Decoder, batch: RawColumns) -> list[Any]:
    """Return what the values of a batch are as JSON."""
    assert decoder._payloads is not None
    errors: dict[int, DecodeError] = {}
    plain = decoder._payloads.as_json(batch, errors)
    assert not errors
    return [msgspec.json.decode(plain.value(i) or b"null") for i in range(len(plain))]


def test_a_text_is_a_message(clock: Time) -> None:
    """A text alone is judged; its key may be its id; what is no text is kept as it came."""
    decoder = decoder_of("text", None, clock, id="key")
    batch = raw([b'so "good"\n', b"caf\xe9", "caf\u00e9 {}".encode(), b"", None])
    batch.key_ends[:] = 0, 2, -1, 2, -1  # keys are bytes of what lies between values
    messages = decoder.decode(batch)
    assert strings(messages.texts) == ['so "good"\n', "caf\u00e9 {}", ""]
    assert rejected(messages) == [(Reason.NOT_UTF8, b"caf\xe9"), (Reason.TOMBSTONE, None)]
    whole = messages.envelopes(np.arange(len(messages)))
    assert [each.id for each in whole] == ["", "t-0-102", "\\xff\0"]
    assert messages.raw is batch


def test_text_in_latin_1(clock: Time) -> None:
    """A file's own encoding counts."""
    payloads = payloads_of(MessageSettings(format="text"), RecordFormat(encoding="latin-1"), clock)
    assert payloads is not None
    plain = payloads.as_json(raw([b"caf\xe9"]), {})
    assert json.loads(plain.value(0) or b"")["text"] == "caf\u00e9"


def test_avro_equals_json(registry: RegistryServer, clock: Time) -> None:
    """Messages of Avro are decoded as the same messages of JSON are."""
    registry.register(1, json.dumps(POST))
    posts = [(7, "a lovely day", "positive"), (8, "rain {\u00e9", None), (9, "", "no such class")]
    given = [post(*each) for each in posts]
    plain = [
        msgspec.json.encode(dict(zip(("id", "text", "label"), each, strict=True))) for each in posts
    ]
    got = decoder_of("avro", registry, clock).decode(raw([*given, None]))
    wanted = Decoder(MessageSettings(), FieldLabeller(FieldLabels(), CLASSES)).decode(
        raw([*plain, None])
    )
    assert strings(got.texts) == strings(wanted.texts) == ["a lovely day", "rain {\u00e9"]
    assert got.labels.tolist() == wanted.labels.tolist()
    rows = np.arange(2)
    assert [each.id for each in got.envelopes(rows)] == ["7", "8"]
    assert [each.reason for each in got.rejects] == [each.reason for each in wanted.rejects]
    assert rejected(got)[0] == (Reason.UNKNOWN_LABEL, given[2])  # the bytes as they came
    assert registry.asked == ["/schemas/ids/1"]  # once


def test_each_by_its_own_schema(registry: RegistryServer, clock: Time) -> None:
    """A batch may hold messages of several schemas: fields come, go and change their order."""
    later = {**POST, "fields": [{"name": "price", "type": "double"}, *POST["fields"][1:]]}
    registry.register(1, json.dumps(POST))
    registry.register(70_000, json.dumps(later))
    value = {"price": 2.5, "text": "new", "label": "negative"}
    batch = raw([post(1, "old"), framed(70_000, avro(later, value)), post(2, "late")])
    messages = decoder_of("avro", registry, clock).decode(batch)
    assert strings(messages.texts) == ["old", "new", "late"]
    prices = messages.fields["price"]
    assert isinstance(prices, np.ndarray)
    assert np.array_equal(prices, [np.nan, 2.5, np.nan], equal_nan=True)


def test_references_of_avro(registry: RegistryServer, clock: Time) -> None:
    """A schema may be a union of others, which refer to further ones."""
    user = {"type": "record", "name": "User", "namespace": "n", "fields": POST["fields"][1:2]}
    first = {"type": "record", "name": "First", "namespace": "n", "fields": [
        {"name": "text", "type": "string"}, {"name": "by", "type": "n.User"}]}  # fmt: skip
    registry.register(1, json.dumps(user), subject="user")
    registry.register(2, json.dumps(first), references=[("n.User", "user", 1)], subject="a%2Fb")
    both = [("n.User", "user", 1), ("n.First", "a/b", 1)]
    registry.register(3, json.dumps(["n.User", "n.First"]), references=both)
    registry.register(4, json.dumps("n.First"), references=both[1:])
    registry.register(5, '"string"')
    payload = avro(user, {"text": "her"})
    values = [
        framed(3, b"\2" + avro(user, {"text": "one"}) + payload),
        framed(3, b"\0" + avro(user, {"text": "two"})),
        framed(4, avro(user, {"text": "three"}) + payload),
    ]
    values.append(framed(5, b"\2a"))
    found = values_of(decoder_of("avro", registry, clock), raw(values))
    by = {"text": "her"}
    assert found == [{"text": "one", "by": by}, {"text": "two"}, {"text": "three", "by": by}, "a"]


def test_logical_types_of_avro() -> None:
    """Times and decimals become what the decoder reads: text with a zone, and numbers."""
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "n", "type": {
            "type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "b", "type": "bytes"},
    ]}  # fmt: skip
    at = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    payload = avro(schema, {"at": at, "n": Decimal("12.30"), "b": b"\0\1"})
    encoder = msgspec.json.Encoder(decimal_format="number")
    made = encoder.encode(avro_reader(json.dumps(schema))(payload))
    assert made == b'{"at":"2026-01-02T03:04:05Z","n":12.30,"b":"AAE="}'


@pytest.mark.parametrize("is_recursive", [False, True])
@pytest.mark.parametrize(
    ("kind", "logical", "value"),
    [
        ("long", "timestamp-millis", 253_402_300_800_000),  # the year 10000
        ("long", "timestamp-micros", (1 << 63) - 1),
        ("long", "timestamp-micros", -(1 << 63)),
        ("long", "local-timestamp-millis", -62_135_596_800_001),
        ("long", "local-timestamp-micros", (1 << 63) - 1),
        ("int", "date", (1 << 31) - 1),
        ("int", "time-millis", 86_400_000),
        ("long", "time-micros", 86_400_000_000),
        ("string", "uuid", "no uuid"),
    ],
)
def test_a_time_of_avro_that_no_calendar_holds_is_absent(
    kind: str, logical: str, value: Any, *, is_recursive: bool
) -> None:
    """Producers write such as `never`: the message is read, whichever reader its schema needs."""

    def schema(of: Any) -> dict[str, Any]:
        more: list[Any] = [{"name": "next", "type": ["null", "R"]}] if is_recursive else []
        fields = [{"name": "text", "type": "string"}, {"name": "until", "type": of}, *more]
        return {"type": "record", "name": "R", "fields": fields}

    payload = avro(schema(kind), {"text": "fine", "until": value, "next": None})
    found = avro_reader(json.dumps(schema({"type": kind, "logicalType": logical})))(payload)
    assert (found["text"], found["until"]) == ("fine", value if kind == "string" else None)


def test_a_time_of_protobuf_that_no_calendar_holds_is_absent(
    registry: RegistryServer, clock: Time, tmp_path: Path
) -> None:
    """As those of Avro are."""
    registry.register(5, PROTO, "PROTOBUF")
    message = classes_of(PROTO, tmp_path)("shop.Post")(text="fine")
    message.created_at.seconds = 253_402_300_800
    value = framed(5, message.SerializeToString(), b"\2\2")
    found = values_of(decoder_of("protobuf", registry, clock), raw([value]))[0]
    assert (found["text"], found["created_at"]) == ("fine", None)


def test_avro_that_nests_without_end(registry: RegistryServer, clock: Time) -> None:
    """A payload of a schema that contains itself may nest deeply; it ends no process."""
    schema = {"type": "record", "name": "N", "fields": [
        {"name": "text", "type": "string"}, {"name": "next", "type": ["null", "N"]}]}  # fmt: skip
    registry.register(1, json.dumps(schema))
    deep = framed(1, b"\2a\2" * 200_000)
    messages = decoder_of("avro", registry, clock).decode(raw([framed(1, b"\2a\2\2b\0"), deep]))
    assert strings(messages.texts) == ["a"]
    assert rejected(messages) == [(Reason.MALFORMED, deep)]


EMPTY = {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": "null"},
        {"type": "array", "items": EMPTY},
        ["null", {"type": "map", "values": {"type": "array", "items": EMPTY}}],
        {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
        {"type": "no such type"},
        "n.Unknown",
        [],
    ],
)
def test_an_avro_schema_that_is_refused(registry: RegistryServer, clock: Time, schema: Any) -> None:
    """A few bytes must not stand for any number of values; what is no schema is told too."""
    registry.register(1, json.dumps(schema))
    bomb = framed(1, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f")
    messages = decoder_of("avro", registry, clock).decode(raw([bomb]))
    expected = Reason.MALFORMED if schema == [] else Reason.NO_SCHEMA
    assert rejected(messages) == [(expected, bomb)]


def test_malformed_frames_and_payloads(registry: RegistryServer, clock: Time) -> None:
    """What is in no frame, cut, or too long is rejected with its bytes; the others are read."""
    registry.register(1, json.dumps(POST))
    good = post(1, "good")
    bad = [b"", b"\0\0\0\0", b'{"text":"plain"}', good[:-1], good + b"\0", framed(1, b""),
           framed(1, b"\2\3abc\0"), framed(1, b"\xff" * 30),
           framed(1, b"\2\4\xff\xfe\0")]  # fmt: skip
    messages = decoder_of("avro", registry, clock).decode(raw([*bad, good]))
    assert strings(messages.texts) == ["good"]
    assert rejected(messages) == [(Reason.MALFORMED, each) for each in bad]
    assert all(each.detail for each in messages.rejects)


@given(st.binary(max_size=40))
def test_any_payload_of_avro_is_read_or_refused(payload: bytes) -> None:
    """Whatever the bytes are, they give a value that is written and read alike, or an error."""
    try:
        value = avro_reader(json.dumps(POST))(payload)
    except Exception:  # noqa: BLE001 -- the decoder takes all of them alike
        return
    assert avro_reader(json.dumps(POST))(avro(POST, value)) == value


def test_protobuf(registry: RegistryServer, clock: Time, tmp_path: Path) -> None:
    """Messages of Protobuf become JSON by the names of their fields; zeros are values."""
    registry.register(5, PROTO, "PROTOBUF")
    named = classes_of(PROTO, tmp_path)
    full = named("shop.Post")(id=1 << 60, text="a \u00e9", label="positive", price=0.5, open=True,
        kind=1, size=1, tags=["x", "y"], sizes={"a": 1}, blob=b"\0\1", flags={True: 3},
        a=0)  # fmt: skip
    full.first.text, full.count.value = "inner", 9
    full.created_at.FromJsonString("2026-01-02T03:04:05Z")
    full.more.update({"k": [1, "v"]})
    full.all.add().size = 1
    zeros = {"id": 0, "price": 0.0, "open": False, "size": "SMALL"}
    inner = named("shop.Other.Second")(text="second")
    values = [
        framed(5, full.SerializeToString(), b"\2\2"),  # one number, which is 1
        framed(5, named("shop.Post")().SerializeToString(), b"\2\2"),
        framed(5, named("shop.Other")(text="first").SerializeToString(), b"\0"),
        framed(5, inner.SerializeToString(), b"\4\0\2"),
    ]
    found = values_of(decoder_of("protobuf", registry, clock), raw(values))
    assert found[0] == {
        "id": 1 << 60, "text": "a \u00e9", "label": "positive", "price": 0.5, "open": True,
        "kind": "KIND_POST", "size": "LARGE", "first": {**zeros, "text": "inner"},
        "tags": ["x", "y"], "sizes": {"a": "LARGE"}, "created_at": "2026-01-02T03:04:05Z",
        "count": 9, "more": {"k": [1.0, "v"]}, "blob": "AAE=", "all": [{**zeros, "size": "LARGE"}],
        "flags": {"true": 3}, "a": 0,
    }  # fmt: skip
    assert found[1:] == [zeros, {"text": "first"}, {"text": "second"}]
    # Google's own JSON of the same message says the same, apart from how it spells whole numbers.
    told = json_format.MessageToDict(full, preserving_proto_field_name=True)
    assert set(told) <= set(found[0])
    assert {key for key in told if told[key] != found[0][key]} == {"id", "count", "first", "all"}


def test_references_of_protobuf(registry: RegistryServer, clock: Time) -> None:
    """A .proto file may import others of the registry, by their names there."""
    base = 'syntax = "proto3"; package b; message By { string name = 1; }'
    middle = 'syntax = "proto3"; package m; import "b/by.proto"; message M { b.By by = 1; }'
    proto = (
        'syntax = "proto3"; import "m.proto"; import "b/by.proto";'
        " message P { string text = 1; m.M m = 2; b.By by = 3; }"
    )
    registry.register(1, base, "PROTOBUF", subject="base")
    registry.register(2, middle, "PROTOBUF", [("b/by.proto", "base", 1)], "middle")
    both = [("m.proto", "middle", 1), ("b/by.proto", "base", 1)]
    registry.register(3, proto, "PROTOBUF", both)
    by = b"\x0a\1x"
    payload = b"\x0a\1t" + b"\x12\5" + b"\x0a\3" + by + b"\x1a\3" + by
    found = values_of(decoder_of("protobuf", registry, clock), raw([framed(3, payload, b"\0")]))
    assert found == [{"text": "t", "m": {"by": {"name": "x"}}, "by": {"name": "x"}}]


def test_imports_that_are_no_references(registry: RegistryServer, clock: Time) -> None:
    """Confluent's own files are imported without being registered; its decimals are numbers."""
    registry.register(1, CONFLUENT, "PROTOBUF")
    decoder = decoder_of("protobuf", registry, clock)
    cents, large = b"\x0a\2\xff\x7d\x10\4\x18\2", b"\x0a\1\1\x18\xff\7"
    values = [framed(1, b"\x0a\1t\x12\x08" + cents, b"\0")]
    assert values_of(decoder, raw(values)) == [{"text": "t", "price": -1.31}]
    batch = raw([framed(1, b"\x12\6" + large, b"\0")])
    assert rejected(decoder.decode(batch)) == [(Reason.MALFORMED, batch.value(0))]


@pytest.mark.parametrize(
    ("proto", "references", "said"),
    [
        ("message {", [], "protoc: schema_1.proto:1:"),
        ('syntax = "proto3"; import "not/there.proto";', [], "protoc:"),
        ('syntax = "proto3";', [("../../out.proto", "other", 1)], "no path of a .proto"),
        ('syntax = "proto3";', [("/tmp/out.proto", "other", 1)], "no path of a .proto"),
        ('syntax = "proto3";', [("gone.proto", "gone", 1)], "is not in the registry"),
        ('syntax = "proto3";', [("a.proto", "loop", 1)], "leads back"),
        ('syntax = "proto3";', [("a" * 300 + ".proto", "other", 1)], "no path of a .proto"),
        (
            'syntax = "proto3";',
            [("a.proto", "other", 1), ("a.proto/b.proto", "other", 1)],
            "no path of a .proto",
        ),
        (
            'syntax="proto2"; message M {optional string a=1[json_name="b"]; optional string b=2;}',
            [],
            "Error",
        ),
    ],
)
def test_a_proto_that_is_refused(
    registry: RegistryServer, clock: Time, proto: str, references: Any, said: str
) -> None:
    """What cannot be compiled rejects its messages, and says why; no file leaves its place."""
    registry.register(1, proto, "PROTOBUF", references)
    registry.register(2, "", "PROTOBUF", subject="other")
    registry.register(3, "", "PROTOBUF", [("a.proto", "loop", 1)], "loop")
    value = framed(1, b"", b"\0")
    messages = decoder_of("protobuf", registry, clock).decode(raw([value]))
    assert rejected(messages) == [(Reason.NO_SCHEMA, value)]
    assert said in messages.rejects[0].detail


def test_malformed_protobuf(registry: RegistryServer, clock: Time) -> None:
    """Message numbers and payloads that cannot be are rejected with their bytes."""
    registry.register(1, PROTO, "PROTOBUF")
    bad = [framed(1, payload) for payload in (
        b"", b"\2", b"\2\1", b"\2\x64", b"\1", b"\x80\x80\x80\x80\x80\1", b"\xfe\xff\xff\xff\x0f",
        b"\2\2\x12\xff", b"\2\2\x12\1\xff", b"\2\2" + b"\x42\x02" * 3,
    )]  # fmt: skip
    messages = decoder_of("protobuf", registry, clock).decode(raw(bad))
    assert rejected(messages) == [(Reason.MALFORMED, each) for each in bad]


def test_texts_of_proto2_that_are_none(registry: RegistryServer, clock: Time) -> None:
    """Its parser lets bytes pass that are no UTF-8; they are no text here either."""
    registry.register(1, 'syntax = "proto2"; message M { optional string t = 1; }', "PROTOBUF")
    bad = framed(1, b"\x0a\1\xff", b"\0")
    messages = decoder_of("protobuf", registry, clock).decode(raw([bad]))
    assert rejected(messages) == [(Reason.MALFORMED, bad)]


def test_types_too_deep_are_so_each_time(registry: RegistryServer, clock: Time) -> None:
    """A message of 600 types, one in the other, is refused whole, also when it comes again."""
    types = [f"message M{i} {{ M{i + 1} next = 1; int32 z = 2; }}" for i in range(600)]
    proto = 'syntax = "proto3"; ' + " ".join([*types, "message M600 { int32 a = 1; }"])
    registry.register(1, proto, "PROTOBUF")
    value = framed(1, b"\x10\7", b"\0")
    messages = decoder_of("protobuf", registry, clock).decode(raw([value] * 4))
    assert rejected(messages) == [(Reason.MALFORMED, value)] * 4


def test_few_bytes_do_not_become_many(registry: RegistryServer, clock: Time) -> None:
    """Records without bytes, zeros that the wire leaves out, and long decimals are bounded."""
    schema: Any = {"type": "record", "name": "R0", "fields": []}
    for i in range(1, 24):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{i - 1}"}]
        schema = {"type": "record", "name": f"R{i}", "fields": fields}
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    registry.register(1, json.dumps(schema))
    registry.register(2, json.dumps(decimal))
    long = framed(2, b"\xc0\x9a\x0c" + b"\1" * 100_000)
    bad = [framed(1, b""), long]
    messages = decoder_of("avro", registry, clock).decode(raw(bad))
    assert rejected(messages) == [(Reason.MALFORMED, each) for each in bad]
    assert "a decimal of 100000 bytes" in messages.rejects[1].detail
    zeros = " ".join(f"int32 f{i} = {i + 1};" for i in range(200))
    proto = f'syntax = "proto3"; message M {{ repeated N n = 1; }} message N {{ {zeros} }}'
    registry.register(3, proto, "PROTOBUF")
    many = framed(3, b"\x0a\0" * 50_000, b"\0")
    messages = decoder_of("protobuf", registry, clock).decode(raw([many]))
    assert rejected(messages) == [(Reason.MALFORMED, many)]


def test_json_schema_asks_no_registry(clock: Time) -> None:
    """JSON in a frame is read as it stands, without a copy; the reject has the frame too."""
    good, bad = framed(9, b'{"text":"good","id":"a"}'), framed(9, b"no json")
    batch = raw([good, bad, b'{"text":"no frame"}', None])
    decoder = decoder_of("json-schema", None, clock)
    messages = decoder.decode(batch)
    assert strings(messages.texts) == ["good"]
    assert messages.envelope(0).id == "a"
    assert rejected(messages)[:2] == [
        (Reason.NOT_JSON, bad), (Reason.MALFORMED, b'{"text":"no frame"}')
    ]  # fmt: skip


def test_another_kind_of_schema(registry: RegistryServer, clock: Time) -> None:
    """A schema of another kind than the format rejects its messages, and names both."""
    registry.register(1, PROTO, "PROTOBUF")
    messages = decoder_of("avro", registry, clock).decode(raw([framed(1, b"\0")]))
    assert messages.rejects[0].detail == (
        "schema 1 cannot be used: it is PROTOBUF, and message.format is avro"
    )
