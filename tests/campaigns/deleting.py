"""Delete and update messages of a long log while the daemon is killed; a page of Python counts."""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamnb.storage import read
from tests.campaigns.campaign import Run
from tests.campaigns.instants import FreshFile, kill_amid_a_checkpoint
from tests.endtoend.daemon_process import Daemon, write_config

N = 20_000  # messages a step
KILLS = 2
PATIENCE_S = 15.0  # if all is read already, no checkpoint comes
DELETED, UPDATED = 0.02, 0.02
LABELS = ("negative", "positive")
_AHEAD = 3 * N  # how far before its message a delete may come
_WORDS = [f"word{i}" for i in range(5_000)]  # fewer than the model's bound, so that none leaves

Example = tuple[tuple[str, ...], str]


class Checker:
    """What each id teaches, by the rules alone: no batch, no file, no bound."""

    def __init__(self) -> None:
        self.living: defaultdict[int, list[Example]] = defaultdict(list)
        self.early: set[int] = set()
        self.seen: set[int] = set()

    def read(self, operation: str, number: int, example: Example | None) -> None:
        """Take in a message of the log; `example` is None if it has no label."""
        if operation == "create":
            if number in self.early:
                self.early.remove(number)
            elif example is None:
                return  # nothing is remembered of it
            else:
                self.living[number].append(example)
        else:
            if number not in self.seen:
                self.early.add(number)
            self.living[number] = [example] if operation == "update" and example else []
        self.seen.add(number)

    def counts(self) -> tuple[list[int], dict[str, list[int]]]:
        """Return examples by class, and by word."""
        examples, words = Counter[str](), Counter[tuple[str, str]]()
        for own in self.living.values():
            for text, label in own:
                examples[label] += 1
                words.update((word, label) for word in set(text))
        names = {word for word, _ in words}
        by_word = {name: [words[name, label] for label in LABELS] for name in names}
        return [examples[label] for label in LABELS], by_word


def deletes(run: Run) -> None:
    """A log of which messages are deleted and updated leaves the counts of what it leaves."""
    checker, number = Checker(), 0
    with tempfile.TemporaryDirectory(prefix="deletes-") as name:
        folder = Path(name)
        config = write_config(
            folder / "config.yaml",
            source="file:in.jsonl",
            file={"batch_bytes": 1 << 17},
            http={"enabled": False},
            model={"features": {"text": {"ngrams": [1, 1], "negation": False}}},
            checkpoint={"folder": "state", "interval_s": 0.1},
        )
        for chance, _ in run.steps():
            with (folder / "in.jsonl").open("ab") as file:
                for _ in range(N):
                    number += 1
                    said = drawn_message(chance, number, run.figures)
                    checker.read(*said)
                    file.write(_line(*said))
            for kill in range(KILLS):
                fresh = FreshFile(folder / "state")
                with Daemon(config) as daemon:
                    if kill:  # the first comes while there is something to save
                        daemon.until(_instant(chance), "the kill")
                        peak = max(run.figures["MB resident at most"], daemon.peak_bytes() >> 20)
                        run.figures["MB resident at most"] = peak
                        daemon.kill()
                    else:
                        kill_amid_a_checkpoint(daemon, fresh, chance, PATIENCE_S)
                run.figures["kills"] += 1
                run.figures["kills amid a checkpoint"] += fresh.is_there()
            with Daemon(config, "--until-end") as daemon:
                assert daemon.wait() == 0, daemon.lines[-3:]
                assert not daemon.count("not_taken_back")
            assert word_counts_at(folder / "state") == checker.counts()
            run.figures["messages"] += N
            files = (folder / "state" / "learned").rglob("*.records")
            run.figures["MB of files of the memory"] = sum(f.stat().st_size for f in files) >> 20


def drawn_message(
    chance: random.Random, number: int, figures: Counter[str]
) -> tuple[str, int, Example | None]:
    """Return what the log says next: its operation, whose message, and what that teaches."""
    drawn, label = chance.random(), chance.choice((*LABELS, *LABELS, None))
    text = tuple(chance.choices(_WORDS, k=chance.randint(3, 9)))
    example = None if label is None else (text, label)
    if drawn >= DELETED + UPDATED:
        return "create", number, example
    operation = "delete" if drawn < DELETED else "update"
    figures[f"{operation}s"] += 1
    how = chance.random()
    if how < 0.2:
        figures["before their message"] += 1
        return operation, number + chance.randrange(1, _AHEAD), example
    # Of few, so that many are named twice.
    named = chance.randrange(number) if how < 0.8 else number - number % 1_000
    return operation, named, example


def _line(operation: str, number: int, example: Example | None) -> bytes:
    message: dict[str, Any] = {"id": f"m{number}"}
    if operation != "create":
        message["operation"] = operation
    if operation != "delete":
        text, label = example or (("nothing", "known"), None)
        message["text"] = " ".join(text)
        message |= {} if label is None else {"label": label}
    return json.dumps(message).encode() + b"\n"


def _instant(chance: random.Random) -> Callable[[], bool]:
    """Return a condition that holds after some time of a life."""
    last_s = time.monotonic() + chance.uniform(0.5, 6.0)
    return lambda: time.monotonic() > last_s


def word_counts_at(state: Path) -> tuple[list[int], dict[str, list[int]]]:
    """Return what the newest checkpoint in a folder counts, as `Checker.counts` does."""
    model = read(state / "model.nb").model
    order = [list(model.classes).index(label) for label in LABELS]
    words = model.words()
    rows = model.word_counts(words)[:, order].astype(int).tolist() if words else []
    return model.class_counts[order].astype(int).tolist(), dict(zip(words, rows, strict=True))
