"""A model of its own for each value of a field: a language, a tenant, an author.

The shared model learns every labelled message, and the model of a message's own value learns it as
well. That one answers for its value once it has learned `per.examples_min` messages; before, and
for all other messages, the shared model does, and the answer says why. With `per.prior_examples` κ
the shared model is the prior of the others: where an own one has learned n messages, the answer is
(n·p_own + κ·p_shared)/(n + κ). Calibration, prediction sets and costs follow from these answers.

A value gets its model with its first labelled message, so counts are those that a model would have
that is given the messages of this value alone. Which values have one follows from the log (from
several partitions, by the order in which they were read: `per.values` names them beforehand).
Models and figures stand in the checkpoint beside the shared model, with its positions.

A model that the settings bring later begins empty at that place of the log. Of records that the
memory had before, it takes nothing back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import structlog
from msgspec import field
from numpy.typing import NDArray
from pydantic import SecretStr

from consumers.config.model import FieldKind, ModelSettings
from consumers.config.sections import VALUE_BYTES_MAX, PerSettings
from consumers.decode.fields import language_ranges
from consumers.features import build_model
from consumers.messages import CheckpointEntry, rows_of, weighed
from consumers.monitoring.prequential import Prequential
from consumers.monitoring.status import OwnModelFigures, OwnModelsReport
from consumers.pipeline.challengers import below, unlearn_records
from consumers.pipeline.checkpoint import mismatch, take_settings
from consumers.pipeline.learned_records import FoundRecords
from streamnb import AnswerRule, Codes, Learner, NaiveBayes, Snapshot, TextColumn, serialization
from streamnb.calibration import calibrated
from streamnb.inspection import explain
from streamnb.labels import read_labels, to_indices
from streamnb.learn import EncodedRows, prequential
from streamnb.predict import by_class, log_posteriors
from streamnb.reader import ModelReader
from streamnb.serving.publisher import AnsweredBy
from streamnb.state import ModelState

ENTRY = "per"
_UNKNOWN = ("lang", "und")
Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
log = structlog.get_logger(__name__)


# ---- values and rows -----------------------------------------------------------------------------


class ValueRows(NamedTuple):
    """Values in the order of their first rows, and the place of each row's among them; -1: none."""

    names: list[str]
    codes: Longs

    def each(self) -> Iterator[tuple[str, Longs]]:
        """Yield each value with its rows, ascending."""
        order = np.argsort(self.codes, kind="stable")
        ends = np.searchsorted(self.codes[order], np.arange(len(self.names) + 1))
        for k, name in enumerate(self.names):
            yield name, order[ends[k] : ends[k + 1]]


def read_values(field_name: str, columns: Mapping[str, Any]) -> ValueRows:
    """Return the value of each row of some columns; of languages `en-US` is `en`, `und` is none."""
    column = columns.get(field_name)
    if column is None:
        return ValueRows([], np.full(len(next(iter(columns.values()), ())), -1))
    texts, codes = _coded(column)
    found: dict[str, int] = {}
    places = []
    for text in texts:
        name = text
        if field_name == "lang":
            name = min(language_ranges(text), key=len)
        is_value = 0 < len(name.encode()) <= VALUE_BYTES_MAX and (field_name, name) != _UNKNOWN
        places.append(found.setdefault(name, len(found)) if is_value else -1)
    return ValueRows(list(found), np.array([*places, -1])[codes])


def _coded(column: Any) -> tuple[list[str], Longs]:
    """Return texts in the order of their first rows, and each row's place among them; -1: none."""
    codes = np.full(len(column), -1)
    if not isinstance(column, TextColumn):
        known: dict[str, int] = {}
        for row, text in enumerate(column):
            codes[row] = -1 if text is None else known.setdefault(str(text), len(known))
        return list(known), codes
    data, starts, ends = column.texts
    sizes = ends - starts
    rows = np.flatnonzero((sizes > 0) & (sizes <= VALUE_BYTES_MAX))
    if not len(rows):
        return [], codes
    width = np.arange(sizes[rows].max() + 1)
    at = np.minimum(starts[rows, np.newaxis] + width, len(data) - 1)
    own = sizes[rows, np.newaxis]
    # NumPy takes zeros at the end for padding: behind each text stands a byte that is none.
    grid = np.where(width < own, data[at], (width == own).astype(np.uint8))
    keys, firsts, places = np.unique(
        grid.view(f"S{len(width)}").ravel(), return_index=True, return_inverse=True
    )
    order = np.argsort(firsts)
    codes[rows] = np.argsort(order)[places]
    return [each[:-1].decode("utf-8", "replace") for each in keys[order].tolist()], codes


