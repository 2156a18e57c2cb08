"""Many threads at once: every answer is, bit for bit, that of the very snapshot it names.

One thread teaches a model whose table grows many times, drops words, is compacted and gets a class
in mid-stream, and publishes all the while. Others read: from the newest snapshot, from an old one
they hold on to, and through the predictor. What they read is compared afterwards with a replay in
one thread. The writer now and then waits until every reader has seen a new snapshot, so the
overlap does not depend on luck.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from streamnb import (
    Bernoulli,
    EveryExamples,
    Learner,
    Multinomial,
    NaiveBayes,
    Predictor,
    Snapshot,
    SnapshotBoard,
    Words,
)
from streamnb.features.protocol import Floats
from streamnb.inspection.words import word_group

LONG_S = 60.0
BATCH = 25
N_BATCHES = 600
MAX_WORDS = 6_000
PUBLISH_EVERY = 100  # examples
MEET_EVERY = 20  # batches
LATE_CLASS_AT = N_BATCHES // 2

Seen = dict[int, set[str]]


def texts_of(seed: int, n: int, n_words: int) -> list[str]:
    """Return texts of words of which a few are frequent and most are rare."""
    rng = np.random.default_rng(seed)
    words = (n_words * rng.random((n, 12)) ** 3).astype(np.int64)
    return [" ".join(f"w{word}" for word in row) for row in words.tolist()]


TEXTS = texts_of(1, N_BATCHES * BATCH, 60_000)
# Words from all times of the stream: many are unseen by early snapshots or dropped by late ones.
PROBES = {"text": [*texts_of(2, 60, 60_000), *TEXTS[::2_500], "", "w0 w0 w1"]}


def labels_of(batch: int) -> list[str]:
    """Return a batch's labels; the third class comes in mid-stream."""
    classes = ["neg", "pos"] if batch < LATE_CLASS_AT else ["neg", "pos", "mixed"]
    return [classes[(batch + i) % len(classes)] for i in range(BATCH)]


def digest(answers: Floats) -> str:
    """Return a short name of an answer's bits."""
    return hashlib.blake2b(
        answers.tobytes() + str(answers.shape).encode(), digest_size=16
    ).hexdigest()


def start(likelihood: Bernoulli | Multinomial, board: SnapshotBoard) -> Learner:
    """Return a learner that knows nothing and publishes by examples."""
    model = NaiveBayes(
        ["neg", "pos"],
        features={"text": Words(likelihood, ngrams=(1, 2), max_words=MAX_WORDS)},
        hash_key=5,
        new_classes=True,
    )
    return Learner(model, board, EveryExamples(PUBLISH_EVERY), time.monotonic)


def teach(learner: Learner) -> Iterator[int]:
    """Learn the stream, publish as the policy says, and yield after each batch."""
    for batch in range(N_BATCHES):
        texts = TEXTS[batch * BATCH : (batch + 1) * BATCH]
        learner.learn("t/0", {"text": texts}, labels_of(batch))
        learner.publish_if_due()
        yield batch


class Meeting:
    """Lets the writer wait until each reader has seen a snapshot."""

    def __init__(self, n_readers: int) -> None:
        self._changed = threading.Condition()
        self._seen = [0] * n_readers
        self.over = False
        self.failures: list[BaseException] = []

    def saw(self, reader: int, version: int) -> None:
        """Note the newest version that a reader has seen."""
        with self._changed:
            self._seen[reader] = max(self._seen[reader], version)
            self._changed.notify_all()

    def wait_for(self, version: int) -> None:
        """Wait until every reader has seen that version, or one has failed."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: min(self._seen) >= version or self.failures, LONG_S
            )

    def read(self, work: Callable[[], None]) -> None:
        """Read over and over until the stream is over."""
        try:
            while not self.over:
                work()
        except BaseException as error:  # noqa: BLE001 -- whatever it is, the main thread tells it
            with self._changed:
                self.failures.append(error)
                self._changed.notify_all()


def newest_of(board: SnapshotBoard) -> Snapshot:
    """Return the newest snapshot."""
    current = board.current()
    assert current is not None
    return current


def readers_of(
    board: SnapshotBoard, predictor: Predictor, meeting: Meeting, seen: Seen
) -> list[Callable[[], None]]:
    """Return what each reading thread does over and over."""
    held = [newest_of(board)]

    def read_newest(reader: int) -> None:
        snapshot = newest_of(board)
        seen[snapshot.version].add(digest(snapshot.predict_log_proba_many(PROBES)))
        meeting.saw(reader, snapshot.version)

    def read_an_old_one() -> None:
        # It is held while hundreds come after it, and is as good as on its first day.
        seen[held[0].version].add(digest(held[0].predict_log_proba_many(PROBES)))
        newest = newest_of(board)
        if newest.version > held[0].version + 50:
            held[0] = newest
        meeting.saw(2, newest.version)

    def ask_the_predictor() -> None:
        answer = predictor.predict_many(PROBES, LONG_S)
        seen[answer.version].add(digest(answer.log_posteriors))
        meeting.saw(3, answer.version)

    return [lambda: read_newest(0), lambda: read_newest(1), read_an_old_one, ask_the_predictor]


@pytest.mark.deep
@pytest.mark.parametrize("likelihood", [Bernoulli(), Multinomial()], ids=["bernoulli", "multi"])
def test_every_answer_is_of_the_snapshot_it_names(likelihood: Bernoulli | Multinomial) -> None:
    """No reader ever sees a torn, a mixed or a later state, whatever the writer does meanwhile."""
    board = SnapshotBoard()
    learner = start(likelihood, board)
    predictor = Predictor(board, queue_size_max=2)
    predictor.start()
    seen: Seen = defaultdict(set, {v: set() for v in range(N_BATCHES + 2)})
    works = readers_of(board, predictor, meeting := Meeting(4), seen)
    threads = [threading.Thread(target=meeting.read, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    tables: list[NDArray[np.uint64]] = []
    group = word_group(learner.model.state, "text")
    try:
        for batch in teach(learner):
            if not any(table is group.vocabulary.table.fingerprints for table in tables[-1:]):
                tables.append(group.vocabulary.table.fingerprints)
            if batch % MEET_EVERY == 0:
                meeting.wait_for(learner.version)
    finally:
        meeting.over = True
        for thread in threads:
            thread.join(LONG_S)
        predictor.stop(LONG_S)
    assert not meeting.failures
    sizes = [len(table) for table in tables]
    steps = [np.sign(after - before) for before, after in itertools.pairwise(sizes)]
    assert steps.count(1) >= 4, "the table has grown"
    assert steps.count(-1) >= 2, "and been compacted"
    assert learner.model.words_dropped > MAX_WORDS
    read = {version: digests for version, digests in seen.items() if digests}
    assert len(read) >= N_BATCHES // MEET_EVERY
    expected = replay(likelihood)
    assert read == {version: {expected[version]} for version in read}


def replay(likelihood: Bernoulli | Multinomial) -> dict[int, str]:
    """Return what each version answers, in a run of one thread over the same stream."""
    board = SnapshotBoard()
    learner = start(likelihood, board)
    expected = {1: digest(newest_of(board).predict_log_proba_many(PROBES))}
    for _ in teach(learner):
        newest = newest_of(board)
        if newest.version not in expected:
            expected[newest.version] = digest(newest.predict_log_proba_many(PROBES))
    assert len(expected) == learner.version
    return expected
