"""A model as a header and arrays, and back: what `store` puts into its file.

Only words with a count above zero in the model are packed, in the order of their columns; each
section then names the columns it knows. Sections are sparse so that a part of a few words costs
little beside a large one.

Packing reads the whole model, and writing it out takes longer still. `freeze` copies what of it
will change, in the time of a copy of its counts; the frozen model can then be packed on another
thread while the model learns on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb import statistics
from streamnb.errors import InputError
from streamnb.kernels import lookup
from streamnb.kernels.layout import Counts
from streamnb.model import NaiveBayes
from streamnb.part import Part
from streamnb.priors import Dirichlet
from streamnb.vocabulary import Vocabulary
from streamnb.words import UNBOUNDED, Words, WordsState

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class FrozenModel:
    """A model at one moment, to be saved. It answers nothing and learns nothing.

    Attributes
    ----------
    description : dict
        What `NaiveBayes.describe` said.
    hash_key : int
    groups : dict of str to WordsState
        Vocabularies, and the sums of the sections' counts.
    sections : list of (str or None, Part)
        With the parts' names; a model kept whole is one section without a name.
    """

    description: dict[str, Any]
    hash_key: int
    groups: dict[str, WordsState]
    sections: list[tuple[str | None, Part]]


def freeze(model: NaiveBayes) -> FrozenModel:
    """Return a copy of all that learning changes; called by the thread that teaches the model.

    Vocabularies are shared, not copied: what is learned later is beyond the frozen model's number
    of words, and a vocabulary that moves to new arrays leaves the old ones as they are.
    """
    groups = {name: group.frozen() for name, group in model._groups.items()}  # noqa: SLF001
    sections = [(name, part.frozen(groups)) for name, part in _sections(model)]
    return FrozenModel(model.describe(), model._hash_key, groups, sections)  # noqa: SLF001


def _as_it_is(model: NaiveBayes) -> FrozenModel:
    """Return a model's own arrays, for the thread that teaches it."""
    return FrozenModel(model.describe(), model._hash_key, model._groups, _sections(model))  # noqa: SLF001


def pack(
    model: NaiveBayes | FrozenModel, positions: Mapping[str, int]
) -> tuple[dict[str, Any], Arrays]:
    """Return header and arrays of a model; arrays may share the model's memory.

    Raises
    ------
    InputError
        Where a position is given for a part that does not exist, or a group's name is no text.
    """
    if isinstance(model, NaiveBayes):
        model = _as_it_is(model)
    _check_names(model)
    unknown = set(positions) - {name for name, _ in model.sections}
    if unknown:
        raise InputError(
            f"positions of parts that the model does not have: {', '.join(sorted(unknown))}."
            " Give positions of its parts alone."
        )
    arrays: Arrays = {}
    chosen: dict[str, NDArray[np.int64]] = {}
    for name, group in model.groups.items():
        chosen[name] = statistics.live_columns(group.counts, group.vocabulary.n_words)
        arrays |= _pack_words(f"groups/{name}", group.vocabulary, chosen[name])
    sections = []
    for i, (part_name, part) in enumerate(model.sections):
        sections.append(
            {
                "part": part_name,
                "position": _position(positions, part_name),
                "n_dropped": part.n_dropped,
            }
        )
        arrays[f"sections/{i}/class_counts"] = part.class_counts
        for group_name, counts in part.counts.items():
            arrays |= _pack_counts(f"sections/{i}/{group_name}", counts, chosen[group_name])
    header = model.description | {"hash_key": f"{model.hash_key:032x}", "sections": sections}
    return header, arrays


def unpack(header: dict[str, Any], arrays: Arrays) -> tuple[NaiveBayes, dict[str, int]]:
    """Return the model that `pack` described, and its parts' positions."""
    model = NaiveBayes(
        classes=header["classes"],
        class_prior=Dirichlet(header["class_prior"]),
        features={name: Words.from_dict(spec) for name, spec in header["groups"].items()},
        hash_key=int(header["hash_key"], 16),
    )
    groups = model._groups  # noqa: SLF001
    for name, group in groups.items():
        _unpack_words(f"groups/{name}", arrays, group)
    positions: dict[str, int] = {}
    for i, section in enumerate(header["sections"]):
        part = Part(groups, len(model.classes))
        part.class_counts[:] = arrays[f"sections/{i}/class_counts"]
        part.n_dropped = dict(section["n_dropped"])
        for name, group in groups.items():
            part.counts[name] = _unpack_counts(f"sections/{i}/{name}", arrays, group)
        _join(model, section["part"], part)
        if section["position"] is not None:
            positions[section["part"]] = section["position"]
    for group in groups.values():
        group.counts.state[0] = len(statistics.live_columns(group.counts, group.vocabulary.n_words))
        group.rebuild()
    return model, positions


