"""The JSON of the HTTP API, as types: what a request may hold, and what an answer does.

Requests are decoded into them, answers encoded from them, and the OpenAPI description is made of
them; the figures of `monitoring.quality` are shown as they are. Times are Unix milliseconds, shares
and probabilities lie between 0 and 1, scores are in nats, and a number that is not finite is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from consumers.monitoring.prequential import Bin, DriftReport
from consumers.monitoring.quality import Confusion, Point, PrequentialFigures, Share, Telling, Trend
from consumers.monitoring.status import ChallengersReport, ClassRow, OwnModelsReport
from consumers.search.comparison import ShareMove
from consumers.search.label_queue import LabellingState
from consumers.search.live_updater import ShareAlert
from streamnb import ReliabilityBin
from streamnb.inspection.group_view import FeatureKind

TEXTS_MAX = 10_000
PROBABILITIES_MAX = 500_000  # of a request: its examples times the classes
EXPLAINED_MAX = 100
EXPLAINED_CHARS_MAX = 200_000  # of them together; of messages, bytes of JSON
SEARCH_LIMIT_MAX = 200
EXPORT_LIMIT_MAX = 1_000_000
QUERIES_MAX = 12
QUERY_CHARS_MAX = 500
LANG_CHARS_MAX = 35  # the longest that BCP 47 asks for

if TYPE_CHECKING:
    Nats = float
else:
    # A class that is ruled out makes it infinite, for which JSON has no number: it is null there.
    Nats = float | None

LabelText = str
ByClass = dict[LabelText, float]
CountByLabel = dict[LabelText, int]
EffectByLabel = dict[LabelText, Annotated[float, Meta(ge=-1, le=1)]]


class PredictRequest(Struct, forbid_unknown_fields=True):
    """What is to be judged: one of `text`, `texts`, `message` and `messages`.

    A message is a JSON object as the stream brings it. `prior`: `model` counts the stream's own mix
    of classes as evidence, as its own figures do; `none` takes all classes as equally probable
    beforehand. `raw` asks for what the counts alone say, too.
    """

    text: str | None = None
    texts: Annotated[list[str], Meta(min_length=1, max_length=TEXTS_MAX)] | None = None
    message: Raw | UnsetType = UNSET
    messages: Annotated[list[Raw], Meta(min_length=1, max_length=TEXTS_MAX)] | None = None
    prior: Literal["none", "model"] = "none"
    raw: bool = False
    explain: bool = False
    interval: Annotated[float, Meta(gt=0, lt=1, description="Level, such as 0.95.")] | None = None


class Feature(Struct):
    """What one word, value, flag or number says.

    `score` is in nats: above 0 it speaks for the label. `counts` holds how often each class learned
    it: the word, the value, or any value of a number. `likelihoods` holds its θ; a number has none,
    but the mean and standard deviation in each class that has learned any. `kind` `absent_words`
    is all the words that are missing, together: they have no counts. What is `unseen` no class has
    learned: its score comes from the prior alone, which follows from the sizes of the classes.
    """

    group: str
    feature: str
    kind: FeatureKind
    unseen: bool
    score: Nats
    counts: ByClass
    likelihoods: ByClass
    means: ByClass
    deviations: ByClass


class ApiExplanation(Struct):
    """Why the label was chosen before `other`, the weightiest feature first.

    The scores, `intercept`, the class prior's, and `rest`, that of features which are not listed,
    add up to the log-odds. With `by_prior` every class was impossible, and the log-odds are
    `intercept` alone. `known` is false if no class has learned any of the features.
    """

    label: LabelText
    other: LabelText
    known: bool
    by_prior: bool
    intercept: Nats
    rest: Nats
    features: list[Feature]


class Interval(Struct):
    """A credible interval of the label's probability."""

    level: float
    low: float
    high: float


