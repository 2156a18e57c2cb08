"""Labels that come after their messages, in a log of their own: from a file, and from a topic."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from consumers.cli.output import print_summary
from consumers.config.settings import Settings
from consumers.daemon import run
from consumers.errors import ConfigError
from consumers.monitoring.status import Summary
from streamnb.storage import read
from tests.broker.broker import Broker
from tests.consumers.cli.test_commands import Command, command
from tests.consumers.kafka.topics import fill
from tests.endtoend.correction_clients import ask
from tests.endtoend.daemon_process import Daemon, write_config
from tests.endtoend.expected_counts import counts_at, counts_of, examples
from tests.endtoend.test_erasure import Stream, holders, until_gone
from tests.endtoend.test_restart_laws import NoView

__all__ = ["command"]
N, PARTITIONS = 3_000, 2
WINDOW_S = 600
EXAMPLES = examples(N)


def said(number: int, time_s: int, **more: str) -> bytes:
    """Return a message or a label as JSON; number `i` comes at second `i`."""
    return json.dumps({"id": f"m{number}", "created_at": 1_000_000_000 + time_s, **more}).encode()


def message(number: int) -> bytes:
    """Return a message without a label."""
    return said(number, number, text=EXAMPLES[number][0])


def label(number: int, after_s: int = 60) -> bytes:
    """Return the label of a message."""
    return said(number, number + after_s, label=EXAMPLES[number][1])


def late(i: int) -> int:
    """Return how many seconds after its message a label comes: of some too many."""
    return WINDOW_S + 1 if i % 7 == 0 else i % WINDOW_S


def replay(folder: Path, messages: list[bytes], labels: list[bytes], **sections: Any) -> Summary:
    """Run the daemon on two files up to their ends."""
    for name, lines in (("messages", messages), ("labels", labels)):
        (folder / f"{name}.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    own = {"source": f"file:{folder / 'labels.jsonl'}", "id": "id", "window_s": WINDOW_S}
    given: dict[str, Any] = {
        "source": f"file:{folder / 'messages.jsonl'}",
        "late_labels": own | sections.pop("late_labels", {}),
        "http": {"enabled": False},
        "rejects": {"to": f"file:{folder / 'rejects.jsonl'}"},
        "predictions": {"to": f"file:{folder / 'out.jsonl'}"},
        "checkpoint": {"folder": folder / "state"},
    }
    return run(Settings.model_validate(given | sections), NoView(), until_end=True)


def test_two_files_are_joined(tmp_path: Path) -> None:
    """Messages are judged at first sight and learned by their label; others are told."""
    labels = [label(i, late(i)) for i in range(N)]
    labels += [label(1), said(10**6, 5, label="positive"), said(3, -10_000, label="positive")]
    labels += [b"{broken", said(8, 9, label="unheard of")]
    summary = replay(tmp_path, [message(i) for i in range(N)], labels)
    learned = [example for i, example in enumerate(EXAMPLES) if i % 7]
    assert counts_at(tmp_path / "state") == counts_of(learned)
    assert summary.learned == len(learned)
    out = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert [each["id"] for each in out] == [f"m{i}" for i in range(N)]
    rejects = [json.loads(line) for line in (tmp_path / "rejects.jsonl").read_bytes().splitlines()]
    assert {each["reason"] for each in rejects} == {"not_json", "unknown_label", "unmatched_label"}
    # Without an output for rejects nothing else of a run tells of labels that could not be used.
    told = {"learned": len(learned), "unusable": 2}
    assert {name: summary.late_labels.get(name) for name in told} == told
    console = Console(file=(printed := io.StringIO()), width=200)
    print_summary(console, summary, "file:rejects.jsonl")
    row = next(x for x in printed.getvalue().splitlines() if x.startswith("late labels"))
    assert f"learned {len(learned):,}, " in row
    assert "unusable 2" in row


def test_a_label_that_comes_late_may_bring_a_class(tmp_path: Path) -> None:
    """It joins the model, and the figures and the summary know it."""
    messages = [said(i, i, text="rain") for i in range(9)]
    labels = [said(i, 20, label="odd" if i > 5 else "positive") for i in range(9)]
    summary = replay(tmp_path, messages, labels, model={"new_classes": True})
    assert summary.classes == ("negative", "positive", "odd")
    assert summary.class_counts == (0, 6, 3)
    assert summary.learned_late == 9


def total(summary: Summary) -> int:
    """Return the sum that `messages` of a summary is by its description."""
    in_time = summary.learned - summary.learned_late
    others = summary.judged + summary.deletions + summary.superseded
    return in_time + others + sum(summary.rejected.values()) + sum(summary.ignored.values())


@pytest.mark.parametrize("publish", ["interval", "examples"])
def test_the_summary_adds_up(publish: str, tmp_path: Path) -> None:
    """A message learned late is named as such, so each message counts once in the sum of all."""
    more = {"text": "rain", "label": "negative"}
    messages = [message(i) if i % 2 else said(i, i, **more) for i in range(40)]
    messages += [b"{broken", said(1, 41, operation="delete"), said(3, 42, operation="delete")]
    labels = [label(i) for i in range(7, 20, 2)] + [label(7, 61), said(99, 5, label="positive")]
    first = replay(tmp_path, messages, labels, learning={"publish": publish})
    assert (first.messages, first.learned, first.learned_late) == (43, 27, 7)
    assert (first.judged, first.deletions, first.rejected) == (20, 2, {"not_json": 1})
    assert total(first) == first.messages
    # A default that a label replaced was learned twice: late, both times.
    messages += [said(i, 1_000 + i, **more) for i in range(50, 60)]
    again = replay(
        tmp_path, messages, [*labels, label(21, 300)],
        learning={"publish": publish}, late_labels={"default": "negative", "horizon_s": 100},
    )  # fmt: skip
    assert total(again) == again.messages == (53 if publish == "examples" else 10)
    assert again.learned_late > (7 if publish == "examples" else 0)


def test_the_figures_are_those_of_first_sight(tmp_path: Path) -> None:
    """Accuracy goes by what was said when a message came, not by what is known with its label."""
    messages = [said(i, i, text="sun" if i % 2 else "rain") for i in range(40)]
    labels = [said(i, 100, label="positive" if i % 2 else "negative") for i in range(40)]
    summary = replay(tmp_path, messages, labels, learning={"publish": "examples"})
    out = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    right = [each["label"] == ("positive" if i % 2 else "negative") for i, each in enumerate(out)]
    # A model that has learned nothing says the first class of both.
    assert summary.accuracy == sum(right) / len(right) == 0.5


def test_a_default_holds_until_a_label_comes(tmp_path: Path) -> None:
    """What has no label is the default after the horizon; one within the window takes its place."""
    labels = [label(i, 500) for i in range(0, N, 3)]
    replay(
        tmp_path, [message(i) for i in range(N)], labels,
        late_labels={"default": "negative", "horizon_s": 100},
    )  # fmt: skip
    newest = N - 2  # that two messages in a row have reached
    learned = [
        (text, name if i % 3 == 0 else "negative")
        for i, (text, name) in enumerate(EXAMPLES)
        if i % 3 == 0 or i < newest - 100
    ]
    assert counts_at(tmp_path / "state") == counts_of(learned)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"late_labels": {"source": "kafka:labels"}}, "is a topic, and the source"),
        ({"late_labels": {"source": "file:in.jsonl", "id": "id"}}, "a log of its own"),
        ({"late_labels": {"source": "file:labels/in.jsonl", "id": "id"}}, "the name of the source"),
        ({"late_labels": {"source": "file:l.jsonl"}}, "id must name a field"),
        (
            {"late_labels": {"source": "file:l.jsonl", "id": "id"}, "learned": {"messages_max": 0}},
            "must not be 0",
        ),
        (
            {"late_labels": {"source": "file:l.jsonl", "id": "id", "default": "negativ"}},
            "did you mean 'negative'",
        ),
    ],
)
def test_settings_that_could_join_nothing_are_refused(sections: dict[str, Any], said: str) -> None:
    """Each says why."""
    with pytest.raises(ValueError, match=said):
        Settings.model_validate({"source": "file:in.jsonl"} | sections)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"corrections": {"to": "kafka:c"}}, "late_labels.source: needs corrections.to: none"),
        ({"model": {"new_classes": True}}, "late_labels.source: needs model.new_classes: false"),
    ],
)
def test_what_does_not_go_with_a_group_is_refused(
    command: Command, tmp_path: Path, sections: dict[str, Any], said: str
) -> None:
    """A part has one log beside its messages, whose classes all members know: exit code 78."""
    own = {"source": "kafka://a:1/t", "late_labels": {"source": "kafka:l"}}
    own |= {"corrections": {"to": "none"}, "group": {"folder": "shared"}}
    told = command("run", "-c", str(write_config(tmp_path / "config.yaml", **(own | sections))))
    assert told.code == 78
    assert said in " ".join(told.err.split())


@pytest.mark.integration
def test_another_member_joins_on_where_one_left_off(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Messages and labels that wait move with their partitions, each as far as it was read."""
    topic, labels = new_topic(PARTITIONS), new_topic(PARTITIONS)
    n = 120
    for k, name in enumerate(("first", "second")):
        for number in range(PARTITIONS):
            own = list(range(number, n, PARTITIONS))
            fill(broker.address, topic, map(message, own[k::2]), number)
            told = [i for i in own if i % 3 == k or (i % 3 == 2 and k)]
            fill(
                broker.address, labels, map(label, told), number,
                key=lambda k, told=told: f"m{told[k]}",  # type: ignore[misc]  # bound here
            )  # fmt: skip
        settings = {
            "source": f"kafka://{broker.address}/{topic}",
            "late_labels": {"source": f"kafka:{labels}", "window_s": WINDOW_S},
            "kafka": {"group_id": f"group-of-{topic}"},
            "http": {"enabled": False},
            "corrections": {"to": "none"},
            "group": {"folder": tmp_path / "shared"},
            "checkpoint": {"folder": tmp_path / name},
        }
        run(Settings.model_validate(settings), NoView(), until_end=True)
    assert counts_at(tmp_path / "second") == counts_of(EXAMPLES[:n])


