"""What the stream deletes is gone from the page, in the order of the stream."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import json
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from structlog.testing import capture_logs

from consumers.config.settings import Settings
from consumers.daemon import run
from consumers.messages import Partition
from consumers.pipeline.checkpoint import Checkpoint, SavedCheckpoint
from streamnb.storage import read
from tests.broker.broker import Broker
from tests.consumers.kafka.topics import fill
from tests.consumers.sources.live_server import LiveServer, Peer, frame, time_us
from tests.endtoend.correction_clients import ask
from tests.endtoend.daemon_process import Daemon, write_config
from tests.endtoend.expected_counts import Example, counts_at, counts_of, message
from tests.endtoend.jetstream_server import position_at
from tests.endtoend.test_any_message import DrawnView
from tests.endtoend.test_reproducible import KEY, replay


def test_what_the_stream_deletes_cannot_be_found(tmp_path: Path) -> None:
    """Of messages with a label and without, the deleted ones leave the page; the others stay."""
    messages: list[dict[str, object]] = [
        {"id": "a", "text": "good morning", "label": 4},
        {"id": "b", "text": "good evening"},
        {"id": "c", "text": "good night", "label": 0},
        {"id": "a", "operation": "delete"},
        {"id": "b", "operation": "delete"},
    ]
    stream = tmp_path / "stream.jsonl"
    stream.write_text("".join(json.dumps(message) + "\n" for message in messages))
    config = write_config(tmp_path / "config.yaml", source=f"file:{stream}")
    with Daemon(config) as daemon:
        daemon.until_page("/v1/search?q=night", 200, '"id":"c"')
        daemon.until_page("/v1/summary", 200, '"n":1,')
        status, found = ask(daemon.address, "GET", "/v1/search?q=good")
        assert status == 200
        assert [message["id"] for message in found["messages"]] == ["c"]
        assert ask(daemon.address, "GET", "/v1/messages/a")[0] == 404


def test_no_checkpoint_passes_over_what_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill behind it would lose messages, and keep versions that the stream has replaced."""
    lines, begins = list[str](), [0]
    for i in range(6_000):
        update = {"id": f"m{i - 3}", "operation": "update"} if i % 5 == 4 else {"id": f"m{i}"}
        label = {} if i % 3 else {"label": 4}
        lines.append(json.dumps({"text": "good", **update, **label}) + "\n")
        begins.append(begins[-1] + len(lines[-1]))
    names = [json.loads(line)["id"] for line in lines]

    def newest(n_lines: int) -> set[int]:
        """Return where the newest version of each message begins, as of some lines."""
        return set(dict(zip(names[:n_lines], begins, strict=False)).values())

    stream, state = tmp_path / "stream.jsonl", tmp_path / "state"
    stream.write_text("".join(lines))
    settings = Settings.model_validate(
        {"source": f"file:{stream}", "http": {"port": 0}, "file": {"batch_bytes": 50_000},
         "recent": {"rate_max_per_s": 1e6, "processor_share_max": 1.0},
         "checkpoint": {"folder": state, "interval_s": 0.1}}
    )  # fmt: skip
    write, n_checked = Checkpoint.write, 0

    def checked(
        checkpoint: Checkpoint, model: Any, positions: Mapping[Partition, int], *rest: Any
    ) -> SavedCheckpoint:
        nonlocal n_checked
        behind = max(positions.values(), default=0)  # nothing is said in the journal
        with contextlib.closing(sqlite3.connect(state / "recent.db")) as db:
            db.execute("BEGIN")  # one state of the file, while the writer goes on
            numbers = db.execute("SELECT number FROM chunk").fetchall()
            rows = [db.execute(f"SELECT offset FROM rows{number}") for (number,) in numbers]
            stored = {at for found in rows for (at,) in found if at < behind}
        # The store may be ahead, and have let go of what is replaced behind the checkpoint.
        assert {at for at in newest(len(lines)) if at < behind} <= stored
        assert stored <= newest(bisect.bisect_left(begins, behind))
        n_checked += 1
        return write(checkpoint, model, positions, *rest)

    monkeypatch.setattr(Checkpoint, "write", checked)
    monkeypatch.setattr("consumers.daemon._RECENT_TIMEOUT_S", 3_600.0)  # behind it, one goes on
    run(settings, DrawnView(), until_end=True)
    assert n_checked


