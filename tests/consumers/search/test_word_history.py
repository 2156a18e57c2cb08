"""Words over time: what is counted as it leaves the store is exact or bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from consumers.search.history import StepWords

LISTED = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 9), max_size=8)


@given(chunks=st.lists(LISTED, min_size=1, max_size=6), n_max=st.integers(1, 6))
def test_merged_lists_bound_what_they_leave_out(chunks: list[dict[str, int]], n_max: int) -> None:
    """However short the lists: each word is in as many messages as it says, or bounded."""

    def lists() -> Iterator[StepWords]:
        for counts in chunks:
            listed = {word: n for word, n in counts.items() if n >= 3}
            yield StepWords(
                np.array([sum(counts.values())]), 2, list(listed),
                np.array(list(listed.values()), np.int64).reshape(-1, 1),
                np.zeros(len(listed), np.int64),
            ).cut(n_max)  # fmt: skip

    first, *others = lists()
    whole = first
    for other in others:
        whole = whole.merged(other).cut(n_max)
    true = sum(map(Counter, chunks), Counter[str]())
    assert whole.of.tolist() == [true.total()]
    assert len(whole.words) <= n_max
    at = {word: i for i, word in enumerate(whole.words)}
    for word in "abcdefgh":
        if word not in at:
            assert true[word] <= whole.unlisted_max
        else:
            n = int(whole.counts[at[word], 0])
            assert n <= true[word] <= n + int(whole.missed_max[at[word]])
