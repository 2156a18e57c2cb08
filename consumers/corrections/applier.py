"""Applies corrections between two batches of the stream; it belongs to the consuming thread.

A correction takes back what its message taught and teaches the label that was given instead. What
that is, the memory says if there is one: a daemon that began later never learned the message, and
the stream may have updated or deleted it meanwhile. A correction is
held until the model has learned the message: after a restart the stream is read again from the
checkpoint, and what is to be taken back may still be on its way. The log's position moves on with
each correction, and is saved with the counts: so a kill neither loses one nor applies it twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import structlog

from consumers.config.model import FieldKind
from consumers.corrections.model import Correction, Entry, LabelPartitions, LogReader, encode
from consumers.decode.fields import learned_values
from consumers.decode.labels import is_over_limit, keep_classes, over_limit
from consumers.errors import GroupError
from consumers.messages import WEIGHT, Partition, Reason, Reject, part_name
from consumers.monitoring.metrics import CorrectionMetrics
from consumers.sources.base import LogFacts
from streamnb import Learner
from streamnb.errors import InputError
from streamnb.labels import Label

# As much as a piece of the stream may hold the consuming thread, about: a correction takes a
# fraction of a millisecond.
TURN_S = 0.02
# A partition that was ours may come back in a rebalance, or once the group knows that the process
# before us is dead; after so long it will not.
AWAY_S = 60.0
GONE = (
    "its text was taken out of the log, as its message was deleted: it cannot be applied again. A "
    "journal belongs to its checkpoint; to start from nothing, name an empty checkpoint.folder"
)
MISPLACED = (
    "its message stands in another partition than the correction: in a group both must have the "
    "same number, as whoever reads the one applies the other"
)
log = structlog.get_logger(__name__)


class CorrectedMessage(msgspec.Struct, frozen=True):
    """The message of a correction: it `teaches`, is `gone`, was `never` learned, or `waits`.

    `before`: its log is known from a later place on. `record` is the memory's own; a deletion means
    the earlier messages of the id too, so it may be one of theirs, and has it also of what waits.
    """

    state: Literal["teaches", "gone", "never", "before", "waits"]
    record: Any = None


class DeletedMessage(NamedTuple):
    """A message that a person deleted: id and place, and in which topic that was said, and where.

    What the journal says is known by its line.
    """

    place: tuple[str, Partition, int]
    said: tuple[str, int, int] | None


class MessageMemory(Protocol):
    """Whoever remembers what messages taught; called on the consuming thread."""

    def corrected_message(self, said: Correction, /) -> CorrectedMessage | None:
        """Return what the message of a correction teaches now; None if that is not known."""

    def give_up_lost(self, partition: Partition, /) -> None:
        """Take up no lost file of a partition: it lacks a correction that was applied by itself."""

    def correct(
        self, said: Correction, message: CorrectedMessage, part: str, learner: Learner, /
    ) -> None:
        """Take back what the message taught and teach its new label in a part; remember both.

        Both are done or, at an InputError, neither.
        """


class ApplierGroup(Protocol):
    """What the members of a group know of each other."""

    def takes_class(self, label: Label, /) -> bool:
        """Return whether a class may join the models of all members."""

    def has_labels(self) -> bool:
        """Return whether a member has applied corrections that stand in a topic."""


class SharedStream(msgspec.Struct, frozen=True):
    """A stream and its corrections topic, which have partitions of the same numbers."""

    messages: str
    labels: str

    def log_of(self, partition: Partition) -> Partition:
        """Return where corrections of a partition's messages stand."""
        return Partition(self.labels, partition.partition)

    def messages_of(self, log: Partition) -> Partition:
        """Return of which partition's messages corrections in a log are."""
        return Partition(self.messages, log.partition)


