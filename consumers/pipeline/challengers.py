"""Models that learn beside the one that answers, and the rule by which one takes its place.

What `ChallengedLearner` is taught all of them learn, and what is taken back is taken back from all.
Each example is judged by each model just before that learns it, and mean log-losses are compared
over blocks of labelled messages. A promotion so follows from the log alone (of several partitions,
from the order in which they were read). Models, figures and the name of the one that serves stand
in the checkpoint with the positions.

A challenger that the settings name later begins empty at that place of the log. Of records that the
memory had before, it takes nothing back.

Groups of words that read alike, of models that differ in half-lives, priors or hybrids, share the
serving model's vocabulary: a text is tokenised, hashed and looked up once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from consumers.config.model import MODEL, FieldKind, ModelSettings, PromotionSettings
from consumers.config.sections import CheckpointSettings
from consumers.decode.labels import keep_classes, predicted_classes
from consumers.errors import CheckpointError, ConfigError, ConsumerError
from consumers.features import SavedConfidence, build_model
from consumers.messages import CheckpointEntry, entries_of, partition_of, weighed
from consumers.monitoring.prequential import Prequential, calibration_error
from consumers.monitoring.status import ChallengersReport, JudgedBlock, ModelFigures
from consumers.pipeline.checkpoint import Checkpoint, mismatch, take_settings
from consumers.pipeline.learned_records import FoundRecords
from streamnb import Calibrator, Codes, Confidence, Learner, NaiveBayes, serialization
from streamnb.errors import InputError
from streamnb.labels import UNLABELLED, read_labels, to_indices
from streamnb.learn import EncodedRows, impossible, prequential
from streamnb.merging import share_words
from streamnb.storage import read_model

ENTRY = "challengers"
BLOCKS_MAX = 200  # of the curve
SOON_EXAMPLES = 500  # of the block behind an alarm of drift
Floats = NDArray[np.float64]
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Candidate:
    """A model of the settings, which serves or learns beside the one that does.

    `begins` has the number of the first record that it learned, by the name of the log; None if it
    learned all that the checkpoint's model did. `late` calibrates what is said of examples when
    their late label comes, which follows from the labels' order: what was answered before hangs on
    when the message was read, and so does what calibrates answers.
    """

    model: NaiveBayes
    saved: SavedConfidence
    figures: Prequential
    begins: dict[str, int] | None = None
    late: Calibrator | None = None
    may_share: bool = True  # words with the serving model; False once it was found to read others
    n_block: int = 0  # examples of the block under way that it judged
    loss_block: float = 0.0
    n_right_block: int = 0

    def __post_init__(self) -> None:
        """Calibrate late examples if answers are calibrated."""
        if self.saved.learned.calibrator is None:
            self.late = None
        elif self.late is None:
            self.late = Calibrator()

    def judge(self, posteriors: Floats, truth: NDArray[np.int32]) -> tuple[Floats, NDArray[Any]]:
        """Take in examples in order; return their log-losses, and which were predicted right."""
        posteriors = impossible(posteriors)
        return self.figures.update(posteriors, truth), predicted_classes(posteriors) == truth

    def count(self, losses: Floats, right: NDArray[Any]) -> None:
        """Go on in the block under way; summed in order, so that no cut of the log matters."""
        self.n_block += len(losses)
        self.loss_block = float(np.cumsum(np.append(self.loss_block, losses))[-1])
        self.n_right_block += int(np.count_nonzero(right))

    def end_block(self) -> None:
        """Begin the next block."""
        self.n_block, self.loss_block, self.n_right_block = 0, 0.0, 0

    def known(self, records: FoundRecords, log_name: str) -> FoundRecords:
        """Return those of some records that the model learned."""
        begin = 0 if self.begins is None else self.begins.get(log_name, 0)
        is_known = records.numbers >= begin
        return records if is_known.all() else records.some(is_known)


@dataclass(slots=True)
class Challengers:
    """The models by name, and which of them serves; it is an entry of the checkpoint.

    `serving` is the name of the checkpoint's own model. `promoted` is told of the confidence of a
    model that begins to serve.
    """

    settings: Mapping[str, ModelSettings]
    rule: PromotionSettings
    window: int
    serving: str = MODEL
    name: str = ENTRY
    promoted: Callable[[Confidence], None] = lambda _confidence: None
    models: dict[str, Candidate] = field(default_factory=dict)
    replaced: tuple[str, ...] = ()  # served before, each name once, the last one last
    held: tuple[str, ...] = ()  # went back from: said to be better, never promoted
    n: int = 0  # examples that were judged
    block: tuple[int, int] = field(init=False)  # the one under way: where it began, where it ends
    n_promotions: int = 0
    blocks: tuple[JudgedBlock, ...] = ()

    @property
    def n_until_judged(self) -> int:
        """How many examples are left of the block under way."""
        return self.block[1] - self.n

    def __post_init__(self) -> None:
        """Begin the first block."""
        self.block = 0, self.rule.examples

    def _begin_block(self, examples: int) -> None:
        for each in self.models.values():
            each.end_block()
        self.block = self.n, self.n + examples

    def compare_soon(self) -> None:
        """Begin a short block here, where drift was noticed, in the place of the one under way."""
        self._begin_block(min(SOON_EXAMPLES, self.rule.examples))

    def others(self) -> Iterator[Candidate]:
        """Yield the models that do not serve."""
        return (each for name, each in self.models.items() if name != self.serving)

    def share_words(self) -> None:
        """Have the challengers that read as the serving model does share its vocabulary.

        They do already, except after a start, a promotion, or a move to a smaller table.
        """
        state = self.models[self.serving].model.state
        for each in self.others():
            each.may_share = each.may_share and share_words(each.model.state, state)

    # ---- learning ------------------------------------------------------------------------------

    def learn(
        self, part: str, columns: Any, labels: Codes, weights: Any, times_s: Any, stated: Floats,
        encoded: EncodedRows, *, judged: bool,
    ) -> str | None:  # fmt: skip
        """Judge examples, which the serving model `stated`, and teach them to the others.

        Return the challenger that is to serve from here on, if there is one. A class that joined
        later is nan in what is `stated`. Examples that are not `judged`, as they were before and
        their label came late, are stated uncalibrated. `encoded` has what the serving model encoded
        of them.
        """
        truth = to_indices(labels, keep_classes(self.models[self.serving].model))
        # As in `Learner.learn`: what teaches nothing is answered alone.
        taught = truth if weights is None else np.where(np.equal(weights, 0.0), UNLABELLED, truth)
        found: dict[str, tuple[Floats, NDArray[Any]]] = {}
        for name, each in self.models.items():
            posteriors = stated
            if name != self.serving:
                posteriors = prequential(
                    each.model.state, columns, labels, weights=weights, times_s=times_s, part=part,
                    encoded=encoded,
                )  # fmt: skip
                keep_classes(each.model)
                answers = each.saved.learned.learn(posteriors, taught)
                posteriors = answers if judged else posteriors
            if each.late is not None and not judged:
                posteriors = each.late.prequential_many(posteriors, taught)
            if len(truth):
                found[name] = each.judge(posteriors, truth)
        return self._count(found, len(truth))

    def _count(self, judged: Mapping[str, tuple[Floats, NDArray[Any]]], n: int) -> str | None:
        begin, better = 0, None
        while begin < n:
            end = min(n, begin + self.n_until_judged)
            for name, (losses, right) in judged.items():
                self.models[name].count(losses[begin:end], right[begin:end])
            self.n += end - begin
            begin = end
            if self.n == self.block[1]:
                better = self._end_block() or better
        return better

    def _end_block(self) -> str | None:
        """Compare what the models lost over a block; return the one that is to serve, if any."""
        n = self.block[1] - self.block[0]
        whole = {name: each for name, each in self.models.items() if each.n_block == n}
        losses = {name: each.loss_block / n for name, each in whole.items()}
        right = {name: each.n_right_block / n for name, each in whole.items()}
        self._begin_block(self.rule.examples)
        if not whole:  # the settings cut blocks otherwise before
            return None
        self.blocks = (*self.blocks, JudgedBlock(self.n, dict(losses), right))[-BLOCKS_MAX:]
        own = losses.pop(self.serving, None)
        if own is None or not losses or self.rule.action == "none":
            return None
        best = min(losses, key=lambda name: losses[name])
        if own - losses[best] < self.rule.margin_nats or own == losses[best]:
            return None
        is_promoted = self.rule.action == "promote" and best not in self.held
        log.warning(
            "challenger_promoted" if is_promoted else "challenger_is_better",
            name=best, in_place_of=self.serving, example=self.n,
            log_loss=round(losses[best], 6), serving_log_loss=round(own, 6),
        )  # fmt: skip
        return best if is_promoted else None

    def serve(self, name: str) -> Candidate:
        """Let a challenger serve; the model whose place it takes goes on as a challenger."""
        old, chosen = self.models[self.serving], self.models[name]
        before = (*self.replaced, self.serving)
        self.replaced, self.serving = tuple(each for each in before if each != name), name
        self.n_promotions += 1
        saved, own = chosen.saved, old.saved  # that of the serving model is an entry of its own
        own.learned, saved.learned = saved.learned, own.learned
        old.saved, chosen.saved = saved, own
        for each in self.models.values():
            each.may_share = True  # it may read as this one does
        self.promoted(own.learned)
        return chosen

    def take_back(
        self, records: FoundRecords, log_name: str, part: str, fields: Mapping[str, FieldKind]
    ) -> None:
        """Unlearn in the challengers what some records of a log taught a part."""
        classes = tuple(self.models[self.serving].model.classes)
        for name, each in self.models.items():
            if name == self.serving:
                continue
            unlearn_records(name, each.model, classes, each.known(records, log_name), part, fields)

    # ---- the start -----------------------------------------------------------------------------

    def begin(self, model: NaiveBayes, saved: SavedConfidence, records: Mapping[str, int]) -> None:
        """Put the checkpoint's model where it serves, and let challengers that are new begin.

        `records` has the number of the next record of each log's memory.
        """
        found = dict(self.models)
        self.models = {}
        for name, settings in self.settings.items():
            known = found.get(name)
            if name == self.serving:
                figures = Prequential(self.window) if known is None else known.figures
                own = Candidate(model, saved, figures)
                if known is not None:
                    own.late = known.late
                    own.begins, own.n_block = known.begins, known.n_block
                    own.loss_block, own.n_right_block = known.loss_block, known.n_right_block
            elif known is not None:
                own = known
            else:
                own = self._fresh(settings, model)
                if model.parts:
                    own.begins = dict(records)
                    log.warning("challenger_begins", name=name, detail=_BEGINS)
            self.models[name] = own
        if self.serving != MODEL:
            log.warning("challenger_serves", name=self.serving, detail=_SERVES)

    def _fresh(self, settings: ModelSettings, serving: NaiveBayes) -> Candidate:
        """Return a challenger that knows the serving model's classes and logs, and nothing else."""
        classes = tuple(map(str, serving.classes))
        model = build_model(settings.model_copy(update={"classes": classes}))
        nothing: dict[str, list[Any]] = {name: [] for name in settings.fields}
        for part in serving.parts:
            model.prequential_many(nothing, [], part=part)  # its position is saved with a part
        return Candidate(model, SavedConfidence(settings), Prequential(self.window))

    # ---- the report ----------------------------------------------------------------------------

    def report(self) -> ChallengersReport:
        """Return the figures of all models; any thread may ask."""
        return ChallengersReport(
            self.serving,
            self.replaced[-1] if self.replaced else None,
            self.n_promotions,
            tuple(
                ModelFigures(
                    name,
                    name == self.serving,
                    each.model.n_examples,
                    each.figures.n,
                    each.figures.accuracy,
                    each.figures.log_loss,
                    each.figures.window_accuracy,
                    each.figures.window_log_loss,
                    calibration_error(each.figures.judged().calibration()),
                )
                for name, each in self.models.items()
            ),
            self.blocks,
        )

    # ---- the checkpoint ------------------------------------------------------------------------

    def pack(self) -> CheckpointEntry:
        """Return all models but the one that serves, which is the checkpoint's own, and figures."""
        models: dict[str, Any] = {}
        arrays: dict[str, NDArray[Any]] = {}
        for name, each in self.models.items():
            figures = each.figures.pack()
            models[name] = {
                "figures": figures.values,
                "begins": each.begins,
                "block": [each.n_block, each.loss_block, each.n_right_block],
                "late": None if each.late is None else each.late.to_dict(),
            }
            arrays |= {f"{name}/figures/{key}": array for key, array in figures.arrays.items()}
            if name != self.serving:
                header, own = serialization.pack(each.model.state.frozen_parts().state(), {})
                models[name] |= {"model": header, "confidence": each.saved.pack().values}
                arrays |= {f"{name}/model/{key}": array for key, array in own.items()}
        values = {
            "serving": self.serving,
            "replaced": list(self.replaced),
            "held": list(self.held),
            "n": self.n,
            "n_promotions": self.n_promotions,
            "examples": self.rule.examples,
            "block": list(self.block),
            "blocks": [[each.example, each.log_loss, each.accuracy] for each in self.blocks],
            "models": models,
        }
        return CheckpointEntry(values, arrays)

    def unpack(self, entry: CheckpointEntry) -> None:
        """Go on; `begin` is still to be called.

        If the settings no longer name the model that served, theirs was found to be the same one.
        """
        values = entry.values
        renamed = {values["serving"]: self.serving}
        self.n_promotions = values["n_promotions"]
        self.blocks = tuple(JudgedBlock(*each) for each in values["blocks"])
        self.n = values["n"]
        is_cut_alike = values["examples"] == self.rule.examples
        begin = self.n - self.n % self.rule.examples if is_cut_alike else self.n
        begin, end = values.get("block", (begin, begin + self.rule.examples))
        self.block = (begin, end) if is_cut_alike else (self.n, self.n + self.rule.examples)
        for stored, said in values["models"].items():
            name = renamed.get(stored, stored)
            is_displaced = name == self.serving and stored not in renamed
            if name not in self.settings or is_displaced:
                log.warning("challenger_dropped", name=stored, detail=_DROPPED)
                continue
            found = self._unpacked(name, said, entry.arrays, stored)
            if found is None:
                continue
            if is_cut_alike:
                found.n_block, found.loss_block, found.n_right_block = said["block"]
            self.models[name] = found
        self.held = tuple(each for each in values["held"] if each in self.models)
        self.replaced = tuple(
            each for each in _replaced(values) if each in self.models and each != self.serving
        )

    def _unpacked(
        self, name: str, said: Mapping[str, Any], arrays: Mapping[str, Any], stored: str
    ) -> Candidate | None:
        """Return a model that goes on; None if its section is not what it was."""
        figures = Prequential(self.window)
        own = below(arrays, f"{stored}/figures/")
        figures.unpack(CheckpointEntry(said["figures"], own), sums=True)
        fresh, saved = build_model(self.settings[name]), SavedConfidence(self.settings[name])
        known = said.get("late")  # older files have none
        late = None if known is None else Calibrator.from_dict(known)
        if "model" not in said:  # `begin` has it
            return Candidate(fresh, saved, figures, said["begins"], late)
        state, _ = serialization.unpack(said["model"], below(arrays, f"{stored}/model/"))
        model = NaiveBayes.of(state)
        changed = mismatch(fresh, {}, model, {})
        if changed:
            log.warning("challenger_changed", name=name, detail=f"{_CHANGED}\n{changed}")
            return None
        take_settings(model, fresh, set())
        saved.unpack(CheckpointEntry(said["confidence"]))
        return Candidate(model, saved, figures, said["begins"], late)


