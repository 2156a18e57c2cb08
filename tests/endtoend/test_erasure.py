"""What was deleted is in no byte of the state folder, once the kept checkpoints are replaced."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from streamnb.storage import read
from tests.consumers.corrections.stepped_daemon import by_part
from tests.endtoend.correction_clients import ask, check_model
from tests.endtoend.daemon_process import Daemon, command, write_config

# Of each message that is deleted, a word that no other has.
LABELLED, CORRECTED, UNLABELLED, TAUGHT, STREAMED, MARKED = SECRETS = (
    "xylophonist", "quagmires", "zwieback", "vuvuzela", "jacaranda", "kumquats",
)  # fmt: skip


class Stream:
    """A file that the daemon follows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._n = 0

    def add(self, *lines: dict[str, Any]) -> None:
        """Add messages."""
        with self._path.open("a") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))

    def tick(self) -> None:
        """Add a message of no interest, so that there is something for another checkpoint."""
        self._n += 1
        self.add({"id": f"tick{self._n}", "text": f"good day {self._n % 7}", "label": 4})


def holders(folder: Path, secrets: tuple[str, ...]) -> dict[str, list[str]]:
    """Return which files hold which secrets, in any letters."""
    found = {}
    for path in sorted(each for each in folder.rglob("*") if not each.is_dir()):
        try:
            data = path.read_bytes().lower()
        except FileNotFoundError:  # a checkpoint that was moved meanwhile
            continue
        held = [secret for secret in secrets if secret.encode() in data]
        if held:
            found[path.name] = held
    return found


def until_gone(daemon: Daemon, stream: Stream, state: Path, secrets: tuple[str, ...]) -> None:
    """Let checkpoints be replaced until no file holds a secret."""

    def is_gone() -> bool:
        stream.tick()
        return not holders(state, secrets)

    daemon.until(is_gone, f"erasure; {holders(state, secrets)}")


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """A stream of messages that will be deleted, among others."""
    stream = Stream(tmp_path / "in.jsonl")
    stream.add(
        {"id": "a", "text": f"good {LABELLED} morning", "label": 4},
        {"id": "b", "text": f"good {CORRECTED} evening", "label": 0},
        {"id": "c", "text": f"good {UNLABELLED} night"},
        {"id": "d", "text": f"good {TAUGHT} noon"},
        {"id": "e", "text": f"good {STREAMED} dawn"},
        {"id": "f", "text": f"good {MARKED} dusk", "label": "none that is known"},
        {"id": "g", "text": "good gracious"},
        {"id": "h", "text": "good grief", "label": 0},
    )
    return stream


def config_of(tmp_path: Path, *, sections: dict[str, Any] | None = None, **more: Any) -> Path:
    """Return a configuration whose outputs lie in the state folder."""
    return write_config(
        tmp_path / "config.yaml",
        **(sections or {}),
        source=f"file:{tmp_path}/in.jsonl",
        predictions={"to": "file:state/predictions.jsonl"},
        rejects={"to": "file:state/rejects.jsonl"},
        checkpoint={"folder": "state", "interval_s": 0.05, **more},
    )


def posted(did: str, rkey: str, text: str) -> dict[str, Any]:
    """Return a post on Jetstream's first wire."""
    commit = {"operation": "create", "collection": "app.bsky.feed.post", "rkey": rkey}
    return {"did": did, "kind": "commit", "commit": commit | {"record": {"text": text}}}


def account(did: str, **state: Any) -> dict[str, Any]:
    """Return what Jetstream says of an account."""
    return {"did": did, "kind": "account", "account": {"did": did} | state}