class CorrectionApplier:
    """Applies corrections in the order of their log.

    `fields` are those that messages are learned by, with what they hold; `clock` returns monotonic
    seconds. Skipped corrections are those of messages that others learn; a log that `is_own` has
    none but of messages that were read here. After the start they wait, as the group may take us
    for the process before. `not_applied` is called, on the consuming thread, with each that the
    model did not learn. In a group the log belongs to a `stream`: what stands in a partition is of
    messages of the stream's with its number, and is applied by who reads that.
    """

    def __init__(
        self,
        reading: LogReader,
        fields: Mapping[str, FieldKind],
        metrics: CorrectionMetrics,
        clock: Callable[[], float] = time.monotonic,
        not_applied: Callable[[Correction], None] = lambda _said: None,
        *,
        is_own: bool = False,
        stream: SharedStream | None = None,
    ) -> None:
        self._is_own = is_own
        self.n_refused = self.n_skipped = 0
        self._deleted: list[DeletedMessage] = []
        self._reading = reading
        self._fields = dict(fields)
        self._nothing: dict[str, list[str]] = {name: [] for name in fields if name != WEIGHT}
        self._metrics = metrics
        self._clock = clock
        self._not_applied = not_applied
        self._stream = stream
        self._memory: MessageMemory | None = None
        self._takes_class: Callable[[Label], bool] | None = None
        self._holds = False
        self._is_behind = False
        self._own: set[Partition] = set()  # the log's partitions, which are none of the stream
        self._away_since_s: dict[Partition, float] = {}
        self._started_s = clock()
        self._partitions = LabelPartitions("corrections.to")
        metrics.watch(lambda: reading.n_waiting)

    def start(
        self,
        positions: Mapping[Partition, int],
        logs: Mapping[Partition, LogFacts] = MappingProxyType({}),
        memory: MessageMemory | None = None,
        group: ApplierGroup | None = None,
    ) -> None:
        """Begin to read the log, at the checkpoint's positions in the logs that it knows.

        What a message taught is asked of `memory`; what that does not know is taken from the log.
        """
        self._memory = memory
        if group is not None:
            self._takes_class = group.takes_class
        if self._stream is not None:
            has_labels = (lambda: False) if group is None else group.has_labels
            self._partitions.resume(self._stream.labels, positions, logs, has_labels)
        self._started_s = self._clock()
        self._reading.start(positions, logs)

    def take_over(self, partition: Partition, positions: Mapping[Partition, int]) -> None:
        """Apply what is said of a partition of the stream from here on."""
        if self._stream is not None:
            own = self._stream.log_of(partition)
            self._reading.own(own, positions.get(own))

    def give_up(self, partition: Partition) -> None:
        """Leave what is said of a partition of the stream to who reads it next."""
        if self._stream is not None:
            self._reading.disown(self._stream.log_of(partition))

    def know(
        self,
        partition: Partition,
        position: int,
        positions: MutableMapping[Partition, int],
        learner: Learner,
    ) -> None:
        """Go on where the log of a partition of the stream was applied up to by another member."""
        if self._stream is None:
            return
        own = self._stream.log_of(partition)
        positions.pop(own, None)
        if position:
            learner.learn(part_name(own), self._nothing, [])  # a position is saved with a part
            positions[own] = position

    def are_partitions_known(self, n_messages: int | None) -> bool:
        """Return whether the log is known to have as many partitions as the stream, if it must.

        Others are an error at the very first start. Once they had as many, both are getting more,
        and corrections wait.
        """
        return self._stream is None or self._partitions.agree(
            self._reading.n_partitions, n_messages
        )

    def beginnings(self) -> Mapping[Partition, LogFacts]:
        """Return what is known of the log beside its position."""
        return self._partitions.marked(self._reading.beginnings)

    @property
    def trouble(self) -> str | None:
        """What keeps the log from being read back, or applied, in a sentence."""
        unequal = self._partitions.trouble
        waits = None if unequal is None else f"corrections wait: {unequal}"
        return self._reading.trouble or waits

    def has_backlog(self) -> bool:
        """Return whether corrections of before the start can still be applied."""
        # What they correct has not come, or may not.
        if self._holds or self._partitions.trouble is not None:
            return False
        # In this order: once it has caught up, all of them wait already.
        return not self._reading.caught_up.is_set() or bool(self._reading.n_waiting)

    def is_behind(self) -> bool:
        """Return whether more can be applied at once: the last turn ended by its time."""
        may_apply = self._is_behind and self._partitions.trouble is None
        return may_apply and self._reading.n_waiting > 0

    def is_due(self) -> bool:
        """Return whether something waits, or raise what ended the reading of the log."""
        return self._reading.first() is not None

    def apply(
        self,
        learner: Learner,
        positions: MutableMapping[Partition, int],
        assigned: Collection[Partition],
    ) -> list[Reject]:
        """Apply what can be applied now, for a fiftieth of a second at most; return the unusable.

        `positions` are the next offsets of the stream and of the log; those of the log are moved
        on. `assigned` has the partitions of the stream that are read here; it is empty where that
        is not known.
        """
        rejects: list[Reject] = []
        until_s = self._clock() + TURN_S
        self._is_behind = False
        self._note_away(positions, assigned)
        while (entry := self._reading.first()) is not None:
            self._own.add(entry.partition)
            self._holds = self._must_wait(entry, positions, assigned)
            if self._holds:
                break
            try:
                reject = self._apply_one(entry, learner, positions, assigned)
            except GroupError:  # whether its class may join will be said, also behind the stream
                break
            if reject is not None:
                rejects.append(reject)
            positions[entry.partition] = entry.next_offset
            self._reading.done()
            if self._clock() >= until_s:
                self._is_behind = True
                break
        return rejects

    def take_deleted(self) -> list[DeletedMessage]:
        """Return the messages that were deleted since it was asked last."""
        deleted, self._deleted = self._deleted, []
        return deleted

    def close(self) -> None:
        """End the reading thread."""
        self._reading.close()

    def _apply_one(
        self,
        entry: Entry,
        learner: Learner,
        positions: Mapping[Partition, int],
        assigned: Collection[Partition],
    ) -> Reject | None:
        # Learning nothing makes the log's part: with it the position is saved, whatever is taught.
        learner.learn(entry.part, self._nothing, [])
        said = entry.said
        if not isinstance(said, Correction):
            return None if said is None else self._refuse(said)
        place = said.place
        own = None if self._stream is None else self._stream.messages_of(entry.partition)
        part = entry.part if own is None else part_name(own)
        is_misplaced = own is not None and place not in {None, own}
        fault = MISPLACED if is_misplaced else GONE if said.gone else None
        message = None
        if self._memory is not None and place is not None and fault is None:
            message = self._memory.corrected_message(said)
        if said.kind == "delete" and place is not None and not is_misplaced:
            at = None if self._is_own else (*entry.partition, entry.offset)
            self._deleted.append(DeletedMessage((said.id, place, _last_of(said, message)), at))
        if fault is not None:
            self._not_applied(said)
            return self._refuse(_reject(entry, said, fault))
        is_others = place is not None and place not in assigned
        if (is_others and not _has_passed(said, positions)) or _is_not_ours(said, message):
            self.n_skipped += 1
            self._not_applied(said)
            self._metrics.count("skipped")
            return None
        if said.label is not None and is_over_limit(
            said.label, 0, learner.model, self._takes_class
        ):
            self._not_applied(said)
            detail = over_limit(said.label)
            return self._refuse(_reject(entry, said, detail, Reason.UNKNOWN_LABEL))
        try:
            if message is None or self._memory is None:
                _teach(said, part, learner, self._fields)
                if self._memory is not None and place is not None:
                    self._memory.give_up_lost(place)
            else:
                _check_was_taught(said, message)
                self._memory.correct(said, message, part, learner)
        except InputError as error:
            self._not_applied(said)
            return self._refuse(_reject(entry, said, str(error)))
        self._metrics.count(said.kind)
        return None

    def _refuse(self, reject: Reject) -> Reject:
        self.n_refused += 1
        self._metrics.count("refused")
        log.warning(
            "correction_refused",
            partition=str(reject.partition),
            offset=reject.offset,
            detail=reject.detail,
        )
        return reject

    # ---- whether a message has been learned, will be, or is somebody else's --------------------

    def _must_wait(
        self, entry: Entry, positions: Mapping[Partition, int], assigned: Collection[Partition]
    ) -> bool:
        """Return whether the message that is corrected is still to be learned here."""
        said = entry.said
        if not isinstance(said, Correction) or said.place is None or _has_passed(said, positions):
            return False
        place = said.place
        if self._stream is not None:
            return place == self._stream.messages_of(entry.partition)
        if place in assigned:
            return True
        if place in positions:
            left_s = self._away_since_s.get(place)
            return left_s is None or self._clock() < left_s + AWAY_S
        if assigned:  # nobody else applies what a log of our own says, or what we pass over here
            now_s, since_s = self._clock(), self._started_s
            if self._is_own:
                since_s = self._away_since_s.setdefault(place, now_s)
            is_stream = self._is_own or place.topic in {each.topic for each in assigned}
            return is_stream and now_s < since_s + AWAY_S
        # A source that knows no assignments has one stream, and once that has brought something,
        # another one's messages will not come. Members of a group wait for their assignment.
        topics = {each.topic for each in positions if each not in self._own}
        return not topics or place.topic in topics

    def _note_away(
        self, positions: Mapping[Partition, int], assigned: Collection[Partition]
    ) -> None:
        """Note since when partitions that we have read are not assigned to us."""
        now_s = self._clock()
        for each in positions:
            if not assigned or each in assigned:
                self._away_since_s.pop(each, None)
            else:
                self._away_since_s.setdefault(each, now_s)


