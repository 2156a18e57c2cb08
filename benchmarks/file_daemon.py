"""The whole daemon on a file of JSON lines: its speed without Kafka, and what its promises cost.

These are checkpoints, the memory of what was learned, and deletes and updates that take it back.
The commands that judge such a file are timed too.

Beside it the library alone judges and learns the same texts, from memory, in one call and on one
thread: the ratio is what the daemon adds (reading, decoding, snapshots, checkpoints, the page).
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import ours
from benchmarks.alternate import alternate
from benchmarks.daemon_run import DEFAULT, MODELS, PAIRS, run_daemon
from benchmarks.kafka_topics import messages
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import Tweets
from streamnb import Words

MESSAGES = 1_000_000
# For checkpoints: a run must last for three of them, which are 15 s, on a fast machine too.
LONG_MESSAGES = 8_000_000
DEFAULT_LONG_MESSAGES = 5_000_000  # of the default model, which is slower
LONG_TURNS = 3
CHECKPOINTS_MIN = 3  # a run
TURNS = 5
EVALUATED_MESSAGES = 1_600_000
EVALUATED_TURNS = 5
BY_EXAMPLES_MESSAGES = 200_000  # each delete ends a snapshot there, so that they are slower
DELETED, UPDATED = 0.02, 0.02  # shares of the messages
_NO_MEMORY = {"learned": {"messages_max": 0}}


def file_daemon(tweets: Tweets, show: Show) -> Result:
    """Learn a file with three models, one of them the default, and its texts by the library."""
    result = Result("file_daemon", f"{MESSAGES:,} JSON lines of {tweets.origin}")
    with tempfile.TemporaryDirectory(prefix="streamnb-file-") as folder:
        source = write_lines(Path(folder), tweets, MESSAGES)
        alone = (ours.UNIGRAMS, ours.PAIRS, ours.DEFAULT)
        timed = {name: _learned(source, MESSAGES, words) for name, words in MODELS.items()}
        timed |= {
            f"{name}, library alone": _in_library(tweets, words, MESSAGES)
            for name, words in zip(MODELS, alone, strict=True)
        }
        turns = alternate(timed, TURNS, show)
    for name in timed:
        at_least = 400_000.0 if name == "unigrams" else None
        speed = MESSAGES / turns.median_s(name)
        result.add(name, speed, "messages/s", at_least=at_least)
    for name in MODELS:
        ratio = turns.ratio(f"{name}, library alone", name)
        at_least = 0.6 if name == "unigrams" else None
        result.add(f"{name}: speed of the library", ratio, "times", at_least=at_least)
    ratio = turns.ratio("pairs and negation", "default model")
    result.add("default model: speed of pairs and negation", ratio, "times")
    return result


def checkpoints(tweets: Tweets, show: Show) -> Result:
    """Learn a long file with checkpoints and the memory that deletes need, and without them."""
    result = Result("checkpoints", f"{LONG_MESSAGES:,} JSON lines of {tweets.origin}")
    written: dict[str, list[int]] = {name: [] for name in ("pairs and negation", "default model")}
    with tempfile.TemporaryDirectory(prefix="streamnb-file-") as folder:
        source = write_lines(Path(folder), tweets, LONG_MESSAGES)

        def learned(model: str, *, saved: bool, remembered: bool = True) -> Callable[[], float]:
            n = DEFAULT_LONG_MESSAGES if model == "default model" else LONG_MESSAGES

            def timed() -> float:
                run = run_daemon(
                    source,
                    n,
                    MODELS[model],
                    checkpoints=saved,
                    settings={} if remembered else _NO_MEMORY,
                    until=("--max-messages", str(n)),
                )
                if saved:
                    written[model].append(run.checkpoints)
                return n / run.messages_per_s

            return timed

        pairs, default = written
        timed = {
            "checkpoints each 5 s": learned(pairs, saved=True),
            "no checkpoints": learned(pairs, saved=False),
            "neither checkpoints nor memory": learned(pairs, saved=False, remembered=False),
        }
        turns = alternate(timed, LONG_TURNS, show)
        of_default = {
            "default model, checkpoints each 5 s": learned(default, saved=True),
            "default model, neither checkpoints nor memory": learned(
                default, saved=False, remembered=False
            ),
        }
        default_turns = alternate(of_default, LONG_TURNS, show)
    with_both, without, neither = timed
    for name in timed:
        result.add(name, LONG_MESSAGES / turns.median_s(name), "messages/s")
    ratio = turns.ratio(without, with_both)
    result.add("speed with checkpoints to without", ratio, "times", at_least=0.95)
    result.add("speed with the memory to without", turns.ratio(neither, without), "times")
    ratio = turns.ratio(neither, with_both)
    result.add("speed with both to neither", ratio, "times", at_least=0.9)
    n_files = min(written[pairs])
    result.add("checkpoints a run, at least", n_files, "files", at_least=CHECKPOINTS_MIN)
    for name in of_default:
        speed = DEFAULT_LONG_MESSAGES / default_turns.median_s(name)
        result.add(name, speed, "messages/s")
    default_both, default_neither = of_default
    ratio = default_turns.ratio(default_neither, default_both)
    result.add("default model: speed with both to neither", ratio, "times", at_least=0.9)
    n_files = min(written[default])
    name = "default model: checkpoints a run, at least"
    result.add(name, n_files, "files", at_least=CHECKPOINTS_MIN)
    return result


def deletes(tweets: Tweets, show: Show) -> Result:
    """Learn a file of which messages are deleted and updated, and as many without that."""
    with tempfile.TemporaryDirectory(prefix="streamnb-file-") as folder:

        def learned(n: int, publish: str, *, revised: bool) -> Callable[[], float]:
            path = Path(folder) / f"{n}-{revised}"
            path.mkdir(exist_ok=True)
            source, n_learned = write_lines(path, tweets, n), n
            if revised:
                n_learned -= _write_revised(path / "revised.jsonl", tweets, n)
                source = f"file:{path / 'revised.jsonl'}"

            def run() -> float:
                settings = {"learning": {"publish": publish}}
                return n / run_daemon(source, n_learned, PAIRS, settings=settings).messages_per_s

            return run

        few = BY_EXAMPLES_MESSAGES
        timed = {
            "with deletes and updates": learned(MESSAGES, "interval", revised=True),
            "without": learned(MESSAGES, "interval", revised=False),
            "by examples, with deletes and updates": learned(few, "examples", revised=True),
            "by examples, without": learned(few, "examples", revised=False),
        }
        turns = alternate(timed, TURNS, show)
    what = f"{DELETED:.0%} deletes and {UPDATED:.0%} updates among {MESSAGES:,} JSON lines"
    result = Result("deletes", f"{what} of {tweets.origin}")
    for name, n in zip(timed, (MESSAGES, MESSAGES, few, few), strict=True):
        result.add(name, n / turns.median_s(name), "messages/s")
    ratio = turns.ratio("without", "with deletes and updates")
    result.add("speed with deletes and updates to without", ratio, "times", at_least=0.85)
    ratio = turns.ratio("by examples, without", "by examples, with deletes and updates")
    result.add("the same by examples", ratio, "times")
    return result


def evaluation(tweets: Tweets, show: Show) -> Result:
    """Judge a file by the commands, from start to end, and its texts by the library alone."""
    with tempfile.TemporaryDirectory(prefix="streamnb-file-") as name:
        folder = Path(name)
        source = write_lines(folder, tweets, EVALUATED_MESSAGES)
        pairs, default = folder / "pairs.yaml", folder / "default.yaml"
        for file, words in ((pairs, PAIRS), (default, DEFAULT)):
            settings = {"model": {"features": {"text": words}}}
            file.write_text(json.dumps(settings), encoding="utf-8")  # it is YAML too
        in_library = _in_library(tweets, ours.DEFAULT, EVALUATED_MESSAGES)
        pairs_in_library = _in_library(tweets, ours.PAIRS, EVALUATED_MESSAGES)
        timed = {
            "evaluate": lambda: command_s("evaluate", source, "--config", default),
            "compare two models": lambda: command_s("compare", source, pairs, default),
            "library alone": in_library,
            "library alone, both models": lambda: in_library() + pairs_in_library(),
        }
        turns = alternate(timed, EVALUATED_TURNS, show)
    what = f"{EVALUATED_MESSAGES:,} JSON lines of {tweets.origin}, start and figures included"
    result = Result("evaluation", what)
    for name in timed:
        result.add(name, EVALUATED_MESSAGES / turns.median_s(name), "messages/s")
    ratio = turns.ratio("library alone", "evaluate")
    result.add("evaluate: speed of the library", ratio, "times", at_least=0.8)
    ratio = turns.ratio("library alone, both models", "compare two models")
    result.add("compare two models: speed of the library", ratio, "times", at_least=0.8)
    return result


def command_s(*words: str | Path) -> float:
    """Run a command of the program; return how many seconds it took, from start to end."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "consumers", *words, "--json"], check=True, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - began


