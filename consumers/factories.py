"""The daemon's components, built as the settings describe them.

`build_source`, `build_decoder` and `build_sink` make the ends of the pipeline. `open_components`
opens what is read and written over HTTP: the store of recent messages, the corrections and the
quality monitor; `build_erasure` and `serve` stand on those. What the settings turn off is None.
"""

from __future__ import annotations

import contextlib
import importlib.util
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, assert_never
from urllib.parse import urlsplit

import msgspec
import numpy as np
import structlog
from msgspec.structs import replace
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry

from consumers.config.addresses import (
    Bound,
    FileSettings,
    LiveSettings,
    OutputSettings,
    StreamRange,
)
from consumers.config.message import EmoticonLabels
from consumers.config.settings import Settings
from consumers.corrections import journal
from consumers.corrections.applier import CorrectionApplier, SharedStream
from consumers.corrections.journal import Journal, JournalSource
from consumers.corrections.model import Log, LogReader
from consumers.corrections.service import CorrectionService, ExampleReader, MessageLookup
from consumers.corrections.teacher import Teacher
from consumers.decode.decoder import Decoder, LabelDecoder
from consumers.decode.labels import EmoticonLabeller, FieldLabeller, Labeller
from consumers.decode.schemas import payloads_of
from consumers.errors import CheckpointError, ConfigError
from consumers.features import build_model, extra_fields, judged_kinds, kinds_of, learned_kinds
from consumers.http.requests import is_loopback
from consumers.http.server import start_server
from consumers.http.state import ApiEventSerializer, AppState
from consumers.kafka.client import require_librdkafka
from consumers.kafka.group_source import configured_source, whole_topic_source
from consumers.messages import KnownClasses, RawColumns, part_name
from consumers.monitoring.metrics import Metrics
from consumers.monitoring.quality import Quality, function_words
from consumers.monitoring.stats import RunStatistics
from consumers.monitoring.status import Health, Status
from consumers.pipeline.checkpoint import Checkpoint
from consumers.pipeline.erasure import Erasure, OtherPlaces, Output
from consumers.pipeline.group_parts import GroupParts
from consumers.pipeline.late_labels import LateLabels
from consumers.pipeline.learned_memory import LearnedMemory
from consumers.pipeline.part_files import PartFiles
from consumers.pipeline.reader import LabelReader, Reader
from consumers.private_files import Overwrites
from consumers.search.label_queue import LabelQueue
from consumers.search.live_updater import LiveUpdater, ShareAlerts
from consumers.search.store import RecentStore
from consumers.sinks.jsonl import JsonLinesSink
from consumers.sinks.records import NoSink, Sink, without_message
from consumers.sources.base import RangedSource, Source, live_beginning
from consumers.sources.file import FileSource, StdinSource
from consumers.sources.generator import GeneratorSource
from consumers.sources.recording import RecordingSource, is_recording, stream_identity
from streamnb import NaiveBayes, Predictor

if TYPE_CHECKING:
    from consumers.kafka.transactions import KafkaTransactions

RECENT_FILE = "recent.db"
_FRAMINGS: dict[str, Literal["events", "lines", "websocket"]] = {
    "sse": "events", "lines": "lines", "websocket": "websocket",
}  # fmt: skip
log = structlog.get_logger(__name__)


def build_source(
    settings: Settings,
    *,
    until_end: bool,
    part: StreamRange | None = None,
    with_headers: bool = False,
) -> Source:
    """Return the source that `source` names, or a `part` of it, unopened.

    A recording gives the headers of its messages only `with_headers`, for who copies them. A
    missing client is a `ConfigError`, and so is a part of a stream that cannot be read again.
    """
    if part is None or part == StreamRange():
        return _whole_source(settings, until_end=until_end, with_headers=with_headers)
    kind = settings.source_address.kind
    if settings.source_address.urls:
        begin = live_beginning(settings.source_address, settings.message.preset, part)
        return _live_source(settings, begin)
    if not settings.source_address.has_past:
        raise ConfigError(
            f"bounds such as --from: source {kind} has no past to begin in; they are for a topic, "
            "a file or a recording, and --from for Jetstream and Wikimedia's streams"
        )
    until_end = until_end or part.end is not None
    source = _whole_source(
        settings, until_end=until_end, begin_at=part.begin, with_headers=with_headers
    )

    def times_of(raw: RawColumns) -> NDArray[np.int64]:
        """Return the source's times; a file has none, so there the messages say theirs."""
        return raw.times_ms if (raw.times_ms >= 0).any() else decoder.times_ms(raw)

    decoder = build_decoder(settings, source)
    return RangedSource(source, part, times_of, begins=kind == "kafka")