def test_a_checkpoint_that_waits_in_vain_for_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written all the same, as no count depends on the page; the log says it."""
    lines = [json.dumps({"id": f"m{i}", "text": "good day", "label": 4}) for i in range(6_000)]
    (tmp_path / "stream.jsonl").write_text("".join(line + "\n" for line in lines))
    n_late = {}
    for timeout_s in (0.0, 3_600.0):
        monkeypatch.setattr("consumers.daemon._RECENT_TIMEOUT_S", timeout_s)
        state = tmp_path / str(timeout_s)
        settings = Settings.model_validate(
            {"source": f"file:{tmp_path / 'stream.jsonl'}", "http": {"port": 0},
             "checkpoint": {"folder": state, "interval_s": 0.1}}
        )  # fmt: skip
        with capture_logs() as logs:
            run(settings, DrawnView(), until_end=True)
        n_late[timeout_s] = [each["event"] for each in logs].count("recent_store_late")
        assert read(state / "model.nb").model.n_examples == 6_000
    assert n_late[0.0] > 0
    assert n_late[3_600.0] == 0


def test_a_deletion_names_one_record_of_one_account(tmp_path: Path) -> None:
    """On Bluesky a key is an account's own, for each collection: only the whole id is deleted."""

    def commit(did: str, collection: str, operation: str, text: str = "") -> dict[str, object]:
        record = {"record": {"text": text}} if text else {}
        named = {"operation": operation, "collection": collection, "rkey": "3k"}
        return {"did": did, "kind": "commit", "commit": named | record}

    post, follow = "app.bsky.feed.post", "app.bsky.graph.follow"
    messages = [
        commit("did:plc:ann", post, "create", "good morning"),
        commit("did:plc:bob", post, "create", "good evening"),
        commit("did:plc:bob", follow, "delete"),
        commit("did:plc:cyd", follow, "delete"),
        commit("did:plc:bob", post, "delete"),
        commit("did:plc:ann", post, "create", "good night"),
    ]
    stream = tmp_path / "stream.jsonl"
    stream.write_text("".join(json.dumps(message) + "\n" for message in messages))
    config = write_config(
        tmp_path / "config.yaml",
        source=f"file:{stream}",
        message={
            "id": ["did", "commit.collection", "commit.rkey"],
            "text": "commit.record.text",
            "operation": "commit.operation",
        },
    )
    with Daemon(config) as daemon:
        daemon.until_page("/v1/search?q=night", 200, "good night")
        daemon.until_page("/v1/summary", 200, '"n":2,')
        status, found = ask(daemon.address, "GET", "/v1/search?q=good")
        assert status == 200
        of_ann = f"did:plc:ann/{post}/3k"
        assert [(message["id"], message["text"]) for message in found["messages"]] == [
            (of_ann, "good night"), (of_ann, "good morning")
        ]  # fmt: skip
        daemon.until_it_takes_corrections()
        path = quote(of_ann, safe="")
        assert ask(daemon.address, "GET", f"/v1/messages/{path}")[1]["id"] == of_ann
        assert ask(daemon.address, "DELETE", f"/v1/messages/{path}")[0] == 202
        daemon.until_page("/v1/summary", 200, '"n":0,')


