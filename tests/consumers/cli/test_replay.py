"""Replays of recorded streams into a real topic: what arrives, in which order and at which pace."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from consumers.cli.replay import Pace, Replayed, reading, replay
from consumers.config.addresses import FileSettings, GeneratorSettings, KafkaSettings
from consumers.config.message import FieldLabels, MessageSettings
from consumers.config.model import FieldKind
from consumers.decode.decoder import Decoder
from consumers.decode.labels import FieldLabeller
from consumers.decode.rows import SENTIMENT140_COLUMNS, RecordFormat
from consumers.errors import ConfigError
from consumers.features import columns_of
from consumers.messages import WEIGHT, Partition, RawColumns
from consumers.sources.generator import TweetMaker
from consumers.sources.records import from_parts, raw_columns, split_csv
from streamnb.testing import ManualClock
from tests.broker.broker import Broker
from tests.consumers.kafka.topics import Reader
from tests.endtoend.daemon_process import command

NewTopic = Callable[..., str]

LINES = [
    b'{"id": 1, "created_at": "2009-04-06T22:19:45Z", "text": "first"}',
    b'{"id": "two", "created_at": "2009-04-06T22:19:50Z", "text": "second"}',
    b"not JSON at all",
    b'{"text": "no id, no time"}',
    b'{"id": 5, "created_at": "2009-04-06T22:20:45Z", "text": "a minute after the first"}',
]
ROWS = (
    '"4","11","Mon Apr 06 22:19:45 PDT 2009","NO_QUERY","ann","so ""good"" caf\xe9"\n'
    '"0","12","Mon Apr 06 22:19:55 PDT 2009","NO_QUERY","bob","so bad, really"\n'
    '"0","13","Mon Apr 06 22:19:55 PDT 2009","NO_QUERY","bob",""\n'
)


@pytest.mark.integration
def test_json_lines_go_as_they_are(broker: Broker, new_topic: NewTopic, tmp_path: Path) -> None:
    """Each line arrives byte for byte, in order, keyed by its id; broken ones too."""
    path = tmp_path / "stream.jsonl"
    path.write_bytes(b"\n".join(LINES))
    topic, clock = new_topic(), ManualClock(100.0)
    done = replay(path, (broker.address,), topic, 10.0, show=False, clock=clock, wait=clock.wait)
    assert done == Replayed(5, 1, 2, sum(map(len, LINES)))
    assert clock.waits_s == pytest.approx([0.5, 5.5])
    with Reader(broker.address, topic) as reader:
        reader.until(lambda: reader.n_values >= 5)
        assert reader.values[0] == LINES
        keys = [each.key(i) for each in reader.batches for i in range(len(each))]
        assert keys == [b"1", b"two", None, None, b"5"]
        assert min(each.times_ms.min() for each in reader.batches) > 1_700_000_000_000


@pytest.mark.integration
def test_rows_of_sentiment140_become_objects(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Rows as Sentiment140 was published become JSON that the default configuration reads."""
    path = tmp_path / "tweets.csv"
    path.write_text(ROWS, encoding="latin-1")
    topic, clock = new_topic(), ManualClock(100.0)
    done = replay(path, (broker.address,), topic, show=False, clock=clock, wait=clock.wait)
    assert (done.sent, done.unreadable, done.without_time) == (3, 0, 0)
    assert clock.waits_s == pytest.approx([10.0])
    with Reader(broker.address, topic) as reader:
        reader.until(lambda: reader.n_values >= 3)
        first, second, third = (msgspec.json.decode(value or b"") for value in reader.values[0])
    assert first == {
        "id": "11",
        "created_at": "Mon Apr 06 22:19:45 PDT 2009",
        "user": "ann",
        "text": 'so "good" café',
        "label": "4",
    }
    assert (second["label"], second["text"]) == ("0", "so bad, really")
    assert "text" not in third  # a cell that is empty is missing, here as in the daemon


