"""Made-up tweets, loans and sensor readings: message n as a pure function of a seed and n.

Every choice in a message is a number drawn by hashing (seed, n, which choice) with SplitMix64, a
batch at a time. There is no generator state, so any position is reached at once and two runs agree
byte for byte.

A tweet has a true sentiment, drawn by its topic's share. Its words mostly follow that sentiment;
about one in fourteen is ironic and says the opposite, and some say nothing either way. This is what
keeps a good classifier below certainty.

Of a loan application the decision is drawn first, three in ten are approved; all else is drawn
given the decision, each field by itself, by the tables below. So the stream is just what naive
Bayes takes a stream to be, and what is learned of it can be held against these numbers. Readings of
a pump's sensors are drawn in the same way, given the state of the pump.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from statistics import NormalDist
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from consumers.config.addresses import GeneratorSettings
from consumers.messages import Partition, RawColumns
from consumers.sources.base import Source
from consumers.sources.records import Records, raw_columns

BATCH_MESSAGES_MAX = 500
_GATHER_S = 0.01  # messages are gathered this long, so that a slow stream is not polled one by one
_BACKLOG_MAX_S = 1.0  # what a caller that was away for longer finds; the rest was never sent
START_MS = 1_735_689_600_000  # 2025-01-01T00:00:00Z, when message 0 is written; the next 1 ms later
_encode = msgspec.json.Encoder().encode
_CHOICES = 24
_RANGE = 1 << 16  # each choice is drawn from 0 … 65535


class GeneratorSource(Source):
    """Generates tweets, or what `LoanMaker` or `SensorMaker` makes, at a steady rate.

    Each tweet is JSON with `id`, `created_at`, `user`, `lang`, `text` and, in the labelled share of
    them, `label`: 0 for negative and 4 for positive. Some contradict their words and some say
    nothing, so that a good classifier is right 85 to 90 times in a hundred.

    A rate of 0 is as fast as it goes. `clock` and `wait` count in seconds.
    """

    def __init__(
        self,
        settings: GeneratorSettings,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self.name = "generator"
        self.partition = Partition(self.name, 0)
        self._rate_per_s = settings.rate_per_s
        self._row_builder = _MAKERS[settings.stream](settings)
        self._clock = clock
        self._wait = wait
        self._position = 0
        self._sent_until_s = 0.0  # by the clock: messages due up to here were handed over

    def open(self, position_of: Callable[[Partition], int | None]) -> None:
        """Begin at the partition's position, or at message 0."""
        self._position = position_of(self.partition) or 0
        self._sent_until_s = self._clock()

    def poll(self, timeout_s: float) -> list[RawColumns]:
        """Return the messages that are due, at most 500, waiting up to `timeout_s` for them."""
        n = BATCH_MESSAGES_MAX if self._rate_per_s == 0 else self._due(timeout_s)
        if n == 0:
            return []
        first = self._position
        self._position += n
        return [self._batch(first, n)]

    def at_end(self) -> bool:
        """Return False: the stream has no end."""
        return False

    def _due(self, timeout_s: float) -> int:
        """Return how many messages are due, once a few are or the time is up."""
        wanted_s = max(_GATHER_S, 1 / self._rate_per_s)
        pause_s = self._sent_until_s + wanted_s - self._clock()
        if pause_s > 0:
            self._wait(min(pause_s, timeout_s))
        now_s = self._clock()
        self._sent_until_s = max(self._sent_until_s, now_s - _BACKLOG_MAX_S - wanted_s)
        # A hair is added, or rounding would make a message that is just due wait for another turn.
        due = int((now_s - self._sent_until_s) * self._rate_per_s + 1e-6)
        n = min(due, BATCH_MESSAGES_MAX)
        self._sent_until_s += n / self._rate_per_s
        return n

    def _batch(self, first: int, n: int) -> RawColumns:
        """Return messages `first` … `first + n - 1` as columns."""
        values = self._row_builder.make(first, n)
        ends = np.cumsum([len(value) for value in values], dtype=np.int64)
        starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
        offsets = np.arange(first, first + n, dtype=np.int64)
        records = Records(starts, ends, int(ends[-1]))
        return raw_columns(
            self.partition, b"".join(values), records, offsets, first + n, START_MS + offsets
        )


def draws(seed: int, first: int, n: int) -> NDArray[np.int64]:
    """Return the choices of messages `first` … `first + n - 1`, shape (n, 24), int64.

    Each is a number from 0 to 65535: a SplitMix64 hash of the seed, the message and the column.
    """
    with np.errstate(over="ignore"):  # the arithmetic is modulo 2^64
        start = np.uint64(first % (1 << 58)) * np.uint64(_CHOICES)
        z = start + np.arange(n * _CHOICES, dtype=np.uint64)
        z = (z + np.uint64(seed * 0x632BE59BD9B4E019 % (1 << 64))) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(48)).astype(np.int64).reshape(n, _CHOICES)


