"""The made-up year: its tweets follow from the seed, and a small one runs to its end."""

from __future__ import annotations

import json
import re

import pytest

from benchmarks import year


def test_the_tweets_follow_from_the_seed() -> None:
    """Words of topics come and go, others last, and some come once."""
    first, again = year.Year(3), year.Year(3)
    early, late = first.lines(0, 0, 2_000), first.lines(200, 2_000, 2_000)
    assert (early, late) == (again.lines(0, 0, 2_000), again.lines(200, 2_000, 2_000))
    tweets = [json.loads(line) for line in early.splitlines()]
    assert [each["id"] for each in tweets] == [str(n) for n in range(2_000)]
    assert tweets[0]["created_at"] == "2025-01-01T00:00:00+00:00"
    assert {each["label"] for each in tweets} == {"negative", "positive"}
    by_kind = [
        {kind: set(re.findall(rf"\b{kind}\d+", lines.decode())) for kind in "wtx"}
        for lines in (early, late)
    ]
    shared = {kind: by_kind[0][kind] & by_kind[1][kind] for kind in "wtx"}
    assert len(shared["w"]) > 1_000
    assert not shared["t"]
    assert not shared["x"]
    of_days = {int(each[1:]) // year.OF_A_DAY for each in by_kind[1]["t"]}
    assert of_days == set(range(200 - year.LONGEST_DAYS, 201))


def test_a_small_year(capsys: pytest.CaptureFixture[str]) -> None:
    """Each month says what it has learned, and the daemon ends in order."""
    year.main(tweets=36_000, seed=2)
    said = " ".join(capsys.readouterr().out.split())
    months = re.findall(r"month (\d+): ([\d,]+) tweets, ([\d,]+) words", said)
    assert [(int(month), n) for month, n, _ in months] == [
        (month, f"{3_000 * month:,}") for month in range(1, 13)
    ]
    words = [int(each.replace(",", "")) for _, _, each in months]
    assert words == sorted(words)
    assert re.search(r"accuracy of the newest [67]\d\.\d\d%", said)
