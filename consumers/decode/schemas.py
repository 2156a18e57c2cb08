"""Messages that are no JSON: plain text, and Avro, Protobuf and JSON Schema with a schema registry.

`Payloads.as_json` turns the values of a batch into JSON, so all that follows is the one path of
`decoder`. A framed value begins with a zero byte and the id of its writer's schema, four bytes, big
end first; behind them Protobuf says which message of the schema it is. Each message is read by the
schema that it was written with.

A schema is asked of the registry once and kept, up to `registry.schemas_max` of them. If no answer
can be had, `as_json` raises a `RegistryError`, and whoever asked tries the batch again after its
`pause_s`: no message is lost or rejected for it. Only if the registry itself says for
`registry.unknown_timeout_s` that it has no such id are its messages rejected (`no_schema`); it may
have heard of a new schema later than the topic. What its schema cannot read is `malformed`.
"""

from __future__ import annotations

import importlib.util
import io
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from consumers.config.message import MessageSettings, RegistrySettings
from consumers.decode.fields import DecodeError
from consumers.decode.registry import RegisteredSchema, SchemaError, SchemaRegistry, message_places
from consumers.decode.rows import RecordFormat
from consumers.errors import ConfigError, RegistryError
from consumers.messages import RawColumns, Reason
from consumers.process import watch_cache

_FRAME = 5  # bytes before the payload
_ID_WEIGHTS = np.array([1 << 24, 1 << 16, 1 << 8, 1], np.int64)
_COMPILE_TIMEOUT_S = 60.0
_UNKNOWN_FOR_S = 60.0  # until an id that was unknown is asked for again
_DETAIL_MAX = 200
_JSON_BYTES_MAX = 16 << 20  # of one message
_VALUES_MAX = 1 << 22  # of one message, of those that take no bytes in it
_DECIMAL_BYTES_MAX = 512  # a number of bytes takes the square of it to read
_TYPES = {"avro": "AVRO", "protobuf": "PROTOBUF"}  # of schemas, as the registry spells them
_PACKAGES = {"avro": ("fastavro",), "protobuf": ("google.protobuf", "grpc_tools")}
# Decimals become numbers, as the model reads them.
_to_json = msgspec.json.Encoder(decimal_format="number").encode

Read: TypeAlias = Callable[[bytes], Any]  # a payload as what JSON can say


class Payloads(Protocol):
    """Whoever turns the values of a batch into JSON."""

    def as_json(self, raw: RawColumns, errors: dict[int, DecodeError], /) -> RawColumns:
        """Return the batch with JSON values; add what cannot be read to `errors`, by its place.

        What stands in `errors` is passed over, as null values are. A `RegistryError` means: again.
        """


def payloads_of(
    message: MessageSettings, form: RecordFormat, clock: Callable[[], float] = time.monotonic
) -> Payloads | None:
    """Return what reads messages of `message.format`; None if that is json.

    A `ConfigError` names what is not installed, or a source whose records are not such messages.
    """
    if message.format == "json":
        return None
    if form.kind != "jsonl":
        raise ConfigError(f"message.format: {message.format} does not go with records of CSV")
    if message.format == "text":
        return TextPayloads(form.encoding)
    if message.format == "json-schema":
        return JsonSchemaPayloads()
    packages = _PACKAGES[message.format]
    try:
        missing = [each for each in packages if importlib.util.find_spec(each) is None]
    except ModuleNotFoundError:  # the package around it
        missing = list(packages)
    if missing:
        raise ConfigError(
            f"message.format: {message.format} needs what is not installed: {', '.join(missing)}. "
            f"Install the extra: pip install 'streamnb[{message.format}]'"
        )
    return FramedPayloads(message.format, message.registry, clock)


# ---- the formats ---------------------------------------------------------------------------------