def test_a_resync_of_bluesky_leaves_what_the_account_has(tmp_path: Path) -> None:
    """The server sends `#sync`, and then all posts that there are as creates: those that were
    learned count once, and one whose deletion was lost with the commit does not.
    """
    of = "network.bsky.jetstream.subscribeEvents#"

    def event(kind: str, did: str, **own: object) -> dict[str, object]:
        payload = {"$type": f"{of}{kind}", "did": did, "time": "2026-08-14T10:00:01.000000Z"}
        return {"$type": "message", "payload": payload | own}

    def post(did: str, rkey: str, text: str, rev: str) -> dict[str, object]:
        named = {"operation": "create", "collection": "app.bsky.feed.post", "rkey": rkey}
        return event("commit", did, rev=rev, record={"text": text, "langs": ["en"]}, **named)

    def resync(did: str, rev: str) -> dict[str, object]:
        return event("sync", did, sync={"did": did, "rev": rev, "seq": 9})

    ann, bob = "did:plc:ann", "did:plc:bob"
    messages = [
        post(ann, "1", "lovely day :)", "3a"),
        post(ann, "2", "awful rain :(", "3b"),
        post(ann, "3", "gone by now :(", "3c"),
        post(bob, "1", "lovely sun :)", "3d"),
        resync(ann, "3f"),
        post(ann, "1", "lovely day :)", "3f"),
        post(ann, "2", "awful rain :(", "3f"),
        resync("did:plc:cyd", "3g"),
        post("did:plc:cyd", "1", "of years ago :)", "3g"),
    ]
    stream = tmp_path / "stream.jsonl"
    stream.write_text("".join(json.dumps(message) + "\n" for message in messages))
    config = write_config(
        tmp_path / "config.yaml",
        source=f"file:{stream}",
        message="jetstream-v2",
        labels={"kind": "emoticons"},
    )
    with Daemon(config) as daemon:
        daemon.until_page("/v1/search?q=years", 200, "of years ago")
        assert ask(daemon.address, "GET", "/v1/search?q=gone")[1]["messages"] == []
        found = ask(daemon.address, "GET", "/v1/search?q=lovely")[1]["messages"]
        assert sorted(each["text"] for each in found) == ["lovely day", "lovely sun"]
        assert daemon.stop() == 0
    assert learned_at(tmp_path / "state") == {"negative": 1.0, "positive": 3.0}


@pytest.mark.parametrize("version", [1, 2])
def test_an_account_deleted_over_the_wire_is_unlearned(tmp_path: Path, version: int) -> None:
    """On both wires, across a kill behind which the server sends all again: what the accounts had
    that are gone for good is taken back; one that is expected back keeps what it taught.
    """
    numbers = itertools.count(1)

    def sent(did: str, kind: str, own: dict[str, Any]) -> bytes:
        n = next(numbers)
        if version == 1:
            return json.dumps({"did": did, "time_us": time_us(n), "kind": kind, kind: own}).encode()
        more = own if kind == "commit" else {kind: own}
        named = {"$type": f"network.bsky.jetstream.subscribeEvents#{kind}", "did": did, "seq": n}
        payload = named | {"time": f"2026-11-23T06:00:{n:02}.000000Z", **more}
        return json.dumps({"$type": "message", "payload": payload}).encode()

    def post(did: str, rkey: str, text: str) -> bytes:
        record = {"text": text, "langs": ["en"]}
        named = {"operation": "create", "collection": "app.bsky.feed.post", "rkey": rkey}
        return sent(did, "commit", {"rev": f"r{rkey}", "record": record} | named)

    def account(did: str, status: str | None) -> bytes:
        own = {"active": status is None, "did": did, "seq": 9, "time": "2026-11-23T06:00:00.000Z"}
        return sent(did, "account", own | ({} if status is None else {"status": status}))

    ann, bob, cyd, dot = (f"did:plc:{name}" for name in ("ann", "bob", "cyd", "dot"))
    before = [post(did, "1", "lovely sun :)") for did in (ann, bob, cyd, dot)]
    before += [post(ann, "2", "awful rain :("), post(ann, "3", "no face")]
    behind = [account(ann, "deleted"), account(bob, "takendown"), account(cyd, "deactivated")]
    behind += [account(dot, None), post(bob, "2", "back again :(")]
    scripts = [playing(before), playing(before + behind)]
    with LiveServer(*scripts) as server:
        config = write_config(
            tmp_path / "config.yaml",
            source=f"jetstream+ws://{server.host}",
            jetstream={"version": version},
            live={"retry_pause_s": 0.05},
            labels={"kind": "emoticons"},
            checkpoint={"folder": "state", "interval_s": 0.1},
        )
        with Daemon(config) as daemon:
            daemon.until(lambda: position_at(tmp_path / "state") == len(before), "a checkpoint")
            daemon.until_page("/v1/summary", 200, f'"n":{len(before)},')
            assert learned_at(tmp_path / "state") == {"positive": 4.0, "negative": 1.0}
        with Daemon(config) as daemon:
            daemon.until_page("/v1/search?q=again", 200, "back again")
            found = ask(daemon.address, "GET", "/v1/search?q=")[1]["messages"]
            assert sorted(each["text"] for each in found) == ["back again", *["lovely sun"] * 2]
            assert daemon.metric("streamnb_rejects_total") == 0
            assert daemon.stop() == 0
    left = [("back again", "negative"), *[("lovely sun", "positive")] * 2]
    assert counts_at(tmp_path / "state") == counts_of(left)


