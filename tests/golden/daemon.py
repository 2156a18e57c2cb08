"""A daemon on a made-up file, corrected over HTTP and stopped in the middle; and what it ends with.

Only the `streamnb` command and its HTTP API are used, so the same code drives an older tree.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.endtoend.daemon_process import Daemon, command, write_config
from tests.golden.models import ENDINGS, OPENINGS, TOPICS

N = 600
READ_FIRST = 300  # messages, before people correct
READ_NEXT = 150  # messages, before it is stopped
INPUT = "input.jsonl"
CORRECTED = 12  # how many corrections are sent
ASKED = ({"text": "never a good day :)"}, {"message": {"text": "win", "lang": "de", "score": 3.5}})
KEPT = ("id", "time_ms", "user", "lang", "text", "label", "probability", "truth", "corrected")


def lines() -> list[bytes]:
    """Return the messages: labelled ones, others, deletions, and lines that are none."""
    found = []
    for i in range(N):
        message: dict[str, Any] = {
            "id": f"m{i}",
            "created_at": f"2026-01-{1 + i // 60:02}T12:{i % 60:02}:00Z",
            "user": f"user{i % 9}",
            "lang": ("en", "de", "fr")[i % 3],
            "text": f"{OPENINGS[i % 6]} {TOPICS[i * i % 7]} {ENDINGS[i % 8]} n{i % 31}",
            "verified": i % 4 == 0,
        }
        if i % 5:
            message["label"] = ("positive", "negative")[i * 7 % 5 < 2]
            message["score"] = (i * 37 % 101) / 7
        if i % 50 == 49:
            message = {"id": f"m{i - 20}", "operation": "delete"}
        found.append(json.dumps(message, ensure_ascii=False).encode() if i % 97 else b"{ no JSON")
    return found


def configure(folder: Path, words: Mapping[str, Any], **more: object) -> Path:
    """Write the configuration beside the input, with more settings of the words and of all."""
    return write_config(
        folder / "config.yaml",
        source=f"file:{INPUT}",
        checkpoint={"folder": "state", "interval_s": 0.5},
        recent={"age_max_s": 3e9},  # made-up times stay, however late a test runs
        rejects={"to": "none"},
        model={
            "features": {
                "text": {"kind": "words", "ngrams": [1, 2], "negation": True, **words},
                "kinds": {"kind": "categories", "fields": ["lang"]},
                "answers": {"kind": "flags", "fields": ["verified"]},
                "measures": {"kind": "numbers", "fields": ["score"]},
            }
        },
        **more,
    )


def write_state(folder: Path) -> None:
    """Run a daemon on the first part of the input, correct it, run it on, and stop it."""
    every = lines()
    stream = folder / INPUT
    stream.write_bytes(b"\n".join(every[:READ_FIRST]) + b"\n")
    config = configure(folder, {})
    with Daemon(config) as daemon:
        daemon.until_page(f"/v1/messages/m{READ_FIRST - 2}", 200)
        daemon.until(lambda: _is_open(daemon), "a correction service")
        _correct(daemon)
        daemon.until_metric("streamnb_corrections_total", CORRECTED)
        assert daemon.stop() == 0
    stream.write_bytes(b"\n".join(every) + b"\n")
    with Daemon(config, "--max-messages", str(READ_NEXT)) as daemon:
        assert daemon.wait() == 0


def _is_open(daemon: Daemon) -> bool:
    page = json.loads(daemon.get("/v1/page")[1])
    return "corrections" in page and page["corrections"]["reason"] is None


def _correct(daemon: Daemon) -> None:
    """Relabel messages, teach new ones, take some away."""
    for i in (12, 33, 57, 101, 203):
        truth = ask(daemon, "GET", f"/v1/messages/m{i}")["truth"]
        other = "negative" if truth == "positive" else "positive"
        ask(daemon, "POST", "/v1/labels", {"id": f"m{i}", "label": other})
    for i in (10, 40, 205):  # they came without a label
        ask(daemon, "POST", "/v1/labels", {"id": f"m{i}", "label": "positive"})
    for text in ("a prize never won", "coffee at noon <3"):
        ask(daemon, "POST", "/v1/labels", {"text": text, "label": "negative"})
    for i in (66, 110):
        ask(daemon, "DELETE", f"/v1/messages/m{i}")


def ask(daemon: Daemon, method: str, path: str, body: object = None) -> Any:
    """Return the JSON of one request, which must be answered well."""
    data = None if body is None else json.dumps(body).encode()
    headers = {} if body is None else {"Content-Type": "application/json"}
    request = urllib.request.Request(daemon.address + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def go_on(
    folder: Path, words: Mapping[str, Any] | None = None, more: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Let a state go on to the end of the input; return what is known and answered then.

    `words` are further settings of the model's words, and `more` goes with each question: an older
    tree may not know them.
    """
    words, more = words or {}, more or {}
    # The first version took nothing back that the stream deletes.
    config = configure(folder, words, learned={"messages_max": 0})
    (folder / INPUT).write_bytes(b"\n".join(lines()) + b"\n")
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0, daemon.lines[-5:]
        refused = daemon.count("correction_refused")
        changed = daemon.count("hybrid_changed")
    counts = inspected(folder)
    with Daemon(config) as daemon:
        daemon.until(lambda: _is_open(daemon), "a page")
        daemon.until_page("/v1/messages/m12", 200)
        answers = [
            ask(daemon, "POST", "/v1/predict", {**asked, **more})["predictions"] for asked in ASKED
        ]
        found = ask(daemon, "GET", "/v1/search?q=coffee&limit=200")
        kept = [ask(daemon, "GET", f"/v1/messages/m{i}") for i in (12, 10, 100, 355, 440)]
        assert daemon.stop() == 0
        assert changed == words.get("hybrid", False)
        assert daemon.count("words_read_as_stored") == bool(words)  # an older tree has no such line
        assert not daemon.count("hybrid_changed")
    return {
        "refused": refused,
        "counts": counts,
        "answers": answers,
        "found": [message["id"] for message in found["messages"]],
        "kept": [{name: message[name] for name in KEPT} for message in kept],
    }


def inspected(folder: Path) -> dict[str, Any]:
    """Return all that `inspect` says of the newest checkpoint, without its path."""
    done = command("inspect", "state/model.nb", "--words", "100000", "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    del found["path"]
    for name in ("words", "values"):  # those that are as frequent may stand in any order
        found[name].sort(key=lambda row: (row["group"], row.get("word") or row["value"]))
    found["sections"].sort(key=lambda section: section["name"])
    return found
