"""The real Jetstream server over a simulated network, where the folder of its programs is there."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import msgspec
import zstandard

from consumers.config.settings import Settings
from consumers.sources.base import Cursor, Past
from consumers.sources.connections import Received
from consumers.sources.jetstream import JetstreamFeed
from consumers.sources.live import LiveSource
from streamnb.storage import read
from tests.broker.broker import free_ports

PATIENCE_S = 120.0
ACCOUNTS, COMMITS_PER_S = 60, 200  # more would cost half a core
# Logged for an account if its verify queue is full and an event is dropped, and if the next commit
# does not follow the last one that was verified.
_DROP_EVENTS = {"verify queue overflow dropped event", "verification failure"}
_MESSAGE_BYTES_MAX = 4 << 20
POST = "app.bsky.feed.post"


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
        self._logs: list[Path] = []
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

    def archived(self, last: int, version: int) -> Iterator[tuple[int, bytes]]:
        """Yield the archived events that a wire sends, by number, up to the one with key `last`.

        Each is a key and a frame of the second wire. After a crash the server may archive an event
        twice; it is yielded once.
        """
        keys: set[int] = set()
        for key, frame in self._archive(version):
            if key in keys:
                continue
            keys.add(key)
            yield key, frame
            if key == last:
                return

    def lost_accounts(self, sent: Mapping[int, bytes], last: int, version: int) -> set[str]:
        """Return the accounts of events that were sent and are not in the archive.

        The archive is read up to the event with key `last`. If events of another account than
        `overflowed` names are still missing there, it is read on: the server verifies accounts in
        parallel, so after a restart the order may differ.
        """
        missing, is_behind = dict(sent), False
        deadline_s = time.monotonic() + PATIENCE_S
        for key, _ in self._archive(version):
            missing.pop(key, None)
            is_behind = is_behind or key == last
            if is_behind:
                accounts = {json.loads(frame)["payload"]["did"] for frame in missing.values()}
                if accounts <= self.overflowed():
                    return accounts
                assert time.monotonic() < deadline_s, f"the archive lacks events of {accounts}"
        raise AssertionError

    def _archive(self, version: int) -> Iterator[tuple[int, bytes]]:
        """Yield keys and frames from the first event on, without end.

        The first wire sends events of accounts and identities whatever is asked for. It does not
        send a resync, by which the server repairs an account after lost commits, nor its records.
        """
        kinds = ("commit", "account", "sync") + (("identity",) if version == 1 else ())
        asked = {"version": 2, "start_at": 1, "kinds": kinds}
        settings = Settings.model_validate({"jetstream": asked})
        feed = JetstreamFeed([f"ws://{self.host}"], settings.jetstream)
        endpoint = feed.endpoint(feed.hosts[0], Past())
        connection = feed.connection(endpoint, Past(), settings.live)
        resynced: set[tuple[str, str]] = set()  # account and revision
        with contextlib.closing(connection):
            while True:
                for received in connection.receive(1.0):
                    message = feed.read(received)
                    if message is None or message.key is None:
                        continue
                    payload = json.loads(message.value)["payload"]
                    if version == 1 and "sync" in payload:
                        resynced.add((payload["did"], payload["sync"]["rev"]))
                    elif (payload["did"], payload.get("rev")) not in resynced:
                        yield message.key, message.value

    def by_key(self, sent: Iterable[bytes], version: int) -> dict[int, bytes]:
        """Return sent frames by their keys, in order; those of wire 1 in the form of wire 2."""
        settings = Settings.model_validate({"jetstream": {"version": version}})
        feed = JetstreamFeed([f"ws://{self.host}"], settings.jetstream)
        url = f"http://{self.host}/xrpc/network.bsky.jetstream.getZstdDictionary"
        with urllib.request.urlopen(url) as answer:
            dictionary = zstandard.ZstdCompressionDict(answer.read())
        unpack = zstandard.ZstdDecompressor(dict_data=dictionary)
        found: dict[int, bytes] = {}
        for packed in sent:
            is_packed = packed.startswith(zstandard.FRAME_HEADER)
            frame = unpack.decompress(packed, _MESSAGE_BYTES_MAX) if is_packed else packed
            message = feed.read(Received(frame))
            if message is None or message.key is None:
                continue
            if version == 1:
                event = json.loads(frame)
                payload = {"did": event["did"], **event.get("commit", {})}
                payload |= {name: event[name] for name in ("account",) if name in event}
                frame = json.dumps({"payload": payload}).encode()
            found.setdefault(message.key, frame)
        return found

    def overflowed(self) -> set[str]:
        """Return the accounts of dropped events, by the logs of the server's last two runs."""
        lines = [line for log in self._logs[-2:] for line in log.read_text().split("\n")[:-1]]
        said = [json.loads(line) for line in lines if line.startswith("{")]
        return {each["did"] for each in said if each["msg"] in _DROP_EVENTS}

    def sealed(self) -> int:
        """Return the number of the last event that only the archive has."""
        url = f"http://{self.host}/xrpc/network.bsky.jetstream.listSegments"
        with urllib.request.urlopen(url) as answer:
            return int(json.loads(answer.read())["segments"][-1]["maxSeq"])

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
        log_path = self._folder / f"{program}{len(self._logs)}.log"
        self._logs.append(log_path)
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


def n_posts(events: Iterable[bytes]) -> int:
    """Return how many posts are left behind events of the second wire.

    A resync, and an account that is deleted, take all of an account's; a resync's records follow.
    """
    posts: dict[str, set[str]] = defaultdict(set)
    for event in events:
        payload = json.loads(event)["payload"]
        own = posts[payload["did"]]
        if "sync" in payload or payload.get("account", {}).get("status") in {
            "deleted",
            "takendown",
        }:
            own.clear()
        elif payload.get("collection") == POST:
            (own.discard if payload["operation"] == "delete" else own.add)(payload["rkey"])
    return sum(map(len, posts.values()))


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


def last_of(state: Path) -> tuple[int, int]:
    """Return number and key of the last message of the newest checkpoint; zeros without one."""
    if not (state / "model.nb").is_file():
        return 0, 0
    logs = read(state / "model.nb").header["notes"]["entries"]["logs"]
    if "jetstream/0" not in logs:  # nothing was read by then
        return 0, 0
    cursor = msgspec.json.decode(logs["jetstream/0"]["cursor"], type=Cursor)
    number, key = (int.from_bytes(each[-8:], "little") for each in (cursor.numbers, cursor.keys))
    return number, key
