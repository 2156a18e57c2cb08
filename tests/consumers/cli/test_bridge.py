"""A source into a topic: what arrives there, where it goes on, and what it refuses."""

from __future__ import annotations

import json
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consumers.cli import record
from consumers.cli.record import Bridged, CursorFile, RecordLimits, TopicWriter, bridge_stream
from consumers.cli.replay import reading
from consumers.config.message import MessageSettings
from consumers.config.settings import Settings
from consumers.decode.rows import RecordFormat
from consumers.errors import ConfigError, SinkError
from consumers.kafka.producers import TopicIds
from consumers.messages import Partition
from consumers.sources.base import LogFacts
from consumers.sources.records import from_parts
from streamnb.testing import ManualClock
from tests.broker.broker import Broker
from tests.consumers.cli.test_record import Row, produce, recorded, recording

NewTopic = Callable[..., str]
UNTIL_END = RecordLimits(until_end=True)


def bridged(
    source: str, address: str, topic: str, cursor: Path, limits: RecordLimits = UNTIL_END
) -> Bridged:
    """Bridge a source to its limits."""
    settings = Settings.model_validate({"source": source, "generator": {"rate_per_s": 0}})
    stop = threading.Event()
    return bridge_stream(settings, (address,), topic, cursor, limits, stop, show=False)


def in_topic(address: str, topic: str, folder: Path) -> dict[int, list[Row]]:
    """Return what a topic holds, by partition."""
    path = folder / f"{topic}.zst"
    recording(path, f"kafka://{address}/{topic}", UNTIL_END)
    return {place.partition: rows for place, rows in recorded(path).items()}


