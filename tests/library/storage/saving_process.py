"""A process that saves models and is struck down: for the tests of what a kill leaves behind.

`steps FOLDER`: for each call of the operating system that one save makes, and before and after it,
a child saves and kills itself there; after each the parent looks at what is left.
`steps-without-links FOLDER`: the same, where the file system has no hard links.
`forever FOLDER`: saves one model after another until it is killed, and says so each time.
`full FOLDER`: saves a model where no file may grow beyond a few bytes.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from streamnb import Multinomial, NaiveBayes, Words
from streamnb.errors import StoreError
from streamnb.storage import load, older_files, save

KEEP = 3
# What a save asks of the operating system. `stat` only looks.
CALLS = {"open", "write", "flush", "fsync", "close", "replace", "rename", "link", "unlink"}
Hook = Callable[[FrameType, str, Any], object]


def model_of(n_examples: int) -> NaiveBayes:
    """Return a model that has learned so many examples."""
    model = NaiveBayes(["a", "b"], features={"text": Words(Multinomial())}, hash_key=1)
    texts = [f"w{i} w{i + 1}" for i in range(n_examples)]
    model.learn_many({"text": texts}, ["a"] * n_examples, part="t/0")
    return model


def no_link(*_paths: object) -> None:
    """Refuse a hard link, as a file system without them does."""
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


def at_step(number: int, act: Callable[[], object]) -> Hook:
    """Return a profiler that acts just before or after a call: two steps for each of `CALLS`."""
    left = number

    def hook(_frame: FrameType, event: str, called: Any) -> None:
        nonlocal left
        if event in {"c_call", "c_return"} and called.__name__ in CALLS:
            left -= 1
            if left == 0:
                act()

    return hook


def kill_self() -> None:
    """End this process as the power would."""
    os.kill(os.getpid(), signal.SIGKILL)


def killed_at(step: int, path: Path, model: NaiveBayes) -> bool:
    """Save in a child that kills itself at a step; tell whether it came to that step."""
    child = os.fork()
    if child == 0:
        sys.setprofile(at_step(step, kill_self))
        save(model, path, keep=KEEP)
        sys.setprofile(None)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def ages(path: Path) -> list[int]:
    """Return how many examples the kept models have, the newest first; each must be whole."""
    return [load(one).n_examples for one in (path, *older_files(path))]


def steps(folder: Path) -> None:
    """Kill a save at every step of it, and look at what is left each time."""
    before, old, new, newer = (model_of(n) for n in (1, 2, 3, 4))
    older, path = folder / "older", folder / "model.nb"
    for model in (model_of(0), before, old):
        save(model, older, keep=KEEP)
    step, still_old = 1, 0
    while True:
        for name in ("", ".1", ".2"):
            shutil.copyfile(f"{older}{name}", f"{path}{name}")
        was_killed = killed_at(step, path, new)
        left = load(path).n_examples
        assert left in {2, 3}, (step, left)
        still_old += left == 2
        assert set(ages(path)) >= {left, 1 if left == 2 else 2}, (step, ages(path))
        save(newer, path, keep=KEEP)
        assert ages(path) == ([4, 2, 1] if left == 2 else [4, 3, 2]), (step, ages(path))
        assert not [p for p in folder.iterdir() if p.name.endswith(".new")]
        if not was_killed:
            break
        step += 1
    sys.stdout.write(f"{step} {still_old}\n")


def forever(folder: Path) -> None:
    """Save until killed."""
    path, n_examples = folder / "model.nb", 0
    while True:
        n_examples += 1
        save(model_of(n_examples), path, keep=KEEP)
        sys.stdout.write(f"{n_examples}\n")
        sys.stdout.flush()


def full(folder: Path) -> None:
    """Save where the disk is full; what stood there must stand."""
    path = folder / "model.nb"
    save(model_of(1), path, keep=KEEP)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
    for _ in range(3):
        try:
            save(model_of(2), path, keep=KEEP)
        except StoreError as error:
            sys.stdout.write(f"{error}\n")
    assert ages(path) == [1]
    assert [p.name for p in folder.iterdir()] == ["model.nb"]


if __name__ == "__main__":
    warnings.simplefilter("error")
    if sys.argv[1] == "steps-without-links":
        os.link = no_link  # type: ignore[assignment]  # whatever it is called with
    run = {"steps": steps, "steps-without-links": steps, "forever": forever, "full": full}
    run[sys.argv[1]](Path(sys.argv[2]))
