"""What the recent store hands out: rows, what a search found, what was counted, its own state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from consumers.messages import Partition


class MessageRow(msgspec.Struct, frozen=True):
    """One message of the store.

    Attributes
    ----------
    key : int
        Its place in the store: later ones have larger keys, and none is given twice.
    id : str
        The message's own id, or one made of its place in the stream.
    partition : Partition
        The log it came from.
    offset : int
        Its place there.
    time_ms : int
        The message's own time, else its source's, in Unix milliseconds; -1 where neither is known.
    arrived_ms : int
        When it came, by this computer's clock, in Unix milliseconds.
    user, lang : str or None
    text : str
        What is shown and searched: its text, or without one its fields; cut off behind
        `row_builder.TEXT_MAX` characters.
    example : dict
        The model's fields as they were learned or judged: text as str, numbers as float, flags as
        0.0 and 1.0; what is missing is absent.
    label : str
        What it was judged to be when it came.
    probability : float
        How likely that was.
    probabilities : tuple of float
        Those of all classes, in their order.
    truth : str or None
        The stream's label.
    taught : str or None
        The label by which it teaches the model now; None where it teaches nothing.
    taught_part : str or None
        The model's part that holds what it taught.
    corrected : str or None
        The label that a person gave.
    """

    key: int
    id: str
    partition: Partition
    offset: int
    time_ms: int
    arrived_ms: int
    user: str | None
    lang: str | None
    text: str
    example: dict[str, Any]
    label: str
    probability: float
    probabilities: tuple[float, ...]
    truth: str | None
    taught: str | None
    taught_part: str | None
    corrected: str | None


class FoundRow(msgspec.Struct, frozen=True):
    """A row that matches a query.

    Attributes
    ----------
    row : MessageRow
    marked : tuple of str
        Its text in pieces; every second one, from the second on, is of the query's words.
    """

    row: MessageRow
    marked: tuple[str, ...]


class Found(msgspec.Struct, frozen=True):
    """A page of what a search found, newest first.

    Attributes
    ----------
    rows : sequence of FoundRow
    more : bool
        Whether older ones match as well.
    before : int or None
        What to ask for to get these: the key of the last; None where there are no more.
    """

    rows: Sequence[FoundRow]
    more: bool
    before: int | None


class Counted(msgspec.Struct, frozen=True):
    """Counts over the newest messages that match.

    Attributes
    ----------
    n : int
        Messages counted.
    n_max : int
        How many are counted at most.
    newest_only : bool
        Whether there are more, which were left out: older ones.
    counts : tuple of int
        By predicted class, in the classes' order.
    confusion : tuple of tuple of int
        Of those that came with a label: row the label, column what was predicted before it was
        learned.
    n_unsure : int
        Messages whose most likely class is less likely than `page.unsure_below`.
    step_s : int
        Length of a step of the series, in seconds.
    times_ms : tuple of int
        Where each step begins, ascending; steps without a message are left out.
    series : tuple of tuple of int
        Counts of each step by class. Messages whose time is far from all others' (beyond the
        middle 98 %, where these are close together) are left out here.
    """

    n: int
    n_max: int
    newest_only: bool
    counts: tuple[int, ...]
    confusion: tuple[tuple[int, ...], ...]
    n_unsure: int
    step_s: int
    times_ms: tuple[int, ...]
    series: tuple[tuple[int, ...], ...]


class RecentState(msgspec.Struct, frozen=True):
    """What the store holds, and how it fares.

    Attributes
    ----------
    n_messages : int
        Messages held.
    messages_max, age_max_s : int, float
        Its bounds.
    share : float
        Of the messages that came while the held ones did, the share that was taken, 0 to 1.
    stored_per_s, offered_per_s : float
        Messages a second, over the last minute at most.
    n_offered, n_stored : int
        Messages since the start: those that came, those that were stored.
    n_overflowed : int
        Those that would have been taken, had the queue not been full.
    n_failed : int
        Those that were taken and could not be written.
    n_restarts : int
        How often the file was opened again after an error that nobody foresaw.
    n_bytes : int
        Size of the file.
    trouble : str or None
        What keeps it from writing now, as a sentence.
    """

    n_messages: int
    messages_max: int
    age_max_s: float
    share: float
    stored_per_s: float
    offered_per_s: float
    n_offered: int
    n_stored: int
    n_overflowed: int
    n_failed: int
    n_restarts: int
    n_bytes: int
    trouble: str | None


class Change(msgspec.Struct, frozen=True):
    """Something happened to a message that is held.

    Attributes
    ----------
    id : str
    corrected : str or None
        The label that a person gave it.
    removed : bool
        Whether it is gone.
    """

    id: str
    corrected: str | None
    removed: bool
