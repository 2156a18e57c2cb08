"""What the stream deletes is gone from the page, in the order of the stream."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

from tests.endtoend.correction_clients import ask
from tests.endtoend.daemon_process import Daemon, write_config


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
        path = quote(of_ann, safe="")
        assert ask(daemon.address, "GET", f"/v1/messages/{path}")[1]["id"] == of_ann
        assert ask(daemon.address, "DELETE", f"/v1/messages/{path}")[0] == 202
        daemon.until_page("/v1/summary", 200, '"n":0,')