class ApiPrediction(Struct, omit_defaults=True, gc=False):
    """What the model says of one example; log-posteriors are in nats.

    `prediction_set` holds the classes that can be meant, with model.coverage, and `decision` is the
    cheapest class, with model.costs. `raw` has the probabilities by the counts alone, without a
    hybrid's weights, if asked for. With per.field, `model` is the value whose own model answered,
    null for the shared one, and `answered_by` says why.
    """

    label: LabelText
    probabilities: ByClass
    log_posteriors: dict[LabelText, Nats]
    raw: ByClass | None = None
    explanation: ApiExplanation | None = None
    interval: Annotated[
        Interval | UnsetType | None,
        Meta(description="There if it was asked for. Null if the model has none: with a hybrid."),
    ] = UNSET
    prediction_set: list[LabelText] | None = None
    decision: LabelText | None = None
    model: str | UnsetType | None = UNSET
    answered_by: str | None = None


class PredictAnswer(Struct):
    """All predictions, in the order of the request, from one snapshot."""

    classes: list[LabelText]
    snapshot_version: int
    n_examples: int
    predictions: list[ApiPrediction]


class Sample(Struct):
    """Which part of the stream the store holds.

    `share` is that of what came in the time of the `messages` that are held; both are null until
    what was stored before the start has been opened. Rates are of the last minute.
    """

    share: float | None
    stored_per_s: float
    offered_per_s: float
    messages: int | None
    messages_max: int
    age_max_s: float


class Message(Struct):
    """A message of the store.

    `marked` is its text in pieces, of which every second one is a word of the query. `truth` is the
    label that the stream brought, with it or later, `corrected` one that a person gave.
    """

    key: int
    id: str
    time_ms: int
    user: str | None
    lang: str | None
    text: str
    marked: list[str]
    label: LabelText
    probability: float
    probabilities: ByClass
    unsure: bool
    truth: LabelText | None
    corrected: LabelText | None


class WantedMessage(Message):
    """A message that a person should label.

    `picked` says why: `random`, or `uncertain`. `margin` is by how much the likeliest class was
    ahead of the next; `prediction_set` holds the classes that can be meant, with model.coverage.
    """

    picked: Literal["random", "uncertain"]
    margin: float
    prediction_set: list[LabelText] | None


class WantedAnswer(Struct):
    """The messages to label next, and how far labelling is."""

    messages: list[WantedMessage]
    labelling: LabellingState


class SearchAnswer(Struct):
    """The newest messages that match; `before` asks for those that come behind them."""

    query: str
    lang: str | None
    messages: list[Message]
    more: bool
    before: int | None
    sample: Sample


class Now(Struct):
    """What the current snapshot says; `prediction_set` is null without model.coverage."""

    label: LabelText
    probabilities: ByClass
    prediction_set: list[LabelText] | None


class MessageAnswer(Message):
    """A message, and what the current snapshot says of it and why."""

    explanation: ApiExplanation | None
    interval: Annotated[Interval | None, Meta(description="Null if the model has none.")]
    snapshot_version: int
    now: Now


class Step(Struct):
    """How many messages of each class are known of a step, and of a sample about how many came.

    If those of a sample weigh differently, `counts` are of an even one that says as much.
    """

    time_ms: int
    counts: CountByLabel
    n: int | UnsetType = UNSET


class Series(Struct):
    """Counts over time."""

    step_s: float
    points: list[Step]


class ApiSummary(Struct):
    """What is said of the messages that match, the newest `n_max` of them at most.

    `raw` is the share of each class as predicted; `corrected` makes up for the classifier's errors,
    or is null, with a reason. Where messages weigh differently, `n_even` equal ones say as much.
    """

    query: str
    lang: str | None
    is_everything: bool
    n: int
    n_max: int
    newest_only: bool
    n_unsure: int
    enough: bool
    messages_min: int
    classes: list[LabelText]
    counts: Mapping[LabelText, int]
    raw: Mapping[LabelText, float | None]
    corrected: Mapping[LabelText, Share] | None
    corrected_reason: str | None
    series: Series
    sample: Sample
    n_even: float | UnsetType = UNSET


