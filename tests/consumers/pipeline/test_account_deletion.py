"""The deletion of an account takes back all that its messages taught, in its place in the log."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.corrections.model import Correction
from tests.consumers.pipeline.revised_log import (
    ACCOUNT_LOGS,
    ACCOUNTS,
    LOG,
    SIZES,
    Run,
    Said,
    expected,
    leaves_the_rest,
)

pytestmark = pytest.mark.usefixtures("short_segments")


@given(ACCOUNT_LOGS, SIZES, st.data())
def test_an_account_takes_all_its_messages_along(
    log: list[Said], sizes: list[int], data: st.DataObject
) -> None:
    """Whatever the batches and kills, the counts are those of a dict of ids."""
    leaves_the_rest(log, sizes, data, ACCOUNTS)


@given(ACCOUNT_LOGS, st.integers(0, 40), st.sampled_from([3, 12, 1_000]))
def test_an_account_is_taken_back_in_its_place(log: list[Said], first: int, most: int) -> None:
    """Counts, what is told and what is remembered are those of one message at a time."""
    run, alone = Run(None, most, ACCOUNTS), Run(None, most, ACCOUNTS)
    run.read(log, min(len(log), first))

    def compare(offset: int) -> None:
        while alone.position < offset:
            alone.read(log, alone.position + 1)
        assert run.counts == alone.counts

    run.read(log, len(log), compare)
    compare(len(log))
    assert run.reviser.counts == alone.reviser.counts
    ours, theirs = (each.memory.log(LOG) for each in (run, alone))
    assert ours.n == theirs.n
    numbers = np.arange(ours.n)
    assert ours.read(numbers).records() == theirs.read(numbers).records()
    for each in (run, alone):
        each.memory.close()


ANN, MORE = Said("create", "a/1", "sun", "positive"), Said("create", "a/2", "rain", "negative")
BOB, GONE = Said("create", "b/1", "snow", "negative"), Said("gone", "a/")
MATCHED = {"delete_account_matched": 1}
UNMATCHED = {"delete_account_unmatched": 1}


@pytest.mark.parametrize(
    ("log", "n_left", "counts"),
    [
        ([ANN, MORE, BOB, GONE], 1, MATCHED | {"unlearned": 2}),
        ([GONE, ANN], 1, UNMATCHED),  # it was active again
        ([BOB, GONE], 1, UNMATCHED),
        ([ANN, GONE, GONE], 0, MATCHED | UNMATCHED | {"unlearned": 1}),
        ([ANN, GONE, MORE, GONE], 0, {"delete_account_matched": 2, "unlearned": 2}),
        ([ANN, GONE, ANN], 1, MATCHED | {"unlearned": 1}),
        ([ANN, GONE, Said("delete", "a/1")], 0, MATCHED | {"unlearned": 1, "delete_repeated": 1}),
        ([Said("delete", "a/1"), GONE, ANN], 0, UNMATCHED | {"delete_unmatched": 1}),
        (
            [ANN, Said("update", "a/1", "snow", "negative"), GONE],
            0,
            MATCHED | {"update_matched": 1, "unlearned": 2},
        ),
        ([Said("create", "a/1", "sun"), GONE, ANN], 1, UNMATCHED),  # it had taught nothing
        ([ANN, Said("gone", "a~1/"), Said("gone", "/")], 1, {"delete_account_unmatched": 2}),
        (
            [Said("create", "a~1/1", "sun", "positive"), Said("gone", "a~1/")],
            0,
            MATCHED | {"unlearned": 1},
        ),
        ([ANN, BOB, GONE, Said("gone", "b/")], 0, {"delete_account_matched": 2, "unlearned": 2}),
    ],
)
@pytest.mark.parametrize("batch", [1, 2, 100])
def test_the_rules_of_accounts(
    log: list[Said], n_left: int, counts: dict[str, int], batch: int
) -> None:
    """Each rule by itself: what is left, and what is counted."""
    run = Run(None, settings=ACCOUNTS)
    while run.position < len(log):
        run.read(log, min(len(log), run.position + batch))
    assert run.counts == expected(log, ACCOUNTS)[0]
    assert run.learner.model.n_examples == n_left
    assert dict(run.reviser.counts) == counts
    run.memory.close()


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_what_of_an_account_is_older_than_the_memory_stays(tmp_path: Path, batch: int) -> None:
    """The bound is that of single deletes, however the log is cut."""
    log = [Said("create", f"a/{i}", f"word{i}", "positive") for i in range(20)] + [GONE, GONE]
    run = Run(tmp_path, 18, ACCOUNTS)
    while run.position < len(log):
        run.read(log, min(len(log), run.position + batch))
    # The deletion is record 20: 18 before its segment are known.
    assert sorted(run.learner.model.words()) == ["word0", "word1"]
    assert dict(run.reviser.counts) == MATCHED | UNMATCHED | {"unlearned": 18}
    run.memory.close()


def test_what_people_say_after_the_deletion_of_an_account_comes_too_late() -> None:
    """Also of a message of which nothing was remembered, as it had no label."""
    run = Run(None, settings=ACCOUNTS)
    log = [BOB, Said("create", "a/1", "sun"), Said("create", "b/2", "sun"), GONE]
    run.read(log, 4)
    said = [
        Correction("label", name, at, {"text": "sun"}, "positive", None, "j/0", LOG, at)
        for at, name in ((1, "a/1"), (2, "b/2"))
    ]
    assert [run.state(each) for each in said] == ["gone", "never"]
    run.memory.close()
