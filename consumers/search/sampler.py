"""What comes in: which messages are taken, and the queue in which they wait for the writer.

More may come than is worth keeping. Then samples are taken, about twice a second, more and smaller
ones of many partitions, as many rows as a bucket of tokens allows. The bucket is full at first and
holds five seconds' worth, so that a short stream is kept whole however quickly it comes. It fills
at the highest rate that is set; of a fast stream, at what the processor budget affords: storing a
message costs processor time on two threads, for the one that judged it makes its row and the
store's thread writes it.

A batch's labelled messages are offered first, the others behind them, and partitions one after the
other: what comes first must not take all tokens. So the share of what comes within a second is
fixed as it begins, by the tokens and by what came in such a second of late, and all offers of a
batch have the same. A partition's labelled messages and its others are sampled each by themselves;
where a sample begins, and how far it reaches, is told in rows of its kind that pass.

While the stream is too fast, a burst is stored little by little, for the learning needs the
processor; and once it has been so for some seconds, what still waits is thinned, so that the page
does not lag behind.

A sample's rows are made by the thread that offers them (see `rows`), so that a few rows do
not hold the batch that they came in. A batch that is taken whole waits as it is: the store's thread
makes its rows, if it is not thinned before. The queue is bounded by its bytes; no thread waits.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from weakref import WeakSet

import msgspec
import numpy as np
from msgspec import field
from msgspec.structs import replace
from numpy.typing import NDArray

from consumers.messages import NO_LABEL, Messages, Partition
from consumers.monitoring.stats import LastMinute, ProcessorBudget, level
from consumers.search.history import Longs, Noted, Stretch
from consumers.search.rows import Columns, RowBuilder

_PRESSED_S = 1.0  # how long after a message was left out the stream counts as too fast
# What a sample holds, as a time at the long run's rate: to begin with the rows of an offer costs as
# much as ninety of them. At random, so that it keeps no time with what a stream repeats.
_SAMPLE_S = (0.3, 0.6)
_OFFER_KEPT = 0.95  # of the usual size of an offer, with each
_ROUND_S = 1.0  # for so long the share of what comes stays as it is
_ROUND_KEPT = 0.5  # of the most that came in a round, with each
_STEADY_S = 0.8  # a stream that comes for so much of a round goes on, and so do the tokens
_SPARE_S = 0.8  # tokens that then stay for the samples of other kinds, as such a time too
_EVENED = 0.4  # of what differs from that, in a round: the share is to be even
_PARTITIONS_MAX = 64  # that are sampled each by itself; of more, some together
_BATCH_S = 5.0  # within which all of a batch is offered
_PIECE_S = 0.25  # messages that are then taken at once, at least, as a time at the long run's rate
_PIECE_TURNS = 1.25  # the same, in times between two turns of the store's thread
# How long messages are gathered for one transaction, unless somebody waits. A transaction costs as
# much as a hundred rows, so where rows are rationed there are fewer.
_GATHER_S = 0.2
_GATHER_PRESSED_S = 0.5
SLOW_PER_S = 1_250.0  # a stream up to this rate is no burden, and the budget does not bind
_PATIENCE_S = 2.0  # how long a stream may be too fast before what waits is thinned
_BEHIND_S = 1.0  # to what, as a time at the long run's rate
BURST_S = 5.0
BYTES_MAX = 64 << 20
_ROW_BYTES = 1_000  # of a row without its texts
_TOKEN_BYTES = 4096  # a message of more costs more tokens
_WHOLE_SHARE = 0.5  # of a batch that waits as it is, at least this is of use
_SEED = 20


class _Kind(msgspec.Struct):
    """Where the samples of a partition's labelled messages stand, or those of its others."""

    offer_rows: float = 0.0  # rows of an offer, as a rule
    rows: float = 0.0  # that came in this round
    usual: float = 0.0  # rows of a round, at most, of late
    n_due: int = 0  # rows that the sample under way takes yet
    step: float = 1.0  # rows from one of them to the next
    gap: float = 0.0  # of the rows behind it as many as are taken as a rule, before the next begins
    ahead: float = -1.0  # rows to the sample's next one, or what is left of the gap; <0: new
    row: int = -1  # one that is drawn already, of a later offer
    owed: float = 0.0  # rows by which its samples fell short


