"""The teacher: what is asked within the budget, what is handed in, and what its failures leave."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

import streamnb as nb
from consumers.config.settings import Settings, to_yaml
from consumers.corrections.journal import FILE_NAME, Journal
from consumers.corrections.model import LogPosition, NotWritten
from consumers.corrections.service import CorrectionService, ExampleReader
from consumers.corrections.teacher import WAITING_MAX, ModelJudge, ServiceJudge, Teacher
from consumers.errors import ConfigError
from consumers.features import kinds_of
from consumers.search.query_syntax import StoreBusyError
from consumers.web_request import RequestError, WebService
from tests.consumers.raw_batches import CLASSES
from tests.consumers.search.live_stream import Said, Stream
from tests.consumers.sources.live_server import PATIENCE_S, LiveServer, Peer, Script

TOKEN = "marked-and-secret"
SURE = {"label": "positive", "probability": 0.95}


def answering(judge: Callable[[list[str]], Any], status: str = "200 OK") -> Script:
    """Return a service whose answer is made of the texts that it is sent."""

    def script(peer: Peer) -> None:
        texts = json.loads(peer.body())["texts"]
        peer.answer(status, json.dumps(judge(texts)))

    return script


def all_of(prediction: Any) -> Script:
    """Return a service that says the same of each text."""
    return answering(lambda texts: {"predictions": [prediction] * len(texts)})


class TeacherSetup:
    """A store with a stream before it, a journal, and a teacher that is told when to turn."""

    def __init__(self, folder: Path, **teacher: Any) -> None:
        given = {"budget_per_s": 10, "timeout_s": 30} | teacher
        self.settings = Settings.model_validate({"labels": {"teacher": given}})
        self.stream = Stream()
        self.now_s, self._n = 0.0, 0
        self.reason: str | None = None
        self.journal = Journal(folder / FILE_NAME)
        self.service = CorrectionService(
            self.journal, self.stream.recent, CLASSES,
            ExampleReader(kinds_of(self.settings.model), self.settings.message),
            lambda: self.reason,
        )  # fmt: skip
        self.teacher = Teacher.of(self.settings, self.service, CLASSES, lambda: self.now_s)
        self.stream.recent.listeners.append(self.teacher.offer)
        self.stream.recent.start()
        self.stream.settle()
        self._path = folder / FILE_NAME

    def say(self, *texts: str) -> None:
        """Bring messages without labels: m0, m1 and so on."""
        self.stream.say([Said(f"m{self._n + i}", text) for i, text in enumerate(texts)])
        self._n += len(texts)
        self.stream.settle()

    @property
    def counts(self) -> dict[str, int]:
        """What became of messages, without what became of none."""
        return {name: n for name, n in self.teacher.counts.items() if n}

    def lines(self) -> list[dict[str, Any]]:
        """Return what stands in the journal."""
        return [json.loads(line) for line in self._path.read_text().splitlines()]

    def labels(self) -> dict[str, str]:
        """Return the labels that were handed in, by id."""
        return {line["id"]: line["label"] for line in self.lines()}

    def close(self) -> None:
        """End all."""
        self.teacher.stop()
        self.stream.recent.stop()
        self.journal.close()


@pytest.fixture
def setups(tmp_path: Path) -> Iterator[Callable[..., TeacherSetup]]:
    """Return what makes setups, which are closed afterwards."""
    made: list[TeacherSetup] = []

    def make(**teacher: Any) -> TeacherSetup:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(TeacherSetup(folder, **teacher))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_labels_go_into_the_log_of_corrections(setups: Callable[..., TeacherSetup]) -> None:
    """A sure label is written as a person's is, with whose it is; then the message teaches it."""
    with LiveServer(all_of(SURE)) as server:
        setup = setups(url=f"http://{server.host}/v1/predict", token=TOKEN)
        setup.say("what a day", "what a night")
        setup.teacher.turn()
        (peer,) = server.peers
        assert peer.path == "/v1/predict"
        assert peer.header("Authorization") == f"Bearer {TOKEN}"
    assert setup.counts == {"asked": 2, "labelled": 2}
    first = min(setup.lines(), key=lambda line: str(line["id"]))
    assert first.pop("time_ms") > 0
    assert first == {
        "kind": "label", "id": "m0", "example": {"text": "what a day"}, "label": "positive",
        "partition": ["t", 0], "offset": 0, "by": "teacher",
    }  # fmt: skip
    found = setup.stream.recent.get("m0")
    assert found is not None
    assert (found.taught, found.corrected) == ("positive", "positive")


