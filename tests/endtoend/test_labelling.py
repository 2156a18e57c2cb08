"""People label what the daemon asks for: it learns exactly that, and asks no more for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.consumers.corrections.stepped_daemon import JOURNAL_PART
from tests.endtoend.correction_clients import ask, check_model
from tests.endtoend.daemon_process import Daemon, command, write_config
from tests.endtoend.expected_counts import examples, message
from tests.endtoend.test_erasure import Stream, until_gone

N = 200
SECRET = "xylophonist"


def unlabelled(number: int) -> bytes:
    """Return a message of a day that is over, without a label: its words speak for both classes."""
    text = "xylophonist rain sun" if number == 3 else f"rain sun w{number % 7} w{number // 7}"
    told = {"id": f"u{number}", "text": text, "created_at": "2024-05-01T12:00:00Z"}
    return json.dumps(told).encode()


def wanted(daemon: Daemon) -> dict[str, Any]:
    """Return what the daemon asks for."""
    status, body = ask(daemon.address, "GET", "/v1/labels/wanted?limit=200")
    assert status == 200, body
    return body


def names(body: dict[str, Any]) -> list[str]:
    """Return the ids of what is asked for."""
    return [each["id"] for each in body["messages"]]


def stream_in(folder: Path) -> tuple[Path, Path]:
    """Write a stream, with labels and then without, and a configuration that asks for them."""
    path = folder / "in.jsonl"
    lines = [message(each, i) for i, each in enumerate(examples(N))]
    lines += [unlabelled(i) for i in range(30)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    config = write_config(
        folder / "config.yaml",
        source=f"file:{path}",
        model={"coverage": 0.9},
        labelling={"enabled": True, "per_day": 40},
        checkpoint={"folder": "state", "interval_s": 0.05, "keep": 1},
    )
    return path, config


def until_asked(daemon: Daemon, n: int) -> dict[str, Any]:
    """Wait until so many messages are to be labelled and can be; return them."""
    daemon.until_page("/readyz", 200)
    daemon.until_it_takes_corrections()
    daemon.until(lambda: len(wanted(daemon)["messages"]) == n, "messages to label")
    return wanted(daemon)


def answer(daemon: Daemon, asked: list[str]) -> dict[str, str]:
    """Label messages that never taught anything; return the labels."""
    answers = {name: ("negative", "positive")[i % 2] for i, name in enumerate(asked)}
    for name, label in answers.items():
        given = {"id": name, "label": label}
        status, receipt = ask(daemon.address, "POST", "/v1/labels", given)
        assert (status, receipt["was"]) == (202, None)
    return answers


def check_counts(folder: Path, path: Path, answers: dict[str, str]) -> None:
    """Compare the checkpoint with a model of the stream and the answers, to the count."""
    texts = {each["id"]: each["text"] for each in map(json.loads, path.read_bytes().splitlines())}
    ticks = [(text, "positive") for name, text in texts.items() if name.startswith("tick")]
    answered = [(texts[name], label) for name, label in answers.items()]
    check_model(folder, {f"file:{path.name}/0": examples(N) + ticks, JOURNAL_PART: answered})


def test_answers_are_learned_and_not_asked_again(tmp_path: Path) -> None:
    """Read and answered: the counts are those of stream and answers, to the one."""
    path, config = stream_in(tmp_path)
    with Daemon(config) as daemon:
        first = until_asked(daemon, 30)
        assert {each["picked"] for each in first["messages"]} == {"random", "uncertain"}
        assert first["labelling"]["n_random"] == 8  # a fifth of per_day
        margins = [m["margin"] for m in first["messages"] if m["picked"] == "uncertain"]
        assert margins == sorted(margins)
        assert all(each["prediction_set"] for each in first["messages"])
        answers = answer(daemon, names(first)[:6])
        assert names(wanted(daemon)) == names(first)[6:]
        daemon.until(
            lambda: (
                ask(daemon.address, "GET", "/v1/model")[1]["labelling"]["n_answered"]
                == len(answers)
            ),
            "the answers counted",
        )
        # One sample of all, and one of those that were drawn at random, which came first and are
        # counted when the queue is worked out again.
        daemon.until_metric("streamnb_labels_answered_messages", 2 * len(answers))
        assert daemon.metric("streamnb_labels_answered_messages") == 2 * len(answers)
        daemon.until_metric("streamnb_corrections_total", len(answers))
        assert daemon.stop() == 0
    check_counts(tmp_path / "state", path, answers)


@pytest.mark.deep
def test_the_queue_survives_a_kill_and_a_deleted_message_does_not(tmp_path: Path) -> None:
    """The same messages are asked for again; one that is deleted leaves every file of the state."""
    path, config = stream_in(tmp_path)
    with Daemon(config) as daemon:
        first = names(until_asked(daemon, 30))
        answers = answer(daemon, [name for name in first if name != "u3"][:6])
        left = [name for name in first if name not in answers]
        daemon.kill()
    with Daemon(config) as daemon:
        assert names(until_asked(daemon, len(left))) == left
        assert ask(daemon.address, "DELETE", "/v1/messages/u3")[0] == 202
        assert names(wanted(daemon)) == [name for name in left if name != "u3"]
        until_gone(daemon, Stream(path), tmp_path / "state", (SECRET,))
        daemon.kill()
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0
    check_counts(tmp_path / "state", path, answers)


def test_a_label_that_was_taken_back_is_unlearned_once(tmp_path: Path) -> None:
    """Killed right behind it, too; the message is asked for again, and may be labelled again."""
    path, config = stream_in(tmp_path)
    with Daemon(config) as daemon:
        asked = names(until_asked(daemon, 30))
        answer(daemon, asked[:4])
        for name, was in ((asked[0], "negative"), (asked[1], "positive"), (asked[1], None)):
            given = {"id": name, "label": None}
            status, receipt = ask(daemon.address, "POST", "/v1/labels", given)
            assert (status, receipt["was"]) == (202, was)
            assert receipt["position"].startswith("corrections.jsonl@")
        again = ask(daemon.address, "POST", "/v1/labels", {"id": asked[1], "label": "negative"})
        assert (again[0], again[1]["was"]) == (202, None)
        assert asked[0] in names(wanted(daemon))
        daemon.kill()
    with Daemon(config) as daemon:
        assert asked[0] in names(until_asked(daemon, 27))
        given = {"text": "an example", "label": None}
        status, refused = ask(daemon.address, "POST", "/v1/labels", given)
        assert status == 422
        assert "give its id" in refused["detail"]
        assert daemon.stop() == 0
    with Daemon(config, "--until-end") as daemon:  # a stop leaves what it has not read yet
        assert daemon.wait() == 0
    check_counts(
        tmp_path / "state", path, {asked[1]: "negative", asked[2]: "negative", asked[3]: "positive"}
    )
    verified = command("verify", "-c", str(config), folder=tmp_path)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_nobody_is_asked_by_default(tmp_path: Path) -> None:
    """The route says which setting turns it on."""
    stream = tmp_path / "in.jsonl"
    stream.write_bytes(unlabelled(1) + b"\n")
    config = write_config(tmp_path / "config.yaml", source=f"file:{stream}")
    with Daemon(config) as daemon:
        daemon.until_page("/v1/page", 200)
        status, body = ask(daemon.address, "GET", "/v1/labels/wanted")
        assert status == 404
        assert "labelling.enabled: true" in body["detail"]
        assert ask(daemon.address, "GET", "/v1/model")[1].get("labelling") is None
