"""The export as plain JSON: whatever a program needs to judge examples, without this library."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from streamnb.errors import StoreError, check_has, check_kind
from streamnb.export.groups import export_group
from streamnb.priors import class_prior_to_dict
from streamnb.reading import Readable

FORMAT = "streamnb export"
VERSION = 1


def export_dict(model: Readable) -> dict[str, Any]:
    """Return a model or snapshot as plain values, as `docs/format.md` describes them.

    Numbers are finite floats; -inf, the logarithm of zero, is None.

    Examples
    --------
    >>> from streamnb import Multinomial, NaiveBayes, Words
    >>> model = NaiveBayes(["ham", "spam"], features={"text": Words(Multinomial())})
    >>> model.learn_one({"text": "a prize"}, "spam")
    >>> exported = export_dict(model)
    >>> exported["classes"], exported["groups"][0]["table"]["count"]
    (['ham', 'spam'], [[0.0, 1.0], [0.0, 1.0]])
    """
    header, groups = parts_of(model)
    return header | {
        "groups": [own | {"table": _plain(table)} for own, table in groups],
    }


def parts_of(model: Readable) -> tuple[dict[str, Any], list[tuple[dict[str, Any], Any]]]:
    """Return the export's header, and of each group its header and its table of arrays."""
    check_kind("model", model, Readable)
    scale = model._clock.scale  # noqa: SLF001 -- the model's other half
    header = {
        "format": FORMAT,
        "version": VERSION,
        "n_examples": model.n_examples,
        "classes": list(model.classes),
        "class_prior": {
            "prior": class_prior_to_dict(model._class_prior),  # noqa: SLF001
            "count": _plain(model.class_counts),
            "log_prior": _plain(model._log_class_priors()),  # noqa: SLF001
        },
    }
    exported = [export_group(state, scale) for state in model._groups.values()]  # noqa: SLF001
    return header, [(_plain(each.header), each.table) for each in exported]


def export_json(model: Readable, target: str | os.PathLike[str] | TextIO) -> None:
    """Write a model or snapshot as JSON, to a path or to a file that is open for text.

    Raises
    ------
    StoreError
        Where the path cannot be written; what stood there before still stands.
    """
    if not isinstance(target, str | os.PathLike):
        check_has("target", target, "write")
    text = json.dumps(export_dict(model), allow_nan=False, ensure_ascii=False)
    if not isinstance(target, str | os.PathLike):
        target.write(text)
        return
    path = Path(target)
    write_beside(path, text.encode("utf-8"))


def write_beside(path: Path, data: bytes) -> None:
    """Write a file beside the one it replaces, then take its place.

    Raises
    ------
    StoreError
    """
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_bytes(data)
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise StoreError(
            f"{path}: cannot be written ({error.strerror or error}). See to the folder and the"
            " disk's room, then export again."
        ) from error


def _plain(value: Any) -> Any:
    """Return arrays as lists, and -inf as None: JSON knows no infinity."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            value = value.astype(object)
            value[~np.isfinite(value.astype(np.float64))] = None
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value
