"""The label topic on a real broker: what is answered for is there once, and doubt is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from consumers.config.addresses import KafkaSettings
from consumers.config.settings import Settings
from consumers.corrections import service as correction_service
from consumers.corrections.model import (
    Correction,
    InDoubt,
    LogPosition,
    NotReady,
    NotWritten,
    encode,
    entries,
)
from consumers.factories import CorrectionParts, build_corrections
from consumers.features import build_model
from consumers.kafka.producers import KafkaLog
from consumers.messages import Partition, part_name
from consumers.monitoring.metrics import Metrics
from streamnb import EveryExamples, Learner, SnapshotBoard
from tests.broker.broker import Broker
from tests.consumers.corrections.stepped_daemon import Kept, Store
from tests.consumers.kafka.topics import PATIENCE_S, Reader

pytestmark = [
    pytest.mark.integration,
    # The client leaves the sockets of failed attempts to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
NewTopic = Callable[..., str]
CLASSES = ("negative", "positive")


def test_lines_of_one_key_stand_in_one_partition(broker: Broker, new_topic: NewTopic) -> None:
    """What is appended is safe when its outcome is known, in the order of its key."""
    topic = new_topic(3)
    with closing(KafkaLog([broker.address], topic, KafkaSettings())) as log:
        places = [log.append(b"m1", b"{%d}" % i).outcome(PATIENCE_S) for i in range(5)]
        other = log.append(b"another", b"{}").outcome(PATIENCE_S)
    assert other is not None
    assert len({place.partition for place in places if place is not None}) == 1
    assert [place.offset for place in places if place is not None] == list(range(5))
    with Reader(broker.address, topic) as reader:
        reader.until(lambda: reader.n_values >= 6)
        at = places[0]
        assert at is not None
        assert reader.values[at.partition.partition][:5] == [b"{%d}" % i for i in range(5)]


def test_in_a_group_a_correction_stands_in_the_partition_of_its_message(
    broker: Broker, new_topic: NewTopic
) -> None:
    """Whoever reads the message's partition reads it; one without a message stands anywhere."""
    topic = new_topic(3)
    lines = [encode(Correction("delete", f"m{k}", 5, {}, partition=("t", k % 3))) for k in range(6)]
    lines.append(encode(Correction("label", "made", 5, {"text": "a"}, "positive")))
    with closing(KafkaLog([broker.address], topic, KafkaSettings(), by_message=True)) as log:
        places = [log.append(b"same", line).outcome(PATIENCE_S) for line in lines]
    assert [place.partition.partition for place in places[:6] if place] == [0, 1, 2, 0, 1, 2]
    assert places[6] is not None


def test_a_partition_that_the_topic_does_not_have_yet_takes_nothing(
    broker: Broker, new_topic: NewTopic
) -> None:
    """The stream has it already: its sender may try again, and other lines go through."""
    topic = new_topic(1)
    lines = [encode(Correction("delete", "m", 5, {}, partition=("t", each))) for each in (1, 0)]
    with closing(KafkaLog([broker.address], topic, KafkaSettings(), by_message=True)) as log:
        with pytest.raises(NotWritten, match="partition 1"):
            log.append(b"m", lines[0])
        assert log.append(b"m", lines[1]).outcome(PATIENCE_S) is not None


def test_what_the_broker_refuses_is_not_written(broker: Broker, new_topic: NewTopic) -> None:
    """A line too large for the topic is an error for its sender, and the next one goes through."""
    topic = new_topic(max_message_bytes="2000")
    with closing(KafkaLog([broker.address], topic, KafkaSettings())) as log:
        with pytest.raises(NotWritten, match="records of that size"):
            log.append(b"m1", b"x" * 5_000).outcome(PATIENCE_S)
        assert log.append(b"m1", b"{}").outcome(PATIENCE_S) is not None
    with Reader(broker.address, topic) as reader:
        reader.until(lambda: reader.n_values >= 1)
        assert reader.values[0] == [b"{}"]