class TextPayloads:
    r"""Reads messages that are a text alone, as `{"text": …, "key": …}` with the record's key.

    >>> from consumers.sources.records import from_parts
    >>> from consumers.messages import Partition
    >>> raw = from_parts(Partition("t", 0), [b"7"], [b'so "good"'], [0], [-1], 1)
    >>> TextPayloads("utf-8").as_json(raw, {}).value(0)
    b'{"text":"so \\"good\\"","key":"7"}'
    """

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding

    def as_json(self, raw: RawColumns, errors: dict[int, DecodeError]) -> RawColumns:
        """Return the batch with JSON values; one that is no text is `not_utf8`."""
        at = _readable(raw, errors)
        made: list[bytes | None] = [None] * len(raw)
        for i, value in zip(at.tolist(), raw.values(at), strict=True):
            try:
                text = (value or b"").decode(self._encoding)
            except UnicodeDecodeError as error:
                errors[i] = DecodeError(Reason.NOT_UTF8, f"not UTF-8 at byte {error.start}")
                continue
            key = raw.key(i)
            own = {} if key is None else {"key": key.decode("utf-8", "backslashreplace")}
            made[i] = _to_json({"text": text} | own)
        return _with_values(raw, made)


class JsonSchemaPayloads:
    """Reads framed JSON. The producer checked it against its schema, so no registry is asked."""

    def as_json(self, raw: RawColumns, errors: dict[int, DecodeError]) -> RawColumns:
        """Return the batch with values that begin behind the frame; nothing is copied."""
        at, _ = _framed(raw, errors)
        starts = raw.value_starts.copy()
        starts[at] += _FRAME
        return replace(raw, value_starts=starts)


class FramedPayloads:
    """Reads Avro (`kind` avro) or Protobuf by the schemas of a registry."""

    def __init__(self, kind: str, settings: RegistrySettings, clock: Callable[[], float]) -> None:
        self._kind, self._settings, self._clock = kind, settings, clock
        self._registry = SchemaRegistry(settings)
        self._known: OrderedDict[int, Read | _Unusable] = OrderedDict()
        watch_cache("schemas", self._fill)
        self._waiting_since_s: float | None = None  # the batch has an id that is unknown yet

    def as_json(self, raw: RawColumns, errors: dict[int, DecodeError]) -> RawColumns:
        """Return the batch with JSON values; see `Payloads.as_json`."""
        at, ids = _framed(raw, errors)
        readers = self._readers(np.unique(ids).tolist())
        made: list[bytes | None] = [None] * len(raw)
        for i, name, value in zip(at.tolist(), ids.tolist(), raw.values(at), strict=True):
            read = readers[name]
            if isinstance(read, _Unusable):
                errors[i] = DecodeError(Reason.NO_SCHEMA, read.detail)
                continue
            try:
                made[i] = _bounded(_to_json(read((value or b"")[_FRAME:])))
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001 -- the libraries raise whatever the bytes lead to
                detail = f"does not fit schema {name}: {type(error).__name__}: {error}"
                errors[i] = DecodeError(Reason.MALFORMED, detail[:_DETAIL_MAX])
        return _with_values(raw, made)

    def _readers(self, ids: Sequence[int]) -> dict[int, Read | _Unusable]:
        """Return what reads the messages of each schema."""
        try:
            found = {name: self._reader(name) for name in ids}
        except RegistryError:  # it was not heard for a while, which is no time of being unknown
            self._waiting_since_s = None
            raise
        unknown = [name for name, each in found.items() if each is None]
        if unknown:
            now_s, limit_s = self._clock(), self._settings.unknown_timeout_s
            if self._waiting_since_s is None:
                self._waiting_since_s = now_s
            left_s = self._waiting_since_s + limit_s - now_s
            if left_s > 0:
                text = f"{self._settings.url} has no schema {unknown[0]} yet"
                raise RegistryError(text, min(left_s, self._settings.retry_pause_max_s, 0.5))
            for name in unknown:
                detail = f"the registry has no schema {name}, asked for {limit_s:g} s"
                found[name] = self._keep(name, _Unusable(detail, now_s + _UNKNOWN_FOR_S))
        self._waiting_since_s = None
        return cast("dict[int, Read | _Unusable]", found)

    def _reader(self, name: int) -> Read | _Unusable | None:
        """Return what reads the messages of a schema; None if the registry does not know it."""
        known = self._known.get(name)
        if known is not None:
            self._known.move_to_end(name)
            if not isinstance(known, _Unusable) or self._clock() < known.until_s:
                return known
        try:
            schema = self._registry.schema(name)
            if schema is None:
                # One that was given up before has been waited for.
                return known and self._keep(
                    name, known._replace(until_s=self._clock() + _UNKNOWN_FOR_S)
                )
            return self._keep(name, self._compiled(name, schema))
        except SchemaError as error:
            detail = f"schema {name} cannot be used: {error}"[:_DETAIL_MAX]
            return self._keep(name, _Unusable(detail, self._clock() + _UNKNOWN_FOR_S))

    def _compiled(self, name: int, schema: RegisteredSchema) -> Read:
        kind = (schema.schemaType or "AVRO").upper()
        if kind != _TYPES[self._kind]:
            raise SchemaError(f"it is {kind[:20]}, and message.format is {self._kind}")
        references = self._registry.references(schema)
        try:
            if self._kind == "avro":
                return avro_reader(schema.schema, list(references.values()))
            return protobuf_reader(f"schema_{name}.proto", schema.schema, references)
        except (SchemaError, MemoryError):
            raise
        except OSError as error:  # protoc could not be run: of the schema that says nothing
            text = f"schema {name} cannot be compiled: {error.strerror}"
            raise RegistryError(text, self._settings.retry_pause_max_s) from None
        except Exception as error:  # noqa: BLE001 -- the library raises whatever a schema leads to
            raise SchemaError(f"{type(error).__name__}: {error}") from None

    def _fill(self) -> tuple[int, int]:
        return len(self._known), self._settings.schemas_max

    def _keep(self, name: int, made: Read | _Unusable) -> Read | _Unusable:
        self._known[name] = made
        self._known.move_to_end(name)
        while len(self._known) > self._settings.schemas_max:
            self._known.popitem(last=False)
        return made


