"""The real Jetstream server over a simulated network, where the folder of its programs is there."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from consumers.config.settings import Settings
from consumers.sources.connections import Cursor, Past
from consumers.sources.jetstream import JetstreamFeed
from consumers.sources.live import LiveSource
from streamnb.storage import read
from tests.broker.broker import free_ports

PATIENCE_S = 120.0
ACCOUNTS, COMMITS_PER_S = 60, 200  # more would cost half a core


class JetstreamServer:
    """`simulator` and `jetstream` on loopback; the second can be killed and started again."""

    def __init__(
        self,
        programs: Path,
        folder: Path,
        *,
        accounts: int = ACCOUNTS,
        commits_per_s: int = COMMITS_PER_S,
    ) -> None:
        self._programs = programs
        self._folder = folder
        self._ports = free_ports(2)
        self.host = f"127.0.0.1:{self._ports[0]}"
        self._running: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []
        network = f"127.0.0.1:{self._ports[1]}"
        self._start(
            "simulator", '"http listening"', "--addr", network, "--accounts", str(accounts),
            "--commits-per-sec", str(commits_per_s), "--firehose-history", "1000000",
        )  # fmt: skip
        self.start()

    def start(self, *options: str) -> None:
        """Start the server of streams, on what it had archived, of which it takes nothing away
        unless the options say so.
        """
        network = f"http://127.0.0.1:{self._ports[1]}"
        self._start(
            "jetstream", "steady-state consumer running", "--addr", self.host,
            "--relay-url", network, "--plc-url", network, "--compaction-interval", "0s", *options,
        )  # fmt: skip

    def kill(self) -> None:
        """End the server of streams as a crash would."""
        process, log = self._running.pop()
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
        log.close()

    def stop(self) -> None:
        """End both."""
        while self._running:
            self.kill()

    def archived(self, last: int, *kinds: str) -> Iterator[bytes]:
        """Yield the frames of these kinds in the archive, by number, up to the one of a key.

        After a crash the server may archive an event twice.
        """
        asked = {"version": 2, "start_at": 1, "kinds": kinds}
        settings = Settings.model_validate({"jetstream": asked})
        feed = JetstreamFeed([f"ws://{self.host}"], settings.jetstream)
        keys: set[int] = set()
        endpoint = feed.endpoint(feed.hosts[0], Past())
        connection = feed.connection(endpoint, Past(), settings.live)
        with contextlib.closing(connection):
            while True:
                for received in connection.receive(1.0):
                    message = feed.read(received)
                    if message is None or message.key is None or message.key in keys:
                        continue
                    keys.add(message.key)
                    yield message.value
                    if message.key == last:
                        return

    def frames(self, last: int, **jetstream: Any) -> list[bytes]:
        """Return what a source with these settings brings, up to the first event beyond `last`."""
        settings = Settings.model_validate({"jetstream": {"version": 2, **jetstream}})
        feed = JetstreamFeed([f"ws://{self.host}"], settings.jetstream)
        source = LiveSource(feed, settings.live)
        found: list[bytes] = []
        with contextlib.closing(source):
            source.open(lambda _: None)
            while True:
                for raw in source.poll(1.0):
                    for i in range(len(raw)):
                        found.append(raw.value(i) or b"")
                        if json.loads(found[-1])["payload"]["seq"] > last:
                            return found
                assert source.trouble() is None

    def _start(self, program: str, ready: str, option: str, address: str, *arguments: str) -> None:
        log_path = self._folder / f"{program}.log"
        log = log_path.open("wb")
        data = ["--data-dir", str(self._folder / program)]
        more = [option, address, *arguments]
        command = [str(self._programs / program), "serve", *data, *more]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ))
        self._running.append((process, log))
        deadline_s = time.monotonic() + PATIENCE_S
        while not (ready in log_path.read_text() and _listens(address)):
            assert process.poll() is None, log_path.read_text()[-500:]
            assert time.monotonic() < deadline_s, log_path.read_text()[-500:]
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)


def _listens(address: str) -> bool:
    """Return whether somebody listens there: a server may say that it runs before it does."""
    host, _, port = address.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def position_at(state: Path) -> int:
    """Return the position of the newest checkpoint; 0 where there is none."""
    if not (state / "model.nb").is_file():
        return 0
    return int(read(state / "model.nb").positions.get("jetstream/0", 0))


def last_key_at(state: Path) -> int:
    """Return what the last message of the newest checkpoint is known by."""
    logs = read(state / "model.nb").header["notes"]["entries"]["logs"]
    cursor = msgspec.json.decode(logs["jetstream/0"]["cursor"], type=Cursor)
    return int.from_bytes(cursor.keys[-8:], "little")