def check_end(settings: Settings) -> None:
    """Refuse, by a `ConfigError`, to read a stream to its end that has none."""
    address = settings.source_address
    if address.urls or address.kind == "generator":
        what = "a live stream" if address.urls else "the made-up stream"
        raise ConfigError(
            f"--until-end: {settings.source} is {what} and has no end; give --max-messages, or "
            "leave it out"
        )


def _whole_source(
    settings: Settings,
    *,
    until_end: bool,
    begin_at: Bound | None = None,
    with_headers: bool = False,
) -> Source:
    address = settings.source_address
    source: Source
    match address.kind:
        case "kafka":
            source = configured_source(settings, begin_at)
        case "file":
            path = address.path or Path()
            if is_recording(path):
                raise ConfigError(f"source: {path} is a recording; write `recording:{path}`")
            source = FileSource(path, _file_settings(settings), follow=not until_end)
        case "recording":
            path = address.path or Path()
            source = RecordingSource(path, settings.file, with_headers=with_headers)
        case "stdin":
            source = StdinSource(_file_settings(settings))
        case "generator":
            source = GeneratorSource(settings.generator)
        case "jetstream" | "sse" | "lines" | "websocket":
            source = _live_source(settings)
        case kind:
            assert_never(kind)
    return source


def _file_settings(settings: Settings) -> FileSettings:
    """Return how a file is read: lines of plain text could be taken for CSV."""
    if settings.message.format == "json":
        return settings.file
    return settings.file.model_copy(update={"format": "jsonl"})


def _live_source(settings: Settings, begin: Bound | None = None) -> Source:
    """Return the source of a live stream, whose clients are an extra, from a time on."""
    missing = [each for each in ("h11", "websockets") if importlib.util.find_spec(each) is None]
    if missing:
        raise ConfigError(
            f"source: {settings.source} needs what is not installed: {', '.join(missing)}. Install "
            "the extra: pip install 'streamnb[live]'"
        )
    from consumers.sources.jetstream import JetstreamFeed, from_time  # noqa: PLC0415 -- an extra
    from consumers.sources.live import LiveSource, StreamFeed  # noqa: PLC0415 -- an extra

    address = settings.source_address
    _warn_of_plain_token(settings.live, address.urls)
    if address.kind == "jetstream":
        jetstream = settings.jetstream if begin is None else from_time(settings.jetstream, begin)
        return LiveSource(JetstreamFeed(address.urls, jetstream), settings.live, begin=begin)
    feed = StreamFeed(address.urls[0], _FRAMINGS[address.kind], since=begin)
    return LiveSource(feed, settings.live, begin=begin)


def _warn_of_plain_token(live: LiveSettings, urls: Sequence[str]) -> None:
    """Log if a live stream's token, or a header like it, goes over the network unencrypted."""
    plain = [each for each in map(urlsplit, urls) if each.scheme in {"http", "ws"}]
    hosts = [each.netloc for each in plain if not is_loopback(each.hostname or "")]
    if hosts and (secrets := live.secret_settings):
        log.warning(
            "token_unencrypted",
            hosts=hosts,
            detail=f"{', '.join(secrets)}: sent over plain http or ws, and whoever is on the way "
            "can read it; write source with https:// or wss:// (jetstream:// instead of jetstream+ws://)",
        )


def build_group(
    settings: Settings, memory: LearnedMemory | None, source: Source
) -> GroupParts | None:
    """Return what members of a group share, where reading begins too, if there is a folder."""
    shared = settings.group
    if shared.folder is None:
        return None
    like = build_model(settings.model)
    files = PartFiles(shared.folder, stream_identity(settings), like, shared.keep)
    late, topic = settings.kafka.start_from == "latest", settings.source_address.topic or ""
    source.begins_of = lambda topic_id, ends: files.beginnings(topic, topic_id, ends)
    labels = settings.late_labels.address.topic or settings.corrections.address.topic
    return GroupParts(files, topic, shared.interval_s, memory=memory, labels=labels, is_late=late)


def known_classes(settings: Settings, model: NaiveBayes | None) -> KnownClasses:
    """Return the classes of the settings, and those that joined the restored model before."""
    classes = KnownClasses(settings.model.classes, open=settings.model.new_classes)
    if model is not None:
        classes.grow(model.classes)
    return classes


