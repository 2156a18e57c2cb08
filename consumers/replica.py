"""A replica: a process that answers by a model which another process learns.

`streamnb serve --follow` runs it. It has the routes of the daemon's API that ask the model, and the
same code behind them; it reads no stream and writes nothing. A `ModelFeed` gets the newest version:
of a state folder, the checkpoint; of a daemon, what its `/v1/snapshot` hands out. A version comes
whole, with a digest of all its bytes, or as what changed since the last one, and answers once that
digest and the checksum of all of it are right: what a kill left half-written, or a connection that
broke, is never answered from.

With `follow.switch_after_s` a version waits for its time, so that all replicas that have it by then
change over at one instant.

If the newest version cannot be had, the replica answers by the last one, and `degraded` of
`/readyz` says why. If that lasts longer than `follow.stale_after_s`, the replica is not ready.
"""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import msgspec
import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from consumers.config.settings import Settings
from consumers.decode.example_input import kinds_in
from consumers.errors import ConfigError, MismatchError, QuestionError, SourceError
from consumers.features import kinds_of, learned_rule, own_costs
from consumers.http.client import NoRedirects
from consumers.http.routes_model import AGE_HEADER, DELTAS, SINCE_HEADER, SNAPSHOT_ROUTE
from consumers.http.server import start_server
from consumers.http.state import AppState
from consumers.messages import KnownClasses
from consumers.monitoring.metrics import Metrics
from consumers.monitoring.quality import Shares
from consumers.monitoring.stats import RunStatistics
from consumers.monitoring.status import Health, Status
from consumers.pipeline.checkpoint import FILE_NAME
from consumers.pipeline.own_models import ENTRY as OWN_MODELS
from consumers.process import keep_freed_memory, short_pauses
from consumers.reporter import build_status
from consumers.warm_up import WarmUp, needed
from consumers.web_request import BoundedHttp, BoundedHttps
from streamnb import (
    AnswerRule,
    NaiveBayes,
    Predictor,
    Snapshot,
    SnapshotBoard,
    StoreWarning,
    serialization,
)
from streamnb.errors import StoreError, StoreVersionError
from streamnb.storage import read_model

_BLOCK = 1 << 20
_NOTE_INTERVAL_S = 0.2
log = structlog.get_logger(__name__)


class ModelFeed(Protocol):
    """Gets a model that another process learns."""

    name: str  # as people call the place
    timeout_s: float  # how long one look may wait for an answer

    def newest(self) -> tuple[NewVersion | None, float]:
        """Return the newest version, and for how many seconds it may have been outdated.

        The version is None if it is the one that was returned last. If it cannot be had, it is a
        `SourceError`, also at each later look; what may yet come whole is tried again.
        """


_HAS_OWN_MODELS = (
    "a replica would answer by the shared model; ask the daemon itself, or follow one without "
    "per.field"
)

_NEEDS_INTERVALS = "follow.switch_after_s needs http.snapshot_interval_s above 0 in the daemon"


class NewVersion(msgspec.Struct):
    """A version of the model: the snapshot that answers by it, and how many bytes came of it."""

    snapshot: Snapshot
    n_bytes: int
    is_delta: bool = False
    since_s: float = -math.inf  # when it came up, the same for all replicas, in Unix seconds
    # Of a replica's own, which sets them:
    taken_at_s: float = 0.0
    newest_at_s: float = 0.0  # for sure
    answers_from_s: float = -math.inf  # Unix seconds


def feed_of(place: str, settings: Settings) -> ModelFeed:
    """Return the feed of a folder, or of the daemon at a URL.

    A replica has the shared model alone, and would answer by it where a daemon answers by another.
    """
    if settings.per.field is not None:
        raise ConfigError(f"--follow: per.field is {settings.per.field!r}, and {_HAS_OWN_MODELS}")
    if place.startswith(("http://", "https://")):
        return UrlFeed(place, settings)
    folder = Path(place)
    if not folder.is_dir():
        raise ConfigError(
            f"--follow: {place} is neither a folder nor a URL; give the checkpoint.folder of a "
            "daemon, or where its page is, such as http://127.0.0.1:8100"
        )
    return FolderFeed(folder, settings)


