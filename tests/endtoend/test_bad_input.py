"""Messages that cannot be used: all are counted and kept, the good ones among them learned."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from streamnb.storage import read
from tests.broker.broker import Broker
from tests.consumers.kafka.topics import Reader, fill
from tests.endtoend.daemon_process import Daemon, command, write_config
from tests.endtoend.expected_counts import counts_at, counts_of, examples, messages

NewTopic = Callable[..., str]

# 10 MB, as a line of a file and as a message of a topic.
LARGE = b'{"text":"' + b"large " * 1_750_000 + b'"}'
BAD: list[tuple[str, bytes]] = [
    ("not_utf8", b'{"text":"caf\xe9","label":4}'),
    ("not_utf8", b"\xff\xfe\xfd"),
    ("not_json", b"good morning"),
    ("not_json", b'{"text":"cut in the mid'),
    ("not_json", b'{"text":"one","label":4}{"text":"two","label":4}'),
    ("not_json", b'{"text":"deep","label":4,"extra":' + b"[" * 200_000 + b"]" * 200_000 + b"}"),
    ("not_an_object", b"[1,2,3]"),
    ("not_an_object", b"null"),
    ("not_an_object", b'"text"'),
    ("missing_text", b'{"label":4}'),
    ("missing_text", b'{"text":null,"label":4}'),
    ("wrong_type", b'{"text":["a","list"],"label":4}'),
    ("wrong_type", b'{"text":"right","id":{"a":1},"label":4}'),
    ("wrong_type", b'{"text":"right","id":1e400,"label":4}'),
    ("wrong_type", b'{"text":"right","label":[4]}'),
    ("wrong_type", b'{"text":"right","operation":"explode"}'),
    ("unknown_label", b'{"text":"who knows","label":2}'),
    ("unknown_label", b'{"text":"who knows","label":"4 "}'),
    ("unknown_label", b'{"text":"huge","label":1' + b"0" * 300 + b"}"),
    ("unknown_label", b'{"text":"huge","label":1e300}'),
    ("null_bytes", b'{"text":"a\\u0000b","label":4}'),
    ("null_bytes", b'{"text":"a\x00b","label":4}'),
    ("null_bytes", b"\x00\x00\x00"),
    ("too_large", LARGE),
]
# Odd, and yet they can be learned: half an emoji becomes U+FFFD, a time out of reach the source's.
ODD = [
    (b'{"text":"half \\ud83d emoji","label":"positive"}', ("half \ufffd emoji", "positive")),
    (b'{"text":"late","created_at":1e300,"label":0}', ("late", "negative")),
    (b'{"text":"","user":12,"lang":["en"],"label":4}', ("", "positive")),
    (b'{"text":"nested","x":' + b"[" * 50 + b"]" * 50 + b',"label":4}', ("nested", "positive")),
]


def stirred(good: Iterable[bytes], bad: Iterable[bytes | None]) -> list[bytes | None]:
    """Return good messages with the bad ones strewn among them, one good one after each."""
    waiting: list[bytes | None] = []
    rest = list(good)
    for each in bad:
        waiting += [rest.pop(), each]
    return [*waiting, *rest]


def check(
    lines: list[dict[str, Any]], topic: str, sent: dict[int, tuple[str, bytes | None]]
) -> None:
    """Compare rejects with what was sent, by offset; repeats are allowed, gaps are not."""
    assert {line["offset"] for line in lines} == set(sent)
    for line in lines:
        reason, value = sent[line["offset"]]
        assert (line["reason"], line["topic"], line["partition"]) == (reason, topic, 0)
        assert line["detail"]
        raw = line["value_base64"]
        assert (None if raw is None else base64.b64decode(raw)) == value


def reasons(daemon: Daemon) -> dict[str, int]:
    """Return the rejects that the daemon's metrics count, by reason."""
    pairs = [
        line.removeprefix('streamnb_rejects_total{reason="').split('"} ')
        for line in daemon.get("/metrics")[1].splitlines()
        if line.startswith("streamnb_rejects_total{")
    ]
    return {reason: int(float(count)) for reason, count in pairs if float(count)}


