"""The made-up loan applications: a pure function of seed and number, true to their tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.config.addresses import GeneratorSettings
from consumers.messages import Partition
from consumers.sources import generator as _loans
from consumers.sources.generator import GeneratorSource, LoanMaker

N = 40_000
TABLES: dict[str, Mapping[Any, tuple[float, float]]] = {
    "score": _loans.SCORES,
    "income": _loans.INCOMES,
    "missed_payments": {True: _loans.MISSED_PAYMENTS},
    "stable_job": {True: _loans.STABLE_JOB},
}


@pytest.fixture(scope="module")
def loans() -> list[dict[str, Any]]:
    """Return many applications, each with its decision."""
    made = LoanMaker(GeneratorSettings(stream="loans", labelled_share=1.0)).make(0, N)
    return [json.loads(value) for value in made]


@given(st.integers(0, 10**9), st.integers(0, 30), st.integers(1, 30))
def test_any_position_can_be_entered(first: int, before: int, n: int) -> None:
    """Message n is the same whatever was made before it."""
    row_builder = LoanMaker(GeneratorSettings(stream="loans"))
    assert row_builder.make(first, before + n)[before:] == row_builder.make(first + before, n)


def test_decisions_are_as_often_as_they_are_said_to_be(loans: list[dict[str, Any]]) -> None:
    """Three in ten are approved, to five standard errors."""
    share = sum(loan["decision"] == "approve" for loan in loans) / N
    assert abs(share - 0.3) < 5 * np.sqrt(0.3 * 0.7 / N)


@pytest.mark.parametrize("field", TABLES)
def test_fields_follow_their_tables(loans: list[dict[str, Any]], field: str) -> None:
    """Given the decision, each value has its share, to five standard errors."""
    for place, decision in enumerate(_loans.DECISIONS):
        own = [loan[field] for loan in loans if loan["decision"] == decision]
        counts = Counter(own)
        for value, shares in TABLES[field].items():
            p = shares[place]
            assert abs(counts[value] / len(own) - p) < 5 * np.sqrt(p * (1 - p) / len(own))


def test_numbers_are_there_and_vary(loans: list[dict[str, Any]]) -> None:
    """Amounts are nearly normal about their means; some applications have none, or no age."""
    for place, decision in enumerate(_loans.DECISIONS):
        own = [loan for loan in loans if loan["decision"] == decision]
        amounts = [loan["amount"] for loan in own if loan["amount"] is not None]
        mean, deviation = _loans.AMOUNT[place]
        assert abs(np.mean(amounts) - mean) < 0.02 * mean
        assert abs(np.std(amounts) - deviation) < 0.05 * deviation
        assert 0.02 < 1 - len(amounts) / len(own) < 0.04
        assert 0.04 < sum("age" not in loan for loan in own) / len(own) < 0.06


def test_the_generator_hands_them_over() -> None:
    """With `stream: loans` a poll brings applications, some without a decision."""
    source = GeneratorSource(GeneratorSettings(stream="loans", rate_per_s=0.0))
    source.open(lambda _: 20)
    (raw,) = source.poll(0.0)
    assert raw.partition == Partition("generator", 0)
    values = [json.loads(raw.value(i) or b"") for i in range(len(raw))]
    assert values[0]["id"] == "7-20"
    assert 0.6 < sum("decision" in value for value in values) / len(values) < 0.8