def compose(
    message: Callable[[int, str, list[int]], msgspec.Struct], seed: int, first: int, n: int
) -> list[bytes]:
    """Return messages `first` … `first + n - 1` as JSON, each from its number, time and choices."""
    stamps = np.datetime_as_string(
        np.arange(START_MS + first, START_MS + first + n).astype("datetime64[ms]")
    ).tolist()
    choices = draws(seed, first, n).tolist()
    return [_encode(message(first + i, f"{stamps[i]}Z", choices[i])) for i in range(n)]


# ---- tweets --------------------------------------------------------------------------------------

LABELS = (0, 4)  # negative and positive, as Sentiment140 has them

_T = TypeVar("_T")
_TURNING_TAG = "newphone"  # people love it, until `generator.turn_after` messages have passed
_TURNED_SHARE = 0.12  # how many of the tweets on it are glad ones then
_TABLE = 1 << 12  # slots of a table; a power of two, so that a mask picks one
_MASK = _TABLE - 1

_ELONGATED = 14
_IRONY = round(0.07 * _RANGE)
_WITH_OPENER = round(0.18 * _RANGE)
_WITH_FACE = round(0.3 * _RANGE)
_FACE_LIES = round(0.12 * _RANGE)
_WITH_MENTION = round(0.22 * _RANGE)
_WITH_TAG = round(0.25 * _RANGE)
_WITH_LINK = round(0.1 * _RANGE)
_SHOUTED = round(0.02 * _RANGE)


class Topic(NamedTuple):
    """Something people tweet about."""

    name: str  # as it stands in a sentence
    tag: str
    kind: str  # a key of the deeds
    positive_share: float


class Tweet(msgspec.Struct, gc=False):
    """A message of the generator as it is written to JSON."""

    id: str
    created_at: str
    user: str
    lang: str
    text: str
    label: int | msgspec.UnsetType = msgspec.UNSET


def zipf_table(items: Sequence[_T]) -> list[_T]:
    """Return a table in which the item of rank r fills a share near 1 / (r + 2).

    One look at a random slot then draws as words are drawn in real texts.
    """
    weight = 1.0 / (np.arange(len(items)) + 2.0)
    edges = np.rint(np.cumsum(weight) / weight.sum() * _TABLE).astype(int)
    return [items[r] for r in np.searchsorted(edges, np.arange(_TABLE), side="right").tolist()]


def _with_long_forms(items: Sequence[str]) -> list[str]:
    """Append elongated forms of the commonest: "good" is also written "goood", if less often."""
    long = []
    for rank, item in enumerate(items[:_ELONGATED]):
        at = max(item.rfind(vowel) for vowel in "aeiou")
        long.append(item[:at] + item[at] * (3 + rank % 3) + item[at + 1 :])
    return [*items, *long]


# In each list the earlier an entry stands, the more often it is used. In every pair negative stands
# first and positive second, as in the labels. `{good}` of a pattern speaks for the tweet's
# sentiment and `{bad}` against it.
_words: dict[str, Any] = msgspec.json.decode(
    resources.files("consumers.sources").joinpath("tweet_words.json").read_bytes()
)
_TOPICS = zipf_table([Topic(*topic) for topic in _words["topics"]])
_PATTERNS = zipf_table([pattern.format_map for pattern in _words["patterns"]])
_GOOD, _LOVE = (
    [zipf_table(_with_long_forms(items)) for items in _words[name]]
    for name in ("adjectives", "verbs")
)
_DEEDS = {kind: [zipf_table(deeds) for deeds in pair] for kind, pair in _words["deeds"].items()}
_FACES, _MOODS = ([zipf_table(items) for items in _words[name]] for name in ("faces", "mood_tags"))
_VERY, _WHATS, _WHENS, _OPENERS, _ENDINGS, _NAMES, _HOBBIES = (
    zipf_table(_words[name])
    for name in ("intensifiers", "whats", "whens", "openers", "endings", "names", "hobbies")
)


class TweetMaker:
    """Makes the tweets of one seed."""

    def __init__(self, settings: GeneratorSettings) -> None:
        self._seed = settings.seed
        self._labelled = round(settings.labelled_share * _RANGE)
        self._turn_after = settings.turn_after

    def make(self, first: int, n: int) -> list[bytes]:
        """Return messages `first` … `first + n - 1` as JSON."""
        return compose(self._tweet, self._seed, first, n)

    def _tweet(self, number: int, created_at: str, c: list[int]) -> Tweet:
        """Compose message `number` from its choices."""
        topic = _TOPICS[c[0] & _MASK]
        share = topic.positive_share
        if topic.tag == _TURNING_TAG and number >= self._turn_after:
            share = _TURNED_SHARE
        positive = c[1] < share * _RANGE
        tweet = Tweet(
            f"{self._seed}-{number}",
            created_at,
            f"{_NAMES[c[2] & _MASK]}{_HOBBIES[c[3] & _MASK]}{c[3] >> 12 or ''}",
            "en",
            _text(topic, positive, c),
        )
        if c[4] < self._labelled:
            tweet.label = LABELS[positive]
        return tweet