@pytest.mark.deep
@pytest.mark.integration
def test_bad_messages_of_a_topic(broker: Broker, new_topic: NewTopic, tmp_path: Path) -> None:
    """Every bad message of a topic is counted by its reason and kept with its bytes in a topic.

    The good ones among them are learned exactly, also when the daemon is killed behind them.
    """
    topic, rejects = new_topic(), new_topic()
    nulls: list[tuple[str, bytes | None]] = [("not_json", b"")]
    bad = [*BAD, *nulls]
    good = [*messages(examples(100)), *(value for value, _ in ODD)]
    sent = stirred(good, [value for _, value in bad])
    fill(broker.address, topic, sent)
    by_value = {value: reason for reason, value in bad}
    by_offset = {i: (by_value[value], value) for i, value in enumerate(sent) if value in by_value}
    sections: dict[str, Any] = {
        "source": f"kafka://{broker.address}/{topic}",
        "checkpoint": {"folder": "state", "interval_s": 0.2},
        "rejects": {"to": f"kafka:{rejects}"},
    }
    path = tmp_path / "config.yaml"
    kafka = {"group_id": f"{topic}-1", "message_max_bytes": 16 << 20}

    def is_saved() -> bool:
        return read(tmp_path / "state" / "model.nb").positions == {f"{topic}/0": len(sent)}

    with Daemon(write_config(path, kafka=kafka, **sections)) as daemon:
        daemon.until_metric("streamnb_messages_total", len(sent))
        assert reasons(daemon) == Counter(reason for reason, _ in bad)
        daemon.until(is_saved, "a checkpoint behind them")
        # The stream goes on behind them.
        fill(broker.address, topic, messages(examples(50, first=100)))
        daemon.until_metric("streamnb_examples_learned_total", len(good) + 50)
        daemon.kill()
    kafka["group_id"] = f"{topic}-2"  # a new group need not wait for the dead member's session
    with Daemon(write_config(path, kafka=kafka, **sections), "--until-end") as daemon:
        assert daemon.wait() == 0
    learned = [*examples(150), *(example for _, example in ODD)]
    assert counts_at(tmp_path / "state") == counts_of(learned)
    with Reader(broker.address, rejects, message_max_bytes=16 << 20) as reader:
        reader.until(lambda: reader.n_values >= len(bad) and reader.source.at_end())
        check([json.loads(value or b"") for value in reader.values[0]], topic, by_offset)


def test_bad_messages_of_a_file(tmp_path: Path) -> None:
    """Every bad line of a file is counted and kept in a file; the good ones are learned."""
    good = [*messages(examples(100)), *(value for value, _ in ODD)]
    sent = [value or b"" for value in stirred(good, [value for _, value in BAD])]
    (tmp_path / "tweets.jsonl").write_bytes(b"\n".join(sent) + b"\n")
    by_value = {value: reason for reason, value in BAD}
    by_offset: dict[int, tuple[str, bytes | None]] = {}
    offset = 0
    for value in sent:
        if value in by_value:
            by_offset[offset] = (by_value[value], value)
        offset += len(value) + 1
    config = write_config(
        tmp_path / "config.yaml",
        source="file:tweets.jsonl",
        checkpoint={"folder": "state", "interval_s": 0.1},
        rejects={"to": "file:rejects/bad.jsonl"},
    )
    with Daemon(config) as daemon:
        daemon.until_metric("streamnb_messages_total", len(sent))
        daemon.kill()
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0
    with Daemon(write_config(tmp_path / "anew.yaml", source="file:tweets.jsonl",
                             checkpoint={"folder": "anew"}), "--until-end") as daemon:  # fmt: skip
        assert daemon.wait() == 0
        assert daemon.summary["rejected"] == Counter(reason for reason, _ in BAD)
        assert daemon.summary["messages"] == len(sent)
    assert counts_at(tmp_path / "state") == counts_of([*examples(100), *(pair for _, pair in ODD)])
    lines = (tmp_path / "rejects" / "bad.jsonl").read_bytes().splitlines()
    check([json.loads(line) for line in lines], "file:tweets.jsonl", by_offset)


@pytest.mark.deep
def test_a_time_that_no_calendar_has_ends_no_daemon(tmp_path: Path) -> None:
    """With the page on, the time of a deletion, an example or a question may be out of all reach.

    What stands behind it is learned, the page shows it by the source's time, and a start from the
    checkpoint behind it goes on.
    """
    far = "Sat Jul 9999999999 01:09:05 +0000 2016"
    odd: list[dict[str, Any]] = [
        {"id": 1, "operation": "delete", "created_at": far},
        {"id": 2, "text": "faraway morning", "label": 4, "created_at": far},
        {"id": 3, "text": "faraway evening", "created_at": far},
    ]
    stream = tmp_path / "tweets.jsonl"
    lines = [*(json.dumps(each).encode() for each in odd), *messages(examples(50))]
    stream.write_bytes(b"\n".join(lines) + b"\n")
    config = write_config(
        tmp_path / "config.yaml", source="file:tweets.jsonl", checkpoint={"folder": "state"}
    )
    with Daemon(config) as daemon:
        daemon.until_metric("streamnb_examples_learned_total", 51)
        daemon.until_page("/v1/search?q=faraway", 200, '"id":"2"')
        found = daemon.until_page("/v1/search?q=faraway", 200, '"id":"3"')
        assert {each["id"] for each in found["messages"]} == {"2", "3"}
        assert daemon.stop() == 0, daemon.lines[-5:]
        assert daemon.summary["messages"] == len(lines)
        assert (daemon.summary["learned"], daemon.summary["rejected"]) == (51, {})
    with stream.open("ab") as more:
        more.write(b"\n".join([lines[0], lines[1], *messages(examples(20, first=50)), b""]))
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0, daemon.lines[-5:]
        assert daemon.summary["messages"] == 22
    learned = [*examples(70), *[("faraway morning", "positive")] * 2]
    assert counts_at(tmp_path / "state") == counts_of(learned)


