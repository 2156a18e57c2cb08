"""A chunk's columns find rows by the checksums of their ids, however the chunk grew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.search.chunks import TYPES, Chunk, Retention

FIRST_KEY = 100
SOME = st.lists(st.integers(0, 9), min_size=1, max_size=5)
STEPS = st.lists(st.tuples(SOME, st.booleans(), st.sets(st.integers(0, 9))), max_size=12)


def add(chunk: Chunk, crcs: list[int], **texts: list[str | None]) -> None:
    """Add rows with these checksums, and with texts or without."""
    rows: dict[str, list[Any]] = dict.fromkeys(TYPES, [0] * len(crcs))
    rows |= {"id_crc": crcs, "text": [""] * len(crcs), "example": [None] * len(crcs)}
    chunk.add(rows | texts)


def test_bytes_are_those_of_all_texts() -> None:
    """A chunk closes by what it holds: what is shown, and all that the model reads besides."""
    chunk = Chunk(1, FIRST_KEY, 100)
    add(chunk, [1, 2, 3], text=["ab", "é", ""], example=[None, '{"text":"é"}', "x" * 1_000])
    assert chunk.n_bytes == 2 + 2 + 13 + 1_000
    bounds = Retention(1_600, 1e9)
    assert not bounds.is_full(chunk, 0)
    add(chunk, [4], text=["a"], example=["x" * (129 << 20)])
    assert bounds.is_full(chunk, 0)


@given(steps=STEPS)
def test_rows_are_found_by_their_checksums(steps: list[tuple[list[int], bool, set[int]]]) -> None:
    """Those sorted and those not, those asked for several times; not those that were taken back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("consumers.search.chunks._UNSORTED_MAX", 3)
        chunk = Chunk(1, FIRST_KEY, 100)
        twin: list[int] = []
        for crcs, is_safe, wanted in steps:
            add(chunk, crcs)
            asked = np.array(sorted(wanted), np.uint32)
            found = [k + FIRST_KEY for k, crc in enumerate(twin + crcs) if crc in wanted]
            assert chunk.with_crcs(asked) == found
            if is_safe:
                chunk.n_committed = chunk.n
                twin += crcs
            else:
                chunk.go_back(chunk.figures())


class Interrupted(np.ndarray[Any, Any]):
    """Checksums that call what waits, one function each time some are picked by their positions.

    NumPy lets other threads run at these times.
    """

    waiting: list[Callable[[], object]]

    def __array_finalize__(self, origin: object) -> None:
        """Wait together with the array that this is a part of."""
        self.waiting = getattr(origin, "waiting", [])

    def __getitem__(self, chosen: Any) -> Any:
        """Return what an array returns."""
        if isinstance(chosen, np.ndarray) and self.waiting:
            self.waiting.pop(0)()
        return super().__getitem__(chosen)


@pytest.mark.parametrize("turn", [0, 1])
@pytest.mark.parametrize("other", ["asks", "adds", "takes back", "takes back and adds"])
def test_rows_are_found_whatever_another_thread_does_meanwhile(
    monkeypatch: pytest.MonkeyPatch, other: str, turn: int
) -> None:
    """While a search sorts the checksums, another asks too, or the writer changes the rows."""
    monkeypatch.setattr("consumers.search.chunks._UNSORTED_MAX", 3)
    chunk = Chunk(1, FIRST_KEY, 100)
    crcs = chunk.columns["id_crc"] = chunk.columns["id_crc"].view(Interrupted)
    twin = list(range(50, 55))
    add(chunk, twin)
    chunk.n_committed = chunk.n
    add(chunk, list(range(10)))
    everything = np.arange(100, dtype=np.uint32)

    def interrupt() -> None:
        if "takes back" in other:
            chunk.go_back(chunk.figures())
        if "adds" in other:
            add(chunk, list(range(20, 28)))
        chunk.with_crcs(everything)

    assert isinstance(crcs, Interrupted)
    crcs.waiting += [lambda: None] * turn + [interrupt]
    chunk.with_crcs(everything)
    assert not crcs.waiting
    twin += [] if "takes back" in other else list(range(10))
    twin += list(range(20, 28)) if "adds" in other else []
    for begin in (30, 40):
        assert chunk.with_crcs(everything) == [k + FIRST_KEY for k in range(len(twin))]
        for k, crc in enumerate(twin):
            assert chunk.with_crcs(np.array([crc], np.uint32)) == [k + FIRST_KEY]
        added = list(range(begin, begin + 9))
        add(chunk, added)
        twin += added


@pytest.mark.parametrize("other", ["adds", "takes back"])
def test_places_are_found_whatever_the_writer_does_meanwhile(other: str) -> None:
    """The learner asks which rows came from some offsets, while there are more rows, or fewer."""

    class Changing(np.ndarray[Any, Any]):
        """Offsets whose chunk is another once they have been looked at."""

        def __ge__(self, least: Any) -> Any:
            found = super().__ge__(least)
            if other == "adds":
                add(chunk, [7, 8, 9])
            else:
                chunk.go_back(chunk.figures())
            return found

    chunk = Chunk(1, FIRST_KEY, 100)
    add(chunk, [1, 2])
    chunk.n_committed = chunk.n
    add(chunk, [3])
    chunk.columns["offset"][:3] = [40, 50, 60]
    chunk.columns["offset"] = chunk.columns["offset"].view(Changing)
    assert chunk.at_offsets(0, np.array([50, 60, 70])) == {50: FIRST_KEY + 1, 60: FIRST_KEY + 2}
    assert chunk.at_offsets(1, np.array([50, 60, 70])) == {}


def test_rows_that_came_and_went_in_a_failed_write_are_not_counted_as_gone() -> None:
    """Else more of them would be gone than the file lacks, and the chunk would never be packed."""
    chunk = Chunk(1, FIRST_KEY, 100)
    add(chunk, [1, 2])
    chunk.n_committed = chunk.n
    chunk.kill([FIRST_KEY])
    were = chunk.figures()
    add(chunk, [3, 4])
    chunk.kill([FIRST_KEY + 3])
    chunk.go_back(were)
    assert (chunk.n_gone, chunk.n_alive) == (1, 1)
    add(chunk, [5])
    assert chunk.alive[:4].tolist() == [False, True, True, False]
