"""The reader: a thread that polls and decodes ahead of the learner.

It owns the source and the decoder: all their methods are called here. What it reads goes, decoded,
through a `Handover` to the consuming thread, which learns it in that order or ends. So when a
partition is assigned anew, reading goes on behind the last batch that was handed over; before the
first, at the checkpoint's position.

Batches adapt. The reader never waits to fill one: what a poll brings is handed over at once, so a
quiet stream is answered message by message. Under a backlog polls bring much, and the handover's
bound makes the next poll bring more; such a batch is cut into pieces that hold the consuming thread
for about `PIECE_S` each, by the pace at which it learned the last ones. Learning is exact one at a
time, so no result depends on where a batch was cut.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import structlog

from consumers.decode.decoder import Decoder
from consumers.messages import Partition, RawColumns
from consumers.monitoring.health import Health
from consumers.pipeline.batch_queue import Batch, Handover
from consumers.sources.base import Source

POLL_TIMEOUT_S = 0.1
# How long learning one piece should take: a fifth of the default interval between two snapshots,
# and fifty times what a batch costs beside its messages.
PIECE_S = 0.02
_PIECE_MIN, _PIECE_MAX = 500, 50_000  # messages
_CLOSE_TIMEOUT_S = 10.0
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Limits:
    """When a run ends by itself.

    Attributes
    ----------
    until_end : bool
        Where the source's end was when it was opened.
    messages_max : int, optional
        After so many messages, exactly.
    """

    until_end: bool = False
    messages_max: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What a source said of itself after a poll.

    Attributes
    ----------
    trouble : str or None
        What keeps it from reading, in a sentence.
    lag : mapping of Partition to int
        Messages of each assigned partition that it has not read.
    lost_messages : int
        Messages that were removed before they could be read.
    decoder : str or None
        How Kafka's responses are decoded; None for other sources.
    """

    trouble: str | None = None
    lag: Mapping[Partition, int] = field(default_factory=lambda: MappingProxyType({}))
    lost_messages: int = 0
    decoder: str | None = None

    @classmethod
    def of(cls, source: Source) -> Seen:
        """Ask a source; on the thread that owns it."""
        return cls(
            source.trouble(),
            MappingProxyType(dict(source.lag())),
            getattr(source, "lost_messages", 0),
            getattr(source, "decoder", None),
        )


