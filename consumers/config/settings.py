"""`config.yaml` as frozen, checked settings.

Every key has its default in a section class of `consumers.config`, and its story in `config.yaml`
and `docs/configuration.md`; a test holds the three together. Units stand at the end of the name.
`load` lists mistakes at once, each with its line, its path, what was found and what is allowed;
settings that contradict each other are found once each is right by itself.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from consumers.config.addresses import (
    CorrectionsSettings,
    FileSettings,
    GeneratorSettings,
    JetstreamSettings,
    KafkaSettings,
    LiveSettings,
    OutputSettings,
    PredictionsSettings,
    SourceAddress,
    is_one_file,
    is_own_file,
    wire_version,
)
from consumers.config.document import load_section
from consumers.config.message import (
    MESSAGE_PARTS,
    SENTIMENT140,
    FieldLabels,
    Labels,
    LateLabelsSettings,
    MessageSettings,
    wrong_form,
)
from consumers.config.model import (
    CHALLENGERS_MAX,
    MODEL,
    CategoriesSettings,
    ChallengerSettings,
    FieldKind,
    ModelSettings,
    PromotionSettings,
    WordsSettings,
    holds_floats,
    with_groups_of,
    wrong_priors,
)
from consumers.config.sections import (
    SECONDS_MAX,
    AlertSettings,
    CheckpointSettings,
    DriftSettings,
    FollowSettings,
    HistorySettings,
    HttpSettings,
    LabellingSettings,
    LearnedSettings,
    LearningSettings,
    PageSettings,
    PerSettings,
    PredictorSettings,
    RecentSettings,
    Section,
    SharedSettings,
    wrong_classes,
    wrong_page_classes,
    wrong_prior_half_life,
    wrong_values,
)

SENTIMENT = frozenset({"negative", "neutral", "positive"})
# What a message is called, if nobody says it: by the preset of the stream, or what is made up.
_BY_PRESET = {
    "jetstream": "post",
    "jetstream-v2": "post",
    "mastodon": "post",
    "twitter-v1": "tweet",
    "x-v2": "tweet",
    "wikimedia": "edit",
}
_WITH_HANDLES = {"post", "tweet"}  # people are told by "@name" there
_BY_MADE_UP = {"tweets": "tweet", "loans": "application", "sensors": "reading"}


class Settings(Section):
    """The whole configuration."""

    source: str = "generator"  # one of `SOURCE_FORMS`
    generator: GeneratorSettings = GeneratorSettings()
    file: FileSettings = FileSettings()
    kafka: KafkaSettings = KafkaSettings()
    live: LiveSettings = LiveSettings()
    jetstream: JetstreamSettings = JetstreamSettings()
    message: MessageSettings = MessageSettings()
    labels: Labels = FieldLabels()
    late_labels: LateLabelsSettings = LateLabelsSettings()
    model: ModelSettings = ModelSettings()
    challengers: dict[str, ChallengerSettings] = Field(
        default_factory=dict, max_length=CHALLENGERS_MAX
    )
    promotion: PromotionSettings = PromotionSettings()
    per: PerSettings = PerSettings()
    learning: LearningSettings = LearningSettings()
    drift: DriftSettings = DriftSettings()
    alerts: AlertSettings = AlertSettings()
    learned: LearnedSettings = LearnedSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    group: SharedSettings = SharedSettings()
    predictions: PredictionsSettings = PredictionsSettings()
    rejects: OutputSettings = OutputSettings()
    predictor: PredictorSettings = PredictorSettings()
    recent: RecentSettings = RecentSettings()
    history: HistorySettings = HistorySettings()
    labelling: LabellingSettings = LabellingSettings()
    corrections: CorrectionsSettings = CorrectionsSettings()
    page: PageSettings = PageSettings()
    http: HttpSettings = HttpSettings()
    follow: FollowSettings = FollowSettings()
    view: Literal["auto", "live", "log"] = "auto"
    shutdown_timeout_s: float = Field(default=10.0, gt=0, le=SECONDS_MAX)

    @property
    def source_address(self) -> SourceAddress:
        """`source`, taken apart."""
        return SourceAddress.parse(self.source)

    @property
    def output_servers(self) -> tuple[str, ...]:
        """The brokers that `kafka:TOPIC` outputs go to: `kafka.servers`, else the source's own."""
        return self.kafka.servers or self.source_address.servers

    @property
    def models(self) -> dict[str, ModelSettings]:
        """The model sections by name: that of `model`, and those of the challengers."""
        others = {name: each.beside(self.model) for name, each in self.challengers.items()}
        return {MODEL: self.model} | others

    @model_validator(mode="before")
    @classmethod
    def _complete_challengers(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "challengers" not in data:
            return data
        return data | {"challengers": with_groups_of(data.get("model"), data["challengers"])}

    @field_validator("challengers", mode="before")
    @classmethod
    def _empty_challengers(cls, challengers: Any) -> Any:
        """Take challengers whose keys are all commented out for none, and one for the model."""
        found = {} if challengers is None else challengers
        if not isinstance(found, dict):
            return found
        return {name: {} if each is None else each for name, each in found.items()}

    @model_validator(mode="before")
    @classmethod
    def _implied(cls, data: Any) -> Any:
        """Let `source: jetstream` alone do: its frames are known, and posts have no labels."""
        if not isinstance(data, dict) or not str(data.get("source")).startswith("jetstream"):
            return data
        jetstream, model = data.get("jetstream"), data.get("model")
        is_second = isinstance(jetstream, dict) and wire_version(jetstream.get("version")) == 2
        implied: dict[str, Any] = {"message": "jetstream-v2" if is_second else "jetstream"}
        if not (isinstance(model, dict) and "classes" in model):
            implied["labels"] = {"kind": "emoticons"}
            if isinstance(labels := data.get("labels"), dict) and labels.keys() == {"teacher"}:
                data = data | {"labels": implied["labels"] | labels}
        return implied | {key: value for key, value in data.items() if value is not None}

    @field_validator("source")
    @classmethod
    def _source(cls, source: str) -> str:
        SourceAddress.parse(source)
        return source

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        problems = [
            *_wrong_labels(self),
            *_wrong_features(self, self.model, (MODEL,)),
            *_wrong_challengers(self),
            *_wrong_per(self),
            *_wrong_outputs(self),
            *_wrong_group(self),
            *_wrong_transactions(self),
            *_wrong_late_labels(self),
            *_wrong_decay(self),
            *_wrong_without_messages(self),
            *_wrong_follow(self),
            *wrong_page_classes(self.page, self.model.classes, new_classes=self.model.new_classes),
            *wrong_form(self.message, self.source_address.kind, self.file.format),
        ]
        if problems:
            lines = "; ".join(f"{'.'.join(map(str, path))} {text}" for path, text in problems)
            raise PydanticCustomError("setting", "{text}", {"text": lines, "problems": problems})
        return self


_Found = tuple[tuple[str | int, ...], str]


def _wrong_labels(settings: Settings) -> Iterator[_Found]:
    """Find labels that no class answers to: their messages would all be rejected."""
    classes = settings.model.classes
    labels = settings.labels
    if isinstance(labels, FieldLabels):
        for value, name in labels.mapping.items():
            if settings.model.new_classes and name not in classes:
                continue  # it joins them
            if name not in classes and SENTIMENT140.get(value) != name:
                yield ("labels", "mapping", value), _no_class(name, classes)
            elif value in classes and name not in {value, SENTIMENT140.get(value)}:
                text = f"is a class, which its name stands for; it cannot mean {name!r} as well"
                yield ("labels", "mapping", value), text
        return
    for name in labels.signs:
        if name not in classes:
            yield ("labels", "signs", name), _no_class(name, classes)
    for name in classes:
        if not labels.signs.get(name):
            text = f"has {name!r}, for which labels.signs has no sign: it could never be learned"
            yield ("model", "classes"), text


def _wrong_features(
    settings: Settings, model: ModelSettings, where: tuple[str, ...]
) -> Iterator[_Found]:
    """Find groups that read what no message brings along, what is another's, or the label."""
    kept = ("text", "user", "lang", *settings.message.fields)
    paths = {part: getattr(settings.message, part) for part in MESSAGE_PARTS}
    taken: dict[str, str] = {}
    for name, group in model.features.items():
        here = (*where, "features", name)
        if not group.fields and group.kind == "words" and name not in kept:
            text = f"reads a field that is not kept; add {name!r} to message.fields"
            yield here, f"{text}, or name its field under fields, or take one of {', '.join(kept)}"
        for field in group.reads(name):
            path = paths.get(field, field)
            if path in taken:
                text = f"reads {path!r}, which {taken[path]!r} reads already"
                yield here, f"{text}: evidence must not count twice; a field stands in one group"
            taken.setdefault(path, name)
            if field in MESSAGE_PARTS and holds_floats(group.holds):
                yield here, f"reads {field!r} as {group.holds}; it can be words or categories"
            if field == "message.weight" and settings.message.weight is not None:
                yield (
                    here,
                    f"reads {field!r}, as the weight of messages is called: rename the field",
                )
            if isinstance(settings.labels, FieldLabels) and path == settings.labels.field:
                yield here, f"reads {path!r}, where labels stand: it would learn the label itself"
        if isinstance(group, CategoriesSettings):
            for field in group.values.keys() - set(group.reads(name)):
                yield (*here, "values", field), "is none of the group's fields"


_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


def _wrong_challengers(settings: Settings) -> Iterator[_Found]:
    """Find challengers that the model's messages, memory and answers would not do for."""
    for name, each in settings.challengers.items():
        here = ("challengers", name)
        if name == MODEL or not _NAME.fullmatch(name):
            text = "is no name of a challenger: take up to 32 of a-z, 0-9, - and _"
            yield here, f"{text}; {MODEL} is the model of the settings itself"
        yield from _wrong_challenger(settings, each, here)
    if not settings.challengers:
        if settings.drift.reaction == "compare":
            text = "needs challengers, which it compares, and one of them may forget faster"
            yield ("drift", "reaction"), text
        return
    if settings.group.folder is not None:
        yield ("challengers",), "must be empty with a group.folder: its parts hold one model"
    if settings.corrections.to != "none" and not settings.learned.messages_max:
        text = "needs learned.messages_max above 0 for corrections, to take back what was learned"
        yield ("challengers",), text


def _wrong_challenger(
    settings: Settings, challenger: ChallengerSettings, here: tuple[str, ...]
) -> Iterator[_Found]:
    model, whole = settings.model, challenger.beside(settings.model)
    if challenger.class_prior is not None:
        yield from wrong_classes(challenger.class_prior, model.classes, here)
        if model.new_classes and isinstance(challenger.class_prior, dict):
            text = "must be one number with model.new_classes: a class that joins would have none"
            yield (*here, "class_prior"), text
    for where, text in wrong_prior_half_life(whole.class_prior, whole.prior_half_life):
        yield (*here, *where), text
    if challenger.half_life_s is not None and model.half_life_s is None:
        text = "needs model.half_life_s, which has messages count by their times"
        yield (*here, "half_life_s"), f"{text}; 1000000000 there forgets next to nothing"
    if challenger.features is not None:
        yield from _wrong_features(settings, whole, here)
        for name, group in challenger.features.items():
            at = (*here, "features", name)
            yield from wrong_priors(at, group, model.classes, new_classes=model.new_classes)
    read = _kinds(model)
    for field, kind in _kinds(whole).items():
        if read.get(field) != kind:
            text = f"reads {field!r} as {kind}, and model.features does not"
            yield here, f"{text}: messages are read and remembered by the fields of the model"


def _wrong_per(settings: Settings) -> Iterator[_Found]:
    """Find why the values of a field cannot have models of their own."""
    field, here = settings.per.field, ("per", "field")
    if field is None:
        return
    yield from wrong_values(field, settings.per.values)
    path = getattr(settings.message, field) if field in MESSAGE_PARTS else field
    if field == "text" or holds_floats(_kinds(settings.model).get(field, "categories")):
        yield here, "must be lang, user or a path to a text, such as a tenant's name"
    if isinstance(settings.labels, FieldLabels) and path == settings.labels.field:
        yield here, f"reads {path!r}, where labels stand: each label would have its own model"
    if settings.challengers:
        yield here, "does not go with challengers, which compare one model with others: name none"
    if settings.group.folder is not None:
        text = "does not go with a group.folder, whose parts hold one model: give each value"
        yield here, f"{text} a topic and a group of its own, or read all by one daemon"
    if settings.model.half_life_s is not None:
        text = "does not go with model.half_life_s: how many examples are left of each value, by"
        yield here, f"{text} which its model answers, would fall with time; leave one of them out"
    if settings.model.new_classes:
        yield here, "needs model.new_classes: false, as all models must know the same classes"
    if settings.http.snapshots:
        yield here, "needs http.snapshots: false, as a replica would answer by the shared model"
    if settings.corrections.to != "none" and not settings.learned.messages_max:
        text = "needs learned.messages_max above 0 for corrections, to take back what was learned"
        yield here, text


def _kinds(model: ModelSettings) -> dict[str, FieldKind]:
    """Return the fields that a model reads, with what they hold."""
    groups = model.features.items()
    return {field: each.holds for name, each in groups for field in each.reads(name)}


def _no_class(name: str, classes: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, classes, n=1)
    guess = f" (did you mean {near[0]!r}?)" if near else ""
    known = ", ".join(map(repr, classes))
    return f"names {name!r}, which is not in model.classes: {known}{guess}"


def _wrong_outputs(settings: Settings) -> Iterator[_Found]:
    """Find outputs and logs that lead nowhere, into each other, or back into the source."""
    source, servers = settings.source_address, settings.output_servers
    same_cluster = set(servers) & set(source.servers)
    outputs: dict[str, tuple[OutputSettings | CorrectionsSettings, str]] = {
        "predictions": (settings.predictions, "it would read what it writes"),
        "rejects": (settings.rejects, "it would read what it writes"),
        "corrections": (settings.corrections, "corrections are no messages"),
    }
    for name, (output, why) in outputs.items():
        address = output.address
        if address.kind == "kafka" and not servers:
            yield (name, "to"), "needs brokers: set kafka.servers, as the source is not Kafka"
        if address.kind == "kafka" and address.topic == source.topic and same_cluster:
            yield (name, "to"), f"must not be the source's own topic: {why}"
        if address.kind == "file" and is_one_file(address.path, source.path):
            yield (name, "to"), f"must not be the source's own file: {why}"
        if address.kind == "file" and is_own_file(address.path, settings.checkpoint.folder):
            yield (name, "to"), "must not be a file that the daemon keeps in checkpoint.folder"
    first, second = settings.predictions.address, settings.rejects.address
    if settings.predictions.to == settings.rejects.to != "none" or is_one_file(
        first.path, second.path
    ):
        yield ("rejects", "to"), "must not be where predictions.to goes: the records differ"
    for name, each in (("predictions", settings.predictions), ("rejects", settings.rejects)):
        if each.address.topic is not None and settings.corrections.to == each.to:
            text = f"must not be where {name}.to goes: it is read again, and only by us"
            yield ("corrections", "to"), text


def _wrong_group(settings: Settings) -> Iterator[_Found]:
    """Find what cannot go along with a model that a group shares."""
    if settings.group.folder is None:
        return
    here = ("group", "folder")
    if settings.source_address.kind != "kafka":
        yield here, "is for the members of a consumer group: the source is no Kafka topic"
    if settings.checkpoint.folder is None:
        yield here, "needs a checkpoint.folder, of each member's own"
    elif settings.checkpoint.folder == settings.group.folder:
        yield here, "must not be checkpoint.folder, which is one member's own"
    if settings.corrections.to == "journal":
        yield here, "needs corrections.to: kafka:TOPIC or none: a journal is one member's own"
    elif settings.corrections.to != "none" and not settings.learned.messages_max:
        yield here, "needs learned.messages_max above 0 for corrections, to take back what is known"


def _wrong_transactions(settings: Settings) -> Iterator[_Found]:
    """Find why predictions and offsets cannot stand in one transaction."""
    if not settings.kafka.transactions:
        return
    here = ("kafka", "transactions")
    source, outputs = settings.source_address, (settings.predictions, settings.rejects)
    if source.kind != "kafka":
        yield here, "needs a Kafka topic as the source: its offsets stand in the transactions"
    elif not set(settings.output_servers) & set(source.servers):
        yield here, "needs outputs on the source's own brokers: leave kafka.servers empty"
    if all(each.address.kind != "kafka" for each in outputs):
        yield here, "needs predictions.to or rejects.to to be kafka:TOPIC"
    if settings.group.folder is not None:
        yield here, "is for a single daemon: group.folder must be null"


def _wrong_late_labels(settings: Settings) -> Iterator[_Found]:
    """Find labels that no message could wait for, or that are another log already."""
    late, source = settings.late_labels, settings.source_address
    address, here = late.address, ("late_labels", "source")
    if address.kind == "none":
        return
    if address.kind == "kafka" and source.kind != "kafka":
        yield here, f"is a topic, and the source ({source.kind}) is none: they share partitions"
    if address.kind == "file" and source.kind not in {"file", "stdin"}:
        yield here, f"is a file, and the source ({source.kind}) is none: both are one partition"
    others = {settings.predictions.to, settings.rejects.to, settings.corrections.to}
    is_source = address.kind == source.kind == "kafka" and address.topic == source.topic
    paths = source.path, settings.predictions.address.path, settings.rejects.address.path
    if is_source or late.source in others or any(is_one_file(address.path, each) for each in paths):
        yield here, "must be a log of its own, which nothing else reads or writes here"
    elif address.path and source.path and address.path.name == source.path.name:
        text = (
            "must not have the name of the source's file, even in another folder: positions go by"
        )
        yield here, f"{text} the names of files"
    if not settings.learned.messages_max:
        yield ("learned", "messages_max"), "must not be 0: messages wait for their labels there"
    if settings.group.folder is not None and settings.corrections.to != "none":
        yield here, "needs corrections.to: none with a group.folder: a part has one log of labels"
    if settings.group.folder is not None and settings.model.new_classes:
        yield (
            here,
            "needs model.new_classes: false with a group.folder: all members must know all classes",
        )
    classes = settings.model.classes
    if late.default is not None and late.default not in classes:
        yield ("late_labels", "default"), _no_class(late.default, classes)


def _wrong_decay(settings: Settings) -> Iterator[_Found]:
    """Find what would have to be taken back from decayed counts, which round."""
    if settings.model.half_life_s is None:
        return
    here = ("model", "half_life_s")
    if settings.learned.messages_max:
        text = "needs learned.messages_max: 0, as decayed counts round: deletes and updates could"
        yield here, f"{text} not take back exactly what a message taught"
    if settings.corrections.to != "none":
        yield here, "needs corrections.to: none: a correction takes back what its message taught"
    for model, section in settings.models.items():
        path = (MODEL,) if model == MODEL else ("challengers", model)
        for name, group in section.features.items():
            if isinstance(group, WordsSettings) and group.normalise:
                text = "does not go with model.half_life_s: each moment would move every word's"
                yield (*path, "features", name, "normalise"), f"{text} weight"


def _wrong_without_messages(settings: Settings) -> Iterator[_Found]:
    """Find why nobody could be asked for labels, or answer, and why no share could be watched."""
    people, teacher = ("labelling", "enabled"), ("labels", "teacher")
    asked = [people] * settings.labelling.enabled + [teacher] * settings.labels.teacher.is_on
    for here in [("alerts", "queries")] * bool(settings.alerts.queries) + asked:
        if not settings.recent.enabled:
            yield here, "needs recent.enabled: true, as the messages are those of the recent store"
        if not settings.http.enabled:
            yield here, "needs http.enabled: true, as messages are stored for page and API alone"
    for here in asked:
        if settings.corrections.to == "none":
            yield here, "needs corrections.to: journal or kafka:TOPIC, where the answers go"
    if len(asked) > 1:
        yield people, "does not go with labels.teacher, whose answers would pass for people's"
    if teacher in asked and settings.late_labels.source != "none":
        yield teacher, "does not go with late_labels.source: messages wait for their own labels"


def _wrong_follow(settings: Settings) -> Iterator[_Found]:
    """Find why replicas could not have a version before they are to change over to it."""
    follow, handed_out_s = settings.follow, settings.http.snapshot_interval_s
    if not follow.switch_after_s:
        return
    if follow.switch_after_s < follow.interval_s:
        text = f"must be at least follow.interval_s ({follow.interval_s:g})"
        yield ("follow", "switch_after_s"), f"{text}, or some replicas have not looked by then"
    if follow.switch_after_s >= follow.stale_after_s:
        text = f"must be below follow.stale_after_s ({follow.stale_after_s:g})"
        yield ("follow", "switch_after_s"), f"{text}, or no replica is ready"
    if 0 < handed_out_s <= follow.interval_s:
        text = f"must be below http.snapshot_interval_s ({handed_out_s:g}) with switch_after_s"
        yield ("follow", "interval_s"), f"{text}, or some replicas miss a version"


def load(
    path: Path | None,
    environ: Mapping[str, str],
    overrides: Mapping[str, str | int | None] | None = None,
) -> Settings:
    """Read the settings from a file, or take the built-in defaults; see `document.load_section`."""
    return load_section(Settings, path, environ, overrides or {})


def to_yaml(settings: Settings) -> str:
    """Return the settings as YAML with every key, secrets masked."""
    data: dict[str, Any] = settings.model_dump(mode="json")
    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, default_flow_style=None))


