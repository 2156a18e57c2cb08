"""The checkpoint: the model and the positions of its stream, saved as one.

The state has one section a partition (next offset, and the counts of that partition's log alone);
the model is their sum. A checkpoint is made in this order, and learning goes on from step 2 on:

1. between two batches, counts **and** next offsets of every partition are frozen together;
2. the predictor answers everything it was asked up to there, and the sinks make safe what they were
   given;
3. counts and offsets, as they were frozen, go into one file: write, fsync, rename, fsync the
   folder;
4. positions are told to the source, for its lag tools only.

So the judgements of all messages up to the file's positions are safe before it stands. `saving`
carries the steps out; here are the folder and the file.

At the start and at every assignment of a partition the file's position wins over any other. So
after a kill at any instant the counts are, bit for bit, those of a run that was never killed. What
left by the sinks after the last checkpoint leaves again (at least once, with the message's id as
its key).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from consumers.config.sections import CheckpointSettings
from consumers.errors import CheckpointError, MismatchError
from consumers.messages import Partition, part_name, partition_of
from consumers.private_files import FILE_MODE, make_private_folder, tighten
from streamnb import NaiveBayes, StoreWarning, StreamnbError, save
from streamnb.errors import StoreError
from streamnb.serialization import FrozenModel
from streamnb.storage import older_files, positions_of, read

FILE_NAME = "model.nb"
# What the daemon keeps in the folder, by the beginnings of the names. Version 0.1.0 let everybody
# read it.
_OURS = (FILE_NAME, f".{FILE_NAME}", "corrections.jsonl", "recent.db", "erasures.jsonl")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Written:
    """What writing a checkpoint took."""

    n_bytes: int
    seconds: float


class Checkpoint:
    """The folder where the state is kept.

    Parameters
    ----------
    settings : CheckpointSettings
    identity : mapping
        What the stream is (topic, seed, ...): a checkpoint of another stream is refused.
    clock : callable
        Monotonic seconds.
    """

    def __init__(
        self,
        settings: CheckpointSettings,
        identity: Mapping[str, Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._identity = dict(identity)
        self._clock = clock
        self._due_at = clock() + settings.interval_s
        self._written_at: float | None = None

    @property
    def path(self) -> Path | None:
        """The file, or None where nothing is kept."""
        folder = self._settings.folder
        return None if folder is None else folder / FILE_NAME

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep every other process off the folder; two would overwrite each other's counts.

        The lock ends with the process, however that ends. Where the file system knows no locks,
        nothing is kept off.

        Raises
        ------
        CheckpointError
            Where another process uses the folder.
        """
        path = self.path
        if path is None:
            yield
            return
        _make_folder(path.parent)
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(folder)
            raise CheckpointError(
                f"checkpoint.folder {path.parent}: another streamnb uses it. Stop that one, or "
                "name another folder."
            ) from None
        except OSError as error:
            log.warning("checkpoint_folder_without_lock", detail=str(error))
        tighten(each for prefix in _OURS for each in sorted(path.parent.glob(prefix + "*")))
        with contextlib.suppress(OSError):  # a save that was killed; it holds words, and is no use
            fresh = path.with_name(f".{FILE_NAME}.new")
            if not fresh.is_symlink():
                fresh.unlink(missing_ok=True)
        try:
            yield
        finally:
            os.close(folder)

    def is_due(self) -> bool:
        """Tell whether the interval is over."""
        return self.path is not None and self._clock() >= self._due_at

    def age_s(self) -> float | None:
        """Return how long ago this run wrote its last checkpoint; None before the first."""
        return None if self._written_at is None else self._clock() - self._written_at

    def postpone(self) -> None:
        """Begin the next interval, after a checkpoint or a failed one."""
        self._due_at = self._clock() + self._settings.interval_s

    def restore(self, fresh: NaiveBayes) -> tuple[NaiveBayes, dict[Partition, int]]:
        """Return the saved model and its positions; `fresh` and none where nothing was saved yet.

        Raises
        ------
        MismatchError
            Where the saved state is of another configuration or another stream.
        CheckpointError
            Where none of the kept files can be read.
        """
        path = self.path
        if path is None:
            return fresh, {}
        _make_folder(path.parent)
        if not path.exists() and not older_files(path):
            return fresh, {}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", StoreWarning)
            try:
                stored = read(path)
            except StreamnbError as error:
                raise CheckpointError(
                    f"{error} No kept file can be used; move {path.parent} away to learn anew from"
                    " the start."
                ) from error
        for warning in caught:
            log.error("checkpoint_damaged", detail=str(warning.message))
        self._refuse_other(path, fresh, stored.model, stored.header["notes"])
        for name, group in fresh.describe()["groups"].items():
            if "max_words" in group:
                stored.model.set_max_words(name, group["max_words"])
        # The configuration decides what may join from here on, not the file: older ones cannot say.
        stored.model.new_classes = fresh.new_classes
        log.info("restored", path=str(stored.path), n_examples=stored.model.n_examples)
        return stored.model, {partition_of(name): at for name, at in stored.positions.items()}

    def write(self, model: NaiveBayes | FrozenModel, positions: Mapping[Partition, int]) -> Written:
        """Write model and positions as one file.

        Raises
        ------
        CheckpointError
            Where it cannot be written; the file before it still stands.
        """
        path = self.path
        if path is None:
            return Written(0, 0.0)
        began = self._clock()
        try:
            size = save(
                model,
                path,
                positions={part_name(p): at for p, at in positions.items()},
                notes=self._identity,
                keep=self._settings.keep,
                mode=FILE_MODE,  # the vocabulary is people's words
            )
        except StreamnbError as error:
            raise CheckpointError(f"checkpoint.folder: {error}") from error
        self._written_at = self._clock()
        return Written(size, self._written_at - began)

    def applied(self, partition: Partition) -> int:
        """Return up to where every kept file knows a log: what is before it is read never again.

        Not to be called while one is being written.
        """
        path = self.path
        if path is None:
            return 0
        name = part_name(partition)
        try:
            return min(positions_of(each).get(name, 0) for each in (path, *older_files(path)))
        except StoreError as error:  # it may be mended: then all of the log is needed
            log.warning("checkpoint_not_readable", detail=str(error))
            return 0

    def _refuse_other(
        self, path: Path, fresh: NaiveBayes, stored: NaiveBayes, notes: Mapping[str, Any]
    ) -> None:
        ours = {"model": _comparable(fresh), "stream": self._identity}
        theirs = {"model": _comparable(stored), "stream": dict(notes)}
        found = [
            f"  {where}: the checkpoint has {old!r}, the configuration {new!r}"
            for where, old, new in differences(theirs, ours)
        ]
        if found:
            raise MismatchError(
                f"{path} was made by another configuration:\n"
                + "\n".join(found)
                + "\nPut the configuration back, or name another checkpoint.folder to learn anew."
            )


def _make_folder(folder: Path) -> None:
    try:
        make_private_folder(folder)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint.folder {folder}: cannot be made ({error.strerror}). Name another folder."
        ) from error


def _comparable(model: NaiveBayes) -> dict[str, Any]:
    """Return a model's description without the bound on its words, which may always be moved."""
    description = model.describe()
    for group in description["groups"].values():
        group.pop("max_words", None)
    description["features"] = description.pop("groups")  # as the configuration calls them
    return description


def differences(old: Any, new: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, old, new) for each leaf in which two nested mappings differ."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*old, *new]):
            path = f"{where}.{key}" if where else str(key)
            yield from differences(old.get(key), new.get(key), path)
    elif old != new:
        yield where, old, new
