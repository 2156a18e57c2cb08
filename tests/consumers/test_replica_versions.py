"""Which versions a replica asks for: each other content once, and of most what changed alone."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from consumers.features import build_model
from consumers.http import threads
from consumers.http.threads import SnapshotEncoder
from consumers.replica import Replica, feed_of, serving
from streamnb import NaiveBayes, Snapshot, save, serialization
from streamnb.storage import Stored, read
from streamnb.testing import ManualClock
from tests.consumers.http.loopback_server import settings, taught
from tests.consumers.test_replica import (
    MIXED,
    Source,
    answering_with,
    asked,
    got,
    handing_out,
    until,
    version_of,
)


def handed_out(model: NaiveBayes | None = None) -> bytes:
    """Return what a daemon hands out of a model."""
    snapshot = Source(handing_out(), model).learner.snapshot
    return b"".join(map(bytes, SnapshotEncoder(ManualClock()).newest(snapshot)[2]))


def test_a_number_that_comes_again_is_another_version() -> None:
    """A daemon that starts again may count from 1: whoever follows its replica hears of it too."""
    of = handing_out()
    runs = [Source(of), Source(of, build_model(of.model))]
    runs[1].learner.learn("a", {"text": ["a good day"] * 9}, ["negative"] * 9)
    runs[1].learner.publish()
    with runs[0].served() as before, runs[1].served() as after:
        middle = Replica(of, feed_of(before, of))
        with serving(middle) as (address, _):
            middle.turn()
            end = Replica(of, feed_of(address, of))
            end.turn()
            middle.feed = feed_of(after, of)
            middle.turn()
            assert version_of(middle) == version_of(end)
            until(end, lambda: end.figures.n_versions == 2)
        found = end.board.current()
        assert found is not None
        assert (found.version, found.n_examples) == (2, 9)


def test_a_version_that_does_not_fit_is_sent_once(tmp_path: Path) -> None:
    """While it stands nobody sends it again; one that came damaged may come whole."""
    of = handing_out()
    whole = handed_out()
    save(taught(of), tmp_path / "model.nb")
    unfit = {
        "fields": (handed_out(build_model(settings(model=MIXED).model)), "reads purpose", 1),
        "notes": ((tmp_path / "model.nb").read_bytes(), "no snapshot of a model", 1),
        "format": (whole.replace(b'"version":"2"', b'"version":"9"'), "format version", 1),
        "damage": (whole[:-1] + bytes([whole[-1] ^ 1]), "damaged", 3),
    }
    known: list[str | None] = []
    sent: list[str] = []
    shown = [("first", whole)]

    def answer() -> tuple[int, dict[str, str], bytes]:
        tag, body = shown[0]
        said = {"ETag": tag, "Streamnb-Snapshot-Age": "0.000"}
        if known[-1] == tag:
            return 304, said, b""
        sent.append(tag)
        return 200, said, body

    with answering_with(answer, known) as address:
        replica = Replica(of, feed_of(address, of))
        replica.turn()
        for tag, (body, said, n_sent) in unfit.items():
            shown[0] = tag, body
            for _ in range(3):
                replica.turn()
                assert said in str(replica.health.report().degraded)
            assert sent.count(tag) == n_sent, tag
        assert (replica.figures.n_versions, replica.figures.n_failures) == (1, 12)
        shown[0] = "last", whole
        for _ in range(3):
            replica.turn()
            assert replica.health.report().degraded is None
    assert (replica.figures.n_versions, sent.count("last")) == (2, 1)


def test_a_checkpoint_that_does_not_fit_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is a file of other fields read at each look."""
    of, n_read = settings(), [0]

    def counted(place: Path) -> Stored:
        n_read[0] += 1
        return read(place)

    monkeypatch.setattr("consumers.replica.read_model", counted)
    replica = Replica(of, feed_of(str(tmp_path), of))
    save(taught(of), tmp_path / "model.nb")
    replica.turn()
    save(build_model(settings(model=MIXED).model), tmp_path / "model.nb")
    for _ in range(3):
        replica.turn()
        assert "reads purpose" in str(replica.health.report().degraded)
    assert (n_read[0], replica.figures.n_failures) == (2, 3)
    save(taught(of), tmp_path / "model.nb")
    replica.turn()
    assert (n_read[0], replica.health.report().degraded) == (3, None)


WORDS = [f"word{i}" for i in range(4000)]


def of_many_words(*, new_classes: bool = False) -> Source:
    """Return a daemon of a model large enough for a delta to be small."""
    source = Source(handing_out(model={"new_classes": new_classes}))
    source.learner.learn("a", {"text": [" ".join(WORDS)] * 2}, ["negative", "positive"])
    source.learner.publish()
    return source