def playing(values: list[bytes]) -> Callable[[Peer], None]:
    """Return a script that sends frames of a WebSocket, and waits."""

    def script(peer: Peer) -> None:
        peer.accept()
        peer.send(b"".join(map(frame, values)))
        peer.until_closed()

    return script


def learned_at(state: Path) -> dict[Any, float]:
    """Return the examples that the newest checkpoint has learned, by class."""
    model = read(state / "model.nb").model
    return dict(zip(model.classes, model.class_counts.tolist(), strict=True))


def test_an_update_takes_the_place_of_its_message(tmp_path: Path) -> None:
    """The page finds and lists the new text alone, of messages with a label and without."""
    messages: list[dict[str, object]] = [
        {"id": "a", "text": "good morning", "label": 4},
        {"id": "b", "text": "good evening"},
        {"id": "c", "text": "good night", "label": 0},
        {"id": "a", "text": "fine morning", "label": 0, "operation": "update"},
        {"id": "b", "text": "fine evening", "operation": "update"},
    ]
    stream = tmp_path / "stream.jsonl"
    stream.write_text("".join(json.dumps(message) + "\n" for message in messages))
    config = write_config(tmp_path / "config.yaml", source=f"file:{stream}")
    with Daemon(config) as daemon:
        for name in ("a", "b"):
            daemon.until_page("/v1/search?q=fine", 200, f'"id":"{name}"')
        daemon.until_page("/v1/summary", 200, '"n":3,')
        found = {
            word: ask(daemon.address, "GET", f"/v1/search?q={word}")[1]["messages"]
            for word in ("fine", "good", "morning")
        }
        assert sorted((each["id"], each["text"]) for each in found["fine"]) == [
            ("a", "fine morning"), ("b", "fine evening")
        ]  # fmt: skip
        assert [each["id"] for each in found["good"]] == ["c"]
        assert [each["text"] for each in found["morning"]] == ["fine morning"]
        assert ask(daemon.address, "GET", "/v1/messages/a")[1]["text"] == "fine morning"
        assert daemon.stop() == 0
    model = read(tmp_path / "state" / "model.nb").model
    assert model.class_counts.tolist() == [2.0, 0.0]


