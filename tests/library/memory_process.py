"""A process that learns a million words and says what they weigh: for the test of memory.

It learns as the daemon does, in one part, holds two snapshots, and prints one JSON object of
bytes: what the process holds above what it held with an untrained model, by array, and at its
highest while the model is saved.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil

from streamnb import (
    Bernoulli,
    EveryExamples,
    Learner,
    Multinomial,
    NaiveBayes,
    Predictor,
    SnapshotBoard,
    Words,
    save,
)
from streamnb.features.counted_words import CountedState
from streamnb.inspection.words import word_group
from tests.library.streams import part_counts

N_WORDS = 1_000_000
WORDS_A_TEXT = 20
BATCH = 5_000
_NEVER = 1 << 60


def weigh() -> dict[str, int]:
    """Return what this process holds once all that can be given back is given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    info = psutil.Process().memory_full_info()
    return {"rss": info.rss, "uss": info.uss}


def batches() -> list[tuple[int, int]]:
    """Return where each batch of tokens begins and ends."""
    step = BATCH * WORDS_A_TEXT
    return [(at, min(at + step, len(TOKENS))) for at in range(0, len(TOKENS), step)]


def _make_words() -> tuple[list[str], np.ndarray]:
    """Return words of about eight letters, and a stream of them by Zipf's law."""
    rng = np.random.default_rng(5)
    sizes = rng.integers(5, 12, N_WORDS).tolist()
    letters = rng.integers(97, 123, (N_WORDS, 11), dtype=np.uint8).tobytes().decode()
    words = [letters[11 * i : 11 * i + size] for i, size in enumerate(sizes)]
    times = np.maximum(1, N_WORDS // 5 // np.arange(1, N_WORDS + 1))
    tokens = np.repeat(np.arange(N_WORDS), times)
    rng.shuffle(tokens)
    return words, tokens


def arrays_of(group: CountedState, part: np.ndarray, snapshots: int) -> dict[str, int]:
    """Return the size of each array; an only part's are the sum's, and weigh nothing more."""
    counts = group.counts.by_word
    table = {name: array.nbytes for name, array in group.vocabulary.table._asdict().items()}
    return table | {
        "counts": counts.nbytes,
        "part": 0 if np.may_share_memory(part, counts) else part.nbytes,
        "snapshots": snapshots,
    }


def peak_while_saving(model: NaiveBayes, path: Path) -> tuple[int, int]:
    """Save; return the most this process held meanwhile, and the file's size."""
    process, highest, over = psutil.Process(), 0, threading.Event()

    def watch() -> None:
        nonlocal highest
        while not over.is_set():
            highest = max(highest, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    size = save(model, path, positions={"t/0": 1})
    over.set()
    watcher.join()
    return highest, size


def main(family: str, path: Path) -> None:
    """Learn, and weigh before and after."""
    likelihood = Bernoulli() if family == "bernoulli" else Multinomial()
    board = SnapshotBoard()
    model = NaiveBayes(["neg", "pos"], features={"text": Words(likelihood)})
    learner = Learner(model, board, EveryExamples(_NEVER), time.monotonic)
    predictor = Predictor(board)
    predictor.start()
    predictor.predict_one({"text": "a word"})
    before = weigh()
    for begin, end in batches():
        words = [WORDS[at] for at in TOKENS[begin:end].tolist()]
        texts = [
            " ".join(words[at : at + WORDS_A_TEXT]) for at in range(0, len(words), WORDS_A_TEXT)
        ]
        labels = [("neg", "pos")[i % 2] for i in range(len(texts))]
        learner.learn("t/0", {"text": texts}, labels)
    del words, texts, labels
    held = learner.publish()
    learner.learn("t/0", {"text": ["one more"]}, ["pos"])
    newest = learner.publish()
    predictor.predict_one({"text": "a word"})
    after = weigh()
    group, part = word_group(model.state, "text"), part_counts(model.parts["t/0"], "text")
    snapshots = sum(word_group(s.state, "text").counts.by_word.nbytes for s in (held, newest))
    highest, file_size = peak_while_saving(model, path)
    predictor.stop()
    found = {
        "words": newest.vocabulary_size,
        "rss": after["rss"] - before["rss"],
        "uss": after["uss"] - before["uss"],
        "peak_while_saving": highest - before["rss"],
        "before": before["rss"],
        "file": file_size,
        "arrays": arrays_of(group, part.by_word, snapshots),
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    WORDS, TOKENS = _make_words()
    main(sys.argv[1], Path(sys.argv[2]))
