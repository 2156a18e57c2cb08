"""A log read once more, without what it took back, against the counts of its checkpoint.

The log is read twice: first for the ids that deletes and updates name, then to learn. Messages of
these ids, and those that people corrected, are kept in plain dicts by id until their log is over;
all others are learned as they come. So what is learned here was never taken back, and the rules
stand here a second time: the daemon's memory of what it learned has no part in it. The texts of the
messages that live on of those ids are held, and 100 bytes for each id; of all others nothing is.

A correction counts as made right behind its message, wherever the daemon came to apply it. What a
person deletes and the stream updates later is the one case in which that matters.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
from msgspec import field
from numpy.typing import NDArray
from pydantic import SecretStr

from consumers.cli.conventions import PIECE_MESSAGES, decoded, polls, progress_bar, source_apart
from consumers.config.addresses import StreamRange
from consumers.config.model import FieldKind, holds_floats
from consumers.config.settings import Settings
from consumers.corrections import journal
from consumers.corrections.model import Correction, entries
from consumers.decode.labels import keep_classes, within_limit
from consumers.errors import ConfigError, MismatchError, QuestionError, SourceError
from consumers.factories import build_decoder, known_classes
from consumers.features import build_model, columns_of, learned_kinds, read_alike, without_hybrid
from consumers.kafka.group_source import whole_topic_source
from consumers.messages import (
    OPERATIONS,
    Column,
    KnownClasses,
    Messages,
    Operation,
    Partition,
    entries_of,
    id_named,
    part_name,
    partition_of,
    weighed,
)
from consumers.pipeline.checkpoint import mismatch
from consumers.pipeline.revision import ACCOUNT_END
from consumers.sources.base import LogFacts
from consumers.sources.recording import stream_identity
from consumers.sources.records import raw_columns, split_lines
from streamnb import Codes, NaiveBayes, TextColumn, subtract
from streamnb.errors import InputError
from streamnb.features.category_values import value_text
from streamnb.inspection.summary import CountDifference, differences, number_rows
from streamnb.storage import Stored

DIFFERENCES_MAX = SLICES_SHOWN_MAX = 20
_ROUNDING = 1e-9  # of means, which come back to rounding where an example is taken back
LearnedFields: TypeAlias = dict[str, str | float | None]
# Returns which of some messages are meant, as truth values.
Choice: TypeAlias = Callable[[Messages, NDArray[np.int64]], NDArray[np.bool_]]


class LivingExample(NamedTuple):
    """What a message teaches; `is_chosen` says whether it is one of those that are meant."""

    label: str
    fields: LearnedFields
    is_chosen: bool


class Verified(msgspec.Struct):
    """What came of it; `differences` has the first of them, `first` being the checkpoint's count.

    The digests are those of `NaiveBayes.digest(moments=False)`.
    """

    checkpoint: str
    digest: str
    replayed_digest: str = ""
    messages: int = 0  # of the log, up to the checkpoint's positions
    examples: int = 0  # that they teach
    taken_back: int = 0  # examples that a delete, an update or a person took back
    corrections: int = 0
    differences: list[CountDifference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """Whether the checkpoint counts what its log says."""
        return self.digest == self.replayed_digest and not self.differences


class _IdLog(msgspec.Struct):
    """What the messages of one id teach, taken in the order of their log."""

    living: dict[int, LivingExample] = field(default_factory=dict)  # by offset
    by_person: set[int] = field(default_factory=set)  # of these a person gave the label
    remembers: bool = True  # whether a person deletes earlier messages of the id too
    deleted: set[int] = field(default_factory=set)  # by a person
    is_known: bool = False  # it was learned, or taken back, before
    is_awaited: bool = False  # taken back before it came
    n_taken_back: int = 0

    def take(
        self,
        operation: Operation,
        offset: int,
        label: str | None,
        fields: LearnedFields,
        chosen: bool,
    ) -> bool:
        """Go on with a message of the stream; return False if it had been taken back before."""
        if operation == Operation.CREATE:
            if self.is_awaited:
                self.is_awaited, self.is_known = False, True
                return False
            if label is not None:
                self.living[offset] = LivingExample(label, fields, chosen)
                self.is_known = True
            return True
        given = [each.label for at, each in self.living.items() if at in self.by_person]
        had_any = bool(self.living)
        self.n_taken_back += len(self.living)
        self.living.clear()
        if operation == Operation.UPDATE and given:
            label = given[-1]
            self.by_person.add(offset)
        if not had_any and not self.is_known:
            self.is_awaited = True
        if operation == Operation.UPDATE and label is not None:
            self.living[offset] = LivingExample(label, fields, chosen)
        self.is_known = True
        return True

    def end(self) -> None:
        """Take back all that lives: the account was deleted."""
        self.n_taken_back += len(self.living)
        self.living.clear()

    def meant(self, said: Correction) -> list[int]:
        """Return the living messages that a correction means: a deletion, earlier ones too."""
        has_earlier = said.kind == "delete" and self.remembers
        return [at for at in self.living if at == said.offset or (has_earlier and at < said.offset)]

    def correct(self, said: Correction, fields: LearnedFields, chosen: bool) -> None:
        """Go on with what a person said of the message at that offset, whose fields these are."""
        at = said.offset
        if said.kind == "delete":
            self.deleted.add(at)
        elif any(at == each or (at < each and self.remembers) for each in self.deleted):
            return
        for each in self.meant(said):
            del self.living[each]
            self.n_taken_back += 1
        if said.label is not None:
            self.living[at] = LivingExample(said.label, fields, chosen)
            self.by_person.add(at)
            self.is_known = True


class Replay:
    """Learns a log without what it takes back; `begins` says where the log began.

    With a `choice` it learns the chosen messages alone: what people said without one is none.
    """

    def __init__(
        self,
        settings: Settings,
        targets: Mapping[Partition, int],
        begins: Mapping[Partition, int],
        corrections: Sequence[Correction],
        choice: Choice | None = None,
    ) -> None:
        self._choice = choice
        self.model = build_model(without_hybrid(settings.model))
        self.classes = known_classes(settings, None)
        self.counts: Counter[str] = Counter()
        self._takes_back = settings.learned.messages_max > 0
        self._kinds: dict[str, FieldKind] = learned_kinds(settings)
        self._targets = targets
        self._has_accounts = settings.message.deletes_accounts and self._takes_back
        self._named: set[tuple[Partition, bytes]] = set()  # also accounts, by what ids begin with
        self._logs: dict[tuple[Partition, bytes], _IdLog] = defaultdict(
            partial(_IdLog, remembers=self._takes_back)
        )
        self._by_account: dict[tuple[Partition, bytes], dict[bytes, _IdLog]] = defaultdict(dict)
        self._said: dict[tuple[Partition, int], list[Correction]] = defaultdict(list)
        self._own: dict[str, Correction] = {}  # examples that came by themselves, by id
        for each in corrections:
            self._note(each, begins)

    def _note(self, said: Correction, begins: Mapping[Partition, int]) -> None:
        """Keep a correction until its message comes; apply it if the log lacks the message."""
        place = said.place
        if place is None:
            self._own[said.id] = said
            self.counts["corrections"] += 1
            return
        if said.offset >= self._targets.get(place, 0):
            return  # of another daemon's stream
        named = id_named(place, said.offset, said.id)
        name = _nameless(said.offset) if named is None else named.encode()
        if said.offset >= begins.get(place, 0):
            self._said[place, said.offset].append(said)
            if said.kind == "delete" and self._takes_back:  # earlier messages of the id too
                self._named.add((place, name))
        else:
            own_log = self._log_of(place, name)
            if said.was is None or own_log.meant(said):
                self._named.add((place, name))
                own_log.correct(said, self._fields_of(said.example), self._choice is None)
        self.counts["corrections"] += 1

    def note_ids(self, messages: Messages) -> None:
        """Take in which ids deletes and updates name: the first time that the log is read."""
        if self._takes_back:
            names = _names(messages, np.union1d(messages.updated, messages.deleted))
            self._named.update((messages.partition, name) for name in names if name is not None)
            if self._has_accounts:
                ended = [name[:-1] for name in names if name and name.endswith(ACCOUNT_END)]
                self._named.update((messages.partition, name) for name in ended)

    def learn(self, messages: Messages) -> None:
        """Learn what nothing takes back, and keep the rest by their ids."""
        messages = within_limit(messages, self.model)
        place, offsets = messages.partition, messages.offsets.tolist()
        every = np.arange(len(messages))
        names = _names(messages, every)
        is_kept = np.zeros(len(messages), np.bool_)
        if self._named or self._said:
            is_kept[:] = [
                (place, name) in self._named
                or (place, offset) in self._said
                or (self._has_accounts and (place, _account_of(name)) in self._named)
                for name, offset in zip(names, offsets, strict=True)
            ]
        self.counts["messages"] += len(messages.raw)
        rows = np.intersect1d(messages.to_learn, every[~is_kept])
        rows = rows[self._chosen(messages, rows)]
        columns = columns_of(messages, rows, list(self._kinds))
        self._teach(place, columns, Codes(messages.labels[rows], messages.classes))
        for row in np.flatnonzero(is_kept).tolist():
            name = names[row]
            if self._has_accounts and name is not None and name.endswith(ACCOUNT_END):
                for own_log in self._by_account[place, _account_of(name)].values():
                    own_log.end()
                continue
            name = _nameless(offsets[row]) if name is None else name
            self._keep(messages, row, self._log_of(place, name))

    def _log_of(self, place: Partition, name: bytes) -> _IdLog:
        """Return what the messages of an id teach, and have its account find it."""
        own_log = self._logs[place, name]
        if self._has_accounts:
            self._by_account[place, _account_of(name)][name] = own_log
        return own_log

    def _chosen(self, messages: Messages, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        if self._choice is None:
            return np.ones(len(rows), np.bool_)
        return self._choice(messages, rows)

    def _keep(self, messages: Messages, row: int, own_log: _IdLog) -> None:
        operation = OPERATIONS[int(messages.operations[row])]
        if not self._takes_back:
            if operation == Operation.DELETE:
                return
            operation = Operation.CREATE
        offset = int(messages.offsets[row])
        own = columns_of(messages, np.array([row]), list(self._kinds))
        fields = {name: _value(column) for name, column in own.items()}
        label = None if operation == Operation.DELETE else messages.label(row)
        chosen = bool(self._chosen(messages, np.array([row]))[0])
        if own_log.take(operation, offset, label, fields, chosen):
            for said in self._said.get((messages.partition, offset), ()):
                own_log.correct(said, fields, chosen)

    def finish(self) -> None:
        """Learn what was kept by id and lives on, and the examples that came by themselves."""
        living: dict[Partition, list[LivingExample]] = defaultdict(list)
        for (place, _), own_log in self._logs.items():
            living[place] += [each for each in own_log.living.values() if each.is_chosen]
            self.counts["taken_back"] += own_log.n_taken_back
        alone = Partition("corrections", 0)
        for said in self._own.values() if self._choice is None else ():
            if said.label is not None:
                fields = self._fields_of(said.example)
                living[alone].append(LivingExample(said.label, fields, is_chosen=True))
        for place, examples in living.items():
            for begin in range(0, len(examples), PIECE_MESSAGES):
                some = examples[begin : begin + PIECE_MESSAGES]
                columns = {
                    name: self._column(name, [each.fields[name] for each in some])
                    for name in self._kinds
                }
                self._teach(place, columns, [each.label for each in some])

    def _teach(self, place: Partition, columns: Mapping[str, Any], labels: Any) -> None:
        if len(labels):
            own, weights = weighed(columns)
            self.model.learn_many(own, labels, weights=weights, part=part_name(place))
            self.classes.grow(keep_classes(self.model))

    def _fields_of(self, example: Mapping[str, Any]) -> LearnedFields:
        found: LearnedFields = {}
        for name, kind in self._kinds.items():
            value = example.get(name)
            if holds_floats(kind):
                found[name] = math.nan if value is None else float(value)
            else:
                found[name] = None if value is None else _name_of(value)
        return found

    def _column(self, name: str, values: list[Any]) -> Any:
        return np.array(values, np.float64) if holds_floats(self._kinds[name]) else values


def _account_of(name: bytes | None) -> bytes:
    """Return what all ids of an id's account begin with, or nothing."""
    first, slash, _ = (name or b"").partition(b"/")
    return first + slash if slash else b""


