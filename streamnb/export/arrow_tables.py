"""The export as Arrow tables: one of classes, and one a group with a row a feature."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from streamnb.errors import InputError
from streamnb.export.plain import parts_of, write_beside
from streamnb.reading import Readable

CLASSES = "classes"


def to_arrow(model: Readable) -> dict[str, Any]:
    """Return a model or snapshot as `pyarrow.Table`s, by name: `classes`, and `group:NAME` each.

    A number for each class is a list of fixed size. What else the JSON export says stands in the
    schema's metadata, under `streamnb`, as JSON.

    Raises
    ------
    InputError
        Where pyarrow is not installed.
    """
    arrow = _pyarrow()
    header, groups = parts_of(model)
    prior = header["class_prior"]
    columns = {
        "class": [str(label) for label in header["classes"]],
        "count": np.array(prior["count"], dtype=np.float64),
        "log_prior": np.array(
            [-np.inf if each is None else each for each in prior["log_prior"]], dtype=np.float64
        ),
    }
    tables = {CLASSES: _table(arrow, columns, header)}
    for own, table in groups:
        tables[f"group:{own['name']}"] = _table(arrow, table, own)
    return tables


def export_arrow(model: Readable, folder: str | os.PathLike[str]) -> list[Path]:
    """Write the tables as Arrow IPC files into a folder that exists; return their paths.

    `classes.arrow`, then `group_0.arrow` and so on in the order of the groups, whose names stand in
    the metadata.

    Raises
    ------
    InputError
        Where pyarrow is not installed.
    StoreError
        Where a file cannot be written.
    """
    arrow = _pyarrow()
    paths = []
    for i, table in enumerate(to_arrow(model).values()):
        path = Path(folder) / ("classes.arrow" if i == 0 else f"group_{i - 1}.arrow")
        sink = arrow.BufferOutputStream()
        with arrow.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        write_beside(path, sink.getvalue().to_pybytes())
        paths.append(path)
    return paths


def _table(arrow: Any, columns: dict[str, Any], header: dict[str, Any]) -> Any:
    arrays = {name: _array(arrow, values) for name, values in columns.items()}
    return arrow.table(arrays).replace_schema_metadata({"streamnb": json.dumps(header)})


def _array(arrow: Any, values: Any) -> Any:
    """Return a column: texts, numbers, or numbers by class as lists of fixed size."""
    if isinstance(values, list):
        return arrow.array(values, arrow.string())
    if values.ndim == 2 and not values.shape[1]:  # a model without classes: no list has this size
        return arrow.array(values.tolist(), arrow.list_(arrow.float64()))
    if values.ndim == 2:
        flat = arrow.array(np.ascontiguousarray(values).reshape(-1))
        return arrow.FixedSizeListArray.from_arrays(flat, values.shape[1])
    return arrow.array(values)


def _pyarrow() -> Any:
    try:
        importlib.import_module("pyarrow.ipc")
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise InputError(
            "the Arrow export needs pyarrow, which is not installed: install streamnb[arrow], or"
            " take export_json."
        ) from error