def _text(topic: Topic, positive: bool, c: list[int]) -> str:
    """Compose the text of a tweet: a sentence, and what people put around it."""
    said = positive != (c[5] < _IRONY)
    text: str = _PATTERNS[c[6] & _MASK](
        {
            "topic": topic.name,
            "good": _GOOD[said][c[7] & _MASK],
            "bad": _GOOD[not said][c[8] & _MASK],
            "love": _LOVE[said][c[9] & _MASK],
            "deed": _DEEDS[topic.kind][said][c[10] & _MASK],
            "very": _VERY[c[11] & _MASK],
            "what": _WHATS[c[12] & _MASK],
            "when": _WHENS[c[13] & _MASK],
            "friend": _NAMES[c[14] & _MASK],
        }
    )
    if c[15] < _WITH_OPENER:
        text = f"{_OPENERS[c[16] & _MASK]} {text}"
    if c[17] < _SHOUTED:
        text = text.upper()
    elif c[17] & 3 == 0:
        text = text[0].upper() + text[1:]
    text += _ENDINGS[c[18] & _MASK]
    if c[19] < _WITH_MENTION:
        text = f"@{_NAMES[c[19] & _MASK]}{_HOBBIES[c[14] >> 4 & _MASK]} {text}"
    if c[20] < _WITH_FACE:
        text = f"{text} {_FACES[positive != (c[21] < _FACE_LIES)][c[20] & _MASK]}"
    if c[22] < _WITH_TAG:
        text = f"{text} #{topic.tag if c[22] & 1 else _MOODS[said][c[22] >> 1 & _MASK]}"
    if c[23] < _WITH_LINK:
        text = f"{text} http://pic.example/{c[23] * 40503 & 0xFFFFFF:x}"
    return text


# ---- loan applications ---------------------------------------------------------------------------

DECISIONS = ("approve", "reject")
APPROVED_SHARE = 0.3

# Each table has a row for those approved and one for those rejected.
SCORES = {"low": (0.2, 0.9), "high": (0.8, 0.1)}
INCOMES = {"low": (0.2, 0.4), "mid": (0.3, 0.4), "high": (0.5, 0.2)}
MISSED_PAYMENTS = (0.25, 0.8)
STABLE_JOB = (0.9, 0.8)
AMOUNT = ((9_000.0, 3_000.0), (14_000.0, 5_000.0))  # mean and standard deviation, in euros
AGE = ((45.0, 10.0), (38.0, 12.0))  # in years
PURPOSES = {
    "a new roof": (0.24, 0.08), "a family car": (0.26, 0.16), "my own studio": (0.14, 0.08),
    "dental work": (0.14, 0.1), "a holiday": (0.08, 0.2), "a big wedding": (0.08, 0.14),
    "my old debts": (0.06, 0.24),
}  # fmt: skip
MANNERS = {
    "savings cover a third": (0.3, 0.06), "as discussed with your branch": (0.3, 0.14),
    "thank you": (0.25, 0.25), "please decide soon": (0.1, 0.3), "it is urgent": (0.05, 0.25),
}  # fmt: skip

_WITHOUT_AGE = 0.05  # of the applications leave the field out
_WITHOUT_AMOUNT = 0.03  # of them hold null in it
_AMOUNT_MIN, _AGE_MIN = 500.0, 18


class Loan(msgspec.Struct, gc=False):
    """A message of the stream as it is written to JSON."""

    id: str
    created_at: str
    score: str
    income: str
    amount: float | None
    missed_payments: bool
    stable_job: bool
    note: str
    age: int | msgspec.UnsetType = msgspec.UNSET
    decision: str | msgspec.UnsetType = msgspec.UNSET


class _Draw(NamedTuple):
    """A table as the values and where each one's share of the range ends, by decision."""

    values: tuple[str, ...]
    ends: tuple[tuple[float, ...], ...]

    def value(self, decision: int, choice: int) -> str:
        """Return the value that a choice falls on."""
        for value, end in zip(self.values, self.ends[decision], strict=True):
            if choice < end:
                return value
        return self.values[-1]


def _draw(table: dict[str, tuple[float, float]]) -> _Draw:
    shares = np.cumsum(list(table.values()), axis=0) * _RANGE
    return _Draw(tuple(table), tuple(map(tuple, shares.T.tolist())))