class ComparedWord(Struct):
    """A word that is more frequent on this side than on all others together, or a condition.

    Where the model reads fields, `word` may be a condition on one, as a query has it: `grade:A`.
    `log_odds` is the logarithm of the ratio of its odds, smoothed, in nats, and `standard_errors`
    by how many of them it lies above 0. `counts` are the messages with the word, by class, and
    `effects` what these add to a class's share on this side above its share on all others.
    """

    word: str
    log_odds: Nats
    standard_errors: float
    counts: CountByLabel
    effects: EffectByLabel


class ComparedSummary(ApiSummary, kw_only=True):
    """One side of a comparison: what `/v1/summary` says, and the words that set it apart.

    The words are those of the newest `n_read` messages of this side, the most distinctive first.
    """

    from_ms: int | None
    to_ms: int | None
    n_read: int
    words: list[ComparedWord]


class CompareAnswer(Struct):
    """What was compared, in the order in which it was asked for.

    Of one query at two times `moved` says which share rose most, and the words that moved it.
    """

    compared: list[ComparedSummary]
    moved: ShareMove | None


class MatchedStep(Struct):
    """A step of a query: `n_stored` messages that are or were stored were looked through, of `n`.

    `at_most` messages match, whatever their class; null: as many as `counts` has.
    """

    n: int
    n_stored: int
    at_most: int | None


class HistoryMatches(Struct):
    """What is known of a query's counts; `steps` are those of the `points` of `series`.

    Since `stored_from_ms` messages are stored, and the counts are of these; null: since the first.
    Only a single word (`is_word`) is counted in what has left the store.
    """

    query: str
    lang: str | None
    is_word: bool
    stored_from_ms: int | None
    steps: list[MatchedStep]


class HistoryAnswer(Struct):
    """How many messages of each class came over time, all of them, by when they came.

    Steps begin at whole minutes, hours and days of UTC; those without messages are left out. One
    that goes on at `now_ms` is not whole yet. What came before `kept_from_ms` is no longer known by
    steps of this length; null: all is. With a query, the messages that match; `n` is their number,
    `note` says what they are in a sentence for people, and `matches` the same in numbers.
    """

    from_ms: int
    to_ms: int
    now_ms: int
    kept_from_ms: int | None
    n: int
    classes: list[LabelText]
    series: Series
    note: str
    matches: HistoryMatches | None


class LabelRequest(Struct, forbid_unknown_fields=True):
    """A label for a message of the store (`id`), or for an example that comes along.

    Null takes back what a message of the store taught; it stays, and may be labelled again.
    """

    label: str | None
    id: Annotated[str, Meta(min_length=1)] | None = None
    text: str | None = None
    message: Raw | UnsetType = UNSET


class LabelReceipt(Struct):
    """The label is in the log at `position`, safe; `was` is what the message taught so far."""

    id: str
    label: LabelText | None
    was: LabelText | None
    position: str


class DeleteReceipt(Struct):
    """The deletion is in the log at `position`, safe."""

    id: str
    was: LabelText | None
    position: str


class SnapshotAge(Struct):
    """The published snapshot."""

    version: int
    age_s: float | None


class CheckpointAge(Struct):
    """The last checkpoint."""

    age_s: float | None


class ModelAnswer(Struct):
    """The model and how well it does.

    `calibration` is of the classes that were answered, `stated`, with model.calibration, of all
    probabilities as the model itself states them; else it is null. `coverage` is model.coverage.
    """

    state: str
    source: str
    trouble: str | None
    n_messages: int
    ignored: Mapping[str, int]  # left out by the configuration, by condition
    n_examples: int
    rate_per_s: float
    lag: int | None
    vocabulary_size: int
    n_features: int
    classes: tuple[ClassRow, ...]
    snapshot: SnapshotAge
    checkpoint: CheckpointAge
    drift: DriftReport | None
    labelling: LabellingState | None
    challengers: ChallengersReport | None
    per: OwnModelsReport | None
    prequential: PrequentialFigures
    confusion: Confusion
    calibration: tuple[Bin, ...]
    stated: tuple[ReliabilityBin, ...] | None
    coverage: float | None
    history: tuple[Point, ...]
    telling: Mapping[LabelText, tuple[Telling, ...]]
    rising: tuple[Trend, ...]
    falling: tuple[Trend, ...]
    trend_s: float | None