def teach(source: Source, chance: random.Random) -> None:
    """Have a daemon learn a few texts, old words and new, and publish."""
    texts = [" ".join([*chance.choices(WORDS, k=5), f"new{chance.random()}"]) for _ in range(3)]
    labels = chance.choices(["negative", "positive"], k=3)
    source.learner.learn("a", {"text": texts}, labels)
    if chance.random() < 0.5:
        source.learner.unlearn_many("a", {"text": texts[:1]}, labels[:1])
    source.learner.publish()


def content(snapshot: Snapshot | None) -> bytes:
    """Return the file of what a snapshot knows."""
    assert snapshot is not None
    return b"".join(serialization.to_blocks(*serialization.pack(snapshot.state, {})))


def has_version_of(replica: Replica, source: Source) -> Callable[[], bool]:
    """Return whether a replica answers by the newest snapshot of a daemon."""
    return lambda: version_of(replica) == source.learner.version


def test_replicas_follow_by_deltas() -> None:
    """Also one of the other: they know, bit for bit, what the daemon knows, and answer so."""
    source, chance = of_many_words(), random.Random(3)
    of = source.settings
    with source.served() as daemon:
        middle = Replica(of, feed_of(daemon, of))
        with serving(middle) as (address, _):
            end = Replica(of, feed_of(address, of))
            for replica in (middle, end):
                until(replica, has_version_of(replica, source))
            whole = middle.figures.n_bytes
            for _ in range(6):
                teach(source, chance)
                for replica in (middle, end):
                    until(replica, has_version_of(replica, source))
                    assert content(replica.board.current()) == content(source.learner.snapshot)
                    assert replica.figures.n_bytes < whole / 4
            body = {"text": " ".join(chance.choices(WORDS, k=9)), "explain": True}
            assert asked(address, body).content == asked(daemon, body).content
            metrics = got(address, "/metrics").text
    for replica in (middle, end):
        assert (replica.figures.n_versions, replica.figures.n_deltas) == (7, 6)
        assert replica.figures.n_failures == 0
        assert whole < replica.figures.n_bytes_in_all < 3 * whole
    assert "streamnb_follow_deltas_total 6.0" in metrics
    assert f"streamnb_follow_received_bytes_total {middle.figures.n_bytes_in_all:.1f}" in metrics


def test_what_answers_does_not_change_under_a_delta() -> None:
    """A snapshot that is being answered from stays as it is, while the next is made of it."""
    source, chance = of_many_words(), random.Random(4)
    of = source.settings
    with source.served() as daemon:
        replica = Replica(of, feed_of(daemon, of))
        held = []
        for _ in range(4):
            teach(source, chance)
            until(replica, has_version_of(replica, source))
            held.append((replica.board.current(), content(source.learner.snapshot)))
    assert replica.figures.n_deltas == 3
    for snapshot, wanted in held:
        assert content(snapshot) == wanted


def test_it_follows_beside_a_learner() -> None:
    """Whatever is learned meanwhile, each version is one that the daemon has published."""
    source, chance = of_many_words(), random.Random(5)
    of = source.settings
    published = {source.learner.version: source.learner.snapshot}
    over = threading.Event()

    def learn() -> None:
        while not over.is_set():
            teach(source, chance)
            published[source.learner.version] = source.learner.snapshot
            over.wait(0.01)

    with source.served() as daemon:
        replica = Replica(of, feed_of(daemon, of))
        learner = threading.Thread(target=learn)
        learner.start()
        taken = {}
        try:
            until(replica, lambda: replica.figures.n_deltas >= 5)
            for _ in range(5):
                replica.turn()
                taken[version_of(replica)] = replica.board.current()
        finally:
            over.set()
            learner.join()
    assert replica.figures.n_failures == 0
    for version, snapshot in taken.items():
        assert content(snapshot) == content(published[version])


