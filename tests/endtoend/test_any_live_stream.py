"""A live stream of anybody's, by the paths of its messages: the whole daemon, with a token."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.consumers.sources.live_server import LiveServer, Peer, frame
from tests.endtoend.daemon_process import Daemon, write_config
from tests.endtoend.expected_counts import counts_at, counts_of, examples

N, N_ASKED = 30, 3
TOKEN = "a-token-of-nobody"
DAY = "2026-11-2{}T08:00:00Z"


@pytest.mark.parametrize("scheme", ["sse+http", "lines+http", "ws"])
def test_any_live_stream_is_learned_by_its_paths(tmp_path: Path, scheme: str) -> None:
    """Id, text, time, author and label are found where the settings say, and what has no label is
    judged by what was learned; the token comes from the environment, and what is no post is
    ignored.
    """
    learned = examples(N)
    posts = [
        {"key": i, "said": {"body": text}, "mood": label, "at": DAY.format(3), "by": "ann"}
        for i, (text, label) in enumerate(learned)
    ]
    posts += [
        {"key": f"q{i}", "said": {"body": text}, "at": DAY.format(4), "by": "bob"}
        for i, (text, _) in enumerate(learned[:N_ASKED])
    ]
    values = [json.dumps({"post": each}).encode() for each in posts] + [b'{"heartbeat": 1}']

    def play(peer: Peer) -> None:
        if scheme == "ws":
            peer.accept()
            peer.send(b"".join(map(frame, values)))
        else:
            peer.begin()
            begin, end = (b"data: ", b"\n\n") if scheme == "sse+http" else (b"", b"\r\n")
            peer.chunk(b"".join(begin + value + end for value in values))
        peer.until_closed()

    with LiveServer(play) as server:
        config = write_config(
            tmp_path / "config.yaml",
            source=f"{scheme}://{server.host}/some/stream?of=mine",
            live={"token": "${SOME_TOKEN}"},
            message={
                "id": "post.key", "text": "post.said.body", "time": "post.at", "user": "post.by",
                "keep": {"post.key": "any"},
            },
            labels={"field": "post.mood"},
            learning={"publish": "examples", "publish_examples": 1},
            predictions={"to": "file:out.jsonl"},
            checkpoint={"folder": "state"},
        )  # fmt: skip
        with Daemon(config, env={"SOME_TOKEN": TOKEN}) as daemon:
            daemon.until_metric("streamnb_messages_total", len(values))
            assert daemon.metric("streamnb_rejects_total") == 0
            asked = daemon.until_page("/v1/messages/q0", 200)
            assert daemon.stop() == 0
            summary = daemon.summary
        (peer, *_) = server.peers
        assert peer.path == "/some/stream"
        assert peer.asked == {"of": "mine"}
        assert peer.header("Authorization") == f"Bearer {TOKEN}"
    assert (summary["learned"], summary["judged"]) == (N, N_ASKED)
    assert summary["ignored"] == {"post.key": 1}
    assert asked["user"] == "bob"
    assert counts_at(tmp_path / "state") == counts_of(learned)
    out = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert [each["id"] for each in out] == [f"q{i}" for i in range(N_ASKED)]
    assert {each["time_ms"] for each in out} == {1_795_507_200_000}