_SCORES, _INCOMES, _PURPOSES, _MANNERS = map(_draw, (SCORES, INCOMES, PURPOSES, MANNERS))


class LoanMaker:
    """Makes the loan applications of one seed."""

    def __init__(self, settings: GeneratorSettings) -> None:
        self._seed = settings.seed
        self._labelled = round(settings.labelled_share * _RANGE)

    def make(self, first: int, n: int) -> list[bytes]:
        """Return messages `first` … `first + n - 1` as JSON."""
        return compose(self._loan, self._seed, first, n)

    def _loan(self, number: int, created_at: str, c: list[int]) -> Loan:
        """Compose message `number` from its choices."""
        decision = int(c[0] >= APPROVED_SHARE * _RANGE)
        loan = Loan(
            id=f"{self._seed}-{number}",
            created_at=created_at,
            score=_SCORES.value(decision, c[1]),
            income=_INCOMES.value(decision, c[2]),
            amount=None,
            missed_payments=c[3] < MISSED_PAYMENTS[decision] * _RANGE,
            stable_job=c[4] < STABLE_JOB[decision] * _RANGE,
            note=f"for {_PURPOSES.value(decision, c[5])}, {_MANNERS.value(decision, c[6])}",
        )
        if c[7] >= _WITHOUT_AMOUNT * _RANGE:
            loan.amount = round(max(_AMOUNT_MIN, _normal(AMOUNT[decision], c[8])), 2)
        if c[9] >= _WITHOUT_AGE * _RANGE:
            loan.age = max(_AGE_MIN, round(_normal(AGE[decision], c[10])))
        if c[11] < self._labelled:
            loan.decision = DECISIONS[decision]
        return loan


def _normal(of: tuple[float, float], choice: int) -> float:
    """Return the number of a normal distribution that a choice falls on."""
    mean, deviation = of
    return mean + deviation * _standard_normal(choice >> 4)


@cache
def _standard_normal(slot: int) -> float:
    """Return the quantile in the middle of one of 4,096 slots; few streams need any of them."""
    return NormalDist().inv_cdf((slot + 0.5) / 4096)


# ---- readings of a pump's sensors ----------------------------------------------------------------

STATES = ("normal", "bearing", "leak")
STATE_SHARES = (0.85, 0.09, 0.06)

# Mean and standard deviation of each sensor in each state: a worn bearing shakes and grows warm, a
# leak costs pressure and flow.
SENSORS = {
    "temperature_c": ((61.0, 4.0), (74.0, 6.0), (63.0, 5.0)),
    "vibration_mm_s": ((2.2, 0.5), (5.4, 1.4), (2.6, 0.7)),
    "pressure_bar": ((6.0, 0.25), (5.9, 0.3), (4.6, 0.6)),
    "flow_l_min": ((118.0, 5.0), (115.0, 6.0), (96.0, 11.0)),
}
_WITHOUT_SENSOR = 0.02  # of the readings lack one, each sensor by itself
_PUMPS = 6


class SensorReading(msgspec.Struct, gc=False, omit_defaults=True):
    """A message of the stream as it is written to JSON."""

    id: str
    created_at: str
    pump: str
    temperature_c: float | None = None
    vibration_mm_s: float | None = None
    pressure_bar: float | None = None
    flow_l_min: float | None = None
    state: str | None = None


class SensorMaker:
    """Makes the readings of one seed."""

    def __init__(self, settings: GeneratorSettings) -> None:
        self._seed = settings.seed
        self._labelled = round(settings.labelled_share * _RANGE)
        self._ends = np.cumsum(STATE_SHARES) * _RANGE

    def make(self, first: int, n: int) -> list[bytes]:
        """Return messages `first` … `first + n - 1` as JSON."""
        return compose(self._reading, self._seed, first, n)

    def _reading(self, number: int, created_at: str, c: list[int]) -> SensorReading:
        """Compose message `number` from its choices."""
        state = int(np.searchsorted(self._ends[:-1], c[0], side="right"))
        reading = SensorReading(f"{self._seed}-{number}", created_at, f"pump {c[1] % _PUMPS + 1}")
        for place, (name, states) in enumerate(SENSORS.items()):
            if c[2 + 2 * place] >= _WITHOUT_SENSOR * _RANGE:
                value = round(max(0.0, _normal(states[state], c[3 + 2 * place])), 2)
                setattr(reading, name, value)
        if c[10] < self._labelled:
            reading.state = STATES[state]
        return reading


_MAKERS: dict[str, type[TweetMaker | LoanMaker | SensorMaker]] = {
    "tweets": TweetMaker,
    "loans": LoanMaker,
    "sensors": SensorMaker,
}
