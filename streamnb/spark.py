"""Learn, predict and evaluate Spark data frames, with the kernels of the library.

PySpark is imported here and nowhere else, and only by what needs it. Each task learns its rows into
a model of its own, from the untrained one that was shipped, and returns it as one row: its bytes,
or the name of a file with them if tasks run on the driver's machine. These partial models are
merged: by tasks of eight each as long as there are more, then on the driver. A row of a failed
attempt is thrown away, and the next attempt gives the same model: retries change nothing.

Counts add exactly. So the result has, bit for bit, the counts of one process that learned the same
rows, as long as weights are whole numbers and no word has left a full vocabulary.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamnb import merging
from streamnb.decisions import FrameEvaluation
from streamnb.errors import InputError, StoreError, check_kind, check_path, check_whole
from streamnb.labels import Codes, Label
from streamnb.model import NaiveBayes, merge
from streamnb.storage import lock, older_files, read_model, save

try:
    import pyarrow as pa
except ImportError as error:  # pragma: no cover -- a test asks a process without it
    raise ImportError("streamnb.spark needs pyarrow: pip install 'streamnb[spark]'") from error
if TYPE_CHECKING:  # an extra: what is read without it must not need it
    from pyspark.sql import DataFrame

__all__ = ["FrameEvaluation", "StreamLearner", "evaluate", "fit", "fit_logs", "predict"]

_NOTE = "spark"  # what a file's notes say of the stream
_LOG_TINY = float(np.log(np.finfo(np.float64).tiny))  # what log 0 counts as in a log-loss
_FAN_IN = 8  # partial models that one task, or the driver, holds at once
_PARTIAL = "task long, log string, next long, model binary"
_PARTIAL_SCHEMA = pa.schema(
    {"task": pa.int64(), "log": pa.string(), "next": pa.int64(), "model": pa.binary()}
)
_COUNTS = "unknown long, loss double, confusion array<long>"
_TYPES = {str: ("string", pa.string()), int: ("long", pa.int64()), bool: ("boolean", pa.bool_())}


@dataclass(frozen=True, slots=True)
class _Roles:
    """Which columns of a frame are read, and as what."""

    label: str
    weight: str | None = None
    time_s: str | None = None
    log: str | None = None
    offset: str | None = None


def fit(
    df: DataFrame,
    model: NaiveBayes,
    *,
    label: str = "label",
    weight: str | None = None,
    time_s: str | None = None,
    n_tasks: int | None = None,
) -> NaiveBayes:
    """Return a model that has learned all labelled rows of a data frame.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        With the fields that the model reads, each a column of its own; a dot in a name leads into
        no other column. A row whose label is null teaches nothing.
    model : NaiveBayes
        An untrained model, as which all tasks learn; it stays as it is.
    label : str
        The column of labels, of str, int or bool.
    weight, time_s : str, optional
        The columns of weights and times; see `NaiveBayes.prequential_many`.
    n_tasks : int, optional
        How many tasks learn, at most; by default as many as the session runs at once. Each holds a
        vocabulary of its own, so more of them mean more to merge.

    Returns
    -------
    NaiveBayes
        Of the given model's kind and hash key, kept whole.

    Raises
    ------
    InputError
        If the model has learned, has a half-life in examples, or a column is missing.
    """
    columns = _Roles(label, weight, time_s)
    n_tasks = _check(df, model, columns, n_tasks)
    with _shared_folder(df) as folder:
        partials = _partials(df.coalesce(n_tasks), model, columns, folder)
        while n_tasks > _FAN_IN:
            n_tasks = -(-n_tasks // _FAN_IN)
            partials = _merged(partials, folder)
        rows = sorted(partials.toArrow().to_pylist(), key=lambda row: row["task"])
        with ThreadPoolExecutor(_n_cores(df)) as pool:  # much of it holds no lock of Python's
            models = list(pool.map(lambda row: _model_of(row, folder, type(model)), rows))
    total = _sum(models) if models else model.clone()
    total.state.n_threads = model.n_threads
    for name, group in total.state.groups.items():
        group.in_order = model.state.groups[name].in_order
    return total


def fit_logs(
    df: DataFrame,
    model: NaiveBayes,
    *,
    log: str = "log",
    offset: str = "offset",
    label: str = "label",
    weight: str | None = None,
    time_s: str | None = None,
    n_tasks: int | None = None,
) -> tuple[NaiveBayes, dict[str, int]]:
    """Return a model kept in parts, one for each log, and the logs' next offsets.

    ``save(model, path, positions=positions, notes=...)`` makes a checkpoint of them that the daemon
    goes on from.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        With the fields that the model reads, and each row once: one that stands twice is learned
        twice.
    model : NaiveBayes
        An untrained model; it stays as it is.
    log : str
        The column that names each row's log, as the daemon does: ``tweets/0`` is partition 0 of the
        topic `tweets`.
    offset : str
        The column of each row's offset in its log. A row whose label is null teaches nothing, and
        its offset counts.
    label, weight, time_s, n_tasks
        As for `fit`, and refused alike.
    """
    columns = _Roles(label, weight, time_s, log, offset)
    n_tasks = _check(df, model, columns, n_tasks)
    total, positions = model.clone(), {}
    with _shared_folder(df) as folder:
        partials = _partials(df.coalesce(n_tasks), model, columns, folder)
        while n_tasks > 1:
            n_tasks = -(-n_tasks // _FAN_IN)
            partials = _merged(partials, folder)
        # Behind a shuffle, what was learned is not learned again for each partition that is fetched
        for row in partials.repartition(_n_cores(df), "log").toLocalIterator():
            total.set_part(row["log"], _model_of(row, folder))
            positions[row["log"]] = row["next"]
    return total, positions


def predict(
    df: DataFrame,
    model: NaiveBayes,
    *,
    label: str = "prediction",
    probabilities: str = "probabilities",
) -> DataFrame:
    """Return the frame with each row's most probable class and all classes' probabilities.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        With the fields that the model reads, and any others.
    model : NaiveBayes
        It is shipped with the tasks.
    label, probabilities : str
        Names of the new columns; probabilities are an array in the order of ``model.classes``.

    Raises
    ------
    InputError
        If the model has no classes or classes of several types, or a column is there already.
    """
    check_kind("model", model, NaiveBayes)
    fields, shipped = _fields(df, model), _shipped(model)
    name, kind = _label_type(model.classes)
    for each in (label, probabilities):
        if each in df.columns:
            raise InputError(
                f"the frame has a column {each!r} already. Drop it, or name the new columns by"
                " label and probabilities."
            )

    def add(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        judge = _received(*shipped)
        for batch in batches:
            found = np.exp(judge.predict_log_proba_many(_frame(batch, fields)))
            labels = pa.array([judge.classes[c] for c in found.argmax(axis=1)], kind)
            ends = np.arange(len(found) + 1, dtype=np.int32) * found.shape[1]
            lists = pa.ListArray.from_arrays(ends, found.reshape(-1))
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, labels, lists], [*batch.schema.names, label, probabilities]
            )

    from pyspark.sql.types import ArrayType, DoubleType  # noqa: PLC0415 -- an extra

    schema = copy.deepcopy(df.schema).add(label, name)  # `add` changes what it is called on
    return _map(df, add, schema.add(probabilities, ArrayType(DoubleType())))


def evaluate(df: DataFrame, model: NaiveBayes, *, label: str = "label") -> FrameEvaluation:
    """Judge the labelled rows of a data frame by a model, which learns nothing.

    `label` names the column of true classes; a row whose label is null is left out.
    """
    check_kind("model", model, NaiveBayes)
    _label_type(model.classes)
    _require(df, {"label": label})
    fields, shipped, k = _fields(df, model), _shipped(model), len(model.classes)

    def judge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = _received(*shipped)
        places = {c: i for i, c in enumerate(own.classes)}
        confusion, loss, unknown = np.zeros((k, k), dtype=np.int64), 0.0, 0
        for batch in batches:
            stated = own.predict_log_proba_many(_frame(batch, fields))
            given = [places.get(each, -1) for each in batch.column(label).to_pylist()]
            true = np.array(given, dtype=np.int64)
            unknown += int((true < 0).sum()) - batch.column(label).null_count
            rows = np.flatnonzero(true >= 0)
            np.add.at(confusion, (true[rows], stated[rows].argmax(axis=1)), 1)
            loss -= float(np.maximum(stated[rows, true[rows]], _LOG_TINY).sum())
        found = {"unknown": [unknown], "loss": [loss], "confusion": [confusion.ravel().tolist()]}
        yield pa.RecordBatch.from_pydict(found)

    judged = df.select(*map(_quoted, dict.fromkeys([*fields, label])))
    rows = _map(judged, judge, _COUNTS).toArrow().to_pylist()
    confusion = sum((np.array(row["confusion"]) for row in rows), np.zeros(k * k, np.int64))
    n = int(confusion.sum())
    loss, unknown = (sum(row[each] for row in rows) for each in ("loss", "unknown"))
    mean = loss / n if n else float("nan")
    return FrameEvaluation(model.classes, confusion.reshape(k, k), mean, unknown)


class StreamLearner:
    """Learns the batches of a structured stream into one model file, each of them once.

    The file holds the model and, in its notes, the query and the number of its last batch: one that
    Spark runs again after a crash is left out. It is locked until `close` or the process's end, as
    two drivers would overwrite each other's counts.

    Parameters
    ----------
    path : path
        The file. One that is there goes on, if this class or `fit` made it.
    model : NaiveBayes
        An untrained model, as which every batch is learned.
    label, weight, time_s, n_tasks
        As for `fit`.
    keep : int
        How many files to keep; see `save`.

    Raises
    ------
    InputError
        If the model has learned, or the file's does not count the same things.
    StoreError
        If another process learns into the file, or it cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        model: NaiveBayes,
        *,
        label: str = "label",
        weight: str | None = None,
        time_s: str | None = None,
        n_tasks: int | None = None,
        keep: int = 1,
    ) -> None:
        _check_untrained(model)
        check_whole("keep", keep, 1)
        self.path = check_path("path", path)
        self._untrained, self._keep = model, keep
        self._roles: dict[str, Any] = {"label": label, "weight": weight, "time_s": time_s}
        self._n_tasks = n_tasks
        self._query: str | None = None  # of the last batch in the model
        self._batch = -1
        self._lock = lock(self.path)
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self.model = self._stored()
            undo.pop_all()

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Learn a batch and save the model, unless the file has the batch."""
        query = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if query is None:
            raise InputError("only a query's batches are learned: call writeStream.foreachBatch.")
        if self._has(query, batch_id):
            return
        learned = fit(df, self._untrained, **self._roles, n_tasks=self._n_tasks)
        total = merge(self.model, learned)
        notes = {_NOTE: {"query": query, "batch": batch_id}}
        save(total, self.path, notes=notes, keep=self._keep)
        self.model, self._query, self._batch = total, query, batch_id

    def close(self) -> None:
        """Unlock the file; calling it again does nothing."""
        self._lock.close()

    def _stored(self) -> NaiveBayes:
        """Return the file's model, or an untrained one if there is no file yet."""
        if not self.path.exists() and not older_files(self.path):
            return self._untrained.clone()
        stored = read_model(self.path)
        if stored.model.parts:
            raise InputError(
                f"{self.path}: its model is kept in {len(stored.model.parts)} parts, each with its"
                " log's position, and a stream's batches have none. Name another file."
            )
        merging.check_alike(self._untrained.state, stored.model.state)
        note = stored.header["notes"].get(_NOTE)
        if note is not None:
            self._query, self._batch = note["query"], note["batch"]
        return stored.model

    def _has(self, query: str, batch_id: int) -> bool:
        """Return whether the model has a batch; refuse one that does not follow its last."""
        if query == self._query and batch_id == self._batch:
            return True
        if self._query is not None and query != self._query:
            raise StoreError(
                f"{self.path}: it has learned from query {self._query} up to batch {self._batch},"
                f" and this is query {query}: its checkpoint is a new one, and it would learn again"
                " what was learned. Put the checkpoint's folder back, or move the file away to"
                " start from nothing."
            )
        if batch_id != self._batch + 1:
            raise StoreError(
                f"{self.path}: batch {batch_id} does not follow batch {self._batch}, the last in"
                " the model (-1: none), so the file or the checkpoint is an older copy. Put back"
                " those that belong together, or move both away to start from nothing."
            )
        return False


