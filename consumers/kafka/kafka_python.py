"""kafka-python as a `GroupClient`, with the faults of its version 3.0 made up for.

Everything private that this needs of the library stands in `patch`, with its checks.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, Literal

import kafka
import structlog
from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.errors import LogTruncationError, OffsetOutOfRangeError, UnsupportedCodecError
from kafka.structs import MemberState
from msgspec.structs import replace

from consumers.config.addresses import KafkaSettings
from consumers.errors import BrokenClientError, SourceError
from consumers.kafka.client import (
    REPLACED_MAX,
    SAY_AGAIN_S,
    AssignmentChange,
    ClientError,
    ClientFailedError,
    Connecting,
    Fetched,
    FetchFault,
    GroupClient,
    GroupFault,
    TopicDescription,
    client_settings,
    from_kafka_python,
    group_settings,
    internal_error,
    kafka_python_names,
    quiet_log,
    require_checksums,
    unreadable,
)
from consumers.kafka.patch import (
    OUTAGES,
    Privates,
    close_abandoned_sockets,
    drop_broken_batch,
    is_known,
    keep_refreshing,
    make_no_topics,
    receive_in_large_pieces,
    replace_decoder,
    require_privates,
    require_topic_ids,
    tell_connection_errors,
    tell_failures,
    tell_raised,
    topic_id_of,
)
from consumers.messages import Partition

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

# Connecting takes some milliseconds; after this long it is reported.
CONNECT_GRACE_S: Final = 1.0
CLOSE_TIMEOUT_S: Final = 1.0
# A join that is cut off by the end of a poll must begin again, so it gets a little longer.
JOIN_SLICE_S: Final = 0.5


def consumer_settings(servers: Sequence[str], settings: KafkaSettings) -> dict[str, Any]:
    """Return what the library's consumer is made with."""
    return (
        client_settings(servers, settings)
        | kafka_python_names(group_settings(settings))
        | {
            "auto_offset_reset": "none",  # we decide where to go on
            "fetch_max_bytes": max(settings.fetch_max_bytes, settings.message_max_bytes),
            "max_partition_fetch_bytes": settings.message_max_bytes,
        }
    )