class Reader:
    """Reads a source on a thread of its own.

    Parameters
    ----------
    source : Source
        Not opened yet.
    decoder : Decoder
    health : Health
        Told of each turn, and of trouble.
    stop : threading.Event
        Set when the daemon is to end; what was read and not learned by then is left.
    handover : Handover, optional
        Where the batches go.
    """

    def __init__(
        self,
        source: Source,
        decoder: Decoder,
        health: Health,
        stop: threading.Event,
        handover: Handover | None = None,
    ) -> None:
        self.name = source.name
        self._source = source
        self._decoder = decoder
        self._health = health
        self._stop = stop
        self._handover = handover or Handover()
        self._limits = Limits()
        self._positions: dict[Partition, int] = {}
        self._n_read = 0
        self._piece_messages = _PIECE_MIN
        self._seen = Seen()
        self._to_commit: deque[Mapping[Partition, int]] = deque(maxlen=1)
        self._closing = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="read", daemon=True)

    # ---- the consuming thread's side -----------------------------------------------------------

    def start(self, positions: Mapping[Partition, int], limits: Limits) -> None:
        """Open the source and begin to read.

        Parameters
        ----------
        positions : mapping of Partition to int
            The checkpoint's next offsets.
        limits : Limits
        """
        self._positions = dict(positions)
        self._limits = limits
        self._thread.start()

    def take(self, timeout_s: float) -> Batch | None:
        """Return the next batch, None where none came in time.

        Raises
        ------
        Exception
            What ended the reading thread, once all that it read before has been taken.
        """
        return self._handover.take(timeout_s)

    @property
    def end(self) -> str | None:
        """Why there is nothing more to take; None as long as there may be."""
        return self._handover.reason

    def learned(self, n: int, seconds: float) -> None:
        """Say how long learning a batch of `n` messages took, so that the next are cut by it."""
        if n and seconds > 0:
            wanted = (self._piece_messages + n / seconds * PIECE_S) / 2
            self._piece_messages = int(min(max(wanted, _PIECE_MIN), _PIECE_MAX))

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Leave positions for the source to tell its broker; newer ones replace older ones."""
        self._to_commit.append(dict(positions))

    def close(self) -> None:
        """Let the source go, after what was left to commit; never started, it is closed here.

        Raises
        ------
        Exception
            What closing the source raised.
        """
        self._closing.set()
        if self._thread.ident is None:
            self._source.close()
            return
        self._thread.join(_CLOSE_TIMEOUT_S)
        if self._thread.is_alive():
            log.error("reader_does_not_end", source=self.name, waited_s=_CLOSE_TIMEOUT_S)
        if self._failure is not None:
            raise self._failure

    # ---- what anybody may ask ------------------------------------------------------------------

    def seen(self) -> Seen:
        """Return what the source said last; read but not learned counts as unread."""
        seen, waiting = self._seen, self._handover.waiting()
        lag = {each: n + waiting.get(each, 0) for each, n in seen.lag.items()}
        return replace(seen, lag=MappingProxyType(lag))

    # ---- the reading thread --------------------------------------------------------------------

    def _run(self) -> None:
        try:
            try:
                self._health.beat_reader()
                self._source.open(self._positions.get)
                self._handover.end(self._read())
            except BaseException as error:  # noqa: BLE001 -- it comes out of `take`, on the thread that ends the run
                self._handover.fail(error)
            while not self._closing.wait(POLL_TIMEOUT_S):
                self._health.beat_reader()  # the last checkpoint's positions are still to come
            self._carry_out()
        except BaseException as error:  # noqa: BLE001 -- it comes out of `close`
            self._failure = error
        finally:
            self._close_source()

    def _close_source(self) -> None:
        try:
            self._source.close()
        except BaseException as error:  # noqa: BLE001 -- it comes out of `close`
            self._failure = self._failure or error

    def _read(self) -> str:
        """Read until the run is over; return why it is."""
        while not self._is_over():
            batches = self._source.poll(POLL_TIMEOUT_S)
            self._health.beat_reader()
            self._carry_out()
            self._seen = Seen.of(self._source)
            self._health.set_trouble(self._seen.trouble)
            for raw in batches:
                self._hand_over(raw)
            if self._n_read == self._limits.messages_max:
                return "max messages"
            if self._limits.until_end and not batches and self._source.at_end():
                return "end of source"
        return "told to stop"

    def _is_over(self) -> bool:
        return self._stop.is_set() or self._closing.is_set()

    def _carry_out(self) -> None:
        """Commit what was left to be committed."""
        if self._to_commit:
            self._source.commit(self._to_commit.pop())

    def _hand_over(self, raw: RawColumns) -> None:
        """Decode a poll's batch piece by piece, and hand the pieces over."""
        if self._limits.messages_max is not None:
            left = self._limits.messages_max - self._n_read
            if left == 0:
                return  # read too far: not counted, not learned, and its position not moved on
            raw = raw.head(left)
        self._n_read += len(raw)
        for piece in pieces(raw, self._piece_messages):
            # The buffer is the whole poll's: each piece answers for its share.
            n_bytes = len(raw.buffer) * len(piece) // max(len(raw), 1)
            messages = self._decoder.decode(piece)
            batch = Batch(raw.partition, piece.next_offset, len(piece), n_bytes, messages)
            while not self._handover.put(batch, POLL_TIMEOUT_S):
                if self._is_over():
                    return
                self._health.beat_reader()  # waiting for the learner is work, not a stuck reader
            self._positions[raw.partition] = piece.next_offset


def pieces(raw: RawColumns, n_max: int) -> Iterator[RawColumns]:
    """Yield a batch in pieces of about the same size, each of at most `n_max` messages."""
    n = len(raw)
    n_pieces = max(1, -(-n // n_max))
    cuts = [i * n // n_pieces for i in range(n_pieces + 1)]
    for begin, end in itertools.pairwise(cuts):
        yield raw.tail(begin).head(end - begin)
