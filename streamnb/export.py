"""A model for other programs: plain JSON or Arrow tables (see `docs/format.md`), or for MLflow."""

from __future__ import annotations

import importlib
import json
import os
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from streamnb.calibration import SCALED_ODDS
from streamnb.decisions import AnswerRule
from streamnb.errors import InputError, StoreError, check_has, check_kind, check_path
from streamnb.inspection.group_view import ExportTable, view_of
from streamnb.kernels.hybrid import OTHER_START
from streamnb.likelihoods.multinomial import mean_weights
from streamnb.predict import log_class_priors
from streamnb.priors import class_prior_to_dict
from streamnb.reader import ModelReader
from streamnb.serving.publisher import Snapshot
from streamnb.state import ModelState
from streamnb.storage import new_file, read_model, save

__all__ = ["export_arrow", "export_dict", "export_json", "export_mlflow", "log_mlflow", "to_arrow"]


FORMAT = "streamnb export"
VERSION = 2  # 1 if there is neither a hybrid nor a calibration: readers of 1 know neither


def export_dict(model: ModelReader) -> dict[str, Any]:
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
    return header | {"groups": [own | {"table": _plain(table)} for own, table in groups]}


def parts_of(model: ModelReader) -> tuple[dict[str, Any], list[tuple[dict[str, Any], ExportTable]]]:
    """Return the export's header, and each group's header and table of arrays."""
    check_kind("model", model, ModelReader)
    state, curve = model.state, model.state.calibration
    of_prior = state.prior_half_life
    recent = {"half_life": of_prior, "recent": _plain(state.recent)}
    header = {
        "format": FORMAT,
        "version": 1 if curve is None and not state.is_hybrid else VERSION,
        "n_examples": model.n_examples,
        "classes": list(model.classes),
        "class_prior": {
            "prior": class_prior_to_dict(state.class_prior),
            "count": _plain(model.class_counts),
            "log_prior": _plain(log_class_priors(state)),
            **({} if of_prior is None else recent),
        },
    }
    if curve is not None:
        header["calibration"] = {"scaled_odds": _plain(SCALED_ODDS), "log_odds": _plain(curve)}
    weights = _weights_of_groups(state)
    groups = []
    for name, group in state.groups.items():
        spec = group.spec.to_dict()
        own, table = view_of(group, state.clock.scale).export()
        named = {"name": name, "kind": spec["kind"], "specification": spec}
        weight = {"weight": weights[name]} if name in weights else {}
        groups.append((_plain(named | weight | own), table))
    return header, groups


def _weights_of_groups(state: ModelState) -> dict[str, float]:
    """Return the weights u_o of the groups that a hybrid weights, by their names."""
    if state.weighing is None:
        return {}
    host: Any = state.groups[state.weighing.host]
    weights = mean_weights(host.weights.others, OTHER_START)
    return dict(zip(state.weighing.others, weights.tolist(), strict=True))


def export_json(model: ModelReader, target: str | os.PathLike[str] | TextIO) -> None:
    """Write a model or snapshot as JSON, to a path or to a file that is open for text.

    Raises
    ------
    StoreError
        If the path cannot be written; what stood there before still stands.
    """
    if not isinstance(target, str | os.PathLike):
        check_has("target", target, "write")
    text = json.dumps(export_dict(model), allow_nan=False, ensure_ascii=False)
    if not isinstance(target, str | os.PathLike):
        target.write(text)
        return
    write_beside(check_path("target", target), text.encode("utf-8"))


def write_beside(path: Path, data: bytes) -> None:
    """Write a file beside the one it replaces, then take its place."""
    try:
        with new_file(path) as (fresh, file):
            file.write(data)
            file.flush()
            fresh.replace(path)
    except OSError as error:
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


CLASSES = "classes"


