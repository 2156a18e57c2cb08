"""Sources, sinks and decoders as the settings name them, and what makes two streams the same."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from structlog.testing import capture_logs

from consumers.config.addresses import Bound, StreamRange
from consumers.config.settings import Settings
from consumers.decode.rows import RecordFormat
from consumers.errors import ConfigError, SourceError
from consumers.factories import Components, build_decoder, build_erasure, build_sink, build_source
from consumers.kafka.group_source import GroupSource
from consumers.kafka.librdkafka import LibrdkafkaClient
from consumers.kafka.producers import KafkaSink
from consumers.messages import KnownClasses, Operation, Partition, RawColumns
from consumers.monitoring.quality import Quality
from consumers.monitoring.stats import RunStatistics
from consumers.pipeline.checkpoint import Checkpoint, warn_of_left_topics
from consumers.sinks.jsonl import JsonLinesSink
from consumers.sinks.records import NoSink
from consumers.sources.file import FileSource, StdinSource
from consumers.sources.generator import GeneratorSource
from consumers.sources.recording import (
    RecordingHead,
    RecordingSource,
    RecordingWriter,
    stream_identity,
)
from tests.consumers.raw_batches import strings

NOBODY = "127.0.0.1:9"  # the port of discarded messages: no broker is there


def settings(**values: Any) -> Settings:
    """Return settings with some values of their own."""
    return Settings.model_validate(values)


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("generator", GeneratorSource),
        ("stdin", StdinSource),
        ("file:FOLDER/some.jsonl", FileSource),
        (f"kafka://{NOBODY}/tweets", GroupSource),
    ],
)
def test_a_source_is_built_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, kind: type[object]
) -> None:
    """Each address gives its kind of source, and building reaches for no broker."""
    path = tmp_path / "some.jsonl"
    path.write_bytes(b"")
    given = settings(source=source.replace("FOLDER", str(tmp_path)))
    with path.open(encoding="utf-8") as standard_input:
        monkeypatch.setattr(sys, "stdin", standard_input)
        built = build_source(given, until_end=True)
        assert type(built) is kind
        built.close()


@pytest.mark.parametrize("source", ["generator", "stdin"])
def test_a_part_is_of_what_has_a_past(source: str) -> None:
    """A stream that cannot be read again has no offset to begin at: the error says what has."""
    part = StreamRange(begin=Bound("offset", 3))
    with pytest.raises(ConfigError, match="has no past to begin in; they are for a topic, a file"):
        build_source(settings(source=source), until_end=True, part=part)


def test_a_recording_is_the_stream_that_was_recorded(tmp_path: Path) -> None:
    """Its partitions are the topic's, so a state folder learns from either; `file:` is refused."""
    path = tmp_path / "r.gz"
    identity = {"source": "kafka", "topic": "tweets"}
    RecordingWriter(path, RecordingHead(stream=identity, format=RecordFormat())).close()
    given = settings(source=f"recording:{path}")
    assert stream_identity(given) == identity
    assert type(build_source(given, until_end=True)) is RecordingSource
    with pytest.raises(ConfigError, match=r"is a recording; write `recording:.*r\.gz`"):
        build_source(settings(source=f"file:{path}"), until_end=True)
    with pytest.raises(SourceError, match="cannot be opened"):
        stream_identity(settings(source=f"recording:{tmp_path / 'none.gz'}"))


