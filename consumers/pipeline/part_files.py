"""Parts of the model as files in a folder that the members of a consumer group share.

A part is a function of its partition's log up to a position, whoever learned it. So a file is named
by topic, partition, position and writer, is never overwritten, and any whole one is right; the
furthest of a partition wins, and of several at one place that of the last writer by name: for all
members the same. A member that is given a partition goes on from its furthest file, and
knows the other partitions by theirs. A process that wakes up after it has lost a partition can do
no harm: what it still writes is right, and no further than it got.

With a part goes what is remembered of its messages: the sealed segments of its records as files of
their own, named by their contents and written before the part file that names them, and the open
one in that file. So a segment is written once, as long as nothing of it is erased.

The folder may be on any file system that all members reach and that renames files in one step.
Part files go once `keep` further ones of their partition are there, segments with the last part
file that names them.
"""

from __future__ import annotations

import contextlib
import math
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import structlog
from msgspec import DecodeError, Meta, Struct, ValidationError, convert, field
from msgspec.json import decode, encode
from msgspec.structs import asdict

from consumers.config.model import MODEL, READING, ModelSettings
from consumers.config.settings import Settings
from consumers.errors import GroupError, GroupMismatchError
from consumers.features import build_model, read_alike
from consumers.messages import CLASSES_MAX, Partition, part_name
from consumers.pipeline.checkpoint import FILE_NAME, comparable, mismatch, serving_in, take_settings
from consumers.pipeline.erasure import Deletion
from consumers.private_files import (
    FILE_MODE,
    first_written,
    make_private_folder,
    sync_folder,
    write_private,
)
from streamnb import NaiveBayes, StreamnbError, save
from streamnb.errors import StoreError, StoreVersionError
from streamnb.state import ModelState
from streamnb.storage import Stored, groups_of, notes_of, older_files, read_model

_NAME = re.compile(r"(?P<position>[0-9]{20})-((?P<labels>[0-9]{20})-)?(?P<writer>[0-9a-f]{16})\.nb")
# What a kill amid writing leaves, and what was set aside: they hold words.
_LEFT = re.compile(r"\.?(?P<position>[0-9]{20})-([0-9]{20}-)?[0-9a-f]{16}\.nb\.(new|damaged)")
_SEGMENT = re.compile(r"\.?(?P<name>[0-9]+-[0-9a-f]{32}\.records)((-[0-9a-f]{16})?\.new)?")
_LEFT_S = 3600.0  # longer than anybody writes
_TIMES = "times"
_RECORDS = "records"  # a part file's note of what is remembered, and its array of the open segment
_DELETIONS = "deletions"  # its array of those that its records are still to lose, as JSON
log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class PartFile(NamedTuple):
    """A file of a part: where its log and that of its corrections go on, and who wrote it.

    Files are ordered by these: of a partition the last one is everybody's part.
    """

    position: int
    labels: int  # 0 if none was applied
    writer: str

    @property
    def name(self) -> str:
        """Its name in the partition's folder."""
        labels = f"-{self.labels:020d}" if self.labels else ""
        return f"{self.position:020d}{labels}-{self.writer}.nb"


class SharedRecords(Struct, frozen=True):
    """What is remembered of a part's messages: `values` are those of a checkpoint's entry.

    `sealed` has the files of sealed segments by number, `tail` the bytes of the open one. The
    files may change only under the `lock`. `deletions` are not erased there yet.
    """

    values: Mapping[str, Any]
    sealed: Mapping[int, Path]
    tail: bytes
    lock: AbstractContextManager[Any] = field(default_factory=nullcontext)
    deletions: Sequence[Deletion] = ()

    def read(self, number: int) -> bytes:
        """Return the bytes of a segment of the group's folder; one out of reach is an error."""
        path = self.sealed.get(number)
        if path is None:
            return self.tail
        with _errors(path):
            data = path.read_bytes() if path.exists() else b""
        # Of one that is gone or damaged, nothing is taken back: the others serve all the same.
        return data if _segment_name(number, data) == path.name else b""


_NOTHING = SharedRecords(
    {"records": 0, "is_whole": True, "first_offset": None, "files": []}, sealed={}, tail=b""
)


class LoadedPart(Struct, frozen=True):
    """A part as a file had it: its statistics as a model, its next offset, and when it was written.

    The time is that of the shared file system, in Unix seconds. `records` has what is remembered of
    its messages; None if its writer did not remember them. `labels` is the next offset of what
    people say of them, 0 if nothing of that was applied.
    """

    model: NaiveBayes
    position: int
    written_s: float
    records: SharedRecords | None = None
    labels: int = 0
    times: Sequence[float | None] | None = None  # of messages that decay or wait for labels
    writer: str = ""

    @property
    def file(self) -> PartFile:
        """The file that it was read from."""
        return PartFile(self.position, self.labels, self.writer)


