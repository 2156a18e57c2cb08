"""The made-up sensor readings: a pure function of seed and number, true to their tables."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.config.addresses import GeneratorSettings
from consumers.sources.generator import SENSORS, STATE_SHARES, STATES, GeneratorSource, SensorMaker

N = 40_000


@pytest.fixture(scope="module")
def readings() -> list[dict[str, Any]]:
    """Return many readings, each with its state."""
    made = SensorMaker(GeneratorSettings(stream="sensors", labelled_share=1.0)).make(0, N)
    return [json.loads(value) for value in made]


@given(st.integers(0, 10**9), st.integers(0, 30), st.integers(1, 30))
def test_any_position_can_be_entered(first: int, before: int, n: int) -> None:
    """Message n is the same whatever was made before it."""
    row_builder = SensorMaker(GeneratorSettings(stream="sensors"))
    assert row_builder.make(first, before + n)[before:] == row_builder.make(first + before, n)


def test_states_are_as_often_as_they_are_said_to_be(readings: list[dict[str, Any]]) -> None:
    """Each state has its share, to five standard errors, and no other is there."""
    counts = Counter(reading["state"] for reading in readings)
    assert set(counts) == set(STATES)
    for state, p in zip(STATES, STATE_SHARES, strict=True):
        assert abs(counts[state] / N - p) < 5 * np.sqrt(p * (1 - p) / N)


@pytest.mark.parametrize("sensor", SENSORS)
def test_a_sensor_follows_its_table(sensor: str, readings: list[dict[str, Any]]) -> None:
    """Given the state it is nearly normal; two in a hundred readings lack it."""
    for state, (mean, deviation) in zip(STATES, SENSORS[sensor], strict=True):
        own = [reading for reading in readings if reading["state"] == state]
        values = [reading[sensor] for reading in own if sensor in reading]
        assert abs(np.mean(values) - mean) < 5 * deviation / np.sqrt(len(values))
        assert abs(np.std(values) - deviation) < 0.06 * deviation
        assert 0.01 < 1 - len(values) / len(own) < 0.03


def test_the_generator_hands_them_over() -> None:
    """With `stream: sensors` a poll brings readings of six pumps, some without a state."""
    source = GeneratorSource(GeneratorSettings(stream="sensors", rate_per_s=0.0))
    source.open(lambda _: 20)
    (raw,) = source.poll(0.0)
    values = [json.loads(raw.value(i) or b"") for i in range(len(raw))]
    assert values[0]["id"] == "7-20"
    assert {value["pump"] for value in values} == {f"pump {n}" for n in range(1, 7)}
    assert 0.6 < sum("state" in value for value in values) / len(values) < 0.8
