"""Which versions a replica asks for: each other content once, whatever its number."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumers.features import build_model
from consumers.http.routes_model import SnapshotEncoder
from consumers.replica import Replica, feed_of, serving
from streamnb import NaiveBayes, save
from streamnb.storage import Stored, read
from streamnb.testing import ManualClock
from tests.consumers.http.loopback_server import settings, taught
from tests.consumers.test_replica import (
    MIXED,
    Source,
    answering_with,
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