class FolderFeed:
    """Reads the newest checkpoint of a state folder; its version is when it was written, in ms.

    Before the first version an older file is taken if the newest is damaged. Afterwards a damaged
    one is refused, from the next look on: what answers is no older than those kept beside it.
    """

    timeout_s = 0.0

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.name = f"folder {folder}"
        self._path = folder / FILE_NAME
        self._settings = settings
        self._seen: tuple[int, ...] = ()
        self._refused: tuple[tuple[int, ...], str] = ((), "")

    def newest(self) -> tuple[NewVersion | None, float]:
        """Return the checkpoint if it is another file than the last; see `ModelFeed`.

        It may be replaced before it is read: its version is that of the file that was read.
        """
        seen = self._file()
        if seen == self._refused[0]:
            raise SourceError(self._refused[1])
        if seen == self._seen:
            return None, 0.0
        try:
            version, self._seen = self._read()
        except (StoreError, MismatchError) as error:
            # It may be within reach later, or another file by now.
            if not isinstance(error.__cause__, OSError) and self._file() == seen:
                self._refused = seen, str(error)
            if isinstance(error, MismatchError):
                raise
            raise SourceError(str(error)) from error
        return version, 0.0

    def _file(self) -> tuple[int, int, int]:
        """Return what another file of the name has another of: time in ns, inode and size."""
        try:
            found = self._path.stat()
        except OSError as error:
            raise SourceError(
                f"{self._path}: there is no checkpoint to follow ({error.strerror}); let `streamnb "
                "run` write one there, or name its checkpoint.folder"
            ) from error
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _read(self) -> tuple[NewVersion, tuple[int, int, int]]:
        """Return a version and which file it is of."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", StoreWarning)
            stored = read_model(self._path)
        for each in caught:
            if self._seen:
                damage = str(each.message).partition(" Going on with ")[0]
                raise StoreError(f"{damage} What answers stays.")
            log.error("checkpoint_damaged", detail=str(each.message))
        check_kinds(self._path, stored.model, self._settings)
        try:
            n_classes = len(stored.model.classes)
            rule = learned_rule(stored.header["notes"], n_classes) or AnswerRule()
            has_own_models = OWN_MODELS in stored.header["notes"].get("entries", {})
        except serialization.UNREADABLE as error:
            raise StoreError(
                f"{self._path}: its notes are no daemon's ({error!r}); name the checkpoint.folder "
                "of a daemon, or save the model without them"
            ) from error
        if has_own_models:
            raise MismatchError(
                f"{self._path} is of a daemon with per.field, and {_HAS_OWN_MODELS}"
            )
        costs = own_costs(self._settings.model, stored.model)
        written_ns, _, n_bytes = stored.file
        snapshot = Snapshot(stored.model, written_ns // 1_000_000, replace(rule, costs=costs))
        return NewVersion(snapshot, n_bytes, since_s=written_ns / 1e9), stored.file


class UrlFeed:
    """Asks a daemon, or another replica, for its newest snapshot; the version is the daemon's.

    It is sent what changed since the last one, if that is less. If it cannot make the version of
    it, it asks for it whole. One that came whole and cannot be used is not sent again: it may be
    large, and asked for often.
    """

    def __init__(self, url: str, settings: Settings) -> None:
        self.name = self._url = url.rstrip("/") + SNAPSHOT_ROUTE
        self._settings, self.timeout_s = settings, settings.follow.timeout_s
        token = settings.http.bearer_token
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._etag: str | None = None  # of the last that came whole
        self._base: Snapshot | None = None  # of that version, if it can be used
        self._refused: str | None = None  # why it cannot be used
        # The daemon is near: no proxy is between, and nobody else is given the token.
        bounded = BoundedHttp(), BoundedHttps()
        self._open = build_opener(ProxyHandler({}), NoRedirects(), *bounded).open

    def newest(self) -> tuple[NewVersion | None, float]:
        """Return the snapshot if the daemon has another one than the last; see `ModelFeed`."""
        headers = self._headers | ({} if self._etag is None else {"If-None-Match": self._etag})
        headers |= {} if self._base is None else {"A-IM": DELTAS}
        since_s = -math.inf
        asked = Request(self._url, headers=headers)  # noqa: S310 -- the operator's own address
        try:
            with self._open(asked, timeout=self.timeout_s) as answer:
                if self._settings.follow.switch_after_s:
                    since_s = _said_s(answer.headers, SINCE_HEADER, _NEEDS_INTERVALS)
                data, is_delta = self._body(answer), answer.status == HTTPStatus.IM_USED
                etag, behind_s = answer.headers["ETag"], _behind_s(answer.headers)
        except HTTPError as error:
            with error:
                if error.code == HTTPStatus.NOT_MODIFIED and self._etag is not None:
                    if self._refused is not None:
                        raise SourceError(self._refused) from None
                    return None, _behind_s(error.headers)
                raise SourceError(f"{self._url}: {error.code}: {_detail(error)}") from None
        except (OSError, HTTPException, ValueError) as error:
            said = getattr(error, "reason", error)
            if isinstance(said, TimeoutError):
                said = f"it was not whole within follow.timeout_s: {self.timeout_s:g} s"
            raise SourceError(
                f"{self._url}: no answer ({said}). Is the daemon there, and http.snapshots true?"
            ) from error
        base, self._base = self._base if is_delta else None, None
        try:
            version = self._version(data, base)
            version.since_s = since_s
        except (SourceError, MismatchError) as error:
            cause = error.__cause__
            # What came damaged may come whole at the next look.
            if base is not None:
                self._etag = None
            elif not isinstance(cause, StoreError) or isinstance(cause, StoreVersionError):
                self._etag, self._refused = etag, str(error)
            raise
        self._etag, self._refused, self._base = etag, None, version.snapshot
        return version, behind_s

    def _body(self, answer: Any) -> bytes:
        """Return all bytes of an answer."""
        blocks = []
        while block := answer.read(_BLOCK):
            blocks.append(block)
        # Read in blocks, an answer that ends too early is no error of the library.
        if answer.length:
            n = sum(map(len, blocks))
            raise ConnectionError(f"it broke off after {n:,} of {n + answer.length:,} bytes")
        return b"".join(blocks)

    def _version(self, data: bytes, base: Snapshot | None) -> NewVersion:
        """Return the version of a model file, or of a delta from a snapshot."""
        try:
            header, arrays = serialization.from_bytes(data)
            if base is not None:
                _, known = serialization.pack(base.state, {})
                header, arrays = serialization.patched(known, header, arrays)
            state, _ = serialization.unpack(header, arrays)
            said = header["notes"]["snapshot"]
            model = NaiveBayes.of(state)
            rule = AnswerRule.from_dict(said["rule"], own_costs(self._settings.model, model))
            snapshot = Snapshot(model, said["version"], rule)
        except serialization.UNREADABLE as error:
            raise SourceError(
                f"{self._url}: what came is no snapshot of a model ({error!r}); does the daemon "
                "have the same version as the replica?"
            ) from error
        except StoreError as error:
            raise SourceError(f"{self._url}: {error}") from error
        check_kinds(self._url, model, self._settings)
        return NewVersion(snapshot, len(data), base is not None)


def check_kinds(place: str | Path, model: NaiveBayes, settings: Settings) -> None:
    """Refuse a model that reads other fields than the settings': requests would not fit it."""
    wanted = kinds_of(settings.model)
    try:
        found = kinds_in(model)
    except QuestionError as error:
        raise MismatchError(f"{place}: {error}") from error
    if wanted != found:
        shown = [", ".join(f"{k} ({v})" for k, v in each.items()) for each in (found, wanted)]
        raise MismatchError(
            f"{place} reads {shown[0]}, and the configuration's model {shown[1]}. Give the "
            "configuration of the daemon that learns it, by -c"
        )