def to_arrow(model: ModelReader) -> dict[str, Any]:
    """Return a model or snapshot as `pyarrow.Table`s, by name: `classes`, and `group:NAME` each.

    A number for each class is a list of fixed size. What else the JSON export says stands in the
    schema's metadata, under `streamnb`, as JSON.

    Raises
    ------
    InputError
        If pyarrow is not installed.
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


def export_arrow(model: ModelReader, folder: str | os.PathLike[str]) -> list[Path]:
    """Write the tables as Arrow IPC files into a folder that exists; return their paths.

    `classes.arrow`, then `group_0.arrow` and so on in the order of the groups, whose names stand in
    the metadata.

    Raises
    ------
    InputError
        If pyarrow is not installed.
    StoreError
        If a file cannot be written.
    """
    check_kind("folder", folder, str, os.PathLike)
    into = check_path("folder", Path(folder) / "classes.arrow").parent
    arrow = _pyarrow()
    paths = []
    for i, table in enumerate(to_arrow(model).values()):
        path = into / ("classes.arrow" if i == 0 else f"group_{i - 1}.arrow")
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
            "the Arrow export needs pyarrow: pip install 'streamnb[arrow]', or take export_json."
        ) from error


# ---- MLflow --------------------------------------------------------------------------------------


def export_mlflow(model: ModelReader, folder: str | os.PathLike[str], **options: Any) -> None:
    """Write a model or snapshot as a folder of MLflow's `pyfunc` flavour.

    MLflow's `load_model` loads it where streamnb is installed. Its `predict` takes a data frame, or
    columns by name, of the model's fields, and returns a pandas frame, with the index of one that
    was given: `prediction`, the class that is said, `probabilities`, a list in the order of
    ``model.classes``, and `prediction_set`, a list of classes, if the snapshot's rule makes sets.

    Parameters
    ----------
    model : NaiveBayes or Snapshot
    folder : path
        It must not exist yet. It gets the counts, the key of the words' fingerprints and, of a
        snapshot, the rule that it answers by.
    options
        Of MLflow's `save_model` for it, such as `signature` or `metadata`. This version of streamnb
        is required, and `extra_pip_requirements` beside it; `pip_requirements` or `conda_env` take
        its place.

    Raises
    ------
    InputError
        If MLflow is not installed.
    """
    check_kind("folder", folder, str, os.PathLike)
    _pass_to_mlflow("save_model", model, options | {"path": os.fspath(folder)})


def log_mlflow(model: ModelReader, name: str, **options: Any) -> Any:
    """Log a model or snapshot to the MLflow run that is active, as `export_mlflow` writes it.

    `options` are those of MLflow's `log_model`, such as `registered_model_name`, and so is
    what is returned.
    """
    return _pass_to_mlflow("log_model", model, options | {"name": name})


class PyfuncModel:
    """What MLflow loads and calls: a snapshot, which answers as where it was saved."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def predict(self, rows: Any, params: dict[str, Any] | None = None) -> Any:  # noqa: ARG002
        """Return what is said of a frame's rows; see `export_mlflow`."""
        pandas = importlib.import_module("pandas")
        classes, rule = self.snapshot.classes, self.snapshot.rule
        logs = self.snapshot.predict_log_proba_many(rows)
        found = {
            "prediction": [classes[i] for i in rule.labels(logs)],
            "probabilities": np.exp(logs).tolist(),
        }
        sets = rule.sets(logs)
        if sets is not None:
            found["prediction_set"] = [
                [each for each, is_in in zip(classes, row, strict=True) if is_in] for row in sets
            ]
        index = rows.index if isinstance(rows, pandas.DataFrame) else None
        return pandas.DataFrame(found, index=index)


def _pass_to_mlflow(function: str, model: ModelReader, options: dict[str, Any]) -> Any:
    """Call a function of MLflow's `pyfunc` with a model as a file, and what loads that again."""
    check_kind("model", model, ModelReader)
    snapshot = model if isinstance(model, Snapshot) else Snapshot(model, 0)
    try:
        pyfunc = importlib.import_module("mlflow.pyfunc")
    except ImportError as error:
        raise InputError(
            "this export needs MLflow and pandas: pip install 'streamnb[mlflow]', or take"
            " export_json."
        ) from error
    rule = snapshot.rule
    costs = None if rule.costs is None else rule.costs.tolist()
    notes = {"snapshot": {"version": snapshot.version, "rule": rule.to_dict(), "costs": costs}}
    with tempfile.TemporaryDirectory(prefix="streamnb-") as folder:
        path = Path(folder) / "model.nb"
        save(snapshot.state, path, notes=notes)
        given = {"loader_module": __name__, "data_path": str(path)}
        return getattr(pyfunc, function)(**(given | _with_requirements(options)))


def _with_requirements(options: dict[str, Any]) -> dict[str, Any]:
    """Return options that require streamnb, unless they say all that is required."""
    extra = options.get("extra_pip_requirements")
    others = (options.get("pip_requirements"), options.get("conda_env"))
    if any(each is not None for each in others):
        return options
    own = f"streamnb[mlflow]=={version('streamnb')}"
    more = [f"-r {extra}"] if isinstance(extra, str) else extra or ()
    # MLflow takes one of the three alone; its own additions would be to what it finds by loading.
    return options | {"pip_requirements": [own, *more], "extra_pip_requirements": None}


def _load_pyfunc(path: str) -> PyfuncModel:
    """Return what MLflow asks of a loader module for a path within its folder."""
    stored = read_model(path)
    said = stored.header["notes"]["snapshot"]
    costs = None if said["costs"] is None else np.array(said["costs"], dtype=np.float64)
    rule = AnswerRule.from_dict(said["rule"], costs)
    return PyfuncModel(Snapshot(stored.model, said["version"], rule))