def test_an_unused_journal_that_cannot_be_opened_stops_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With corrections off it is only opened for erasing, so a warning is enough."""
    (tmp_path / "corrections.jsonl").write_bytes(b"")

    def refusing(path: Path, flags: int) -> int:
        raise PermissionError(13, "Permission denied", str(path), flags)

    monkeypatch.setattr("consumers.corrections.journal.open_private", refusing)
    given = settings(checkpoint={"folder": tmp_path}, corrections={"to": "none"})
    quality = Quality(KnownClasses(["a", "b"]), RunStatistics(["a", "b"], [], 9).prequential, 5)
    with contextlib.ExitStack() as stack, capture_logs() as logs:
        checkpoint = Checkpoint(given.checkpoint, {})
        build_erasure(given, checkpoint, Components(None, None, quality), stack)
    assert [line["event"] for line in logs] == ["unused_journal_not_opened"]


def test_deleted_texts_that_the_group_keeps_are_told(tmp_path: Path) -> None:
    """Its folder is out of the reach of erasure: part files go as further ones come."""
    given = settings(
        source=f"kafka://{NOBODY}/tweets",
        checkpoint={"folder": tmp_path / "own"},
        group={"folder": tmp_path / "shared"},
        corrections={"to": "none"},
    )
    (tmp_path / "own").mkdir()
    quality = Quality(KnownClasses(["a", "b"]), RunStatistics(["a", "b"], [], 9).prequential, 5)
    with contextlib.ExitStack() as stack, capture_logs() as logs:
        checkpoint = Checkpoint(given.checkpoint, {})
        erasure = build_erasure(given, checkpoint, Components(None, None, quality), stack)
        erasure.add([("m1", Partition("tweets", 0), 3)], from_stream=True)
    (told,) = [line for line in logs if line["event"] == "texts_out_of_reach"]
    assert told["places"] == [f"group.folder: {tmp_path / 'shared'}"]


@pytest.mark.parametrize(
    ("source", "sections", "left"),
    [
        ("file:x.jsonl", {}, ["labels", "said"]),
        ("kafka://h:1/posts", {"corrections": {"to": "kafka:said"}}, ["labels"]),
        ("kafka://h:1/posts", {"late_labels": {"source": "kafka:labels"}}, ["said"]),
        ("generator", {"corrections": {"to": "journal"}}, ["labels", "said"]),
    ],
)
def test_topics_that_nothing_names_any_more_are_told(
    source: str, sections: dict[str, Any], left: list[str]
) -> None:
    """A checkpoint of a stream, of what people said and of labels; settings that lack some."""
    given = settings(source=source, checkpoint={"folder": "state"}, **sections)
    address = given.source_address
    own = "file:x.jsonl" if address.kind == "file" else address.topic or address.kind
    names = (own, "said", "labels", "journal:corrections.jsonl")
    with capture_logs() as logs:
        warn_of_left_topics(given, [Partition(name, 0) for name in names])
        warn_of_left_topics(given, [Partition(names[0], 1)])
    assert [(each["event"], each["topics"]) for each in logs] == [("topics_left", left)]


def test_an_address_without_a_branch_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It used to be read as the generator, and saved under an identity without its details."""
    given = settings()
    address = SimpleNamespace(kind="socket", path=None, topic=None)
    monkeypatch.setattr(Settings, "source_address", address)
    with pytest.raises(AssertionError, match="socket"):
        build_source(given, until_end=True)
    with pytest.raises(AssertionError, match="socket"):
        stream_identity(given)


def test_kafka_is_read_by_the_client_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """`kafka.client` chooses what reads; where that is not installed, the error says what to do."""
    given = settings(source=f"kafka://{NOBODY}/tweets", kafka={"client": "librdkafka"})
    built = build_source(given, until_end=True)
    assert type(built) is GroupSource
    assert type(built.client) is LibrdkafkaClient
    built.close()
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ConfigError, match=r"kafka\.client.*pip install 'streamnb\[librdkafka\]'"):
        build_source(given, until_end=True)


def test_a_file_is_followed_unless_it_ends(tmp_path: Path) -> None:
    """With `until_end` a file has an end; without, more is awaited."""
    path = tmp_path / "stream.jsonl"
    path.write_text('{"text": "one"}\n', encoding="utf-8")
    for until_end in (True, False):
        source = build_source(settings(source=f"file:{path}"), until_end=until_end)
        source.open(lambda _: None)
        assert sum(len(raw) for raw in source.poll(0.0)) == 1
        source.poll(0.0)
        assert source.at_end()
        with path.open("a", encoding="utf-8") as file:
            file.write('{"text": "two"}\n')
        assert bool(source.poll(0.0)) is not until_end
        source.close()
        path.write_text('{"text": "one"}\n', encoding="utf-8")


def test_sinks_are_built_by_their_name(tmp_path: Path) -> None:
    """Each output's address gives its kind of sink."""
    given = settings(
        source="generator",
        kafka={"servers": (NOBODY,)},
        predictions={"to": f"file:{tmp_path / 'out.jsonl'}"},
        rejects={"to": "kafka:rejects"},
    )
    for output, kind in (
        (given.predictions, JsonLinesSink),
        (given.rejects, KafkaSink),
        (settings().predictions, NoSink),
    ):
        sink = build_sink(output, given)
        assert type(sink) is kind
        sink.close()


IDENTITIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "kafka": ({"source": f"kafka://{NOBODY}/tweets"}, {"source": "kafka", "topic": "tweets"}),
    "file": ({"source": "file:a/b.jsonl"}, {"source": "file", "name": "b.jsonl"}),
    "stdin": ({"source": "stdin"}, {"source": "stdin"}),
    "generator": (
        {"source": "generator", "generator": {"seed": 3, "labelled_share": 0.5, "turn_after": 9}},
        {"source": "generator", "seed": 3, "labelled_share": 0.5, "turn_after": 9},
    ),
    "made-up loans": (
        {"generator": {"stream": "loans", "seed": 3}},
        {"source": "generator", "stream": "loans", "seed": 3, "labelled_share": 0.7},
    ),
}


@pytest.mark.parametrize("kind", IDENTITIES)
def test_a_stream_is_known_by_what_its_positions_mean(kind: str) -> None:
    """Topic, file name or seed make a stream; they are plain JSON, as a checkpoint keeps them."""
    values, identity = IDENTITIES[kind]
    found = stream_identity(settings(**values))
    assert found == identity
    assert msgspec.json.decode(msgspec.json.encode(found)) == found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"source": f"kafka://{NOBODY}/t"}, {"source": "kafka://127.0.0.1:10,127.0.0.1:11/t"}),
        ({"source": "file:here/x.jsonl"}, {"source": "file:there/x.jsonl"}),
        ({"generator": {"rate_per_s": 1.0}}, {"generator": {"rate_per_s": 0.0}}),
    ],
)
def test_where_and_how_fast_make_no_other_stream(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    """Another broker address, folder or pace leaves positions their meaning."""
    assert stream_identity(settings(**one)) == stream_identity(settings(**other))


def raw(*values: bytes) -> RawColumns:
    """Return a batch of raw messages."""
    sizes = np.array([len(value) for value in values], dtype=np.int64)
    ends = np.cumsum(sizes)
    nothing = np.full(len(values), -1, dtype=np.int64)
    return RawColumns(
        partition=Partition("t", 0),
        buffer=b"".join(values),
        value_starts=ends - sizes,
        value_ends=ends,
        key_starts=nothing,
        key_ends=nothing,
        offsets=np.arange(len(values)),
        times_ms=nothing,
        next_offset=len(values),
    )


def test_the_decoder_reads_what_labels_and_features_need() -> None:
    """Labels come from the configured field, and every field of a feature group is kept."""
    given = settings(
        labels={"kind": "field", "field": "mood", "mapping": {"4": "positive"}},
        message={"fields": ["place"]},
        model={"features": {"text": {}, "place": {}}},
    )
    decoder = build_decoder(given, build_source(given, until_end=True))
    decoded = decoder.decode(raw(b'{"text": "one", "mood": 4, "place": "here", "other": 1}'))
    envelope = decoded.envelope(0)
    assert envelope.label == "positive"
    assert envelope.fields == {"place": "here"}
    assert envelope.operation is Operation.CREATE
    assert {name: strings(column) for name, column in decoded.fields.items()} == {"place": ["here"]}


def test_the_decoder_takes_labels_from_emoticons() -> None:
    """With emoticon labels a sign gives the class and leaves the text."""
    given = settings(labels={"kind": "emoticons"})
    decoder = build_decoder(given, build_source(given, until_end=True))
    decoded = decoder.decode(raw(b'{"text": "what a day :)"}', b'{"text": "a day"}'))
    assert [decoded.label(0), decoded.label(1)] == ["positive", None]
    assert strings(decoded.texts) == ["what a day", "a day"]


def test_the_decoder_follows_the_form_of_the_file(tmp_path: Path) -> None:
    """A file of comma-separated values is decoded as one, without being asked to."""
    path = tmp_path / "stream.csv"
    path.write_text("text,label\nso good,positive\n", encoding="utf-8")
    given = settings(source=f"file:{path}", labels={"kind": "field", "field": "label"})
    source = build_source(given, until_end=True)
    source.open(lambda _: None)
    decoder = build_decoder(given, source)
    decoded = [decoder.decode(batch) for batch in source.poll(0.0)]
    source.close()
    assert [(strings(m.texts), m.label(0)) for m in decoded] == [(["so good"], "positive")]
