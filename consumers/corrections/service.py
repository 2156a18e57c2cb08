"""The service: where labels and deletions are handed in, from any thread.

It looks up what the message teaches now, writes that with the correction into the log, and answers
once the log has it safe. It teaches nothing: what the model learns, it learns from the log.

Corrections of one message are dealt with one after the other, each knowing the one before. For that
the service opens only once the log of before has been read back, and notes what it wrote until the
reader has seen it too: what comes back late must not overwrite what is newer.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import structlog

from consumers.corrections.log_reader import Appended, Log, LogPosition
from consumers.corrections.message_lookup import ExampleReader, FoundMessage, MessageLookup
from consumers.corrections.model import (
    Correction,
    Entry,
    InDoubt,
    NotReady,
    NotWritten,
    UnknownLabel,
    UnknownMessage,
    encode,
)
from consumers.messages import KnownClasses, Reject, part_name
from consumers.search import RecentStoreError

OUTCOME_TIMEOUT_S = 10.0
_LOCKS = 64
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What came of a correction that was taken.

    Attributes
    ----------
    id : str
    label : str or None
        What the message teaches from now on; None for a deletion.
    was : str or None
        What it taught so far.
    position : str or None
        Where the correction stands, as ``corrections.jsonl@1234``; None where nothing had to be
        written, as the message teaches that label already.
    """

    id: str
    label: str | None
    was: str | None
    position: str | None


@dataclass(frozen=True, slots=True)
class _InDoubtAppend:
    """A correction that the log has not answered for in time."""

    correction: Correction
    appended: Appended


class CorrectionService:
    """Takes corrections and keeps them safe.

    Parameters
    ----------
    log : Log
        Where they go.
    lookup : MessageLookup or None
        Who knows recent messages; None where they are not kept, and examples alone can be taught.
    classes : sequence of str
        The model's; those that may join may be taught too.
    examples : ExampleReader
        Checks examples that come with a request.
    not_ready : callable
        Returns why corrections cannot be taken now, in a sentence; None where they can.
    bound : str
        How many messages are kept, for people: "the newest 1000000 messages".
    clock : callable
        Unix seconds.
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
    ) -> None:
        self._log = log
        self._lookup = lookup
        self._classes = KnownClasses.of(classes)
        self._examples = examples
        self._not_ready = not_ready
        self._bound = bound
        self._clock = clock
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        self._written: dict[str, LogPosition] = {}  # what was written here and not read back yet
        self._doubts: dict[str, _InDoubtAppend] = {}
        self._unnoted: dict[str, tuple[Correction, str]] = {}  # what the store has not taken

    @property
    def reason(self) -> str | None:
        """Why corrections cannot be taken now; None where they can."""
        return self._not_ready()

    @property
    def ready(self) -> bool:
        """Whether corrections can be taken now."""
        return self.reason is None

    def label(self, id: str, label: str) -> Receipt:  # noqa: A002 -- as messages call it
        """Let a recent message teach a label, in the place of what it taught.

        Returns
        -------
        Receipt

        Raises
        ------
        CorrectionError
            See its subclasses.
        """
        self._check_label(label)
        with self._lock(id):
            found = self._find(id)
            if found.taught == label:
                return Receipt(id, label, label, None)
            return self._write(self._correction("label", id, label, found))

    def teach(self, example: Mapping[str, Any], label: str) -> Receipt:
        """Teach an example that comes with the request, under an id of its own.

        Returns
        -------
        Receipt

        Raises
        ------
        CorrectionError
            See its subclasses.
        """
        self._check_label(label)
        learned = self._examples.checked(example)
        self._check_ready()
        made = f"example-{uuid.uuid4().hex}"
        return self._write(Correction("label", made, self._now_ms(), example=learned, label=label))

    def delete(self, id: str) -> Receipt:  # noqa: A002 -- as messages call it
        """Take back what a recent message taught, and forget the message.

        Returns
        -------
        Receipt

        Raises
        ------
        CorrectionError
            See its subclasses.
        """
        with self._lock(id):
            return self._write(self._correction("delete", id, None, self._find(id)))

    def read_back(self, entry: Entry) -> None:
        """Take in what the log says, unless something newer was written here meanwhile.

        Called by the reading thread, in the order of the log.
        """
        said = entry.said
        if isinstance(said, Reject) or said.place is None:
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
            self._note(said, entry.part)

    def note_joined(self) -> None:
        """Let the store know of corrections that waited for their class to join the model."""
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

    def _check_label(self, label: str) -> None:
        if not self._classes.takes(label):
            raise UnknownLabel(f"label {label!r:.200} is none of {', '.join(self._classes)}")

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

    def _correction(
        self,
        kind: Literal["label", "delete"],
        id: str,  # noqa: A002
        label: str | None,
        found: FoundMessage,
    ) -> Correction:
        return Correction(
            kind,
            id,
            self._now_ms(),
            example=dict(found.example),
            label=label,
            was=found.taught,
            was_part=found.taught_part,
            partition=(found.partition.topic, found.partition.partition),
            offset=found.offset,
        )

    def _write(self, correction: Correction) -> Receipt:
        """Write a correction and note it; where it has a message, its lock is held."""
        appended = self._log.append(correction.id.encode(), encode(correction))
        written = appended.outcome(OUTCOME_TIMEOUT_S)
        if written is None:
            if correction.place is not None:
                self._doubts[correction.id] = _InDoubtAppend(correction, appended)
            raise InDoubt(
                f"{self._log.name} has not answered within {OUTCOME_TIMEOUT_S:g} s. The correction "
                "may be in it already or come into it later; look again before sending it anew"
            )
        if correction.place is not None:
            self._written[correction.id] = written
            self._note(correction, part_name(written.partition))
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
        self._note(doubt.correction, part_name(written.partition))

    def _note(self, said: Correction, part: str) -> bool:
        """Let the store know what a message teaches now; tell whether it has taken it.

        The correction itself is safe. Until the store knows of it, no other of that message is
        taken: it would take back what is not taught any more.
        """
        if self._lookup is None or said.place is None:
            return True
        at = said.place, said.offset
        if said.label is not None and said.label not in self._classes:
            self._unnoted[said.id] = said, part  # the model will bring the class as it learns this
            return False
        try:
            if said.label is None:
                self._lookup.remove(said.id, at)
            else:
                self._lookup.correct(said.id, said.label, part, at)
        except RecentStoreError as error:
            log.warning("correction_not_noted", id=said.id, detail=str(error))
            self._unnoted[said.id] = said, part
            return False
        self._unnoted.pop(said.id, None)
        return True


def _place(written: LogPosition) -> str:
    number = written.partition.partition
    return f"{number}:{written.offset}" if number else str(written.offset)