# ---- what tasks do -------------------------------------------------------------------------------


_RECEIVED: dict[bytes, NaiveBayes] = {}


def _shipped(model: NaiveBayes) -> tuple[bytes, bytes]:
    """Return what tasks get of a model, the arguments of `_received`."""
    data = model.to_bytes()
    return hashlib.blake2b(data, digest_size=16).digest(), data


def _received(digest: bytes, data: bytes) -> NaiveBayes:
    """Return a shipped model; a process that serves several tasks reads it once."""
    if digest not in _RECEIVED:
        _RECEIVED.clear()
        _RECEIVED[digest] = NaiveBayes.from_bytes(data)
    return _RECEIVED[digest]


def _partials(df: DataFrame, model: NaiveBayes, columns: _Roles, folder: str | None) -> DataFrame:
    """Return a frame of partial models: one a task, or one a log of each task."""
    fields, shipped = _fields(df, model), model.clone()
    for group in shipped.state.groups.values():
        group.in_order = False  # to sort its words would take as long again as the rest of `_row`
    untrained = shipped.to_bytes()

    def learn(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # noqa: PLC0415 -- an extra

        task = int(TaskContext.get().partitionId())  # the same when it is run again
        models: dict[str, NaiveBayes] = {}
        following: dict[str, int] = {}
        for batch in batches:
            for log, rows in _by_log(batch, columns):
                if log not in models:
                    models[log], following[log] = NaiveBayes.from_bytes(untrained), 0
                if columns.offset is not None:
                    following[log] = max(following[log], _next_offset(rows, columns.offset))
                _learn(models[log], rows, fields, columns)
        for log, own in models.items():
            yield _row(task, log, following[log], own, folder)

    names = dict.fromkeys([*fields, *filter(None, asdict(columns).values())])
    return _map(df.select(*map(_quoted, names)), learn, _PARTIAL)


def _by_log(batch: pa.RecordBatch, columns: _Roles) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each log, in their order; all of them if no column names logs."""
    if columns.log is None:
        yield "", batch
        return
    names = batch.column(columns.log).dictionary_encode()
    if names.null_count:
        raise InputError(f"column {columns.log!r}: a row names no log. Filter such rows out.")
    places = names.indices.to_numpy(zero_copy_only=False)
    for place, name in enumerate(names.dictionary.to_pylist()):
        yield str(name), batch.take(pa.array(np.flatnonzero(places == place)))


def _next_offset(rows: pa.RecordBatch, column: str) -> int:
    """Return the offset behind the largest of these rows."""
    offsets = rows.column(column)
    if offsets.null_count:
        raise InputError(f"column {column!r}: a row has no offset. Filter such rows out.")
    return int(max(offsets.to_pylist())) + 1


def _learn(model: NaiveBayes, rows: pa.RecordBatch, fields: list[str], columns: _Roles) -> None:
    """Learn the rows that have a label."""
    labels = rows.column(columns.label)
    if labels.null_count:
        rows = rows.filter(labels.is_valid())
    if not rows.num_rows:
        return
    coded = rows.column(columns.label).dictionary_encode()
    places = coded.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    codes = Codes(places, tuple(coded.dictionary.to_pylist()))
    model.learn_many(
        _frame(rows, fields),
        codes,
        weights=None if columns.weight is None else _floats(rows, columns.weight),
        times_s=None if columns.time_s is None else _floats(rows, columns.time_s),
    )


def _floats(rows: pa.RecordBatch, column: str) -> NDArray[np.float64]:
    """Return a column of numbers; a null is nan, which learning refuses by its row."""
    return np.asarray(rows.column(column).to_numpy(zero_copy_only=False), dtype=np.float64)


def _frame(batch: pa.RecordBatch, fields: list[str]) -> pa.Table:
    """Return the fields of a batch as a frame that the library reads."""
    return pa.Table.from_arrays([batch.column(name) for name in fields], fields)


def _row(task: int, log: str, following: int, model: NaiveBayes, folder: str | None) -> Any:
    """Return one partial model as a row; its bytes go into a file of the folder if there is one."""
    data = model.to_bytes()
    if folder is not None:  # Spark and its sockets would copy them six times
        with NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(data)
        data = os.fsencode(file.name)
    values = {"task": [task], "log": [log], "next": [following], "model": [data]}
    return pa.RecordBatch.from_pydict(values, _PARTIAL_SCHEMA)


def _model_of(row: Any, folder: str | None, kind: type[NaiveBayes] = NaiveBayes) -> NaiveBayes:
    """Return the partial model of a row."""
    data = bytes(row["model"])
    return kind.from_bytes(data if folder is None else Path(os.fsdecode(data)).read_bytes())


def _sum(models: list[NaiveBayes]) -> NaiveBayes:
    """Return the first of some models, to which the others were added."""
    return models[0].of(merging.merge(*(each.state for each in models), in_place=True))


def _merged(partials: DataFrame, folder: str | None) -> DataFrame:
    """Return a frame of fewer partial models: each group's of a log is one."""

    def add(table: pa.Table) -> pa.Table:
        rows = sorted(table.to_pylist(), key=lambda row: row["task"])
        models = [_model_of(row, folder) for row in rows]
        task = rows[0]["task"] // _FAN_IN
        following = max(row["next"] for row in rows)
        return pa.Table.from_batches([_row(task, rows[0]["log"], following, _sum(models), folder)])

    groups = partials.selectExpr("*", f"task div {_FAN_IN} wider").groupBy("log", "wider")
    with _quiet():
        return groups.applyInArrow(add, _PARTIAL)


# ---- what the driver does ------------------------------------------------------------------------


def _check(df: DataFrame, model: NaiveBayes, columns: _Roles, n_tasks: int | None) -> int:
    """Refuse what cannot be learned in tasks; return how many there are at most."""
    _check_untrained(model)
    _require(df, asdict(columns))
    _fields(df, model)
    for name in filter(None, (columns.weight, columns.time_s)):
        if (kind := dict(df.dtypes)[name]).startswith(("date", "interval", "time")):
            why = f"column {name!r} is of type {kind}, and must hold numbers. Of times take seconds"
            raise InputError(f"{why}: unix_micros({_quoted(name)}) / 1e6.")
    if n_tasks is None:
        return _n_cores(df)
    check_whole("n_tasks", n_tasks, 1)
    return n_tasks


def _check_untrained(model: NaiveBayes) -> None:
    """Refuse a model that tasks cannot begin from."""
    check_kind("model", model, NaiveBayes)
    if model.n_examples or model.parts:
        raise InputError(
            f"the model has learned {model.n_examples:,} examples, and each task would count them"
            " again. Give an untrained one, and merge the two afterwards."
        )
    half_life = model.state.clock.half_life
    if half_life is not None and half_life.examples is not None:
        raise InputError(
            "a half-life in examples depends on the order of all rows, and tasks have none. Take a"
            " half-life in seconds."
        )


@contextlib.contextmanager
def _shared_folder(df: DataFrame) -> Iterator[str | None]:
    """Yield a folder for partial models if tasks run on this machine; None if Spark sends them."""
    if not df.sparkSession.sparkContext.master.startswith("local"):
        yield None
        return
    from pyspark import SparkFiles  # noqa: PLC0415 -- an extra

    # Spark's own goes with the session, even if this process is killed.
    root = SparkFiles.getRootDirectory()
    with TemporaryDirectory(prefix="models-", dir=root, ignore_cleanup_errors=True) as folder:
        yield folder


def _n_cores(df: DataFrame) -> int:
    """Return how many tasks the session runs at once."""
    return int(df.sparkSession.sparkContext.defaultParallelism)


def _require(df: DataFrame, names: dict[str, str | None]) -> None:
    """Refuse names of columns that the frame does not have."""
    for argument, name in names.items():
        if name is not None and name not in df.columns:
            raise InputError(
                f"{argument}={name!r}: the frame has no such column, only {', '.join(df.columns)}."
            )


def _fields(df: DataFrame, model: NaiveBayes) -> list[str]:
    """Return the model's fields that the frame has; without any the names are misspelt."""
    kinds = dict(df.dtypes)
    for name in model.state.fields:
        first = name.partition(".")[0]
        if name not in kinds and kinds.get(first, "").startswith(("struct", "map")):
            raise InputError(
                f"the model reads {name!r}: what lies in the column {first!r} is not looked for."
                f" Make a column of it: df.withColumn({name!r}, df[{name!r}])."
            )
    fields = [name for name in dict.fromkeys(model.state.fields) if name in df.columns]
    if not fields:
        raise InputError(
            f"the model reads {', '.join(model.state.fields)}, and the frame has"
            f" {', '.join(df.columns)}: none of them. Rename a column."
        )
    return fields


def _quoted(name: str) -> str:
    """Return the name of a column as Spark's language reads it, dots and all."""
    return "`{}`".format(name.replace("`", "``"))


def _label_type(classes: tuple[Label, ...]) -> tuple[str, Any]:
    """Return Spark's and Arrow's type of a column that holds these classes."""
    kinds = {type(each) for each in classes}
    if len(kinds) != 1:
        shown = ", ".join(map(repr, classes)) or "none"
        raise InputError(f"a column holds classes of one type. The model has {shown}.")
    return _TYPES[kinds.pop()]


def _map(df: DataFrame, function: Callable[[Any], Iterator[Any]], schema: Any) -> DataFrame:
    """Map the batches of a frame; columns go by number, as PySpark takes a dot for a path."""
    names = df.columns

    def named(batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
        return function(pa.RecordBatch.from_arrays(each.columns, names) for each in batches)

    with _quiet():
        return df.toDF(*(f"c{i}" for i in range(len(names)))).mapInArrow(named, schema)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave out PySpark's warning of pandas 3: nothing here is a pandas frame."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support", FutureWarning)
        yield