class _Values(Struct):
    """What a part file must say of its records; see `LearnedMemory`."""

    records: Annotated[int, Meta(ge=0, lt=1 << 53)]
    is_whole: bool
    first_offset: Annotated[int, Meta(ge=-1, lt=1 << 62)] | None
    files: list[Annotated[int, Meta(ge=0, lt=1 << 53)]]
    fields: list[str] | None = None  # in the order of their columns; earlier versions name none
    short: list[tuple[Annotated[int, Meta(ge=0)], Annotated[int, Meta(ge=0)]]] = []


class _Records(Struct):
    values: _Values
    # No other file is ever opened.
    sealed: dict[
        Annotated[str, Meta(pattern=r"^[0-9]{1,16}\Z")],
        Annotated[str, Meta(pattern=r"^[0-9]{1,16}-[0-9a-f]{32}\.records\Z")],
    ]


class _Said(Struct):
    """What a part file's notes say beside its stream."""

    topic_id: str | None = None
    labels_id: str | None = None  # of the topic in which the labels' position is one
    records: _Records | None = None
    times: Annotated[list[float | None], Meta(min_length=2, max_length=4)] | None = None
    deletions: list[Deletion] = field(
        default_factory=list
    )  # of an array: a header has not the room


class _Begun(Struct):
    """Where the partitions of a topic ended as the group saw it first."""

    ends: dict[Annotated[int, Meta(ge=0)], Annotated[int, Meta(ge=0, lt=1 << 62)]]
    topic_id: str | None = None


_OWN = frozenset(_Said.__struct_fields__)


def _said_in(stored: Stored, path: Path) -> _Said:
    """Return what a part file says of its part; what is wrong is a `StoreError`."""
    try:
        said = convert(stored.header["notes"], _Said)
        if _DELETIONS in stored.extras:
            said.deletions = decode(stored.extras[_DELETIONS].tobytes(), type=list[Deletion])
    except DecodeError as error:
        raise StoreError(f"{path}: its notes are wrong ({error}).") from error
    if not all(each is None or math.isfinite(each) for each in said.times or ()):
        raise StoreError(f"{path}: its notes are wrong (times: {said.times}).")
    if said.records is not None and _RECORDS not in stored.extras:
        raise StoreError(f"{path}: it has no records, which its notes name.")
    return said