@pytest.mark.integration
def test_messages_arrive_in_order_with_key_time_and_place(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Values byte for byte, each key's in one partition and in order; a time to come is now's.

    A second run goes on behind the first; a message that cannot be read goes as it is.
    """
    topic, path, cursor = new_topic(3), tmp_path / "in.jsonl", tmp_path / "folder" / "c"
    lines = [
        json.dumps({"id": f"k{i % 7}", "n": i, "created_at": 1_700_000_000_000 + i}).encode()
        for i in range(300)
    ]
    lines[5] = b"no JSON"
    lines[6] = b'{"id": "late", "created_at": 4000000000000}'
    path.write_bytes(b"\n".join(lines[:200]) + b"\n")
    before_ms = time.time() * 1000
    done = bridged(f"file:{path}", broker.address, topic, cursor)
    assert (done.messages, done.refused, done.unsafe) == (200, 0, False)
    assert done.positions == {"file:in.jsonl[0]": path.stat().st_size}
    assert stat.S_IMODE(cursor.stat().st_mode) == 0o600
    assert stat.S_IMODE(cursor.parent.stat().st_mode) == 0o700
    with path.open("ab") as file:
        file.write(b"\n".join(lines[200:]) + b"\n")
    assert bridged(f"file:{path}", broker.address, topic, cursor).messages == 100
    found = in_topic(broker.address, topic, tmp_path)
    rows = [row for some in found.values() for row in some]
    assert sorted(value or b"" for _, _, _, value, _ in rows) == sorted(lines)
    partitions: dict[bytes | None, set[int]] = {}
    for number, some in found.items():
        places = []
        for _, time_ms, key, value, headers in some:
            partitions.setdefault(key, set()).add(number)
            assert headers[0] == ("streamnb-source", b"file:in.jsonl")
            name, place = headers[1]
            assert name == "streamnb-cursor"
            assert place is not None
            places.append(int(place.removeprefix(b"0:")))
            if value == lines[6]:
                assert before_ms - 1 <= time_ms <= time.time() * 1000
            elif value == lines[5]:
                assert (key, number) == (None, 0)
            else:
                said = json.loads(value or b"")
                assert (key, time_ms) == (said["id"].encode(), said["created_at"])
        assert places == sorted(places)
    assert {len(numbers) for numbers in partitions.values()} == {1}
    assert len(set.union(*partitions.values())) > 1


@pytest.mark.integration
def test_what_is_too_large_is_left_out_and_all_else_arrives(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """A record that the topic refuses is counted; those around it arrive, in order."""
    topic, path = new_topic(1, **{"max.message.bytes": "20000"}), tmp_path / "in.jsonl"
    lines = [b'{"id": "%d", "text": "%s"}' % (i, b"x" * (i * 50)) for i in range(260)]
    lines[100] = b'{"id": "100", "text": "%s"}' % (b"x" * 30_000)
    path.write_bytes(b"\n".join(lines) + b"\n")
    done = bridged(f"file:{path}", broker.address, topic, tmp_path / "c")
    assert (done.messages, done.refused, done.unsafe) == (260, 1, False)
    values = [value for _, _, _, value, _ in in_topic(broker.address, topic, tmp_path)[0]]
    order = list(dict.fromkeys(values))  # one producer in the place of another may repeat
    assert order == lines[:100] + lines[101:]


@pytest.mark.integration
def test_a_topic_goes_on_into_another_with_its_own_keys(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Keys, nulls, headers and times stay; what a bridge wrote before says the nearer source."""
    first, second = new_topic(2), new_topic(1)
    rows: dict[int, list[Row]] = {
        1: [
            (0, 1_700_000_000_000, b"k", b"\xff", [("a", b"1"), ("streamnb-source", b"x")]),
            (1, 1_700_000_000_001, b"k", None, []),
        ]
    }
    produce(broker.address, first, rows)
    source = f"kafka://{broker.address}/{first}"
    assert bridged(source, broker.address, second, tmp_path / "c").messages == 2
    ours = [("streamnb-source", first.encode()), ("streamnb-cursor", b"1:0")]
    found = in_topic(broker.address, second, tmp_path)[0]
    assert found[0] == (0, 1_700_000_000_000, b"k", b"\xff", [("a", b"1"), *ours])
    assert found[1][2:4] == (b"k", None)
    with pytest.raises(ConfigError, match="must not be the source's own topic"):
        bridged(source, broker.address, first, tmp_path / "other")
    n_before = len(in_topic(broker.address, first, tmp_path)[1])
    named = source.replace("127.0.0.1", "localhost")  # by another name of its broker
    with pytest.raises(ConfigError, match="must not be the source's own topic"):
        bridged(named, broker.address, first, tmp_path / "third")
    assert len(in_topic(broker.address, first, tmp_path)[1]) == n_before


@pytest.mark.integration
def test_a_cursor_is_of_one_topic_and_not_of_another_of_its_name(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """A topic made again lacks what was written to the old one: refused, though nothing is new."""
    topic, path, cursor = new_topic(1), tmp_path / "in.jsonl", tmp_path / "c"
    path.write_bytes(b'{"text": "one"}\n{"text": "two"}\n')
    assert bridged(f"file:{path}", broker.address, topic, cursor).messages == 2
    kept = cursor.read_bytes()
    said = json.loads(kept)
    assert said["topic_id"]
    assert said["cluster_id"]
    unnamed = {name: value for name, value in said.items() if not name.endswith("_id")}
    cursor.write_text(json.dumps(unnamed), encoding="utf-8")
    done = bridged(f"file:{path}", broker.address, topic, cursor)
    assert (done.messages, done.unsafe) == (0, False)
    assert json.loads(cursor.read_bytes()) == said  # one without ids is that of the topic it finds
    broker.delete_topic(topic)
    broker.create_topic(topic)
    with pytest.raises(SinkError, match=rf"(?s)id {said['topic_id']}.*; name another --cursor"):
        bridged(f"file:{path}", broker.address, topic, cursor)
    assert json.loads(cursor.read_bytes()) == said
    assert bridged(f"file:{path}", broker.address, topic, tmp_path / "other").messages == 2


def test_the_key_is_the_id_or_the_author_that_it_begins_with() -> None:
    """What an account does stays together, its deletion too; elsewhere each message is its own."""
    did, post = "did:plc:ann", "app.bsky.feed.post"
    frames: list[dict[str, Any]] = [
        {"did": did, "kind": "commit", "commit": {"collection": post, "rkey": "1"}},
        {"did": did, "kind": "account", "account": {"active": False, "status": "deleted"}},
    ]
    edit = {"wiki": "enwiki", "revision": {"new": 7}, "type": "edit"}
    for given, messages, keys in (
        ("jetstream", frames, [did.encode()] * 2),
        ("wikimedia", [edit, {"wiki": "enwiki"}], [b"enwiki/7", None]),
        ("mastodon", [{"event": "delete", "payload": "9"}], [b"9"]),
        ("x-v2", [{"data": {"id": "9"}}, {"data": {"delete": {"tweet": {"id": "9"}}}}], [b"9"] * 2),
    ):
        read = reading(RecordFormat(), MessageSettings.model_validate(given), by_author=True)
        values = [json.dumps(each).encode() for each in messages]
        n = len(values)
        times = np.full(n, -1).tolist()
        raw = from_parts(Partition("x", 0), [None] * n, values, range(n), times, n)
        assert [item.key for item in read(raw)] == keys


def test_a_cursor_file_is_one_streams_and_one_bridges(tmp_path: Path) -> None:
    """Another stream or topic, a damaged file, and a second bridge are refused; it stays."""
    path, place = tmp_path / "c", Partition("jetstream", 0)
    logs = {place: LogFacts(cursor="{}")}
    first = CursorFile(path, {"source": "jetstream"}, "posts")
    first.save({place: 7}, logs)
    with pytest.raises(SinkError, match=r"another `streamnb bridge` uses it; name another"):
        CursorFile(path, {"source": "jetstream"}, "posts")
    first.close()
    again = CursorFile(path, {"source": "jetstream"}, "posts")
    assert again.cursor.positions == {"jetstream/0": 7}
    assert again.cursor.logs == {"jetstream/0": LogFacts(cursor="{}")}
    again.close()
    kept = path.read_bytes()
    for stream, topic in (({"source": "stdin"}, "posts"), ({"source": "jetstream"}, "others")):
        with pytest.raises(SinkError, match=r"is the cursor of .* in topic 'posts', not of"):
            CursorFile(path, stream, topic)
    assert path.read_bytes() == kept
    for other in (kept[:20], b'{"a":%s%s}' % (b"[" * 9_000, b"]" * 9_000)):
        path.write_bytes(other)
        with pytest.raises(SinkError, match="is no cursor of a bridge"):
            CursorFile(path, {"source": "jetstream"}, "posts")
    path.unlink()
    path.mkdir()
    with pytest.raises(SinkError, match="cannot be read"):
        CursorFile(path, {"source": "jetstream"}, "posts")


def test_a_cursor_of_another_cluster_is_refused_where_topics_have_no_ids(tmp_path: Path) -> None:
    """Older brokers give topics none; the address says nothing, as one cluster has many."""
    path, stream = tmp_path / "c", {"source": "stdin"}
    first = CursorFile(path, stream, "posts")
    first.know_topic(TopicIds(None, "test"))
    first.save({Partition("stdin", 0): 7}, {})
    first.close()
    again = CursorFile(path, stream, "posts")
    again.know_topic(TopicIds(None, None))  # unknown for now
    again.know_topic(TopicIds("new", "test"))
    with pytest.raises(SinkError, match=r"in cluster test, .* in cluster prod.*another --cursor"):
        again.know_topic(TopicIds("new", "prod"))
    again.close()


class _Away:
    """A topic whose brokers are away: each attempt takes half a second of the clock."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    n_refused = 0

    def partitions(self, timeout_s: float) -> int:
        self._clock.advance(timeout_s)
        raise SinkError("no broker answers")

    def close(self) -> None:
        """Leave nothing open."""


class _Waiting(threading.Event):
    """A stop that nobody sets; a wait for it moves the clock."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.advance(timeout or 0.0)
        assert self._clock.now_s < 60.0, "it waits without end"
        return self.is_set()


def test_a_bridge_whose_time_is_up_waits_no_longer_for_brokers_that_are_away(
    tmp_path: Path,
) -> None:
    """It gives the brokers as long as after a stop, and says what is not acknowledged."""
    clock, place = ManualClock(), Partition("x", 0)
    cursor = CursorFile(tmp_path / "c", {"source": "stdin"}, "posts")
    source: Any = object()
    sink: Any = _Away(clock)
    writer = TopicWriter(source, sink, cursor, lambda _: iter(()), _Waiting(clock), 10.0, clock)
    writer.add(from_parts(place, [None], [b"{}"], range(1), [-1], 1))
    assert (writer.is_unsafe, writer.n_unsafe, writer.unsafe_bytes) == (True, 1, 2)
    assert 10.0 < clock.now_s < 20.0
    writer.flush()
    assert not writer.positions
    assert not (tmp_path / "c").exists()
    cursor.close()


def test_what_no_broker_took_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody listens nothing counts as written, whatever was read of the source."""
    path, cursor = tmp_path / "in.jsonl", tmp_path / "new" / "c"
    path.write_bytes(b'{"text": "one"}\n{"text": "two"}\n')
    limits = RecordLimits(seconds_max=0.01)
    monkeypatch.setattr(record, "_LAST_S", 0.1)
    monkeypatch.setattr(record, "KafkaSink", lambda *_, **__: _Away(ManualClock()))
    done = bridged(f"file:{path}", "127.0.0.1:1", "posts", cursor, limits)
    assert (done.messages, done.value_bytes, done.unsafe) == (0, 0, True)
    assert stat.S_IMODE(cursor.parent.stat().st_mode) == 0o700


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A file stands where the cursor's folder would."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    path = tmp_path / "file" / "c"
    with pytest.raises(SinkError, match=rf"{path}: cannot be opened"):
        CursorFile(path, {"source": "stdin"}, "posts")


def test_a_recording_is_replayed_not_bridged(tmp_path: Path) -> None:
    """It has partitions of its own, which `streamnb replay` keeps."""
    with pytest.raises(ConfigError, match="streamnb replay"):
        bridged("recording:r.zst", "127.0.0.1:1", "topic", tmp_path / "c")
