"""A run of a plan: daemons, a broker and disks, until all is settled and compared.

Each daemon is the real one, from its source to its files; only its source's client, its HTTP server
and its kernels' warm-up are replaced. Whenever a daemon's checkpoint is read, after a kill and at
the end, its counts are those that the checker says of the positions in it. Members of a group that
have nothing left to read come to answer alike, to the bit.
"""

from __future__ import annotations

import errno
import json
import os
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from consumers import daemon
from consumers.config.settings import Settings
from consumers.corrections.journal import FILE_NAME
from consumers.corrections.service import CorrectionService
from consumers.errors import ConfigError, ConsumerError
from consumers.messages import Partition, part_name
from consumers.pipeline.loop import Pipeline
from consumers.terminal import View
from streamnb import NaiveBayes
from streamnb.errors import StoreError
from streamnb.storage import read
from tests.power_cut import PowerCut, put_back
from tests.simulation import bugs, checker
from tests.simulation.beginnings import Beginnings
from tests.simulation.broker import Broker
from tests.simulation.people import CORRECTION_TOPIC, JOURNAL_LOG, People, WrongError
from tests.simulation.plan import LABELS, WORDS, Event, Plan
from tests.simulation.recent import Recent
from tests.simulation.scheduler import BEGIN_S, Process, Scheduler, StuckError
from tests.system_calls import Call

TOPIC, LABEL_TOPIC = "tweets", "labels"
SETTLE_S = 90.0  # simulated
ALIKE_S = (
    12.0  # simulated: longer than a pause, then a checkpoint, then a look at the group's files
)
_GROWING_S = 2.0  # for which who starts may know the new partitions of one topic alone
TEXTS = [*WORDS, " ".join(WORDS)]


class _Unseen:
    """A view that nobody looks at."""

    def start(self) -> None:
        """Do nothing."""

    def update(self, status: object) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


@dataclass(eq=False)
class Daemon:
    """One member: its folder, which outlives its processes, and the process of now."""

    number: int
    folder: Path
    settings: Settings
    cut: PowerCut
    process: Process | None = None
    pipeline: Pipeline | None = None
    service: CorrectionService | None = None
    stop: Any = None
    starts_at_s: float | None = None  # None: at once
    loses_power: bool = False
    takes_along: list[float] | None = None  # all lose it then: how long each is down
    failing: list[tuple[str, int]] = field(default_factory=list)  # calls, and with what
    has_met_failure: bool = False  # a call failed in this life
    lives: int = 0
    corrections: dict[int, tuple[str, str | None]] = field(default_factory=dict)  # as last read
    _answers: tuple[object, bytes] = (None, b"")  # and the snapshot that they are of

    @property
    def is_up(self) -> bool:
        """Whether it runs."""
        return self.process is not None and not self.process.is_dead

    def answers(self) -> bytes:
        """Return what it answers to some texts, to the bit."""
        assert self.pipeline is not None
        snapshot = self.pipeline.learner._board.current()
        assert snapshot is not None
        if self._answers[0] is not snapshot:
            found = snapshot.predict_log_proba_many({"text": TEXTS})
            self._answers = snapshot, found.tobytes()
        return self._answers[1]