@pytest.mark.parametrize("publish", ["interval", "examples"])
@pytest.mark.parametrize("kind", ["words", "categories", "flags", "numbers"])
def test_groups_of_each_kind_take_back(tmp_path: Path, kind: str, publish: str) -> None:
    """Beside the text or alone: the counts are those of a log without what was deleted."""
    values: dict[str, Callable[[int], object]] = {
        "words": str, "categories": str, "flags": lambda i: i % 2 == 0, "numbers": float
    }  # fmt: skip
    log: list[dict[str, object]] = []
    for i in range(300):
        text, label = f"word{i % 7} and more", "positive" if i % 3 else "negative"
        log.append({"id": i, "text": text, "label": label, "more": values[kind](i % 5)})
        if i % 4 == 3:
            log.append({"id": i - i % 5, "operation": "delete"})
    gone = {each["id"] for each in log if "operation" in each}
    kept = [each for each in log if each["id"] not in gone]
    models = []
    for name, messages in (("whole", log), ("kept", kept)):
        source = tmp_path / f"{name}.jsonl"
        source.write_text("".join(json.dumps(each) + "\n" for each in messages))
        features = {"text": {}, "beside": {"kind": kind, "fields": ["more"]}}
        replay(
            tmp_path / name, source, model={"features": features, "hash_key": KEY},
            learning={"publish": publish, "publish_examples": 100}, file={"batch_bytes": 4_096},
        )  # fmt: skip
        models.append(read(tmp_path / name / "model.nb").model)
    whole, alone = models
    assert 0 < alone.n_examples == whole.n_examples < 300
    has_moments = kind == "numbers"  # of which the sums round
    assert whole.digest(moments=not has_moments) == alone.digest(moments=not has_moments)


