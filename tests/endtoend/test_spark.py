"""Spark: the same counts as one process, whatever the tasks, and the same answers."""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamnb as nb
from benchmarks import backfill
from benchmarks.tweets import Tweets
from streamnb import spark as nbs
from streamnb.errors import InputError, StoreError
from streamnb.model import merge
from streamnb.storage import read
from tests.broker.broker import Broker
from tests.consumers.kafka.topics import fill
from tests.endtoend import spark_driver
from tests.endtoend.daemon_process import ROOT, Daemon, write_config
from tests.endtoend.expected_counts import examples, messages
from tests.endtoend.spark_driver import run_query, session_in, texts_only

pytestmark = [pytest.mark.deep, pytest.mark.alone]

CLASSES = ("ham", "spam")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a session of two cores that tries a task three times."""
    if importlib.util.find_spec("pyspark") is None or shutil.which("java") is None:
        pytest.skip("no PySpark or no Java: run scripts/setup_spark.sh")
    found = session_in(tmp_path_factory.mktemp("spark"))
    yield found
    found.stop()


def rows(n: int = 1000, seed: int = 0) -> pa.Table:
    """Return random examples; every tenth has no label, and every seventh no text."""
    rng = np.random.default_rng(seed)
    words = [f"w{each}" for each in range(300)]
    texts = [" ".join(rng.choice(words, rng.integers(1, 9))) for _ in range(n)]
    return pa.table(
        {
            "id": pa.array(range(n)),
            "text": [None if i % 7 == 6 else text for i, text in enumerate(texts)],
            "size": rng.normal(1e6, 1.0, n),
            "kind": rng.choice(["a", "b", "c"], n),
            "weight": rng.integers(0, 4, n).astype(np.float64),
            "time_s": rng.uniform(0, 1000, n),
            "label": [None if i % 10 == 9 else CLASSES[rng.integers(2)] for i in range(n)],
        }
    )


def untrained(**settings: Any) -> nb.NaiveBayes:
    """Return a model of words, pairs, numbers and categories."""
    features: dict[str, nb.Words | nb.Numbers | nb.Categories] = {
        "text": nb.Words(nb.Multinomial(), ngrams=(1, 2)),
        "size": nb.Numbers(fields=["size"]),
        "kind": nb.Categories(fields=["kind"]),
    }
    return nb.NaiveBayes(**{"classes": CLASSES, "features": features} | settings)


def labelled(table: pa.Table) -> dict[str, list[Any]]:
    """Return the rows that have a label, as one process learns them."""
    found: dict[str, list[Any]] = table.filter(table["label"].is_valid()).to_pydict()
    return found


def alone(model: nb.NaiveBayes, table: pa.Table, **columns: str) -> nb.NaiveBayes:
    """Return what one process learns of the same rows."""
    given = labelled(table)
    fields = {name: given[name] for name in model.state.fields}
    extra: dict[str, Any] = {name: given[column] for name, column in columns.items()}
    model.learn_many(fields, given["label"], **extra)
    return model


def numbers_of(model: nb.NaiveBayes) -> dict[str, Any]:
    """Return the numbers' statistics as the export has them."""
    table = nb.export_dict(model)["groups"][1]["table"]
    return {name: values for name, values in table.items() if name != "field"}