def build_decoder(
    settings: Settings, source: Source, classes: Sequence[str] | None = None
) -> Decoder:
    """Return the decoder for the records of a source; `classes` are the settings' if None."""
    labels = settings.labels
    classes = settings.model.classes if classes is None else classes
    labeller: Labeller
    if isinstance(labels, EmoticonLabels):
        labeller = EmoticonLabeller(labels, classes)
    else:
        labeller = FieldLabeller(labels, classes)
    fields = dict.fromkeys((*settings.message.fields, *extra_fields(settings)))
    message = settings.message.model_copy(update={"fields": tuple(fields)})
    form = source.record_format
    payloads = payloads_of(message, form)
    return Decoder(message, labeller, form, reads=learned_kinds(settings), payloads=payloads)


def build_transactions(settings: Settings, metrics: Metrics) -> KafkaTransactions | None:
    """Return what sends predictions and offsets together, not started; None if it is off."""
    kafka = settings.kafka
    if not kafka.transactions:
        return None
    require_librdkafka("kafka.transactions", "set kafka.transactions to false")
    from consumers.kafka.transactions import KafkaTransactions  # noqa: PLC0415 -- as the clients

    topic = settings.source_address.topic or ""
    return KafkaTransactions(settings.output_servers, topic, kafka, metrics.transaction_ended)


def build_sink(
    output: OutputSettings,
    settings: Settings,
    name: str = "output",
    transactions: KafkaTransactions | None = None,
) -> Sink:
    """Return the sink that an output's `to` names; `name` is that of its checkpoint entry."""
    address = output.address
    match address.kind:
        case "kafka" if transactions is not None:
            return transactions.sink(address.topic or "")
        case "kafka":
            from consumers.kafka.producers import KafkaSink  # noqa: PLC0415 -- as the clients

            return KafkaSink(settings.output_servers, address.topic or "", settings.kafka)
        case "file":
            return JsonLinesSink(address.path or Path(), name)
        case "none":
            return NoSink()
        case kind:
            assert_never(kind)


class CorrectionParts(msgspec.Struct, frozen=True):
    """What carries corrections from a request to the learner."""

    correction_service: CorrectionService
    applier: CorrectionApplier  # the pipeline starts and closes its reading
    log: Log  # it is closed last, after the HTTP server


def build_corrections(
    settings: Settings,
    lookup: MessageLookup | None,
    metrics: Metrics,
    clock: Callable[[], float] = time.monotonic,
    classes: Sequence[str] | None = None,
) -> CorrectionParts | None:
    """Return what `corrections.to` asks for, or None if corrections are off.

    A journal needs the checkpoint's folder to exist and to be locked by this process; one that
    cannot be opened is a `CheckpointError`. A corrections topic that is the stream itself, or has
    no servers, is a `ConfigError`.
    """
    address = settings.corrections.address
    folder = settings.checkpoint.folder
    entries: Log
    if address.kind == "kafka":
        entries, source = _corrections_topic(settings, address.topic or "")
    elif address.kind == "journal" and folder is not None:
        entries = Journal(folder / journal.FILE_NAME)
        source = JournalSource(entries)
    else:
        return None
    classes = settings.model.classes if classes is None else classes
    stream = None
    if settings.group.folder is not None:
        stream = SharedStream(settings.source_address.topic or "", address.topic or "")
    reading = LogReader(
        source,
        classes,
        lambda entry: correction_service.read_back(entry),  # noqa: PLW0108 -- made below
        lambda: correction_service.note_joined(),  # noqa: PLW0108 -- as above
        is_shared=stream is not None,
    )
    correction_service = CorrectionService(
        entries,
        lookup,
        classes,
        ExampleReader(judged_kinds(settings), settings.message),
        lambda: reading.why_not_ready(entries.name),
        bound=f"the newest {settings.recent.messages_max} messages",
        part_of=lambda log: part_name(log if stream is None else stream.messages_of(log)),
    )
    reading.ended = correction_service.settle_doubts
    applier = CorrectionApplier(
        reading,
        learned_kinds(settings),
        metrics.corrections,
        clock,
        correction_service.not_applied,
        is_own=entries.is_own,
        stream=stream,
    )
    return CorrectionParts(correction_service, applier, entries)


def _corrections_topic(settings: Settings, topic: str) -> tuple[Log, Source]:
    """Return the corrections topic's writer, and a source that reads it."""
    from consumers.kafka.producers import KafkaLog  # noqa: PLC0415 -- as the clients

    if settings.source_address.topic == topic:
        raise ConfigError(
            f"corrections.to: kafka:{topic} has the name of the stream; name another topic, as "
            "positions are known by it"
        )
    source = whole_topic_source(settings, topic, settings.output_servers)
    is_shared = settings.group.folder is not None
    return KafkaLog(settings.output_servers, topic, settings.kafka, by_message=is_shared), source


