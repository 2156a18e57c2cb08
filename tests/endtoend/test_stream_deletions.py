"""What the stream deletes is gone from the page, in the order of the stream."""

from __future__ import annotations

import json
from pathlib import Path

from tests.endtoend.correcting import ask
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
