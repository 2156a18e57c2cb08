"""The teacher: a service or a second model that labels messages which came without a label.

    RecentStore ── rows that were stored ──► Teacher ── suggest ──► CorrectionService ──► log

It is asked on a thread of its own and within a budget, and the stream never waits for it. What it
says is not a function of the stream's log, as a call may answer otherwise the next time. So it
teaches nothing: each label goes into the log of corrections as a person's does, and is learned from
there, once, whatever is killed, and taken back with its message. A message that teaches something
already, or is gone, is left as it is.

What cannot be asked in time is left out, the oldest first; what a request fails for is not asked
again. Both are counted.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, NamedTuple, Protocol, Self, TypeAlias

import msgspec
import structlog

from consumers.config.message import TeacherSettings
from consumers.config.settings import Settings
from consumers.corrections.service import CorrectionService
from consumers.decode.example_input import kinds_in
from consumers.errors import ConfigError, ConsumerError, QuestionError
from consumers.features import learned_kinds, learned_rule
from consumers.monitoring.metrics import TEACHER
from consumers.process import watch_cache
from consumers.search.rows import MessageRow
from consumers.search.writer import NewRows
from consumers.web_request import RequestError, WebService
from streamnb import Snapshot
from streamnb.errors import StoreError
from streamnb.storage import read_model

WAITING_MAX = 1_000  # messages
_OF_A_BATCH = 100  # rows that are taken of what is stored at once, on the store's thread
_TEXTS_MAX = 50  # of a request
_ANSWER_BYTES_MAX = 1 << 20
_PAUSE_S, _PAUSE_MAX_S = 1.0, 60.0
_STOP_S = 2.0
log = structlog.get_logger(__name__)


class Lesson(NamedTuple):
    """What a teacher says of a message: a label, if it has one, and how sure it is."""

    label: str | None
    confidence: float


class Judge(Protocol):
    """Whoever is asked; what keeps it from an answer is a `RequestError`, whose text is ours."""

    name: str
    by_text: bool  # whether it judges texts alone, whatever else a message says

    def judge(self, rows: Sequence[MessageRow]) -> Sequence[Lesson]:
        """Return what is said of each message."""

    def read(self, row: MessageRow) -> bytes:
        """Return what of a message is judged: where that is the same, so is what is said."""

    def cancel(self) -> None:
        """End what is asked now, from any thread."""


_Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]


class _Prediction(msgspec.Struct):
    label: str | None
    probability: _Share | None = None
    probabilities: dict[str, _Share | None] = {}


class _Answer(msgspec.Struct):
    predictions: list[_Prediction]


class ServiceJudge:
    """Asks a service as `POST /v1/predict` is asked: another daemon, or a few lines before an API.

    It is sent ``{"texts": [...]}`` and answers ``{"predictions": [{"label", "probability"}]}``. A
    label without a probability counts as sure.
    """

    by_text = True

    def __init__(self, settings: TeacherSettings) -> None:
        token = settings.bearer_token
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._service = WebService(
            headers | {"Accept": "application/json"}, settings.timeout_s, _ANSWER_BYTES_MAX,
            settings.ssl_cafile, setting="labels.teacher",
        )  # fmt: skip
        self.name = settings.url or ""
        self.cancel = self._service.cancel

    def judge(self, rows: Sequence[MessageRow]) -> list[Lesson]:
        """Return what the service says; see `Judge`."""
        body = msgspec.json.encode({"texts": [row.text for row in rows]})
        status, body = self._service.ask(self.name, body)
        if status != 200:
            raise RequestError(f"HTTP status {status}")
        try:
            found = msgspec.json.decode(body, type=_Answer).predictions
        except (ValueError, RecursionError):  # MsgspecError and UnicodeDecodeError are ValueErrors
            raise RequestError("the answer is no JSON with predictions") from None
        if len(found) != len(rows):
            raise RequestError(f"it has {len(found)} predictions for {len(rows)} texts")
        return [_lesson(each) for each in found]

    def read(self, row: MessageRow) -> bytes:
        """Return the text that is sent; see `Judge`."""
        return row.text.encode("utf-8", "replace")


def _lesson(said: _Prediction) -> Lesson:
    sure = said.probability
    if sure is None:
        sure = said.probabilities.get(said.label or "") if said.probabilities else 1.0
    return Lesson(said.label, 0.0 if sure is None or math.isnan(sure) else sure)


class ModelJudge:
    """Asks a model that was saved: one that cannot be read, or used here, is a `ConfigError`.

    `fields` are those that messages have.
    """

    by_text = False

    def __init__(self, path: Path, fields: Mapping[str, str]) -> None:
        try:
            stored = read_model(path)
            kinds = kinds_in(stored.model)
        except (StoreError, QuestionError) as error:
            raise ConfigError(f"labels.teacher.model: {error}") from error
        unread = [name for name, kind in kinds.items() if fields.get(name) != kind]
        if unread:
            raise ConfigError(
                f"labels.teacher.model: {path} reads {', '.join(unread)}, and model.features does "
                "not; messages are kept with the fields of the model that learns"
            )
        rule = learned_rule(stored.header["notes"], len(stored.model.classes))
        self._model = Snapshot(stored.model, 0, rule)
        self.name = str(path)

    def judge(self, rows: Sequence[MessageRow]) -> list[Lesson]:
        """Return what the model says; see `Judge`."""
        found = (self._model.predict_proba_one(row.example) for row in rows)
        best = (max(each.items(), key=lambda item: item[1]) for each in found)
        return [Lesson(str(label), sure) for label, sure in best]

    def read(self, row: MessageRow) -> bytes:
        """Return the fields that the model learns, whole; see `Judge`."""
        return msgspec.json.encode(row.example, order="sorted")

    def cancel(self) -> None:
        """Do nothing: it answers at once."""


class Teacher:
    """Asks a judge about what comes without a label, and hands its labels in.

    `clock` returns monotonic seconds. `counts` has how many messages had which outcome.
    """

    def __init__(
        self,
        settings: TeacherSettings,
        judge: Judge,
        service: CorrectionService,
        classes: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts = dict.fromkeys(TEACHER, 0)
        self._settings, self._judge, self._service = settings, judge, service
        self._classes = classes  # without those that may join: a teacher invents none
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[MessageRow] = deque()
        self._cache: OrderedDict[bytes, Lesson] = OrderedDict()
        self._budget = self._budget_max = max(1.0, settings.budget_per_s)
        self._budgeted_at_s = clock()
        self._pause_s = 0.0  # the last one after a failure
        self._trouble: str | None = None
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="teacher", daemon=True)
        watch_cache("teacher_answers", self._fill)

    def _fill(self) -> tuple[int, int]:
        return len(self._cache), self._settings.cache_size

    @classmethod
    def of(
        cls,
        settings: Settings,
        service: CorrectionService,
        classes: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> Self:
        """Return the teacher of the settings; one that cannot be used is a `ConfigError`."""
        teacher = settings.labels.teacher
        judge: Judge = (
            ServiceJudge(teacher)
            if teacher.model is None
            else ModelJudge(teacher.model, learned_kinds(settings))
        )
        return cls(teacher, judge, service, classes, clock)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """End, whatever is being asked."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        self._judge.cancel()
        if self._thread.ident is not None:
            self._thread.join(_STOP_S)

    @property
    def n_waiting(self) -> int:
        """How many messages may still be asked about."""
        return len(self._waiting)

    def trouble(self) -> str | None:
        """Return what keeps it from labelling, as a sentence; None if nothing does."""
        return self._trouble

    def offer(self, rows: NewRows) -> None:
        """Take what was stored; called on the store's thread, which it holds for little time."""
        own, n = rows.unlabelled(_OF_A_BATCH, by_text=self._judge.by_text)
        with self._changed:
            self._waiting.extend(own)
            n_over = n - len(own)
            while len(self._waiting) > WAITING_MAX:
                self._waiting.popleft()
                n_over += 1
            self.counts["over_budget"] += n_over
            self._changed.notify_all()

    def turn(self) -> float:
        """Label what waits, as far as the budget goes; return the seconds until the next turn."""
        if self._service.reason is not None:  # corrections of before are still being read
            return _PAUSE_S
        to_ask, lessons = self._next()
        self._count("cached", len(lessons))
        failure, n_taken = None, len(to_ask)
        try:
            # A text that was deleted while it waited leaves for nowhere.
            at = ((row, (row.partition, row.offset)) for row in to_ask)
            to_ask = [row for row, place in at if self._service.is_untaught(row.id, place)]
            self._count("gone", n_taken - len(to_ask))
            if to_ask:
                n_taken = len(to_ask)
                self._budget -= n_taken
                self._count("asked", n_taken)
                lessons += zip(to_ask, self._judge.judge(to_ask), strict=True)
        except (RequestError, ConsumerError) as error:
            self._count("failed", n_taken)
            failure = str(error)
        for row, lesson in lessons:
            self._keep(row, lesson)
        for i, (row, lesson) in enumerate(lessons):
            if self._is_stopping:  # the log is about to be closed
                break
            try:
                self._teach(row, lesson)
            except ConsumerError as error:
                self._count("failed", len(lessons) - i)
                failure = str(error)
                break
        if failure is not None:
            return self._failed(failure)
        if to_ask:
            self._recovered()
        return max(0.0, 1 - self._budget) / self._settings.budget_per_s

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopping or bool(self._waiting))
            if self._is_stopping:
                return
            try:
                pause_s = self.turn()
            except Exception as error:
                log.exception("teacher_broke")
                pause_s = self._failed(f"an unforeseen error: {type(error).__name__}")
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopping, pause_s)

    def _next(self) -> tuple[list[MessageRow], list[tuple[MessageRow, Lesson]]]:
        """Take the newest messages that the budget has room for, and those whose text is known."""
        now_s = self._clock()
        earned = (now_s - self._budgeted_at_s) * self._settings.budget_per_s
        self._budget, self._budgeted_at_s = min(self._budget_max, self._budget + earned), now_s
        room = min(int(self._budget), _TEXTS_MAX)
        to_ask: dict[bytes, MessageRow] = {}
        known: list[tuple[MessageRow, Lesson]] = []
        later: list[MessageRow] = []
        with self._changed:
            while self._waiting and len(to_ask) < room:
                row = self._waiting.pop()
                key = self._key(row)
                lesson = self._cache.get(key)
                if lesson is not None:
                    known.append((row, lesson))
                elif key in to_ask:
                    later.append(row)  # with the answer for the other one
                else:
                    to_ask[key] = row
            self._waiting.extend(reversed(later))
        return list(to_ask.values()), known

    def _teach(self, row: MessageRow, lesson: Lesson) -> None:
        """Hand in a label, if it is one and sure."""
        label = lesson.label
        if label is None or lesson.confidence < self._settings.min_confidence:
            self._count("unsure")
        elif label not in self._classes:
            self._count("unknown_class")
        else:
            at = row.partition, row.offset
            receipt = self._service.suggest(row.id, label, at, "teacher")
            self._count("gone" if receipt is None else "labelled")

    def _key(self, row: MessageRow) -> bytes:
        return blake2b(self._judge.read(row), digest_size=16).digest()

    def _keep(self, row: MessageRow, lesson: Lesson) -> None:
        """Keep what was said of a text; what was not needed for longest leaves."""
        key = self._key(row)
        self._cache[key] = lesson
        self._cache.move_to_end(key)
        if len(self._cache) > self._settings.cache_size:
            self._cache.popitem(last=False)

    def _count(self, outcome: str, n: int = 1) -> None:
        with self._changed:  # the store's thread counts, too
            self.counts[outcome] += n

    def _failed(self, why: str) -> float:
        """Note a failure; return the pause after it, ever longer."""
        if not self._is_stopping:
            if self._trouble is None:
                log.warning("teacher_trouble", teacher=self._judge.name, detail=why)
            self._trouble = f"labels.teacher: {self._judge.name}: {why}"
        self._pause_s = min(_PAUSE_MAX_S, max(_PAUSE_S, 2 * self._pause_s))
        return self._pause_s

    def _recovered(self) -> None:
        if self._trouble is not None:
            log.info("teacher_trouble_over", teacher=self._judge.name)
        self._trouble, self._pause_s = None, 0.0
