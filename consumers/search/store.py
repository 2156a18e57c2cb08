"""The front of the recent store: any thread may call it."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from consumers.config.sections import RecentSettings
from consumers.errors import ConsumerError
from consumers.messages import Messages, Partition
from consumers.search.budget import ProcessorBudget
from consumers.search.counting import counted, picked
from consumers.search.query import Query
from consumers.search.row_builder import RowBuilder
from consumers.search.row_mapper import Keys, Parts, keys_of
from consumers.search.rows import Change, Counted, Found, MessageRow, RecentState
from consumers.search.sampler import Correct, Forget, Remove, Sampler
from consumers.search.searcher import COUNTED_MAX
from consumers.search.tables import KEY_LAST, Retention
from consumers.search.writer import Writer

FILE_NAME = "recent.db"
_WAIT_S = 10.0


class RecentStoreError(ConsumerError):
    """The store could not be changed."""


class RecentStore:
    """The newest messages, searchable.

    Parameters
    ----------
    settings : RecentSettings
    path : Path or None
        The file; None: a temporary one, which is gone after `stop`.
    classes : sequence of str
        The model's classes, in the order of the posteriors' columns.
    fields : sequence of str
        The fields of a message that the model reads (`ModelSettings.fields`).
    unsure_below : float
        A message whose most likely class is less likely than this counts as unsure.
    wall_clock : callable
        Seconds since 1970.
    clock : callable
        Monotonic seconds.
    times_made_up : bool
        Whether what messages say of their own time means nothing: then they are of the time when
        they came.

    Attributes
    ----------
    listeners : list of callable
        Each is called on the store's thread with every batch of rows that was stored, oldest first.
        To be filled before `start`; must be quick.
    change_listeners : list of callable
        The same for what a person or the stream changed: a list of `Change`.
    """

    def __init__(
        self,
        settings: RecentSettings,
        path: Path | None,
        classes: Sequence[str],
        fields: Sequence[str],
        unsure_below: float,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        *,
        times_made_up: bool = False,
    ) -> None:
        self.classes = tuple(classes)
        self._unsure_below = unsure_below
        self._bounds = Retention.of(settings)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if path is None:
            self._folder = tempfile.TemporaryDirectory(prefix="streamnb-")
            path = Path(self._folder.name) / FILE_NAME
        self._path = path
        codes = {name: c for c, name in enumerate(classes)}
        row_builder = RowBuilder(codes, tuple(fields), times_made_up=times_made_up)
        budget = ProcessorBudget(settings.processor_share_max)
        self._sampler = Sampler(settings.rate_max_per_s, budget, row_builder, wall_clock, clock)
        self._writer = Writer(path, self._sampler, self._bounds, classes, wall_clock, clock)
        self.listeners: list[Callable[[Sequence[MessageRow]], None]] = self._writer.listeners
        self.change_listeners: list[Callable[[list[Change]], None]] = self._writer.change_listeners

    def start(self) -> None:
        """Start the thread that opens the file and writes it; messages are taken from here on."""
        self._sampler.open()
        self._writer.thread.start()

    def stop(self) -> None:
        """Write what waits, end the thread and close the file."""
        self._sampler.close()
        if self._writer.thread.ident is not None:
            self._writer.thread.join()
        if self._folder is not None:
            self._folder.cleanup()

    def offer(
        self, messages: Messages, rows: NDArray[np.int64], log_posteriors: NDArray[np.float64]
    ) -> None:
        """Take in messages that were judged: a few microseconds for each that is kept, no wait.

        Parameters
        ----------
        messages : Messages
        rows : ndarray of shape (n,), int64
            Which of them, ascending.
        log_posteriors : ndarray of shape (n, n_classes), in nats
            What was thought of each.
        """
        self._sampler.offer(messages, rows, log_posteriors)

    def forget_ids(
        self, ids: Sequence[str], at: tuple[Partition, Sequence[int]]
    ) -> threading.Event:
        """Forget messages that the stream deleted, behind all that was offered before; no wait.

        All of an id go, but those that stand behind the deletion `at` an offset of its partition.

        Returns
        -------
        threading.Event
            Set once the file no longer has them in its tables.
        """
        forget = Forget(tuple(ids), at)
        if not ids:
            forget.done.set()
        else:
            self._sampler.put(forget)
        return forget.done

    def correct(
        self,
        id: str,  # noqa: A002 -- it is one
        label: str | None,
        part: str | None,
        at: tuple[Partition, int] | None = None,
        *,
        wait: bool = True,
    ) -> None:
        """Note that a message now teaches `label`, in the model's part `part`; idempotent.

        It is the message that stands `at` a place in the stream; None: the newest of its id. One
        that is not held is left alone, or, where its place is known, corrected when it comes.
        Searches see it when this returns, or, without `wait` (for threads that must not), a moment
        later.

        Raises
        ------
        ValueError
            Where there is no such class.
        StoreError
            Where it could not be written for ten seconds; it is tried on.
        """
        if label is not None and label not in self.classes:
            raise ValueError(f"no class {label!r}; there are {', '.join(self.classes)}")
        self._put(Correct(id, label, part, at), wait=wait)

    def remove(
        self,
        id: str,  # noqa: A002 -- it is one
        at: tuple[Partition, int] | None = None,
        *,
        wait: bool = True,
    ) -> None:
        """Remove a message for good, also where the stream brings it again; `wait` as above.

        All of its id go, but those that stand behind the place `at` in their partition. No search
        shows them any more. Their words leave the file itself within about ten seconds.

        Raises
        ------
        StoreError
            Where it could not be written for ten seconds; it is tried on, and hidden.
        """
        self._put(Remove(id, at), wait=wait)

    def search(
        self, query: Query, lang: str | None = None, limit: int = 50, before: int | None = None
    ) -> Found:
        """Return the newest messages that match.

        Parameters
        ----------
        query : Query
        lang : str, optional
            Only those of this language.
        limit : int
            How many, 1,000 at most.
        before : int, optional
            Only those with smaller keys.

        Raises
        ------
        QueryError
            Where it took too long, or there is a fault of the file.
        """
        searcher = self._writer.searcher
        if searcher is None:
            return Found((), more=False, before=None)
        return searcher.search(query, lang, limit, before)

    def counted(self, query: Query, lang: str | None = None) -> Counted:
        """Count the newest 10,000 messages that match, or all of them where all are asked for.

        Raises
        ------
        QueryError
            Where it took too long, or there is a fault of the file.
        """
        searcher = self._writer.searcher
        if searcher is None:
            n_max = self._bounds.messages_max if query.is_everything else COUNTED_MAX
            return self._counted((), n_max, newest_only=False)
        return searcher.counted(query, lang, self._unsure_below)

    def keys(self, query: Query, lang: str | None, n_max: int) -> Keys:
        """Return the keys of the newest messages that match, ascending, `n_max` at most.

        Raises
        ------
        QueryError
            Where it took too long, or there is a fault of the file.
        """
        searcher = self._writer.searcher
        return np.zeros(0, np.int64) if searcher is None else searcher.keys(query, lang, n_max)

    @property
    def oldest_key(self) -> int:
        """A key below which no message is held; larger than all keys where none is."""
        searcher = self._writer.searcher
        return KEY_LAST if searcher is None else searcher.oldest_key

    def held(self, keys: Keys) -> Keys:
        """Return those of some keys, ascending, whose messages are still held."""
        searcher = self._writer.searcher
        return keys[:0] if searcher is None else keys_of(searcher.located(keys))

    def counted_keys(self, keys: Keys, *, newest_only: bool) -> Counted:
        """Count messages as `counted` does, by their keys, ascending, of those still held."""
        searcher = self._writer.searcher
        parts = () if searcher is None else searcher.located(keys)
        return self._counted(parts, COUNTED_MAX, newest_only=newest_only)

    def get(self, id: str) -> MessageRow | None:  # noqa: A002 -- it is one
        """Return the newest message of an id, or None where it is not held.

        Raises
        ------
        QueryError
            Where there is a fault of the file.
        """
        searcher = self._writer.searcher
        return None if searcher is None else searcher.get(id)

    def languages(self) -> list[str]:
        """Return the languages of the held messages, most frequent first, 50 at most."""
        searcher = self._writer.searcher
        return [] if searcher is None else searcher.languages()

    def trouble(self) -> str | None:
        """Return what keeps the store from writing now, as a sentence."""
        return self._writer.trouble

    def state(self) -> RecentState:
        """Return what is held, and how the store fares."""
        searcher = self._writer.searcher
        chunks = () if searcher is None else searcher.published()
        n_offered = sum(chunk.n_offered for chunk in chunks)
        n_taken = sum(chunk.n_committed for chunk in chunks)
        offered_per_s, taken_per_s = self._sampler.rates()
        return RecentState(
            n_messages=sum(chunk.n_alive for chunk in chunks),
            messages_max=self._bounds.messages_max,
            age_max_s=self._bounds.age_max_s,
            share=min(1.0, n_taken / n_offered) if n_offered else 1.0,
            stored_per_s=taken_per_s,
            offered_per_s=offered_per_s,
            n_offered=self._sampler.n_offered,
            n_stored=self._writer.n_stored,
            n_overflowed=self._sampler.n_overflowed,
            n_failed=self._writer.n_failed,
            n_restarts=self._writer.n_restarts,
            n_bytes=sum(map(_size, (self._path, self._path.with_name(self._path.name + "-wal")))),
            trouble=self._writer.trouble,
        )

    def _counted(self, parts: Parts, n_max: int, *, newest_only: bool) -> Counted:
        return counted(
            [picked(*part) for part in parts],
            len(self.classes),
            self._unsure_below,
            n_max=n_max,
            newest_only=newest_only,
        )

    def _put(self, item: Correct | Remove, *, wait: bool) -> None:
        if self._sampler.put(item) and wait and not item.done.wait(_WAIT_S):
            raise RecentStoreError(
                f"{item.id!r} could not be changed for {_WAIT_S:g} s"
                f" ({self._writer.trouble or 'the store is busy'}); it is tried on"
            )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
