"""What the page searches at the end of a run: each daemon's file of recent messages, read as rows.

The file is read by SQL alone. It may lack messages, as a sample is stored, and as a power cut takes
it; whatever it holds is what the log, and people, say of that message by now, and stands there
once. It lacks none if nothing was sampled, cut off or failed.

A member of a group hears of the deletes and updates that it reads itself: a row of a partition that
it has left may be older. What people say all members read.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consumers.messages import Partition, part_name
from tests.simulation import checker
from tests.simulation.people import WrongError
from tests.simulation.plan import WORDS

if TYPE_CHECKING:
    from tests.simulation.world import Daemon, World

FILE_NAME = "recent.db"
# What the log says of a store that could not write for a while: it may lack messages then.
_TROUBLES = {
    "recent_store_late", "recent_store_failed", "recent_store_broke", "recent_store_moved_aside",
    "recent_store_deleted", "history_incomplete",
}  # fmt: skip
Place = tuple[str, int]  # a partition's name, and an offset


@dataclass(frozen=True)
class Row:
    """A message as it is stored; classes by name."""

    key: int
    id: str
    at: Place
    text: str
    judged: str
    truth: str | None
    taught: str | None
    corrected: str | None


@dataclass
class Stored:
    """What a file holds; `found` has the keys of each word, `history` counts by step and class."""

    rows: list[Row] = field(default_factory=list)
    found: dict[str, set[int]] = field(default_factory=dict)
    history: dict[int, Counter[str]] = field(default_factory=dict)


def stored_in(path: Path) -> Stored:
    """Read a file of recent messages."""
    stored = Stored()
    with contextlib.closing(sqlite3.connect(path)) as db:
        classes, places = (
            [name for (name,) in db.execute(f"SELECT name FROM {table} ORDER BY code")]
            for table in ("class", "place")
        )
        names: dict[int | None, str | None] = {None: None, **dict(enumerate(classes))}
        for (number,) in db.execute("SELECT number FROM chunk ORDER BY number").fetchall():
            for key, name, place, offset, text, *codes in db.execute(
                "SELECT key, id, place, offset, text, label, truth, taught, corrected"
                f" FROM rows{number} ORDER BY key"
            ):
                at = part_name(Partition(*json.loads(places[place]))), offset
                stored.rows.append(Row(key, name, at, text, *(names[code] for code in codes)))  # type: ignore[arg-type]  # whatever was judged has a class
            for word in WORDS:
                found = db.execute(
                    f"SELECT rowid FROM words{number} WHERE words{number} MATCH ?",
                    (f'text : "{word}"',),
                )
                stored.found.setdefault(word, set()).update(key for (key,) in found)
        for step_s, counts in db.execute("SELECT step_s, counts FROM history"):
            by_class = struct.unpack(f"<{len(counts) // 8}q", counts)
            stored.history.setdefault(step_s, Counter()).update(
                dict(zip(classes, by_class, strict=False))
            )
    return stored


class Recent:
    """The stores of a run, and what is known of what they were told."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._troubled: set[Daemon] = set()
        self._n_handled = 0
        # By daemon and place: when it handled a message last, and in which of its lives.
        self._handled: dict[tuple[int, Place], tuple[int, int]] = {}
        self._n_begun = Counter[tuple[int, Place]]()  # how often it began to
        self._ended: set[tuple[int, int]] = set()  # lives that ended in order

    def note_event(self, event: Mapping[str, Any]) -> None:
        """Note what a daemon that lives says of its store."""
        task = self._world.scheduler.current
        if event["event"] in _TROUBLES and task is not None and not task.process.is_dead:
            self._troubled.add(self._world.owners[task.process])
            self._world.report[str(event["event"])] += 1

    def note_power_cut(self, each: Daemon) -> None:
        """Note that what was stored is lost."""
        self._troubled.add(each)

    def note_begun(self, each: Daemon, partition: Partition, offsets: Sequence[int]) -> None:
        """Note that a daemon handles messages; it may die meanwhile."""
        self._n_begun.update((each.number, (part_name(partition), at)) for at in offsets)

    def note_handled(self, each: Daemon, partition: Partition, offsets: Sequence[int]) -> None:
        """Note that a daemon has handled messages."""
        for offset in offsets:
            self._n_handled += 1
            at = each.number, (part_name(partition), offset)
            self._handled[at] = self._n_handled, each.lives

    def note_end(self, each: Daemon) -> None:
        """Note that a life ended in order."""
        self._ended.add((each.number, each.lives))

    # ---- what it must be -----------------------------------------------------------------------

    def check(self, begun: Mapping[Partition, int], late: Mapping[str, tuple[str, str]]) -> None:
        """Compare what the daemons have stored with what the checker says of the logs.

        `begun`: where reading began. `late`: what each id teaches, if labels come late.
        """
        logs, shown = dict(self._logs(begun)), set[Place]()
        for each in self._world.daemons:
            path = each.folder / "state" / FILE_NAME
            if not path.exists():
                raise WrongError(f"no messages are stored: daemon {each.number}")
            stored = stored_in(path)
            shown |= {row.at for row in stored.rows}
            self._world.report["rows compared"] += len(stored.rows)
            self._check_rows(each, stored, logs, late)
            self._check_words(each, stored)
            self._check_history(each, stored, logs)
        self._check_missing(logs, shown)

    def _check_missing(self, logs: Mapping[str, checker.Judged], shown: set[Place]) -> None:
        """Refuse that a message is nowhere: a checkpoint waits until those before it are stored."""
        people = self._by_people(self._world.daemons[0])
        wanted = {
            (name, at)
            for name, log in logs.items()
            for at, message in log.left().items()
            if people.get(message["id"]) != {None}
        }
        missing = wanted - shown
        if not self._troubled and "recent" in self._world.plan.settings:
            self._world.report["messages sampled out"] += len(missing)
        if all(map(self._is_whole, self._world.daemons)):
            self._world.report["pages whole"] += 1
            if missing:
                raise WrongError(f"shown by nobody: {sorted(missing)}")

    def _is_whole(self, each: Daemon) -> bool:
        """Return whether a daemon has stored all that it judged."""
        return each not in self._troubled and "recent" not in self._world.plan.settings

    def _logs(self, begun: Mapping[Partition, int]) -> Iterator[tuple[str, checker.Judged]]:
        """Yield what each log says of its messages, but those that were lost."""
        world = self._world
        for partition, log in world.topic.logs.items():
            begin, lost = begun.get(partition, 0), world.gaps[partition]
            said = {at: json.loads(log[at] or b"{}") for at in range(len(log))}
            read = {at: each for at, each in said.items() if at >= begin and at not in lost}
            yield part_name(partition), checker.judged(said, read)

    def _check_rows(
        self,
        each: Daemon,
        stored: Stored,
        logs: Mapping[str, checker.Judged],
        late: Mapping[str, tuple[str, str]],
    ) -> None:
        people = self._by_people(each)
        twice = [at for at, n in Counter(row.at for row in stored.rows).items() if n > 1]
        if twice:
            raise WrongError(f"stored twice: daemon {each.number}, {twice}")
        for row in stored.rows:
            name, offset = row.at
            message, given = logs[name].messages.get(offset), people.get(row.id)
            if message is None:
                raise WrongError(f"shown, and left out: daemon {each.number}, {row}")
            if (row.id, row.text) != (message["id"], message["text"]):
                raise WrongError(f"shown as another: daemon {each.number}, {row}, not {message}")
            taken_back = logs[name].taken_back(row.id, offset)
            if given == {None} or any(self._knows(each, row, (name, at)) for at in taken_back):
                raise WrongError(f"shown, and taken back: daemon {each.number}, {row}")
            self._world.report["rows that another member revised"] += bool(taken_back)
            label = message.get("label")
            taught = self._taught(each, row, late) if label is None else {label}
            if offset in logs[name].unread:  # an earlier life may have had a late label of it
                taught = taught | {row.taught}
            is_right = row.truth == label and (
                row.taught == row.corrected and row.corrected in given
                if given
                else row.corrected is None and row.taught in taught
            )
            if not is_right:
                raise WrongError(
                    f"another label is shown: daemon {each.number}, {row}, not of {given or taught}"
                )

    def _taught(
        self, each: Daemon, row: Row, late: Mapping[str, tuple[str, str]]
    ) -> set[str | None]:
        """Return what a message that came without a label may teach by now.

        Of a default the page is not told, nor of a label if the file could not be written.
        """
        if row.id not in late:
            return {None}
        is_told = "default" not in self._world.plan.settings["late_labels"]
        is_told &= len(self._world.daemons) == 1 and self._is_whole(each)
        return {late[row.id][1]} if is_told else {None, late[row.id][1]}

    def _knows(self, each: Daemon, row: Row, revision: Place) -> bool:
        """Return whether a daemon must know of a revision of a row.

        A daemon alone must, whatever came between. A member read it behind the row, and its life
        ended in order: else another may be the one that has read it again.
        """
        if len(self._world.daemons) == 1:
            return True
        said = self._handled.get((each.number, revision))
        stored = self._handled.get((each.number, row.at))
        if said is None or stored is None:
            return False
        return said > stored and (each.number, said[1]) in self._ended

    def _by_people(self, each: Daemon) -> dict[str, set[str | None]]:
        """Return what people said last of each id; of two logs either may be the last."""
        said: dict[str, set[str | None]] = {}
        for log in self._world.people.logs(each):
            for name, label in dict(log).items():
                said.setdefault(name, set()).add(label)
        return {name: {None} if None in labels else labels for name, labels in said.items()}

    def _check_words(self, each: Daemon, stored: Stored) -> None:
        """Compare what is found by a word with the rows that have it."""
        for word in WORDS:
            found = stored.found.get(word, set())
            wanted = {row.key for row in stored.rows if word in row.text.split()}
            if found != wanted:
                raise WrongError(
                    f"found elsewhere: daemon {each.number}, {word}, {found}, not {wanted}"
                )

    def _check_history(
        self, each: Daemon, stored: Stored, logs: Mapping[str, checker.Judged]
    ) -> None:
        """Compare the counts over time with the rows: each was counted, once.

        What came once, and has gone, is counted no more. What came again, as after a kill, may be:
        its row may be of another class than its count. So may what a person deleted before it came.
        """
        by_step = [+counts for counts in stored.history.values()]
        if any(counts != by_step[0] for counts in by_step):
            raise WrongError(f"steps differ in their counts: daemon {each.number}, {by_step}")
        counts = by_step[0] if by_step else Counter[str]()
        rows, shown = Counter(row.judged for row in stored.rows), {row.at for row in stored.rows}
        ids = {
            (name, at): own["id"] for name, log in logs.items() for at, own in log.messages.items()
        }
        came, people = ids.keys() - shown, self._by_people(each)
        again = {at for (who, at), n in self._n_begun.items() if who == each.number and n > 1}
        if self._is_whole(each):
            came = {at for at in came if at in again or people.get(ids[at]) == {None}}
        if not rows.total() <= counts.total() <= rows.total() + len(came):
            raise WrongError(
                f"others are counted: daemon {each.number}, {counts}, not {rows}, beside {came}"
            )
        if self._is_whole(each) and not came and not again:
            self._world.report["counts by class compared"] += 1
            if counts != rows:
                raise WrongError(
                    f"other classes are counted: daemon {each.number}, {counts}, not {rows}"
                )