def test_a_broker_that_is_away_takes_nothing(
    own_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no broker answers, nothing was written, and the sentence says what to look at."""
    monkeypatch.setattr("consumers.kafka.producers.CONNECT_TIMEOUT_S", 0.1)
    with (
        closing(KafkaLog([own_broker.reserve()], "labels", KafkaSettings())) as log,
        pytest.raises(NotWritten, match=r"nothing was changed.*no answer from Kafka"),
    ):
        log.append(b"m1", b"{}")


@contextmanager
def corrections_of(
    broker: Broker,
    topic: str,
    folder: Path,
    store: Store,
    positions: Mapping[Partition, int] = MappingProxyType({}),
) -> Iterator[CorrectionParts]:
    """Yield the daemon's corrections over a label topic, read back by their own thread."""
    settings = Settings.model_validate(
        {
            "checkpoint": {"folder": folder},
            "kafka": {"servers": [broker.address]},
            "corrections": {"to": f"kafka:{topic}"},
        }
    )
    corrections = build_corrections(settings, store, Metrics(CollectorRegistry()))
    assert corrections is not None
    corrections.applier.start(positions)
    try:
        assert corrections.applier._reading.caught_up.wait(PATIENCE_S)
        yield corrections
    finally:
        corrections.applier.close()
        corrections.log.close()


def in_topic(broker: Broker, topic: str, n: int) -> list[Any]:
    """Return what the first `n` lines of a topic say."""
    with Reader(broker.address, topic) as reader:
        reader.until(lambda: reader.n_values >= n)
        return [entry.said for raw in reader.batches for entry in entries(raw, CLASSES)]


def test_a_correction_in_doubt_is_waited_for(
    own_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that stands still leaves a correction in doubt; it comes once, and is known then."""
    own_broker.start()
    own_broker.create_topic("labels")
    store = Store()
    store.offer("m1", Kept({"text": "so it goes"}, "negative", "t/0", Partition("t", 0), 0))
    with corrections_of(own_broker, "labels", tmp_path, store) as corrections:
        monkeypatch.setattr(correction_service, "OUTCOME_TIMEOUT_S", PATIENCE_S)
        assert corrections.correction_service.label("m1", "positive").position == "labels@0"
        monkeypatch.setattr(correction_service, "OUTCOME_TIMEOUT_S", 0.3)
        with own_broker.standing_still():
            with pytest.raises(InDoubt, match="may be in it already"):
                corrections.correction_service.label("m1", "negative")
            with pytest.raises(NotReady, match="on its way to labels"):
                corrections.correction_service.label("m1", "positive")
            doubt = corrections.correction_service._doubts["m1"]
        assert isinstance(doubt.appended.outcome(PATIENCE_S), LogPosition)
        monkeypatch.setattr(correction_service, "OUTCOME_TIMEOUT_S", PATIENCE_S)
        receipt = corrections.correction_service.delete("m1")
        assert (receipt.was, receipt.position) == ("negative", "labels@2")
    said = in_topic(own_broker, "labels", 3)
    assert [(each.was, each.was_part, each.label) for each in said] == [
        ("negative", "t/0", "positive"),
        ("positive", "labels/0", "negative"),
        ("negative", "labels/0", None),
    ]


def test_what_another_daemon_wrote_is_remembered(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Daemons share a label topic: each reads all of it back, of before its start and later."""
    topic, store = new_topic(), Store()
    for id_ in ("m1", "m2"):
        store.offer(id_, Kept({"text": "x"}, "negative", "t/0", Partition("t", 0), 0))
    with corrections_of(broker, topic, tmp_path / "a", store) as first:
        first.correction_service.delete("m1")
    store.removed.clear()
    with corrections_of(broker, topic, tmp_path / "b", store) as second:
        assert store.get("m1") is None
        other = Store()
        other.offer("m2", Kept({"text": "x"}, "negative", "t/0", Partition("t", 0), 0))
        with corrections_of(broker, topic, tmp_path / "a", other) as first:
            first.correction_service.label("m2", "positive")
        reading = second.applier._reading
        with reading._changed:
            assert reading._changed.wait_for(lambda: reading.n_waiting == 2, PATIENCE_S)
        kept = store.get("m2")
        assert kept is not None
        assert (kept.taught, kept.taught_part) == ("positive", f"{topic}/0")
    assert [type(each) for each in in_topic(broker, topic, 2)] == [Correction, Correction]


def test_a_label_that_seems_to_be_taught_is_written_into_a_shared_topic(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Another daemon may have learned an update of the message: what is kept here is outdated."""
    topic, store = new_topic(), Store()
    store.offer("m1", Kept({"text": "x"}, "negative", "t/0", Partition("t", 0), 0))
    store.offer("m2", Kept({"text": "y"}, None, None, Partition("t", 0), 1))
    with corrections_of(broker, topic, tmp_path, store) as corrections:
        label = corrections.correction_service.label
        receipts = [label("m1", "negative"), label("m2", None)]
    assert [each.position for each in receipts] == [f"{topic}@0", f"{topic}@1"]
    said = in_topic(broker, topic, 2)
    assert [(each.kind, each.was, each.label) for each in said] == [
        ("label", "negative", "negative"),
        ("withdraw", None, None),
    ]


def test_corrections_that_retention_removed_are_told_once(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """The position moves to where reading went on, though nobody corrects anything behind it."""
    topic = new_topic()
    place, line = Partition(topic, 0), encode(Correction("label", "made", 5, {}, "positive"))
    with closing(KafkaLog([broker.address], topic, KafkaSettings())) as log:
        for _ in range(5):
            assert log.append(b"made", line).outcome(PATIENCE_S) is not None
    broker.delete_records(topic, 0, 5)
    positions = {place: 2}
    learner = Learner(
        build_model(Settings().model), SnapshotBoard(), EveryExamples(1 << 30), lambda: 0.0
    )
    told = []
    for _ in range(2):
        with (
            capture_logs() as logs,
            corrections_of(broker, topic, tmp_path, Store(), positions) as corrections,
        ):
            corrections.applier.apply(learner, positions, [])
        told.append([each["lost"] for each in logs if each["event"] == "messages_lost"])
    assert told == [[3], []]
    assert (positions, learner.model.n_examples) == ({place: 5}, 0)
    assert part_name(place) in learner.model.parts  # a position is saved with a part
