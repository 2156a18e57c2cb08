"""Times of messages: many forms, one moment."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from consumers.decode.fields import to_unix_ms
from consumers.messages import NO_TIME


@pytest.mark.parametrize(
    "value",
    [
        "2009-04-07T05:19:45Z", "2009-04-07T05:19:45+00:00", "2009-04-06T22:19:45-0700",
        "2009-04-07 05:19:45", "Tue Apr 07 05:19:45 +0000 2009", "Mon Apr 06 22:19:45 PDT 2009",
        1_239_081_585, 1_239_081_585.0, 1_239_081_585_000, 1_239_081_585_000_000,
        1_239_081_585_000_000_000, "1239081585", "1239081585000", "20090407T051945Z",
    ],
    ids=repr,
)  # fmt: skip
def test_one_moment_in_many_forms(value: Any) -> None:
    """ISO 8601, Twitter's form and Unix times of all units are the same moment."""
    assert to_unix_ms(value) == 1_239_081_585_000


def test_digits_are_a_number_or_a_date() -> None:
    """Eight digits are a date; others are a number, even where they could be a date and an hour."""
    assert to_unix_ms("20090407") == to_unix_ms("2009-04-07T00:00:00Z")
    assert to_unix_ms("1234010112000") == 1_234_010_112_000


@pytest.mark.parametrize(
    "value",
    ["1965-01-01", "Thu Dec 31 16:00:00 PST 1964", -157_766_400, -157_766_400.0, "-157766400",
     "-157766400000", -157_766_400_000_000, "-157766400000000000"],
    ids=repr,
)  # fmt: skip
def test_a_moment_before_1970(value: Any) -> None:
    """It is one as any other is, in all forms."""
    assert to_unix_ms(value) == -157_766_400_000


@pytest.mark.parametrize("value", [-1, -1.0, "-1", "0001-01-01T00:00:00Z", "0001-01-01"], ids=repr)
def test_what_stands_for_no_time(value: Any) -> None:
    """-1, and the year that some languages begin with, are not the time of any message."""
    assert to_unix_ms(value) == NO_TIME


@pytest.mark.parametrize(
    "value",
    [
        "", "tomorrow", "Mon Apr 31 22:19:45 PDT 2009", "Mon Foo 06 22:19:45 PDT 2009",
        "Mon Apr 06 22:19 PDT 2009", "Mon Apr 06 22:19:45 XYZ 2009", "20091340", "1-1-1",
        "Sat Jul 09 01:09:05 +0000 9999999999", "Sat Jul 9999999999 01:09:05 +0000 2016",
        "Sat Jul 09 01:09:05 +0000 -9999999999", f"Sat Jul 09 01:09:05 +0000 {10**400}",
        "Sat Jul 09 01:09:05 +9999 2016", f"{10**10}-07-09T01:09:05Z", "9999-12-31T24:00:01",
        f"2016-07-09{' ' * 1_000_000}", f"2016-07-09T01:09:05.{'0' * 5_000}Z",
        None, True, [], {}, 10**400, -(10**400), 1e300, math.nan, math.inf, "9" * 30,
    ],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
def test_what_is_no_time_gives_way_to_the_source(value: Any) -> None:
    """What cannot be read as a time is no time, and never an error."""
    assert to_unix_ms(value) is None


FORMS = (
    "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "9999-W52-7", "20090407T051945Z",
    "2009-04-07T05:19:45.123456789+00:00:00.999999", "Sat Jul 09 01:09:05 +0000 2016",
    "Sat Jul 01 00:00:00 +2359 0001", "Sat Dec 31 23:59:59 -2359 9999", "1239081585000",
)  # fmt: skip


def test_any_text_is_a_time_or_none() -> None:
    """A text near a time, to which anything has happened, is a time a browser knows, or none."""
    rng = random.Random(13)
    for _ in range(20_000):
        text = list(rng.choice(FORMS))
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text) + 1)
            put = rng.choice("0123456789-+:.TWZ eJul²٣\0") * rng.choice((0, 1, 1, 1, 9, 30))
            text[at : at + rng.choice((0, 1))] = put
        found = to_unix_ms("".join(text))
        assert found is None or abs(found) < 1 << 53, "".join(text)