def test_no_column_of_csv_is_lost() -> None:
    """Each has a name of its own, and the kind as which a model reads it from a file."""
    columns = ("nr", "When", "income", "amount", "paid", "weight", "odd", "text")
    cells = b'7,2020-01-01,high,9000,0,2.5,many,"so, ""good"""\n8,,,,,,,\n'
    message = MessageSettings(id="nr", time="When", weight="weight")
    kinds: dict[str, FieldKind] = {"income": "categories", "amount": "numbers", "paid": "flags"}
    kinds |= {"odd": "numbers", WEIGHT: "numbers", "text": "words"}
    records = split_csv(cells, last=True)
    raw = raw_columns(Partition("file:x", 0), cells, records, records.starts, len(cells))
    form = RecordFormat("csv", columns, "utf-8")
    first, second = reading(form, message, kinds=kinds)(raw)
    assert (first.key, first.time_ms, first.readable) == (b"7", 1_577_836_800_000, True)
    assert msgspec.json.decode(first.value or b"") == {
        "nr": "7", "When": "2020-01-01", "income": "high", "amount": 9000.0, "paid": False,
        "weight": 2.5, "odd": "many", "text": 'so, "good"',
    }  # fmt: skip
    assert (second.key, second.time_ms, second.value) == (b"8", None, b'{"nr":"8"}')
    # What is no number is what it was, so that the daemon names it in its reject.
    labeller = FieldLabeller(FieldLabels(), ("negative", "positive"))
    values = [first.value or b"", b'{"nr":"9","text":"a","amount":9.0,"paid":true,"weight":1.0}']
    decoder = Decoder(message, labeller, reads=kinds)
    got = decoder.decode(from_parts(Partition("t", 0), [None] * 2, values, [0, 1], [0, 0], 2))
    assert ["'odd'" in each.detail for each in got.rejects] == [True]
    assert len(got.at) == 1


def csv_batch(columns: tuple[str, ...], cells: bytes) -> tuple[RecordFormat, RawColumns]:
    """Return the format and the records of a CSV file with these columns."""
    records = split_csv(cells, last=True)
    raw = raw_columns(Partition("file:x", 0), cells, records, records.starts, len(cells))
    return RecordFormat("csv", columns, "utf-8"), raw


def test_a_dot_in_a_column_leads_where_the_daemon_reads() -> None:
    """What a path finds in the file by the column's name, it finds in the topic too."""
    columns = ("post.id", "post.text", "post.by.name", "a.b", "x", "x.1", "label", ".", "c..d")
    form, raw = csv_batch(columns, b"7,so good,ann,3.5,1,2,4,5,6\n8,,,,,,,,\n")
    message = MessageSettings(id="post.id", text="post.text", user="post.by.name")
    kinds: dict[str, FieldKind] = {"text": "words", "a.b": "numbers"}
    first, second = reading(form, message, kinds=kinds)(raw)
    assert first.key == b"7"
    assert msgspec.json.decode(first.value or b"") == {
        "label": "4", "post": {"id": "7", "text": "so good", "by": {"name": "ann"}},
        "a": {"b": 3.5}, "x": "1", "x.1": "2", ".": "5", "c..d": "6",
    }  # fmt: skip
    assert second.value == b'{"post":{"id":"8"}}'
    labeller = FieldLabeller(FieldLabels(), ("negative", "positive"))
    of_topic = from_parts(Partition("t", 0), [None], [first.value or b""], [0], [0], 1)
    for got in (
        Decoder(message, labeller, form, reads=kinds).decode(raw.head(1)),
        Decoder(message, labeller, reads=kinds).decode(of_topic),
    ):
        envelope = got.envelope(0)
        assert (envelope.id, envelope.text, envelope.user) == ("7", "so good", "ann")
        assert columns_of(got, np.arange(1), ["a.b"])["a.b"] == [3.5]


