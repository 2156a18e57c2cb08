"""The time that a message names, in any of its forms, to Unix milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MONTHS = {
    "Jan": 1, "Feb": 2, "Mar": 3, "Apr": 4, "May": 5, "Jun": 6,
    "Jul": 7, "Aug": 8, "Sep": 9, "Oct": 10, "Nov": 11, "Dec": 12,
}  # fmt: skip
_ZONES_H = {"UTC": 0, "GMT": 0, "PST": -8, "PDT": -7}  # those of Sentiment140 and of old logs

# A number's size tells its unit: from 1973 to 5138 the four ranges do not meet.
_SECONDS_MAX = 1e11
_MILLISECONDS_MAX = 1e14
_MICROSECONDS_MAX = 1e17
_NANOSECONDS_MAX = 9e18

# No form is longer; a text of a megabyte must not stay in the caches as a key.
_CHARACTERS_MAX = 100


def to_unix_ms(value: Any) -> int | None:
    """Return a time as Unix milliseconds, or None if it cannot be understood.

    Parameters
    ----------
    value : object
        A string in ISO 8601 (UTC where it names no zone) or in Twitter's form, or a number, or a
        string of digits: Unix seconds, milliseconds, microseconds or nanoseconds, by its size.
        Anything else gives None, also a year beyond the calendar.

    Examples
    --------
    >>> to_unix_ms("2009-04-07T05:19:45Z") == to_unix_ms("Mon Apr 06 22:19:45 PDT 2009")
    True
    >>> to_unix_ms(1239081585), to_unix_ms("tomorrow")
    (1239081585000, None)
    """
    if value.__class__ is str:
        return _from_text(value) if len(value) <= _CHARACTERS_MAX else None
    if value.__class__ is int or value.__class__ is float:
        return _from_number(value)
    return None


@lru_cache(maxsize=4096)
def _from_text(text: str) -> int | None:
    """Read a string. Messages of a stream share their seconds, so a small cache helps."""
    # First, as Python reads some digits as date and hour. Eight digits are a date, 20090407.
    if text.isdecimal() and len(text) != 8:
        return _from_number(int(text)) if len(text) < 20 else None
    try:
        when = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        return _twitter(text)
    return _since_epoch(when)


def _from_number(number: float) -> int | None:
    """Read a number of seconds, milliseconds, microseconds or nanoseconds."""
    size = abs(number)
    if size < _SECONDS_MAX:
        return int(number * 1000)
    if size < _MILLISECONDS_MAX:
        return int(number)
    if size < _MICROSECONDS_MAX:
        return int(number // 1_000)
    if size < _NANOSECONDS_MAX:
        return int(number // 1_000_000)
    return None


def _twitter(text: str) -> int | None:
    """Read `Mon Apr 06 22:19:45 +0000 2009`, with an offset or one of a few names for the zone."""
    try:
        _, month, day, clock, zone, year = text.split()
        midnight_ms = _midnight(month, day, zone, year)
        hour, minute, second = map(int, clock.split(":"))
    except (ValueError, KeyError, OverflowError):  # the last for a year beyond a C integer
        return None
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60):
        return None
    return midnight_ms + 1000 * (60 * (60 * hour + minute) + second)


@lru_cache(maxsize=256)
def _midnight(month: str, day: str, zone: str, year: str) -> int:
    """Return when a day begins: the slow part, cached as the next message is of the same day."""
    if zone in _ZONES_H:
        offset = timedelta(hours=_ZONES_H[zone])
    else:
        sign = {"+": 1, "-": -1}[zone[0]]
        offset = sign * timedelta(hours=int(zone[1:3]), minutes=int(zone[3:5]))
    return _since_epoch(datetime(int(year), _MONTHS[month], int(day), tzinfo=timezone(offset)))


def _since_epoch(when: datetime) -> int:
    """Return the milliseconds between 1970 and a time, which is in UTC unless it says otherwise."""
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return (when - _EPOCH) // _MILLISECOND