@pytest.mark.integration
def test_what_is_more_than_may_be_written_is_shortened(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """A message of 5 kB with `kafka.message_max_bytes` below that: nothing waits for ever."""
    topic, rejects, predictions = new_topic(), new_topic(), new_topic()
    values = [json.dumps({"id": "long", "text": "words " * 900}).encode(), b"x" * 5_000]
    fill(broker.address, topic, [*values, *messages(examples(10))])
    config = write_config(
        tmp_path / "config.yaml",
        source=f"kafka://{broker.address}/{topic}",
        kafka={"group_id": f"group-of-{topic}", "message_max_bytes": 2_000},
        checkpoint={"folder": "state"},
        rejects={"to": f"kafka:{rejects}"},
        predictions={"to": f"kafka:{predictions}"},
    )
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0, daemon.lines
        assert daemon.count("record_shortened") == 2
    with Reader(broker.address, rejects) as reader:
        reader.until(lambda: reader.n_values == 1)
        line = json.loads(reader.values[0][0] or b"")
        assert base64.b64decode(line["value_base64"]) == b"x" * 250
    with Reader(broker.address, predictions) as reader:
        reader.until(lambda: reader.n_values == 1)
        line = json.loads(reader.values[0][0] or b"")
        assert (line["id"], "text" in line) == ("long", False)


@pytest.mark.deep
@pytest.mark.integration
def test_what_the_outputs_topics_refuse_is_shortened(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """A record above its topic's limit goes out without what makes it long; nothing waits."""
    topic = new_topic()
    small = {"max_message_bytes": "150000"}
    rejects, predictions = new_topic(**small), new_topic(**small)
    long_text = "many words " * 20_000
    fill(
        broker.address,
        topic,
        [
            json.dumps({"id": "i" * 200_000, "text": long_text}).encode(),
            b"x" * 200_000,
            *messages(examples(10)),
            b'{"id":"last","text":"short"}',
        ],
    )
    config = write_config(
        tmp_path / "config.yaml",
        source=f"kafka://{broker.address}/{topic}",
        kafka={"group_id": f"group-of-{topic}"},
        checkpoint={"folder": "state"},
        rejects={"to": f"kafka:{rejects}"},
        predictions={"to": f"kafka:{predictions}"},
    )
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0, daemon.lines
        assert daemon.summary["messages"] == 13
        assert daemon.count("record_shortened") == 2
    with Reader(broker.address, rejects) as reader:
        reader.until(lambda: reader.n_values == 1)
        line = json.loads(reader.values[0][0] or b"")
        assert base64.b64decode(line["value_base64"]) == b"x" * 16_384
        assert (line["offset"], line["reason"]) == (1, "not_json")
        assert "of 200000 bytes" in line["detail"]
    with Reader(broker.address, predictions) as reader:
        reader.until(lambda: reader.n_values == 2)
        lines = [json.loads(value or b"") for value in reader.values[0]]
        assert [line["id"] for line in lines] == ["last", "i" * 256] or [
            line["id"] for line in lines
        ] == ["i" * 256, "last"]


@pytest.mark.parametrize("kind", ["field", "emoticons"])
def test_every_message_has_one_outcome(tmp_path: Path, kind: str) -> None:
    """Outcomes add up to the messages: one that is deleted or wrong is not ambiguous too."""
    values = [
        b'{"text":"both :) :("}',
        b'{"text":"both :) :(","id":[1]}',
        b'{"text":"both :) :(","operation":"delete"}',
        b'{"text":"one :)","operation":"delete"}',
        b'{"text":"neither","operation":"update"}',
        b'{"operation":"delete"}',
    ]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(values))
    config = write_config(
        tmp_path / "config.yaml",
        source="file:in.jsonl",
        labels={"kind": kind},
        checkpoint={"folder": "state"},
    )
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0, daemon.lines
        summary = daemon.summary
    assert (summary["messages"], summary["learned"]) == (6, 0)
    assert summary["ambiguous"] == (kind == "emoticons")
    assert summary["rejected"] == {"wrong_type": 1}
    assert summary["judged"] == 2
    assert summary["deletions"] == 3


@pytest.mark.parametrize("rejects_to", ["none", "file:rejects.jsonl"])
def test_a_run_says_how_to_see_what_is_wrong_with_rejects(tmp_path: Path, rejects_to: str) -> None:
    """Unless they are kept: counts by reason alone do not say what to mend."""
    (tmp_path / "in.jsonl").write_bytes(b'{"text":"a"}\nbroken\n')
    write_config(tmp_path / "config.yaml", source="file:in.jsonl", rejects={"to": rejects_to})
    done = command("run", "--until-end", folder=tmp_path)
    lines = done.stdout.decode().splitlines()
    row = next(line for line in lines if line.startswith("rejected"))
    hint = "; rejects.to: file:PATH keeps each, with what is wrong with it"
    assert row == "rejected    1, not_json 1" + (hint if rejects_to == "none" else "")
