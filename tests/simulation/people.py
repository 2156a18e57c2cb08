"""What people do in a run: they hand in corrections, and try those again that are refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from consumers.corrections.journal import FILE_NAME
from consumers.corrections.model import CorrectionError
from consumers.messages import Partition, part_name
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.world import Daemon, World

CORRECTION_TOPIC = "corrections"
JOURNAL_LOG = Partition(f"journal:{FILE_NAME}", 0)
_TRIES = 5
Said = tuple[str, str | None]  # an id, and its label; None if it was deleted


class WrongError(Exception):
    """Something is not as it must be."""


class People:
    """Whoever corrects messages: `asking` has what is under way, with who is asked."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._acked: dict[str, Said] = {}  # by the place of its receipt
        self._n_asked = 0
        self.asking: dict[int, Process | None] = {}

    def correct(self, number: int, what: Mapping[str, Any]) -> None:
        """Hand in a correction to a daemon, and then to the others."""
        self._n_asked += 1
        self._ask(number, self._n_asked, what, _TRIES)

    def after_death(self, process: Process) -> None:
        """Give up what a process was asked that is dead: nobody knows what became of it."""
        self.asking = {n: asked for n, asked in self.asking.items() if asked is not process}

    def _ask(self, number: int, n: int, what: Mapping[str, Any], tries: int) -> None:
        """Hand in a correction as a client does; one that is refused is tried again later."""
        world, name, label = self._world, what["id"], what["label"]
        each = world.daemons[number % len(world.daemons)]
        service, process = each.service, each.process

        def again() -> None:
            self.asking[n] = None
            at_s = world.scheduler.now_s + 0.4
            if tries:
                world.scheduler.call_at(at_s, lambda: self._ask(number + 1, n, what, tries - 1))
            else:
                del self.asking[n]

        def ask() -> None:
            assert service is not None
            try:
                receipt = service.delete(name) if label is None else service.label(name, label)
            except CorrectionError:
                world.report["corrections refused"] += 1
                again()
                return
            self._acked[receipt.position.partition("@")[2]] = name, label
            world.report["corrections taken"] += 1
            del self.asking[n]

        if not each.is_up or service is None or process is None:
            again()
        else:
            self.asking[n] = process
            world.scheduler.start(process, ask, "client")

    # ---- what was said -------------------------------------------------------------------------

    def said(self, positions: Mapping[str, int], each: Daemon) -> list[Said]:
        """Return the corrections before some positions, each log's in its order."""
        applied = positions.get(part_name(JOURNAL_LOG), 0)
        found = [said for at, said in self.journal(each, applied).items() if at < applied]
        for partition in self._world.corrections.logs:
            own = self._topic(partition)
            found += list(own.values())[: positions.get(part_name(partition), 0)]
        return found

    def logs(self, each: Daemon) -> list[list[Said]]:
        """Return all that people said, each log's in its order."""
        if len(self._world.daemons) == 1:
            return [list(self.journal(each).values())]
        return [list(self._topic(each).values()) for each in self._world.corrections.logs]

    def lost(self) -> dict[str, Said]:
        """Return what was acknowledged, and does not stand where it was said to."""
        world = self._world
        if len(world.daemons) == 1:
            kept = {str(at): said for at, said in self.journal(world.daemons[0]).items()}
        else:
            logs = world.corrections.logs
            kept = {at: said for each in logs for at, said in self._topic(each).items()}
        return {at: said for at, said in self._acked.items() if kept.get(at) != said}

    def _topic(self, partition: Partition) -> dict[str, Said]:
        """Return the corrections of a partition by their places, as receipts name them."""
        number = f"{partition.partition}:" if partition.partition else ""
        lines = [json.loads(line or b"{}") for line in self._world.broker.log(partition)]
        return {f"{number}{at}": (each["id"], each.get("label")) for at, each in enumerate(lines)}

    def journal(self, each: Daemon, applied: int = sys.maxsize) -> dict[int, Said]:
        """Return the corrections of a daemon's journal by their places.

        A kill or a power cut may tear a line while a text is erased from it, if the line stands
        before `applied` and nobody needs it any more: it counts for what it said before.
        """
        path = each.folder / "state" / FILE_NAME
        data = path.read_bytes() if path.exists() else b""
        found, at = dict[int, Said](), 0
        for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            try:
                said = json.loads(line)
            except ValueError:
                said = {}
            if said:
                found[at] = said["id"], said.get("label")
            elif at < applied and at in each.corrections:
                found[at] = each.corrections[at]
            else:
                raise WrongError(f"daemon {each.number}: the journal's line at {at} is {line!r}")
            at += len(line)
        each.corrections = found
        return found