def test_columns_that_cannot_both_be_fields_are_refused() -> None:
    """`x` is no object where it has a value, so nothing could be read at `x.1`."""
    form, _ = csv_batch(("x", "x.1", "text"), b"1,2,a\n")
    with pytest.raises(ConfigError, match=r"the columns 'x' and 'x\.1' cannot both go into JSON"):
        reading(form, MessageSettings(), kinds={"x.1": "numbers"})


def test_a_dot_leads_on_where_the_file_has_no_such_column() -> None:
    """A part of a message that is no column of the file stands in no other column's way."""
    form, raw = csv_batch(("user.id", "user.name", "label.value", "body"), b"7,ann,4,so good\n")
    message = MessageSettings(id="user.id", user="user.name", text="body")
    labels = FieldLabels(field="label.value")
    (item,) = reading(form, message, labels=labels)(raw)
    assert item.key == b"7"
    assert msgspec.json.decode(item.value or b"") == {
        "user": {"id": "7", "name": "ann"}, "label": {"value": "4"}, "body": "so good",
    }  # fmt: skip
    labeller = FieldLabeller(labels, ("negative", "positive"))
    of_topic = from_parts(Partition("t", 0), [None], [item.value or b""], [0], [0], 1)
    got = Decoder(message, labeller).decode(of_topic)
    envelope = got.envelope(0)
    assert (envelope.id, envelope.user, envelope.label) == ("7", "ann", "positive")


@pytest.mark.parametrize(
    "settings",
    [
        {"reply": "x.1", "replies": "drop"},
        {"retweet": "x.1", "retweets": "drop"},
        {"retweet": "x", "retweets": "fold", "text": "1"},
        {"deleted": "x.1"},
        {"fields": ["text", "x.1"]},
        {"keep": {"x.1": ["2"]}},
        {"ignore": {"x.1": "any"}},
        {"text": {"first_of": ["x.1", "text"]}},
        {"id": ["id", {"first_of": ["id", "x.1"]}]},
        {"lang": "x.1"},
    ],
    ids="-".join,
)
def test_whatever_setting_reads_a_column_that_would_be_lost_it_is_refused(
    settings: dict[str, Any],
) -> None:
    """All that the daemon reads counts, and of several paths each."""
    form, _ = csv_batch(("id", "x", "x.1", "text"), b"7,1,2,a\n")
    with pytest.raises(ConfigError, match=r"the columns 'x' and 'x\.1' cannot both go into JSON"):
        reading(form, MessageSettings.model_validate(settings))


def test_a_label_that_would_be_lost_is_refused() -> None:
    """Labels are settings of their own; a column that is a field by another name is named."""
    labels = FieldLabels(field="label.value")
    form, _ = csv_batch(("label", "label.value", "text"), b"1,4,a\n")
    with pytest.raises(ConfigError, match=r"columns 'label' and 'label\.value' cannot both"):
        reading(form, MessageSettings(), labels=labels)
    form, _ = csv_batch(("polarity", "label.value", "text"), b"1,4,a\n")
    with pytest.raises(ConfigError, match=r"'polarity', as 'label', and 'label\.value' cannot"):
        reading(form, MessageSettings(), labels=labels)


@pytest.mark.parametrize("words", [("replay", "in.csv"), ("bridge", "file:in.csv")])
def test_both_commands_know_where_labels_stand(words: tuple[str, ...], tmp_path: Path) -> None:
    """They refuse the file before anything is written."""
    (tmp_path / "in.csv").write_text("label,label.value,text\n1,4,a\n", encoding="utf-8")
    (tmp_path / "c.yaml").write_text("labels: {field: label.value}\n", encoding="utf-8")
    done = command(*words, "--to", "kafka://127.0.0.1:1/t", "-c", "c.yaml", folder=tmp_path)
    assert (done.returncode, b"cannot both go into JSON" in done.stderr) == (78, True)