class CountedValue(Struct):
    """How often a value was learned in each class."""

    value: str
    counts: ByClass


class CategoryField(Struct):
    """A field of categories, or of numbers in bins: how many examples of each class had it.

    Its most frequent values are listed; `n_values` counts the others, too.
    """

    group: str
    field: str
    counts: ByClass
    n_values: int
    values: list[CountedValue]


class FlagField(Struct):
    """A flag: how many examples of each class had it, and the share of those in which it was true.

    The share is null if there are none.
    """

    group: str
    field: str
    counts: ByClass
    shares: dict[LabelText, float | None]


class NumberField(Struct):
    """A field of numbers: how many there were of each class, their mean and standard deviation.

    `bins`: what each class has between `edges` of the newest stored messages, 2,000 at most.
    """

    group: str
    field: str
    counts: ByClass
    means: dict[LabelText, float | None]
    deviations: dict[LabelText, float | None]
    edges: list[float] = []
    bins: dict[LabelText, list[int]] = {}


class FieldsAnswer(Struct):
    """What was counted of each field by class, without a prior; words have `/v1/model`.

    With `model.half_life_s` counts are decayed up to now.
    """

    snapshot_version: int
    classes: list[LabelText]
    categories: list[CategoryField]
    flags: list[FlagField]
    numbers: list[NumberField]


class Corrections(Struct):
    """Whether labels and deletions are taken, and from whom."""

    enabled: bool
    needs_token: bool
    reason: str | None


class ClassDisplay(Struct):
    """How the page shows a class; null: as it finds best."""

    label: LabelText
    name: str | None
    colour: str | None


class PageNames(Struct):
    """What things are called on the page; classes that are listed stand first, in this order.

    `user_prefix`: what stands before a user without a blank, "@" or nothing.
    """

    title: str
    message: str
    messages: str
    question: str
    placeholder: str
    user_prefix: str
    classes: list[ClassDisplay]


class PageAnswer(Struct):
    """What the page must know at its start; without history /v1/history answers 404.

    `fields` are those that the model reads, each with its kind: words, categories, flags, numbers;
    `conditions`: the names that a condition of a query begins with, as it has them: `lang`.
    """

    version: str
    names: PageNames
    source: str
    classes: list[LabelText]
    languages: list[str]
    unsure_below: float
    messages_min: int
    corrections: Corrections
    sample: Sample | None
    has_history: bool
    fields: dict[str, str]
    conditions: list[str]


class HealthAnswer(Struct):
    """The daemon's health, and why it is not well."""

    state: str
    reason: str | None
    last_message_age_s: float | None
    snapshot_version: int | None
    degraded: str | None


class ApiProblem(Struct, omit_defaults=True):
    """What went wrong, as RFC 9457 has it; `instance` finds the line of the log."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None


class MessagesEvent(Struct):
    """The newest messages that match, newest first."""

    messages: list[Message]


class StatusEvent(Struct):
    """The daemon's state; `accuracy` is prequential, over the window of the newest examples.

    `note` says what the start is at, such as compiling; null once it is over. `alerts` are the
    newest of the shares that are watched, the oldest first.
    """

    state: str
    rate_per_s: float
    lag: int | None
    n_examples: int | None
    snapshot_version: int
    snapshot_age_s: float | None
    accuracy: float | None
    n_messages: int
    note: str | None
    alerts: tuple[ShareAlert, ...]


class ChangeEvent(Struct):
    """What happened to a message: a person gave it a label, took it back, or removed it."""

    id: str
    corrected: LabelText | None
    removed: bool


class ProblemEvent(Struct):
    """Why a query cannot be answered."""

    detail: str