def second_wire(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event of Jetstream's first wire as its second one has it."""
    kind, own = event["kind"], event[event["kind"]]
    payload = {"$type": f"network.bsky.jetstream.subscribeEvents#{kind}", "did": event["did"]}
    return {"$type": "message", "payload": payload | (own if kind == "commit" else {kind: own})}


@pytest.mark.deep
@pytest.mark.parametrize("preset", ["jetstream", "jetstream-v2"])
def test_an_account_leaves_with_all_that_it_said(tmp_path: Path, preset: str) -> None:
    """Killed before and behind its deletion, the daemon counts, shows and holds none of its posts.

    Those without a label go too. What it posts when it is active again counts; an account that is
    suspended keeps its posts.
    """
    ann, bob = "did:plc:ann", "did:plc:bob"
    state, stream = tmp_path / "state", Stream(tmp_path / "in.jsonl")

    def add(*events: dict[str, Any]) -> None:
        stream.add(*(events if preset == "jetstream" else map(second_wire, events)))

    add(
        posted(ann, "1", f"good {LABELLED} morning :)"),
        posted(bob, "1", "good gracious :("),
        posted(ann, "2", f"good {UNLABELLED} night"),
        posted(ann, "3", f"good {CORRECTED} noon"),
        posted(bob, "2", "good grief"),
    )
    sections = {"message": preset, "labels": {"kind": "emoticons"}}
    config = config_of(tmp_path, sections=sections)
    secrets = LABELLED, UNLABELLED, CORRECTED
    with Daemon(config) as daemon:
        daemon.until_page("/v1/search?q=grief", 200, "good grief")
        daemon.until_it_takes_corrections()
        said = {"id": f"{ann}/app.bsky.feed.post/3", "label": "positive"}
        assert ask(daemon.address, "POST", "/v1/labels", said)[0] == 202
        daemon.until_metric("streamnb_corrections_total", 1)
        daemon.until(lambda: holders(state, secrets).keys() >= {
            "model.nb", "corrections.jsonl", "predictions.jsonl"
        }, "texts in the files")  # fmt: skip
    add(
        account(bob, active=False, status="suspended"),
        account(ann, active=False, status="deleted"),
        account(bob, active=True),
    )
    with Daemon(config) as daemon:
        daemon.until_metric("streamnb_messages_total", 3)
    with Daemon(config) as daemon:
        until_gone(daemon, stream, state, secrets)
        add(account(ann, active=True), posted(ann, "4", "good gravy :)"))
        daemon.until_page("/v1/search?q=gravy", 200, "good gravy")
        status, found = ask(daemon.address, "GET", "/v1/search?q=good")
        assert status == 200
        assert {each["text"] for each in found["messages"]} == {
            "good gracious", "good grief", "good gravy"
        }  # fmt: skip
        assert daemon.stop() == 0
    assert holders(state, secrets) == {}
    model = read(state / "model.nb").model
    assert dict(zip(model.classes, model.class_counts.tolist(), strict=True)) == {
        "negative": 1.0, "positive": 1.0,
    }  # fmt: skip
    verified = command("verify", "--config", config, folder=tmp_path)
    assert verified.returncode == 0, verified.stdout


def test_what_was_deleted_stands_in_no_file(tmp_path: Path, stream: Stream) -> None:
    """People and the stream delete; then no file holds a word of it, and the rest is as it was."""
    state = tmp_path / "state"
    state.mkdir()
    (state / "recent.db.aside").write_bytes(f"what was {LABELLED}".encode())
    with Daemon(config_of(tmp_path)) as daemon:
        for name in "abcdegh":
            daemon.until_page(f"/v1/messages/{name}", 200)
        daemon.until_it_takes_corrections()
        for name, label in (("b", "positive"), ("d", "negative"), ("g", "positive")):
            body = {"id": name, "label": label}
            assert ask(daemon.address, "POST", "/v1/labels", body)[0] == 202
        daemon.until(lambda: holders(state, SECRETS).keys() >= {
            "model.nb", "corrections.jsonl", "predictions.jsonl", "recent.db-wal", "rejects.jsonl"
        }, "texts in the files")  # fmt: skip
        before = (state / "corrections.jsonl").read_bytes()
        for name in "abcd":
            assert ask(daemon.address, "DELETE", f"/v1/messages/{name}")[0] == 202
        stream.add(*({"id": name, "operation": "delete"} for name in "ef"))
        until_gone(daemon, stream, state, SECRETS)
        assert daemon.stop() == 0
    assert holders(state, SECRETS) == {}
    assert not (state / "recent.db.aside").exists()
    assert not (state / "erasures.jsonl").exists()
    # No line of the journal has moved, and who was corrected stays.
    journal = (state / "corrections.jsonl").read_bytes()
    ends = [[at.start() for at in re.finditer(b"\n", data)] for data in (before, journal)]
    assert ends[1][: len(ends[0])] == ends[0]
    said = [json.loads(line) for line in journal.splitlines()]
    assert [(line["kind"], line["id"]) for line in said] == [
        ("label", "b"), ("label", "d"), ("label", "g"), *(("delete", name) for name in "abcd"),
    ]  # fmt: skip
    assert [line.get("example") for line in said] == [None] * 2 + [{"text": "good gracious"}] + [
        None
    ] * 4
    told = [json.loads(line) for line in (state / "predictions.jsonl").read_text().splitlines()]
    assert {line["id"]: line.get("text") for line in told} == {
        "c": None, "d": None, "e": None, "g": "good gracious",
    }  # fmt: skip
    (reject,) = [json.loads(line) for line in (state / "rejects.jsonl").read_text().splitlines()]
    assert (reject["reason"], reject["offset"] > 0) == ("unknown_label", True)
    assert (reject["key_base64"], reject["value_base64"]) == (None, None)
    parts = by_part(read(state / "model.nb").model)
    words = {word for _, counts in parts.values() for word in counts}
    assert {"gracious", "grief"} <= words
    assert not words & {"morning", "evening", "night", "noon"}


@pytest.mark.usefixtures("stream")
@pytest.mark.parametrize("is_stopped", [False, True])
def test_no_message_has_to_come_for_a_text_to_go(tmp_path: Path, is_stopped: bool) -> None:
    """Where a stream is quiet, checkpoints go on until none that is kept lacks the deletion.

    That is so in a daemon that runs on, and over starts of which each writes the one at its end.
    """
    state, config = tmp_path / "state", config_of(tmp_path)
    with Daemon(config) as daemon:
        for name in "ab":
            daemon.until_page(f"/v1/messages/{name}", 200)
        daemon.until_it_takes_corrections()
        for name in "ab":
            assert ask(daemon.address, "DELETE", f"/v1/messages/{name}")[0] == 202
        if not is_stopped:
            daemon.until(lambda: not holders(state, (LABELLED, CORRECTED)), "erasure")
            daemon.until(lambda: daemon.metric("streamnb_erasures_waiting") == 0.0, "all are done")
            written = daemon.metric("streamnb_checkpoints_total")
            daemon.until(
                lambda: daemon.metric("streamnb_checkpoint_age_seconds") < 0.05, "it is current"
            )
            assert daemon.metric("streamnb_checkpoints_total") == written  # it is quiet again
        assert daemon.stop() == 0
    for _ in range(4 * is_stopped):
        with Daemon(config, "--until-end") as daemon:
            assert daemon.wait() == 0
    assert holders(state, (LABELLED, CORRECTED)) == {}
    assert not (state / "erasures.jsonl").exists()


@pytest.mark.deep
def test_a_message_that_comes_again_behind_its_deletion_keeps_its_text(tmp_path: Path) -> None:
    """Deleted and then updated, its line holds the new text, in one batch or in several."""
    first = {"id": "a", "text": f"good {STREAMED} dawn"}
    again = {"id": "a", "text": f"good {MARKED} dusk", "operation": "update"}
    for batch_bytes in (1 << 20, 1024):
        folder = tmp_path / str(batch_bytes)
        folder.mkdir()
        stream = Stream(folder / "in.jsonl")
        others = [{"id": f"o{i}", "text": "good " * 40} for i in range(20)]  # a batch and more
        stream.add(first, *others, {"id": "a", "operation": "delete"}, *others[:9], again)
        config = write_config(
            folder / "config.yaml",
            source=f"file:{folder}/in.jsonl",
            file={"batch_bytes": batch_bytes},
            predictions={"to": "file:state/predictions.jsonl"},
            checkpoint={"folder": "state", "interval_s": 0.05},
        )
        with Daemon(config) as daemon:
            daemon.until_page("/v1/messages/a", 200)
            until_gone(daemon, stream, folder / "state", (STREAMED,))
            assert daemon.stop() == 0
        lines = (folder / "state" / "predictions.jsonl").read_text().splitlines()
        told = [each for each in map(json.loads, lines) if each["id"] == "a"]
        assert [each.get("text") for each in told] == [None, again["text"]]


@pytest.mark.deep
def test_files_of_former_settings_are_erased_too(tmp_path: Path, stream: Stream) -> None:
    """Page, journal and outputs are off by now, and yet nothing in the folder holds what went."""
    state = tmp_path / "state"
    with Daemon(config_of(tmp_path)) as daemon:
        for name in "abcdegh":
            daemon.until_page(f"/v1/messages/{name}", 200)
        daemon.until_it_takes_corrections()
        for name, label in (("b", "positive"), ("g", "positive")):
            body = {"id": name, "label": label}
            assert ask(daemon.address, "POST", "/v1/labels", body)[0] == 202

        def is_applied() -> bool:
            stream.tick()
            at = read(state / "model.nb").positions.get("journal:corrections.jsonl/0", 0)
            return at == (state / "corrections.jsonl").stat().st_size

        daemon.until(is_applied, "a checkpoint of both corrections")
        daemon.kill()  # so that the store's log is left as well
    assert holders(state, SECRETS).keys() >= {"corrections.jsonl", "predictions.jsonl"}
    with (state / "predictions.jsonl").open("ab") as file:  # torn by the kill
        file.write(b'{"id":"c","time_ms":5,"text":"good ' + UNLABELLED.encode())
    own = state / "own.jsonl"
    own.write_text(json.dumps({"id": "c", "text": "mine"}) + "\n")
    config = write_config(
        tmp_path / "config.yaml",
        source=f"file:{tmp_path}/in.jsonl",
        http={"enabled": False},
        predictions={"to": f"file:{tmp_path}/elsewhere.jsonl"},
        corrections={"to": "none"},
        checkpoint={"folder": "state", "interval_s": 0.05},
    )
    with Daemon(config) as daemon:
        stream.add(*({"id": name, "operation": "delete"} for name in "abcdef"))

        def is_gone() -> bool:
            stream.tick()
            return all(name.startswith("model.nb") for name in holders(state, SECRETS))

        # The stream's own deletion takes no learned word out of the model.
        daemon.until(is_gone, f"erasure; {holders(state, SECRETS)}")
        until_gone(daemon, stream, state, (UNLABELLED, TAUGHT, STREAMED, MARKED))
        assert daemon.stop() == 0
        (line,) = [line for line in daemon.lines if line["event"] == "texts_out_of_reach"]
        assert line["places"] == [f"{tmp_path}/elsewhere.jsonl"]
    assert not list(state.glob("recent.db*"))
    assert "good gracious" in (state / "corrections.jsonl").read_text()
    assert "good gracious" in (state / "predictions.jsonl").read_text()
    assert json.loads(own.read_text()) == {"id": "c", "text": "mine"}


@pytest.mark.deep
def test_a_journal_that_is_not_applied_keeps_what_it_is_to_apply(
    tmp_path: Path, stream: Stream
) -> None:
    """A deletion that no checkpoint holds outlives a run without corrections, and is applied."""
    state = tmp_path / "state"

    def config(interval_s: float, to: str) -> Path:
        return write_config(
            tmp_path / "config.yaml",
            source=f"file:{tmp_path}/in.jsonl",
            corrections={"to": to},
            checkpoint={"folder": "state", "interval_s": interval_s},
        )

    with Daemon(config(3600, "journal")) as daemon:
        daemon.until_page("/v1/messages/a", 200)
        assert daemon.stop() == 0
    with Daemon(config(3600, "journal")) as daemon:
        daemon.until_page("/v1/messages/a", 200)
        daemon.until_it_takes_corrections()
        assert ask(daemon.address, "DELETE", "/v1/messages/a")[0] == 202
        daemon.kill()
    with Daemon(config(0.05, "none")) as daemon:

        def is_said() -> bool:
            stream.tick()
            return daemon.count("journal_not_applied") == 1

        daemon.until(is_said, "a word of it")
        assert daemon.stop() == 0
    assert LABELLED in (state / "corrections.jsonl").read_text()
    with Daemon(config(0.05, "journal")) as daemon:
        until_gone(daemon, stream, state, (LABELLED,))
        assert daemon.stop() == 0
    assert daemon.count("correction_refused") == 0


@pytest.mark.deep
def test_a_kill_amid_erasing_leaves_it_to_the_next_start(tmp_path: Path, stream: Stream) -> None:
    """Killed again and again while it erases, it has erased all in the end, and counts right."""
    state = tmp_path / "state"
    config = config_of(tmp_path, keep=2)
    for life, name in enumerate("abcde"):
        with Daemon(config) as daemon:
            if life == 0:
                for each in "abcdegh":
                    daemon.until_page(f"/v1/messages/{each}", 200)
            daemon.until_it_takes_corrections()
            if name == "e":
                stream.add({"id": name, "operation": "delete"})
            else:
                assert ask(daemon.address, "DELETE", f"/v1/messages/{name}")[0] == 202
            for _ in range(5 * life):
                stream.tick()
                daemon.get("/livez")
            daemon.kill()
    deleted = SECRETS[:5]
    with Daemon(config) as daemon:
        until_gone(daemon, stream, state, deleted)
        assert daemon.stop() == 0
    assert daemon.count("correction_refused") == 0
    assert holders(state, deleted) == {}
    with Daemon(config, "--until-end") as daemon:  # what came behind the stop
        assert daemon.wait() == 0
    lines = [json.loads(line) for line in (tmp_path / "in.jsonl").read_text().splitlines()]
    learned = [
        (line["text"], "positive" if line["label"] == 4 else "negative")
        for line in lines
        if line.get("label") in {0, 4} and line["id"] not in "ab"
    ]
    check_model(state, {"file:in.jsonl/0": learned})
