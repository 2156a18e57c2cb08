"""Replicas that change over together: at each instant they answer from one version."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from consumers.config.settings import Settings
from consumers.http import routes_model
from consumers.http.routes_model import SNAPSHOT_ROUTE
from consumers.http.threads import SnapshotEncoder
from consumers.replica import NewVersion, Replica, feed_of, serving
from streamnb import save
from streamnb.testing import ManualClock
from tests.consumers.http.loopback_server import PATIENCE_S, settings, taught
from tests.consumers.test_replica import Source, asked, got, handing_out, version_of
from tests.consumers.test_replica_versions import of_many_words, teach

BEGAN_S = 1_800_000_000.0  # an interval begins; all times here are exact in binary
TICK_S, EACH_S, AFTER_S = 1 / 64, 0.25, 0.5
SINCE = "Streamnb-Snapshot-Since"


def changing_over(after_s: float = AFTER_S, **follow: float) -> Settings:
    """Return settings of a daemon and its replicas."""
    return handing_out(
        http={"snapshot_interval_s": EACH_S},
        follow={"interval_s": 0.125, "switch_after_s": after_s} | follow,
    )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """Return the one clock of the daemon and of its replicas."""
    made = ManualClock(BEGAN_S)
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)
    encoder = partial(SnapshotEncoder, made, wall_clock=made)
    monkeypatch.setattr(routes_model, "SnapshotEncoder", encoder)
    return made


def publish(source: Source) -> int:
    """Have the daemon learn and publish; return its version."""
    source.learner.learn("a", {"text": ["more rain"]}, ["negative"])
    return source.learner.publish().version


def followers(of: Settings, daemon: str, clock: ManualClock, n: int = 1) -> list[Replica]:
    """Return replicas of a daemon."""
    return [Replica(of, feed_of(daemon, of), clock, clock) for _ in range(n)]


@contextlib.contextmanager
def clients(replicas: list[Replica]) -> Iterator[list[httpx.Client]]:
    """Serve replicas; yield a client of each."""
    with contextlib.ExitStack() as stack:
        addresses = [stack.enter_context(serving(each))[0] for each in replicas]
        made = [
            httpx.Client(base_url=address, trust_env=False, timeout=PATIENCE_S)
            for address in addresses
        ]
        yield [stack.enter_context(each) for each in made]


def versions_at_each_instant(after_s: float, clock: ManualClock) -> list[set[str]]:
    """Return which versions three replicas behind a round robin answer from, instant by instant.

    The daemon publishes all the time, and each replica looks when it likes.
    """
    of, chance = changing_over(after_s), random.Random(17)
    source, found = Source(of), list[set[str]]()
    with source.served() as daemon:
        replicas = followers(of, daemon, clock, 3)
        looks_at = [chance.randrange(8) for _ in replicas]
        with clients(replicas) as asking:
            for tick in range(160):
                for at, replica in enumerate(replicas):
                    if looks_at[at] == tick:
                        replica.turn()
                        looks_at[at] += chance.randrange(
                            3, 14
                        )  # in each interval of 16 at least once
                publish(source)
                turns = asking[tick % 3 :] + asking[: tick % 3]
                answers = [each.post("/v1/predict", json={"text": "rain"}) for each in turns]
                found.append(
                    {str(each.headers.get("Streamnb-Snapshot-Version")) for each in answers}
                )
                clock.advance(TICK_S)
    assert [each.figures.n_failures for each in replicas] == [0, 0, 0]
    return found


def test_replicas_answer_from_one_version_at_each_instant(clock: ManualClock) -> None:
    """Also before the first one is due, when none answers; each interval brings another."""
    found = versions_at_each_instant(AFTER_S, clock)
    assert [len(each) for each in found] == [1] * len(found)
    changes = [i for i in range(1, len(found)) if found[i] != found[i - 1]]
    assert changes == [*range(32, 160, 16)]


def test_without_it_they_answer_from_several(clock: ManualClock) -> None:
    """So the test above can fail: each answers from what it got, at once."""
    assert max(map(len, versions_at_each_instant(0.0, clock))) > 1


def test_the_daemon_hands_out_one_version_in_each_interval() -> None:
    """It is that of who asks first; it is said since when, also in later intervals."""
    source, clock, wall = Source(handing_out()), ManualClock(), ManualClock(BEGAN_S + 0.0625)
    encoder = SnapshotEncoder(clock, EACH_S, wall)
    found = [encoder.newest(source.learner.snapshot)]
    for _ in range(7):
        publish(source)
        clock.advance(1.0)
        wall.advance(0.0625)
        found.append(encoder.newest(source.learner.snapshot, found[0].etag, by_delta=True))
    tags = [each.etag for each in found]
    assert tags == [tags[0]] * 3 + [tags[3]] * 4 + [tags[7]]
    assert len(set(tags)) == 3
    assert [each.since_s for each in found] == [
        BEGAN_S + EACH_S * k for k in (0, 0, 0, 1, 1, 1, 1, 2)
    ]
    assert [each.age_s for each in found[:5]] == [0.0, 1.0, 2.0, 0.0, 1.0]
    assert found[1].blocks == []
    again = SnapshotEncoder(clock, EACH_S, wall)
    first = again.newest(source.learner.snapshot)
    wall.advance(10.0)  # nothing is published meanwhile
    assert again.newest(source.learner.snapshot, first.etag).since_s == first.since_s
    wall.advance(-3600.0)  # as a clock may be set
    publish(source)
    clock.advance(1.0)
    assert again.newest(source.learner.snapshot).etag != first.etag


def test_each_answer_says_since_when(clock: ManualClock) -> None:
    """200, 226 and 304 do, and without intervals none."""
    source, chance = of_many_words(), random.Random(1)
    source.settings = changing_over()
    with source.served() as daemon:
        clock.advance(0.3)
        answers = [got(daemon, SNAPSHOT_ROUTE)]
        known = {"If-None-Match": answers[0].headers["ETag"], "A-IM": "streamnb-delta"}
        answers.append(got(daemon, SNAPSHOT_ROUTE, **known))
        teach(source, chance)
        answers.append(got(daemon, SNAPSHOT_ROUTE, **known))
        clock.advance(0.3)
        answers.append(got(daemon, SNAPSHOT_ROUTE, **known))
    assert [each.status_code for each in answers] == [200, 304, 304, 226]
    assert [float(each.headers[SINCE]) - BEGAN_S for each in answers] == [0.25, 0.25, 0.25, 0.5]
    with Source(handing_out()).served() as daemon:
        assert SINCE not in got(daemon, SNAPSHOT_ROUTE).headers


def test_no_look_delays_the_change(clock: ManualClock) -> None:
    """A version answers when it is due, while the next one is still on its way."""
    of = changing_over()
    source = Source(of)
    with source.served() as daemon:
        (replica,) = followers(of, daemon, clock)
        replica.turn()
        feed, seen = replica.feed, list[int]()

        class Slow:
            """A feed whose answer takes its time."""

            name, timeout_s = feed.name, feed.timeout_s

            def newest(self) -> tuple[NewVersion | None, float]:
                """Return the newest version after a second."""
                for _ in range(64):
                    clock.advance(TICK_S)
                    seen.append(version_of(replica))
                return feed.newest()

        replica.feed = Slow()
        replica.turn()
    assert seen == [0] * 31 + [2] * 33


def test_the_version_that_answers_is_the_one_that_is_told_of(clock: ManualClock) -> None:
    """So are its age, readiness and metrics; deltas are made of the newest that came."""
    of, chance = changing_over(), random.Random(2)
    source = of_many_words()
    source.settings = of
    with source.served() as daemon:
        (replica,) = followers(of, daemon, clock)
        with serving(replica) as (address, _):
            replica.turn()
            assert (replica.age_s(), replica.health.report().ready) == (None, False)
            assert asked(address, {"text": "rain"}).status_code == 503
            assert got(address, "/readyz").status_code == 503
            for _ in range(3):  # each of what came before, of which none answers yet
                clock.advance(0.25)
                teach(source, chance)
                replica.turn()
            assert (replica.figures.n_versions, replica.figures.n_deltas) == (4, 3)
            clock.advance(0.0625)
            # The second came 0.5625 s ago, and was the newest until the third.
            assert (version_of(replica), replica.age_s()) == (4, 0.5625)
            assert got(address, "/readyz").status_code == 200
            answer = asked(address, {"text": "rain"})
            assert answer.headers["Streamnb-Snapshot-Version"] == "4"
            assert answer.headers["Streamnb-Follow-Age"] == "0.562"
            metrics = got(address, "/metrics").text
            for line in (
                "streamnb_snapshot_version 4.0", "streamnb_snapshot_age_seconds 0.5625",
                "streamnb_follow_versions_total 4.0", "streamnb_follow_load_seconds 0.0",
            ):  # fmt: skip
                assert f"\n{line}\n" in metrics
            replica.turn()  # finds nothing new, so what came last was the newest until now
            assert replica.age_s() == 0.5625
            clock.advance(0.4375)
            assert (version_of(replica), replica.age_s()) == (6, 0.4375)
            late = Replica(of, feed_of(daemon, of), clock, clock)
            late.turn()  # it has been handed out for long: it is due
            assert (version_of(late), late.health.report().ready) == (6, True)


def test_a_clock_that_goes_ahead_makes_no_version_wait_for_longer(clock: ManualClock) -> None:
    """Where the daemon is an hour ahead, the time that counts is when the version came."""
    of, here = changing_over(), ManualClock(BEGAN_S - 3600.0)
    with Source(of).served() as daemon:
        replica = Replica(of, feed_of(daemon, of), clock, here)
        replica.turn()
    here.advance(AFTER_S - TICK_S)
    assert version_of(replica) == 0
    here.advance(TICK_S)
    assert version_of(replica) == 2


def test_a_folder_has_the_time_of_its_file(tmp_path: Path) -> None:
    """An older file answers at once, and a new one from its time on."""
    of = settings(follow={"switch_after_s": 1})
    clock, path = ManualClock(BEGAN_S), tmp_path / "model.nb"
    model = taught(of)
    replica = Replica(of, feed_of(str(tmp_path), of), clock, clock)
    for at_s in (BEGAN_S - 60, BEGAN_S - 0.25):
        model.learn_many({"text": ["more rain"]}, ["negative"])
        save(model, path)
        os.utime(path, (at_s, at_s))
        replica.turn()
    assert version_of(replica) == (BEGAN_S - 60) * 1000
    clock.advance(0.75 - TICK_S)
    assert version_of(replica) == (BEGAN_S - 60) * 1000
    clock.advance(2 * TICK_S)
    assert version_of(replica) == (BEGAN_S - 0.25) * 1000


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        (
            {"follow": {"switch_after_s": 0.1}},
            r"switch_after_s must be at least follow\.interval_s",
        ),
        ({"follow": {"switch_after_s": 60}}, r"must be below follow\.stale_after_s \(60\)"),
        (
            {"follow": {"switch_after_s": 1}, "http": {"snapshot_interval_s": 0.2}},
            r"interval_s must be below http\.snapshot_interval_s \(0\.2\) with switch_after_s",
        ),
    ],
)
def test_what_cannot_work_is_refused(sections: dict[str, Any], said: str) -> None:
    """Some replicas would have no version when they are to change over to it."""
    with pytest.raises(ValueError, match=said):
        settings(**sections)


def test_a_daemon_without_intervals_is_not_followed() -> None:
    """Its replicas could be of any versions; they say which setting it lacks."""
    of = settings(follow={"switch_after_s": 1})
    with Source(handing_out()).served() as daemon:
        replica = Replica(of, feed_of(daemon, of))
        replica.turn()
    assert "needs http.snapshot_interval_s above 0 in the daemon" in str(replica.status().trouble)
    assert not replica.health.report().ready