@pytest.mark.parametrize(
    "settings", [{"reply": "x.1"}, {"retweet": "x.1"}, {"keep": {"x.1": None}}, {"fields": ["x"]}]
)
def test_columns_that_nobody_reads_are_no_reason_to_refuse(settings: dict[str, Any]) -> None:
    """What a path names that is not asked stays in the message under the column's name."""
    form, raw = csv_batch(("x", "x.1", "text"), b"1,2,a\n")
    (item,) = reading(form, MessageSettings.model_validate(settings))(raw)
    assert msgspec.json.decode(item.value or b"") == {"x": "1", "x.1": "2", "text": "a"}


def test_a_deletion_in_csv_has_the_key_of_its_message() -> None:
    """So it goes where the message went, and not before it."""
    form, raw = csv_batch(("id", "gone", "text"), b"7,,a\n,7,\n")
    first, second = reading(form, MessageSettings(deleted="gone"))(raw)
    assert (first.key, second.key) == (b"7", b"7")


def test_a_heading_that_ends_with_a_dot_goes_where_its_path_leads() -> None:
    """`No.` is a path of two names in JSON, of which the second is empty."""
    form, raw = csv_batch(("No.", "text"), b"7,a\n")
    message = MessageSettings(id="No.")
    (item,) = reading(form, message)(raw)
    of_topic = from_parts(Partition("t", 0), [None], [item.value or b""], [0], [0], 1)
    labeller = FieldLabeller(FieldLabels(), ("negative", "positive"))
    assert Decoder(message, labeller).decode(of_topic).envelope(0).id == "7"


def test_columns_of_sentiment140_that_settings_read_go_along() -> None:
    """They would be missing in the topic, and are there in the file."""
    form, raw = csv_batch(SENTIMENT140_COLUMNS, b"4,7,Mon Apr 06 22:19:45 PDT 2009,tea,ann,a\n")
    message = MessageSettings(fields=("query",), time="date")
    (item,) = reading(form, message, labels=FieldLabels(field="polarity"))(raw)
    assert msgspec.json.decode(item.value or b"") == {
        "id": "7", "created_at": "Mon Apr 06 22:19:45 PDT 2009", "user": "ann", "text": "a",
        "label": "4", "polarity": "4", "date": "Mon Apr 06 22:19:45 PDT 2009", "query": "tea",
    }  # fmt: skip