class Components(msgspec.Struct, frozen=True):
    """What the HTTP API reads and writes beside the model; None for what is turned off."""

    recent: RecentStore | None
    corrections: CorrectionParts | None
    quality: Quality
    label_queue: LabelQueue | None = None
    teacher: Teacher | None = None
    alerts: ShareAlerts | None = None


def open_components(
    settings: Settings,
    classes: KnownClasses,
    statistics: RunStatistics,
    metrics: Metrics,
    stack: contextlib.ExitStack,
    clock: Callable[[], float] = time.monotonic,
    is_moved: Callable[[], bool] = lambda: False,
) -> Components:
    """Open the components that the settings ask for; the stack closes them.

    `is_moved` says whether the state folder has left its path: then its files stay as they are.
    A journal of corrections that cannot be opened is a `CheckpointError`.
    """
    left_out = function_words(settings.page.function_words)
    quality = Quality(
        classes,
        statistics.prequential,
        settings.page.share_messages_min,
        clock=clock,
        left_out=left_out,
        names=settings.page.class_names,
    )
    recent = _recent(settings, classes, clock, is_moved)
    if recent is not None:
        recent.start()
        metrics.watch_recent(recent.state)
        stack.callback(recent.stop)
    label_queue = None
    if recent is not None and settings.labelling.enabled:
        label_queue = LabelQueue(settings.labelling, recent)
        metrics.watch_labelling(label_queue.state)
    corrections = build_corrections(settings, recent, metrics, clock, classes)
    if corrections is not None:
        stack.callback(corrections.log.close)
    teacher = None
    if recent is not None and corrections is not None and settings.labels.teacher.is_on:
        teacher = Teacher.of(settings, corrections.correction_service, classes, clock)
        metrics.watch_teacher(lambda: (teacher.counts, teacher.n_waiting))
    alerts = ShareAlerts.of(recent, settings.alerts, quality.shares, left_out)
    if alerts is not None:
        alerts.start()
        stack.callback(alerts.stop)
    return Components(recent, corrections, quality, label_queue, teacher, alerts)


def build_memory(
    settings: Settings,
    checkpoint: Checkpoint,
    stack: contextlib.ExitStack,
    beat: Callable[[], object],
) -> LearnedMemory | None:
    """Return the memory of what messages taught, or None if it is off; the stack closes it.

    `beat` is called amid what may take long.
    """
    n, keep = settings.learned.messages_max, settings.checkpoint.keep
    if not n:
        return None
    per = None if settings.per.field in kinds_of(settings.model) else settings.per.field
    memory = LearnedMemory(
        checkpoint.own_folder, learned_kinds(settings), n, keep,
        accounts=settings.message.deletes_accounts, per=per,
    )  # fmt: skip
    memory.beat = beat
    stack.callback(memory.close)
    return memory


def build_late_labels(
    settings: Settings,
    messages: Reader,
    memory: LearnedMemory,
    statistics: RunStatistics,
    health: Health,
    stop: threading.Event,
    classes: Sequence[str],
    *,
    until_end: bool,
) -> LabelReader | None:
    """Return what reads labels that come later, or None if `late_labels.source` is none."""
    late, address = settings.late_labels, settings.late_labels.address
    if address.kind == "none":
        return None
    if address.kind == "kafka":
        servers = settings.source_address.servers
        source: Source = whole_topic_source(settings, address.topic or "", servers, "labels")
    else:
        source = FileSource(address.path or Path(), settings.file, follow=not until_end)
    mapping = getattr(settings.labels, "mapping", {})
    decoder = LabelDecoder(late, mapping, classes, source.record_format)
    own_health = Health(time.monotonic, settings.http.stuck_after_s)
    health.watch_part(lambda: own_health.trouble)
    reader = Reader(source, decoder, own_health, stop, thread_name="read-labels")
    stream = settings.source_address.topic or messages.name
    join = LateLabels(late, memory, stream, statistics.learned_late, statistics.n_until_look)
    shared = None if settings.group.folder is None else address.topic
    return LabelReader(reader, join, messages, settings.model.fields, shared)