class World:
    """All that a run has; `report` counts what it met."""

    def __init__(self, plan: Plan, root: Path) -> None:
        self.plan, self.root = plan, root
        self.chance = random.Random(f"world {plan.seed}")
        self.scheduler = Scheduler(random.Random(f"scheduler {plan.seed}"))
        self.broker = Broker(self.scheduler, random.Random(f"broker {plan.seed}"))
        self.topic = self.broker.add_topic(TOPIC, plan.n_partitions)
        self.labels = self.broker.add_topic(LABEL_TOPIC, plan.n_partitions)
        self.corrections = self.broker.add_topic(CORRECTION_TOPIC, plan.n_partitions)
        self.gaps = defaultdict[Partition, set[int]](set)
        self.report: Counter[str] = Counter()
        self.n_comparisons = 0
        self.said: deque[str] = deque(maxlen=400)  # what daemons logged, for a failure
        self.people, self.beginnings, self.recent = People(self), Beginnings(self), Recent(self)
        self.is_settling = self.is_ending = False
        self.is_forgotten: Callable[[Call], bool] = bugs.nothing_is_forgotten
        self.owners: dict[Process, Daemon] = {}
        self.daemons = [self._daemon(number) for number in range(plan.n_daemons)]
        self.shared, self.shared_cut = root / "shared", None
        if any(event.kind == "blackout" for event in plan.events):
            self.shared_cut = PowerCut(self.shared)
        self.scheduler.on_death = self._after_death

    def running(self) -> Daemon:
        """Return the daemon whose thread runs."""
        task = self.scheduler.current
        assert task is not None
        return self.owners[task.process]

    def positions(self) -> dict[Partition, int]:
        """Return the positions of that daemon as they are now."""
        pipeline = self.running().pipeline
        assert pipeline is not None
        return pipeline.positions

    def note_gap(self, event: Mapping[str, Any]) -> None:
        """Note what a daemon says that it does not read; from an older position it is no less."""
        gaps = {}
        if event["event"] == "messages_lost":
            gaps[event["partition"]] = event["went_on_at"] - event["lost"], event["went_on_at"]
            self.report["messages lost"] += event["lost"]
        elif event["event"] == "records_may_come_twice":
            self.report["records may come twice"] += 1
        elif event["event"] == "reading_begins" and self.plan.n_daemons == 1:
            gaps = {name: (0, at) for name, at in event["positions"].items()}
        for partition in self.topic.logs:
            self.gaps[partition].update(range(*gaps.get(str(partition), (0, 0))))

    def _daemon(self, number: int) -> Daemon:
        folder = self.root / f"daemon-{number}"
        folder.mkdir()
        given: dict[str, Any] = {name: dict(own) for name, own in self.plan.settings.items()}
        given["source"] = f"kafka://simulated:9092/{TOPIC}"
        given["checkpoint"]["folder"] = folder / "state"
        given["predictions"] = {"to": f"file:{folder / 'predictions.jsonl'}"}
        given["model"] = {
            "features": {"text": {"kind": "words", "ngrams": [1, 1], "negation": False}}
        }
        given["http"] = {"enabled": self.plan.has_page}
        log = "journal" if self.plan.n_daemons == 1 else f"kafka:{CORRECTION_TOPIC}"
        is_corrected = self.plan.has_page and not ("late_labels" in given and log != "journal")
        given["corrections"] = {"to": log if is_corrected else "none"}
        if self.plan.n_daemons > 1:
            given["group"]["folder"] = self.root / "shared"
        else:
            given.pop("group")
        return Daemon(number, folder, Settings.model_validate(given), PowerCut(folder))

    # ---- the run -------------------------------------------------------------------------------

    def run(self) -> None:
        """Carry out the plan, let all settle, stop all, and compare."""
        late = {each.who: each.what["seconds"] for each in self.plan.events if each.kind == "late"}
        for each in self.daemons:
            if each.number in late:
                self.report["late starts"] += 1
                at_s = BEGIN_S + late[each.number]
                self.scheduler.call_at(at_s, partial(self._start, each))
            else:
                self._start(each)
        for event in self.plan.events:
            if event.kind != "late":
                self.scheduler.call_at(BEGIN_S + event.at_s, partial(self._do, event))
        last_s = max((event.at_s for event in self.plan.events), default=0.0)
        self.scheduler.call_at(BEGIN_S + last_s, self._settle)
        self._run(lambda: self.is_settling, last_s + SETTLE_S)
        self._run(self._is_settled, SETTLE_S)
        self._check_answers()
        self.is_ending = True
        for each in self.daemons:
            self._tell_to_stop(each)
        self._run(lambda: not any(each.is_up for each in self.daemons), SETTLE_S)
        for each in self.daemons:
            self.check_file(each, is_last=True)
        self._check_outputs()
        if self.plan.has_page:
            self._check_recent()

    def end(self) -> None:
        """End whatever still runs."""
        self.scheduler.on_death = lambda _process: None
        for each in self.daemons:
            if each.process is not None:
                self.scheduler.kill(each.process)
        self.scheduler.bury()

    def _settle(self) -> None:
        """Let nothing fail any more."""
        self.is_settling = True
        for each in self.daemons:
            each.failing.clear()
            if each.process is not None and each.is_up:
                each.process.dies_in = None

    def _run(self, until: Callable[[], bool], limit_s: float) -> None:
        try:
            self.scheduler.run(until, limit_s)
        except StuckError as error:
            raise StuckError(f"{error}; {self._standing()}") from error

    def _standing(self) -> str:
        """Say how far everybody is."""
        ends = {str(partition): len(log) for partition, log in self.topic.logs.items()}
        at = []
        for each in self.daemons:
            here = {} if each.pipeline is None else each.pipeline.positions
            read = {str(partition): n for partition, n in here.items()}
            at.append(f"daemon {each.number} is {'up' if each.is_up else 'down'}, at {read}")
        return f"logs end at {ends}, {'; '.join(at)}, {len(self.people.asking)} corrections open"

    def _is_settled(self) -> bool:
        if self.people.asking:
            return False
        ends = self._ends()
        for each in self.daemons:
            if not each.is_up or each.pipeline is None:
                return False
            at = each.pipeline.positions
            begun = self.beginnings.now(each)
            if any(max(at.get(log, 0), begun.get(log, 0)) < end for log, end in ends.items()):
                return False
            applier = each.pipeline.corrections
            if applier is not None and (applier.has_backlog() or applier.is_due()):
                return False
            journal = each.folder / "state" / FILE_NAME
            if journal.exists() and at.get(JOURNAL_LOG, 0) < journal.stat().st_size:
                return False
        return True

    def _check_answers(self) -> None:
        """Give members of a group the time to know each other's parts; they must answer alike."""
        if len(self.daemons) == 1:
            return
        until_s = self.scheduler.now_s + ALIKE_S
        self._run(lambda: self._is_alike() or self.scheduler.now_s > until_s, SETTLE_S)
        if not self._is_alike():
            raise WrongError(f"members of the group do not answer alike; {self._standing()}")

    def _is_alike(self) -> bool:
        return self._is_settled() and len({each.answers() for each in self.daemons}) == 1

    def _ends(self) -> dict[Partition, int]:
        """Return the ends of all logs that are read, and hold something that can be."""
        logs = dict(self.topic.logs)
        if "late_labels" in self.plan.settings:
            logs |= self.labels.logs
        logs |= self.corrections.logs
        starts = self.broker.starts
        return {each: len(log) for each, log in logs.items() if starts.get(each, 0) < len(log)}

    def _start(self, each: Daemon) -> None:
        each.lives += 1
        each.has_met_failure = False
        each.loses_power, each.takes_along = False, None
        self.beginnings.note_start()
        process = each.process = Process(f"daemon-{each.number}.{each.lives}")
        self.owners[process] = each
        each.pipeline = each.service = each.stop = None
        self.scheduler.start(process, lambda: self._live(each), "main")

    def _live(self, each: Daemon) -> None:
        import threading  # noqa: PLC0415 -- the simulated one

        each.stop = threading.Event()
        try:
            daemon.run(each.settings, cast("View", _Unseen()), each.stop)
            self.recent.note_end(each)
        except ConsumerError as error:
            self.report[f"ended by {type(error).__name__}"] += 1
            self.said.append(f"{each.number} ended: {error}")
            is_new = self.scheduler.now_s < self.broker.grown_s + _GROWING_S
            if isinstance(error, ConfigError) and is_new:  # it knows a topic's new partitions alone
                each.starts_at_s = each.starts_at_s or 0.3
            elif self.is_settling and not each.has_met_failure:  # it starts again
                raise WrongError(f"daemon {each.number} cannot go on: {error}") from error
        assert each.process is not None
        self.scheduler.kill(each.process)

    def _tell_to_stop(self, each: Daemon) -> None:
        if each.is_up and each.process is not None and each.stop is not None:
            self.scheduler.start(each.process, each.stop.set, "signals")

    # ---- events --------------------------------------------------------------------------------

    def _do(self, event: Event) -> None:
        what = event.what
        if event.kind in {"say", "label", "retain", "away", "rebalance", "grow"}:
            self._do_at_broker(event)
            return
        each = self.daemons[event.who % len(self.daemons)]
        process = each.process
        if event.kind == "correct":
            self.people.correct(event.who, what)
        elif not each.is_up or process is None:
            return
        elif event.kind in {"kill", "cut"}:
            process.dies_in = what["after"]
            each.loses_power = event.kind == "cut"
            each.starts_at_s = what["down_s"]
        elif event.kind == "blackout":
            process.dies_in = what["after"]
            each.takes_along = what["down_s"]
        elif event.kind == "stop":
            self.report["stops"] += 1
            each.starts_at_s = what["down_s"]
            self._tell_to_stop(each)
        elif event.kind == "pause":
            self.report["pauses"] += 1
            self.scheduler.pause(process, what["seconds"])
        elif event.kind == "fail":
            each.failing += [(what["call"], getattr(errno, what["error"]))] * what["times"]

    def _do_at_broker(self, event: Event) -> None:
        topic = self.labels if event.kind == "label" else self.topic
        partition = Partition(topic.name, event.who % len(topic.logs))
        if event.kind == "grow":
            self._grow(event.what)
        elif event.kind == "away":
            self.report["broker away"] += 1
            self.broker.away_until_s = self.scheduler.now_s + event.what["seconds"]
            self.scheduler.wake(self.broker.changed)
        elif event.kind == "rebalance":
            self.broker.rebalance()
        elif event.kind == "retain":
            self.broker.retain(partition, event.what["keep"])
        else:
            self.report["late labels"] += event.kind == "label"
            self.broker.append(partition, json.dumps(event.what).encode())

    def _grow(self, what: Mapping[str, Any]) -> None:
        """Give the topic of the messages, or those of what is said of them, more partitions."""
        self.report["topics grown"] += 1
        if what["topic"] == "labels":
            self.broker.grow(LABEL_TOPIC, what["partitions"])
            self.broker.grow(CORRECTION_TOPIC, what["partitions"])
            return
        before = set(self.topic.logs)
        self.broker.grow(TOPIC, what["partitions"])
        self.beginnings.note_growth(before)
        heard_s = self.scheduler.now_s + self.chance.uniform(0.0, 1.0)
        self.scheduler.call_at(heard_s, self.broker.rebalance)

    def _after_death(self, process: Process) -> None:
        """Leave the disk as the end of the process did, check it, and start the next one."""
        each = self.owners[process]
        self.people.after_death(process)
        self.beginnings.note_learned(each)
        if process.dies_in is not None and process.dies_in <= 0:
            if each.takes_along is not None:
                self._black_out(each.takes_along)
            self.report["power cuts" if each.loses_power else "kills"] += 1
            if each.loses_power:
                self.recent.note_power_cut(each)
                each.cut = self._left(each.folder, each.cut)
            self.check_file(each)
        if not self.is_ending:
            at_s = self.scheduler.now_s + (each.starts_at_s or 0.0)
            each.starts_at_s = None
            self.scheduler.call_at(at_s, lambda: self._start(each))

    def _black_out(self, down_s: list[float]) -> None:
        """Let all daemons lose their power at once, and what they share with them."""
        self.report["blackouts"] += 1
        for each in self.daemons:
            each.starts_at_s = down_s[each.number]
            if each.process is not None:
                each.loses_power, each.takes_along, each.process.dies_in = True, None, 0
                self.scheduler.kill(each.process)
        if self.shared_cut is not None:
            self.shared_cut = self._left(self.shared, self.shared_cut)
            self.beginnings.note_files_lost(self.shared)

    def _left(self, folder: Path, cut: PowerCut) -> PowerCut:
        """Leave of a folder what a power cut does."""
        left = self.chance.choice(list(cut.disk().after_a_cut(self.chance)))
        return PowerCut(put_back(folder, left))

    # ---- files ---------------------------------------------------------------------------------

    def on_call(self, call: Call, act: Callable[..., Any]) -> Any:
        """Carry out a call of a daemon's thread; others may go first, or it fails."""
        scheduler = self.scheduler
        if scheduler.current is None:
            return act()
        scheduler.act()
        each = self.running()
        if self.is_forgotten(call):
            return None
        for k, (name, code) in enumerate(each.failing):
            if name == call.name:
                del each.failing[k]
                each.has_met_failure = True
                self.report[f"failed {name}"] += 1
                raise OSError(code, os.strerror(code), str(call.path))
        if call.path.name == FILE_NAME and call.name in {"write", "pwrite"}:
            self.people.journal(each)  # what a line says before it is overwritten
        if call.path.is_relative_to(each.folder):
            return each.cut.note(call, act)
        is_noted = self.shared_cut is not None and call.path.is_relative_to(self.shared)
        done = self.shared_cut.note(call, act) if self.shared_cut and is_noted else act()
        if call.name == "replace" and str(call.args[1]).endswith(".nb"):
            self.beginnings.note_file(Path(call.args[1]))
        return done

    # ---- checks --------------------------------------------------------------------------------

    def taught(
        self, positions: Mapping[str, int], each: Daemon, begun: Mapping[Partition, int]
    ) -> dict[str, tuple[str, str]]:
        """Return what the checker says of some positions, and of where reading has begun."""
        logs, label_logs = (
            [
                self._said(log, begun.get(log, 0), positions.get(part_name(log), 0))
                for log in topic.logs
            ]
            for topic in (self.topic, self.labels)
        )
        late = self.plan.settings.get("late_labels")
        return checker.taught(logs, self.people.said(positions, each), label_logs, late)

    def _said(self, partition: Partition, begin: int, end: int) -> list[checker.Message]:
        """Return the messages between two places of a log that are not said to be lost."""
        log, lost = self.broker.log(partition), self.gaps[partition]
        return [json.loads(log[at] or b"{}") for at in range(begin, end) if at not in lost]

    def check_file(self, each: Daemon, *, is_last: bool = False) -> None:
        """Compare a daemon's checkpoint with what the checker says of its positions."""
        path = each.folder / "state" / "model.nb"
        if not path.exists() and not is_last:
            return
        try:
            stored = read(path)
        except StoreError as error:
            raise WrongError(f"daemon {each.number} has saved what is none: {error}") from error
        self.n_comparisons += 1
        begun = self.beginnings.saved(stored.header)
        found = counts_of(stored.model)
        wanted = checker.counts(self.taught(stored.positions, each, begun))
        if found != wanted:
            raise WrongError(
                f"daemon {each.number} at {stored.positions}:\n found {found}\nwanted {wanted}"
            )
        self._check_not_behind(each, stored.positions)
        if is_last:
            ends = {
                part_name(log): end for log, end in self._ends().items() if begun.get(log, 0) < end
            }
            if any(stored.positions.get(name, 0) != end for name, end in ends.items()):
                raise WrongError(f"daemon {each.number} is at {stored.positions}, not {ends}")

    def _check_not_behind(self, each: Daemon, positions: Mapping[str, int]) -> None:
        """Refuse a checkpoint older than one that was known to be safe."""
        for partition, at in self.broker.committed.items():
            if len(self.daemons) == 1 and positions.get(part_name(partition), 0) < at:
                raise WrongError(f"daemon {each.number} is at {positions}, and had saved {at}")

    def _check_outputs(self) -> None:
        """Compare journal and predictions with what was acknowledged and said."""
        if lost := self.people.lost():
            raise WrongError(f"corrections were acknowledged, and are not there: {lost}")
        if self.plan.n_daemons > 1:
            return
        each = self.daemons[0]
        path = each.folder / "predictions.jsonl"
        found = Counter(json.loads(line)["id"] for line in path.read_text().splitlines())
        twice = [name for name, n in found.items() if n > 1]
        # A log has an order: lines that come again are recognised, unless some were lost meanwhile.
        is_told = self.report["messages lost"] and self.report["records may come twice"]
        if twice and len(self.topic.logs) == 1 and not is_told:
            raise WrongError(f"predicted twice: {twice}")
        # Of a log that holds nothing any more nobody waits until the daemon has heard of that.
        stored, ends = read(each.folder / "state" / "model.nb"), self._ends()
        begun = self.beginnings.saved(stored.header)
        read_to = {log: stored.positions.get(part_name(log), 0) for log in self.topic.logs}
        said = [
            message
            for log, at in read_to.items()
            for message in self._said(log, begun.get(log, 0), ends.get(log, at))
        ]
        n_said = Counter(message["id"] for message in said)
        alone = {each["id"] for each in said if n_said[each["id"]] == 1 and "label" not in each}
        alone -= {each["id"] for each in said if "operation" in each}
        if alone - found.keys():
            raise WrongError(f"never predicted: {sorted(alone - found.keys())}")

    def _check_recent(self) -> None:
        """Compare what each daemon's page shows with what the checker says of the logs."""
        each = self.daemons[0]
        stored = read(each.folder / "state" / "model.nb")
        begun = self.beginnings.saved(stored.header)
        is_late = "late_labels" in self.plan.settings
        self.recent.check(begun, self.taught(stored.positions, each, begun) if is_late else {})


def counts_of(model: NaiveBayes) -> checker.Counts:
    """Return the counts of a model as the checker writes them: without what stands at zero."""
    words = model.words()
    rows = model.word_counts(words).tolist() if words else []
    by_class = dict(zip(model.classes, map(int, model.class_counts.tolist()), strict=True))
    by_word = {
        word: {str(label): int(n) for label, n in zip(LABELS, row, strict=True) if n}
        for word, row in zip(words, rows, strict=True)
    }
    return (
        {str(label): n for label, n in by_class.items() if n},
        {word: own for word, own in by_word.items() if own},
    )