def test_what_a_teacher_must_not_label(setups: Callable[..., TeacherSetup]) -> None:
    """Unsure, unknown and empty labels teach nothing; nor does one of a message that a person has
    labelled or deleted meanwhile.
    """
    said = {
        "unsure": SURE | {"probability": 0.89}, "strange": SURE | {"label": "sarcastic"},
        "silent": {"label": None}, "by class": {"label": "negative", "probabilities":
        {"negative": 0.91, "positive": 0.09}}, "not by class": {"label": "negative",
        "probabilities": {"positive": 1.0}}, "certain": {"label": "negative"},
    }  # fmt: skip
    setup: TeacherSetup

    def judge(texts: list[str]) -> Any:
        setup.service.label("m6", "negative")
        setup.service.delete("m7")
        return {"predictions": [said.get(text, SURE) for text in texts]}

    with LiveServer(answering(judge)) as server:
        setup = setups(url=f"http://{server.host}/")
        setup.say(*said, "labelled", "deleted")
        setup.teacher.turn()
    assert setup.counts == {
        "asked": 8, "labelled": 2, "unsure": 3, "unknown_class": 1, "gone": 2
    }  # fmt: skip
    by_teacher = {line["id"] for line in setup.lines() if "by" in line}
    assert by_teacher == {"m3", "m5"}
    found = setup.stream.recent.get("m6")
    assert found is not None
    assert found.taught == "negative"


def test_what_is_gone_is_not_sent(setups: Callable[..., TeacherSetup]) -> None:
    """Nobody is told the text of a message that was deleted while it waited; it costs no budget."""
    sent: list[str] = []

    def judge(texts: list[str]) -> Any:
        sent.extend(texts)
        return {"predictions": [SURE] * len(texts)}

    with LiveServer(answering(judge)) as server:
        setup = setups(url=f"http://{server.host}/", budget_per_s=2)
        setup.say("deleted", "labelled")
        setup.service.delete("m0")
        setup.service.label("m1", "negative")
        setup.stream.settle()
        setup.teacher.turn()
        assert not sent
        setup.say("a", "b")
        setup.teacher.turn()
    assert sorted(sent) == ["a", "b"]
    assert setup.counts == {"gone": 2, "asked": 2, "labelled": 2}


def test_a_text_is_asked_once(setups: Callable[..., TeacherSetup]) -> None:
    """A text that comes again costs no budget, as long as it is among those that are kept."""
    with LiveServer(all_of(SURE)) as server:
        setup = setups(url=f"http://{server.host}/", cache_size=2)
        for texts in (("a", "b"), ("a", "b"), ("c",), ("b", "a")):
            setup.now_s += 60
            setup.say(*texts)
            setup.teacher.turn()
    assert setup.counts == {"asked": 4, "cached": 3, "labelled": 7}
    assert len(setup.labels()) == 7


def test_a_text_is_asked_once_among_those_that_wait(setups: Callable[..., TeacherSetup]) -> None:
    """Messages of one text that come at once are asked about once."""
    with LiveServer(all_of(SURE)) as server:
        setup = setups(url=f"http://{server.host}/")
        setup.say("a", "b", "a", "a")
        assert setup.teacher.turn() == 0.0
        assert setup.teacher.n_waiting == 2
        setup.teacher.turn()
    assert setup.counts == {"asked": 2, "cached": 2, "labelled": 4}


