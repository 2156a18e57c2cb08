"""Replicas: they answer as the daemon does, from whole versions alone, and say how old they are."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from consumers.config.settings import Settings
from consumers.errors import ConfigError, MismatchError
from consumers.features import build_model, costs_of
from consumers.http.routes_model import SNAPSHOT_ROUTE
from consumers.http.threads import SnapshotEncoder
from consumers.monitoring.status import State
from consumers.replica import Replica, feed_of, serving
from streamnb import (
    Calibrator,
    Confidence,
    ConformalSets,
    EveryExamples,
    Learner,
    NaiveBayes,
    Predictor,
    SnapshotBoard,
    load,
    save,
)
from streamnb.storage import Stored, read
from tests.consumers.http.loopback_server import LABELS as TEXT_LABELS
from tests.consumers.http.loopback_server import (
    PATIENCE_S,
    TEXTS,
    app_state,
    served,
    settings,
    taught,
)

TOKEN = "a token of sixteen letters"
MIXED = {
    "classes": ["granted", "refused"],
    "features": {
        "words": {"kind": "words", "fields": ["purpose"], "hybrid": True},
        "bands": {"kind": "categories", "fields": ["income"]},
        "ages": {"kind": "categories", "fields": ["age"], "bins": [18, 65]},
        "answers": {"kind": "flags", "fields": ["has_car"]},
        "measures": {"kind": "numbers", "fields": ["amount"]},
    },
    "costs": {"granted": {"refused": 1}, "refused": {"granted": 5}},
}
COLUMNS = {
    "purpose": ["a new car", "a garden and a car", "holidays by the sea"] * 8,
    "income": ["low", "high", None] * 8,
    "age": [17.0, 30.0, 70.0] * 8,
    "has_car": [True, False, None] * 8,
    "amount": [1.5, 1e6, 3.25] * 8,
}
LABELS = ["granted", "refused", "granted"] * 8
ASKED: list[dict[str, Any]] = [
    {"message": {"purpose": "a car", "income": "low", "age": 18, "has_car": True, "amount": 2}},
    {"messages": [{"purpose": "the sea"}, {"amount": 9}], "prior": "model", "explain": True},
    {"text": "a garden", "raw": True, "interval": 0.9},
]


class Source:
    """A learner behind the API, as a daemon has it."""

    def __init__(self, of: Settings, model: NaiveBayes | None = None) -> None:
        self.settings, self.board = of, SnapshotBoard()
        confidence = Confidence()
        if of.model.costs is not None:
            confidence = Confidence(Calibrator(), ConformalSets(0.9), costs_of(of.model))
        self.learner = Learner(
            model or build_model(of.model), self.board, EveryExamples(1_000_000), lambda: 0.0,
            confidence=confidence,
        )  # fmt: skip
        if model is None:
            self.learner.learn("a", {"text": TEXTS * 3}, TEXT_LABELS * 3)
            self.learner.publish()

    @contextlib.contextmanager
    def served(self) -> Iterator[str]:
        """Serve it; yield where."""
        predictor = Predictor(self.board)
        predictor.start()
        try:
            with (
                app_state(self.settings, self.learner.model) as made,
                served(replace(made, predictor=predictor)) as port,
            ):
                yield f"http://127.0.0.1:{port}"
        finally:
            predictor.stop()


def handing_out(**sections: Any) -> Settings:
    """Return settings of a daemon that hands its snapshots out."""
    http = {"snapshots": True} | sections.pop("http", {})
    return settings(http=http, **sections)


def until(replica: Replica, condition: Callable[[], bool]) -> None:
    """Let a replica look until a condition holds."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        replica.turn()
        assert time.monotonic() < deadline_s, replica.status()


def version_of(replica: Replica) -> int:
    """Return which version it answers by; 0 before the first."""
    snapshot = replica.board.current()
    return 0 if snapshot is None else snapshot.version


def asked(address: str, body: Any) -> httpx.Response:
    """Return the answer to a question."""
    with httpx.Client(base_url=address, trust_env=False, timeout=PATIENCE_S) as client:
        return client.post("/v1/predict", json=body)


def got(address: str, path: str, **headers: str) -> httpx.Response:
    """Return a page."""
    with httpx.Client(base_url=address, trust_env=False, timeout=PATIENCE_S) as client:
        return client.get(path, headers=headers)


