"""The checkpoint: the model and the positions of its stream, saved as one file.

The state has one section a partition: its next offset, and the counts of that partition's log
alone. The model is the sum of the sections. Further components may save a state of their own in the
same file, each as an entry. The steps of a checkpoint, in this order:

1. Between two batches, the consuming thread freezes the counts and the next offsets together, and
   queues a marker behind the messages that wait for the predictor. Learning continues.
2. When the predictor's thread reaches the marker, it has answered everything before it and flushes
   the sinks.
3. The checkpoint thread waits until the files of what messages taught are synced and, for five
   seconds at most, until the store of recent messages has written what came before the marker; then
   it writes the frozen counts and offsets to a new file and syncs it.
4. It renames the file over the last checkpoint and syncs the folder.
5. The reader reports the positions to the source, for lag tools only.

So the predictions of all messages before the file's positions are safe when the file appears.
`checkpoint_writer` carries out the steps; this module knows the folder and the file.

At the start and at every assignment of a partition the file's position wins over any other. So
after a kill at any instant the counts are, bit for bit, those of a run that was never killed. What
the sinks sent after the last checkpoint is sent again (at least once, keyed by message id); a file
goes on behind the lines that it has.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import structlog

from consumers.config.addresses import OWN_FILES, is_topic
from consumers.config.model import MODEL, READING
from consumers.config.sections import CheckpointSettings
from consumers.config.settings import Settings
from consumers.errors import CheckpointError, MismatchError, MovedError
from consumers.messages import (
    Checkpointed,
    CheckpointEntry,
    Partition,
    arrays_of,
    entries_of,
    part_name,
    partition_of,
    values_of,
)
from consumers.private_files import FILE_MODE, make_private_folder, tighten
from streamnb import NaiveBayes, StoreWarning, StreamnbError, save
from streamnb.errors import StoreError, StoreVersionError
from streamnb.state import ModelState
from streamnb.storage import older_files, positions_of, read_model

FILE_NAME = "model.nb"
# The daemon's files in the folder, by prefix. Version 0.1.0 let everybody read them.
_PREFIXES = (*OWN_FILES, f".{FILE_NAME}")
# Linux: what the name of a descriptor's folder leads to, wherever that stands by now.
_DESCRIPTORS = Path("/proc/self/fd")
_CHANGES = ("max_words", "hybrid")  # what `take_settings` changes
log = structlog.get_logger(__name__)


class SavedCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint on the disk: the next offsets in it, its size, and the time to write it."""

    positions: Mapping[Partition, int]
    n_bytes: int = 0
    seconds: float = 0.0