class PartFiles:
    """The part files of one stream.

    `identity` names the stream; files of another, or of another model than `like`, are refused, and
    so are those of a topic of the same name with another `topic_id`, once that is known, and those
    with positions in a topic of labels with another `labels_id`. The `writer` tells the files of
    this process from those of others.
    """

    topic_id: str | None = None
    labels_id: str | None = None
    _labels_met: str | None = None  # the first that a file had

    def __init__(
        self,
        folder: Path,
        identity: Mapping[str, Any],
        like: NaiveBayes,
        keep: int,
        writer: str | None = None,
    ) -> None:
        self._folder = folder
        self._identity = dict(identity)
        self._like = like
        self._keep = keep
        self.writer = secrets.token_hex(8) if writer is None else writer
        self.damaged: set[str] = set()  # files that were met so
        # By our own file of a segment: when that changed last, and its name here.
        self._segments: dict[Partition, dict[Path, tuple[int, str]]] = {}
        self._classes: list[str] = []  # those that joined at any member, in their order
        self._said_hybrids: set[str] = set()  # groups of files that were written with another one

    def partitions(self) -> list[Partition]:
        """Return the partitions that have a folder, whether or not that can be read."""
        with _errors(self._folder):
            return sorted(
                Partition(unquote(topic.name), int(number.name))
                for topic in self._children(self._folder)
                for number in self._children(topic)
                if number.name.isdecimal()
            )

    def furthest(self, partition: Partition) -> PartFile | None:
        """Return the file of a partition that got furthest; None if there is none."""
        folder = self._folder_of(partition)
        with _errors(folder):
            return max(self._files(folder), default=None)

    def load(self, partition: Partition, beyond: tuple[int | str, ...] = ()) -> LoadedPart | None:
        """Return the furthest part of a partition that is behind a place or file in their order.

        None if there is none: `beyond` may be a position, or with the labels', and the writer's.

        A damaged file is set aside and logged. If a file cannot be reached, or is another
        model's or version's, it is a `GroupError`.
        """
        folder = self._folder_of(partition)
        with _errors(folder):
            found = sorted(each for each in self._files(folder) if each > beyond)
        for each in reversed(found):
            path = folder / each.name
            try:
                with _errors(path):
                    written_s = path.stat().st_mtime
                stored = read_model(path)
                said = _said_in(stored, path)
            except (StreamnbError, GroupError) as error:
                with _errors(path):
                    if not path.exists():  # further files are there by now
                        return self.load(partition, beyond)
                if isinstance(error, GroupError):
                    raise
                if isinstance(error.__cause__, OSError):  # it may be whole
                    raise GroupError(f"group.folder: {error}") from error
                if isinstance(error, StoreVersionError):  # the others need it
                    raise GroupMismatchError(
                        f"group.folder: {error} Members that were brought to that version go on; "
                        "bring this one there too."
                    ) from error
                self._set_aside(path, error)
                continue
            self._check_topic(path, said.topic_id)
            self._check_labels(path, said.labels_id)
            notes = {name: own for name, own in stored.header["notes"].items() if name not in _OWN}
            wrong = mismatch(self._like, self._identity, stored.model, notes)
            if wrong or stored.positions != {part_name(partition): each.position}:
                raise GroupMismatchError(
                    f"{path} was made by another configuration:\n{wrong}\nMembers of a group must "
                    "have the same model and stream: put the configuration right, or name another "
                    "group.folder."
                )
            take_settings(stored.model, self._like, self._said_hybrids)
            records = None
            if said.records is not None:
                sealed = {int(k): folder / name for k, name in said.records.sealed.items()}
                tail = stored.extras[_RECORDS].tobytes()
                values = asdict(said.records.values)
                records = SharedRecords(values, sealed, tail, deletions=said.deletions)
            return LoadedPart(
                stored.model, each.position, written_s, records, each.labels, said.times,
                each.writer,
            )  # fmt: skip
        return None

    def refuse(self, partition: Partition, file: PartFile, error: Exception) -> GroupError:
        """Set a file aside whose part does not enter a model; return what is to be said."""
        path = self._folder_of(partition) / file.name
        self._set_aside(path, error)
        return GroupError(f"group.folder: {path} was set aside, start again: {error}")

    def _set_aside(self, path: Path, error: Exception) -> None:
        """Give a damaged file another name: as the furthest it would keep others from coming."""
        with contextlib.suppress(OSError):  # it is logged, and met again
            path.rename(path.with_name(f"{path.name}.damaged"))
        if str(path) not in self.damaged:
            self.damaged.add(str(path))
            log.error("part_file_damaged", path=str(path), detail=str(error))

    def write(
        self,
        state: ModelState,
        partition: Partition,
        position: int,
        records: SharedRecords | None = None,
        labels: int = 0,
        times: Sequence[float | None] | None = None,
    ) -> int:
        """Write a part at its next offset, safe against kills; return its size in bytes.

        If a file of the partition has got as far already, nothing is written. `state` is frozen,
        and has the part; `records`, `labels` and `times` are as of the same place. If the file
        cannot be written, it is a `GroupError`.
        """
        folder, name = self._folder_of(partition), part_name(partition)
        furthest = self.furthest(partition)
        if furthest is not None and furthest[:2] >= (position, labels):
            return 0
        with _errors(folder):
            make_private_folder(folder)
        notes = self._identity | {"topic_id": self.topic_id}
        if labels_id := self.labels_id or self._labels_met:  # its position is of the one met
            notes["labels_id"] = labels_id
        if times is not None:
            notes[_TIMES] = list(times)
        sealed: dict[int, str] = {}
        extras = None
        if records is not None:
            known, shared = self._segments.get(partition, {}), {}
            for number, path in records.sealed.items():
                with records.lock:
                    shared[path] = self._share(folder, number, path, known.get(path))
                sealed[number] = shared[path][1]
            self._segments[partition] = shared
            notes[_RECORDS] = {"values": dict(records.values), "sealed": sealed}
            extras = {_RECORDS: np.frombuffer(records.tail, np.uint8)}
            if records.deletions:
                extras[_DELETIONS] = np.frombuffer(encode(records.deletions), np.uint8)
        try:
            n_bytes = save(
                NaiveBayes.of(state).part(name),
                folder / PartFile(position, labels, self.writer).name,
                positions={name: position},
                notes=notes,
                extras=extras,
                mode=FILE_MODE,
            )
        except StreamnbError as error:
            raise GroupError(f"group.folder: {error}") from error
        self._remove_old(folder, set(sealed.values()))
        return n_bytes

    def begin(self, partition: Partition, position: int) -> None:
        """Write where a partition begins, of which nothing is learned and no file is there yet."""
        if self.furthest(partition) is None:
            nothing = self._like.clone()
            nothing.set_part(part_name(partition), self._like)
            self.write(nothing.state, partition, position, _NOTHING)

    def take_class(self, topic: str, label: str) -> bool:
        """Return whether a class may join the models of the group: they have room for so many.

        Each that joins has a numbered file, which one member alone can make. If that cannot be read
        or made, it is a `GroupError`.
        """
        known, n_max = self._classes, CLASSES_MAX - len(self._like.classes)
        folder = self._folder / quote(topic, safe="") / "classes"
        while label not in known and len(known) < n_max:
            path = folder / f"{len(known):02d}"
            with _errors(path):
                known.append(first_written(path, label.encode(), self.writer).decode())
        return label in known

    def beginnings(
        self, topic: str, topic_id: str | None, ends: Mapping[Partition, int]
    ) -> dict[Partition, int]:
        """Return where the group begins: where the logs ended as its first member saw the topic.

        Whoever is first says it for all partitions, by their `ends`: one that is not among these
        was added later, whoever reads it. If that cannot be read or made, it is a `GroupError`.
        """
        path = self._folder / quote(topic, safe="") / "beginnings" / "00"
        own = _Begun({each.partition: at for each, at in ends.items()}, topic_id)
        try:
            with _errors(path):
                said = decode(first_written(path, encode(own), self.writer), type=_Begun)
        except DecodeError as error:
            raise GroupError(
                f"group.folder: {path} is damaged ({error}). Move it away while no member runs: "
                "partitions that no member has read yet then begin where they end."
            ) from error
        self.topic_id = topic_id
        self._check_topic(path, said.topic_id)
        return {Partition(topic, number): at for number, at in said.ends.items()}

    def _check_topic(self, path: Path, topic_id: str | None) -> None:
        if None not in (topic_id, self.topic_id) and topic_id != self.topic_id:
            raise GroupMismatchError(
                f"{path} is of the topic with the id {topic_id}, which was deleted and created "
                f"again: it has the id {self.topic_id} now. To learn the new one from its start, "
                "name another group.folder and another checkpoint.folder; to keep what was "
                "learned, give the daemons another topic."
            )

    def know_labels(self, labels_id: str) -> None:
        """Set the id of the labels' topic; files of another one are a `GroupMismatchError`."""
        self.labels_id = labels_id
        self._check_labels(self._folder, self._labels_met)

    def _check_labels(self, path: Path, labels_id: str | None) -> None:
        """Refuse a file's position in another topic of labels; None: its writer knew no id."""
        self._labels_met = self._labels_met or labels_id
        if labels_id is not None and labels_id != (ours := self.labels_id or self._labels_met):
            raise GroupMismatchError(
                f"{path} has positions in a topic of labels with the id {labels_id}, which is "
                f"another topic now, or was deleted and created again: the id is {ours}. Name the "
                "former topic, or another group.folder and checkpoint.folder to learn all again."
            )

    def _remove_old(self, folder: Path, named: set[str]) -> None:
        """Remove the files behind the furthest `keep`, also those that were left unfinished.

        The newest part file has `named` segments.
        """
        with contextlib.suppress(OSError, StoreError):  # another member may be at it too
            found = sorted(self._files(folder))
            gone, kept = found[: -self._keep], found[-self._keep :]
            old_s = (folder / found[-1].name).stat().st_mtime - _LEFT_S
            others = [path for path in folder.iterdir() if not _NAME.fullmatch(path.name)]
            unnamed = [each.name for each in others if _SEGMENT.fullmatch(each.name)]
            dropped: set[str] = set()
            if not named.issuperset(unnamed):
                named = named.union(*(_segments_of(folder / each.name) for each in kept))
                dropped.update(*(_segments_of(folder / each.name) for each in gone))
            for each in gone:
                (folder / each.name).unlink(missing_ok=True)
            for path in others:
                left, segment = _LEFT.fullmatch(path.name), _SEGMENT.fullmatch(path.name)
                is_left = left and int(left["position"]) < kept[0].position
                is_left = is_left or (segment and path.name not in named)
                if is_left and (path.name in dropped or path.stat().st_mtime < old_s):
                    path.unlink(missing_ok=True)

    def _share(
        self, folder: Path, number: int, path: Path, known: tuple[int, str] | None
    ) -> tuple[int, str]:
        """Copy a sealed segment to the folder if it is not there; return its change, its name."""
        with _errors(path):
            changed_ns = path.stat().st_mtime_ns
            if known is not None and known[0] == changed_ns and (folder / known[1]).exists():
                return known
            data = path.read_bytes()
        name = _segment_name(number, data)
        with _errors(folder):
            if not (folder / name).exists():
                fresh = folder / f".{name}-{self.writer}.new"
                write_private(fresh, data)
                fresh.replace(folder / name)
                sync_folder(folder)
        return changed_ns, name

    def _folder_of(self, partition: Partition) -> Path:
        return self._folder / quote(partition.topic, safe="") / str(partition.partition)

    @staticmethod
    def _children(folder: Path) -> list[Path]:
        return [each for each in folder.iterdir() if each.is_dir()] if folder.exists() else []

    @staticmethod
    def _files(folder: Path) -> list[PartFile]:
        try:
            names = [each.name for each in folder.iterdir()]
        except FileNotFoundError:
            return []
        found = [_NAME.fullmatch(name) for name in names]
        return [
            PartFile(int(each["position"]), int(each["labels"] or 0), each["writer"])
            for each in found
            if each
        ]


