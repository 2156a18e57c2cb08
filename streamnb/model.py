"""`NaiveBayes`: a class prior and named groups of features, each with its likelihood.

The joint log-likelihood of an example is the log class prior plus each group's log-likelihood; that
is all that "mixed" means. Examples are learned one at a time, in order, each judged before it is
learned. A batch is for speed only: it gives, bit for bit, what single examples give, however the
stream is cut. Predicting is the same run without labels.

A model may be kept in parts, one for each log that it learns from (`learn_many(..., part=...)`):
then it is their sum, each part is a function of its own log, and `max_words` bounds each part.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb.columns import chunks
from streamnb.errors import InputError
from streamnb.kernels import posterior
from streamnb.kernels._jit import warm_up
from streamnb.labels import Codes, Label, check_label, newcomers, nobody, read_labels, to_indices
from streamnb.likelihoods.base import Batch
from streamnb.part import Part
from streamnb.priors import Dirichlet
from streamnb.reading import PIECE, Floats, Readable
from streamnb.words import UNBOUNDED, Words


class NaiveBayes(Readable):
    """Naive Bayes that learns one example at a time and never stops.

    Parameters
    ----------
    classes : iterable of str, int or bool
        The classes known from the start; others are added when they come. Ties go to the class
        declared first.
    class_prior : Dirichlet
        π_c = (N_c + α) / (n + k·α).
    features : mapping of str to group
        Each group a likelihood over some fields, such as ``Words(Bernoulli(Beta(1, 1)))``.
    hash_key : int, optional
        128 bits that key the words' fingerprints; drawn at random by default. No answer depends on
        it, but models that are to be merged must share it.
    n_threads : {1, 2}
        With 2, the texts of a large batch are read in a second thread, ahead of being learned. The
        answers are the same.

    Examples
    --------
    >>> import streamnb as nb
    >>> model = nb.NaiveBayes(
    ...     classes=["ham", "spam"],
    ...     class_prior=nb.Dirichlet(1.0),
    ...     features={"text": nb.Words(nb.Multinomial(nb.Dirichlet(1.0)))},
    ... )
    >>> model.learn_one({"text": "win a prize"}, "spam")
    >>> model.learn_one({"text": "lunch at noon"}, "ham")
    >>> model.predict_one({"text": "a prize for you"})
    'spam'
    >>> round(model.predict_proba_one({"text": "a prize for you"})["spam"], 12)
    0.8
    """

    def __init__(
        self,
        classes: Iterable[Label] = (),
        class_prior: Dirichlet | None = None,
        features: Mapping[str, Words] | None = None,
        *,
        hash_key: int | None = None,
        n_threads: int = 1,
    ) -> None:
        warm_up()
        if n_threads not in (1, 2):
            raise InputError(f"n_threads must be 1 or 2. Got {n_threads!r} instead.")
        self.n_threads = n_threads
        self._classes = [check_label("classes", i, label) for i, label in enumerate(classes)]
        if len(set(self._classes)) < len(self._classes):
            raise InputError(f"classes must differ. Got {self._classes!r} instead.")
        self._places = {label: c for c, label in enumerate(self._classes)}
        if not features:
            raise InputError("features must hold at least one group, such as {'text': Words(...)}.")
        self._class_prior = Dirichlet() if class_prior is None else class_prior
        self._hash_key = secrets.randbits(128) if hash_key is None else hash_key
        if not 0 <= self._hash_key < 1 << 128:
            raise InputError(f"hash_key must be an integer of 128 bits. Got {hash_key!r} instead.")
        self._class_counts = np.zeros(len(self._classes))
        self._groups = {
            name: group.start(name, len(self._classes), self._hash_key)
            for name, group in features.items()
        }
        self._parts: dict[str, Part] = {}

    def describe(self) -> dict[str, Any]:
        """Return what makes two models the same kind: classes, priors, groups; not the hash key."""
        return {
            "classes": list(self._classes),
            "class_prior": self._class_prior.concentration,
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
        state.n_words_max = UNBOUNDED if self._parts else max_words

    def learn_one(self, x: Mapping[str, Any], y: Label, *, part: str | None = None) -> None:
        """Learn one example.

        Parameters
        ----------
        x : mapping of str to value
            Fields by name; a field that is missing or None says nothing.
        y : str, int or bool
            Its class; a new one joins the model's classes.
        part : str, optional
            The log it comes from, where the model is kept in parts.

        Raises
        ------
        InputError
            For a value or label that cannot be used; the model is unchanged.
        """
        place = self._places.get(y) if type(y) in {str, int, bool} else None
        if place is None or part is not None or self._parts or not self._is_short(x):
            self.prequential_many(self._as_columns(x), [y], part=part)
            return
        self._one(x, place)
        self._compact()

    def learn_many(
        self, columns: Any, labels: Sequence[Label] | Codes, *, part: str | None = None
    ) -> None:
        """Learn examples in their order; see `prequential_many`."""
        self.prequential_many(columns, labels, part=part)

    def prequential_many(
        self, columns: Any, labels: Sequence[Label] | Codes, *, part: str | None = None
    ) -> Floats:
        """Learn examples in order; return the log-posteriors that stood before each was learned.

        Parameters
        ----------
        columns : mapping of str to sequence, or data frame
            Fields by name, each of length n; any data frame that narwhals understands.
        labels : sequence of str, int or bool, or Codes, of length n
        part : str, optional
            The log they come from, where the model is kept in parts.

        Returns
        -------
        ndarray of shape (n, n_classes), in nats
            A class that had not come yet when an example was judged has -inf there.

        Raises
        ------
        InputError
            For a value or label that cannot be used; the model is unchanged.
        """
        fields, n = self._read(columns)
        codes = read_labels(labels, n)
        new = newcomers(codes, self._classes)
        classes = [*self._classes, *(label for _, label in new)]
        indices = to_indices(codes, classes)
        target = self._target(part)
        out = np.full((n, len(classes)), -np.inf)
        at = 0
        for first, label in new:
            # An example of a new class is judged by the classes known before it, and learned with
            # its own.
            self._learn(fields, at, first, indices, out, target)
            if self._classes:
                out[first, : len(self._classes)] = self._posterior(fields, first)
            self._add_class(label)
            self._learn(
                fields, first, first + 1, indices, np.empty((first + 1, len(classes))), target
            )
            at = first + 1
        self._learn(fields, at, n, indices, out, target)
        return out

    # ---- inside --------------------------------------------------------------------------------

    def _target(self, name: str | None) -> Part | None:
        """Return the part to teach, made where it is new; None for a model kept whole."""
        if name is None:
            if self._parts:
                raise InputError(
                    f"this model is kept in parts ({', '.join(self._parts)}):"
                    " part must say which one learns."
                )
            return None
        if name not in self._parts:
            if not self._parts and self._class_counts.any():
                raise InputError(
                    f"part {name!r}: this model has learned as a whole,"
                    " and cannot be cut into parts any more."
                )
            for group in self._groups.values():
                group.n_words_max = UNBOUNDED
            self._parts[name] = Part(self._groups, len(self._classes))
        return self._parts[name]

    def _learn(
        self,
        fields: dict[str, Any],
        begin: int,
        end: int,
        labels: NDArray[np.int32],
        out: Floats,
        part: Part | None,
    ) -> None:
        """Learn rows `begin` to `end`; write the log-posteriors that stood before into `out`."""
        n_classes = len(self._classes)
        pieces = [(begin + a, begin + b) for a, b in chunks(end - begin, self._piece)]
        # Closed whatever happens: no thread may still be reading when the next call learns.
        with contextlib.closing(self._encoded(fields, pieces, labels)) as encoded:
            for (a, b), batches in zip(pieces, encoded, strict=True):
                joint = np.empty((b - a, n_classes))
                prior = np.empty_like(joint)
                if part is None:
                    self._run(batches, labels[a:b], joint, prior, learn=True)
                else:
                    self._begin(labels[a:b], joint, prior, learn=True)
                    part.learn(self._groups, batches, labels[a:b], joint)
                posterior.normalise(joint, prior)
                out[a:b, :n_classes] = joint

    def _encoded(
        self, fields: dict[str, Any], pieces: list[tuple[int, int]], labels: NDArray[np.int32]
    ) -> Generator[dict[str, Batch], None, None]:
        """Yield each piece's columns; a second thread reads the next while one is learned.

        Reading gives columns to words, learning counts by columns: neither touches what the other
        writes. Only a new table would pull the columns away from under a piece that has been read,
        so where one is due nothing is read ahead.
        """

        def encode(piece: tuple[int, int]) -> dict[str, Batch]:
            return self._encode(fields, *piece, labels[slice(*piece)], learn=True)

        with ThreadPoolExecutor(1, "streamnb-read-ahead") as pool:  # its thread starts when used
            coming: Future[dict[str, Batch]] | None = None
            for piece, after in itertools.zip_longest(pieces, pieces[1:]):
                batches = encode(piece) if coming is None else coming.result()
                ahead = self.n_threads > 1 and after is not None and not self._is_loose()
                coming = pool.submit(encode, after) if ahead else None
                yield batches
                if coming is None:
                    self._compact()

    def _posterior(self, fields: dict[str, Any], row: int) -> Floats:
        joint = np.empty((1, len(self._classes)))
        prior = np.empty_like(joint)
        batches = self._encode(fields, row, row + 1, nobody(1), learn=False)
        self._run(batches, nobody(1), joint, prior, learn=False)
        posterior.normalise(joint, prior)
        first: Floats = joint[0]
        return first

    @property
    def _piece(self) -> int:
        """How many rows are read at a time: fewer where two threads are to be kept busy."""
        return PIECE // self.n_threads**2

    def _is_loose(self) -> bool:
        return any(group.is_loose() for group in self._groups.values())

    def _compact(self) -> None:
        for name, group in self._groups.items():
            columns = group.compact()
            if columns is not None:
                for part in self._parts.values():
                    part.move_columns(name, columns)

    def _add_class(self, label: Label) -> None:
        self._places[label] = len(self._classes)
        self._classes.append(label)
        n_classes = len(self._classes)
        self._class_counts = np.append(self._class_counts, 0.0)
        for group in self._groups.values():
            group.set_classes(n_classes)
        for part in self._parts.values():
            part.set_classes(n_classes)