@pytest.fixture(scope="module")
def frame(session: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the rows as a frame of twenty partitions."""
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(rows(), path)
    return session.read.parquet(str(path)).repartition(20, "id")


def sent_by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have partial models return through Spark, as from other machines."""
    monkeypatch.setattr(nbs, "_shared_folder", lambda df: contextlib.nullcontext())  # noqa: ARG005


@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize("n_tasks", [None, 20])
def test_counts_equal_one_process(
    frame: Any, n_tasks: int | None, sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts are bit-equal and moments agree to 1e-12, merged by the driver or by tasks before."""
    if sent:
        sent_by_spark(monkeypatch)
    model = untrained()
    found = nbs.fit(frame, model, n_tasks=n_tasks)
    one = alone(untrained(), rows())
    assert model.n_examples == 0
    assert found.n_examples == one.n_examples == 900
    assert found.digest(moments=False) == one.digest(moments=False)
    ours, theirs = (numbers_of(each) for each in (found, one))
    assert ours.keys() == theirs.keys() >= {"mean", "m2"}
    for name, values in ours.items():
        assert np.array(values) == pytest.approx(np.array(theirs[name]), rel=1e-12)


@pytest.mark.parametrize("sent", [False, True])
def test_tasks_on_the_drivers_machine_return_files(
    frame: Any, sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark carries their names alone, and no file stays; the bytes are those of one process."""
    from pyspark import SparkFiles  # noqa: PLC0415 -- an extra

    if sent:
        sent_by_spark(monkeypatch)
    sizes: list[int] = []
    whole = type(frame).toArrow

    def measured(df: Any) -> Any:
        table = whole(df)
        sizes.append(table.nbytes)
        return table

    monkeypatch.setattr(type(frame), "toArrow", measured)
    words = nb.NaiveBayes(CLASSES, features={"text": nb.Words(nb.Multinomial())}, hash_key=7)
    found = nbs.fit(frame, words, n_tasks=2)
    table = rows().filter(rows()["label"].is_valid())
    one = words.clone()
    one.learn_many(table.select(["text"]), table["label"].to_pylist())
    assert found.to_bytes() == one.to_bytes()
    assert (sizes[-1] > len(one.to_bytes())) == sent
    assert not list(Path(SparkFiles.getRootDirectory()).glob("models-*"))


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_model_keeps_its_threads(frame: Any, n_threads: int) -> None:
    """Tasks return bytes, which do not hold how many; where no row is learned no bytes come."""
    model = untrained(n_threads=n_threads)
    logs = frame.selectExpr("*", "concat('t/', id % 2) AS log", "id AS offset")
    found = [nbs.fit(each, model, n_tasks=2) for each in (frame, frame.where("label IS NULL"))]
    found.append(nbs.fit_logs(logs, model, n_tasks=2)[0])
    assert [each.n_examples for each in found] == [900, 0, 900]
    assert [each.n_threads for each in found] == [n_threads] * 3


def test_what_is_timed_beside_one_process_counts_the_same(session: Any, tmp_path: Path) -> None:
    """The benchmark's two ways learn the same files, some times over."""
    tweets = Tweets(
        ["good day", "bad day", "not good"] * 50, ["positive", "negative", "negative"] * 50, ""
    )
    folder = backfill.write(tweets, tmp_path / "all", copies=3)
    alone = backfill.in_one_process(folder, backfill.untrained())
    found = nbs.fit(session.read.parquet(str(folder)), backfill.untrained())
    assert (found.n_examples, found.digest()) == (450, alone.digest())


def test_weights_times_and_joining_classes(frame: Any) -> None:
    """Weights and a half-life in seconds count as in one process, and classes join."""

    def model() -> nb.NaiveBayes:
        return nb.NaiveBayes(
            features={"text": nb.Words(nb.Multinomial())}, decay=nb.HalfLife(seconds=100.0)
        )

    found = nbs.fit(frame, model(), weight="weight", time_s="time_s", n_tasks=9)
    one = alone(model(), rows(), weights="weight", times_s="time_s")
    assert set(found.classes) == set(CLASSES)
    words = one.words()
    assert sorted(found.words()) == sorted(words)
    order = [found.classes.index(each) for each in one.classes]
    counts = found.word_counts(words)[:, order]
    assert counts == pytest.approx(one.word_counts(words), rel=1e-12)


def test_hybrid_weights_are_those_of_merged_parts(frame: Any) -> None:
    """A hybrid's weights add as those of models that learned the tasks' rows apart."""
    from pyspark.sql import functions  # noqa: PLC0415 -- an extra

    words = nb.Words(nb.Multinomial(), hybrid=nb.Hybrid())
    empty = nb.NaiveBayes(CLASSES, features={"text": words}, hash_key=7)
    found = nbs.fit(frame, empty, n_tasks=3)
    tasks = frame.coalesce(3).withColumn("task", functions.spark_partition_id()).toArrow()
    parts = []
    for task in range(3):
        own = tasks.filter(pa.compute.equal(tasks["task"], task))
        parts.append(alone(empty.clone(), own))
    assert found.digest() == merge(*parts).digest()
    texts = {"text": rows(50, seed=1)["text"].to_pylist()}
    want = merge(*parts).predict_log_proba_many(texts)
    assert found.predict_log_proba_many(texts).tobytes() == want.tobytes()


def killed_once(flag: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a step whose process is killed the first time, in the midst of its rows."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for i, batch in enumerate(batches):
            yield batch
            if i and not Path(flag).exists():
                Path(flag).touch()
                os.kill(os.getpid(), signal.SIGKILL)

    return step


def test_a_killed_task_changes_nothing(frame: Any, tmp_path: Path) -> None:
    """A task whose process is killed is run again, and counts once."""
    flag = tmp_path / "killed"
    once = frame.coalesce(2).mapInArrow(killed_once(str(flag)), frame.schema)
    found = nbs.fit(once, untrained())
    assert flag.exists()
    assert found.digest(moments=False) == alone(untrained(), rows()).digest(moments=False)


def test_predictions_are_the_models_own(frame: Any) -> None:
    """Labels and probabilities are bit for bit the model's, and other columns go through."""
    model = alone(untrained(), rows())
    before = list(frame.columns)
    found = nbs.predict(frame, model, label="guess").sort("id").toArrow()
    assert frame.columns == before
    assert found.column_names == [*before, "guess", "probabilities"]
    table = rows()
    assert found.select(before).to_pydict() == table.to_pydict()
    fields = table.select(model.state.fields).to_pydict()
    assert found["guess"].to_pylist() == model.predict_many(fields)
    want = np.exp(model.predict_log_proba_many(fields))
    assert np.array(found["probabilities"].to_pylist()).tobytes() == want.tobytes()


def test_a_log_becomes_a_part_with_its_position(frame: Any) -> None:
    """`fit_logs` keeps a part for each log, and the offset behind its last row."""
    logs = frame.selectExpr("*", "concat('tweets/', id % 3) log", "id div 3 offset")
    found, positions = nbs.fit_logs(logs, untrained(), n_tasks=10)
    assert positions == {"tweets/0": 334, "tweets/1": 333, "tweets/2": 333}
    assert set(found.parts) == set(positions)
    table = rows()
    for i in range(3):
        own = alone(untrained(), table.take(list(range(i, 1000, 3))))
        assert found.digest(f"tweets/{i}", moments=False) == own.digest(moments=False)
    whole = alone(untrained(), table)
    assert found.digest(moments=False) == whole.digest(moments=False)


def test_what_cannot_be_learned_is_refused(frame: Any) -> None:
    """An error names the place and the way out before any task starts."""
    text = {"text": nb.Words(nb.Multinomial())}
    with pytest.raises(InputError, match="label='y': the frame has no such column"):
        nbs.fit(frame, untrained(), label="y")
    learned = alone(untrained(), rows())
    with pytest.raises(InputError, match="has learned 900 examples"):
        nbs.fit(frame, learned)
    with pytest.raises(InputError, match="half-life in examples"):
        nbs.fit(frame, nb.NaiveBayes(features=text, decay=nb.HalfLife(examples=10)))
    with pytest.raises(InputError, match=r"the model reads tweet.*none of them"):
        nbs.fit(frame, nb.NaiveBayes(features={"tweet": nb.Words(nb.Multinomial())}))
    with pytest.raises(InputError, match="has a column 'label' already"):
        nbs.predict(frame, learned, label="label")
    with pytest.raises(InputError, match=r"classes of one type\. The model has none"):
        nbs.predict(frame, nb.NaiveBayes(features=text))
    for column in ("timestamp_seconds(time_s)", "current_date()", "interval '1' day"):
        timed = frame.selectExpr("text", "label", f"{column} t")
        with pytest.raises(InputError, match=r"column 't' is of type .*unix_micros\(`t`\) / 1e6"):
            nbs.fit(timed, untrained(decay=nb.HalfLife(seconds=1.0)), time_s="t")
    with pytest.raises(InputError, match="n_tasks must be a whole number"):
        nbs.fit(frame, untrained(), n_tasks=0)


def test_a_name_with_a_dot_is_a_column_of_that_name(frame: Any) -> None:
    """It is learned, predicted and judged as any other; what lies in a structure is refused."""
    features: dict[str, nb.Words | nb.Categories] = {
        "user.text": nb.Words(nb.Multinomial()),
        "a`b.kind": nb.Categories(fields=["a`b.kind"]),
    }
    model = nb.NaiveBayes(classes=CLASSES, features=features)
    names = {"text": "user.text", "kind": "a`b.kind", "label": "true.label"}
    dotted = frame.withColumnsRenamed(names)
    table = rows().rename_columns([names.get(each, each) for each in rows().column_names])
    given = table.filter(table["true.label"].is_valid()).to_pydict()
    one = model.clone()
    one.learn_many({name: given[name] for name in features}, given["true.label"])
    found = nbs.fit(dotted, model, label="true.label")
    assert found.digest() == one.digest()
    assert nbs.evaluate(dotted, found, label="true.label").n == 900
    assert "prediction" in nbs.predict(dotted, found).toArrow().column_names
    inner = frame.selectExpr("struct(text) user", "kind `a``b.kind`", "label")
    for judge in (nbs.fit, nbs.evaluate, nbs.predict):
        with pytest.raises(InputError, match=r"withColumn\('user.text', df\['user.text'\]\)"):
            judge(inner, model if judge is nbs.fit else found)
    made = inner.withColumn("user.text", inner["user.text"])
    assert nbs.fit(made, model).n_examples == 900
    plain = frame.selectExpr("kind user", "kind `a``b.kind`", "label")  # nothing lies in a string
    assert nbs.fit(plain, model).n_examples == 900


def test_evaluation_counts_what_the_model_says(frame: Any) -> None:
    """Confusion and log-loss are those of the model's own answers; unknown labels are told."""
    model = alone(untrained(), rows(seed=1))
    found = nbs.evaluate(frame, model)
    given = labelled(rows())
    fields = {name: given[name] for name in model.state.fields}
    log_p = model.predict_log_proba_many(fields)
    true = np.array([CLASSES.index(each) for each in given["label"]])
    confusion = np.zeros((2, 2), dtype=np.int64)
    np.add.at(confusion, (true, log_p.argmax(axis=1)), 1)
    assert found.confusion.tolist() == confusion.tolist()
    assert (found.n, found.n_unknown) == (900, 0)
    assert found.accuracy == np.trace(confusion) / 900
    assert found.log_loss == pytest.approx(-log_p[np.arange(900), true].mean(), rel=1e-12)
    other = nbs.evaluate(frame.selectExpr("text", "replace(label, 'spam', 'eggs') label"), model)
    assert (other.n, other.n_unknown) == (confusion[0].sum(), confusion[1].sum())


def test_a_stream_is_learned_once(session: Any, tmp_path: Path) -> None:
    """A file of `fit` goes on; a batch run again is left out, an old file or new query refused."""
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415 -- an extra

    (tmp_path / "in").mkdir()
    path = tmp_path / "model.nb"
    tables = [rows(100, seed).select(["text", "label"]) for seed in range(4)]

    def write(i: int) -> None:
        pq.write_table(tables[i], tmp_path / "in" / f"{i}.parquet")

    def expected(n: int) -> str:
        return alone(texts_only(), pa.concat_tables([tables[3], *tables[:n]])).digest()

    nb.save(alone(texts_only(), tables[3]), path)
    write(0)
    write(1)
    with contextlib.closing(nbs.StreamLearner(path, texts_only())) as learner:
        run_query(session, tmp_path, learner)
        with pytest.raises(StoreError, match="another process learns into it"):
            nbs.StreamLearner(path, texts_only())
    assert nb.load(path).digest() == expected(2)
    shutil.copy(path, tmp_path / "old")
    # As if the driver had been killed between its save and Spark's commit.
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    write(2)
    with contextlib.closing(nbs.StreamLearner(path, texts_only())) as learner:
        run_query(session, tmp_path, learner)
        assert learner.model.digest() == nb.load(path).digest() == expected(3)
    write(3)
    shutil.copy(path, tmp_path / "new")
    shutil.copy(tmp_path / "old", path)
    with contextlib.closing(nbs.StreamLearner(path, texts_only())) as learner:
        with pytest.raises(StreamingQueryException, match="batch 3 does not follow batch 1"):
            run_query(session, tmp_path, learner)
        assert learner.model.digest() == nb.load(path).digest() == expected(2)
    shutil.copy(tmp_path / "new", path)
    shutil.rmtree(tmp_path / "checkpoint")
    with contextlib.closing(nbs.StreamLearner(path, texts_only())) as learner:
        with pytest.raises(StreamingQueryException, match="its checkpoint is a new one"):
            run_query(session, tmp_path, learner)
        assert learner.model.digest() == nb.load(path).digest() == expected(3)


@pytest.mark.timeout(900)
def test_a_killed_driver_changes_nothing(session: Any, tmp_path: Path) -> None:
    """A driver that is killed and started again learns all once, and its file is always whole.

    It is killed amid the rows of a task, when its file is half written, and between its save and
    Spark's commit.
    """
    assert session  # else there is no Spark here
    tables = [rows(300, seed).select(["text", "label"]) for seed in range(3)]
    (tmp_path / "in").mkdir()
    pq.write_table(tables[0], tmp_path / "table.parquet")
    for i, each in enumerate(tables[1:]):
        pq.write_table(each, tmp_path / "in" / f"{i}.parquet")
    path = tmp_path / "model.nb"

    def run(step: int, moment: str) -> int:
        program = Path(spark_driver.__file__)
        command = [sys.executable, str(program), str(tmp_path), str(step), moment]
        with subprocess.Popen(command, start_new_session=True) as driver:
            try:
                return driver.wait()
            finally:
                with contextlib.suppress(ProcessLookupError):  # its Java outlives it by a moment
                    os.killpg(driver.pid, signal.SIGKILL)

    killed = ((0, "task"), (0, "half"), (1, "task"), (2, "named"))
    for (step, moment), n_learned in zip(killed, (0, 0, 1, 3), strict=True):
        assert run(step, moment) == -signal.SIGKILL
        assert path.exists() == (n_learned > 0)
        if n_learned:
            expected = alone(texts_only(), pa.concat_tables(tables[:n_learned]))
            assert nb.load(path).digest() == expected.digest()
    assert run(-1, "none") == 0
    assert nb.load(path).digest() == expected.digest()


def test_a_file_that_no_stream_goes_on_from_is_refused(frame: Any, tmp_path: Path) -> None:
    """A checkpoint, or what counts other things, is refused and left unlocked."""
    path = tmp_path / "model.nb"
    with contextlib.closing(nbs.StreamLearner(path, texts_only())) as learner:
        assert learner.model.n_examples == 0
        with pytest.raises(InputError, match="only a query's batches are learned"):
            learner(frame, 0)
    nb.save(untrained(), path)
    with pytest.raises(InputError, match="they differ in features"):
        nbs.StreamLearner(path, texts_only())
    parted = texts_only()
    parted.set_part("tweets/0", alone(texts_only(), rows(10)))
    nb.save(parted, path, positions={"tweets/0": 10})
    with pytest.raises(InputError, match="kept in 1 parts"):
        nbs.StreamLearner(path, texts_only())
    nb.save(texts_only(), path)
    nbs.StreamLearner(path, texts_only()).close()
    with pytest.raises(StoreError, match="its folder cannot be written"):
        nbs.StreamLearner(tmp_path / "none" / "model.nb", texts_only())


def test_the_guides_programs_run(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each program of docs/spark.md does what it is there for.

    The last one learns the first half of an archived topic, and the daemon goes on behind it: its
    counts are those of a daemon that read all of it.
    """
    texts, labels = zip(*examples(100), strict=True)
    (tmp_path / "tweets").mkdir()
    pq.write_table(pa.table({"text": texts, "label": labels}), tmp_path / "tweets" / "0.parquet")
    write_archive(tmp_path / "tweets.jsonl.gz", n_partitions=2, n=200)
    whole = tmp_path / "whole.jsonl.gz"
    write_archive(whole, n_partitions=2, n=400)
    source = f"recording:{whole}"
    config = write_config(tmp_path / "config.yaml", source=source, checkpoint={"folder": "state"})
    monkeypatch.chdir(tmp_path)
    first, stream, to_daemon = programs(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(first, "docs/spark.md", "exec"), names)
    predicted = session.read.parquet(str(tmp_path / "predictions")).toArrow()
    assert predicted.column_names == ["text", "label", "prediction", "probabilities"]
    assert len(predicted) == names["model"].n_examples == 100
    exec(compile(stream, "docs/spark.md", "exec"), names)
    names["learner"].close()
    assert nb.load("stream.nb").digest() == nb.load("tweets.nb").digest()
    exec(compile(to_daemon, "docs/spark.md", "exec"), names)
    assert names["positions"] == {"tweets/0": 200, "tweets/1": 200}
    assert learned(config) == 400
    alone_config = write_config(
        tmp_path / "alone.yaml", source=source, checkpoint={"folder": "alone"}
    )
    assert learned(alone_config) == 800
    ours, theirs = (read(tmp_path / name / "model.nb") for name in ("state", "alone"))
    assert ours.positions == theirs.positions == {"tweets/0": 400, "tweets/1": 400}
    for part in ours.positions:
        assert ours.model.digest(part) == theirs.model.digest(part)


@pytest.mark.integration
def test_the_daemon_goes_on_in_the_topic_behind_spark(
    session: Any,
    broker: Broker,
    new_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark learns an archived first half by the guide's program; the daemon reads the second from
    the topic, across a kill: the counts of each partition are those of one run over the topic.
    """
    topic, n = new_topic(2), 2_000
    for k in range(2):
        fill(broker.address, topic, messages(examples(2 * n, first=10_000 * k)), partition=k)
    write_archive(tmp_path / "tweets.jsonl.gz", n_partitions=2, n=n, topic=topic, apart=10_000)
    source = f"kafka://{broker.address}/{topic}"
    sections: dict[str, Any] = {"source": source, "kafka": {"max_poll_messages": 100}}
    config = write_config(
        tmp_path / "config.yaml", checkpoint={"folder": "state", "interval_s": 0.05}, **sections
    )
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"spark": session}
    exec(compile(programs(tmp_path)[2], "docs/spark.md", "exec"), names)
    assert names["positions"] == {f"{topic}/{k}": n for k in range(2)}
    with Daemon(config) as daemon:
        daemon.until(lambda: sum(read(Path("state/model.nb")).positions.values()) > 2 * n, "more")
        daemon.kill()
    assert 0 < learned(config) <= 2 * n
    alone_config = write_config(tmp_path / "alone.yaml", checkpoint={"folder": "alone"}, **sections)
    assert learned(alone_config) == 4 * n
    ours, theirs = (read(tmp_path / name / "model.nb") for name in ("state", "alone"))
    assert ours.positions == theirs.positions == {f"{topic}/{k}": 2 * n for k in range(2)}
    for part in ours.positions:
        assert ours.model.digest(part) == theirs.model.digest(part)


def programs(folder: Path) -> list[str]:
    """Return the programs of docs/spark.md; Spark's own paths are below the given folder."""
    text = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    paths = r'"(tweets/|predictions/|checkpoint/|tweets\.jsonl\.gz)"'
    return [re.sub(paths, lambda path: repr(str(folder / path[1])), each) for each in found]


def learned(config: Path) -> int:
    """Let the daemon learn to the end of its source; return how many messages it learned."""
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0, daemon.lines[-3:]
        return int(daemon.summary["learned"])


def write_archive(
    path: Path, n_partitions: int, n: int, *, topic: str = "tweets", apart: int = 1000
) -> None:
    """Write a recording of a topic, as docs/recording.md describes the format."""
    stream = {"source": "kafka", "topic": topic}
    form = {"kind": "jsonl", "columns": [], "encoding": "utf-8"}
    lines: list[dict[str, Any]] = [{"streamnb_recording": 1, "stream": stream, "format": form}]
    for partition in range(n_partitions):
        for offset, value in enumerate(messages(examples(n, first=apart * partition))):
            place = {"topic": topic, "partition": partition, "offset": offset}
            lines.append(place | {"key": None, "value": value.decode()})
    names = [f"{topic}/{partition}" for partition in range(n_partitions)]
    begins = {name: {"begin": 0} for name in names}
    lines.append({"positions": dict.fromkeys(names, n), "logs": begins})
    path.write_bytes(gzip.compress("".join(json.dumps(each) + "\n" for each in lines).encode()))