@pytest.mark.deep
@pytest.mark.integration
def test_what_is_too_large_is_left_out_and_all_else_arrives(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Refused by the topic or by the client, a record is counted; the others stand there once, in
    their order, and what follows in later batches too.
    """
    topic, path = new_topic(1, **{"max.message.bytes": "20000"}), tmp_path / "stream.jsonl"
    lines = [b'{"id": %d, "text": "%s"}' % (i, b"x" * (i % 50 * 20)) for i in range(2_000)]
    large = {0: 30_000, 100: 30_000, 101: 70_000, 1_500: 30_000, 1_999: 30_000}
    for i, n in large.items():
        lines[i] = b'{"id": %d, "text": "%s"}' % (i, b"x" * n)
    path.write_bytes(b"\n".join(lines) + b"\n")
    done = replay(
        path, (broker.address,), topic, "max", show=False,
        kafka=KafkaSettings(message_max_bytes=60_000), file=FileSettings(batch_bytes=100_000),
    )  # fmt: skip
    assert (done.sent, done.refused, done.unreadable) == (2_000, len(large), 0)
    with Reader(broker.address, topic) as reader:
        reader.until(lambda: reader.n_values >= 2_000 - len(large))
        assert reader.values[0] == [each for i, each in enumerate(lines) if i not in large]


@pytest.mark.integration
def test_without_keys_partitions_take_turns(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """At full speed nobody waits, and without keys the partitions are filled in turn."""
    path = tmp_path / "stream.jsonl"
    lines = [b'{"id": %d, "text": "t"}' % i for i in range(3_000)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    topic, clock = new_topic(3), ManualClock(100.0)
    replay(
        path, (broker.address,), topic, "max", keyed=False, show=False, clock=clock, wait=clock.wait
    )
    assert clock.waits_s == []
    with Reader(broker.address, topic) as reader:
        reader.until(lambda: reader.n_values >= 3_000)
        assert reader.values == {number: lines[number::3] for number in range(3)}


@pytest.mark.integration
def test_the_made_up_stream_plays_as_far_as_asked(broker: Broker, new_topic: NewTopic) -> None:
    """The generator's messages arrive as it makes them, keyed, and no more than were asked for."""
    settings = GeneratorSettings(rate_per_s=0.0)
    topic = new_topic()
    done = replay(settings, (broker.address,), topic, max_messages=750, show=False)
    made = TweetMaker(settings).make(0, 750)
    assert done == Replayed(750, 0, 0, sum(map(len, made)))
    with Reader(broker.address, topic) as reader:
        reader.until(lambda: reader.n_values >= 750)
        assert reader.values[0] == made


DAY_MS = 86_400_000
NOW_MS = 1_735_689_600_000
# The times of records, in seconds from a day of 2025, and how long is waited.
LEAPS: dict[str, tuple[list[float], list[float]]] = {
    "a first one without its time": ([-NOW_MS / 1000, 0, 5, 9], [5, 4]),
    "one of the year 9999": ([0, 2, 251_000_000_000, 5, 6], [2, 3, 1]),
    "one of long ago": ([0, 2, -90_000, 5], [2, 3]),
    "days without a record": ([0, 2, 90_000, 90_003, 90_004], [2, 3, 1]),
    "just a day": ([0, 86_400, 86_401], [86_400, 1]),
    "far ones that differ": ([0, 251_000_000_000, 90_000, 2], [2]),
}


@pytest.mark.parametrize("name", LEAPS)
@pytest.mark.parametrize("speed", [1.0, 20.0])
def test_no_wait_is_longer_than_a_day(name: str, speed: float) -> None:
    """A leap goes at once and is told once; the pace stays that of the records that go on."""
    times_s, waits_s = LEAPS[name]
    clock = ManualClock(100.0)
    pace = Pace(speed, clock, clock.wait)
    with capture_logs() as told:
        for time_s in times_s:
            pace.keep(NOW_MS + int(time_s * speed * 1000))
    assert clock.waits_s == pytest.approx(waits_s)
    assert [each["event"] for each in told] == ["replay_leap"] * (name != "just a day")


@pytest.mark.deep
@pytest.mark.integration
def test_a_far_time_is_told_beside_the_output(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """A record of the year 9999 holds nothing up; the log goes to standard error."""
    times = ("2026-01-01T00:00:00Z", "9999-12-31T00:00:00Z", "2026-01-01T00:00:00Z")
    lines = [json.dumps({"id": i, "created_at": time}) for i, time in enumerate(times)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines), encoding="utf-8")
    to = f"kafka://{broker.address}/{new_topic()}"
    done = command("replay", "in.jsonl", "--to", to, "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sent"] == 3
    assert json.loads(done.stderr)["event"] == "replay_leap"


@given(
    times_ms=st.lists(st.none() | st.integers(0, DAY_MS // 10), max_size=30),
    speed=st.floats(0.1, 1_000),
)
def test_the_pace_is_the_recordings(times_ms: list[int | None], speed: float) -> None:
    """No record goes before it is due, and each wait ends exactly when one is."""
    clock = ManualClock(100.0)
    pace = Pace(speed, clock, clock.wait)
    known = [time_ms for time_ms in times_ms if time_ms is not None]
    latest_s = 0.0
    for time_ms in times_ms:
        pace.keep(time_ms)
        if time_ms is not None:
            latest_s = max(latest_s, (time_ms - known[0]) / 1000 / speed)
        assert clock.now_s - 100.0 == pytest.approx(latest_s, abs=1e-5)


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), "fast"])
def test_no_other_speed_is_taken(speed: object) -> None:
    """A speed that is no pace is refused with what is allowed."""
    with pytest.raises(ConfigError, match="recorded, max or a number above 0"):
        Pace(speed, ManualClock(100.0), ManualClock(100.0).wait)  # type: ignore[arg-type]