def _some(columns: Mapping[str, Any], rows: Longs) -> dict[str, Any]:
    """Return some rows of columns, given ascending."""
    return {
        name: [column[i] for i in rows] if isinstance(column, list) else rows_of(column, rows)
        for name, column in columns.items()
    }


def mixed(own: Floats, shared: Floats, n: Any, prior_examples: float) -> Floats:
    """Return log((n·p_own + κ·p_shared)/(n + κ)) of log-posteriors; `n` is one number or each's."""
    if not prior_examples:
        return own
    share = np.reshape(n, (-1, 1)) / (np.reshape(n, (-1, 1)) + prior_examples)
    found: Floats = np.logaddexp(own + np.log(share), shared + np.log1p(-share))
    return found


# ---- answers -------------------------------------------------------------------------------------


class OwnReader(ModelReader):
    """Answers each example by the model of its value.

    `state` is the shared model's, which answers for those without one. What is asked of the model,
    not of an example, is asked of the shared one too. An explanation is that of the model that
    answers, before the shared one is mixed in.
    """

    own: Mapping[str, ModelState]
    per: PerSettings

    def __init__(self, state: ModelState, own: Mapping[str, ModelState], per: PerSettings) -> None:
        self.state, self.own, self.per = state, own, per

    def raw(self) -> ModelReader:
        """Return what answers by the counts alone."""
        own = {name: each.raw() for name, each in self.own.items()}
        return OwnReader(self.state.raw(), own, self.per)

    def without_prior(self) -> ModelReader:
        """Return what answers as if all classes were equally probable beforehand."""
        own = {name: each.without_prior() for name, each in self.own.items()}
        return OwnReader(self.state.without_prior(), own, self.per)

    def stated(self, columns: Any) -> Floats:
        """Return log p(c | x) as the models state it, before calibration."""
        shared, kappa = replace(self.state, calibration=None), self.per.prior_examples
        values = read_values(str(self.per.field), columns)
        answering = [
            (state, rows) for name, rows in values.each() if (state := self._answering(name))
        ]
        if not answering:
            return log_posteriors(shared, columns)
        is_asked = np.ones(len(values.codes), np.bool_)
        for _, rows in answering:
            is_asked[rows] = kappa > 0.0
        found = np.empty((len(values.codes), len(shared.classes)))
        rest = np.flatnonzero(is_asked)
        if len(rest):
            found[rest] = log_posteriors(shared, _some(columns, rest))
        for state, rows in answering:
            theirs = log_posteriors(state, _some(columns, rows))
            found[rows] = mixed(theirs, found[rows], state.n_examples, kappa)
        return found

    def predict_log_proba_many(self, columns: Any) -> Floats:
        """Return log p(c | x), ndarray of shape (n, n_classes), in nats."""
        found, curve = self.stated(columns), self.state.calibration
        return found if curve is None else calibrated(curve, found)

    def predict_log_proba_one(self, x: Mapping[str, Any]) -> dict[Any, float]:
        """Return log p(c | x) by class, in nats."""
        many = self.predict_log_proba_many({name: [value] for name, value in x.items()})
        return by_class(self.state, many[0])

    def predict_proba_one(self, x: Mapping[str, Any]) -> dict[Any, float]:
        """Return p(c | x) by class."""
        return {name: float(np.exp(each)) for name, each in self.predict_log_proba_one(x).items()}

    def explain_one(self, x: Mapping[str, Any]) -> explain.Explanation:
        """Return what the class prior and each feature add to the winner's log-odds."""
        return explain.explain_one(self._one(x), x)

    def credible_interval_one(
        self, x: Mapping[str, Any], *args: Any, **options: Any
    ) -> dict[Any, tuple[float, float]]:
        """Return an interval of p(c | x) by class; see `ModelReader`."""
        one = OwnReader(self._one(x), {}, self.per)
        return ModelReader.credible_interval_one(one, x, *args, **options)

    def answered_by(self, columns: Any) -> list[AnsweredBy]:
        """Return which model answers each example, and why."""
        values = read_values(str(self.per.field), columns)
        said = [self._said(name) for name in values.names]
        said.append(AnsweredBy(None, f"no {self.per.field} is given"))
        return [said[k] for k in values.codes.tolist()]

    def _answering(self, name: str) -> ModelState | None:
        """Return the model that answers for a value; None for the shared one."""
        state = self.own.get(name)
        return state if state and state.n_examples >= self.per.examples_min else None

    def _one(self, x: Mapping[str, Any]) -> ModelState:
        field_name = str(self.per.field)
        names = read_values(field_name, {field_name: [x.get(field_name)]}).names
        return next(filter(None, map(self._answering, names)), self.state)

    def _said(self, name: str) -> AnsweredBy:
        per, state = self.per, self.own.get(name)
        n = 0 if state is None else state.n_examples
        what = f"{n} labelled messages in {per.field} {name}"
        if state is None and not may_begin(per, self.own, name):
            return AnsweredBy(None, f"{per.field} {name} has no model of its own")
        if n < per.examples_min:
            return AnsweredBy(None, f"only {what}, of per.examples_min {per.examples_min}")
        prior = f", the shared model counting as {per.prior_examples:g}" * bool(per.prior_examples)
        return AnsweredBy(name, f"{what}{prior}")