def as_stored(settings: Settings) -> Settings:
    """Return settings whose words are read as in the state that is there, where they do not say.

    The group's part files come first: all its members read alike. Files that cannot be read are
    left to those that load them.
    """
    paths: list[Path] = []
    if settings.group.folder is not None:
        folder = settings.group.folder / quote(settings.source_address.topic or "", safe="")
        with contextlib.suppress(OSError):
            paths += sorted(each for each in folder.glob("*/*.nb") if _NAME.fullmatch(each.name))
    if settings.checkpoint.folder is not None:
        checkpoint = settings.checkpoint.folder / FILE_NAME
        paths += [checkpoint, *older_files(checkpoint)]
    for path in paths:
        with contextlib.suppress(StoreError):
            stored = _described(path, settings)
            model = read_alike(settings.model, stored[MODEL]["groups"])
            is_other = build_model(model).describe() != build_model(settings.model).describe()
            if is_other:
                log.info(
                    "words_read_as_stored",
                    detail=f"words are read as in {path}: other than a new model reads them, as "
                    f"the configuration does not say ({', '.join(READING)} of a feature group)",
                )
            others = {}
            for name, each in settings.challengers.items():
                own = read_alike(each.beside(model), stored.get(name, {}).get("groups", {}))
                if name not in stored or _is_changed(own, stored[name]):
                    # One that is new reads as it would have from the beginning on.
                    known = stored[MODEL]["groups"] if is_other else {}
                    own = read_alike(each.beside(model), known)
                others[name] = each.model_copy(update={"features": own.features})
            return settings.model_copy(update={"model": model, "challengers": others})
    return settings