def _has_passed(said: Correction, positions: Mapping[Partition, int]) -> bool:
    """Return whether the model has learned the message, as far as it was to be learned."""
    assert said.place is not None
    return positions.get(said.place, 0) > said.offset


def _last_of(said: Correction, message: CorrectedMessage | None) -> int:
    """Return up to which offset messages of the id are deleted; an update may have come since."""
    if message is None or message.record is None:
        return said.offset
    return max(said.offset, int(message.record.offset))


def _is_not_ours(said: Correction, message: CorrectedMessage | None) -> bool:
    """Return whether there is nothing to correct: taken back since, or of before our beginning."""
    if message is None:
        return False
    is_gone = message.state == "gone" and said.label is not None
    return is_gone or (message.state == "before" and said.was is not None)


def _check_was_taught(said: Correction, message: CorrectedMessage) -> None:
    """Refuse to take back what a message never taught."""
    untaught = {"never"} if said.kind == "delete" else {"never", "waits"}
    if message.state in untaught and said.was is not None:
        raise InputError(f"its message never taught {said.was!r:.200} here.")


def _teach(said: Correction, part: str, learner: Learner, fields: Mapping[str, FieldKind]) -> None:
    """Take back what the message taught, and teach its new label: both or, if refused, neither."""
    if said.was is None and said.label is None:
        return
    example = learned_values(said.example, fields)
    weight = example.pop(WEIGHT, 1.0)
    if said.was is not None and said.was_part is not None:
        learner.unlearn_one(said.was_part, example, said.was, weight=weight)
    if said.label is None:
        return
    try:
        learner.learn_one(part, example, said.label, weight=weight)
        keep_classes(learner.model)
    except InputError:
        if said.was is not None and said.was_part is not None:
            learner.learn_one(said.was_part, example, said.was, weight=weight)
        raise


def _reject(
    entry: Entry, said: Correction, detail: str, reason: Reason = Reason.CORRECTION
) -> Reject:
    line = encode(said)
    return Reject(
        reason, detail, entry.partition, entry.offset, said.time_ms, said.id.encode(), line, said.id
    )