class OwnSnapshot(OwnReader, Snapshot):
    """What the shared model and the others knew at one moment."""

    def __init__(
        self,
        model: ModelReader,
        version: int,
        rule: AnswerRule | None,
        own: Mapping[str, ModelState],
        per: PerSettings,
    ) -> None:
        Snapshot.__init__(self, model, version, rule)
        object.__setattr__(self, "own", own)
        object.__setattr__(self, "per", per)


def may_begin(per: PerSettings, known: Mapping[str, Any], name: str) -> bool:
    """Return whether a value that has no model yet would get one."""
    return name in per.values if per.values else len(known) < per.most


# ---- learning ------------------------------------------------------------------------------------


class OwnModel(msgspec.Struct):
    """The model of one value, and how well it and the shared one did on its messages.

    `begins` has the number of the first record that it may have learned, by the name of the log.
    """

    model: NaiveBayes
    figures: Prequential
    shared: Prequential
    begins: Mapping[str, int]

    def known(self, records: FoundRecords, log_name: str) -> FoundRecords:
        """Return those of some records that the model learned."""
        is_known = records.numbers >= self.begins.get(log_name, 0)
        return records if is_known.all() else records.some(is_known)


class OwnModels(msgspec.Struct):
    """The models by value; it is an entry of the checkpoint. The shared one is the checkpoint's."""

    settings: ModelSettings
    per: PerSettings
    window: int
    name: str = ENTRY
    models: Mapping[str, OwnModel] = field(default_factory=dict)  # in the order in which they began
    _since: Mapping[str, int] = field(default_factory=dict)  # what begins now has learned from here
    _stored: Mapping[str, Any] | None = None  # the choice of values that a checkpoint was made by
    _frozen: dict[str, ModelState] = field(default_factory=dict)  # as they are, for snapshots

    def _begun(self, name: str) -> OwnModel | None:
        """Return the model of a value, which begins here if it may; None if it has none."""
        known = self.models.get(name)
        if known is None and may_begin(self.per, self.models, name):
            model = build_model(self.settings)
            known = OwnModel(model, Prequential(self.window), Prequential(self.window), self._since)
            self.models = {**self.models, name: known}  # a new one, as others may be reading it
        return known

    def learn(
        self, part: str, columns: Mapping[str, Any], labels: Codes, weights: Any, shared: Floats
    ) -> Floats:
        """Teach examples, of which the shared model stated `shared` before; return the answers."""
        found = shared.copy()
        teaches = np.ones(len(labels), np.bool_) if weights is None else np.asarray(weights) > 0.0
        truth = to_indices(labels, tuple(self.settings.classes))
        for name, rows in read_values(str(self.per.field), columns).each():
            own = self.models.get(name)
            if own is None and may_begin(self.per, self.models, name) and teaches[rows].any():
                own = self._begun(name)
            if own is None:
                continue
            n_before = own.model.n_examples + np.cumsum(teaches[rows]) - teaches[rows]
            stated = prequential(
                own.model.state, _some(columns, rows), Codes(labels.codes[rows], labels.classes),
                weights=None if weights is None else np.asarray(weights)[rows], part=part,
            )  # fmt: skip
            self._frozen.pop(name, None)
            own.figures.update(stated, truth[rows])
            own.shared.update(shared[rows], truth[rows])
            answers = n_before >= self.per.examples_min
            some = rows[answers]
            found[some] = mixed(
                stated[answers], shared[some], n_before[answers], self.per.prior_examples
            )
        return found

    def learn_one(
        self, part: str, x: Mapping[str, Any], y: Any, weight: float, time_s: Any
    ) -> None:
        """Learn one example that no memory knows, where `unlearn_one` could take it back."""
        for name, _ in self._of(x):
            own = self._begun(name)
            if own is not None and not own.begins:
                own.model.learn_one(x, y, weight=weight, time_s=time_s, part=part)

    def unlearn_one(
        self, part: str, x: Mapping[str, Any], y: Any, weight: float, time_s: Any
    ) -> None:
        """Take back one example that no memory knows: from a model that began with the log."""
        for _, own in self._of(x):
            if own is not None and not own.begins:
                own.model.unlearn_one(x, y, weight=weight, time_s=time_s, part=part)

    def _of(self, x: Mapping[str, Any]) -> list[tuple[str, OwnModel | None]]:
        names = read_values(str(self.per.field), {k: [v] for k, v in x.items()}).names
        for name in names:
            self._frozen.pop(name, None)
        return [(name, self.models.get(name)) for name in names]

    def take_back(
        self, records: FoundRecords, log_name: str, part: str, fields: Mapping[str, FieldKind]
    ) -> None:
        """Unlearn what some records of a log taught a part, each in the model of its value."""
        columns, _ = weighed(records.columns(fields))
        for name, rows in read_values(str(self.per.field), columns).each():
            own = self.models.get(name)
            if own is None:
                continue
            known = own.known(records.some(rows), log_name)
            unlearn_records(name, own.model, self.settings.classes, known, part, fields)
            self._frozen.pop(name, None)

    def frozen(self) -> dict[str, ModelState]:
        """Return the states as they are now; those that changed since the last call are copied."""
        for name, each in self.models.items():
            if name not in self._frozen:
                self._frozen[name] = each.model.state.frozen_copy(with_parts=False)
        return dict(self._frozen)

    # ---- the start and the checkpoint ----------------------------------------------------------

    def begin(self, model: NaiveBayes, records: Mapping[str, int]) -> None:
        """Go on beside the restored shared model; what begins from here on has learned since now.

        `records` has the number of the next record of each log's memory.
        """
        key = SecretStr(f"{model.state.hash_key:032x}")  # words are found alike after any start
        self.settings = self.settings.model_copy(
            update={"hash_key": key, "classes": tuple(map(str, model.classes))}
        )
        kept = dict[str, OwnModel]()
        for name, each in self.models.items():
            if may_begin(self.per, kept, name):
                kept[name] = each
            else:
                log.warning("own_model_dropped", name=name, detail="per has no place for it")
        self.models = kept
        if self._stored != self._choice():
            self._since = dict(records) if model.parts else {}
            if model.parts:
                log.warning(
                    "own_models_begin", field=self.per.field, detail=_BEGIN, kept=list(kept)
                )

    def _choice(self) -> dict[str, Any]:
        per = self.per
        return {"field": per.field, "values": list(per.values), "most": per.most}

    def pack(self) -> CheckpointEntry:
        """Return the models and their figures."""
        arrays: dict[str, NDArray[Any]] = {}
        models = []
        for k, (name, each) in enumerate(self.models.items()):
            header, own = serialization.pack(each.model.state.frozen_parts().state(), {})
            packed = {"figures": each.figures.pack(), "shared": each.shared.pack()}
            models.append(
                {"name": name, "begins": dict(each.begins), "model": header}
                | {which: entry.values for which, entry in packed.items()}
            )
            arrays |= {f"{k}/model/{one}": array for one, array in own.items()}
            for which, entry in packed.items():
                arrays |= {f"{k}/{which}/{one}": array for one, array in entry.arrays.items()}
        values = {"choice": self._choice(), "since": dict(self._since), "models": models}
        return CheckpointEntry(values, arrays)

    def unpack(self, entry: CheckpointEntry) -> None:
        """Go on with the models of a checkpoint; `begin` is still to be called."""
        values, fresh = entry.values, build_model(self.settings)
        if values["choice"]["field"] != self.per.field:
            return
        models = dict[str, OwnModel]()
        for k, said in enumerate(values["models"]):
            state, _ = serialization.unpack(said["model"], below(entry.arrays, f"{k}/model/"))
            model = NaiveBayes.of(state)
            if changed := mismatch(fresh, {}, model, {}):
                log.warning("own_models_begin", field=self.per.field, detail=f"{_BEGIN}\n{changed}")
                return
            take_settings(model, fresh, set())
            figures, shared = Prequential(self.window), Prequential(self.window)
            for which, each in (("figures", figures), ("shared", shared)):
                own = below(entry.arrays, f"{k}/{which}/")
                each.unpack(CheckpointEntry(said[which], own), sums=True)
            models[said["name"]] = OwnModel(model, figures, shared, said["begins"])
        self.models, self._since, self._stored = models, values["since"], values["choice"]

    # ---- the report ----------------------------------------------------------------------------

    def report(self) -> OwnModelsReport:
        """Return the figures of all models; any thread may ask."""
        return OwnModelsReport(
            str(self.per.field),
            self.per.examples_min,
            self.per.prior_examples,
            tuple(
                OwnModelFigures(
                    name,
                    each.model.n_examples,
                    each.model.n_examples >= self.per.examples_min,
                    each.figures.window_accuracy,
                    each.figures.window_log_loss,
                    each.shared.window_accuracy,
                    each.shared.window_log_loss,
                )
                for name, each in self.models.items()
            ),
        )