def test_replicas_answer_as_the_daemon_to_the_last_bit() -> None:
    """So do two of them, of which one follows the other; each answer says its version."""
    of = handing_out(model=MIXED)
    model = build_model(of.model)
    source = Source(of, model)
    for _ in range(5):
        source.learner.learn("a", COLUMNS, LABELS)
    source.learner.publish()
    with source.served() as daemon:
        first = Replica(of, feed_of(daemon, of))
        with serving(first) as (one, _):
            assert asked(one, ASKED[0]).status_code == 503
            first.turn()
            second = Replica(of, feed_of(f"{one}/", of))
            with serving(second) as (two, _):
                second.turn()
                for body in ASKED:
                    own = asked(daemon, body)
                    assert own.status_code == 200, own.text
                    for address in (one, two):
                        answer = asked(address, body)
                        assert answer.content == own.content
                        assert answer.headers["Streamnb-Snapshot-Version"] == "2"
                        assert 0.0 <= float(answer.headers["Streamnb-Follow-Age"]) < PATIENCE_S
                    assert own.headers["Streamnb-Snapshot-Version"] == "2"
                    assert "Streamnb-Follow-Age" not in own.headers
                assert asked(two, ASKED[0]).json()["predictions"][0]["prediction_set"]
                assert got(two, "/v1/model").json()["n_examples"] == 120
                assert got(two, "/v1/page").status_code == 404
                assert got(two, "/v1/search").status_code == 404


def test_what_is_handed_out_is_a_model_file(tmp_path: Path) -> None:
    """The bytes are those that `save` writes: they load as a model of the same counts."""
    of = handing_out()
    source = Source(of)
    with source.served() as daemon:
        answer = got(daemon, SNAPSHOT_ROUTE)
        etag = answer.headers["ETag"]
        unchanged = got(daemon, SNAPSHOT_ROUTE, **{"If-None-Match": etag})
    (tmp_path / "model.nb").write_bytes(answer.content)
    assert load(tmp_path / "model.nb").digest() == source.learner.model.digest()
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert unchanged.headers["Streamnb-Snapshot-Age"] == "0.000"


def test_each_new_version_is_taken_once() -> None:
    """What did not change is not sent again; what the daemon publishes is what answers next."""
    of = handing_out()
    source = Source(of)
    with source.served() as daemon:
        replica = Replica(of, feed_of(daemon, of))
        for _ in range(3):
            replica.turn()
        assert (version_of(replica), replica.figures.n_versions) == (2, 1)
        for version in range(3, 7):
            source.learner.learn("a", {"text": ["more rain"]}, ["negative"])
            source.learner.publish()
            until(replica, lambda wanted=version: version_of(replica) == wanted)  # type: ignore[misc]
        found = replica.board.current()
        assert found is not None
        assert (replica.figures.n_versions, found.n_examples) == (
            5,
            source.learner.model.n_examples,
        )