def test_a_stop_leaves_the_log_alone(
    setups: Callable[..., TeacherSetup], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is stopped amid handing labels in hands in no more: the log closes next."""
    with LiveServer(all_of(SURE)) as server:
        setup = setups(url=f"http://{server.host}/")
        setup.say("a", "b", "c")
        write = setup.journal.append

        def stopped(key: bytes, line: bytes) -> LogPosition:
            setup.teacher.stop()
            return write(key, line)

        monkeypatch.setattr(setup.journal, "append", stopped)
        setup.teacher.turn()
    assert list(setup.labels()) == ["m2"]
    assert setup.teacher.trouble() is None


def test_the_budget_bounds_what_is_asked(setups: Callable[..., TeacherSetup]) -> None:
    """So many a second are asked, the newest first; what waits is bounded, and the rest counted."""
    with LiveServer(all_of(SURE)) as server:
        setup = setups(url=f"http://{server.host}/", budget_per_s=0.5)
        setup.say(*(f"text {i}" for i in range(5)))
        assert setup.teacher.turn() == 2.0
        assert setup.teacher.turn() == 2.0
        setup.now_s += 1.5
        assert setup.teacher.turn() == 0.5
        setup.now_s += 0.5
        setup.teacher.turn()
        assert list(setup.labels()) == ["m4", "m3"]
        for i in range(WAITING_MAX // 100):
            setup.say(*(f"{i} {j}" for j in range(100)))
        assert setup.teacher.n_waiting == WAITING_MAX
        assert setup.counts["over_budget"] == 3
        setup.say(*(f"again {j}" for j in range(101)))
        assert setup.counts["over_budget"] == 3 + 101


def broken(body: str, status: str = "200 OK") -> Script:
    """Return a service that answers something else."""

    def script(peer: Peer) -> None:
        peer.body()
        peer.answer(status, body)

    return script


def breaking_off(head: str) -> Script:
    """Return a service that reads all and ends the connection amid its answer."""

    def script(peer: Peer) -> None:
        peer.body()  # what is not read when a connection ends makes it a reset one
        peer.send(head.encode())

    return script


def dripping(peer: Peer) -> None:
    """Send a byte of the answer now and then."""
    peer.send(b"HTTP/1.1 200 OK\r\nX: ")
    is_over = threading.Event()
    for _ in range(1_000):
        peer.send(b"a")
        is_over.wait(0.02)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (broken("no", "500 Internal Server Error"), "HTTP status 500"),
        (broken("", "302 Found"), "HTTP status 302"),
        (broken("<h1>hello</h1>"), "no JSON with predictions"),
        (broken('{"predictions":[{"label":7}]}'), "no JSON with predictions"),
        (broken('{"predictions":[{"label":"a","probability":95}]}'), "no JSON with predictions"),
        (
            broken('{"predictions":[{"label":"a","probabilities":{"a":95}}]}'),
            "no JSON with predictions",
        ),
        (broken('{"predictions":[]}'), "0 predictions for 1 texts"),
        (broken("[" * 100_000), "no JSON with predictions"),
        (broken(" " * (1 << 20) + "{}"), "longer than 1048576 bytes"),
        (breaking_off("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"), "broke off"),
        (breaking_off("POST / HTTP/1.1\r\n\r\n"), "BadStatusLine"),
        (lambda _: None, "RemoteDisconnected|Connection reset"),
        (dripping, r"not whole in time \(labels.teacher.timeout_s: 1\)"),
    ],
    ids=map(str, range(13)),
)  # fmt: skip
def test_a_failure_costs_what_was_asked(
    script: Script, why: str, setups: Callable[..., TeacherSetup]
) -> None:
    """Whatever a service does but answer: it is told once and counted, the pauses grow, and the
    next messages are asked about; no word of the service gets out.
    """
    with LiveServer(script, script, all_of(SURE)) as server, capture_logs() as logs:
        bound_s = 1.0 if script is dripping else 30.0
        setup = setups(url=f"http://{server.host}/", timeout_s=bound_s, token=TOKEN)
        pauses = []
        for i in range(2):
            setup.say(f"text {i}")
            setup.now_s += 60
            pauses.append(setup.teacher.turn())
        trouble = setup.teacher.trouble() or ""
        judge = setup.teacher._judge
        assert isinstance(judge, ServiceJudge)
        judge._service._timeout_s = 30.0  # the third comes whole, on a busy machine too
        setup.say("the third")
        setup.now_s += 60
        setup.teacher.turn()
    assert pauses == [1.0, 2.0]
    assert setup.counts == {"asked": 3, "failed": 2, "labelled": 1}
    assert [line["event"] for line in logs] == ["teacher_trouble", "teacher_trouble_over"]
    assert TOKEN not in f"{trouble}{logs}"
    assert re.search(why, trouble), trouble
    assert setup.teacher.trouble() is None


def test_a_full_disk_is_a_failure_too(
    setups: Callable[..., TeacherSetup], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the log does not take is counted, and what was said is not asked for again."""

    def full(*_: bytes) -> LogPosition:
        raise NotWritten("no room")

    with LiveServer(all_of(SURE)) as server:
        setup = setups(url=f"http://{server.host}/")
        setup.say("a", "b")
        with monkeypatch.context() as patch:
            patch.setattr(setup.journal, "append", full)
            assert setup.teacher.turn() == 1.0
        assert "no room" in (setup.teacher.trouble() or "")
        assert setup.counts == {"asked": 2, "failed": 2}
        setup.say("b", "a")
        setup.teacher.turn()
        assert setup.counts == {"asked": 2, "failed": 2, "cached": 2, "labelled": 2}
        with monkeypatch.context() as patch:  # nobody is asked what could not be handed in
            patch.setattr("consumers.corrections.service.UNREAD_MAX", 0)
            setup.say("d")
            assert setup.teacher.turn() == 2.0
        assert setup.counts == {"asked": 2, "failed": 3, "cached": 2, "labelled": 2}
        setup.reason = "still being read"
        setup.say("c")
        assert setup.teacher.turn() == 1.0  # nobody is asked while labels cannot be taken
        assert setup.counts["asked"] == 2
        assert setup.teacher.n_waiting == 1


def test_a_store_in_trouble_is_a_failure_too(
    setups: Callable[..., TeacherSetup], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the store cannot tell of is given up and counted, and the sentence says why."""

    def away(*_: str) -> None:
        raise StoreBusyError("it is being opened")

    with LiveServer(all_of(SURE)) as server:
        setup = setups(url=f"http://{server.host}/")
        setup.say("a")
        monkeypatch.setattr(setup.stream.recent, "get", away)
        assert setup.teacher.turn() == 1.0
    assert setup.counts == {"failed": 1}
    assert "it is being opened" in (setup.teacher.trouble() or "")


def test_the_thread_labels_and_ends_in_time(setups: Callable[..., TeacherSetup]) -> None:
    """It labels what is stored; amid a request that is never answered it ends at once, which is no
    trouble.
    """
    asked = [threading.Event(), threading.Event()]

    def once(peer: Peer) -> None:
        asked[0].set()
        all_of(SURE)(peer)

    def never(peer: Peer) -> None:
        peer.body()
        asked[1].set()
        peer.until_closed()

    with LiveServer(once, never) as server:
        setup = setups(url=f"http://{server.host}/", timeout_s=60, budget_per_s=1000)
        setup.teacher.start()
        for text, is_asked in zip("ab", asked, strict=True):
            setup.say(text)
            assert is_asked.wait(PATIENCE_S)
        setup.teacher.stop()
        assert not setup.teacher._thread.is_alive()
    assert setup.counts["labelled"] == 1
    assert setup.teacher.trouble() is None


def saved(path: Path, features: Any = None, **options: Any) -> Path:
    """Save a small model."""
    model = nb.NaiveBayes(
        classes=list(CLASSES), features=features or {"text": nb.Words(nb.Multinomial())}
    )
    columns = {"text": ["sun sun sun", "rain rain rain"] * 20} | options
    model.learn_many(columns, ["positive", "negative"] * 20)
    nb.save(model, path)
    return path


def test_a_saved_model_teaches(tmp_path: Path, setups: Callable[..., TeacherSetup]) -> None:
    """In the place of a service stands a model file; what it is not sure of it leaves."""
    setup = setups(model=str(saved(tmp_path / "teacher.nb")))
    setup.say("sun sun", "rain rain", "neither")
    setup.teacher.turn()
    assert setup.labels() == {"m0": "positive", "m1": "negative"}
    assert setup.counts == {"asked": 3, "labelled": 2, "unsure": 1}


def test_a_saved_model_is_asked_by_all_that_it_reads(
    tmp_path: Path, setups: Callable[..., TeacherSetup]
) -> None:
    """The same beginning of a text is not the same message: what is shown is cut off."""
    setup = setups(model=str(saved(tmp_path / "teacher.nb")))
    same = "and so on " * 400
    for text in ("sun sun sun", "rain rain rain"):
        setup.say(same + text)
        setup.teacher.turn()
    assert setup.labels() == {"m0": "positive", "m1": "negative"}


def test_a_model_that_cannot_teach_is_refused(tmp_path: Path) -> None:
    """A file that is no model, and a model that reads what messages are not kept with."""
    path = tmp_path / "broken.nb"
    path.write_bytes(b"no model")
    with pytest.raises(ConfigError, match=r"labels.teacher.model: .*broken.nb"):
        ModelJudge(path, {"text": "words"})
    features = {"text": nb.Words(nb.Multinomial()), "age": nb.Numbers(nb.Gaussian())}
    saved(path, features, age=[1.0, 2.0] * 20)
    with pytest.raises(ConfigError, match=r"reads age, and model\.features does not"):
        ModelJudge(path, {"text": "words"})


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"labels": {"teacher": {"url": "http://u:p@h/"}}}, "an address alone"),
        ({"labels": {"teacher": {"url": "http://h/?key=a"}}}, "an address alone"),
        ({"labels": {"teacher": {"url": "ftp://h/"}}}, "an address such as http://127.0.0.1"),
        ({"labels": {"teacher": {"token": TOKEN}}}, "are for url"),
        ({"labels": {"teacher": {"url": "http://h", "token": "a\nb"}}}, "ASCII in one line"),
        ({"labels": {"teacher": {"model": "/nowhere.nb"}}}, "a saved model that exists"),
        ({"labels": {"teacher": {"url": "http://h", "model": __file__}}}, "keep one"),
        ({"labels": {"teacher": {"url": "http://h"}}, "recent": {"enabled": False}}, "recent.ena"),
        ({"labels": {"teacher": {"url": "http://h"}}, "http": {"enabled": False}}, "http.enabled"),
        ({"labels": {"teacher": {"url": "http://h"}}, "corrections": {"to": "none"}}, "journal"),
        ({"labels": {"teacher": {"url": "http://h"}}, "labelling": {"enabled": True}}, "people's"),
        ({"labels": {"teacher": {"url": "http://h"}}, "source": "kafka://h:1/t",
          "late_labels": {"source": "kafka:l"}}, "their own labels"),
    ],
)  # fmt: skip
def test_settings_that_do_not_go_together(given: Any, wanted: str) -> None:
    """A teacher needs a place for its labels and for the messages."""
    with pytest.raises(ValueError, match=wanted):
        Settings.model_validate(given)


def test_settings_keep_the_token_and_the_kind() -> None:
    """The token is shown nowhere; beside Jetstream a teacher leaves the kind of labels as it is."""
    teacher = {"url": "http://h", "token": TOKEN}
    given = Settings.model_validate({"source": "jetstream", "labels": {"teacher": teacher}})
    assert TOKEN not in to_yaml(given) + repr(given)
    assert given.labels.kind == "emoticons"
    assert Settings().labels.teacher.is_on is False


def test_addresses_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slash at the end is part of the path, and no group of an IPv6 address is a port."""
    url = "http://[2001:db8::1]/predict/"
    given = Settings.model_validate({"labels": {"teacher": {"url": url}}})
    assert given.labels.teacher.url == url
    called: list[Any] = []

    def refused(address: Any, *_: Any) -> None:
        called.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr("socket.create_connection", refused)
    service = WebService({}, 1.0, 1, None, setting="labels.teacher")
    for each in (url, "https://[2001:db8::1]/", "http://[2001:db8::1]:8200/"):
        with pytest.raises(RequestError):
            service.ask(each)
    assert called == [("2001:db8::1", port) for port in (80, 443, 8200)]
