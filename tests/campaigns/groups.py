"""Daemons of one group join, leave, die and sleep at random; each message is learned once."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from pathlib import Path

from tests.campaigns.campaign import Run
from tests.campaigns.daemons import CLIENTS, started_broker
from tests.endtoend.daemon_group import SESSION_S, DaemonGroup, RevisedTopic
from tests.endtoend.expected_counts import counts_at

NAMES = ("first", "second", "third")
PARTITIONS = 4
EVENTS = 12
N_PER_EVENT = 4_000
SLACK_S = 5.0  # of an age: a member looks for files, and shows its figures, now and then


def groups(run: Run) -> None:
    """Whoever of three daemons comes, goes, dies or sleeps: all end with one daemon's counts.

    They answer alike, to the bit. The stream deletes and updates what it brought before, whoever
    learned it.
    """
    with started_broker() as broker:
        for chance, folder in run.steps():
            broker.create_topic(f"groups-{run.step}", PARTITIONS)
            stream = RevisedTopic(broker.address, f"groups-{run.step}", PARTITIONS)
            source = f"kafka://{broker.address}/groups-{run.step}"
            client = chance.choice(CLIENTS)
            with ExitStack() as stack:
                group = DaemonGroup(
                    folder, source, stack, group_id=f"groups-{run.step}", client=client
                )
                stream.grow(N_PER_EVENT)
                group.start(chance.choice(NAMES))
                asleep: dict[str, float] = {}  # since when, by a clock that goes on
                for _ in range(EVENTS):
                    run.figures[_one_event(chance, group, asleep)] += 1
                    stream.grow(N_PER_EVENT)
                for name in NAMES:
                    if name in group.paused:
                        run.figures[_wake(group, name, asleep)] += 1
                    elif name not in group.daemons:
                        group.start(name)
                expected, n_left = stream.counts()
                for name in NAMES:
                    group.until_it_knows(name, n_left)
                group.until_all_answer_alike()
                _check_parts(folder / "shared", group)
                for name in NAMES:
                    assert group.daemons.pop(name).stop() == 0
            for name in NAMES:
                assert counts_at(group.state(name)) == expected, name
            run.figures["messages"] += sum(map(len, stream.logs))


def _one_event(chance: random.Random, group: DaemonGroup, asleep: dict[str, float]) -> str:
    """Let one thing happen to one member; return what it was."""
    name = chance.choice(NAMES)
    daemon = group.daemons.get(name)
    if daemon is None:
        group.start(name)
        return "joined"
    if name in group.paused:
        return _wake(group, name, asleep)
    what = chance.choice(("left", "died", "slept", "read on"))
    if what == "read on" or (what == "slept" and len(group.paused) == len(NAMES) - 1):
        group.until_it_knows(name, 1)
        return "read on"
    if what == "slept":
        daemon.stand_still()
        group.paused.add(name)
        asleep[name] = time.monotonic()
        _outlast_its_session(chance, group, name)
        return "fell asleep"
    del group.daemons[name]
    if what == "left":
        daemon.until_line("serving")  # before, the interpreter itself would take the signal
        code = daemon.stop()
        assert code == 0, (code, daemon.lines[-3:])
    else:
        daemon.kill()
    return what


def _wake(group: DaemonGroup, name: str, asleep: dict[str, float]) -> str:
    """Let a member go on; return whether others may have had its partitions meanwhile."""
    took_s = time.monotonic() - asleep.pop(name)
    group.resume(name)
    return "slept beyond the session" if took_s > SESSION_S else "slept for less"


def _outlast_its_session(chance: random.Random, group: DaemonGroup, name: str) -> None:
    """Wait, at times, until a member that sleeps has lost its partitions to another."""
    others = [each for each in group.daemons if each not in group.paused and each != name]
    if others and chance.random() < 0.7:
        other = group.daemons[chance.choice(others)]
        until_s = time.monotonic() + 2 * SESSION_S
        while time.monotonic() < until_s:
            if not other.listen(0.25):
                raise AssertionError(f"it ended: {other.lines[-3:]}")


def _check_parts(shared: Path, group: DaemonGroup) -> None:
    """Fail unless each member knows all parts, and how old the oldest file of another's is."""
    for name in NAMES:
        daemon = group.daemons[name]
        daemon.until(
            lambda: daemon.metric("streamnb_group_parts") == PARTITIONS,  # noqa: B023
            f"{name} knows all parts",
        )
        folders = {path.parent for path in shared.rglob("*.nb")}
        changed_s = [max(folder.glob("*.nb")).stat().st_mtime for folder in folders]
        least_s = time.time() - max(changed_s)
        age_s = daemon.metric("streamnb_group_oldest_part_seconds")
        most_s = time.time() - min(changed_s)
        assert least_s - SLACK_S <= age_s <= most_s + SLACK_S, (name, age_s, least_s, most_s)
