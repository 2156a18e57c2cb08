"""Metrics and health over HTTP: `app` answers, `server` listens.

The types of its answers stand here, for the client: the API's own JSON, as dicts. A test holds them
against the API's description.
"""

from typing import Literal, NotRequired, TypedDict


class FeatureDict(TypedDict):
    """What one word, value, flag or number says, in nats."""

    group: str
    feature: str
    kind: Literal["word", "absent_words", "category", "flag", "number"]
    unseen: bool
    score: float | None
    counts: dict[str, float]
    likelihoods: dict[str, float]
    means: dict[str, float]
    deviations: dict[str, float]


class ExplanationDict(TypedDict):
    """Why a label was chosen before another."""

    label: str
    other: str
    known: bool
    by_prior: bool
    intercept: float | None
    rest: float | None
    features: list[FeatureDict]


class IntervalDict(TypedDict):
    """A credible interval of the label's probability."""

    level: float
    low: float
    high: float


class PredictionDict(TypedDict):
    """What the model says of one example."""

    label: str
    probabilities: dict[str, float]
    log_posteriors: dict[str, float | None]
    raw: NotRequired[dict[str, float] | None]
    explanation: NotRequired[ExplanationDict | None]
    interval: NotRequired[IntervalDict | None]
    prediction_set: NotRequired[list[str] | None]
    decision: NotRequired[str | None]
    model: NotRequired[str | None]
    answered_by: NotRequired[str | None]


class SampleDict(TypedDict):
    """Which part of the stream the store holds."""

    share: float | None
    stored_per_s: float
    offered_per_s: float
    messages: int | None
    messages_max: int
    age_max_s: float


class MessageDict(TypedDict):
    """A message of the store."""

    key: int
    id: str
    time_ms: int
    user: str | None
    lang: str | None
    text: str
    marked: list[str]
    label: str
    probability: float
    probabilities: dict[str, float]
    unsure: bool
    truth: str | None
    corrected: str | None


class NowDict(TypedDict):
    """What the current snapshot says of a message."""

    label: str
    probabilities: dict[str, float]
    prediction_set: list[str] | None


class MessageAnswerDict(MessageDict):
    """A message, and what the current snapshot says of it and why."""

    explanation: ExplanationDict | None
    interval: IntervalDict | None
    snapshot_version: int
    now: NowDict


class SearchDict(TypedDict):
    """The newest messages that match."""

    query: str
    lang: str | None
    messages: list[MessageDict]
    more: bool
    before: int | None
    sample: SampleDict


class StepDict(TypedDict):
    """How many messages of each class are known of the step that begins at `time_ms`."""

    time_ms: int
    counts: dict[str, int]
    n: NotRequired[int]


class SeriesDict(TypedDict):
    """Counts over time."""

    step_s: float
    points: list[StepDict]


class ShareDict(TypedDict):
    """A corrected share with the ends of its error bar."""

    share: float
    low: float
    high: float


class SummaryDict(TypedDict):
    """What is said of the messages that match."""

    query: str
    lang: str | None
    is_everything: bool
    n: int
    n_max: int
    newest_only: bool
    n_unsure: int
    enough: bool
    messages_min: int
    classes: list[str]
    counts: dict[str, int]
    raw: dict[str, float | None]
    corrected: dict[str, ShareDict] | None
    corrected_reason: str | None
    series: SeriesDict
    sample: SampleDict
    n_even: NotRequired[float]


class ComparedWordDict(TypedDict):
    """A word, or condition on a field, that is more frequent on this side than on all others."""

    word: str
    log_odds: float | None
    standard_errors: float
    counts: dict[str, int]
    effects: dict[str, float]


class ComparedDict(SummaryDict):
    """One side of a comparison, and the words that set it apart."""

    from_ms: int | None
    to_ms: int | None
    n_read: int
    words: list[ComparedWordDict]


class MovingWordDict(TypedDict):
    """A word, or condition, that moved a share, and by how much of it: 0.04 are four points."""

    word: str
    effect: float


class ShareMoveDict(TypedDict):
    """The class whose share rose most from one time to the other, and the words that moved it."""

    label: str
    before: float
    after: float
    n_before: int
    n_after: int
    standard_errors: float
    words: NotRequired[list[MovingWordDict]]
    corrected: NotRequired[bool]