def _is_changed(settings: ModelSettings, stored: Mapping[str, Any]) -> bool:
    """Return whether a challenger is another one than the stored description's."""
    ours, theirs = comparable(build_model(settings).describe()), comparable(stored)
    if ours.get("prior_half_life") != theirs.get("prior_half_life") and "half_life_s" in theirs:
        return True  # without the key it has none
    keys = ("class_prior", "half_life_s", "features")
    return any(ours[key] != theirs[key] for key in keys if key in theirs)


def _described(path: Path, settings: Settings) -> dict[str, Any]:
    """Return how the models of a file are described, of the checkpoint's own the groups alone.

    `model` is the one that the settings call so.
    """
    own, notes = {"groups": groups_of(path)}, notes_of(path)
    serving = serving_in(notes)
    said = notes.get("entries", {}).get("challengers", {"models": {}})
    found = {name: each["model"] for name, each in said["models"].items() if "model" in each}
    if serving not in settings.challengers:  # what serves is `model`, or is refused
        serving = MODEL
    return found | {serving: own}


def _segment_name(number: int, data: bytes) -> str:
    return f"{number}-{blake2b(data, digest_size=16).hexdigest()}.records"


def _segments_of(path: Path) -> list[str]:
    """Return the names of the segments that a part file names; a damaged one names none."""
    try:
        said = convert(notes_of(path), _Said)
    except ValidationError:
        return []
    except StoreError as error:
        if isinstance(error.__cause__, OSError):  # it may be whole
            raise
        return []
    return [] if said.records is None else list(said.records.sealed.values())


@contextlib.contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = error.filename if isinstance(error.filename, str) else path
        raise GroupError(
            f"group.folder: {place} cannot be used ({error.strerror or error}). All members of the "
            "group must reach it, and may read and write there: files are for the user alone who "
            "runs a member, so let one user run all of them."
        ) from error
