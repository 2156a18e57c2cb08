"""A daemon that has read a small file of messages, for tests of the whole API."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from tests.endtoend.daemon_process import Daemon, write_config

GOOD = ["obama spoke so well today", "what a lovely morning", "great coffee and good news"]
BAD = ["obama spoke so badly today", "what an awful morning", "bad coffee and sad news"]
N_MESSAGES = 60
SITE = "https://board.example.org"  # that may frame the card
RARE = 31  # a negative message with a word of its own, quagga


def message(i: int) -> dict[str, object]:
    """Return message `i`: even ones are good, and each third of them has no label."""
    texts, label = ((GOOD, "positive"), (BAD, "negative"))[i % 2]
    found: dict[str, object] = {
        "id": f"t{i}",
        "created_at": f"2026-11-21T10:00:{i % 60:02d}Z",
        "user": ("ann", "bob")[i % 2],
        "lang": "en" if i % 10 else "fr",
        "text": texts[i // 2 % 3] if i != RARE else "a quagga behaves badly",
    }
    return found if i % 3 == 2 else found | {"label": label}


@contextlib.contextmanager
def reading_daemon(folder: Path, **http: object) -> Iterator[Daemon]:
    """Run a daemon in a folder, once all messages are stored; it waits for more."""
    lines = [json.dumps(message(i)) for i in range(N_MESSAGES)]
    (folder / "tweets.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")
    config = write_config(
        folder / "config.yaml",
        source=f"file:{folder / 'tweets.jsonl'}",
        labelling={"enabled": True},
        http={"port": 0, "embed_sites": [SITE], **http},
        checkpoint={"folder": str(folder / "state"), "interval_s": 0.5},
    )
    with Daemon(config) as daemon:
        daemon.until_page("/v1/page", 200, f'"messages":{N_MESSAGES},')
        daemon.until_page("/v1/page", 200, '"enabled":true')
        daemon.until_page("/v1/model", 200, '"n":40,')
        daemon.until_page("/v1/model", 200, '"n_examples":40,')  # in the snapshot too
        yield daemon
        daemon.stop()