class ComparisonDict(TypedDict):
    """What was compared, in the order in which it was asked for.

    Of one query at two times `moved` says which share rose most, and the words that moved it.
    """

    compared: list[ComparedDict]
    moved: ShareMoveDict | None


class MatchedStepDict(TypedDict):
    """A step of a query: how many messages were looked through, of how many."""

    n: int
    n_stored: int
    at_most: int | None


class MatchesDict(TypedDict):
    """What is known of a query's counts over time."""

    query: str
    lang: str | None
    is_word: bool
    stored_from_ms: int | None
    steps: list[MatchedStepDict]


class HistoryDict(TypedDict):
    """How many messages of each class came over time."""

    from_ms: int
    to_ms: int
    now_ms: int
    kept_from_ms: int | None
    n: int
    classes: list[str]
    series: SeriesDict
    note: str
    matches: MatchesDict | None


class LabelReceiptDict(TypedDict):
    """The label is in the log, safe."""

    id: str
    label: str | None
    was: str | None
    position: str


class DeleteReceiptDict(TypedDict):
    """The deletion is in the log, safe."""

    id: str
    was: str | None
    position: str


class LabellingDict(TypedDict):
    """How far labelling is."""

    n_random: NotRequired[int]
    n_uncertain: NotRequired[int]
    n_answered: NotRequired[int]
    n_random_answered: NotRequired[int]
    n_random_right: NotRequired[int]


class WantedMessageDict(MessageDict):
    """A message that a person should label, and why it was picked."""

    picked: Literal["random", "uncertain"]
    margin: float
    prediction_set: list[str] | None


class WantedDict(TypedDict):
    """The messages to label next, and how far labelling is."""

    messages: list[WantedMessageDict]
    labelling: LabellingDict


class CountedValueDict(TypedDict):
    """How often a value was learned in each class."""

    value: str
    counts: dict[str, float]


class CategoryFieldDict(TypedDict):
    """A field of categories: how many examples of each class had it, and its frequent values."""

    group: str
    field: str
    counts: dict[str, float]
    n_values: int
    values: list[CountedValueDict]


class FlagFieldDict(TypedDict):
    """A flag: how many examples of each class had it, and the share in which it was true."""

    group: str
    field: str
    counts: dict[str, float]
    shares: dict[str, float | None]


class NumberFieldDict(TypedDict):
    """A field of numbers: how they lie in each class."""

    group: str
    field: str
    counts: dict[str, float]
    means: dict[str, float | None]
    deviations: dict[str, float | None]
    edges: NotRequired[list[float]]
    bins: NotRequired[dict[str, list[int]]]


class FieldsDict(TypedDict):
    """What was counted of each field by class."""

    snapshot_version: int
    classes: list[str]
    categories: list[CategoryFieldDict]
    flags: list[FlagFieldDict]
    numbers: list[NumberFieldDict]


class CorrectionsDict(TypedDict):
    """Whether labels and deletions are taken, and from whom."""

    enabled: bool
    needs_token: bool
    reason: str | None


class ClassDisplayDict(TypedDict):
    """How the page shows a class."""

    label: str
    name: str | None
    colour: str | None


class PageNamesDict(TypedDict):
    """What things are called on the page."""

    title: str
    message: str
    messages: str
    question: str
    placeholder: str
    user_prefix: str
    classes: list[ClassDisplayDict]


class PageDict(TypedDict):
    """What the daemon says of itself to the page: names, classes, fields, and what is on."""

    version: str
    names: PageNamesDict
    source: str
    classes: list[str]
    languages: list[str]
    unsure_below: float
    messages_min: int
    corrections: CorrectionsDict
    sample: SampleDict | None
    has_history: bool
    fields: dict[str, str]
    conditions: list[str]


class ClassRowDict(TypedDict):
    """A class with the examples it has seen and its prior."""

    label: str
    count: float
    prior: float


class SnapshotAgeDict(TypedDict):
    """The published snapshot."""

    version: int
    age_s: float | None


class CheckpointAgeDict(TypedDict):
    """The last checkpoint."""

    age_s: float | None


