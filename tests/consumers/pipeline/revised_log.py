"""A log with deletes and updates, as the daemon's components and a page of Python read it."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from consumers.config.model import READING, FieldKind
from consumers.config.sections import CheckpointSettings
from consumers.config.settings import Settings
from consumers.corrections.model import Correction
from consumers.features import build_model, columns_of, kinds_of, learned_kinds, times_and_weights
from consumers.messages import Partition, RawColumns, part_name
from consumers.pipeline.checkpoint import Checkpoint
from consumers.pipeline.learned_memory import LearnedMemory
from consumers.pipeline.revision import Reviser
from consumers.pipeline.waiting_messages import learn_rows
from streamnb import EveryExamples, Learner, NaiveBayes, SnapshotBoard
from streamnb.learn import LEARNED
from tests.consumers.decoded_messages import decoder
from tests.endtoend.expected_counts import Counts, counts

LOG = Partition("t", 0)
FIELDS: dict[str, FieldKind] = {"text": "words"}
KEEP = 2
# A text of one word has one: what the tests list is what the log taught.
SETTINGS = Settings.model_validate({"model": {"features": {"text": dict.fromkeys(READING, False)}}})


class Said(NamedTuple):
    """One entry of a log; a tombstone has only a key."""

    operation: str
    id: str | None
    text: str = ""
    label: str | None = None
    weight: float | None = None
    lang: str | None = None

    def value(self) -> bytes | None:
        """Return its value on the wire."""
        if self.operation == "tombstone":
            return None
        account, slash, own = (self.id or "").partition("/")
        message: dict[str, object] = {"operation": self.operation, "id": self.id, "text": self.text}
        message |= {"label": self.label, "weight": self.weight, "lang": self.lang}
        if slash:  # an id of two parts; without the second it is all of the account
            message |= {"user": account, "id": own or None}
        return json.dumps({k: v for k, v in message.items() if v is not None}).encode()


LABELS = st.none() | st.sampled_from(["negative", "positive"])
TEXTS = st.lists(st.sampled_from(["sun", "rain", "not", "love", "snow"]), max_size=4).map(" ".join)
IDS = st.none() | st.sampled_from(["a", "b", "c", 'd"\\é', "17"])
OPERATIONS = st.sampled_from(["create"] * 4 + ["update", "delete", "tombstone"])


def _entry(
    operation: str,
    id: str | None,  # noqa: A002
    text: str,
    label: str | None,
    weight: float | None = None,
) -> Said:
    if operation == "tombstone":
        return Said(operation, id or "a")
    if operation == "delete":
        return Said(operation, id)
    return Said(operation, id, text, label, weight)


ACCOUNT_LOGS = st.lists(
    st.builds(
        _entry,
        OPERATIONS,
        st.none() | st.sampled_from([f"{who}/{which}" for who in "ab" for which in "123"]),
        TEXTS,
        LABELS,
    )
    | st.sampled_from([Said("gone", "a/"), Said("gone", "b/"), Said("gone", "nobody/")]),
    max_size=40,
)
LOGS = st.lists(st.builds(_entry, OPERATIONS, IDS, TEXTS, LABELS), max_size=40)
WEIGHTS = st.none() | st.sampled_from([2, 0.1, 3.7, 1e6, 1 / 1024])
ACCOUNTS = Settings.model_validate(
    SETTINGS.model_dump()
    | {
        "message": {
            "id": ["user", "id"],
            "operations": {
                "create": "create", "update": "update", "delete": "delete", "gone": "delete_account"
            },
        }
    }
)  # fmt: skip
WEIGHTED = Settings.model_validate(SETTINGS.model_dump() | {"message": {"weight": "weight"}})
SIZES = st.lists(st.integers(1, 9), min_size=40, max_size=40)
WEIGHTED_LOGS = st.lists(st.builds(_entry, OPERATIONS, IDS, TEXTS, LABELS, WEIGHTS), max_size=40)


def raw(log: Sequence[Said], first: int) -> RawColumns:
    """Return entries of a log as Kafka hands them over; each has its id as the key."""
    buffer, key_ends, value_ends = b"", [], []
    keys, values = [], []
    for each in log:
        keys.append(len(buffer))
        buffer += (each.id or "").encode()
        key_ends.append(len(buffer))
        values.append(len(buffer))
        value = each.value()
        buffer += value or b""
        value_ends.append(-1 if value is None else len(buffer))
    return RawColumns(
        partition=LOG,
        buffer=buffer,
        value_starts=np.array(values, np.int64),
        value_ends=np.array(value_ends, np.int64),
        key_starts=np.array(keys, np.int64),
        key_ends=np.array(key_ends, np.int64),
        offsets=np.arange(first, first + len(log)),
        times_ms=np.full(len(log), -1),
        next_offset=first + len(log),
    )


class Run:
    """The components that learn and take back, over a state folder or without one."""

    def __init__(
        self, folder: Path | None, records_max: int = 1_000_000, settings: Settings | None = None
    ) -> None:
        settings = settings or SETTINGS
        self.checkpoint = Checkpoint(CheckpointSettings(folder=folder, keep=KEEP), {})
        self.memory = LearnedMemory(
            folder, learned_kinds(settings), records_max, KEEP,
            accounts=settings.message.deletes_accounts, per=settings.per.field,
        )  # fmt: skip
        model, positions = self.checkpoint.restore(build_model(settings.model))
        self.checkpoint.restore_entries([self.memory])
        self.memory.begin(positions)
        self.position = positions.get(LOG, 0)
        self.learner = Learner(model, SnapshotBoard(), EveryExamples(1 << 40), lambda: 0.0)
        self.fields = list(kinds_of(settings.model))
        self.reviser = Reviser(self.memory)
        self.decoder = decoder(settings)
        self.n_superseded = 0
        self.is_apart = False  # whether each record is taken back by a call of its own

    def read(
        self, log: Sequence[Said], until: int, at_cut: Callable[[int], object] | None = None
    ) -> None:
        """Read the log from where it stands up to an offset, as one batch.

        `at_cut` is called with each offset up to which all has had its effect.
        """
        messages = self.decoder.decode(raw(log[self.position : until], self.position))
        assert not messages.rejects
        revision = self.reviser.revise(messages, self.learner.model.classes)
        own, taking = self.reviser.place(revision, self.learner, in_place=at_cut is not None)
        if taking is not None and self.is_apart:
            taking.is_apart = True
        rows, times = own.to_learn, times_and_weights(own, None)
        while True:  # a batch without labels gives its log a part too
            n = len(rows) if taking is None else min(len(rows), taking.n_together(rows))
            if taking is not None and len(rows) and not n:
                n = taking.n_apart(rows)
                taking.take_back(taking.numbers[rows[:n]], self.learner)
            else:
                if taking is not None and at_cut is not None:  # up to the next that is taken back
                    is_taken = taking.codes[rows[:n]] != LEARNED
                    begin = int(is_taken.argmax()) if is_taken.any() else n
                    n = min(n, begin + taking.n_apart(rows[begin:]))
                columns = columns_of(own, rows[:n], self.fields)
                weights = times.of(rows[:n], own)
                found = learn_rows(self.learner, own, rows[:n], columns, weights, taking)
                self.reviser.count_taken(found)
                if taking is not None and found.n_done < n:
                    taking.is_apart, n = True, found.n_done
            if at_cut is not None and n:
                at_cut(int(own.offsets[rows[n - 1]]) + 1)
            rows = rows[n:]
            if not len(rows):
                break
        self.reviser.remember(revision, self.learner)
        self.n_superseded += len(revision.superseded)
        self.position = until

    def state(self, said: Correction) -> str | None:
        """Return what the memory says of a corrected message."""
        found = self.reviser.corrected_message(said)
        return None if found is None else found.state

    def correct(self, said: Correction) -> None:
        """Apply a correction as the applier does."""
        message = self.reviser.corrected_message(said)
        assert message is not None
        if message.state != "gone" or said.label is None:
            self.reviser.correct(said, message, "journal/0", self.learner)

    def save(self) -> None:
        """Write a checkpoint in the order of its steps."""
        entry = self.memory.pack()
        self.memory.sync()
        self.checkpoint.write(self.learner.model, {LOG: self.position}, {"memory": entry})
        self.memory.saved()

    @property
    def counts(self) -> Counts:
        """What the model counts."""
        return counts(self.learner.model)


def expected(log: Sequence[Said], settings: Settings = SETTINGS) -> tuple[Counts, int]:
    """Return the counts that a log leaves by the rules alone, and how many it superseded."""
    alive: dict[str | None, list[tuple[str, str, float]]] = defaultdict(list)
    seen: set[str] = set()
    early: set[str] = set()
    nameless, n_superseded = [], 0
    for each in log:
        weight = 1.0 if each.weight is None else round(1024 * each.weight) / 1024
        example = [] if each.label is None else [(each.text, each.label, weight)]
        if each.id is None:
            nameless += example if each.operation in {"create", "update"} else []
        elif each.operation == "create":
            if each.id in early:
                early.remove(each.id)
                n_superseded += 1
                seen.add(each.id)
            elif example:
                alive[each.id] += example
                seen.add(each.id)
        elif each.operation == "gone":
            for name in [name for name in alive if name and name.startswith(each.id)]:
                alive[name] = []
        else:
            if each.id not in seen:
                early.add(each.id)
            alive[each.id] = example if each.operation == "update" else []
            seen.add(each.id)
    model: NaiveBayes = build_model(settings.model)
    for text, label, weight in [*nameless, *(each for own in alive.values() for each in own)]:
        model.learn_one({"text": text}, label, weight=weight, part=part_name(LOG))
    return counts(model), n_superseded


def leaves_the_rest(
    log: list[Said], sizes: list[int], data: st.DataObject, settings: Settings
) -> None:
    """Read a log, saved and killed between batches: the counts must be the page's."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run, n_superseded = Run(folder, settings=settings), 0
        for size in sizes:
            if run.position == len(log):
                break
            run.read(log, min(len(log), run.position + size))
            step = data.draw(st.sampled_from(["go on", "save", "kill"]))
            if step == "save":
                run.save()
                n_superseded = run.n_superseded
            elif step == "kill":
                run.memory.close()
                run = Run(folder, settings=settings)
                run.n_superseded = n_superseded
        run.read(log, len(log))
        assert (run.counts, run.n_superseded) == expected(log, settings)
        assert not run.reviser.counts["refused"]
        run.memory.close()