class _Decided(msgspec.Struct):
    """Which share of a batch is taken, of each offer or by samples; how much is not offered yet."""

    share: float
    is_drawn: bool
    n_left: int
    cost: float
    at_s: float


class Offer(msgspec.Struct, frozen=True):
    """Messages that wait to be stored, as `RowBuilder.columns` made them."""

    partition: Partition
    columns: Columns
    cost: float = 1.0  # tokens that each of them took
    n_left_out: int = 0  # messages that came with them, or before them, and were not taken
    share: float = 1.0  # of what they were drawn from, as a rule; below 0: of samples

    def __len__(self) -> int:
        return len(self.columns["id"])

    @property
    def arrived_ms(self) -> int:
        """When they came, in Unix milliseconds."""
        return int(self.columns["arrived_ms"][0])

    @property
    def n_bytes(self) -> int:
        """What it holds in memory, about."""
        texts = itertools.chain(self.columns["text"], filter(None, self.columns["example"]))
        return _ROW_BYTES * len(self) + sum(map(len, texts))

    def some(self, chosen: NDArray[np.int64], n_left_out: int = 0) -> Offer:
        """Return some of them, given by their positions, ascending."""
        if len(chosen) == len(self):
            return self
        at = chosen.tolist()
        columns = {name: [column[k] for k in at] for name, column in self.columns.items()}
        return replace(self, columns=columns, n_left_out=n_left_out)


class RawBatch(msgspec.Struct, frozen=True):
    """Messages, given by ascending positions, whose rows are still to be made."""

    messages: Messages
    rows: NDArray[np.int64]
    log_posteriors: NDArray[np.float64]  # of shape (n, n_classes), in nats
    arrived_ms: int
    cost: float  # tokens that each of them took
    n_left_out: int = 0  # as of `Offer`
    share: float = 1.0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def n_bytes(self) -> int:
        """What it holds in memory, about."""
        raw = self.messages.raw
        return _ROW_BYTES * len(self) + raw.n_bytes * len(self) // max(1, len(raw))

    def some(self, chosen: NDArray[np.int64], n_left_out: int = 0) -> RawBatch:
        """Return some of them, given by their positions, ascending."""
        own = self.rows[chosen], self.log_posteriors[chosen]
        return replace(self, rows=own[0], log_posteriors=own[1], n_left_out=n_left_out)

    def made(self, row_builder: RowBuilder) -> Offer:
        """Make the rows."""
        columns = row_builder.columns(
            self.messages, self.rows, self.log_posteriors, self.arrived_ms
        )
        return Offer(self.messages.partition, columns, self.cost, self.n_left_out, self.share)


class Forget(msgspec.Struct, frozen=True):
    """Messages that the stream has deleted, by deletions `at` offsets of a partition.

    `of_accounts`: each of the ids is an account's, and names all that begin as it does. Events
    among `also` are set with its own: those of earlier changes that it stands for.
    """

    ids: Sequence[str]
    at: tuple[Partition, Sequence[int]]
    of_accounts: bool = False
    done: threading.Event = field(default_factory=threading.Event)
    also: WeakSet[threading.Event] = field(default_factory=WeakSet)


class Correct(msgspec.Struct, frozen=True):
    """What a message now teaches: the one that stands `at` a place; None: the newest of its id."""

    id: str
    label: str | None
    part: str | None
    at: tuple[Partition, int] | None = None
    done: threading.Event = field(default_factory=threading.Event)
    also: WeakSet[threading.Event] = field(default_factory=WeakSet)