def _behind_s(headers: Any) -> float:
    """Return what an answer says of its age; without one it is no daemon's of ours."""
    return max(0.0, _said_s(headers, AGE_HEADER, "does --follow name a daemon, or a replica?"))


def _said_s(headers: Any, name: str, hint: str) -> float:
    try:
        said_s = float(headers[name])
    except (TypeError, ValueError):
        said_s = math.nan
    if not math.isfinite(said_s):
        raise SourceError(f"the answer has no {name}; {hint}")
    return said_s


def _detail(error: HTTPError) -> str:
    """Return what a problem says, or how it begins if it is none of ours.

    Its body may break off as any other; then the reason of its status is all there is.
    """
    try:
        body = error.read(4096).decode("utf-8", "replace")
    except (OSError, HTTPException):
        return f"{error.reason}, and what it says did not come whole"
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return body[:200]


class FollowFigures(msgspec.Struct):
    """What a replica has done; the main thread alone writes it."""

    n_versions: int = 0
    n_deltas: int = 0
    n_bytes_in_all: int = 0
    n_failures: int = 0
    load_s: float = 0.0
    n_bytes: int = 0


class HeldVersions(SnapshotBoard):
    """Holds the versions that were received; the last one whose time has come answers.

    Whoever asks moves on to it, so nothing delays that; `begins` is called first, by any thread.
    """

    def __init__(self, wall_clock: Callable[[], float], begins: Callable[[Snapshot], None]) -> None:
        super().__init__()
        self.waiting: list[NewVersion] = []  # the main thread appends
        self.wall_clock, self._begins = wall_clock, begins
        self._lock = threading.Lock()
        self._answering: NewVersion | None = None

    def answering(self) -> NewVersion | None:
        """Return the version that answers now."""
        with self._lock:
            while self.waiting and self.waiting[0].answers_from_s <= self.wall_clock():
                self._begins(self.waiting[0].snapshot)
                self._answering = self.waiting.pop(0)
                self.publish(self._answering.snapshot)
            return self._answering

    def current(self) -> Snapshot | None:
        """Return the snapshot that answers now."""
        self.answering()
        return super().current()