def build_erasure(
    settings: Settings,
    checkpoint: Checkpoint,
    components: Components,
    stack: contextlib.ExitStack,
    clock: Callable[[], float] = time.monotonic,
    learned: LearnedMemory | None = None,
    files: Sequence[JsonLinesSink] = (),
) -> Erasure:
    """Return what erases the texts of deleted messages from the state folder's files.

    A journal that earlier settings left is opened for it; the stack closes both. Some of the
    outputs are open: `files`. If the deletions that an earlier run left undone cannot be read, it
    is a `SinkError`.
    """
    overwrites = {each.path: each.overwrites for each in files}
    outputs = [
        Output(address.path, without_message, overwrites.get(address.path) or Overwrites())
        for address in (settings.predictions.address, settings.rejects.address)
        if address.path is not None
    ]
    folder, source = settings.checkpoint.folder, settings.source_address.path
    entries = None if components.corrections is None else components.corrections.log
    entries = entries if isinstance(entries, Journal) else None
    unread = entries is None and folder is not None and (folder / journal.FILE_NAME).is_file()
    if unread and folder is not None:
        try:
            entries = Journal(folder / journal.FILE_NAME)
            stack.callback(entries.close)
        except CheckpointError as error:
            log.warning("unused_journal_not_opened", detail=str(error.__cause__ or error))
    unused: list[Path] = []
    if components.recent is None and folder is not None:
        unused = [folder / (RECENT_FILE + end) for end in ("", "-wal", "-shm", ".aside")]
    topics = {
        f"predictions.to: {settings.predictions.to}": settings.predictions.address.topic,
        f"rejects.to: {settings.rejects.to}": settings.rejects.address.topic,
        f"corrections.to: {settings.corrections.to}": settings.corrections.address.topic,
    }
    elsewhere = [name for name, topic in topics.items() if topic is not None]
    if settings.group.folder is not None:
        elsewhere.append(f"group.folder: {settings.group.folder}")
    others = OtherPlaces(
        unused, [] if source is None else [source], elsewhere, journal_unread=unread
    )
    erasure = Erasure(
        folder, checkpoint.oldest_positions, entries, outputs, components.recent, clock, others,
        checkpoint.is_moved, learned=learned, accounts=settings.message.deletes_accounts,
    )  # fmt: skip
    stack.callback(erasure.close)
    return erasure


def _recent(
    settings: Settings,
    classes: KnownClasses,
    clock: Callable[[], float],
    is_moved: Callable[[], bool],
) -> RecentStore | None:
    """Return the store of recent messages, or None if it is off or nobody could ask it."""
    if not (settings.recent.enabled and settings.http.enabled):
        return None
    folder = settings.checkpoint.folder
    return RecentStore(
        settings.recent,
        None if folder is None else folder / RECENT_FILE,
        classes,
        learned_kinds(settings),
        settings.page.unsure_below,
        clock=clock,
        is_moved=is_moved,
        times_made_up=stream_identity(settings)["source"] == "generator",
        history=settings.history,
        class_names={
            label: shown.name for label, shown in settings.page.classes.items() if shown.name
        },
        compared=kinds_of(settings.model)
        | ({"text": "words"} if isinstance(settings.labels, EmoticonLabels) else {}),
    )


def serve(
    settings: Settings,
    components: Components,
    *,
    registry: CollectorRegistry,
    metrics: Metrics,
    health: Health,
    predictor: Predictor,
    status: Callable[[], Status],
    stack: contextlib.ExitStack,
) -> tuple[str | None, Callable[[], None]]:
    """Serve page, API and metrics if `http.enabled`; the stack stops the server.

    Returns the page's address, None if nothing is served, and a function that raises the error
    that ended the serving thread, if any. An address that cannot be bound is a `ConfigError`.
    """
    if not settings.http.enabled:
        return None, lambda: None
    if components.recent is not None:
        health.watch_part(components.recent.trouble)
    if components.recent is not None and components.teacher is not None:
        health.watch_part(components.teacher.trouble)
        components.recent.listeners.append(components.teacher.offer)
        components.teacher.start()
        stack.callback(components.teacher.stop)
    app_state = AppState(
        settings=settings,
        registry=registry,
        metrics=metrics,
        predictor=predictor,
        status=status,
        recent=components.recent,
        label_queue=components.label_queue,
        correction_service=None
        if components.corrections is None
        else components.corrections.correction_service,
        shares=components.quality.shares,
        judged=components.quality.judged,
        alerts=components.alerts,
    )
    if components.alerts is not None:
        health.watch_part(components.alerts.trouble)
    live_updater = None
    if components.recent is not None:
        live_updater = LiveUpdater(components.recent, ApiEventSerializer(app_state), metrics)
        health.watch_part(live_updater.trouble)
        live_updater.start()
        app_state = replace(app_state, live_updater=live_updater)
    served = start_server(app_state, stack)
    if live_updater is not None:
        stack.callback(live_updater.stop)  # first: an open event stream would hold the server up
    return served