class Remove(msgspec.Struct, frozen=True):
    """A message that is to go for good, with all of its id but newer ones of its partition.

    `at` is its place in the stream; None: all of its id go.
    """

    id: str
    at: tuple[Partition, int] | None = None
    done: threading.Event = field(default_factory=threading.Event)
    also: WeakSet[threading.Event] = field(default_factory=WeakSet)


class Labelled(msgspec.Struct, frozen=True):
    """Messages at some offsets of a partition whose labels came later than they."""

    partition: Partition
    offsets: Sequence[int]
    labels: Sequence[str]
    done: threading.Event = field(default_factory=threading.Event)


class WriteMark(msgspec.Struct, frozen=True):
    """Its event is set once what came before is done, or cannot be; so far that was `offered`."""

    done: threading.Event = field(default_factory=threading.Event)
    offered: dict[Stretch, int] = field(default_factory=dict)


QueuedItem = Offer | Forget | Correct | Remove | Labelled | WriteMark


class Sampler:
    """The queue before the writer; `thread_time` is the processor time of the thread that asks.

    `count` is told of all messages, and when they came; of what it returns some are taken.
    """

    def __init__(
        self,
        rate_max_per_s: float,
        budget: ProcessorBudget,
        row_builder: RowBuilder,
        wall_clock: Callable[[], float],
        clock: Callable[[], float],
        thread_time: Callable[[], float] = time.thread_time,
        count: Callable[[Messages, Longs, NDArray[np.float64], int], Noted] | None = None,
    ) -> None:
        self._row_builder = row_builder
        self._rate_max_per_s, self._budget = rate_max_per_s, budget
        self._tokens_max = max(1.0, BURST_S * rate_max_per_s)
        self._tokens = self._tokens_max
        self._wall_clock, self._clock, self._thread_time = wall_clock, clock, thread_time
        self._count = count
        self._filled_s = self._taken_s = clock()
        self._rng = np.random.default_rng(_SEED)
        self._lock = threading.Lock()
        self._items: deque[QueuedItem | RawBatch] = deque()
        self._n_bytes = 0
        self._n_left_out = 0  # messages that came behind all that waits, and were not taken
        self._offered: dict[Stretch, int] = {}  # how far these were offered
        self._sampled_s = -math.inf  # when something was last left out
        self._pressed_s = math.inf  # since when that has been so again and again
        self._is_sampling = False  # from when rows are left out until the bucket is full again
        self._kinds: dict[tuple[int, bool], _Kind] = {}  # by partition, and with a label or without
        self._decided: dict[tuple[Partition, int], _Decided] = {}  # oldest first
        self._kept = 0.0  # tokens, for what is not offered yet of these batches
        self._newest: dict[Partition, int] = {}  # the offset of the newest batch
        self._round_s = (-math.inf, -math.inf)  # when its first and its last offer came
        self._round_cost = self._usual_cost = 0.0  # in tokens: of this one, and at most of late
        self._round_share = 0.0  # once not all is taken
        self._steady_s = 0.0  # how long the last one was, if messages came all the time
        self.is_open = False  # whether what comes is taken
        self._minute = LastMinute(self._filled_s)
        self.n_offered = self.n_overflowed = 0
        self.something = threading.Event()  # waits in the queue
        self.urgent = threading.Event()  # somebody waits for it
        self.closed = threading.Event()

    def open(self) -> None:
        """Begin to take what comes."""
        self.is_open = True

    def close(self) -> None:
        """Take nothing more; wake the writer."""
        with self._lock:
            self.is_open = False
        for event in (self.closed, self.urgent, self.something):
            event.set()

    def offer(
        self, messages: Messages, rows: NDArray[np.int64], log_posteriors: NDArray[np.float64]
    ) -> None:
        """Count some rows, and take what may be taken of them; see `RecentStore.offer`."""
        arrived_ms = int(self._wall_clock() * 1000)
        offered: dict[Stretch, int] = {}
        if self._count is not None and self.is_open and len(rows):
            new, offered = self._count(messages, rows, log_posteriors, arrived_ms)
            rows, log_posteriors = rows[new], log_posteriors[new]
        began_s = self._thread_time()
        n_raw = max(1, len(messages.raw))
        cost = max(1.0, messages.raw.n_bytes / (_TOKEN_BYTES * n_raw))
        with self._lock:
            if not self.is_open or not len(rows):
                return
            self.n_offered += len(rows)
            chosen, share = self._chosen(messages, rows, cost)
            if not len(chosen):
                self._n_left_out += len(rows)
                self._offered |= offered
                self._minute.add(self._filled_s, len(rows), 0)
                return
        own = rows[chosen], log_posteriors[chosen]
        raw = RawBatch(messages, *own, arrived_ms, cost, share=share)
        # It may wait as it is, unless it is a sample or most of what it holds is of use to nobody.
        is_whole = len(chosen) == len(rows) >= _WHOLE_SHARE * n_raw
        self._append(raw if is_whole else raw.made(self._row_builder), len(rows), offered)
        if not is_whole:
            with self._lock:
                self._budget.made(len(raw) * cost, self._thread_time() - began_s)

    def _append(self, offer: Offer | RawBatch, n_offered: int, offered: dict[Stretch, int]) -> None:
        n, n_bytes = len(offer), offer.n_bytes
        with self._lock:
            if self._n_bytes and self._n_bytes + n_bytes > BYTES_MAX:
                self.n_overflowed += n
                n = 0
            self._minute.add(self._filled_s, n_offered, n)
            self._n_left_out += n_offered - n
            self._offered |= offered
            if not n or not self.is_open:
                return
            self._items.append(replace(offer, n_left_out=self._n_left_out))
            if self._offered:
                self._items.append(WriteMark(offered=self._offered))
            self._n_left_out, self._offered = 0, {}
            self._n_bytes += n_bytes
        self.something.set()

    def put(self, item: Forget | Correct | Remove | Labelled | WriteMark) -> bool:
        """Put in what is always taken; return False if the queue is closed."""
        with self._lock:
            if not self.is_open:
                return False
            self._items.append(item)
        if not isinstance(item, Forget | Labelled | WriteMark):
            self.urgent.set()
        self.something.set()
        return True

    def wait_done(self, timeout_s: float) -> bool:
        """Wait until what was put in before is done, or cannot be; return False if that is late."""
        mark = WriteMark()
        return not self.put(mark) or mark.done.wait(timeout_s)

    def put_back(self, items: Sequence[QueuedItem]) -> None:
        """Put what could not be done before all that waits."""
        with self._lock:
            self._items.extendleft(reversed(items))

    def take(self) -> list[QueuedItem | RawBatch]:
        """Take what waits, in the order in which it came; `made` makes the rows.

        That is all of it, unless the stream is fast and nobody waits: then it is a part. If it
        is faster than what may be taken of it, what waits too long is thinned.
        """
        with self._lock:
            now_s = self._clock()
            is_pressed = self._is_pressed(now_s)
            if is_pressed and now_s - self._pressed_s > _PATIENCE_S:
                self._thin()
            items = self._popped(self._piece(now_s, is_pressed=is_pressed))
            self._taken_s = now_s
            if not self._items and self.is_open:
                self.something.clear()
                self.urgent.clear()
        return items

    def made(self, items: Sequence[QueuedItem | RawBatch]) -> list[QueuedItem]:
        """Make the rows of batches that waited as they were."""
        return [
            item.made(self._row_builder) if isinstance(item, RawBatch) else item for item in items
        ]

    def take_left_out(self) -> tuple[int, list[WriteMark]]:
        """Return how many messages were left out behind all that was taken, each once; a mark.

        Those before something that waits are told with it.
        """
        with self._lock:
            if self._items:
                return 0, []
            marks = [WriteMark(offered=self._offered)] if self._offered else []
            n, self._n_left_out, self._offered = self._n_left_out, 0, {}
        return n, marks

    def _piece(self, now_s: float, *, is_pressed: bool) -> float:
        """Return how many rows may be taken at once."""
        if self.urgent.is_set() or not self.is_open:
            return math.inf
        if is_pressed:
            piece_s = max(_PIECE_S, _PIECE_TURNS * (now_s - self._taken_s))
            return max(1.0, piece_s * self._rate_per_s())
        if now_s - self._filled_s < _PRESSED_S and self._is_fast():
            # It may be about to become too fast: then its beginning must not be written whole.
            return max(1.0, _PIECE_S * self._rate_max_per_s)
        return math.inf

    def _popped(self, rows_max: float) -> list[QueuedItem | RawBatch]:
        """Take out what stands first: all, or no more than some rows and what stands before."""
        items: list[QueuedItem | RawBatch] = []
        n_rows = 0
        while self._items and (n_rows < rows_max or isinstance(self._items[0], WriteMark)):
            item = self._items.popleft()
            if isinstance(item, Offer | RawBatch):
                self._n_bytes -= item.n_bytes
                n_left = rows_max - n_rows
                if isinstance(item, RawBatch) and len(item) > n_left:
                    n = math.ceil(n_left)
                    n_out = item.n_left_out * n // len(item)
                    rest = item.some(np.arange(n, len(item)), item.n_left_out - n_out)
                    item = item.some(np.arange(n), n_out)
                    self._items.appendleft(rest)
                    self._n_bytes += rest.n_bytes
                n_rows += len(item)
            items.append(item)
        return items

    @property
    def gather_s(self) -> float:
        """How long to wait for more before what waits is taken, unless it is urgent."""
        with self._lock:
            return _GATHER_PRESSED_S if self._is_pressed(self._clock()) else _GATHER_S

    def written(self, items: Sequence[QueuedItem], seconds: float) -> None:
        """Take note of the processor time that it took to write some items."""
        n = sum(len(item) * item.cost for item in items if isinstance(item, Offer))
        has_changes = any(not isinstance(item, Offer | WriteMark) for item in items)
        with self._lock:
            # Otherwise transactions may be small, and say little of what a message takes.
            if self._is_pressed(self._clock()):
                self._budget.written(n, seconds, has_changes=has_changes)

    def rates(self) -> tuple[float, float]:
        """Return messages offered and taken a second, over the last minute at most."""
        with self._lock:
            return self._minute.rates(self._clock())

    def _is_pressed(self, now_s: float) -> bool:
        """Return whether the stream is faster than what may be taken of it."""
        return now_s - self._sampled_s < _PRESSED_S and self.is_open

    def _thin(self) -> None:
        """If more waits than may, drop the same share of every batch of a second.

        Seconds of which much waits lose most: what came as the sample began is whole.
        """
        waiting = Counter[int]()
        for item in self._items:
            if isinstance(item, Offer | RawBatch) and len(item):
                waiting[item.arrived_ms // 1000] += len(item)
        most = level(list(waiting.values()), _BEHIND_S * self._rate_per_s())
        if most == math.inf:
            return
        for i, item in enumerate(self._items):
            if isinstance(item, Offer | RawBatch) and len(item):
                share = min(1.0, most / waiting[item.arrived_ms // 1000])
                kept = self._drawn(len(item), int(share * len(item) + self._rng.random()))
                self._minute.add(self._filled_s, 0, len(kept) - len(item))
                self._n_bytes -= item.n_bytes
                n_out = item.n_left_out + len(item) - len(kept)
                fewer = replace(item.some(kept, n_out), share=item.share * share)
                self._n_bytes += fewer.n_bytes
                self._items[i] = fewer

    def _rate_per_s(self) -> float:
        """Return how many messages a second may be taken in the long run, as things stand."""
        affordable = self._budget.rate_per_s if self._is_fast() else math.inf
        return min(self._rate_max_per_s, affordable)

    def _is_fast(self) -> bool:
        """Return whether the stream was no slow one when the last messages came."""
        return self._minute.pace_per_s(self._filled_s) > SLOW_PER_S

    def _chosen(
        self, messages: Messages, rows: NDArray[np.int64], cost: float
    ) -> tuple[NDArray[np.int64], float]:
        """Return the positions that are taken, ascending, by which share; pay for them."""
        n, before_s = len(rows), self._filled_s
        self._filled_s = self._clock()
        came = (self._filled_s - before_s) * self._rate_per_s()
        self._tokens = min(self._tokens_max, self._tokens + came)
        self._is_sampling &= self._tokens < self._tokens_max
        batch = self._batch_of(messages, n, cost)
        at = messages.partition.partition % _PARTITIONS_MAX
        kind = self._kinds.setdefault((at, messages.labels[rows[0]] != NO_LABEL), _Kind())
        kind.offer_rows = n + _OFFER_KEPT * ((kind.offer_rows or n) - n)
        kind.rows += n
        self._round_cost += n * cost * (self._is_sampling or batch.share < 1.0)
        tokens = max(0, int(self._tokens / cost))
        if batch.is_drawn:
            chosen = self._drawn(n, min(int(batch.share * n + self._rng.random()), tokens, n))
        else:
            n_free = tokens - math.ceil(max(0.0, self._kept) / cost)
            chosen = self._sampled(kind, n, batch.share, n_free, self._rate_per_s() / cost)[:tokens]
        if len(chosen) < n:  # the stream is too fast just now
            if self._filled_s - self._sampled_s >= _PRESSED_S:
                self._pressed_s = self._filled_s
            self._sampled_s, self._is_sampling = self._filled_s, True
        self._tokens -= len(chosen) * cost
        return chosen, batch.share if batch.is_drawn else -batch.share

    def _batch_of(self, messages: Messages, n: int, cost: float) -> _Decided:
        """Return what was decided of a batch, of which `n` rows come now, for all its rows."""
        now_s, decided = self._filled_s, self._decided
        while decided and now_s - (late := next(iter(decided.values()))).at_s > _BATCH_S:
            self._kept -= late.share * late.n_left * late.cost
            del decided[next(iter(decided))]
        at = messages.partition, int(messages.raw.offsets[messages.at[0]])
        if at not in decided:
            # Deletions and what is taken back are never offered; of a late rest nothing more comes.
            n_all = max(n, len(messages) - len(messages.deleted) - messages.n_added)
            n_all = n if at[1] < self._newest.get(at[0], -1) else n_all
            self._newest[at[0]] = max(at[1], self._newest.get(at[0], -1))
            decided[at] = _Decided(*self._share(n_all * cost), n_all, cost, now_s)
            self._kept += decided[at].share * n_all * cost
        batch = decided[at]
        n = min(n, batch.n_left)
        batch.n_left -= n
        self._kept -= batch.share * n * batch.cost
        if batch.n_left <= 0:
            del decided[at]
        return batch

    def _share(self, cost: float) -> tuple[float, bool]:
        """Return which share may be taken of what costs so much, and whether of each offer."""
        began_s, last_s = self._round_s
        if (length_s := self._filled_s - began_s) >= _ROUND_S:
            self._steady_s = min(length_s, 2 * _ROUND_S) if last_s - began_s >= _STEADY_S else 0.0
            self._usual_cost = max(self._round_cost, _ROUND_KEPT * self._usual_cost)
            for kind in self._kinds.values():
                kind.usual, kind.rows = max(kind.rows, _ROUND_KEPT * kind.usual), 0.0
            began_s, self._round_cost, self._round_share = self._filled_s, 0.0, 0.0
        self._round_s = began_s, self._filled_s
        free = max(0.0, self._tokens - self._kept)
        if not self._is_sampling and cost <= free:
            return 1.0, True
        rate_per_s = self._rate_per_s()
        coming = self._steady_s * rate_per_s
        if not self._round_share:
            is_mixed = sum(kind.usual >= 1.0 for kind in self._kinds.values()) > 1
            spare = _SPARE_S * rate_per_s * is_mixed
            tokens = coming + _EVENED * (free - spare) if coming > 0.0 else free
            self._round_share = max(0.0, tokens) / max(cost, self._usual_cost)
        share = min(1.0, self._round_share)
        # Of what is as much as a sample: by the tokens that there are.
        if is_drawn := share * cost >= _SAMPLE_S[0] * rate_per_s or not coming:
            free -= sum(kind.n_due for kind in self._kinds.values())
            share = min(share, max(0.0, free) / cost)
        return share, is_drawn

    def _sampled(
        self, kind: _Kind, n: int, share: float, tokens: int, rate_per_s: float
    ) -> NDArray[np.int64]:
        """Return which of `n` rows that pass belong to samples, ascending."""
        # By roots: a rare kind's samples are neither many nor far between, and the errors of many
        # kinds add up to about as much as those of two.
        usual = [max(each.usual, each.rows) for each in self._kinds.values()]
        n_kinds = sum(map(math.sqrt, usual)) ** 2 / sum(usual)
        rate_per_s *= math.sqrt(min(n_kinds, 2.0) * max(kind.usual, kind.rows) / sum(usual))
        found = [np.full(int(0 <= kind.row < n), kind.row)]
        kind.row = max(-1, kind.row - n)
        if share <= 0.0:
            return found[0][:tokens]
        if kind.ahead < 0.0:  # not all kinds begin together
            kind.ahead = self._rng.random() * rate_per_s * sum(_SAMPLE_S) / 2
        at = kind.ahead if kind.n_due else kind.ahead / share
        while at < n:
            if not kind.n_due:
                self._begin_sample(kind, share, tokens, rate_per_s)
            m = min(kind.n_due, math.ceil((n - at) / kind.step))
            places = self._each(at, m, kind.step)
            if m and places[-1] >= n:  # its stretch reaches over the next offer
                kind.row, places = int(places[-1]) - n, places[:-1]
            found.append(places)
            tokens -= m
            kind.n_due -= m
            at += m * kind.step + (0.0 if kind.n_due else kind.gap / share)
        kind.ahead = (at - n) * (1.0 if kind.n_due else share)
        return np.concatenate(found)

    def _begin_sample(self, kind: _Kind, share: float, tokens: int, rate_per_s: float) -> None:
        """Lay down a sample over about an offer's rows, by the free tokens, and its gap."""
        mean = max(1.0, self._rng.uniform(*_SAMPLE_S) * rate_per_s)
        n_free = tokens - sum(each.n_due for each in self._kinds.values())
        kind.owed = min(kind.owed, mean) + mean
        kind.n_due = max(0, min(int(kind.owed), n_free))
        kind.owed -= kind.n_due
        reach = min(kind.offer_rows, mean / share)
        kind.step = max(1.0, reach / max(1, kind.n_due))
        kind.gap = max(share, mean - share * kind.n_due * kind.step)

    def _drawn(self, n: int, n_taken: int) -> NDArray[np.int64]:
        """Return `n_taken` of `n` positions, ascending, each as likely."""
        if n_taken in {0, n}:
            return np.arange(n_taken)
        step = n / n_taken
        return np.sort(self._each(self._rng.random() * step, n_taken, step) % n)

    def _each(self, at: float, n: int, step: float) -> NDArray[np.int64]:
        """Return one at random from each stretch: what repeats in a batch makes no difference."""
        ends = (at + np.arange(n + 1) * step).astype(np.int64)
        return ends[:-1] + (self._rng.random(n) * np.diff(ends)).astype(np.int64)