def _nameless(offset: int) -> bytes:
    """Return what a message without an id is known by; no id is, as they are UTF-8."""
    return b"\xff%d" % offset


def _names(messages: Messages, rows: NDArray[np.int64]) -> list[bytes | None]:
    """Return the ids of some messages, None where there is none."""
    data, starts, ends = messages.ids.texts
    plain = data.tobytes()
    bounds = zip(starts[rows].tolist(), ends[rows].tolist(), strict=True)
    return [plain[start:end] if end >= 0 else None for start, end in bounds]


def _value(column: Column) -> str | float | None:
    """Return the value of a column of one row."""
    if not isinstance(column, TextColumn):
        return float(column[0])
    data, starts, ends = column.texts
    return None if ends[0] < 0 else data[starts[0] : ends[0]].tobytes().decode()


# ---- the log ------------------------------------------------------------------------------------


def verify(
    settings: Settings, stored: Stored, part: StreamRange | None = None, *, show: bool = False
) -> Verified:
    """Compare the counts of a checkpoint with those of its log; see `replayed`."""
    return _compared(stored, replayed(settings, stored, part, show=show))


def replayed(
    settings: Settings,
    stored: Stored,
    part: StreamRange | None = None,
    choice: Choice | None = None,
    *,
    show: bool = False,
) -> Replay:
    """Read the log of a checkpoint up to its positions; `part` is as the run had it.

    A checkpoint of another configuration is a `MismatchError`. A log that does not reach from its
    beginning up to the checkpoint's positions any more is a `SourceError`.
    """
    if settings.late_labels.address.kind != "none":
        raise ConfigError(
            "late_labels.source: what the labels of another log taught cannot be verified; verify "
            "is for checkpoints of a log that holds its labels"
        )
    if settings.model.half_life_s is not None:
        raise ConfigError(
            "model.half_life_s: decayed counts round, by the order of what was learned, and cannot "
            "be verified; nor can some messages be taken out of them"
        )
    model, notes = stored.model, dict(stored.header["notes"])
    kept = entries_of(notes.pop("entries", {}), stored.extras)
    alike = read_alike(settings.model, model.describe()["groups"])
    found = mismatch(build_model(alike), stream_identity(settings), model, notes)
    if found:
        raise MismatchError(
            f"{stored.path} was made by another configuration:\n{found}\nName the daemon's by "
            "--config, and the log that it reads, or a recording of that, by --source."
        )
    facts = {
        partition_of(name): msgspec.convert(each, LogFacts)
        for name, each in (kept["logs"].values.items() if "logs" in kept else ())
    }
    positions = {partition_of(name): at for name, at in stored.positions.items()}
    labels_at = {each: at for each, at in positions.items() if _is_of_people(each, settings)}
    targets = {each: at for each, at in positions.items() if each not in labels_at}
    begins = {each: facts[each].begin if each in facts else 0 for each in targets}
    classes = KnownClasses(map(str, model.classes), open=settings.model.new_classes)
    said = [each for at in labels_at for each in _corrections(settings, at, labels_at[at], classes)]
    key = SecretStr(f"{model.state.hash_key:032x}")  # so that both know long values alike
    settings = settings.model_copy(update={"model": alike.model_copy(update={"hash_key": key})})
    replay = Replay(settings, targets, begins, said, choice)
    size = sum(at - begins[each] for each, at in targets.items())
    with progress_bar(show=show) as bar:
        task = bar.add_task(stored.path.name, total=2 * size)
        for is_last in (False, True):
            source = source_apart(settings, "verify", part)
            decoder = build_decoder(settings, source, replay.classes)
            source.resume({each: facts[each] for each in targets if each in facts})
            take = replay.learn if is_last else replay.note_ids
            read = None if part is not None and part.begin is not None else begins
            for raw in polls(
                source, targets, read, lambda text: bar.update(task, description=text)
            ):
                for messages in decoded(raw, decoder):
                    take(messages)
                bar.advance(task, raw.next_offset - int(raw.offsets[0]))
        replay.finish()
        bar.update(task, completed=2 * size)
    return replay


