"""Bugs to plant, by name: each is one small mistake in the daemon that the simulation must find.

Four are calls that the disk acknowledges without obeying, as if the code had forgotten them; the
others replace one function.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
from msgspec.structs import replace

from consumers.features import build_model
from consumers.kafka.client import Fetched
from consumers.kafka.group_source import GroupSource
from consumers.messages import Messages, Partition, RawColumns
from consumers.pipeline import revision, waiting_messages
from consumers.pipeline.checkpoint import Checkpoint
from consumers.pipeline.group_parts import GroupParts, _Known
from consumers.pipeline.late_labels import LateLabels
from consumers.pipeline.learned_memory import LogMemory
from consumers.pipeline.loop import Pipeline
from consumers.pipeline.part_files import LoadedPart, PartFiles
from consumers.pipeline.reader import Reader
from consumers.pipeline.revision import Reviser
from consumers.pipeline.waiting_messages import Taking, WaitingMessage
from consumers.search.history import Noted
from consumers.search.sampler import Offer
from consumers.search.store import RecentStore
from consumers.search.transactions import Deduplicator, Held
from consumers.search.writer import MessageCounter, OfferedBefore
from consumers.sinks.jsonl import JsonLinesSink
from streamnb.state import ModelState, PartState
from tests.system_calls import Call

if TYPE_CHECKING:
    from tests.simulation.world import World

Patch = tuple[object, str, Callable[..., Any]]

# The calls that are forgotten: their names, and the end of the names of their files.
FORGOTTEN = {
    "missing_fsync": ({"fsync"}, ".model.nb.new"),
    "missing_folder_fsync": ({"fsync"}, "state"),
    "journal_not_synced": ({"fdatasync"}, "corrections.jsonl"),
    "memory_not_synced": ({"fsync"}, ".records"),
}


def position_from_commit(world: World) -> Iterator[Patch]:
    """Reading goes on at the position that was committed to the broker."""
    yield Reader, "_position_of", lambda _self, each: world.broker.committed.get(each)


def position_ahead(world: World) -> Iterator[Patch]:
    """A checkpoint has the positions of when it is written, not of when its counts were frozen."""
    real = Checkpoint.write

    def write(self: Checkpoint, model: Any, _at: Any, entries: Any = None) -> Any:
        return real(self, model, dict(world.positions()), entries)

    yield Checkpoint, "write", write


def counts_ahead(_world: World) -> Iterator[Patch]:
    """A checkpoint writes the counts that are being learned, not a copy."""
    yield PartState, "frozen_copy", lambda self, _groups: self


def part_position_ahead(world: World) -> Iterator[Patch]:
    """A part file has the position of when it is written."""
    real = PartFiles.write

    def write(self: PartFiles, state: ModelState, each: Partition, _at: int, *more: Any) -> Any:
        return real(self, state, each, world.positions()[each], *more)

    yield PartFiles, "write", write


def correction_position_lost(_world: World) -> Iterator[Patch]:
    """A checkpoint leaves out how far the corrections were applied."""
    real = Checkpoint.write

    def write(self: Checkpoint, model: Any, at: Mapping[Partition, int], entries: Any) -> Any:
        own = {each: n for each, n in at.items() if not each.topic.startswith("journal:")}
        return real(self, model, own, entries)

    yield Checkpoint, "write", write


def part_not_taken(world: World) -> Iterator[Patch]:
    """A partition is taken over at the position of its part, without what the part knows."""
    real = Pipeline._set_part

    def set_part(self: Pipeline, partition: Partition, part: LoadedPart) -> None:
        empty = build_model(world.running().settings.model)
        real(self, partition, replace(part, model=empty, records=None))

    yield Pipeline, "_set_part", set_part


def zombie_accepted(_world: World) -> Iterator[Patch]:
    """The part of whoever wrote is taken, also of a partition that is ours by now."""

    def look(self: GroupParts) -> None:
        for partition in self.files.partitions():
            known = self._known[partition]
            loaded = self.files.load(partition, known.seen or ())
            if loaded is not None:
                self._note(partition, loaded.file[:2], loaded.written_s)
                known.seen, known.news = loaded.file, loaded

    def take_news(self: GroupParts, *_: object) -> dict[Partition, tuple[LoadedPart, bool]]:
        found = {}
        for partition, known in self._known.items():
            if known.news is not None:
                found[partition], known.news = (known.news, False), None
        return found

    yield GroupParts, "look", look
    yield GroupParts, "take_news", take_news


def own_place_kept(_world: World) -> Iterator[Patch]:
    """Of two files of one place each member keeps the one that it came to know first."""
    yield _Known, "at", lambda _self, place: (*place, "g")


def stale_fetch(_world: World) -> Iterator[Patch]:
    """What was fetched before a rebalance is handed over after it."""

    def accept(self: GroupSource, fetched: list[Fetched]) -> list[RawColumns]:
        for each in fetched:
            if each.partition in self._positions:
                self._positions.advance(each.partition, each.position, each.log_end)
        return [each.columns for each in fetched if each.columns is not None]

    yield GroupSource, "_accept", accept


def taken_back_twice(_world: World) -> Iterator[Patch]:
    """What a delete takes back is subtracted twice."""
    real, placed = waiting_messages.take_back, Reviser.place

    def take_back(*args: Any) -> Counter[str]:
        real(*args)
        return real(*args)

    def place(self: Reviser, *args: Any, **options: Any) -> tuple[Messages, Taking | None]:
        messages, taking = placed(self, *args, **options)
        if taking is not None:
            taking.is_apart = True  # so that `take_back` has it all
        return messages, taking

    yield revision, "take_back", take_back
    yield Reviser, "place", place


def correction_unlearns_twice(_world: World) -> Iterator[Patch]:
    """What a message taught is subtracted twice as a person corrects it."""
    real = waiting_messages.unlearn

    def unlearn(*args: Any) -> None:
        real(*args)
        real(*args)

    yield revision, "unlearn", unlearn


def delete_forgotten(_world: World) -> Iterator[Patch]:
    """That a message was deleted before it came is not known any more when it comes."""
    yield LogMemory, "is_pending", lambda _self, _hashes: None


def correction_twice(_world: World) -> Iterator[Patch]:
    """A correction that is read back is joined with its message twice."""
    real = Reviser.correct

    def correct(self: Reviser, *args: Any) -> None:
        real(self, *args)
        real(self, *args)

    yield Reviser, "correct", correct


def output_not_flushed(_world: World) -> Iterator[Patch]:
    """A checkpoint does not wait for the predictions before it."""
    yield JsonLinesSink, "flush", lambda _self, _timeout_s: None


def late_label_twice(_world: World) -> Iterator[Patch]:
    """A label of a message that has one is learned too."""
    real = LateLabels._outcome

    def outcome(self: LateLabels, message: WaitingMessage, *more: Any) -> str:
        return "learned" if message.state == "labelled" else real(self, message, *more)

    yield LateLabels, "_outcome", outcome


def default_too_early(_world: World) -> Iterator[Patch]:
    """A message becomes the default before its horizon is over."""
    real = LateLabels.__init__

    def init(self: LateLabels, *args: Any) -> None:
        real(self, *args)
        self._horizon_ms /= 2

    yield LateLabels, "__init__", init


def loss_not_told(_world: World) -> Iterator[Patch]:
    """What retention removed before it was read is not counted."""
    yield GroupSource, "_report_lost", lambda _self, *_: None


def old_version_shown(_world: World) -> Iterator[Patch]:
    """An update is stored beside what it takes the place of."""
    yield Pipeline, "_forget_versions", lambda _self, *_: None


def deletion_not_shown(_world: World) -> Iterator[Patch]:
    """A deletion by the stream is counted in the model, and the page forgets about it."""

    def forget_ids(_self: RecentStore, *_: Any, **_options: Any) -> threading.Event:
        done = threading.Event()
        done.set()
        return done

    yield RecentStore, "forget_ids", forget_ids


def stored_twice(_world: World) -> Iterator[Patch]:
    """What comes again after a start is stored again."""

    def unknown(_self: Deduplicator, offer: Offer, *_: object) -> tuple[Any, list[Held]]:
        return np.arange(len(offer)), []

    def note(self: OfferedBefore, *args: Any) -> Noted:
        assert self.counter is not None
        self.counter.add(*args)
        return slice(None), {}

    yield Deduplicator, "unknown", unknown
    yield OfferedBefore, "note", note


def counted_twice(_world: World) -> Iterator[Patch]:
    """What comes again after a start is counted again for the page's curves."""
    real = MessageCounter.begin
    yield MessageCounter, "begin", lambda self, _counted: real(self, {})


REPLACED = {
    each.__name__: each
    for each in (
        position_from_commit,
        position_ahead,
        counts_ahead,
        part_position_ahead,
        correction_position_lost,
        part_not_taken,
        zombie_accepted,
        own_place_kept,
        stale_fetch,
        taken_back_twice,
        correction_unlearns_twice,
        delete_forgotten,
        correction_twice,
        output_not_flushed,
        late_label_twice,
        default_too_early,
        loss_not_told,
        old_version_shown,
        deletion_not_shown,
        stored_twice,
        counted_twice,
    )
}
BUGS = (*FORGOTTEN, *REPLACED)


@contextmanager
def planted(name: str | None, world: World) -> Iterator[None]:
    """Let the daemons of a world have a bug, or none."""
    if name in FORGOTTEN:
        calls, end = FORGOTTEN[name]
        world.is_forgotten = lambda call: call.name in calls and call.path.name.endswith(end)
    patches = (
        [] if name not in REPLACED else [patch.object(*each) for each in REPLACED[name](world)]
    )
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in reversed(patches):
            each.stop()


def nothing_is_forgotten(_call: Call) -> bool:
    """Return that every call is made."""
    return False