def _learned(source: str, n: int, words: Mapping[str, Any]) -> Callable[[], float]:
    return lambda: n / run_daemon(source, n, words).messages_per_s


def _in_library(tweets: Tweets, words: Words, n: int) -> Callable[[], float]:
    """Return what tells the seconds that the library takes for `n` messages."""
    texts = tweets.first(n)
    timed = ours.in_one_call_from_buffer(words, texts)
    return lambda: timed() * n / len(texts)


def write_lines(folder: Path, tweets: Tweets, n: int) -> str:
    """Write messages as lines into a folder; return the source's address."""
    path = folder / "tweets.jsonl"
    with path.open("wb") as file:
        file.writelines(value + b"\n" for value in messages(tweets, n))
    return f"file:{path}"


def _write_revised(path: Path, tweets: Tweets, n: int) -> int:
    """Write messages of which some delete or update one before them; return how many delete."""
    chance, n_deletes, encode = random.Random(1), 0, msgspec.json.Encoder().encode
    ids: list[int] = []
    with path.open("wb") as file:
        for value in messages(tweets, n):
            drawn, line = chance.random() if ids else 1.0, value
            if drawn < DELETED:
                n_deletes += 1
                line = encode({"id": chance.choice(ids), "operation": "delete"})
            elif drawn < DELETED + UPDATED:
                own = {"id": chance.choice(ids), "operation": "update"}
                line = encode(msgspec.json.decode(value) | own)
            else:
                ids.append(msgspec.json.decode(value, type=_Id).id)
            file.write(line + b"\n")
    return n_deletes


class _Id(msgspec.Struct):
    id: int
