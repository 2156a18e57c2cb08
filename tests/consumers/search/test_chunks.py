"""A chunk's columns find rows by the checksums of their ids, however the chunk grew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.search.chunks import Chunk

FIRST_KEY = 100
SOME = st.lists(st.integers(0, 9), min_size=1, max_size=5)
STEPS = st.lists(st.tuples(SOME, st.booleans(), st.sets(st.integers(0, 9))), max_size=12)


def add(chunk: Chunk, crcs: list[int]) -> None:
    """Add rows with these checksums."""
    zeros = dict.fromkeys(
        [
            "place",
            "offset",
            "time_ms",
            "arrived_ms",
            "lang_code",
            "label",
            "truth",
            "corrected",
            "probability",
        ],
        [0] * len(crcs),
    )
    chunk.add(zeros | {"id_crc": crcs, "text": [""] * len(crcs)})


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