_BEGIN = "each that begins learns from here on, from nothing"


def pack_states(states: Mapping[str, ModelState]) -> CheckpointEntry:
    """Return what a snapshot knew by value, for `unpack_states`."""
    headers, arrays = dict[str, Any](), dict[str, NDArray[Any]]()
    for k, (name, state) in enumerate(states.items()):
        headers[name], own = serialization.pack(state, {})
        arrays |= {f"{k}/{one}": array for one, array in own.items()}
    return CheckpointEntry(headers, arrays)


def unpack_states(entry: CheckpointEntry) -> dict[str, ModelState]:
    """Return the states of `pack_states`."""
    return {
        name: serialization.unpack(header, below(entry.arrays, f"{k}/"))[0]
        for k, (name, header) in enumerate(entry.values.items())
    }


class OwnLearner(Learner):
    """A learner of a shared model and of those of single values."""

    def __init__(self, own_models: OwnModels, *args: Any, **options: Any) -> None:
        self.own_models = own_models
        super().__init__(*args, **options)

    @property
    def takes_in_place(self) -> bool:
        """No: each model takes back what it has learned itself."""
        return False

    def prequential(
        self,
        part: str,
        columns: Any,
        labels: Any,
        weights: Any,
        times_s: Any,
        encoded: EncodedRows | None,
        taken: Any,
    ) -> Floats:
        """Learn examples in all models; return what the answers state of each before."""
        codes = read_labels(labels, None, self.model.classes)
        shared = super().prequential(part, columns, codes, weights, times_s, encoded, taken)
        return self.own_models.learn(part, columns, codes, weights, shared)

    def frozen(self, rule: AnswerRule | None) -> Snapshot:
        """Return a snapshot of all models as they are now."""
        own = self.own_models
        return OwnSnapshot(self.model, self.version, rule, own.frozen(), own.per)

    def learn_one(
        self, part: str, x: Mapping[str, Any], y: Any, *, weight: float = 1.0, time_s: Any = None
    ) -> None:
        """Learn one example that no memory knows; see `Learner.learn_one`."""
        super().learn_one(part, x, y, weight=weight, time_s=time_s)
        self.own_models.learn_one(part, x, y, weight, time_s)

    def unlearn_one(
        self, part: str, x: Mapping[str, Any], y: Any, *, weight: float = 1.0, time_s: Any = None
    ) -> None:
        """Take back one example that no memory knows; see `Learner.unlearn_one`."""
        super().unlearn_one(part, x, y, weight=weight, time_s=time_s)
        self.own_models.unlearn_one(part, x, y, weight, time_s)

    def take_back(
        self, records: FoundRecords, log_name: str, part: str, fields: Mapping[str, FieldKind]
    ) -> None:
        """Unlearn what some records of a log taught a part, in each model that learned them."""
        columns, weights = weighed(records.columns(fields))
        labels = Codes(records.labels, tuple(self.model.classes))
        self.unlearn_many(part, columns, labels, weights=weights)
        self.own_models.take_back(records, log_name, part, fields)
