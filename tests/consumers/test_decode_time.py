"""Times of messages: many forms, one moment."""

from __future__ import annotations

from typing import Any

import pytest

from consumers.decode_time import to_unix_ms


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
    [
        "", "tomorrow", "Mon Apr 31 22:19:45 PDT 2009", "Mon Foo 06 22:19:45 PDT 2009",
        "Mon Apr 06 22:19 PDT 2009", "Mon Apr 06 22:19:45 XYZ 2009", "20091340", "1-1-1",
        None, True, [], {}, 10**400, 1e300, "9" * 30,
    ],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
def test_what_is_no_time_gives_way_to_the_source(value: Any) -> None:
    """What cannot be read as a time is no time, and never an error."""
    assert to_unix_ms(value) is None