_BEGINS = (
    "it learns from here on, from nothing; streamnb compare judges models on a recorded stream"
)
_SERVES = (
    "it was promoted, and answers; model of the configuration learns beside it. `streamnb model "
    "revert` goes back"
)
_DROPPED = "it learned beside the model that answers, and challengers has it no longer"
_CHANGED = "its section is not what it was, so it begins again:"


def _replaced(values: Mapping[str, Any]) -> list[str]:
    """Return which models served before, of a checkpoint's entry; the last one last.

    Older files know the last one alone, and not even that once somebody went back. The model of
    the configuration served before any challenger did.
    """
    found: list[str] = values.get("replaced", [])
    is_first = found or values.get("serving", MODEL) == MODEL
    return found if is_first else [values.get("previous") or MODEL]


def below(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """Return the arrays whose names begin so, by the rest of their names."""
    return {
        name.removeprefix(prefix): each for name, each in arrays.items() if name.startswith(prefix)
    }


def unlearn_records(
    name: str,
    model: NaiveBayes,
    classes: Sequence[Any],
    records: FoundRecords,
    part: str,
    fields: Mapping[str, FieldKind],
) -> None:
    """Unlearn in a model beside the serving one what some records taught a part.

    If they cannot be unlearned together, each is by itself; the log names those that cannot.
    """
    if _is_unlearned(records, part, fields, classes, model):
        return
    for number in records.numbers.tolist():
        one = records.some(records.numbers == number)
        if not _is_unlearned(one, part, fields, classes, model):
            log.error("not_taken_back", name=name, record=number)


def _is_unlearned(
    records: FoundRecords,
    part: str,
    fields: Mapping[str, FieldKind],
    classes: Sequence[Any],
    model: NaiveBayes,
) -> bool:
    """Unlearn what some records taught; return whether that could be done."""
    labels = Codes(records.labels, tuple(classes))
    columns, weights = weighed(records.columns(fields))
    try:
        model.unlearn_many(columns, labels, weights=weights, part=part)
    except InputError:
        return False
    return True


class ChallengedLearner(Learner):
    """A learner with challengers: what it is taught they learn too, and one may take its place."""

    def __init__(self, challengers: Challengers, *args: Any, **options: Any) -> None:
        self.challengers = challengers
        super().__init__(*args, **options)

    @property
    def takes_in_place(self) -> bool:
        """No: each model takes back what it has learned itself."""
        return False

    def teach(
        self,
        part: str,
        columns: Any,
        labels: Any,
        weights: Any,
        times_s: Any,
        encoded: EncodedRows | None,
        taken: Any,
        *,
        judged: bool,
    ) -> Floats:
        """Judge, then learn examples; see `Learner.learn`.

        All are compared by what the models say of them now, those that were judged before too.
        """
        codes = read_labels(labels, None, self.model.classes)
        encoded = encoded or EncodedRows()
        self.challengers.share_words()
        found = super().teach(part, columns, codes, weights, times_s, encoded, taken, judged=judged)
        better = self.challengers.learn(
            part, columns, codes, weights, times_s, found, encoded, judged=judged
        )
        if better is not None:
            chosen = self.challengers.serve(better)
            self.model, self.confidence = chosen.model, chosen.saved.learned
            self.publish()
        return found

    def learn_one(
        self, part: str, x: Mapping[str, Any], y: Any, *, weight: float = 1.0, time_s: Any = None
    ) -> None:
        """Learn one example that no memory knows, where `unlearn_one` could take it back.

        Its class joins the others too, as classes stand in one order in all.
        """
        models = self.challengers.models.values()
        for each in models:
            own = weight if each.begins is None else 0.0
            if each.model is self.model:
                super().learn_one(part, x, y, weight=own, time_s=time_s)
            else:
                each.model.learn_one(x, y, weight=own, time_s=time_s, part=part)
                keep_classes(each.model)
        if any(y in each.model.classes for each in models):  # weight 0 lets none join
            for each in models:
                each.model.add_class(y)

    def unlearn_one(
        self, part: str, x: Mapping[str, Any], y: Any, *, weight: float = 1.0, time_s: Any = None
    ) -> None:
        """Take back one example that no memory knows: from models that began with the log alone."""
        if self.challengers.models[self.challengers.serving].begins is None:
            super().unlearn_one(part, x, y, weight=weight, time_s=time_s)
        for each in self.challengers.others():
            if each.begins is None:
                each.model.unlearn_one(x, y, weight=weight, time_s=time_s, part=part)

    def take_back(
        self, records: FoundRecords, log_name: str, part: str, fields: Mapping[str, FieldKind]
    ) -> None:
        """Unlearn what some records of a log taught a part, in each model that learned them."""
        own = self.challengers.models[self.challengers.serving]
        known = own.known(records, log_name)
        labels = Codes(known.labels, tuple(self.model.classes))
        columns, weights = weighed(known.columns(fields))
        self.unlearn_many(part, columns, labels, weights=weights)
        self.challengers.take_back(records, log_name, part, fields)


# ---- going back ----------------------------------------------------------------------------------


def revert(settings: CheckpointSettings) -> tuple[str, str]:
    """Let the model serve again whose place was taken, in a checkpoint that no daemon uses.

    Return the name of the one that served, and of the one that serves now.
    """
    unnamed = Checkpoint(settings, {})
    path = unnamed.path
    if path is None:
        raise ConfigError("checkpoint.folder is null: name the folder of the model to go back to")
    if not path.exists():  # before a lock makes the folder
        raise CheckpointError(
            f"{path}: there is no checkpoint yet; name the daemon's configuration with --config"
        )
    with unnamed.locked():
        stored = read_model(path)
        identity = dict(stored.header["notes"])
        entries = entries_of(identity.pop("entries", {}), stored.extras)
        values = dict(entries[ENTRY].values) if ENTRY in entries else {}
        old, replaced = values.get("serving", MODEL), _replaced(values)
        if not replaced:
            others = ", ".join(sorted({*values.get("models", {})} - {old})) or "none"
            raise ConsumerError(
                f"{path}: no challenger was promoted, or it went back already: '{old}' answers, "
                f"and nothing is to be done (challengers: {others}). For another model to answer, "
                "write its section as `model`, or set `promotion.action: promote`"
            )
        new = replaced[-1]
        arrays = dict(entries[ENTRY].arrays)
        models = {name: dict(each) for name, each in values["models"].items()}
        mine = below(arrays, f"{new}/model/")
        state, _ = serialization.unpack(models[new].pop("model"), mine)
        header, theirs = serialization.pack(stored.model.state, {})
        models[old] |= {"model": header, "confidence": entries["confidence"].values}
        entries["confidence"] = CheckpointEntry(models[new].pop("confidence"))
        arrays = {name: each for name, each in arrays.items() if _at(name) != (new, "model")}
        arrays |= {f"{old}/model/{name}": each for name, each in theirs.items()}
        values |= {"serving": new, "replaced": replaced[:-1], "models": models}
        values["held"] = sorted({*values["held"], old})
        entries[ENTRY] = CheckpointEntry(values, arrays)
        if "snapshot" in entries:  # by examples: the next one to answer is another model's
            version = entries["snapshot"].values["version"]
            entries["snapshot"] = CheckpointEntry({"version": version + 1})
        positions = {partition_of(name): at for name, at in stored.positions.items()}
        Checkpoint(settings, identity).write(state, positions, entries)
    return old, new


def _at(name: str) -> tuple[str, str]:
    model, what, _ = name.split("/", 2)
    return model, what
