"""The real Jetstream server at full rate, read on both wires; all are killed again and again.

At last a reader begins with the archive, is killed while it catches up, and goes on live.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.campaigns.campaign import ROOT, Run
from tests.endtoend.daemon_process import Daemon, command, write_config
from tests.endtoend.expected_counts import counts_at
from tests.endtoend.jetstream_server import JetstreamServer, last_key_at, last_of, position_at

STEP_S = 60.0
AWAY_S = 15.0
ACCOUNTS, COMMITS_PER_S = 200, 1_000
KILLS_BEHIND = 5  # of the reader that begins with the archive
BEYOND = 200  # messages, or numbers, that it reads live
_POST = "app.bsky.feed.post"
_RECORDS = {1: "commit.record", 2: "payload.record"}


class Reader:
    """A daemon that reads one wire from the archive's beginning, and is killed at some instant."""

    def __init__(self, folder: Path, source: str, version: int, **jetstream: Any) -> None:
        self.version = version
        self.name = folder.name
        self.state = folder / "state"
        self.config = _config(folder, source, version, **jetstream)
        self.daemon = Daemon(self.config)
        self.reached = 0
        self.gaps: list[dict[str, Any]] = []

    def kill(self) -> None:
        """End it as a crash would, and start it again."""
        self.daemon.kill()
        self._note_gaps()
        self.daemon = Daemon(self.config)

    def _note_gaps(self) -> None:
        """Keep what this life says of gaps: its figures begin anew with the next."""
        self.gaps += [line for line in self.daemon.lines if line.get("event") == "stream_gap"]

    def stop(self) -> None:
        """End it in order, and look at all of its lives: none had a gap or a reject."""
        assert self.daemon.metric("streamnb_stream_gaps_total") == 0
        assert self.daemon.stop() == 0
        self._note_gaps()
        assert self.gaps == [], self.name
        assert (self.state.parent / "rejects.jsonl").read_bytes() == b""

    def end(self) -> None:
        """End it for good."""
        self.daemon.kill()

    def until_it_goes_on(self) -> None:
        """Wait for a checkpoint behind the one that was waited for before."""
        self.daemon.until(lambda: position_at(self.state) > self.reached, "a checkpoint")
        self.reached = position_at(self.state)


def jetstream(run: Run) -> None:
    """The real Jetstream server and its readers, killed each minute: the counts of its archive."""
    data = Path(os.environ.get("STREAMNB_DATA") or ROOT.parent / "shared" / "data")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jetstream-")))
        server = JetstreamServer(
            data.parent / "jetstream", folder, accounts=ACCOUNTS, commits_per_s=COMMITS_PER_S
        )
        stack.callback(server.stop)
        source = f"jetstream+ws://{server.host}"
        n_before, began_s = server.sealed(), time.monotonic()  # accounts have posts by then
        readers = [Reader(folder / f"wire {version}", source, version) for version in (1, 2)]
        for reader in readers:
            stack.callback(reader.end)
        chance = random.Random()
        for chance, _ in run.steps():
            _one_minute(chance, server, readers)
            run.figures["kills of the server"] += 1
            run.figures["kills of a daemon"] += len(readers)
        late = Reader(folder / "history", source, 2, start_at=None, history=True)
        stack.callback(late.end)
        _catch_up(chance, server, late, position_at(readers[1].state))
        run.figures["kills of a daemon"] += KILLS_BEHIND
        for reader in (*readers, late):
            reader.stop()
            seconds = time.monotonic() - began_s
            _compare(folder / f"archive of {reader.name}", server, reader, run)
            n = run.figures["events that the server numbered"]
            run.figures["events a second"] = int((n - n_before) / seconds)


def _one_minute(chance: random.Random, server: JetstreamServer, readers: list[Reader]) -> None:
    """Let time pass, and kill each at an instant of its own."""
    began_s = time.monotonic()
    victims: list[tuple[float, Any]] = [(chance.uniform(5, STEP_S - 10), server)]
    victims += [(chance.uniform(5, STEP_S - 10), reader) for reader in readers]
    for at_s, victim in sorted(victims, key=lambda each: each[0]):
        readers[0].daemon.until(
            lambda: time.monotonic() >= began_s + at_s,  # noqa: B023
            "the kill",
        )
        victim.kill()
        if victim is server:  # the longer it is away, the faster it sends what it has to catch up
            back_s = time.monotonic() + chance.uniform(0, AWAY_S)
            readers[0].daemon.until(lambda: time.monotonic() >= back_s, "its return")  # noqa: B023
            server.start()
    readers[0].daemon.until(lambda: time.monotonic() >= began_s + STEP_S, "the end of the minute")
    for reader in readers:
        reader.until_it_goes_on()


def _catch_up(
    chance: random.Random, server: JetstreamServer, late: Reader, n_archived: int
) -> None:
    """Let a reader come from the archive's beginning to what is sent live, across kills."""
    for enough in sorted(chance.randrange(n_archived) for _ in range(KILLS_BEHIND)):
        late.daemon.until(lambda: position_at(late.state) > enough, "the kill")  # noqa: B023
        late.kill()
    late.daemon.until(lambda: position_at(late.state) > n_archived + BEYOND, "live messages")
    sealed = server.sealed()  # the archive grew meanwhile, and what is in it was perhaps not live
    late.daemon.until(lambda: last_of(late.state)[0] > sealed + BEYOND, "messages behind it")


def _compare(folder: Path, server: JetstreamServer, reader: Reader, run: Run) -> None:
    """Hold a reader's counts against those of the archive up to its last message."""
    folder.mkdir()
    file = folder / "events.jsonl"
    said = Counter[str]()
    with file.open("wb") as lines:
        for _, event in server.archived(last_key_at(reader.state), reader.version):
            lines.write(event + b"\n")
            payload = json.loads(event)["payload"]
            what = next((each for each in ("account", "sync") if each in payload), "other")
            said[payload.get("operation") or what] += 1
            # The network makes fewer than it is asked for if the machine has other work.
            run.figures["events that the server numbered"] = payload["seq"]
    plain = _config(folder, f"file:{file}", 2)
    ended = command("run", "--config", plain, "--until-end", folder=folder)
    assert ended.returncode == 0, ended.stderr
    assert counts_at(reader.state) == counts_at(folder / "state")
    assert position_at(reader.state) == said.total()
    for name, n in said.items():
        run.figures[f"{name} on {reader.name}"] = n


def _config(folder: Path, source: str, version: int, **jetstream: Any) -> Path:
    """Return a configuration that learns a post's words by what its record is."""
    folder.mkdir(exist_ok=True)
    return write_config(
        folder / "config.yaml",
        source=source,
        jetstream={"version": version, "start_at": 1, **jetstream},
        live={"retry_pause_s": 0.05, "retry_pause_max_s": 0.2},
        message="jetstream" if version == 1 else "jetstream-v2",
        labels={"field": f"{_RECORDS[version]}.$type", "mapping": {_POST: "positive"}},
        checkpoint={"folder": "state", "interval_s": 0.2 if jetstream else 0.5},
        rejects={"to": "file:rejects.jsonl"},
    )
