"""Parts of the model as files in a folder that the members of a consumer group share.

A part is a function of its partition's log up to a position, whoever learned it. So a file is named
by topic, partition, position and writer, is never overwritten, and any whole one is right; the
furthest of a partition wins. A member that is given a partition goes on from its furthest file, and
knows the other partitions by theirs. A process that wakes up after it has lost a partition can do
no harm: what it still writes is right, and no further than it got.

The folder may be on any file system that all members reach and that renames files in one step.
Files go once `keep` further ones of their partition are there.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import structlog

from consumers.errors import GroupError
from consumers.messages import Partition, part_name
from consumers.pipeline.checkpoint import mismatch
from consumers.private_files import FILE_MODE, make_private_folder
from streamnb import NaiveBayes, StreamnbError, save
from streamnb.state import ModelState
from streamnb.storage import read

_NAME = re.compile(r"(?P<position>[0-9]{20})-(?P<writer>[0-9a-f]{16})\.nb")
# What a kill amid writing leaves, and what was set aside: they hold words.
_LEFT = re.compile(r"\.?(?P<position>[0-9]{20})-[0-9a-f]{16}\.nb\.(new|damaged)")
_LEFT_S = 3600.0  # longer than anybody writes
log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class PartFile(NamedTuple):
    """A file of a part: where its log goes on, and who wrote it."""

    position: int
    writer: str

    @property
    def name(self) -> str:
        """Its name in the partition's folder."""
        return f"{self.position:020d}-{self.writer}.nb"


@dataclass(frozen=True, slots=True)
class LoadedPart:
    """A part as a file had it: its statistics as a model, its next offset, and when it was written.

    The time is that of the shared file system, in Unix seconds.
    """

    model: NaiveBayes
    position: int
    written_s: float


class PartFiles:
    """The part files of one stream.

    `identity` names the stream; files of another, or of another model than `like`, are refused, and
    so are those of a topic of the same name with another `topic_id`, once that is known. The
    `writer` tells the files of this process from those of others.
    """

    topic_id: str | None = None

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
        self._writer = secrets.token_hex(8) if writer is None else writer

    def partitions(self) -> list[Partition]:
        """Return the partitions that have a file."""
        with self._errors(self._folder):
            return sorted(
                Partition(unquote(topic.name), int(number.name))
                for topic in self._children(self._folder)
                for number in self._children(topic)
                if number.name.isdecimal() and self._files(number)
            )

    def furthest(self, partition: Partition) -> PartFile | None:
        """Return the file of a partition that got furthest; None if there is none."""
        folder = self._folder_of(partition)
        with self._errors(folder):
            return max(self._files(folder), default=None)

    def load(self, partition: Partition, beyond: int = -1) -> LoadedPart | None:
        """Return the furthest part of a partition whose position is above `beyond`; None if none.

        A damaged file is set aside and logged. If a file cannot be reached, or is another
        model's, it is a `GroupError`.
        """
        folder = self._folder_of(partition)
        with self._errors(folder):
            found = sorted(each for each in self._files(folder) if each.position > beyond)
        for each in reversed(found):
            path = folder / each.name
            try:
                with self._errors(path):
                    written_s = path.stat().st_mtime
                stored = read(path)
            except (StreamnbError, GroupError) as error:
                with self._errors(path):
                    if not path.exists():  # further files are there by now
                        return self.load(partition, beyond)
                if isinstance(error, GroupError):
                    raise
                if isinstance(error.__cause__, OSError):  # it may be whole
                    raise GroupError(f"group.folder: {error}") from error
                # Set aside, or as the furthest it would keep others from being written.
                with contextlib.suppress(OSError):
                    path.rename(path.with_name(f"{path.name}.damaged"))
                log.error("part_file_damaged", path=str(path), detail=str(error))  # noqa: TRY400
                continue
            notes = dict(stored.header["notes"])
            self._check_topic(path, notes.pop("topic_id", None))
            wrong = mismatch(self._like, self._identity, stored.model, notes)
            if wrong or stored.positions != {part_name(partition): each.position}:
                raise GroupError(
                    f"{path} was made by another configuration:\n{wrong}\nMembers of a group must "
                    "have the same model and stream: put the configuration right, or name another "
                    "group.folder."
                )
            return LoadedPart(stored.model, each.position, written_s)
        return None

    def write(self, state: ModelState, partition: Partition, position: int) -> int:
        """Write a part at its next offset, safe against kills; return its size in bytes.

        If a file of the partition has got as far already, nothing is written. `state` is frozen,
        and has the part. If the file cannot be written, it is a `GroupError`.
        """
        folder, name = self._folder_of(partition), part_name(partition)
        furthest = self.furthest(partition)
        if furthest is not None and furthest.position >= position:
            return 0
        with self._errors(folder):
            make_private_folder(folder)
        try:
            n_bytes = save(
                NaiveBayes.of(state).part(name),
                folder / PartFile(position, self._writer).name,
                positions={name: position},
                notes=self._identity | {"topic_id": self.topic_id},
                mode=FILE_MODE,
            )
        except StreamnbError as error:
            raise GroupError(f"group.folder: {error}") from error
        self._remove_old(folder)
        return n_bytes

    def begin(self, partition: Partition, position: int) -> None:
        """Write where a partition begins, of which nothing is learned and no file is there yet."""
        if self.furthest(partition) is None:
            nothing = self._like.clone()
            nothing.set_part(part_name(partition), self._like)
            self.write(nothing.state, partition, position)

    def _check_topic(self, path: Path, topic_id: str | None) -> None:
        if None not in (topic_id, self.topic_id) and topic_id != self.topic_id:
            raise GroupError(
                f"{path} is of the topic with the id {topic_id}, which was deleted and made anew: "
                f"it has the id {self.topic_id} now. To learn the new one from its start, name "
                "another group.folder and another checkpoint.folder; to keep what was learned, "
                "give the daemons another topic."
            )

    def _remove_old(self, folder: Path) -> None:
        """Remove the files behind the furthest `keep`, also those that were left unfinished."""
        with contextlib.suppress(OSError):  # another member may be at it too
            found = sorted(self._files(folder))
            for each in found[: -self._keep]:
                (folder / each.name).unlink(missing_ok=True)
            old_s = (folder / found[-1].name).stat().st_mtime - _LEFT_S
            for path in folder.iterdir():
                left = _LEFT.fullmatch(path.name)
                is_behind = left and int(left["position"]) < found[-self._keep :][0].position
                if is_behind and path.stat().st_mtime < old_s:
                    path.unlink(missing_ok=True)

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
        return [PartFile(int(each["position"]), each["writer"]) for each in found if each]

    @contextlib.contextmanager
    def _errors(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise GroupError(
                f"group.folder: {path} cannot be used ({error.strerror or error}). All members of "
                "the group must reach it, and may read and write there."
            ) from error