def test_what_late_labels_taught_is_not_verified(command: Command, tmp_path: Path) -> None:
    """The log of the messages alone does not say it: exit code 78, and why."""
    replay(tmp_path, [message(0)], [label(0)])
    config = write_config(
        tmp_path / "config.yaml",
        source=f"file:{tmp_path / 'messages.jsonl'}",
        late_labels={"source": f"file:{tmp_path / 'labels.jsonl'}", "id": "id"},
        checkpoint={"folder": "state"},
    )
    told = command("verify", "-c", str(config))
    assert told.code == 78
    assert "late_labels.source: what the labels of another log taught" in " ".join(told.err.split())


@pytest.mark.deep
def test_people_correct_and_delete_messages_that_wait(tmp_path: Path) -> None:
    """What they say holds, whatever label comes; of what they delete no file holds a text."""
    secrets = ("zwieback", "quagmires")
    state, stream, labels = tmp_path / "state", Stream(tmp_path / "in.jsonl"), tmp_path / "l.jsonl"
    texts = {"a": "good sun", "b": "good zwieback", "c": "good quagmires", "d": "good rain"}
    for name, text in texts.items():
        stream.add({"id": name, "text": text, "created_at": 1_000_000_000})
    labels.write_bytes(b"")
    config = write_config(
        tmp_path / "config.yaml",
        source=f"file:{tmp_path}/in.jsonl",
        late_labels={"source": f"file:{labels}", "id": "id"},
        predictions={"to": "file:state/predictions.jsonl"},
        rejects={"to": "file:state/rejects.jsonl"},
        checkpoint={"folder": "state", "interval_s": 0.05},
    )
    with Daemon(config) as daemon:
        for name in texts:
            daemon.until_page(f"/v1/messages/{name}", 200)
        daemon.until_it_takes_corrections()
        for name in "ac":
            body = {"id": name, "label": "positive"}
            assert ask(daemon.address, "POST", "/v1/labels", body)[0] == 202
        for name in "bc":
            assert ask(daemon.address, "DELETE", f"/v1/messages/{name}")[0] == 202
        until_gone(daemon, stream, state, secrets)
        with labels.open("a") as file:
            for name in texts:
                said = {"id": name, "label": "negative", "created_at": 1_000_000_001}
                file.write(json.dumps(said) + "\n")
        daemon.until_metric("streamnb_late_labels_total", 4)
        page = daemon.get("/metrics")[1]
        for name, n in (("learned", 1), ("repeated", 1), ("message_gone", 2)):
            assert f'streamnb_late_labels_total{{outcome="{name}"}} {n}.0' in page
        found = daemon.until_page("/v1/messages/d", 200, '"truth":"negative"')
        assert found["corrected"] is None
        assert '"truth":null' in daemon.get("/v1/messages/a")[1]  # a person gave another
        assert daemon.stop() == 0
    assert holders(state, secrets) == {}
    lines = [json.loads(line) for line in (tmp_path / "in.jsonl").read_text().splitlines()]
    ticks = [(each["text"], "positive") for each in lines if each["id"].startswith("tick")]
    told = [(texts["a"], "positive"), (texts["d"], "negative")]
    # One that a person labelled stands in the part of the journal.
    assert counts_at(state) == counts_of([*told, *ticks])