# ---- what things are called on the page ----------------------------------------------------------


def message_names(settings: Settings) -> tuple[str, str]:
    """Return what the page calls a message, and several."""
    page, source = settings.page, settings.source
    made_up = _BY_MADE_UP[settings.generator.stream] if source == "generator" else None
    preset = _BY_PRESET.get(settings.message.preset or "")
    one = page.message_name or made_up or preset or "message"
    return one, page.message_name_plural or f"{one}s"


def user_prefix(settings: Settings) -> str:
    """Return what the page writes before a user: "@" where users are people by their handles."""
    source, message = settings.source, settings.message
    made_up = _BY_MADE_UP[settings.generator.stream] if source == "generator" else None
    name = made_up or _BY_PRESET.get(message.preset or "")
    is_plain = name is None and message.user == MessageSettings().user
    return "@" if is_plain or name in _WITH_HANDLES else ""


def placeholder(settings: Settings, kinds: Collection[str]) -> str:
    """Return what stands in the empty search box, of a model of fields of these kinds."""
    is_of_words = "words" in kinds
    usual = 'words, "a phrase", -without, #tag' if is_of_words else "a value, -without, label:CLASS"
    return settings.page.placeholder or usual


def question(settings: Settings) -> str:
    """Return what stands before that which is searched for."""
    is_sentiment = set(settings.model.classes) <= SENTIMENT
    return settings.page.question or (
        "Sentiment analysis for" if is_sentiment else "Predictions for"
    )