def _is_of_people(partition: Partition, settings: Settings) -> bool:
    own = settings.corrections.address.topic
    return partition.topic.startswith("journal:") or partition.topic == own


def _corrections(
    settings: Settings, partition: Partition, position: int, classes: KnownClasses
) -> Iterator[Correction]:
    """Yield what people said up to the position of the checkpoint."""
    if partition.topic.startswith("journal:"):
        assert settings.checkpoint.folder is not None
        path = settings.checkpoint.folder / journal.FILE_NAME
        try:
            with path.open("rb") as file:  # the daemon may be writing on behind
                data = file.read(position)
        except OSError as error:
            raise SourceError(f"{path}: cannot be read ({error.strerror})") from error
        lines = split_lines(data, last=False)
        if lines.consumed < position:
            raise SourceError(f"{path}: has fewer bytes than the {position} that were applied")
        logs = iter([raw_columns(partition, data, lines, lines.starts, position)])
    else:
        servers = settings.output_servers
        source = whole_topic_source(settings, partition.topic, servers)
        logs = polls(source, {partition: position}, {partition: 0}, lambda _: None)
    for raw in logs:
        for each in entries(raw, classes):
            if isinstance(each.said, Correction):
                yield each.said


# ---- a slice ------------------------------------------------------------------------------------


