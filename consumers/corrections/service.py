"""The service: where labels and deletions are handed in, from any thread.

It looks up what the message teaches now, writes that with the correction into the log, and answers
once the log has it safe. It teaches nothing: what the model learns, it learns from the log.

Corrections of one message are taken one after the other, each knowing the one before. For that
the service opens only once the log of before has been read back, and notes what it wrote until the
reader has seen it too: what comes back late must not overwrite what is newer.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec
import structlog

from consumers.config.message import MessageSettings
from consumers.config.model import FieldKind
from consumers.corrections.model import (
    Appended,
    Correction,
    Entry,
    InDoubt,
    Log,
    LogPosition,
    NotReady,
    NotWritten,
    UnknownLabel,
    UnknownMessage,
    UnusableExample,
    decoded,
    encode,
)
from consumers.decode.fields import DecodeError, converter, field_specs
from consumers.messages import KnownClasses, Partition, Reject, first_few, part_name
from consumers.search.store import RecentStoreError

OUTCOME_TIMEOUT_S = 10.0
# So long after it was given up a line may still come into its log: a request for it takes 10 s at
# most, and a broker that stands still longer is a trouble of the reading.
SETTLE_S = 30.0
UNREAD_MAX = 10_000  # corrections of messages that were taken and not read back yet
_LOCKS = 64
log = structlog.get_logger(__name__)


MessagePlace = tuple[Partition, int]  # a log of the stream, and an offset in it


class FoundMessage(Protocol):
    """What is known of a message of before."""

    @property
    def example(self) -> Mapping[str, Any]:
        """The model's fields, as the message was or would have been learned."""

    @property
    def taught(self) -> str | None:
        """The class that it teaches now; None where it teaches nothing."""

    @property
    def taught_part(self) -> str | None:
        """The part of the model that learned it."""

    @property
    def partition(self) -> Partition:
        """Its log."""

    @property
    def offset(self) -> int:
        """Its place there."""


class MessageLookup(Protocol):
    """Whoever keeps the newest messages; every method may be called from any thread."""

    def get(self, id: str, /) -> FoundMessage | None:  # noqa: A002 -- as messages call it
        """Return what is known of a message, None where it is not kept."""

    def correct(self, id: str, label: str | None, part: str | None, at: MessagePlace, /) -> None:  # noqa: A002
        """Note that a message now teaches a label by a part; saying it again changes nothing.

        Without a label it teaches nothing from now on.

        It is the message of that place which is meant, and no other of its id. It may be still to
        come: after a restart the log is read back before the stream brings it again. What is noted
        of one that is kept outlives a kill once this returns. A `StoreError` says that it could not
        be noted in time.
        """

    def remove(self, id: str, at: MessagePlace, /) -> None:  # noqa: A002
        """Forget a message for good, and all of its id but newer ones of its log; see `correct`."""


class ExampleReader:
    """Checks examples, and writes them as they are learned.

    `kinds` are the fields that the model reads, with what its groups make of them; `message` says
    how the stream's messages are read.
    """

    def __init__(self, kinds: Mapping[str, FieldKind], message: MessageSettings) -> None:
        self._kinds = dict(kinds)
        reads = field_specs(kinds, message)
        self._converters: dict[str, Callable[[Any], Any]] = {
            name: converter(read._replace(path=name), is_csv=False) for name, read in reads.items()
        }

    def checked(self, example: Mapping[str, Any]) -> dict[str, Any]:
        """Return an example's fields as the model learns them, those that are missing left out.

        An `UnusableExample` names a field that the model does not read, or a value that the
        stream's messages may not have either; an example without any value is one as well.
        """
        found: dict[str, Any] = {}
        for name, value in example.items():
            if name not in self._kinds:
                raise UnusableExample(
                    f"the model reads no field {name!r}; give {', '.join(self._kinds)}"
                )
            read = self._read(name, value)
            if read is not None and not (isinstance(read, float) and math.isnan(read)):
                found[name] = read
        if not found:
            raise UnusableExample(
                f"the example has no value to learn from; give {', '.join(self._kinds)}"
            )
        return found

    def _read(self, name: str, value: Any) -> Any:
        if name not in self._converters:  # the text, which is checked where messages are decoded
            if value is not None and not isinstance(value, str):
                raise UnusableExample(f"{name} must be a string, not {value!r:.60}")
            return value
        read = self._converters[name](value)
        if isinstance(read, DecodeError):
            raise UnusableExample(read.detail)
        return read


