"""`python -m benchmarks.backfill`: Spark with two tasks, beside one process that reads the files.

Both learn words and pairs of the whole stream, some times over, from Parquet. The session has
started and has learned a little before it is timed; the digests of the counts must be the same.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.parquet as pq
import typer

import streamnb as nb
from benchmarks.accuracy import CHOICES, model_of
from benchmarks.folds import MAX_WORDS
from benchmarks.tweets import Tweets, load
from streamnb.spark import fit
from tests.endtoend.spark_driver import session_in

BATCH_ROWS = 10_000  # of Spark too
SPARK = {
    "spark.driver.memory": "6g",
    "spark.driver.maxResultSize": "4g",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
}


def write(tweets: Tweets, folder: Path, copies: int) -> Path:
    """Write tweets as one file a copy; return their folder."""
    folder.mkdir()
    table = pa.table({"text": tweets.texts, "label": tweets.labels})
    for i in range(copies):
        pq.write_table(table, folder / f"{i}.parquet", row_group_size=100_000)
    return folder


def untrained() -> nb.NaiveBayes:
    """Return a model of words and pairs, of a key that all have."""
    return model_of(MAX_WORDS, **CHOICES["plain"])


def in_one_process(folder: Path, model: nb.NaiveBayes) -> nb.NaiveBayes:
    """Let a model learn all files."""
    for path in sorted(folder.iterdir()):
        for batch in pq.ParquetFile(path).iter_batches(BATCH_ROWS):
            coded = batch.column("label").dictionary_encode()
            codes = nb.Codes(coded.indices.to_numpy(), tuple(coded.dictionary.to_pylist()))
            model.learn_many(pa.table({"text": batch.column("text")}), codes)
    return model


def timed(learn: Callable[[], nb.NaiveBayes]) -> tuple[float, str]:
    """Return how many seconds learning took, and the digest of the counts."""
    began = time.perf_counter()
    model = learn()
    took_s = time.perf_counter() - began
    return took_s, model.digest()


def main(
    tweets: Annotated[int, typer.Option(help="How many tweets of the stream; 0 for all.")] = 0,
    copies: Annotated[int, typer.Option(min=1, help="How many times over.")] = 10,
    turns: Annotated[int, typer.Option(min=1, help="How often each, in turn.")] = 3,
) -> None:
    """Compare Spark with one process."""
    stream = load()
    stream = stream.first(tweets or len(stream))
    n = len(stream) * copies
    with tempfile.TemporaryDirectory(prefix="streamnb-backfill-") as name:
        folder = write(stream, Path(name) / "all", copies)
        few = write(stream.first(1_000), Path(name) / "few", 2)
        session = session_in(Path(name), **SPARK)
        fit(session.read.parquet(str(few)), untrained()), in_one_process(few, untrained())
        ratios = []
        for _ in range(turns):
            alone_s, alone = timed(lambda: in_one_process(folder, untrained()))
            spark_s, counted = timed(lambda: fit(session.read.parquet(str(folder)), untrained()))
            ratios.append(alone_s / spark_s)
            print(
                f"{n:,} tweets: one process {alone_s:.1f} s, Spark {spark_s:.1f} s,"
                f" {ratios[-1]:.2f} times; digests {'equal' if alone == counted else 'DIFFER'}",
                flush=True,
            )
            if alone != counted:
                raise SystemExit("Spark's counts are not those of one process")
        session.stop()
    print(f"{copies} copies of {stream.origin}: {statistics.median(ratios):.2f} times, the median")


if __name__ == "__main__":
    typer.run(main)