def without_slice(
    settings: Settings,
    stored: Stored,
    by: str,
    name: str,
    part: StreamRange | None = None,
    *,
    show: bool = False,
) -> tuple[NaiveBayes, int]:
    """Return a checkpoint's model without what a slice of its log teaches, and how many examples.

    `by`: `day` for the day of the message's time in UTC (`none` without a time), else `user`,
    `lang` or one of `message.fields`; `name` is the slice's value as a category's (`true`, and `1`
    for 1.0 too), or `none` where it is missing. An update belongs to the slice of its own time. A
    slice of nothing, or one that the model never learned, is a `QuestionError`, which names those
    that the log has; what can be no slice is one before the log is read.
    """
    known = ("day", "user", "lang", *settings.message.fields)
    if by not in known:
        raise QuestionError(f"--by {by}: name one of {', '.join(known)}")
    if by == "day" and name != "none" and not _is_day(name):
        raise QuestionError(f"--slice {name}: must be a day as 2026-11-02, or none; by {by}")
    choice = _Slice(by, name)
    learned = replayed(settings, stored, part, choice, show=show).model
    if not learned.n_examples:
        shown = [*map(repr, choice.there)]
        shown[SLICES_SHOWN_MAX:] = ["others"] * (len(shown) > SLICES_SHOWN_MAX)
        raise QuestionError(
            f"--slice {name}: the log has no example of it by {by}; it has"
            f" {', '.join(shown) or 'none at all'}"
        )
    for group, spec in learned.describe()["groups"].items():
        if "max_words" in spec:
            stored.model.set_max_words(group, spec["max_words"])
            # With fresh weights, so that those of the checkpoint stay as when it unlearns.
            learned.set_hybrid(group, stored.model.state.groups[group].hybrid)
    try:
        return subtract(stored.model, learned), learned.n_examples
    except InputError as error:
        raise QuestionError(
            f"--slice {name}: {error} `streamnb verify` shows where model and log differ."
        ) from error


