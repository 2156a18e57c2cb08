"""People correct the daemon while it is killed again and again; every count is exact in the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.broker import Broker
from tests.consumers.corrections.stepped_daemon import JOURNAL_PART
from tests.consumers.kafka.topics import Reader, fill
from tests.endtoend.correction_clients import People, ask, check_model, expected
from tests.endtoend.daemon_process import Daemon, write_config
from tests.endtoend.expected_counts import examples, message, messages

N = 2_000
CORRECTED = range(N - 200, N - 2)  # late ones, so that after a kill corrections wait for them
JOURNAL = "corrections.jsonl"


def until_all_are_kept(daemon: Daemon) -> None:
    """Wait until the store of recent messages knows every message, and the service is open."""
    daemon.until_page(f"/v1/messages/m{N - 1}", 200)
    daemon.until_it_takes_corrections()


@pytest.mark.deep
def test_corrections_are_exact_when_the_daemon_is_killed(tmp_path: Path) -> None:
    """Killed amid corrections, with old checkpoints and fresh ones, it loses and doubles none."""
    found = examples(N)
    stream = tmp_path / "in.jsonl"
    stream.write_bytes(b"\n".join(messages(found)) + b"\n")
    answered = []
    # An interval that never ends leaves a checkpoint of nothing: all is learned again after the
    # kill, and the corrections wait for it. A short one saves corrections amid the others.
    for life, (interval_s, n_answers) in enumerate([(1e6, 40), (0.05, 60)]):
        config = write_config(
            tmp_path / "config.yaml",
            source=f"file:{stream}",
            file={"batch_bytes": 1024},
            checkpoint={"folder": "state", "interval_s": interval_s},
        )
        with Daemon(config) as daemon:
            until_all_are_kept(daemon)
            people = People(daemon, CORRECTED, 4, seed=life)
            daemon.until(lambda: len(people.answered) >= n_answers, "corrections")  # noqa: B023
            daemon.kill()
        people.join()
        answered += people.answered
        assert {status for status, _ in people.refused} <= {404}  # deleted before
        journal = tmp_path / "state" / JOURNAL
        if life == 1:
            with journal.open("ab") as file:
                file.write(b'{"kind":"label","id":"m')  # what a power cut leaves

    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0
    assert daemon.count("correction_refused") == 0
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    check_model(
        tmp_path / "state",
        expected(found, 1, f"file:{stream.name}", ((line, JOURNAL_PART) for line in lines)),
    )
    # Every answer has its line, at the place that it named.
    data = journal.read_bytes()
    for kind, receipt in answered:
        line = json.loads(data[int(receipt["position"].rpartition("@")[2]) :].split(b"\n")[0])
        assert (line["kind"], line["id"], line.get("was")) == (kind, receipt["id"], receipt["was"])
    assert {line["kind"] for line in lines} == {"label", "delete"}


def test_a_line_that_is_no_correction_stops_nothing(tmp_path: Path) -> None:
    """What is none is a reject with its reason, and what is right is learned all the same."""
    stream = tmp_path / "in.jsonl"
    stream.write_bytes(message(("so sunny", "positive"), 0) + b"\n")
    folder = tmp_path / "state"
    folder.mkdir()
    good = {
        "kind": "label",
        "id": "m0",
        "time_ms": 5,
        "example": {"text": "so sunny"},
        "label": "negative",
        "was": "positive",
        "was_part": "file:in.jsonl/0",
        "partition": ["file:in.jsonl", 0],
        "offset": 0,
    }
    unfit = good | {"id": "m7", "example": {"text": "never seen"}}
    given = [b"this is none", json.dumps(good).encode(), json.dumps(unfit).encode(), b"{"]
    (folder / JOURNAL).write_bytes(b"\n".join(given))
    config = write_config(
        tmp_path / "config.yaml",
        source=f"file:{stream}",
        rejects={"to": "file:rejects.jsonl"},
        checkpoint={"folder": "state"},
    )
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0
    assert daemon.count("journal_cut") == 1
    check_model(folder, {JOURNAL_PART: [("so sunny", "negative")]})
    rejects = [json.loads(line) for line in (tmp_path / "rejects.jsonl").read_text().splitlines()]
    assert [reject["reason"] for reject in rejects] == ["not_json", "correction"]


@pytest.mark.deep
@pytest.mark.integration
def test_corrections_of_a_label_topic_are_exact_when_the_daemon_is_killed(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """With Kafka the label topic is the log: killed amid corrections, none is lost or doubled."""
    topic, labels = new_topic(2), new_topic(2)
    found = examples(N)
    for number in (0, 1):
        numbered = [message(found[i], i) for i in range(number, N, 2)]
        fill(broker.address, topic, numbered, number)
    answered = []
    for life in range(2):
        config = write_config(
            tmp_path / "config.yaml",
            source=f"kafka://{broker.address}/{topic}",
            kafka={"group_id": f"{topic}-{life}"},  # nobody waits for the dead member
            corrections={"to": f"kafka:{labels}"},
            checkpoint={"folder": "state", "interval_s": (1e6, 0.1)[life]},
        )
        with Daemon(config) as daemon:
            for number in range(N - 2, N):
                daemon.until_page(f"/v1/messages/m{number}", 200)
            until_all_are_kept(daemon)
            people = People(daemon, CORRECTED, 4, seed=10 + life)
            daemon.until(lambda: len(people.answered) >= 30, "corrections")  # noqa: B023
            if life == 0:
                daemon.kill()
            else:
                assert ask(daemon.address, "DELETE", "/v1/messages/m0")[0] == 202
                assert daemon.stop() == 0
        people.join()
        answered += people.answered
    config = write_config(
        tmp_path / "config.yaml",
        source=f"kafka://{broker.address}/{topic}",
        kafka={"group_id": f"{topic}-last"},
        corrections={"to": f"kafka:{labels}"},
        checkpoint={"folder": "state"},
    )
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0
    assert daemon.count("correction_refused") == 0
    with Reader(broker.address, labels) as reader:
        reader.until(lambda: reader.n_values > len(answered) and reader.source.at_end())
        said = [
            (json.loads(value or b""), f"{labels}/{number}")
            for number, values in reader.values.items()
            for value in values
        ]
    check_model(tmp_path / "state", expected(found, 2, topic, said))