def test_versions_are_made_for_all_and_not_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the bound an older one is handed out, with its age; then the newest."""
    now_s = [0.0]
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)
    source = Source(handing_out())
    encoder = SnapshotEncoder(lambda: now_s[0])
    first = encoder.newest(source.learner.snapshot)
    newer = source.learner.publish()
    now_s[0] = 0.05
    held = encoder.newest(newer)
    assert held[0] == first[0]
    assert held[1] == 0.05
    assert held[2] is first[2]
    now_s[0] = 0.11
    made = encoder.newest(newer)
    assert (made[0] != first[0], made[1]) == (True, 0.0)
    assert encoder.newest(newer)[0] == made[0]


def test_a_model_is_handed_out_to_those_who_may_change() -> None:
    """By default nobody has it; with a token who sends it, and without one no other site."""
    with Source(settings()).served() as daemon:
        said = got(daemon, SNAPSHOT_ROUTE)
        assert (said.status_code, "http.snapshots: true" in said.text) == (404, True)
    of = handing_out(http={"token": TOKEN})
    with Source(of).served() as daemon:
        assert got(daemon, SNAPSHOT_ROUTE).status_code == 401
        replica = Replica(of, feed_of(daemon, of))
        replica.turn()
        assert version_of(replica) == 2
        without = Replica(handing_out(), feed_of(daemon, handing_out()))
        without.turn()
        assert "401: the token is missing" in str(without.status().trouble)
    with Source(handing_out()).served() as daemon:
        said = got(daemon, SNAPSHOT_ROUTE, Origin="http://elsewhere.example")
        assert (said.status_code, "snapshots are handed out" in said.text) == (403, True)


@contextlib.contextmanager
def answering_with(
    answer: Callable[[], tuple[int, dict[str, str], bytes]], known: list[str | None] | None = None
) -> Iterator[str]:
    """Serve whatever a function returns; yield where. `known` gets what each question has."""
    asked_with = [] if known is None else known

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked_with.append(self.headers["If-None-Match"])
            status, headers, body = answer()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_what_came_torn_or_changed_is_never_answered_from() -> None:
    """Of any cut, changed byte or foreign answer nothing is taken; the next whole one is."""
    of = handing_out()
    source = Source(of)
    with source.served() as daemon:
        whole = got(daemon, SNAPSHOT_ROUTE).content
    chance = random.Random(16)
    said = {"ETag": '"other"', "Streamnb-Snapshot-Age": "0.000"}
    bad: list[tuple[int, dict[str, str], bytes]] = [
        (200, said, b""),
        (200, said, b'{"detail": "hello"}'),
        (200, said, whole + b"x"),
        (200, {}, whole),
        *((200, said | {"Streamnb-Snapshot-Age": age}, whole) for age in ("soon", "nan", "inf")),
        (500, {}, b"no JSON"),
        (304, {}, b""),
    ]
    for _ in range(30):
        at = chance.randrange(len(whole))
        bad += [
            (200, said | {"Content-Length": str(len(whole))}, whole[:at]),
            (200, said, whole[:at]),
            (
                200,
                said,
                whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :],
            ),
        ]
    answers = [(200, said, whole)]
    with answering_with(lambda: answers[0]) as address:
        replica = Replica(of, feed_of(address, of))
        for answer in bad:
            answers[0] = answer
            replica.turn()
            assert replica.board.current() is None
            assert replica.status().trouble is not None
            assert not replica.health.report().ready
        answers[0] = (200, said, whole)
        replica.turn()
        assert (version_of(replica), replica.figures.n_failures) == (2, len(bad))
        assert replica.health.report().ready
        for answer in bad:
            answers[0] = answer
            replica.turn()
        assert replica.figures.n_versions == 1
        assert replica.health.report().degraded is not None


def test_a_connection_that_breaks_is_no_damaged_model() -> None:
    """If the learner is killed amid its answer, that is what is said, and not its bytes."""
    of = handing_out()
    with Source(of).served() as daemon:
        whole = got(daemon, SNAPSHOT_ROUTE).content
    said = {"ETag": '"x"', "Streamnb-Snapshot-Age": "0.000", "Content-Length": str(len(whole))}
    for n in (0, 1, len(whole) - 1):
        with answering_with(lambda n=n: (200, said, whole[:n])) as address:  # type: ignore[misc]
            replica = Replica(of, feed_of(address, of))
            replica.turn()
        trouble = replica.status().trouble or ""
        assert f"{n:,} of {len(whole):,} bytes" in trouble
        assert "not a streamnb model" not in trouble


def test_a_token_goes_to_no_other_place() -> None:
    """A redirect is not followed, also to where the model could be had."""
    of = handing_out(http={"token": TOKEN})
    with (
        Source(of).served() as daemon,
        answering_with(lambda: (302, {"Location": daemon + SNAPSHOT_ROUTE}, b"")) as address,
    ):
        replica = Replica(of, feed_of(address, of))
        replica.turn()
        assert replica.board.current() is None
        assert "302" in str(replica.status().trouble)


def test_a_folder_is_followed_file_by_file(tmp_path: Path) -> None:
    """A file that is not whole is passed over, and the next whole one is taken."""
    of = settings()
    model = taught(of)
    replica = Replica(of, feed_of(str(tmp_path), of))
    replica.turn()
    report = replica.health.report()
    assert not report.ready
    assert "let `streamnb run` write one" in str(report.reason)
    path = tmp_path / "model.nb"
    save(model, path)
    replica.turn()
    assert version_of(replica) == path.stat().st_mtime_ns // 1_000_000
    replica.turn()
    assert replica.figures.n_versions == 1
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(damaged)  # as a copy by hand would be seen
        replica.turn()
        replica.turn()
        assert "damaged" in str(replica.health.report().degraded)
        assert replica.health.report().ready
    for notes in ({"entries": 7}, {"entries": {"confidence": {"calibrator": 7}}}):
        save(model, path, notes=notes)
        replica.turn()
        assert "its notes are no daemon's" in str(replica.health.report().degraded)
    model.learn_many({"text": ["more rain"]}, ["negative"])
    save(model, path)
    replica.turn()
    found = replica.board.current()
    assert found is not None
    assert (found.n_examples, replica.figures.n_versions) == (model.n_examples, 2)
    assert replica.health.report().degraded is None


def test_a_file_that_is_replaced_while_it_is_read_has_its_own_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is that of the file that was read. What was damaged only meanwhile is taken once it is
    back; whoever is slower than the daemon still gets a version at each turn.
    """
    of, path, aside = settings(), tmp_path / "model.nb", tmp_path / "aside"
    model = taught(of)
    meanwhile: list[Callable[[], object]] = []

    def read_late(place: Path) -> Stored:
        if meanwhile:
            meanwhile.pop()()
        return read(place)

    monkeypatch.setattr("consumers.replica.read_model", read_late)
    replica = Replica(of, feed_of(str(tmp_path), of))

    def write() -> None:
        model.learn_many({"text": ["more rain"]}, ["negative"])
        save(model, path)
        at_s = 1_000_000_000 + model.n_examples  # each file has a time of its own
        os.utime(path, (at_s, at_s))

    def check(n_versions: int) -> None:
        replica.turn()
        found = replica.board.current()
        assert found is not None
        assert found.n_examples == model.n_examples
        assert found.version == path.stat().st_mtime_ns // 1_000_000
        assert (replica.figures.n_versions, replica.status().trouble) == (n_versions, None)

    def damage() -> None:
        path.rename(aside)
        path.write_bytes(b"not whole")

    write()
    meanwhile.append(write)
    check(1)
    write()
    meanwhile.append(damage)
    replica.turn()
    assert "model.nb" in str(replica.status().trouble)
    aside.rename(path)
    check(2)
    for n_versions in (3, 4):
        write()
        meanwhile.append(write)
        check(n_versions)
        check(n_versions)  # it is not taken twice


