"""Daemons that share a topic: every message is learned once, and each answers from the whole."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.broker.broker import Broker
from tests.consumers.kafka.topics import fill
from tests.endtoend.daemon_process import Daemon, write_config
from tests.endtoend.expected_counts import counts_at, counts_of, examples, message

PARTITIONS = 4
N = 60_000
SESSION_S = 6


class Group:
    """Members of a group, each with a state of its own, and a folder that they share."""

    def __init__(self, folder: Path, source: str, stack: ExitStack, **kafka: object) -> None:
        self.daemons: dict[str, Daemon] = {}
        self.paused: set[str] = set()
        self._stack = stack
        self._folder = folder
        self._sections = {
            "source": source,
            "kafka": {"session_timeout_s": SESSION_S, "max_poll_messages": 500, **kafka},
            "group": {"folder": str(folder / "shared"), "interval_s": 0.2},
            "corrections": {"to": "none"},
        }

    def state(self, name: str) -> Path:
        """Return the folder of a member's own state."""
        return self._folder / name / "state"

    def start(self, name: str) -> Daemon:
        """Start a member where it stood."""
        (self._folder / name).mkdir(exist_ok=True)
        checkpoint = {"folder": str(self.state(name)), "interval_s": 0.3}
        config = write_config(
            self._folder / name / "config.yaml", **self._sections, checkpoint=checkpoint
        )
        daemon = self.daemons[name] = self._stack.enter_context(Daemon(config))
        return daemon

    def until_it_knows(self, name: str, n: int) -> None:
        """Wait until the model behind a member's answers has learned so many examples."""
        daemon = self.daemons[name]
        daemon.until(lambda: n_examples(daemon) >= n, f"{name} knows {n}")

    def begun(self, n: int) -> bool:
        """Return whether the group knows where so many partitions begin."""
        return len(list((self._folder / "shared").rglob("*.nb"))) == n

    def resume(self, name: str) -> None:
        """Let a member that was paused go on."""
        self.paused.discard(name)
        self.daemons[name].send(signal.SIGCONT)


def n_examples(daemon: Daemon) -> int:
    """Return how many examples the model behind a member's answers has learned."""
    status, text = daemon.get("/v1/model")
    return int(json.loads(text)["n_examples"] or 0) if status == 200 else 0


@pytest.mark.integration
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "client", ["kafka-python", pytest.param("librdkafka", marks=pytest.mark.deep)]
)
def test_members_that_come_go_die_and_sleep_learn_each_message_once(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path, client: str
) -> None:
    """Three members, six events: their models are equal, and that of one undisturbed process."""
    found = examples(N)
    topic = new_topic(PARTITIONS)
    written = 0

    def write(n: int) -> None:
        nonlocal written
        for number in range(PARTITIONS):
            rows = range(written + number, min(written + n, N), PARTITIONS)
            fill(broker.address, topic, [message(found[i], i) for i in rows], number)
        written += n

    with ExitStack() as stack:
        source = f"kafka://{broker.address}/{topic}"
        group = Group(tmp_path, source, stack, group_id=f"of-{topic}", client=client)
        names = ("first", "second", "third")
        write(N // 4)
        for name in names[:2]:
            group.start(name)
        group.until_it_knows("first", 1)
        write(N // 4)
        group.start("third")  # it joins
        group.daemons["second"].kill()  # it dies
        write(N // 4)
        group.daemons["first"].send(signal.SIGSTOP)  # it sleeps for longer than its session
        group.paused.add("first")
        group.until_it_knows("third", N // 2)  # what the others read was taken over
        group.start("second")  # it comes again
        write(N - written)
        group.resume("first")  # a zombie for a moment
        assert group.daemons["third"].stop() == 0  # it leaves
        group.start("third")
        for name in names:
            group.until_it_knows(name, N)
        for name in names:
            assert group.daemons[name].stop() == 0
    expected = counts_of(found)
    for name in names:
        assert counts_at(group.state(name)) == expected


@pytest.mark.integration
@pytest.mark.timeout(240)
def test_the_group_begins_where_its_first_member_began(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """With `latest`, who comes later begins with what was written since, though the first died."""
    found = examples(800)
    topic = new_topic(PARTITIONS)

    def write(begin: int, end: int) -> None:
        rows = [message(found[i], i) for i in range(begin, end)]
        for number in range(PARTITIONS):
            fill(broker.address, topic, rows[number::PARTITIONS], number)

    write(0, 400)
    with ExitStack() as stack:
        source = f"kafka://{broker.address}/{topic}"
        group = Group(tmp_path, source, stack, group_id=f"of-{topic}", start_from="latest")
        first = group.start("first")
        first.until(lambda: group.begun(PARTITIONS), "begun")
        first.kill()
        write(400, 800)
        group.start("second")
        group.until_it_knows("second", 400)
        assert group.daemons["second"].stop() == 0
    assert counts_at(group.state("second")) == counts_of(found[400:])