class Replica(Collector):
    """Follows a feed on the main thread: each `turn` looks once, and holds what is new.

    `clock` returns monotonic seconds, `wall_clock` Unix seconds.
    """

    def __init__(
        self,
        settings: Settings,
        feed: ModelFeed,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings, self.feed, self._clock = settings, feed, clock
        self.board, self.figures = HeldVersions(wall_clock, self._begin), FollowFigures()
        self.health = Health(clock, settings.http.stuck_after_s)
        self.registry = CollectorRegistry()
        self._statistics = RunStatistics(settings.model.classes, settings.model.fields, 1, clock)
        self._metrics = Metrics(self.registry, settings.model.classes, clock)
        self._metrics.watch(self.status)
        self.registry.register(self)
        self._received: NewVersion | None = None  # the newest, which may not answer yet
        self._trouble: str | None = None
        self.health.watch_part(lambda: self._trouble)

    def age_s(self) -> float | None:
        """Return for how many seconds the model may have been outdated; None before the first."""
        answering = self.board.answering()
        return None if answering is None else self._clock() - answering.newest_at_s

    def turn(self) -> None:
        """Look for a newer version once. A first one that cannot fit is a `MismatchError`."""
        began_s = self._clock()
        n_new = 0
        self.health.wait(self.feed.timeout_s)
        try:
            version, behind_s = self.feed.newest()
            if version is not None:
                n_new = 1
                version.newest_at_s = began_s - behind_s
                self._take(version, began_s)
        except (SourceError, MismatchError) as error:
            if isinstance(error, MismatchError) and self._received is None:
                raise
            self.figures.n_failures += 1
            if self._trouble is None:
                log.warning("not_followed", detail=str(error))
            self._trouble = str(error)
        else:
            if self._received is not None:
                self._received.newest_at_s = began_s - behind_s
            if self._trouble is not None:
                log.info("followed_again", feed=self.feed.name)
            self._trouble = None
        self._say_ready()
        self.health.beat(n_new)
        self.health.wait(self.settings.follow.interval_s)  # until the next turn

    def _take(self, version: NewVersion, began_s: float) -> None:
        version.taken_at_s = self._clock()
        if after_s := self.settings.follow.switch_after_s:
            # By a clock that goes ahead of this one it waits no longer than by one that is right.
            version.answers_from_s = min(version.since_s, self.board.wall_clock()) + after_s
        self._received = version
        self.board.waiting.append(version)
        self.figures.n_versions += 1
        self.figures.n_deltas += version.is_delta
        self.figures.n_bytes_in_all += version.n_bytes
        self.figures.load_s = version.taken_at_s - began_s
        self.figures.n_bytes = version.n_bytes

    def _begin(self, snapshot: Snapshot) -> None:
        """Let a version be the one that answers."""
        classes = KnownClasses(map(str, snapshot.classes))
        before, now = [*self._metrics.classes], [*classes]
        if now != before:  # at first those of the configuration
            may_join = self.settings.model.new_classes and now[: len(before)] == before
            (log.info if may_join else log.warning)("classes_changed", before=before, now=now)
        self._metrics.classes = self._statistics.classes = classes
        self.health.set_ready(snapshot.version)

    def _say_ready(self) -> None:
        """Let a model that has not been the newest for too long count as no answer any more."""
        age_s, limit_s = self.age_s(), self.settings.follow.stale_after_s
        if age_s is None or age_s <= limit_s:
            self.health.set_trouble(self._trouble if age_s is None else None)
            return
        self.health.set_trouble(
            f"the model may be outdated for {age_s:.1f} s, and may be for {limit_s:g} s "
            f"(follow.stale_after_s): {self._trouble or 'the feed itself is behind'}"
        )

    def status(self) -> Status:
        """Return the status as it is now; any thread may ask."""
        answering = self.board.answering()
        snapshot = None if answering is None else answering.snapshot
        made = build_status(self.feed.name, self._statistics, None, snapshot)
        age_s = None if answering is None else self._clock() - answering.taken_at_s
        return msgspec.structs.replace(
            made, trouble=self._trouble, snapshot_age_s=age_s, health=self.health.report()
        )

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield the metrics that a replica has and a daemon has not."""
        age_s, figures = self.age_s(), self.figures
        rows = (
            (GaugeMetricFamily, "age_seconds", "For how long the model may be outdated.",
             float("nan") if age_s is None else age_s),
            (CounterMetricFamily, "versions", "Versions of the model taken.", figures.n_versions),
            (CounterMetricFamily, "deltas", "Versions taken of which only changes came.",
             figures.n_deltas),
            (CounterMetricFamily, "received_bytes", "Bytes of the versions taken.",
             figures.n_bytes_in_all),
            (CounterMetricFamily, "failures", "Looks that found no version to be had.",
             figures.n_failures),
            (GaugeMetricFamily, "load_seconds", "How long it took to get the last version.",
             figures.load_s),
            (GaugeMetricFamily, "bytes", "Bytes that came of the last version.", figures.n_bytes),
        )  # fmt: skip
        for family, name, text, value in rows:
            yield family(f"streamnb_follow_{name}", text, value=value)

    def app_state(self, predictor: Predictor) -> AppState:
        """Return what the application answers from."""
        page = self.settings.page
        return AppState(
            settings=self.settings,
            registry=self.registry,
            metrics=self._metrics,
            predictor=predictor,
            status=self.status,
            shares=lambda: Shares.unknown(
                self._metrics.classes, page.share_messages_min, page.class_names
            ),
            follow_age_s=self.age_s,
        )


@contextlib.contextmanager
def serving(replica: Replica) -> Iterator[tuple[str, Callable[[], None]]]:
    """Serve a replica; yield its address, and what raises the error that ended the server."""
    with contextlib.ExitStack() as stack:
        predictor = Predictor(replica.board, replica.settings.predictor.queue_size_max)
        predictor.start()
        stack.callback(predictor.stop)
        yield start_server(replica.app_state(predictor), stack)


def run(settings: Settings, place: str, stop: threading.Event) -> None:
    """Serve what is learned elsewhere until `stop` is set; see `feed_of` for the place.

    A `ConfigError` says why it cannot, a `MismatchError` that the model is another configuration's.
    """
    keep_freed_memory()
    replica = Replica(settings, feed_of(place, settings))
    with contextlib.ExitStack() as stack, serving(replica) as (_, watch):
        warm_up = WarmUp(needed(settings))
        warm_up.start()
        stack.callback(warm_up.cancel)
        while not warm_up.wait(_NOTE_INTERVAL_S):
            if warm_up.note is not None:
                replica.health.set_starting(warm_up.note)
            if stop.is_set():
                return
        with short_pauses():
            while not stop.is_set():
                replica.turn()
                watch()
                stop.wait(settings.follow.interval_s)
