"""How a model learns: in order, in pieces, in parts, under decay.

What `NaiveBayes` offers in public stands on this. A piece of a batch is read by every group first,
then judged and learned row by row, so that bad input is refused before anything has changed.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb.columns import chunks
from streamnb.decay import Clock, DecaySchedule
from streamnb.errors import InputError
from streamnb.features.protocol import Floats
from streamnb.kernels import posterior
from streamnb.labels import Label, RowUpdates, check_label, unlabelled_rows
from streamnb.predict import PIECE
from streamnb.priors import class_prior_to_dict, pseudo_counts
from streamnb.reading import Readable
from streamnb.state import Part


class Learning(Readable):
    """The learning side of a model."""

    n_threads: int
    new_classes: bool
    _places: dict[Label, int]
    _n_declared_classes: int
    _parts: dict[str, Part]

    def describe(self) -> dict[str, Any]:
        """Return what makes two models the same kind: classes, priors, groups; not the hash key.

        Nor whether classes may join: it says what a model takes, not what it has counted.
        """
        half_life = self._clock.half_life
        return {
            "classes": list(self._classes),
            "class_prior": class_prior_to_dict(self._class_prior),
            "decay": None if half_life is None else asdict(half_life),
            "groups": {name: group.spec.to_dict() for name, group in self._groups.items()},
        }

    @property
    def parts(self) -> Mapping[str, Part]:
        """The parts this model is the sum of; empty where it is kept whole."""
        return dict(self._parts)

    def set_max_words(self, group: str, max_words: int) -> None:
        """Move the bound on a group's words; it is kept from the next example learned on."""
        state = self._group(group)
        state.spec = replace(state.spec, max_words=max_words)
        state.set_bounded(bounded=not self._parts)

    @property
    def n_skipped(self) -> int:
        """How many features were not unlearned because they had left before."""
        return sum(group.n_skipped for group in self._groups.values())

    # ---- inside --------------------------------------------------------------------------------

    @property
    def _is_closed(self) -> bool:
        """Whether a label that is no class yet is refused: where classes are declared."""
        return not self.new_classes and self._n_declared_classes > 0

    def _known_target(self, name: Any) -> Part | None:
        """Return the part that is meant; None for a model kept whole."""
        if name is None and self._parts:
            raise InputError(
                f"this model is kept in parts ({', '.join(self._parts)}):"
                " part must say which one is meant."
            )
        if name is not None and not (isinstance(name, str) and name in self._parts):
            raise InputError(
                f"part {name!r}: this model has no such part. It has"
                f" {', '.join(self._parts) or 'none'}."
            )
        return None if name is None else self._parts[name]

    def _target(self, name: Any) -> Part | None:
        """Return the part to teach, made where it is new; None for a model kept whole."""
        if name is None or (isinstance(name, str) and name in self._parts):
            return self._known_target(name)
        if not isinstance(name, str):
            raise InputError(f"part must be a str. Got {name!r} ({type(name).__name__}) instead.")
        if not self._parts and self._n_examples:
            raise InputError(
                f"part {name!r}: this model has learned as a whole,"
                " and cannot be cut into parts any more."
            )
        half_life = self._clock.half_life
        if half_life is not None and half_life.examples is not None:
            raise InputError(
                f"part {name!r}: a half-life in examples is one of all examples together, and a"
                " part is a function of its own. Take a half-life in seconds."
            )
        for group in self._groups.values():
            group.set_bounded(bounded=False)
        self._parts[name] = Part.empty(self._groups, len(self._classes))
        return self._parts[name]

    def _learn(
        self,
        fields: dict[str, Any],
        begin: int,
        end: int,
        schedule: DecaySchedule,
        out: Floats,
        part: Part | None,
    ) -> None:
        """Learn rows `begin` to `end`; write the log-posteriors that stood before into `out`."""
        n_classes = len(self._classes)
        cuts = [begin, *(move.row for move in schedule.moves if begin < move.row < end), end]
        for first, last in itertools.pairwise(cuts):
            said = self._judge_and_move(schedule, fields, first) if first < last else None
            self._learn_stretch(fields, (first, last), schedule.updates, out, part)
            if said is not None:
                out[first, :n_classes] = said

    def _learn_stretch(
        self,
        fields: dict[str, Any],
        stretch: tuple[int, int],
        taught: RowUpdates,
        out: Floats,
        part: Part | None,
    ) -> None:
        """Learn rows between which no landmark moves."""
        n_classes, begin = len(self._classes), stretch[0]
        pieces = [(begin + a, begin + b) for a, b in chunks(stretch[1] - begin, self._piece)]
        # Closed whatever happens: no thread may still be reading when the next call learns.
        with contextlib.closing(self._encoded(fields, pieces, taught.labels)) as encoded:
            for (a, b), batches in zip(pieces, encoded, strict=True):
                updates = taught.rows(a, b)
                out[a:b, :n_classes] = self._teach(batches, updates, part)

    def _teach(self, batches: dict[str, Any], updates: RowUpdates, part: Part | None) -> Floats:
        """Judge and learn a batch, here and in its part; return the log-posteriors before."""
        joint, prior = self._room(len(updates.labels))
        self._begin(updates, joint, prior, learn=True)
        if part is None:
            for name, group in self._groups.items():
                group.run(batches[name], updates, joint, learn=True)
        else:
            part.learn(self._groups, batches, updates, joint)
        posterior.normalise(joint, prior)
        return joint

    def _learned(self, clock: Clock, n: int) -> None:
        """Note that a call has learned `n` examples."""
        self._clock = clock
        self._n_examples += n
        if len(self._parts) > 1:
            for name, group in self._groups.items():
                if not group.sums_exactly:
                    group.sum_parts(
                        [self._parts[part].groups[name] for part in sorted(self._parts)]
                    )

    def _judge_and_move(
        self, schedule: DecaySchedule, fields: dict[str, Any], row: int
    ) -> Floats | None:
        """Bring all counts to the landmark that holds from a row on.

        Returns what was to be said of the row before, where a landmark moves: after a long silence
        little of what was known may outlive the move.
        """
        said = None
        if schedule.moves and schedule.moves[0].row <= row and self._classes:
            said = self._posterior(fields, row, schedule.moves[0].scale)
        self._move(schedule, row)
        return said

    def _move(self, schedule: DecaySchedule, row: int) -> None:
        """Bring all counts to the landmark that holds from a row on."""
        while schedule.moves and schedule.moves[0].row <= row:
            self._rescale(schedule.moves.pop(0).factor)

    def _rescale(self, factor: float) -> None:
        self._class_counts *= factor
        for group in self._groups.values():
            group.rescale(factor)
        for part in self._parts.values():
            part.rescale(self._groups, factor)

    def _encoded(
        self, fields: dict[str, Any], pieces: list[tuple[int, int]], labels: NDArray[np.int32]
    ) -> Generator[dict[str, Any], None, None]:
        """Yield each piece's columns; a second thread reads the next while one is learned.

        Reading gives columns to words, learning counts by columns: neither touches what the other
        writes. Only a new table would pull the columns away from under a piece that has been read,
        so where one is due nothing is read ahead.
        """

        def encode(piece: tuple[int, int]) -> dict[str, Any]:
            return self._encode(fields, *piece, labels[slice(*piece)], learn=True)

        with ThreadPoolExecutor(1, "streamnb-read-ahead") as pool:  # its thread starts when used
            coming: Future[dict[str, Any]] | None = None
            for piece, after in itertools.zip_longest(pieces, pieces[1:]):
                batches = encode(piece) if coming is None else coming.result()
                ahead = self.n_threads > 1 and after is not None and not self._is_loose()
                coming = pool.submit(encode, after) if ahead else None
                yield batches
                if coming is None:
                    self._compact()

    def _posterior(self, fields: dict[str, Any], row: int, scale: float) -> Floats:
        joint, prior = self._room(1)
        updates = unlabelled_rows(1, scale)
        batches = self._encode(fields, row, row + 1, updates.labels, learn=False)
        self._run(batches, updates, joint, prior, learn=False)
        posterior.normalise(joint, prior)
        first: Floats = joint[0]
        return first

    @property
    def _piece(self) -> int:
        """How many rows are read at a time: fewer where two threads are to be kept busy."""
        return PIECE // self.n_threads**2

    def _is_loose(self) -> bool:
        return any(group.needs_compaction() for group in self._groups.values())

    def _compact(self) -> None:
        for name, group in self._groups.items():
            columns = group.compact()
            if columns is not None:
                for part in self._parts.values():
                    part.groups[name].take_columns(columns)

    def _check_classes(self, classes: Sequence[Label]) -> None:
        """Refuse classes that a prior has no number for, before anything is learned."""
        if len(classes) > len(self._classes):
            pseudo_counts(self._class_prior, classes)
            for group in self._groups.values():
                group.frozen_copy().set_classes(len(classes))

    def _add_class(self, label: Label) -> None:
        self._places[label] = len(self._classes)
        self._classes.append(label)
        self._class_counts = np.append(self._class_counts, 0.0)
        self._set_classes()

    def add_class(self, label: Label) -> None:
        """Let a class join, of which nothing is learned yet.

        Declared classes are no hindrance: to call this is to declare one more.

        Raises
        ------
        InputError
            Where it is no label, or a prior has no number for it.
        """
        label = check_label("classes", len(self._classes), label)
        if label not in self._places:
            self._check_classes([*self._classes, label])
            self._add_class(label)

    def forget_parts(self) -> None:
        """Keep this model whole from now on: what it has learned stays, of its parts only the sum.

        Words leave from now on by the sum's own bound.
        """
        self._parts = {}
        for group in self._groups.values():
            group.set_bounded(bounded=True)

    def _drop_empty_class(self) -> None:
        """Forget the newest class where nothing is left of it, as if it had never come."""
        while len(self._classes) > self._n_declared_classes and not self._class_counts[-1]:
            del self._places[self._classes.pop()]
            self._class_counts = self._class_counts[:-1].copy()
            self._set_classes()

    def _set_classes(self) -> None:
        n_classes = len(self._classes)
        self._pseudo = pseudo_counts(self._class_prior, self._classes)
        for group in self._groups.values():
            group.set_classes(n_classes)
        for part in self._parts.values():
            part.set_classes(n_classes)