@pytest.mark.integration
def test_labels_of_a_topic_may_be_texts_alone(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """With `format: text` key and value are the id and the label; others are kept as rejects."""
    topic, labels = new_topic(1), new_topic(1)
    lines = [json.dumps({"id": f"m{i}", "text": EXAMPLES[i][0]}).encode() for i in range(40)]
    fill(broker.address, topic, lines)
    values: list[bytes | None] = [EXAMPLES[i][1].encode() + b"\n" * (i % 2) for i in range(30)]
    values += [None, b"", b"\xff", b"unheard of"]
    fill(broker.address, labels, values, key=lambda k: f"m{k}")
    settings = {
        "source": f"kafka://{broker.address}/{topic}",
        "late_labels": {"source": f"kafka:{labels}", "format": "text", "window_s": WINDOW_S},
        "kafka": {"group_id": f"group-of-{topic}"},
        "http": {"enabled": False},
        "rejects": {"to": f"file:{tmp_path / 'rejects.jsonl'}"},
        "checkpoint": {"folder": tmp_path / "state"},
    }
    summary = run(Settings.model_validate(settings), NoView(), until_end=True)
    assert summary.learned == 30
    assert counts_at(tmp_path / "state") == counts_of(EXAMPLES[:30])
    rejects = [json.loads(line) for line in (tmp_path / "rejects.jsonl").read_bytes().splitlines()]
    assert {each["offset"] for each in rejects} == {30, 31, 32, 33}


@pytest.mark.deep
@pytest.mark.integration
def test_a_killed_daemon_joins_two_topics_exactly(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Labels by key, some before their message, two SIGKILLs: the counts are those of both logs."""
    topic, labels = new_topic(PARTITIONS), new_topic(PARTITIONS)
    logs = [list(range(number, N, PARTITIONS)) for number in range(PARTITIONS)]
    for number, log in enumerate(logs):
        newest_first = log[::-1]
        lines = (label(i, late(i)) for i in newest_first)
        fill(
            broker.address, labels, lines, number,
            key=lambda k, own=newest_first: f"m{own[k]}",  # type: ignore[misc]  # bound here
        )  # fmt: skip
    config = write_config(
        tmp_path / "config.yaml",
        source=f"kafka://{broker.address}/{topic}",
        late_labels={"source": f"kafka:{labels}", "window_s": WINDOW_S},
        kafka={"group_id": f"group-of-{topic}", "max_poll_messages": 100, "session_timeout_s": 6},
        checkpoint={"folder": "state", "interval_s": 0.05},
    )
    for begin, end in ((0, N // 4), (N // 4, N // 2)):  # so each life finds something new
        for number, log in enumerate(logs):
            fill(broker.address, topic, map(message, log[begin // 2 : end // 2]), number)
        with Daemon(config) as daemon:
            daemon.until_metric("streamnb_examples_learned_total", N / 20)
            daemon.kill()
    for number, log in enumerate(logs):
        fill(broker.address, topic, map(message, log[N // 4 :]), number)
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0
    learned = [example for i, example in enumerate(EXAMPLES) if i % 7]
    assert counts_at(tmp_path / "state") == counts_of(learned)
    positions = read(tmp_path / "state" / "model.nb").positions
    assert positions == {
        f"{name}/{n}": len(log) for name in (topic, labels) for n, log in enumerate(logs)
    }


@pytest.mark.integration
def test_topics_of_other_partitions_are_refused(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """A label would never find its message: exit code 78, with both numbers."""
    topic, labels = new_topic(PARTITIONS), new_topic(PARTITIONS + 1)
    settings = {
        "source": f"kafka://{broker.address}/{topic}",
        "late_labels": {"source": f"kafka:{labels}"},
        "kafka": {"group_id": f"group-of-{topic}"},
        "http": {"enabled": False},
        "checkpoint": {"folder": tmp_path},
    }
    with pytest.raises(ConfigError, match="has 3 partitions, and that of source has 2") as error:
        run(Settings.model_validate(settings), NoView())
    assert error.value.exit_code == 78