class Checkpoint:
    """The folder that holds the state.

    `identity` names the stream (topic, seed, ...): another stream's checkpoint is refused. `clock`
    returns monotonic seconds. `path` is the file, None if no folder is configured.
    """

    def __init__(
        self,
        settings: CheckpointSettings,
        identity: Mapping[str, Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        folder = settings.folder
        self.path = None if folder is None else folder / FILE_NAME
        self._identity = dict(identity)
        self._clock = clock
        self._due_at = clock() + settings.interval_s
        self._current_at: float | None = None
        self._folder: int | None = None  # the locked folder's descriptor
        self._entries: dict[str, CheckpointEntry] = {}  # restored, and not handed out yet
        self.serving = MODEL  # the name of the restored model among the challengers

    @property
    def own_folder(self) -> Path | None:
        """The locked folder itself, so that a write never lands in one that has its name by now."""
        if self._settings.folder is None or self._folder is None:
            return self._settings.folder
        return Path(_DESCRIPTORS, str(self._folder))

    @property
    def _own_path(self) -> Path | None:
        folder = self.own_folder
        return None if folder is None else folder / FILE_NAME

    def is_moved(self) -> bool:
        """Return whether the folder that is locked is elsewhere by now; any thread may ask.

        A deleted one is nowhere: checkpoints fail and are counted, and learning goes on.
        """
        path, folder = self.path, self._folder
        if path is None or folder is None:
            return False
        try:
            return not os.path.samestat(path.parent.stat(), os.fstat(folder))
        except FileNotFoundError:
            with contextlib.suppress(OSError):
                return os.fstat(folder).st_nlink > 0
            return False
        except OSError:  # it may be out of reach for a while
            return False

    def check_place(self) -> None:
        """Raise a `MovedError` if the folder is no longer at its path."""
        if self.path is not None and self.is_moved():
            if self._folder is not None and not os.fstat(self._folder).st_nlink:
                raise MovedError(
                    f"checkpoint.folder {self.path.parent}: it was deleted while streamnb used it, "
                    "and another folder has its name now, in which nothing was written. What was "
                    "learned is lost with it. Put a backup into the new folder, or leave it empty "
                    "to start from nothing, and start again."
                )
            raise MovedError(
                f"checkpoint.folder {self.path.parent}: it was moved or replaced while streamnb "
                "used it. What was learned is saved in the folder that was moved, and nothing was "
                "written into one that has its name now. Move it back, and start again."
            )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against other processes; two would overwrite each other's counts.

        The lock ends with the process, however that ends. A folder that another process uses is a
        `CheckpointError`; a file system without locks is used unlocked, with a warning.
        """
        path = self.path
        if path is None:
            yield
            return
        _make_folder(path.parent)
        try:
            folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint.folder {path.parent}: cannot be opened ({error.strerror}). See to its "
                "mode and the disk, or name another folder."
            ) from error
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
        self._folder = folder if _DESCRIPTORS.is_dir() else None
        tighten(each for prefix in _PREFIXES for each in sorted(path.parent.glob(prefix + "*")))
        with contextlib.suppress(OSError):  # left by a killed save; it holds words
            for fresh in (
                path.with_name(f".{FILE_NAME}.new"),
                path.with_name(f".{FILE_NAME}.1.new"),
            ):
                if not fresh.is_symlink():
                    fresh.unlink(missing_ok=True)
        try:
            yield
        finally:
            self._folder = None
            os.close(folder)

    def is_due(self) -> bool:
        """Return whether the interval is over."""
        return self.path is not None and self._clock() >= self._due_at

    def age_s(self) -> float | None:
        """Return for how long this run's last checkpoint may lack something; None before one."""
        return None if self._current_at is None else self._clock() - self._current_at

    def postpone(self) -> None:
        """Start the next interval, after a checkpoint or a failed one."""
        self._due_at = self._clock() + self._settings.interval_s

    def note_current(self) -> None:
        """Note that nothing was read since the last checkpoint, and start the next interval."""
        self._current_at = self._clock()
        self.postpone()

    def restore(
        self, fresh: NaiveBayes, challengers: Mapping[str, NaiveBayes] = MappingProxyType({})
    ) -> tuple[NaiveBayes, dict[Partition, int]]:
        """Return the saved model and its positions; `fresh` and none if nothing was saved yet.

        The saved model may be one of the `challengers`, given untrained, that was promoted.
        State of another configuration or stream is a `MismatchError`; if none of the kept files can
        be read, it is a `CheckpointError`.
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
                stored = read_model(path)
            except StreamnbError as error:
                raise CheckpointError(f"{error}{_way_out(error, path.parent)}") from error
        for warning in caught:
            log.error("checkpoint_damaged", detail=str(warning.message))
        notes = dict(stored.header["notes"])
        self._entries = entries_of(notes.pop("entries", {}), stored.extras)
        serving = serving_in(stored.header["notes"])
        if serving in challengers:
            self.serving, fresh = serving, challengers[serving]
        self._refuse_other(path, fresh, stored.model, notes, serving)
        take_settings(stored.model, fresh, set())
        log.info("restored", path=str(stored.path), n_examples=stored.model.n_examples)
        return stored.model, {partition_of(name): at for name, at in stored.positions.items()}

    def restore_entries(self, components: Iterable[Checkpointed]) -> None:
        """Let components go on from their entries in the file that `restore` read.

        A component without an entry begins again. An entry of no component is left out from the
        next checkpoint on, and the log names it. One that cannot be used is a `CheckpointError`.
        """
        for each in components:
            entry = self._entries.pop(each.name, None)
            if entry is None:
                continue
            try:
                each.unpack(entry)
            except (KeyError, TypeError, ValueError, StreamnbError) as error:
                raise CheckpointError(
                    f"{self.path}: its entry {each.name!r} cannot be used ({error!r}). Start the "
                    "version that wrote it, or move the folder away to start from nothing."
                ) from error
        if self._entries:
            log.warning("checkpoint_entries_left_out", names=sorted(self._entries))
            self._entries.clear()

    def write(
        self,
        model: NaiveBayes | ModelState,
        positions: Mapping[Partition, int],
        entries: Mapping[str, CheckpointEntry] | None = None,
    ) -> SavedCheckpoint:
        """Write model, positions and entries as one file; if that fails, the one before stays."""
        path = self._own_path
        if path is None or self.path is None:
            return SavedCheckpoint(positions)
        began = self._clock()
        try:
            size = save(
                model,
                path,
                positions={part_name(p): at for p, at in positions.items()},
                notes=self._identity | values_of(entries or {}),
                extras=arrays_of(entries or {}),
                keep=self._settings.keep,
                mode=FILE_MODE,  # the vocabulary holds people's words
            )
        except StreamnbError as error:
            said = str(error).replace(str(path), str(self.path))
            raise CheckpointError(f"checkpoint.folder: {said}") from error
        self._current_at = self._clock()
        return SavedCheckpoint(positions, size, self._current_at - began)

    def oldest_positions(self) -> dict[Partition, int]:
        """Return by log the offset before which no kept file will ever read again.

        Of a log that is not there, one may read from its start. Must not be called while a
        checkpoint is being written.
        """
        path = self._own_path
        if path is None:
            return {}
        try:
            newest, *older = map(positions_of, (path, *older_files(path)))
        except StoreError as error:  # it may be repaired, and then needs the whole log
            log.warning("checkpoint_not_readable", detail=str(error))
            return {}
        return {
            partition_of(name): min([at, *(each.get(name, 0) for each in older)])
            for name, at in newest.items()
        }

    def _refuse_other(
        self,
        path: Path,
        fresh: NaiveBayes,
        stored: NaiveBayes,
        notes: Mapping[str, Any],
        serving: str,
    ) -> None:
        is_named = serving == self.serving  # else all counts: what it displaced would be lost
        changes = _CHANGES if is_named else ()
        found = mismatch(fresh, self._identity, stored, notes, changes)
        if found and not is_named:
            raise MismatchError(
                f"{path} has the model of challengers.{serving}, which was promoted, and the "
                f"configuration has no such challenger; its model differs:\n{found}\n"
                f"Put challengers.{serving} back or write it as model, or go back to what served "
                "before: `streamnb model revert`."
            )
        if found:
            raise MismatchError(
                f"{path} was made by another configuration:\n{found}\n"
                "Put the configuration back, or name another checkpoint.folder to start "
                "from nothing."
            )


def _way_out(error: StreamnbError, folder: Path) -> str:
    """Return what to do if no kept file was read, beside what the error says."""
    if isinstance(error, StoreVersionError) or isinstance(error.__cause__, PermissionError):
        return ""
    if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, FileNotFoundError):
        return (
            " Start again once that has passed. If it stays, move the file away: the start behind"
            " that goes on from an older one, and reads the log again from there."
        )
    return f" No kept file can be used; move {folder} away to start from nothing."


def warn_of_left_topics(settings: Settings, positions: Iterable[Partition]) -> None:
    """Log the topics that a checkpoint has read and the settings name no more.

    The stream's own must be the same: see `Checkpoint`. A recording's are those it recorded.
    """
    source = settings.source_address
    said = settings.corrections.address.topic, settings.late_labels.address.topic
    read = {each.topic for each in positions} - {source.kind, source.topic, *said}
    left = sorted(topic for topic in read if is_topic(topic))
    if left and source.kind != "recording":
        log.warning(
            "topics_left",
            topics=left,
            detail="the checkpoint holds what they taught and how far they were read, and no "
            "setting names them any more: nothing of them is applied from here on, and texts of "
            "deletions that only later checkpoints would apply stay. Name them in corrections.to "
            "or late_labels.source to go on",
        )


def serving_in(notes: Mapping[str, Any]) -> str:
    """Return the name of a file's own model: `model`, or that of the challenger that serves."""
    values = notes.get("entries", {}).get("challengers", {})
    return str(values.get("serving", MODEL))


def mismatch(
    fresh: NaiveBayes,
    identity: Mapping[str, Any],
    stored: NaiveBayes,
    notes: Mapping[str, Any],
    changes: Sequence[str] = _CHANGES,
) -> str:
    """Return in what a stored model and its stream differ from ours, a line each; "" if nothing.

    Lines are of settings, as the configuration has them. Left aside are the options of groups
    among `changes`.
    """
    ours = {"model": comparable(fresh.describe(), changes), **_settings_of_stream(identity)}
    theirs = {"model": comparable(stored.describe(), changes), **_settings_of_stream(notes)}
    if ours["source"] != theirs["source"]:  # what the generator makes is no matter then
        ours["generator"] = theirs["generator"] = {}
    if fresh.new_classes and stored.classes[: len(fresh.classes)] == fresh.classes:
        theirs["model"]["classes"] = ours["model"]["classes"]  # the others joined
    return "\n".join(
        f"  {where}: the checkpoint has {_written(old)}, the configuration {_written(new)}"
        for where, old, new in differences(theirs, ours)
    )


def take_settings(stored: NaiveBayes, fresh: NaiveBayes, said: set[str]) -> None:
    """Give a stored model what the configuration may change without learning again.

    That is the bound on words, whether classes may join, and whether weights are learned beside the
    counts: they begin again or are dropped. The log says so of each group not in `said` yet.
    """
    for name, group in fresh.describe()["groups"].items():
        if "max_words" not in group:
            continue
        stored.set_max_words(name, group["max_words"])
        hybrid = fresh.state.groups[name].hybrid
        if stored.state.groups[name].hybrid != hybrid:
            stored.set_hybrid(name, hybrid)
            if name in said:
                continue
            said.add(name)
            fate = "were dropped" if hybrid is None else "are learned from here on, from nothing"
            log.warning(
                "hybrid_changed",
                detail=f"model.features.{name}.hybrid is not what it was when the counts were "
                f"saved. The counts go on as they are, and the weights beside them {fate}",
            )
    stored.new_classes = fresh.new_classes  # older files do not say
    for name, group in fresh.state.groups.items():
        stored.state.groups[name].in_order = group.in_order


def _make_folder(folder: Path) -> None:
    try:
        make_private_folder(folder)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint.folder {folder}: cannot be made ({error.strerror}). Name another folder."
        ) from error


def comparable(description: Mapping[str, Any], changes: Sequence[str] = _CHANGES) -> dict[str, Any]:
    """Return a model's description by names of settings, without options that may change."""
    groups = {}
    for name, given in description["groups"].items():
        group = {key: value for key, value in given.items() if key not in changes}
        if group["kind"] == "words":  # what is not there is off, and a refusal says so
            group |= {option: group.get(option, False) for option in READING}
        groups[name] = _settings_of_group(group)
    rest = {key: value for key, value in description.items() if key not in ("groups", "decay")}
    if "decay" in description:
        decay = description["decay"] or {"examples": None, "seconds": None}
        rest["half_life_s"] = decay["seconds"] if decay["examples"] is None else decay
    return rest | {"features": groups}


def _settings_of_group(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return a group's description by the names of its settings; different ones stay different."""
    settings = dict(group)
    if "field" in settings:
        settings["fields"] = [settings.pop("field")]
    family = dict(settings.pop("likelihood", {"name": None}))
    prior = dict(family.pop("prior", {}))
    settings |= {"likelihood": family.pop("name"), **family}
    if prior:
        name = prior.pop("name")
        settings["prior"] = "floor" if name == "variance_floor" else name.replace("_", "-")
        names = {"share": "variance_floor"}
        settings |= {names.get(key, f"prior_{key}"): value for key, value in prior.items()}
    return settings


def _settings_of_stream(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return what identifies a stream as `source` says it, and the rest as `generator` does."""
    forms = {"kafka": "kafka://…/", "file": "file:", "sse": "sse+", "lines": "lines+"}
    kind, places = identity.get("source"), ("topic", "name", "address")
    place = next((str(identity[key]) for key in places if key in identity), None)
    source = kind if place is None else forms.get(str(kind), "") + place
    made = {key: value for key, value in identity.items() if key not in ("source", *places)}
    return {"source": source, "generator": made}


def _written(value: Any) -> str:
    """Return a value as a configuration writes it: null, not None."""
    return json.dumps(value, ensure_ascii=False, default=str)


def differences(old: Any, new: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, old, new) for each leaf in which two nested mappings differ."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*old, *new]):
            path = f"{where}.{key}" if where else str(key)
            yield from differences(old.get(key), new.get(key), path)
    elif old != new:
        yield where, old, new


def unreadable(path: Path | None, error: OSError) -> CheckpointError:
    """Return what a segment's file that is there, and cannot be read now, ends the run with."""
    name, cause = "/".join((path or Path()).parts[-3:]), error.strerror or error
    way_out = "Start again once that has passed. If it stays, move the file away: deletes and "
    way_out += "updates of its messages then take nothing back."
    if isinstance(error, PermissionError):
        way_out = "See to its mode and owner, and start again."
    return CheckpointError(
        f"checkpoint.folder: {name}, with what messages taught, cannot be read ({cause}). {way_out}"
    )


def cut_file(path: Path, n_bytes: int) -> None:
    """Cut off what a run that was killed wrote to a file behind its last checkpoint."""
    try:
        os.truncate(path, n_bytes)
    except OSError as error:  # the file is whole: it is not given up
        raise CheckpointError(
            f"checkpoint.folder: {'/'.join(path.parts[-3:])}, with what messages taught, cannot be"
            f" cut to the {n_bytes} bytes that the checkpoint names ({error.strerror}, errno"
            f" {error.errno}). See to the disk's room and mode, and start again."
        ) from error