class Receipt(msgspec.Struct, frozen=True):
    """What came of a correction that was taken.

    The message teaches `label` from now on (None: nothing, it is deleted), and taught `was` so far.
    The correction stands at `position`, as ``corrections.jsonl@1234``.
    """

    id: str
    label: str | None
    was: str | None
    position: str


class _InDoubtAppend(msgspec.Struct):
    """A correction that the log has not answered for in time."""

    correction: Correction
    appended: Appended
    given_up_s: float | None = None  # when that was seen first


class CorrectionService:
    """Takes corrections and keeps them safe.

    `lookup` knows recent messages; without it examples alone can be taught, which `examples`
    checks.
    `classes` are the model's; those that may join may be taught too. `not_ready` says in a sentence
    why corrections cannot be taken now, `bound` how many messages are kept, for people. `clock`
    returns Unix seconds, `part_of` the part that learns what stands in a partition of the log.

    A label is written even if `lookup` says that the message teaches it already. The model may have
    learned an update, or a late label, that is still on its way to there; and a label that a person
    gave holds for updates that are still to come, which the stream's own does not.
    """

    def __init__(
        self,
        log: Log,
        lookup: MessageLookup | None,
        classes: Sequence[str],
        examples: ExampleReader,
        not_ready: Callable[[], str | None],
        *,
        bound: str = "the newest messages",
        clock: Callable[[], float] = time.time,
        part_of: Callable[[Partition], str] = part_name,
    ) -> None:
        self._log = log
        self._lookup = lookup
        self._classes = KnownClasses.of(classes)
        self._examples = examples
        self._not_ready = not_ready
        self._bound = bound
        self._clock = clock
        self._part_of = part_of
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        self._written: dict[str, LogPosition] = {}  # what was written here and not read back yet
        self._doubts: dict[str, _InDoubtAppend] = {}
        self._unnoted: dict[str, tuple[Correction, str]] = {}  # what the store has not taken
        # Lines of those whose classes the model did not learn, with the ids of their messages.
        self._not_applied: dict[bytes, str] = {}

    @property
    def reason(self) -> str | None:
        """Why corrections cannot be taken now; None where they can."""
        return self._not_ready()

    @property
    def ready(self) -> bool:
        """Whether corrections can be taken now."""
        return self.reason is None

    def label(self, id: str, label: str | None) -> Receipt:  # noqa: A002 -- as messages call it
        """Let a recent message teach a label, or nothing, in the place of what it taught."""
        if label is not None:
            self._check_label(label)
        with self._lock(id):
            found = self._find(id)
            return self._replace("withdraw" if label is None else "label", id, label, found)

    def suggest(self, id: str, label: str, at: MessagePlace, by: str) -> Receipt | None:  # noqa: A002
        """Let the message of a place teach a label if it teaches nothing; see `label`.

        `by` says in the log whose label it is. None: it teaches something by now, or is not kept.
        """
        self._check_label(label)
        with self._lock(id):
            found = self._untaught(id, at)
            return None if found is None else self._replace("label", id, label, found, by)

    def is_untaught(self, id: str, at: MessagePlace) -> bool:  # noqa: A002 -- as messages call it
        """Return whether the message of a place is kept, and teaches nothing yet."""
        with self._lock(id):
            return self._untaught(id, at) is not None

    def _untaught(self, id: str, at: MessagePlace) -> FoundMessage | None:  # noqa: A002
        try:
            found = self._find(id)
        except UnknownMessage:
            return None
        is_meant = found.taught is None and (found.partition, found.offset) == at
        return found if is_meant else None

    def teach(self, example: Mapping[str, Any], label: str) -> Receipt:
        """Teach an example that comes with the request, under an id of its own."""
        self._check_label(label)
        learned = self._examples.checked(example)
        self._check_ready()
        made = f"example-{uuid.uuid4().hex}"
        return self._write(Correction("label", made, self._now_ms(), example=learned, label=label))

    def delete(self, id: str) -> Receipt:  # noqa: A002 -- as messages call it
        """Take back what a recent message taught, and forget the message."""
        with self._lock(id):
            return self._replace("delete", id, None, self._find(id))

    def read_back(self, entry: Entry) -> None:
        """Take in what the log says, unless something newer was written here meanwhile.

        Called by the reading thread, in the order of the log.
        """
        said = entry.said
        if isinstance(said, Reject):
            self._forget_refused(said, entry)
            return
        if said is None:
            self._forget_lost(entry)
            return
        if said.place is None:
            return
        with self._lock(said.id):
            ours = self._written.get(said.id)
            if ours is not None and ours.partition == entry.partition:
                if ours.offset <= entry.offset:
                    del self._written[said.id]
                if ours.offset >= entry.offset:
                    return
            doubt = self._doubts.get(said.id)
            if doubt is not None and doubt.correction == said:
                del self._doubts[said.id]
            self._note(said, self._part_of(entry.partition))

    def not_applied(self, said: Correction) -> None:
        """Take in that the model does not learn a correction; any thread may call it.

        If its class was to join the model, the store is not told of it any more.
        """
        if said.place is not None and said.label is not None and said.label not in self._classes:
            self._not_applied[encode(said)] = said.id

    def _forget_lost(self, entry: Entry) -> None:
        """Wait no more for corrections that were written here and lost before they came back."""
        for name, ours in list(self._written.items()):
            if ours.partition == entry.partition and ours.offset < entry.next_offset:
                with self._lock(name):
                    if self._written.get(name) == ours:
                        del self._written[name]

    def _forget_refused(self, reject: Reject, entry: Entry) -> None:
        """Forget a correction that was taken here and came back as a reject."""
        said = decoded(reject.value or b"")
        if said is None or said.place is None:
            return
        with self._lock(said.id):
            ours = self._written.get(said.id)
            if ours == LogPosition(entry.partition, entry.offset):
                del self._written[said.id]
            doubt = self._doubts.get(said.id)
            if doubt is not None and doubt.correction == said:
                del self._doubts[said.id]
            unnoted = self._unnoted.get(said.id)
            if unnoted is not None and unnoted[0] == said:
                del self._unnoted[said.id]

    def settle_doubts(self, now_s: float, well_since_s: float) -> None:
        """Forget corrections in doubt that came into nothing: their messages take others again.

        Called by the reading thread when it has told all that the log holds, which it has read
        without trouble since a time. What nobody sends any more and is not there was not taken. If
        it comes after all, it is one more line that another might have written.
        """
        for name in list(self._doubts):
            with self._lock(name):
                doubt = self._doubts.get(name)
                if doubt is not None and self._is_lost(doubt, now_s, well_since_s):
                    del self._doubts[name]
                    log.warning("correction_lost", id=name, kind=doubt.correction.kind)

    def _is_lost(self, doubt: _InDoubtAppend, now_s: float, well_since_s: float) -> bool:
        """Return whether a correction in doubt is known not to be in the log."""
        try:
            written = doubt.appended.outcome(0.0)
        except NotWritten:
            return True
        if written is not None or not doubt.appended.is_given_up():
            return False
        if doubt.given_up_s is None:
            doubt.given_up_s = now_s
        return now_s >= max(doubt.given_up_s, well_since_s) + SETTLE_S

    def note_joined(self) -> None:
        """Let the store know of corrections that waited for their class to join the model.

        Those whose class did not join are forgotten.
        """
        # Each line by itself: while one is looked at, another of its message may come to them.
        for line, name in list(self._not_applied.items()):
            with self._lock(name):  # who holds it may be about to note the correction
                unnoted = self._unnoted.get(name)
                if unnoted is not None:
                    self._note(*unnoted)
                self._not_applied.pop(line, None)
        for name, (said, _) in list(self._unnoted.items()):
            if said.label in self._classes:
                with self._lock(name):
                    unnoted = self._unnoted.get(name)
                    if unnoted is not None:
                        self._note(*unnoted)

    def _lock(self, id: str) -> threading.Lock:  # noqa: A002
        return self._locks[hash(id) % _LOCKS]

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _check_ready(self) -> None:
        reason = self.reason
        if reason is not None:
            raise NotReady(reason)
        if len(self._written) + len(self._doubts) + len(self._unnoted) >= UNREAD_MAX:
            raise NotReady(
                f"{UNREAD_MAX} corrections wait to be read back from {self._log.name}; "
                "ask again in a moment"
            )

    def _check_label(self, label: str) -> None:
        if not self._classes.takes(label):
            raise UnknownLabel(f"label {label!r:.200} is none of {first_few(self._classes)}")

    def _find(self, id: str) -> FoundMessage:  # noqa: A002
        """Return what is known of a message; its lock is held."""
        self._check_ready()
        self._settle_doubt(id)
        unnoted = self._unnoted.get(id)
        if unnoted is not None and not self._note(*unnoted):
            raise NotReady(
                f"the store of recent messages has not taken the last correction of {id!r:.200} yet"
            )
        found = None if self._lookup is None else self._lookup.get(id)
        if found is None:
            kept = self._bound if self._lookup is not None else "no messages: recent.enabled"
            raise UnknownMessage(
                f"no message {id!r:.200} is kept; what a message taught is known of {kept}"
            )
        return found

    def _replace(
        self,
        kind: Literal["label", "delete", "withdraw"],
        id: str,  # noqa: A002
        label: str | None,
        found: FoundMessage,
        by: str | None = None,
    ) -> Receipt:
        """Write what a message teaches in the place of what it taught; its lock is held."""
        correction = Correction(
            kind,
            id,
            self._now_ms(),
            example=dict(found.example),
            label=label,
            was=found.taught,
            was_part=found.taught_part,
            partition=(found.partition.topic, found.partition.partition),
            offset=found.offset,
            by=by,
        )
        return self._write(correction)

    def _write(self, correction: Correction) -> Receipt:
        """Write a correction and note it; where it has a message, its lock is held."""
        appended = self._log.append(correction.id.encode(), encode(correction))
        written = appended.outcome(OUTCOME_TIMEOUT_S)
        if written is None:
            if correction.place is not None:
                self._doubts[correction.id] = _InDoubtAppend(correction, appended)
            raise InDoubt(
                f"{self._log.name} has not answered within {OUTCOME_TIMEOUT_S:g} s. The correction "
                "may be in it already or come into it later; look again before sending it again"
            )
        if correction.place is not None:
            self._written[correction.id] = written
            self._note(correction, self._part_of(written.partition))
        position = f"{self._log.name}@{_place(written)}"
        return Receipt(correction.id, correction.label, correction.was, position)

    def _settle_doubt(self, id: str) -> None:  # noqa: A002
        """Find out what became of a correction that was in doubt."""
        doubt = self._doubts.get(id)
        if doubt is None:
            return
        try:
            written = doubt.appended.outcome(0.0)
        except NotWritten:
            del self._doubts[id]
            return
        if written is None:
            raise NotReady(
                f"a correction of the message {id!r:.200} is on its way to {self._log.name}, which "
                "has not answered yet; wait for it"
            )
        del self._doubts[id]
        self._written[id] = written
        self._note(doubt.correction, self._part_of(written.partition))

    def _note(self, said: Correction, part: str) -> bool:
        """Let the store know what a message teaches now; tell whether it has taken it.

        The correction itself is safe. Until the store knows of it, no other of that message is
        taken: it would take back what is not taught any more.
        """
        if self._lookup is None or said.place is None:
            return True
        at = said.place, said.offset
        if said.label is not None and said.label not in self._classes:
            if encode(said) in self._not_applied:
                self._unnoted.pop(said.id, None)
                return True
            self._unnoted[said.id] = said, part  # the model will bring the class as it learns this
            return False
        try:
            if said.kind == "delete":
                self._lookup.remove(said.id, at)
            else:
                self._lookup.correct(said.id, said.label, part if said.label else None, at)
        except RecentStoreError as error:
            log.warning("correction_not_noted", id=said.id, detail=str(error))
            self._unnoted[said.id] = said, part
            return False
        self._unnoted.pop(said.id, None)
        return True


def _place(written: LogPosition) -> str:
    number = written.partition.partition
    return f"{number}:{written.offset}" if number else str(written.offset)