class MovedWordDict(TypedDict):
    """A word that speaks for another class than it did: its shares of `label` before and after."""

    word: str
    label: str | int | bool
    z: float
    before: float
    after: float
    group: NotRequired[str | None]
    strength: NotRequired[float]


class DriftDict(TypedDict):
    """What is known of drift; `alarm_at` is the number of the newest alarm's labelled message."""

    n_alarms: int
    capital: float
    alarm_at: int | None
    words: list[MovedWordDict]


class ModelFiguresDict(TypedDict):
    """How well one of several models does, on messages that all of them judged."""

    name: str
    serves: bool
    n_examples: int
    n_judged: int
    accuracy: float | None
    log_loss: float | None
    window_accuracy: float | None
    window_log_loss: float | None
    calibration_error: float | None


class JudgedBlockDict(TypedDict):
    """A point of the models' curves: a block of messages up to the number `example`, by model."""

    example: int
    log_loss: dict[str, float]
    accuracy: dict[str, float]


class ChallengersDict(TypedDict):
    """The models that learn side by side: the one that answers, and whose place it took."""

    serving: str
    previous: str | None
    n_promotions: int
    models: list[ModelFiguresDict]
    blocks: list[JudgedBlockDict]


class OwnModelFiguresDict(TypedDict):
    """The model of one value, and how well it and the shared one did on the value's messages."""

    value: str
    n_examples: int
    answers: bool
    window_accuracy: float | None
    window_log_loss: float | None
    shared_window_accuracy: float | None
    shared_window_log_loss: float | None


class OwnModelsDict(TypedDict):
    """The models of single values of a field."""

    field: str
    examples_min: int
    prior_examples: float
    models: list[OwnModelFiguresDict]


class WindowDict(TypedDict, total=False):
    """How well the newest examples were predicted before they were learned."""

    n: int
    accuracy: float | None
    log_loss: float | None
    calibration_error: float | None


class PrequentialDict(TypedDict, total=False):
    """The same since the beginning, and within the window."""

    n: int
    accuracy: float | None
    log_loss: float | None
    window: WindowDict


class ConfusionDict(TypedDict, total=False):
    """The window's confusion matrix: row the true class, column the predicted one."""

    classes: list[str]
    counts: list[list[int]]


class BinDict(TypedDict):
    """The examples whose predicted class had a probability from `low` to `high`."""

    low: float
    high: float
    n: int
    mean_probability: float | None
    accuracy: float | None


class ReliabilityBinDict(TypedDict):
    """What became of the probabilities from `low` to `high`, as the model itself stated them."""

    low: float
    high: float
    n: float
    stated: float
    came_true: float
    calibrated: float


class PointDict(TypedDict):
    """How things stood at one time."""

    time_ms: int
    accuracy: float | None
    log_loss: float | None
    calibration_error: float | None
    rate_per_s: float
    lag: int | None
    n: int
    n_alarms: int | None
    covered: NotRequired[float | None]
    set_size: NotRequired[float | None]
    events: NotRequired[list[str]]
    covered_low: NotRequired[float | None]
    covered_high: NotRequired[float | None]


class FeatureScoreDict(TypedDict):
    """A feature that tells a class from the others, and how much, in nats."""

    feature: str
    score: float


class TrendDict(TypedDict):
    """A word that comes more often, or less often, than it did."""

    word: str
    before: float
    now: float
    ratio: float


class ModelDict(TypedDict):
    """The model, and how well it does."""

    state: str
    source: str
    trouble: str | None
    n_messages: int
    ignored: dict[str, int]
    n_examples: int
    rate_per_s: float
    lag: int | None
    vocabulary_size: int
    n_features: int
    classes: list[ClassRowDict]
    snapshot: SnapshotAgeDict
    checkpoint: CheckpointAgeDict
    drift: DriftDict | None
    labelling: LabellingDict | None
    challengers: ChallengersDict | None
    per: OwnModelsDict | None
    prequential: PrequentialDict
    confusion: ConfusionDict
    calibration: list[BinDict]
    stated: list[ReliabilityBinDict] | None
    coverage: float | None
    history: list[PointDict]
    telling: dict[str, list[FeatureScoreDict]]
    rising: list[TrendDict]
    falling: list[TrendDict]
    trend_s: float | None