def test_an_older_file_begins_if_the_newest_is_damaged(tmp_path: Path) -> None:
    """Without any model yet, the older one answers, as what it is: outdated for ever longer."""
    of, path = settings(follow={"stale_after_s": 60}), tmp_path / "model.nb"
    now_s = [100.0]
    for at_s in (1_000, 2_000):
        save(taught(of), path, keep=2)
        os.utime(path, (at_s, at_s))
    path.write_bytes(b"not whole")
    replica = Replica(of, feed_of(str(tmp_path), of), lambda: now_s[0])
    replica.turn()
    assert version_of(replica) == 1_000_000
    now_s[0] += 30.0
    replica.turn()
    report = replica.health.report()
    assert (report.ready, "not a streamnb model" in str(report.degraded)) == (True, True)
    assert "What answers stays" in str(report.degraded)
    now_s[0] += 31.0
    replica.turn()
    assert (replica.age_s(), replica.health.report().ready) == (61.0, False)
    (tmp_path / "model.nb.1").rename(path)  # as somebody would restore it
    replica.turn()
    assert (replica.age_s(), replica.health.report().ready) == (0.0, True)
    assert replica.figures.n_versions == 1


def test_age_and_readiness_follow_the_clock(tmp_path: Path) -> None:
    """The last model goes on answering; readiness ends behind the bound, and comes back."""
    of = settings(follow={"stale_after_s": 60})
    now_s = [100.0]
    replica = Replica(of, feed_of(str(tmp_path), of), lambda: now_s[0])
    assert replica.age_s() is None
    save(taught(of), tmp_path / "model.nb")
    replica.turn()
    (tmp_path / "model.nb").rename(tmp_path / "away")
    now_s[0] += 59.0
    replica.turn()
    assert replica.age_s() == 59.0
    assert replica.health.report().ready
    now_s[0] += 2.0
    replica.turn()
    report = replica.health.report()
    assert not report.ready
    assert "follow.stale_after_s" in str(report.reason)
    samples = {each.name: each.samples[0].value for each in replica.collect()}
    assert samples["streamnb_follow_age_seconds"] == 61.0
    assert samples["streamnb_follow_failures"] == 2
    with serving(replica) as (address, _):
        assert asked(address, {"text": "rain"}).status_code == 200
        assert got(address, "/readyz").status_code == 503
        assert got(address, "/healthz").status_code == 200
        metrics = got(address, "/metrics").text
        assert "streamnb_follow_age_seconds 61.0" in metrics
        (version,) = re.findall(r"^streamnb_snapshot_version (.+)$", metrics, re.MULTILINE)
        assert float(version) == version_of(replica) > 0
    (tmp_path / "away").rename(tmp_path / "model.nb")
    replica.turn()
    assert replica.age_s() == 0.0
    assert replica.health.report().ready