@pytest.mark.integration
@pytest.mark.deep
def test_what_others_delete_of_before_the_beginning_is_not_taken_back(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """A daemon that began later reads the label topic too, and had never learned those messages."""
    topic, labels = new_topic(), new_topic()
    own = [("sun", "negative")] * 1490 + [("rain", "positive")] * 1510
    earlier = [("sun", "negative")] * 44 + [("rain", "positive")] * 56
    fill(broker.address, topic, [message(each, i) for i, each in enumerate(earlier)])
    configs = []
    for start in ("earliest", "latest"):
        (tmp_path / start).mkdir()
        configs.append(
            write_config(
                tmp_path / start / "config.yaml",
                source=f"kafka://{broker.address}/{topic}",
                kafka={"group_id": f"{topic}-{start}", "start_from": start},
                corrections={"to": f"kafka:{labels}"},
            )
        )
    with Daemon(configs[0]) as first:
        first.until_page("/v1/summary", 200, '"n":100,')
        first.until_it_takes_corrections()
        with Daemon(configs[1]) as later:
            later.until_metric("streamnb_checkpoints_total", 1)
            for i in range(len(earlier)):
                assert ask(first.address, "DELETE", f"/v1/messages/m{i}")[0] == 202
            values = [message(each, i) for i, each in enumerate(own, len(earlier))]
            fill(broker.address, topic, values)
            for daemon, n_before in ((first, len(earlier)), (later, 0)):
                daemon.until_metric("streamnb_corrections_total", len(earlier))
                daemon.until_metric("streamnb_examples_learned_total", n_before + len(own))
                assert daemon.stop() == 0
    for start in ("earliest", "latest"):
        model = read(tmp_path / start / "state" / "model.nb").model
        assert model.class_counts.tolist() == [1490.0, 1510.0], start


def _live(folder: Path, form: str, pieces: list[bytes], n: int, **sections: object) -> str:
    """Learn a live stream of `n` messages; return the last page of metrics."""

    def play(peer: Peer) -> None:
        if form == "ws":
            peer.accept()
            peer.send(b"".join(pieces))
        else:
            peer.begin()
            for piece in pieces:
                peer.chunk(piece)
        peer.until_closed()

    with LiveServer(play) as server:
        scheme = form if form == "ws" else f"{form}+http"
        source = f"{scheme}://{server.host}/stream"
        own = {"source": source, "checkpoint": {"folder": "state"}} | sections
        with Daemon(write_config(folder / "config.yaml", **own)) as daemon:
            daemon.until_metric("streamnb_messages_total", n)
            page = daemon.get("/metrics")[1]
            assert daemon.stop() == 0
    return page


@pytest.mark.parametrize("form", ["sse", "ws"])
def test_mastodon_deletes_and_edits_what_was_learned(form: str, tmp_path: Path) -> None:
    """By server-sent events, and by a WebSocket: an edit takes the place of its post, a deletion is
    an id alone.

    One that comes before its post keeps it from being learned.
    """

    def sent(event: str, payload: str | None = None) -> bytes:
        if form == "ws":
            own: dict[str, str] = {} if payload is None else {"payload": payload}
            return frame(json.dumps({"event": event, **own}).encode())
        return f"event: {event}\ndata: {payload or '{}'}\n\n".encode()

    def post(event: str, number: int, user: str, text: str) -> bytes:
        status = {
            "id": f"{10**17 + number}",
            "account": {"acct": user},
            "content": f"<p>{text}</p>",
        }
        return sent(event, json.dumps(status))

    pieces: list[bytes] = [] if form == "ws" else [b":thump\n\n"]
    pieces += [
        post("update", 1, "ann", "good sun"),
        post("update", 2, "bob", "bad rain"),
        post("update", 3, "ann", "good coffee"),
        post("status.update", 1, "ann", "lovely sun"),
        sent("delete", f"{10**17 + 2}"),
        sent("delete", f"{10**17 + 4}"),
        post("update", 4, "bob", "bad monday"),
        sent("filters_changed"),
    ]
    mapping = {"ann": "positive", "bob": "negative"}
    page = _live(
        tmp_path, form, pieces, 8, message="mastodon",
        labels={"field": "payload.account.acct", "mapping": mapping},
    )  # fmt: skip
    left: list[Example] = [("lovely sun", "positive"), ("good coffee", "positive")]
    assert counts_at(tmp_path / "state") == counts_of(left)
    assert 'streamnb_revisions_total{operation="update",outcome="matched"} 1.0' in page
    assert 'streamnb_revisions_total{operation="delete",outcome="matched"} 1.0' in page
    assert 'streamnb_revisions_total{operation="delete",outcome="unmatched"} 1.0' in page


def test_compliance_events_of_x_delete_what_was_learned(tmp_path: Path) -> None:
    """Of what X tells about posts and accounts a deletion alone takes something back."""

    def told(**data: object) -> bytes:
        return json.dumps({"data": data}).encode() + b"\r\n"

    at = {"event_at": "2026-05-25T14:23:29.000Z"}
    gone = {"tweet": {"id": "2", "author_id": "7"}} | at
    pieces = [
        told(id="1", author_id="7", lang="en", text="good &amp; sunny"),
        told(id="2", author_id="7", lang="de", text="bad rain"),
        b"\r\n",
        told(scrub_geo={"user": {"id": "7"}, "up_to_tweet_id": "1"} | at),
        told(withheld={"tweet": {"id": "1", "author_id": "7"}, "withheld_in_countries": []} | at),
        told(delete=gone),
        told(user_protect={"user": {"id": "7"}} | at),
        told(id="3", author_id="8", lang="de", text="bad monday"),
    ]
    mapping = {"en": "positive", "de": "negative"}
    page = _live(
        tmp_path, "lines", pieces, 7, message="x-v2",
        labels={"field": "data.lang", "mapping": mapping},
    )  # fmt: skip
    left: list[Example] = [("good & sunny", "positive"), ("bad monday", "negative")]
    assert counts_at(tmp_path / "state") == counts_of(left)
    assert 'streamnb_ignored_total{condition="data.id"} 3.0' in page
    assert 'streamnb_revisions_total{operation="delete",outcome="matched"} 1.0' in page
