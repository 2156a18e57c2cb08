"""A state folder that is renamed under a running daemon, and a second daemon on the old name."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from streamnb.storage import read
from tests.endtoend.correction_clients import ask
from tests.endtoend.daemon_process import Daemon, write_config
from tests.endtoend.expected_counts import counts_at, counts_of, examples, messages

N = 400


def config_of(folder: Path, name: str, **more: object) -> Path:
    """Write a stream of `N` examples, and the configuration of a daemon that follows it."""
    (folder / f"{name}.jsonl").write_bytes(b"\n".join(messages(examples(N))) + b"\n")
    sections = {
        "source": f"file:{name}.jsonl",
        "predictions": {"to": f"file:{name}-out.jsonl"},
        "checkpoint": {"folder": "state", "interval_s": 3600},
    }
    return write_config(folder / f"{name}.yaml", **{**sections, **more})


def more(folder: Path, name: str) -> None:
    """Append as many examples again."""
    with (folder / f"{name}.jsonl").open("ab") as file:
        file.writelines(line + b"\n" for line in messages(examples(2 * N))[N:])


@pytest.mark.deep
def test_two_daemons_never_share_a_folder(tmp_path: Path) -> None:
    """The first ends with 73, saved where its folder is now; the second one's files are its own."""
    state, moved = tmp_path / "state", tmp_path / "moved"
    first, second = config_of(tmp_path, "first"), config_of(tmp_path, "second")
    with Daemon(first) as one:
        one.until_metric("streamnb_messages_total", N)
        one.until_page("/v1/summary", 200, f'"n":{N},')
        one.stand_still()  # it notices nothing until the second one is at work
        state.rename(moved)
        with Daemon(second) as two:
            two.until_metric("streamnb_messages_total", N)
            two.until_page("/v1/summary", 200, f'"n":{N},')
            two.until_it_takes_corrections()
            status, _ = ask(two.address, "DELETE", "/v1/messages/m7")
            assert status == 202
            two.until_page("/v1/messages/m7", 404)
            saved = (state / "model.nb").read_bytes()
            one.send(signal.SIGCONT)
            assert one.wait() == 73
            assert "moved or replaced" in one.lines[-1]["text"]
            assert (state / "recent.db-wal").exists()
            assert (state / "model.nb").read_bytes() == saved
            more(tmp_path, "second")
            two.until_page("/v1/summary", 200, f'"n":{2 * N - 1},')
            assert two.stop() == 0
    assert read(moved / "model.nb").positions.keys() >= {"file:first.jsonl/0"}
    assert counts_at(moved) == counts_of(examples(N))
    kept = [each for i, each in enumerate(examples(2 * N)) if i != 7]
    assert counts_at(state) == counts_of(kept)
    assert b'"m7"' in (state / "corrections.jsonl").read_bytes()
    assert (moved / "corrections.jsonl").read_bytes() == b""
    # Moved back, the first one goes on from where it was.
    state.rename(tmp_path / "of-the-second")
    moved.rename(state)
    more(tmp_path, "first")
    with Daemon(first) as one:
        one.until_metric("streamnb_messages_total", N)
        one.until_page("/v1/summary", 200, f'"n":{2 * N},')
        assert one.count("recent_store_moved_aside") == one.count("learned_damaged") == 0
        assert one.stop() == 0
    assert counts_at(state) == counts_of(examples(2 * N))


@pytest.mark.parametrize("is_there", [True, False])
def test_a_folder_that_is_gone_ends_it(tmp_path: Path, is_there: bool) -> None:
    """Moved away with nothing or another folder in its place: nothing is written in that."""
    state, moved = tmp_path / "state", tmp_path / "elsewhere"
    with Daemon(config_of(tmp_path, "in")) as daemon:
        daemon.until_metric("streamnb_messages_total", N)
        state.rename(moved)
        if is_there:
            state.mkdir()
        assert daemon.wait() == 73
        assert not [line for line in daemon.lines if "Traceback" in json.dumps(line)]
    assert counts_at(moved) == counts_of(examples(N))
    assert [each.name for each in (moved / "learned").rglob("*.records")] == ["0.records"]
    assert state.exists() is is_there
    assert not is_there or not list(state.iterdir())
