"""Where reading begins, if that is not the start of a log: with `latest` it is decided once.

A daemon alone saves where each partition begins before it learns of it, and no later life may say
otherwise. A group has it in the first file of a partition: whoever reads that begins there. What
comes in before the first daemon starts is never read; a partition that the topic gets after that
was seen is read from its start.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consumers.messages import Partition, part_name
from tests.simulation.people import WrongError

if TYPE_CHECKING:
    from tests.simulation.world import Daemon, World


class Beginnings:
    """What is known of them in a run; all are 0 unless its daemons begin at the `latest`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_latest = world.plan.settings.get("kafka", {}).get("start_from") == "latest"
        self._known: dict[Partition, int] = {}  # of which something was saved, or shared
        self._at_least: dict[Partition, int] | None = None  # as the first daemon starts
        self._at_start: set[Partition] = set()  # the topic was known when it got these

    def note_start(self) -> None:
        """Note that a daemon starts: if it is the first, nothing of before is to be read."""
        if self._at_least is None:
            logs = self._world.topic.logs
            self._at_least = {each: len(log) for each, log in logs.items()}

    def note_growth(self, before: set[Partition]) -> None:
        """Note that the topic got partitions; a daemon that saved a position knew it already.

        A group that shares a file knew it too, whichever of its members is given the new ones.
        """
        is_group = len(self._world.daemons) > 1
        files = self._world.shared.rglob("*.nb") if is_group else ()
        if any(files) or (self._world.broker.committed and not is_group):
            self._at_start |= self._world.topic.logs.keys() - before

    def note_file(self, path: Path) -> None:
        """Note a part file that is there now: the first of its partition says where that begins."""
        partition = Partition(path.parent.parent.name, int(path.parent.name))
        if self._is_latest and partition not in self._known:
            self._know(partition, int(path.name[:20]))

    def note_files_lost(self, folder: Path) -> None:
        """Note what a power cut left of the group's folder."""
        for each in list(self._known):
            if not list((folder / each.topic / str(each.partition)).glob("*.nb")):
                del self._known[each]

    def note_learned(self, each: Daemon) -> None:
        """Note from where a process that is dead has learned: whoever comes later goes on there."""
        if self._is_latest and len(self._world.daemons) == 1 and each.pipeline is not None:
            begun = self._begun(each)
            for partition in each.pipeline.positions.keys() & begun.keys():
                self._know(partition, begun[partition])

    def now(self, each: Daemon) -> Mapping[Partition, int]:
        """Return where a daemon that runs begins."""
        return self._begun(each) | self._known if self._is_latest else {}

    def saved(self, header: Mapping[str, Any]) -> Mapping[Partition, int]:
        """Return where reading begins by the header of a checkpoint, or by the group's files."""
        if not self._is_latest:
            return {}
        facts = header["notes"].get("entries", {}).get("logs", {})
        logs = {part_name(each): each for each in self._world.topic.logs}
        begun = {logs[name]: own.get("begin", 0) for name, own in facts.items() if name in logs}
        if len(self._world.daemons) == 1:
            for partition, at in begun.items():
                self._know(partition, at)
        return begun | self._known

    def _know(self, partition: Partition, at: int) -> None:
        if self._known.setdefault(partition, at) != at:
            raise WrongError(f"{partition} began at {self._known[partition]}, and begins at {at}")
        if at < (self._at_least or {}).get(partition, 0):
            raise WrongError(f"{partition} begins at {at}: what was there before is not to be read")
        if at and partition in self._at_start:
            raise WrongError(f"{partition} begins at {at}, though it was added later")

    def _begun(self, each: Daemon) -> dict[Partition, int]:
        logs = None if each.pipeline is None else each.pipeline.logs
        begun = {} if logs is None else logs.begun
        return {at: facts.begin for at, facts in begun.items()}