def _check_names(model: FrozenModel) -> None:
    """Refuse group names that a file could be written with, but not read."""
    for name in model.groups:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InputError(
                f"group {name!r}: its name has no UTF-8 form, so no file could hold it. Give it"
                " another one."
            ) from None


def _position(positions: Mapping[str, int], part_name: str | None) -> int | None:
    """Return a part's position as plain Python, whatever kind of integer was given."""
    if part_name is None or part_name not in positions:
        return None
    return int(positions[part_name])


def _sections(model: NaiveBayes) -> list[tuple[str | None, Part]]:
    """Return the parts by name, or a model kept whole as one part without a name."""
    if model.parts:
        return [*model.parts.items()]
    whole = Part({}, len(model.classes))
    whole.class_counts = model._class_counts  # noqa: SLF001
    whole.counts = {name: group.counts for name, group in model._groups.items()}  # noqa: SLF001
    whole.n_dropped = {name: group.n_dropped for name, group in model._groups.items()}  # noqa: SLF001
    return [(None, whole)]


def _join(model: NaiveBayes, name: str | None, part: Part) -> None:
    """Add a section to the model it belongs to, and keep it as a part where it has a name."""
    model._class_counts += part.class_counts  # noqa: SLF001
    alone = not model._parts  # noqa: SLF001
    for group_name, group in model._groups.items():  # noqa: SLF001
        counts = part.counts[group_name]
        if name is None and alone:
            group.counts = counts
        else:
            group.counts.by_word[:] += counts.by_word
            group.counts.examples[:] += counts.examples
            group.counts.tokens[:] += counts.tokens
        group.n_dropped += part.n_dropped[group_name]
        if name is not None:
            group.n_words_max = UNBOUNDED
    if name is not None:
        model._parts[name] = part  # noqa: SLF001


def _pack_words(name: str, vocabulary: Vocabulary, columns: NDArray[np.int64]) -> Arrays:
    if len(columns) < vocabulary.n_words:
        vocabulary = vocabulary.keep(columns)
    table, n = vocabulary.table, vocabulary.n_words
    return {
        f"{name}/fingerprints": table.fingerprints[:n],
        f"{name}/words": table.words[: table.state[lookup.TEXT_BYTES]],
        f"{name}/word_ends": table.word_ends[:n],
    }


def _unpack_words(name: str, arrays: Arrays, group: WordsState) -> None:
    group.vocabulary = Vocabulary.from_arrays(
        arrays[f"{name}/fingerprints"], arrays[f"{name}/words"], arrays[f"{name}/word_ends"]
    )
    group.counts = statistics.with_capacity(group.counts, group.vocabulary.capacity)


def _pack_counts(name: str, counts: Counts, chosen: NDArray[np.int64]) -> Arrays:
    """Pack the words that this section knows, by their place among the chosen columns."""
    known = chosen[chosen < len(counts.by_word)]
    if len(known) == len(chosen) and (not len(chosen) or chosen[-1] == len(chosen) - 1):
        by_word = counts.by_word[: len(chosen)]
    else:
        by_word = counts.by_word[known]
    places = statistics.live_columns(counts._replace(by_word=by_word), len(by_word)).astype(
        np.int32
    )
    return {
        f"{name}/columns": places,
        f"{name}/by_word": by_word if len(places) == len(by_word) else by_word[places],
        f"{name}/examples": counts.examples,
        f"{name}/tokens": counts.tokens,
    }


def _unpack_counts(name: str, arrays: Arrays, group: WordsState) -> Counts:
    counts = statistics.empty(len(group.counts.examples), group.vocabulary.capacity)
    counts.by_word[arrays[f"{name}/columns"]] = arrays[f"{name}/by_word"]
    counts.examples[:] = arrays[f"{name}/examples"]
    counts.tokens[:] = arrays[f"{name}/tokens"]
    counts.state[0] = len(arrays[f"{name}/columns"])
    return counts
