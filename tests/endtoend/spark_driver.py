"""A driver: it learns a table into a file, then a stream; it may kill itself at a chosen moment.

Step 0 is `fit` of `table.parquet`, step 1 + i the stream's batch i, a file of the folder `in`. A
moment is `task`, amid the rows of a task, `half`, when the new file is half written, or `named`, as
soon as it has the model's name.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import streamnb as nb
from streamnb import serialization, storage
from streamnb import spark as nbs


def session_in(folder: Path, **options: str) -> Any:
    """Return a session of two cores that tries a task three times; options are Spark's."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 -- an extra

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    }
    builder = SparkSession.builder.master("local[2,3]")
    for key, value in (settings | options).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def texts_only() -> nb.NaiveBayes:
    """Return an untrained model of texts."""
    return nb.NaiveBayes(("ham", "spam"), features={"text": nb.Words(nb.Multinomial())})


def run_query(session: Any, folder: Path, learn: Callable[[Any, int], None]) -> None:
    """Let a query learn the files that are there and that it has not had yet, one a batch."""
    stream = session.readStream.schema("text string, label string")
    stream = stream.option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    query = stream.writeStream.foreachBatch(learn)
    query = query.option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


def killing(pid: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a step of a task that kills a process when some rows have gone through."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, 10)
            os.kill(pid, signal.SIGKILL)
            yield batch.slice(10)

    return step


def half(blocks: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Yield half of a file, and kill this process."""
    data = b"".join(blocks)
    yield data[: len(data) // 2]
    signal.raise_signal(signal.SIGKILL)


def arm(moment: str, df: Any) -> Any:
    """Have this process killed in the step that begins; return the step's rows."""
    if moment == "task":
        return df.mapInArrow(killing(os.getpid()), df.schema)
    if moment == "half":
        whole = serialization.to_blocks
        setattr(serialization, "to_blocks", lambda *given: half(whole(*given)))  # noqa: B010
    else:
        storage._sync_folder = lambda folder: os.kill(os.getpid(), signal.SIGKILL)  # noqa: ARG005
    return df


def main(folder: Path, step: int, moment: str) -> None:
    """Learn what has not been learned yet, up to the moment that is given; step -1: all of it."""
    session, path = session_in(folder / "spark"), folder / "model.nb"
    if not path.exists():
        table = session.read.parquet(str(folder / "table.parquet"))
        nb.save(nbs.fit(arm(moment, table) if step == 0 else table, texts_only()), path)
    with contextlib.closing(nbs.StreamLearner(path, texts_only())) as learner:
        run_query(
            session, folder, lambda df, i: learner(arm(moment, df) if step == 1 + i else df, i)
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