@pytest.mark.parametrize("at", ["its answer", "the next look"])
def test_what_is_waited_for_within_its_limit_is_not_stuck(at: str) -> None:
    """However soon a loop that waits for nothing counts as stuck; behind the limit it does."""
    of = settings(
        follow={"timeout_s": 60, "interval_s": 600}, http={"port": 0, "stuck_after_s": 30}
    )
    now_s = [100.0]
    feed = feed_of("http://127.0.0.1:9", of)
    replica = Replica(of, feed, lambda: now_s[0])
    states = []

    def wait(limit_s: float) -> None:
        for after_s in (limit_s + 29, 2):
            now_s[0] += after_s
            states.append(replica.health.report().state)

    class Slow:
        """A feed whose answer takes its time."""

        name, timeout_s = feed.name, of.follow.timeout_s

        def newest(self) -> tuple[None, float]:
            """Return nothing new, late."""
            if len(states) == 0 and at == "its answer":
                wait(60)
            return None, 0.0

    replica.turn()  # nobody is there
    replica.feed = Slow()
    replica.turn()
    if at == "the next look":
        wait(600)
    assert [each is State.STUCK for each in states] == [False, True]
    replica.turn()
    assert replica.health.report().state is not State.STUCK


def test_a_model_of_other_fields_is_refused(tmp_path: Path) -> None:
    """At the start that is an error; a model that answers already goes on answering."""
    of = settings()
    save(taught(of), tmp_path / "model.nb")
    mixed = settings(model=MIXED)
    with pytest.raises(MismatchError, match=r"reads text \(words\).*purpose \(words\)"):
        Replica(mixed, feed_of(str(tmp_path), mixed)).turn()
    replica = Replica(of, feed_of(str(tmp_path), of))
    replica.turn()
    save(build_model(mixed.model), tmp_path / "model.nb")
    replica.turn()
    assert "reads purpose" in str(replica.health.report().degraded)
    assert replica.figures.n_versions == 1
    with pytest.raises(ConfigError, match="neither a folder nor a URL"):
        feed_of(str(tmp_path / "nowhere"), of)


def test_a_model_for_each_value_is_followed_nowhere(tmp_path: Path) -> None:
    """A replica has the shared model alone: its answers would be others than the daemon's."""
    of = settings(per={"field": "lang"})
    for place in (str(tmp_path), "http://127.0.0.1:8100"):
        with pytest.raises(ConfigError, match="'lang', and a replica would answer by the shared"):
            feed_of(place, of)
    save(taught(settings()), tmp_path / "model.nb", notes={"entries": {"per": {}}})
    with pytest.raises(MismatchError, match=r"of a daemon with per\.field"):
        feed_of(str(tmp_path), settings()).newest()


def test_classes_that_join_are_those_of_the_replica() -> None:
    """A new class is answered, and counted, from the version on that knows it."""
    of = handing_out(model={"new_classes": True})
    source = Source(of)
    with source.served() as daemon:
        replica = Replica(of, feed_of(daemon, of))
        with capture_logs() as lines:
            replica.turn()
            assert lines == []
            source.learner.learn("a", {"text": ["a mixed day"]}, ["mixed"])
            source.learner.publish()
            until(replica, lambda: version_of(replica) == 3)
        told = [(each["log_level"], each["event"], each["now"][2:]) for each in lines]
        assert told == [("info", "classes_changed", ["mixed"])]
        with serving(replica) as (address, _):
            rows = got(address, "/v1/model").json()["classes"]
    assert json.dumps(rows).count('"mixed"') == 1


def test_other_classes_are_followed_with_a_word(tmp_path: Path) -> None:
    """Each model is answered from; the log says where its classes are not those of before."""
    of = settings()
    other = settings(model=of.model.model_dump() | {"classes": ["ham", "spam"]})
    replica = Replica(of, feed_of(str(tmp_path), of))
    for each, told in ((of, []), (other, [("negative", "ham")]), (of, [("ham", "negative")])):
        save(build_model(each.model), tmp_path / "model.nb")
        with capture_logs() as lines:
            replica.turn()
        assert replica.health.report().degraded is None
        assert [(line["before"][0], line["now"][0]) for line in lines] == told
        assert {line["log_level"] for line in lines} <= {"warning"}