class AssignmentListener(ConsumerRebalanceListener):  # type: ignore[misc]  # it has no types
    """Pauses what is assigned, and notes all changes.

    The library calls it on its own thread while ours is blocked in `poll`, so it takes no lock and
    asks the broker nothing.
    """

    def __init__(self, consumer: Any, events: deque[AssignmentChange | GroupFault]) -> None:
        self._consumer = consumer
        self._events = events

    def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        """Keep the new partitions from being read before it is decided where."""
        self._consumer.pause(*assigned)
        for each in assigned:
            # Any position will do while they are paused. With none, the library would look up the
            # committed offsets within the same poll, and fail if there are none.
            self._consumer.seek(each, 0)
        self._note(True, assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        """Note that partitions go to another member."""
        self._note(False, revoked)

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        """Note that partitions went to another member while we were busy."""
        self._note(False, lost)

    def _note(self, assigned: bool, partitions: Iterable[Any]) -> None:
        changed = tuple(Partition(*each) for each in partitions)
        self._events.append(AssignmentChange(assigned, changed))


class KafkaPythonClient(GroupClient):
    """A consumer of kafka-python; see `GroupClient` for its methods.

    The topic may be created later. `decoder` is None before the first broker has answered. A
    missing checksum package, or a library that does not fit, is a `ConfigError`.
    """

    def __init__(
        self,
        servers: Sequence[str],
        topic: str,
        settings: KafkaSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(servers, topic, settings)
        require_checksums()
        quiet_log("kafka")
        self._decode = settings.decode
        self._clock = clock
        self._made_with = consumer_settings(servers, settings)
        self._connecting = self._new_connecting()
        self._connecting_since_s: float | None = None
        self._reported_small_pieces = False
        self._consumer: Any = None
        self._cluster: Any = None
        self._privates = Privates(None, None)
        self._unconfirmed: dict[Any, Any] = {}
        self._net: Any = None
        self._failure: str | None = None  # why this consumer cannot go on
        self._is_broken = False  # by something else than an outage
        self._say_failure_s = -math.inf

    # -- connecting and closing ----------------------------------------------------------------

    def _new_connecting(self) -> Connecting[Any]:
        return Connecting(KafkaConsumer, self._made_with, self._prepare)

    def open(self) -> None:
        """Do nothing: `connect` starts the thread that connects."""

    def connect(self, timeout_s: float) -> bool:
        """Wait for a broker; subscribe once there is one."""
        if self._connecting_since_s is None:
            self._connecting_since_s = self._clock()
        consumer = self._connecting.wait(timeout_s)
        if consumer is None:
            if self._clock() - self._connecting_since_s < CONNECT_GRACE_S:
                return False
            error = self._connecting.error
            if isinstance(error, ClientFailedError):
                raise self._replacing(str(error))
            raise ClientError(self._no_answer) if error is None else self.unanswered(repr(error))
        self._privates = require_privates(consumer)
        self._consumer, fail = consumer, partial(self._fail, self._net)
        tell_raised(self._privates.fetcher, "_handle_fetch_response", fail)
        listener = AssignmentListener(consumer, self.events)
        try:
            consumer.subscribe([self.topic_name], listener=listener)
        except Exception as error:  # as the loop has ended since it was connected
            fail(error)
            raise self._close_failed(self._failure or repr(error)) from error
        self.decoder = self._choose_decoder(self._privates.fetcher)
        return True

    def _prepare(self, net: Any) -> None:
        """Set up the consumer's network client; on the thread that connects."""
        self.n_replaced = self.n_replaced + 1 if self._is_broken else 0
        self._net, self._failure, self._is_broken = net, None, False
        make_no_topics(net)
        keep_refreshing(net)
        tell_failures(net, partial(self._fail, net))
        close_abandoned_sockets(net)
        tell_connection_errors(net, self._connecting.note)
        self._cluster = require_topic_ids(net)
        if self._decode == "records":
            return
        why = receive_in_large_pieces(net) if is_known() else "it is of another version"
        if why is not None and not self._reported_small_pieces:
            self._reported_small_pieces = True
            log.warning(
                "kafka_received_slowly",
                why=f"kafka-python {kafka.__version__}: {why}",
                detail="answers are read in pieces of 4,096 bytes: the same ones, but slower",
            )

    def _choose_decoder(self, fetcher: Any) -> Literal["columns", "records"]:
        """Make the consumer return columns, if that is configured and safe."""
        if self._decode == "records":
            return "records"
        why = replace_decoder(fetcher)
        if why is None:
            return "columns"
        log.warning(
            "kafka_decoded_slowly",
            why=why,
            detail="messages are read record by record: the same ones, at a fifth of the speed",
        )
        return "records"

    def close(self, *, finish_commit: bool) -> None:
        """Leave the group and release everything, within about two seconds."""
        consumer, self._consumer = self._consumer, None
        net, self._net = self._net, None
        if consumer is not None and finish_commit and self._unconfirmed:
            try:  # the last commit is often still on its way
                consumer.commit(self._unconfirmed, timeout_ms=round(CLOSE_TIMEOUT_S * 1000))
            except Exception as error:  # noqa: BLE001 - nothing fails by a commit
                self._committed(repr(error))
        self._connecting.give_up()
        if consumer is None:
            return
        try:
            consumer.close(autocommit=False, timeout_ms=round(CLOSE_TIMEOUT_S * 1000))
        except Exception as error:  # noqa: BLE001 - it is over, whatever state the library is in
            if self._failure is None:
                log.info("kafka_close_failed", error=repr(error))
            for _ in range(2):  # it closes its sockets even if it cannot wake its loop any more
                with suppress(Exception):
                    net.close()

    def _fail(self, net: Any, error: Exception) -> None:
        """Note an error after which this consumer may never read again; any thread may call it."""
        if net is not self._net:  # it was closed
            return
        self._is_broken |= not isinstance(error, OUTAGES)
        self._failure = (
            f"{internal_error(error)} and set kafka.client: librdkafka. Before this client "
            f"{self.n_replaced} in a row were replaced and nothing was read; after {REPLACED_MAX} "
            f"the process ends with status {BrokenClientError.exit_code}"
        )
        self._connecting.note(ClientFailedError(self._failure))
        now_s = self._clock()
        if now_s >= self._say_failure_s:
            self._say_failure_s = now_s + SAY_AGAIN_S
            log.error("kafka_client_failed", why=self._failure, version=kafka.__version__)

    def _close_failed(self, failure: str) -> ClientFailedError:
        """Close the consumer, so that `connect` makes another one; return why."""
        lost = AssignmentChange(False, tuple(Partition(*each) for each in self._assigned()))
        self.close(finish_commit=False)
        self.events = deque([*self.events, lost])  # its thread may still append to the old one
        self._connecting, self._connecting_since_s = self._new_connecting(), None
        return self._replacing(failure)

    def _replacing(self, failure: str) -> ClientFailedError:
        """Return why this consumer is replaced; raise `BrokenClientError` if that is in vain."""
        if self._is_broken and self.n_replaced >= REPLACED_MAX:
            raise BrokenClientError(
                f"topic {self.topic_name!r}: {failure}. Start again: a new process goes on from "
                "the last checkpoint"
            )
        return ClientFailedError(failure)

    # -- reading -------------------------------------------------------------------------------

    def poll(self, max_messages: int, timeout_s: float) -> list[Fetched]:
        """Return what came; if nothing did, where each partition stands.

        Batches whose compression needs a package that is not installed are a `SourceError`.
        """
        if self._failure is not None:
            raise self._close_failed(self._failure)
        consumer = self._consumer
        is_member = consumer.group_metadata().state == MemberState.STABLE
        slice_s = timeout_s if is_member else JOIN_SLICE_S
        try:
            records = consumer.poll(timeout_ms=round(slice_s * 1000), max_records=max_messages)
        except UnsupportedCodecError as error:
            raise SourceError(
                f"topic {self.topic_name!r} holds compressed batches that cannot be unpacked: "
                f"{error}. gzip and zstd need nothing more; for lz4 and snappy install the extra: "
                "pip install 'streamnb[codecs]'"
            ) from error
        except Exception as error:  # noqa: BLE001 - the library lets errors of any class through
            return self._recover(error)
        if records:
            return [self._fetched(each, some) for each, some in records.items()]
        # A join that outlived its poll: the library never looks at the broker's answer, and from
        # then on it neither reads nor sends heartbeats.
        if consumer.group_metadata().state != MemberState.STABLE:
            self._privates.coordinator.request_rejoin()
        return [Fetched(Partition(*each), None, *self._offsets(each)) for each in self._assigned()]

    def _fetched(self, each: Any, records: Sequence[Any]) -> Fetched:
        columns = from_kafka_python(Partition(*each), records)
        position, log_end = self._offsets(each)
        position = max(position, columns.next_offset)
        columns = replace(columns, next_offset=position)
        return Fetched(columns.partition, columns, position, log_end)

    def _offsets(self, each: Any) -> tuple[int, int | None]:
        """Return a partition's position, which passes gaps and markers too, and its log's end."""
        try:
            return self._consumer.position(each, timeout_ms=0) or 0, self._consumer.highwater(each)
        except Exception:  # noqa: BLE001 - taken away, or in doubt: the next poll finds out
            return 0, None

    def _assigned(self) -> list[Any]:
        return list(self._consumer.assignment())

    def _recover(self, error: Exception) -> list[Fetched]:
        """Pause everything after a poll has raised; return why each partition is to be sought."""
        broken = drop_broken_batch(self._privates.fetcher)
        assigned = self._assigned()
        for each in assigned:
            self._unless_revoked(self._consumer.pause, each)
        why = repr(error)
        if isinstance(error, OffsetOutOfRangeError | LogTruncationError):
            broken = None
        elif broken is None:
            if not isinstance(error, OUTAGES):
                self._fail(self._net, error)
            raise ClientError(unreadable(why)) from error
        faults = {broken: FetchFault("batch", why)}
        in_doubt = FetchFault("position", why)
        partitions = [Partition(*each) for each in assigned]
        return [Fetched(each, fault=faults.get(each, in_doubt)) for each in partitions]

    def seek(self, positions: Mapping[Partition, int]) -> None:
        """Let paused partitions be read from their positions; the others are being read."""
        paused = self._consumer.paused()
        for partition, position in positions.items():
            each = TopicPartition(*partition)
            if each in paused:
                self._unless_revoked(self._consumer.seek, each, position)
                self._unless_revoked(self._consumer.resume, each)

    def pause(self, partition: Partition) -> None:
        """Stop reading a partition until it is sought."""
        self._unless_revoked(self._consumer.pause, TopicPartition(*partition))

    def _unless_revoked(self, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except (ValueError, KeyError):
            log.debug("partition_revoked_meanwhile", partition=str(Partition(*args[0])))

    # -- questions to the broker ---------------------------------------------------------------

    def log_starts(
        self, partitions: Collection[Partition], timeout_s: float
    ) -> dict[Partition, int]:
        """Return the first offset of each log."""
        return self._ask(self._consumer.beginning_offsets, partitions, timeout_s)

    def log_ends(self, partitions: Collection[Partition], timeout_s: float) -> dict[Partition, int]:
        """Return the offset after the last one of each log."""
        return self._ask(self._consumer.end_offsets, partitions, timeout_s)

    def offsets_at(
        self, partitions: Collection[Partition], time_ms: int, timeout_s: float
    ) -> dict[Partition, int | None]:
        """Return the offset of the first message of that time or a later one."""
        asked = {TopicPartition(*each): time_ms for each in partitions}
        with self._asking():
            found = self._consumer.offsets_for_times(asked, timeout_ms=round(timeout_s * 1000))
        at = {each: found.get(TopicPartition(*each)) for each in partitions}
        return {each: None if there is None else there.offset for each, there in at.items()}

    def find_topic(self, timeout_s: float) -> None:
        """Ask for the topic's first partition; the library does not say which of two is wrong."""
        try:
            self.log_ends([Partition(self.topic_name, 0)], timeout_s)
        except ClientError as error:
            raise ClientError(f"there is no topic {self.topic_name!r} yet, or {error}") from error

    def topic(self, timeout_s: float) -> TopicDescription:
        """Return the topic as the newest metadata has it."""
        numbers = self._cluster.partitions_for_topic(self.topic_name)
        if not numbers:
            self.find_topic(timeout_s)
            numbers = self._cluster.partitions_for_topic(self.topic_name) or ()
        partitions = (Partition(self.topic_name, number) for number in numbers)
        return TopicDescription(self.topic_id(), frozenset(partitions))

    def topic_id(self) -> str | None:
        """Return the topic's id by the newest metadata, as Kafka's own tools write it."""
        return topic_id_of(self._cluster, self.topic_name)

    def n_partitions(self) -> int | None:
        """Return how many partitions the topic has by the newest metadata."""
        return len(self._cluster.partitions_for_topic(self.topic_name) or ()) or None

    def _ask(
        self, question: Callable[..., Any], partitions: Collection[Partition], timeout_s: float
    ) -> dict[Partition, int]:
        asked = [TopicPartition(*each) for each in partitions]
        with self._asking():
            answers = question(asked, timeout_ms=round(timeout_s * 1000))
            return {Partition(*each): answers[each] for each in asked}

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Turn what a question fails of into a `ClientError`."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, (*OUTAGES, KeyError)):  # KeyError: a partition was left out
                self._fail(self._net, error)
            raise self.unanswered(repr(error)) from error

    # -- committing ----------------------------------------------------------------------------

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Commit positions without waiting; `close` makes up for it."""
        if self._consumer is None:
            return
        self._unconfirmed = {
            TopicPartition(*partition): OffsetAndMetadata(position, "", -1)
            for partition, position in positions.items()
        }
        try:
            self._consumer.commit_async(self._unconfirmed, callback=self._on_commit)
        except Exception as error:  # noqa: BLE001 - nothing fails by a commit
            if not isinstance(error, OUTAGES):
                self._fail(self._net, error)
            self._committed(repr(error))

    def _on_commit(self, offsets: Mapping[Any, Any], answer: object) -> None:
        if isinstance(answer, Exception):
            self._committed(repr(answer))
            return
        self._committed()
        if offsets == self._unconfirmed:
            self._unconfirmed = {}