def test_a_version_that_the_daemon_does_not_know_is_replaced_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So it is after a restart of the daemon, and for who comes back late."""
    monkeypatch.setattr(threads, "VERSIONS_BYTES_MAX", 1)
    source, chance = of_many_words(), random.Random(6)
    of = source.settings
    with source.served() as daemon:
        replica, late = (Replica(of, feed_of(daemon, of)) for _ in range(2))
        for each in (late, replica):
            until(each, has_version_of(each, source))
        for _ in range(5):
            teach(source, chance)
            until(replica, has_version_of(replica, source))
        late.turn()
    assert (late.figures.n_versions, late.figures.n_deltas) == (2, 0)
    again = Source(of, source.learner.model)  # as of its checkpoint
    teach(again, chance)
    with again.served() as daemon:
        vars(replica.feed)["_url"] = feed_of(daemon, of).name  # the port is another one
        replica.turn()
        assert (replica.figures.n_versions, replica.figures.n_deltas) == (7, 5)
        teach(again, chance)
        until(replica, has_version_of(replica, again))
    assert (replica.figures.n_deltas, replica.figures.n_failures) == (6, 0)
    assert content(replica.board.current()) == content(again.learner.snapshot)


def test_what_changes_all_rows_is_sent_whole() -> None:
    """If there is another class, the rows of all words have another length."""
    source, clock = of_many_words(new_classes=True), ManualClock()
    encoder = SnapshotEncoder(clock)
    known = encoder.newest(source.learner.snapshot).etag
    for text, label, is_delta in (
        (" ".join(WORDS[:400]), "positive", True),
        (" ".join(WORDS), "positive", True),
        (WORDS[0], "another", False),
        (WORDS[0], "another", True),
    ):
        source.learner.learn("a", {"text": [text]}, [label])
        clock.advance(60.0)
        found = encoder.newest(source.learner.publish(), known, by_delta=True)
        assert sum(map(len, found.blocks))
        assert (found.is_delta, found.etag != known) == (is_delta, True)
        known = found.etag
    again = encoder.newest(source.learner.snapshot, known, by_delta=True)
    assert (again.blocks, again.is_delta) == ([], False)


def test_many_replicas_follow_by_deltas() -> None:
    """Each asks for the version that it has, however many have been made for others since."""
    source, chance, clock = of_many_words(), random.Random(8), ManualClock()
    encoder, known = SnapshotEncoder(clock), [""] * 12
    for turn in range(3):
        for i in range(len(known)):
            teach(source, chance)
            clock.advance(60.0)
            found = encoder.newest(source.learner.snapshot, known[i], by_delta=True)
            assert (found.is_delta, found.etag != known[i]) == (turn > 0, True)
            known[i] = found.etag


def test_large_versions_leave_but_for_four(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then who comes back late is sent the whole."""
    monkeypatch.setattr(threads, "VERSIONS_BYTES_MAX", 1)
    source, chance, clock = of_many_words(), random.Random(9), ManualClock()
    encoder, known = SnapshotEncoder(clock), list[str]()
    for _ in range(6):
        teach(source, chance)
        clock.advance(60.0)
        known.append(encoder.newest(source.learner.snapshot).etag)
    by_delta = [encoder.newest(source.learner.snapshot, each, by_delta=True) for each in known]
    assert [each.is_delta for each in by_delta] == [False, False, True, True, True, False]
    assert not by_delta[-1].blocks


def test_a_damaged_delta_is_never_answered_from() -> None:
    """The version before it answers until the next look, which asks for the whole."""
    source, chance, clock = of_many_words(), random.Random(7), ManualClock()
    encoder = SnapshotEncoder(clock)
    first = encoder.newest(source.learner.snapshot)
    teach(source, chance)
    clock.advance(60.0)
    whole = encoder.newest(source.learner.snapshot, first.etag)
    delta = encoder.newest(source.learner.snapshot, first.etag, by_delta=True)
    assert (whole.is_delta, delta.is_delta, whole.etag) == (False, True, delta.etag)
    bodies = [b"".join(map(bytes, each.blocks)) for each in (first, whole, delta)]
    header, arrays = serialization.from_bytes(bodies[2])
    header["delta"]["name"] = "0" * 64
    bad = [b"".join(map(bytes, serialization.to_blocks(header, arrays))), b"", bodies[1]]
    for _ in range(20):
        at = chance.randrange(len(bodies[2]))
        changed = bytearray(bodies[2])
        changed[at] ^= 1 << chance.randrange(8)
        bad += [bodies[2][:at], bytes(changed)]
    known: list[str | None] = []
    answers = list[tuple[int, str, bytes]]()

    def answer() -> tuple[int, dict[str, str], bytes]:
        status, etag, said = answers.pop(0)
        return status, {"ETag": etag, "Streamnb-Snapshot-Age": "0.000"}, said

    with answering_with(answer, known) as address:
        for body in bad:
            answers[:] = (200, first.etag, bodies[0]), (226, delta.etag, body), (200, "", bodies[1])
            replica = Replica(source.settings, feed_of(address, source.settings))
            replica.turn()
            before = replica.board.current()
            replica.turn()
            assert (replica.board.current(), replica.figures.n_failures) == (before, 1)
            assert replica.health.report().degraded is not None
            replica.turn()
            assert known[-2:] == [first.etag, None]
            assert (replica.figures.n_versions, replica.figures.n_deltas) == (2, 0)
            assert content(replica.board.current()) == content(source.learner.snapshot)
