"""`streamnb serve --follow`: replicas beside a daemon, killed and started again."""

from __future__ import annotations

import bisect
import contextlib
import http.client
import itertools
import json
import random
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.endtoend.daemon_process import Daemon, command, write_config

TEXT = "what a lovely morning"
N_TEXTS = 1_000  # a request that takes some milliseconds, so a kill comes amid it
STALE_S, N_ASKED = 1.0, 300


def predicted(daemon: Daemon) -> dict[str, Any]:
    """Return the answer to one question."""
    request = urllib.request.Request(
        f"{daemon.address}/v1/predict",
        json.dumps({"text": TEXT}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


@contextlib.contextmanager
def replica_of(config: Path, place: str) -> Iterator[Daemon]:
    """Run a replica until it is ready."""
    with Daemon(config, "--follow", place, "--port", "0", name="serve") as replica:
        replica.until_page("/readyz", 200)
        yield replica


@pytest.mark.deep
@pytest.mark.slow
def test_replicas_outlive_their_daemon(tmp_path: Path) -> None:
    """By URL and by folder they answer as the daemon does, also once that is gone."""
    lines = [json.dumps({"text": TEXT, "label": "positive"})] * 30
    lines += [json.dumps({"text": "an awful evening", "label": "negative"})] * 30
    (tmp_path / "tweets.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")
    config = write_config(
        tmp_path / "config.yaml",
        source=f"file:{tmp_path / 'tweets.jsonl'}",
        checkpoint={"folder": str(tmp_path / "state")},
        http={"port": 0, "snapshots": True},
        follow={"interval_s": 0.05},
    )
    with Daemon(config) as daemon:
        daemon.until_page("/v1/model", 200, '"n_examples":60,')
        with replica_of(config, daemon.address) as by_url:
            by_url.until(lambda: predicted(by_url) == predicted(daemon), "it has the version")
            last = predicted(daemon)
            assert daemon.stop() == 0
            by_url.until_metric("streamnb_follow_failures_total", 1)
            found = predicted(by_url)
            assert (found["predictions"], found["n_examples"]) == (last["predictions"], 60)
            assert by_url.stop() == 0
    with replica_of(config, str(tmp_path / "state")) as by_folder:
        found = predicted(by_folder)
        assert (found["predictions"], found["n_examples"]) == (last["predictions"], 60)
    numbers = {"features": {"size": {"kind": "numbers", "fields": ["amount"]}}}
    other = write_config(tmp_path / "other.yaml", model=numbers)
    done = command("serve", "-c", other, "--follow", "state", folder=tmp_path)
    assert done.returncode == 78
    assert b"reads text (words)" in done.stderr


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_what_answers_is_whole_whoever_is_killed(tmp_path: Path) -> None:
    """While a daemon learns at full rate, one version gives one answer, at any replica."""
    config = write_config(
        tmp_path / "config.yaml",
        source="generator",
        generator={"rate_per_s": 0},
        checkpoint={"folder": str(tmp_path / "state"), "interval_s": 0.5},
        http={"port": 0, "snapshots": True},
        follow={"interval_s": 0.02},
    )
    chance = random.Random(16)
    for _ in range(2):
        answers: dict[int, dict[str, Any]] = {}
        with Daemon(config) as daemon:
            daemon.until_metric("streamnb_snapshot_version", 2)
            with replica_of(config, daemon.address) as one:
                for _ in range(2):
                    with replica_of(config, daemon.address) as two:
                        for _ in range(chance.randrange(10, 60)):
                            for each in (one, two, daemon):
                                found = predicted(each)
                                version = found["snapshot_version"]
                                assert answers.setdefault(version, found) == found
                        two.kill()
                one.until_metric("streamnb_follow_deltas_total", 1)
                before = predicted(one)
                daemon.kill()
                found = predicted(one)  # of a version, perhaps, that nobody was asked for yet
                version = found["snapshot_version"]
                assert version >= before["snapshot_version"]
                assert answers.setdefault(version, found) == found
        assert len(answers) > 2


class Asker(threading.Thread):
    """Asks an address for many predictions again and again, and keeps each whole answer."""

    def __init__(self, address: str, body: dict[str, Any], pause_s: float = 0.0) -> None:
        super().__init__()
        self._host, self._body = address.removeprefix("http://"), json.dumps(body)
        self._pause_s = pause_s
        self._enough = threading.Event()
        self.answers: list[tuple[float, float, dict[str, Any]]] = []  # begin, end, what was said
        self.headers: list[dict[str, str]] = []
        self.begun_s = 0.0  # when a request began that has no answer yet, else 0
        self.n_cut = 0

    def run(self) -> None:
        """Ask until it is enough."""
        while not self._enough.wait(self._pause_s):
            connection = http.client.HTTPConnection(self._host, timeout=60)
            try:
                connection.connect()
                self.begun_s = began_s = time.monotonic()
                connection.request(
                    "POST", "/v1/predict", self._body, {"Content-Type": "application/json"}
                )
                answer = connection.getresponse()
                said = answer.read()
                assert answer.status == 200, said
                self.headers.append(dict(answer.getheaders()))
                self.answers.append((began_s, time.monotonic(), json.loads(said)))
            except (OSError, http.client.HTTPException):
                self.n_cut += self.begun_s > 0
            self.begun_s = 0.0
            connection.close()

    def end(self) -> None:
        """Leave off."""
        self._enough.set()
        self.join()


@contextlib.contextmanager
def asking(*given: tuple[str, dict[str, Any], float]) -> Iterator[list[Asker]]:
    """Ask addresses at once, until the block ends."""
    askers = [Asker(*each) for each in given]
    for asker in askers:
        asker.start()
    try:
        yield askers
    finally:
        for asker in askers:
            asker.end()


def learning(folder: Path, rate_per_s: int = 0) -> Path:
    """Return the configuration of a daemon that learns with the default model, a hybrid."""
    return write_config(
        folder / "config.yaml",
        source="generator",
        generator={"rate_per_s": rate_per_s},
        checkpoint={"folder": str(folder / "state")},
        http={"port": 0, "snapshots": True},
        follow={"interval_s": 0.02},
    )


@pytest.mark.deep
def test_answers_are_at_most_a_second_behind_the_learner(tmp_path: Path) -> None:
    """By the time at which a version is published, not by what replicas say of themselves: two are
    asked at once, and 99 of 100 answers of each have what was published a second before.

    A version is taken to be there since the daemon's last answer without it, which is a little
    too early, so no answer passes for fresher than it is.
    """
    config = learning(tmp_path, 2_000)
    with Daemon(config) as daemon:
        daemon.until_metric("streamnb_snapshot_version", 2)
        with replica_of(config, daemon.address) as one, replica_of(config, daemon.address) as two:
            given = [(each.address, {"text": TEXT}, 0.02) for each in (one, two)]
            with asking((daemon.address, {"text": TEXT}, 0.005), *given) as (ours, *replicas):
                daemon.until(lambda: min(len(r.answers) for r in replicas) >= N_ASKED, "answers")
    versions = [said["snapshot_version"] for _, _, said in ours.answers]
    assert versions == sorted(versions)
    assert len(set(versions)) > 5
    for replica in replicas:
        assert replica.n_cut == 0
        ages_s = []
        for _, end_s, said in replica.answers:
            newer = bisect.bisect_right(versions, said["snapshot_version"])
            is_there = 0 < newer < len(versions)
            ages_s.append(end_s - ours.answers[newer - 1][0] if is_there else 0.0)
        assert np.quantile(ages_s, 0.99) <= STALE_S


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_no_answer_is_torn_by_a_kill_amid_requests(tmp_path: Path) -> None:
    """Replicas are killed while they answer: what came whole is the answer of its version."""
    config = learning(tmp_path)
    body = {"texts": [f"{TEXT} {i % 7}" for i in range(N_TEXTS)]}
    askers: list[Asker] = []
    with Daemon(config) as daemon:
        daemon.until_metric("streamnb_snapshot_version", 2)
        with replica_of(config, daemon.address) as stays:
            for _ in range(5):
                with replica_of(config, daemon.address) as victim:
                    given = [(each.address, body, 0.0) for each in (victim, victim, stays)]
                    with asking(*given) as found:
                        first = found[0]
                        daemon.until(lambda: len(first.answers) >= 3, "answers")  # noqa: B023
                        deadline_s = time.monotonic() + 60
                        while not first.begun_s and time.monotonic() < deadline_s:
                            pass
                        victim.kill()
                    askers += found
    by_version: dict[int, dict[str, Any]] = {}
    for asker in askers:
        for _, _, said in asker.answers:
            assert len(said["predictions"]) == N_TEXTS
            assert by_version.setdefault(said["snapshot_version"], said) == said
    assert sum(asker.n_cut for asker in askers) >= 5  # requests that were under way
    assert len(by_version) > 2


@pytest.mark.deep
def test_replicas_behind_one_address_say_their_versions(tmp_path: Path) -> None:
    """A proxy hands requests to two replicas in turn: each answer names its version, in the body
    and the header, and answers of one version are equal, whoever gave them: some came from both.
    """
    config = learning(tmp_path)
    with Daemon(config) as daemon:
        daemon.until_metric("streamnb_snapshot_version", 2)
        with (
            replica_of(config, daemon.address) as one,
            replica_of(config, daemon.address) as two,
            round_robin(one.address, two.address) as (address, (first, second)),
        ):
            given = address, {"text": TEXT}, 0.01
            with asking(given, given) as askers:
                daemon.until(lambda: min(len(a.answers) for a in askers) >= N_ASKED, "answers")
                daemon.until(lambda: bool(first & second), "a version that both gave")
    by_version: dict[int, dict[str, Any]] = {}
    for asker in askers:
        for (_, _, said), headers in zip(asker.answers, asker.headers, strict=True):
            version = said["snapshot_version"]
            assert headers["streamnb-snapshot-version"] == str(version)
            assert float(headers["streamnb-follow-age"]) >= 0
            assert by_version.setdefault(version, said) == said
    assert len(by_version) > 5


@contextlib.contextmanager
def round_robin(*addresses: str) -> Iterator[tuple[str, list[set[int]]]]:
    """Give one address whose connections go to each of these in turn, and the versions in the
    answers of each.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    backends = [address.removeprefix("http://").split(":") for address in addresses]
    versions: list[set[int]] = [set() for _ in backends]
    turns = itertools.cycle(range(len(backends)))

    def forward(source: socket.socket, target: socket.socket, passed: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                passed += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client, next(turns)), daemon=True).start()

    def serve(client: socket.socket, at: int) -> None:
        (host, port), said = backends[at], bytearray()
        with client, socket.create_connection((host, int(port)), 60) as server:
            back = threading.Thread(target=forward, args=(server, client, said), daemon=True)
            back.start()
            forward(client, server, bytearray())
            back.join()
        if found := re.search(rb"streamnb-snapshot-version: ([0-9]+)", said, re.IGNORECASE):
            versions[at].add(int(found[1]))

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", versions
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