class _Slice:
    """Chooses the messages of a slice; `there` has those that came, and no more than are shown."""

    def __init__(self, by: str, name: str) -> None:
        self._by = by
        self._name = name
        self.there: dict[str, None] = {}  # in the log's order; one more says that there are others

    def __call__(self, messages: Messages, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        names = self._names(messages, rows)
        if len(self.there) <= SLICES_SHOWN_MAX:
            new = [each for each in dict.fromkeys(names) if each not in self.there]
            self.there |= dict.fromkeys(new[: SLICES_SHOWN_MAX + 1 - len(self.there)])
        return np.array([each == self._name for each in names], np.bool_)

    def _names(self, messages: Messages, rows: NDArray[np.int64]) -> list[str]:
        found = messages.metadata(messages.raw, messages.at[rows])
        if self._by == "day":
            days = np.array(found.times_ms, "datetime64[ms]").astype("datetime64[D]")
            timed = zip(found.times_ms, days, strict=True)
            return ["none" if ms == -1 else str(day) for ms, day in timed]
        own: Sequence[Any] = [each.get(self._by) for each in found.fields]
        return [*map(_name_of, {"user": found.users, "lang": found.langs}.get(self._by, own))]


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _name_of(value: Any) -> str:
    """Return a value's name as a category: `true`, and `1` for 1.0 too; `none` if it is missing."""
    try:
        return value_text("", 0, value) or "none"
    except InputError:  # a list, or an object
        return msgspec.json.encode(value).decode()


# ---- the comparison -----------------------------------------------------------------------------


def _compared(stored: Stored, replay: Replay) -> Verified:
    ours, theirs = stored.model, replay.model
    done = Verified(
        str(stored.path),
        ours.digest(moments=False),
        theirs.digest(moments=False),
        replay.counts["messages"],
        theirs.n_examples,
        replay.counts["taken_back"],
        replay.counts["corrections"],
    )
    if done.digest != done.replayed_digest:
        done.differences += islice(differences(ours.state, theirs.state), DIFFERENCES_MAX)
    done.differences += islice(_other_moments(ours, theirs), DIFFERENCES_MAX)
    if ours.words_dropped or theirs.words_dropped:
        done.notes.append(
            f"{ours.words_dropped:,} words have left the full vocabulary: what was counted of them "
            "depends on when, so that counts may differ that are all right. Raise max_words"
        )
    return done


def _other_moments(first: NaiveBayes, second: NaiveBayes) -> Iterator[CountDifference]:
    """Yield means and variances that differ by more than rounding."""
    rows = {(row.group, row.field): row for row in number_rows(second.state)}
    for row in number_rows(first.state):
        other = rows.get((row.group, row.field))
        if other is None:
            continue  # their n differ too
        for statistic in ("mean", "m2"):
            by_label = dict(zip(second.classes, getattr(other, statistic).tolist(), strict=True))
            for label, held in zip(first.classes, getattr(row, statistic).tolist(), strict=True):
                found = by_label.get(label, 0.0)
                size = max(abs(held), abs(found), 1.0)
                if abs(held - found) > _ROUNDING * size:
                    yield CountDifference(row.group, statistic, row.field, str(label), held, found)