class _Unusable(NamedTuple):
    """Why no message of a schema can be read, and until when that is not asked again."""

    detail: str
    until_s: float


def _bounded(value: bytes) -> bytes:
    """Return a value if it is not too long as JSON."""
    if len(value) > _JSON_BYTES_MAX:
        raise ValueError(f"as JSON it has {len(value):,} bytes, and {_JSON_BYTES_MAX:,} may be")
    return value


def _readable(raw: RawColumns, errors: Mapping[int, DecodeError]) -> NDArray[np.int64]:
    """Return the places of the values that are there and not refused yet."""
    is_there = raw.value_ends >= 0
    is_there[list(errors)] = False
    return np.flatnonzero(is_there)


def _framed(
    raw: RawColumns, errors: dict[int, DecodeError]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the places of values in a frame, and the ids of their schemas."""
    at = _readable(raw, errors)
    data = np.frombuffer(raw.buffer, np.uint8)
    is_long = raw.value_ends[at] - raw.value_starts[at] >= _FRAME
    for i in at[~is_long].tolist():
        detail = f"shorter than a frame: a zero byte and a schema's id are {_FRAME} bytes"
        errors[i] = DecodeError(Reason.MALFORMED, detail)
    at = at[is_long]
    heads = data[raw.value_starts[at, None] + np.arange(_FRAME)]
    is_framed = heads[:, 0] == 0
    for i, byte in zip(at[~is_framed].tolist(), heads[~is_framed, 0].tolist(), strict=True):
        detail = f"begins with byte {byte}, and a frame with a schema's id begins with byte 0"
        errors[i] = DecodeError(Reason.MALFORMED, detail)
    return at[is_framed], heads[is_framed, 1:].astype(np.int64) @ _ID_WEIGHTS


def _with_values(raw: RawColumns, values: Sequence[bytes | None]) -> RawColumns:
    """Return a batch with other values; keys stay where they name what a null value deletes."""
    keys = [raw.key(i) if end < 0 else None for i, end in enumerate(raw.value_ends.tolist())]
    parts = [*keys, *values]
    sizes = np.array([0 if each is None else len(each) for each in parts], np.int64)
    ends = np.cumsum(sizes)
    starts, n = ends - sizes, len(raw)
    ends[[each is None for each in parts]] = -1
    return RawColumns(
        raw.partition, b"".join(filter(None, parts)), starts[n:], ends[n:], starts[:n], ends[:n],
        raw.offsets, raw.times_ms, raw.next_offset, raw.headers,
    )  # fmt: skip


# ---- Avro ----------------------------------------------------------------------------------------


def avro_reader(schema: str, references: Sequence[str] = ()) -> Read:
    """Return what reads payloads of an Avro schema; its references come in order.

    A schema that is none, or that lets a few bytes stand for any number of values, is refused.
    """
    import fastavro  # noqa: PLC0415 -- an extra
    from fastavro import _read_py  # noqa: PLC0415 -- see below

    for readers in (module.LOGICAL_READERS for module in (fastavro.read, _read_py)):
        new = {kind: read for kind, read in readers.items() if read.__module__ != __name__}
        readers |= {kind: _bounded_reader(kind, read) for kind, read in new.items()}
    named: dict[str, Any] = {}
    try:
        for each in references:
            fastavro.parse_schema(json.loads(each), named)
        # A union or a name alone does not carry along what it names; a record does, and takes no
        # byte for itself.
        value_of = {"name": "value", "type": json.loads(schema)}
        whole = {"type": "record", "name": "streamnb_value", "fields": [value_of]}
        parsed = fastavro.parse_schema(whole, named)
        sizes = _AvroSizes(named)
        sizes.cost(parsed)
    except SchemaError:
        raise
    except Exception as error:  # noqa: BLE001 -- the library raises whatever a schema leads to
        raise SchemaError(f"{type(error).__name__}: {error}") from None
    # The compiled reader has no bound on how deep values nest, and ends the process; the other one
    # raises. It is some ten times slower, and only schemas that contain themselves need it.
    read_one = (_read_py if sizes.is_recursive else fastavro).schemaless_reader

    def read(payload: bytes) -> Any:
        if sizes.free_by_byte * (1 + len(payload)) > _VALUES_MAX:
            raise ValueError("it may hold too many values that take no bytes")
        file = io.BytesIO(payload)
        value = read_one(file, parsed, None)
        if file.tell() != len(payload):
            raise ValueError(f"{len(payload) - file.tell()} bytes are left behind it")
        return value["value"]

    return read


def _bounded_reader(kind: str, read: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reader of a logical type that has no value for a time that no calendar holds.

    As a number it would be another time, by its size. A text that is no UUID stays as it is.
    """

    def read_bounded(data: Any, *schemas: Any) -> Any:
        if kind.endswith("decimal") and len(data) > _DECIMAL_BYTES_MAX:
            raise ValueError(f"a decimal of {len(data)} bytes")
        try:
            return read(data, *schemas)
        except (ValueError, OverflowError):
            return data if isinstance(data, str) else None

    return read_bounded


class _AvroSizes:
    """What a parsed Avro schema lets its payloads do.

    Attributes
    ----------
    is_recursive : bool
        Whether values may nest without a bound.
    free_by_byte : float
        How many values that take no bytes there may be for each byte.
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._costs: dict[str, tuple[int, int]] = {}
        self._above: set[str] = set()
        self.is_recursive = False
        self.free_by_byte = 0.0

    def cost(self, schema: Any) -> tuple[int, int]:
        """Return how many values in one value take no bytes, and how many bytes it takes at least.

        What stands behind a byte of its own, as the items of an array do, is looked at and not
        counted. An array of values that take no bytes is a `SchemaError`.
        """
        if isinstance(schema, list):  # a union says by a byte which it is
            for each in schema:
                self.cost(each)
            return 0, 1
        kind = schema if isinstance(schema, str) else schema["type"]
        if not isinstance(kind, str):
            return self.cost(kind)
        if kind in self._named:
            return self.cost(self._named[kind])
        if kind in {"record", "error"}:
            return self._cost_of_record(schema)
        if kind in {"array", "map"}:
            _, least = self.cost(schema["items" if kind == "array" else "values"])
            if kind == "array" and not least:
                raise SchemaError("it has an array of values that take no bytes, without a bound")
            return 0, 1
        n_bytes = schema["size"] if kind == "fixed" else int(kind != "null")
        return int(not n_bytes), n_bytes

    def _cost_of_record(self, schema: Mapping[str, Any]) -> tuple[int, int]:
        name = schema["name"]
        if name in self._above:
            self.is_recursive = True
            return 0, 1
        if name not in self._costs:
            self._above.add(name)
            costs = [self.cost(each["type"]) for each in schema["fields"]]
            self._above.discard(name)
            n_free, n_bytes = 1 + sum(each[0] for each in costs), sum(each[1] for each in costs)
            self._costs[name] = n_free, n_bytes
            self.free_by_byte = max(self.free_by_byte, n_free / max(1, n_bytes))
        return self._costs[name]


# ---- Protobuf ------------------------------------------------------------------------------------


_REFERENCE = re.compile(
    r"(?!/)(?:(?!\.\.?/)[A-Za-z0-9_.+-]+/)*[A-Za-z0-9_+-][A-Za-z0-9_.+-]*\.proto"
)
_KNOWN_IMPORTS = Path(__file__).parent / "proto"  # no references, though no part of protoc
_PATH_MAX = 200


def protobuf_reader(name: str, schema: str, references: Mapping[str, str]) -> Read:
    """Return what reads payloads of a .proto file, each behind the place of its message in it."""
    from google.protobuf import (  # noqa: PLC0415 -- an extra
        descriptor_pb2,
        descriptor_pool,
        message_factory,
    )

    files = descriptor_pb2.FileDescriptorSet.FromString(_compile(name, schema, references))
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:  # each behind what it imports
        pool.Add(file)
    whole = pool.FindFileByName(name)
    convert = _ProtobufValues()
    known: dict[tuple[int, ...], tuple[Callable[[bytes], Any], Callable[[Any], Any]]] = {}

    def reader(places: tuple[int, ...]) -> tuple[Callable[[bytes], Any], Callable[[Any], Any]]:
        inside: Any = list(whole.message_types_by_name.values())
        for place in places:
            if place >= len(inside):
                raise ValueError(f"it is of message {list(places)}, which its schema has not")
            found, inside = inside[place], inside[place].nested_types
        return message_factory.GetMessageClass(found).FromString, convert.of_message(found)

    def read(payload: bytes) -> Any:
        places, at = message_places(payload)
        if places not in known:
            known[places] = reader(places)
        parse, to_value = known[places]
        convert.n_values = 0
        return to_value(parse(payload[at:]))

    return read


def _compile(name: str, schema: str, references: Mapping[str, str]) -> bytes:
    """Return the descriptors of a .proto file and of all that it imports.

    The compiler is Google's own, as a process: what a schema does to it does not happen to us, and
    its complaints are no lines of ours.
    """
    for each in references:
        is_folder = any(other.startswith(f"{each}/") for other in references)
        if is_folder or len(each) > _PATH_MAX or not _REFERENCE.fullmatch(each):
            raise SchemaError(f"its reference {each[:80]!r} is no path of a .proto file")
    with tempfile.TemporaryDirectory(prefix="streamnb-") as folder:
        for path, text in {**references, name: schema}.items():
            file = Path(folder, "in", path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        out = Path(folder, "out")
        folders = [f"-I{folder}/in", f"-I{_KNOWN_IMPORTS}"]
        arguments = [*folders, "--include_imports", f"--descriptor_set_out={out}", name]
        try:
            done = subprocess.run(  # noqa: S603 -- our own interpreter, and a name of ours
                [sys.executable, "-P", "-m", "grpc_tools.protoc", *arguments],
                capture_output=True, stdin=subprocess.DEVNULL, check=False,
                timeout=_COMPILE_TIMEOUT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise SchemaError(f"protoc took more than {_COMPILE_TIMEOUT_S:g} s") from None
        if done.returncode:
            text = done.stderr.decode("utf-8", "replace").replace(f"{folder}/in/", "")
            lines = text.splitlines() or [f"status {done.returncode}"]
            said = [line for line in lines if ".proto:" in line.partition(" ")[0]] or lines[-1:]
            raise SchemaError(f"protoc: {'; '.join(said)}")
        return out.read_bytes()


_WELL_KNOWN = {"Timestamp", "Duration", "FieldMask"}
_TREES = {"Struct", "Value", "ListValue"}
_WRAPPERS = {
    f"{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}


class _ProtobufValues:
    """Turns messages into dicts, by the names of the .proto file.

    A number or flag that is zero is written out where the wire leaves it out: it is a value. An
    empty text there is not, nor an enum's zero that is called UNSPECIFIED: they say nothing.
    """

    def __init__(self) -> None:
        self._known: dict[str, Callable[[Any], Any]] = {}
        self.n_values = 0  # of the message under way

    def of_message(self, descriptor: Any) -> Callable[[Any], Any]:
        """Return what turns messages of a type into values."""
        package, _, name = descriptor.full_name.rpartition(".")
        if package == "google.protobuf" and name in _WELL_KNOWN:
            return _bounded_reader("time", lambda message: message.ToJsonString())
        if package == "google.protobuf" and name in _TREES:
            from google.protobuf.json_format import MessageToDict  # noqa: PLC0415 -- an extra

            return cast("Callable[[Any], Any]", MessageToDict)
        if package == "google.protobuf" and name in _WRAPPERS:
            return lambda message: message.value
        if descriptor.full_name == "confluent.type.Decimal":
            return _decimal
        if descriptor.full_name not in self._known:
            self._known[descriptor.full_name] = self._made(descriptor)
        return self._known[descriptor.full_name]

    def _made(self, descriptor: Any) -> Callable[[Any], Any]:
        zeros = _zeros(descriptor)
        fields: dict[int, tuple[str, Callable[[Any], Any] | None]] = {}

        def to_value(message: Any) -> dict[str, Any]:
            self.n_values += len(zeros)
            if self.n_values > _VALUES_MAX:
                raise ValueError("it holds too many values that take no bytes")
            found = zeros.copy()
            for field, value in message.ListFields():
                name, convert = fields.get(field.number, ("", None))
                if name:  # an extension has none
                    found[name] = value if convert is None else convert(value)
            return found

        self._known[descriptor.full_name] = to_value  # before its fields, which may be of this type
        try:
            fields |= {each.number: (each.name, self._of_field(each)) for each in descriptor.fields}
        except RecursionError:
            self._known.clear()  # of those above this type some fields are missing
            raise
        return to_value

    def _of_field(self, field: Any) -> Callable[[Any], Any] | None:
        """Return what turns a field into a value; None if it is one."""
        one = self._of_one(field)
        if not field.is_repeated:
            return one
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            value = self._of_one(entry.fields_by_name["value"]) or (lambda each: each)
            return lambda entries: {_key(key): value(each) for key, each in entries.items()}
        return list if one is None else lambda values: [one(each) for each in values]

    def _of_one(self, field: Any) -> Callable[[Any], Any] | None:
        if field.cpp_type == field.CPPTYPE_MESSAGE:
            return self.of_message(field.message_type)
        if field.cpp_type == field.CPPTYPE_ENUM:
            names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
            return lambda number: names.get(number, number)
        return _text if field.type == field.TYPE_STRING else None


def _zeros(descriptor: Any) -> dict[str, Any]:
    """Return the values of a message that has no bytes."""
    found: dict[str, Any] = {}
    for field in descriptor.fields:
        if field.has_presence or field.is_repeated:
            continue
        if field.cpp_type == field.CPPTYPE_ENUM:
            zero = field.enum_type.values_by_number[0].name
            if not zero.endswith("UNSPECIFIED"):
                found[field.name] = zero
        elif field.cpp_type != field.CPPTYPE_STRING:
            found[field.name] = field.default_value
    return found


def _decimal(message: Any) -> Decimal:
    if len(message.value) > _DECIMAL_BYTES_MAX or abs(message.scale) > _DECIMAL_BYTES_MAX:
        raise ValueError(f"a decimal of {len(message.value)} bytes, scale {message.scale}")
    return Decimal(f"{int.from_bytes(message.value, 'big', signed=True)}E{-message.scale}")


def _text(value: Any) -> str:
    """Return a text; proto2 lets one hold what is no UTF-8."""
    if isinstance(value, str):
        return value
    raise ValueError("a text is not UTF-8")


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)
