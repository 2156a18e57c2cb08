"""The compiled fold of a batch's deletes and updates says what plain Python says."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from consumers.kernels import learned_records as kernels
from consumers.messages import NO_LABEL, OPERATIONS, Operation
from consumers.pipeline import learned_memory
from consumers.pipeline.learned_memory import LearnedMemory
from consumers.pipeline.learned_records import Hashes, LearnedRecord
from consumers.pipeline.revision import Fold, fold
from consumers.pipeline.waiting_messages import (
    Arrivals,
    living,
    pack_time,
    texts_of,
    waiting_messages,
)
from streamnb.kernels.layout import Texts
from tests.consumers.decoded_messages import decoder
from tests.consumers.pipeline.plain_fold import PlainFold, plain_living, plain_waiting
from tests.consumers.pipeline.revised_log import FIELDS, LOG, Run, Said, expected, raw

CLASSES = ("positive", "negative")
WINDOW_MS = 2.0
DECODER = decoder()
IDS = st.sampled_from(["a", "a", "a", "b", None])  # few, so that records meet
TIMES = st.sampled_from([0.0, 1.0, 3.0, float("nan")])
RECORDS = st.lists(
    st.tuples(st.integers(0, 16), IDS, st.integers(0, 1), st.integers(0, 1), TIMES),
    min_size=3,
    max_size=9,
)
LABELS = st.none() | st.sampled_from(CLASSES)
MESSAGES = st.lists(
    st.tuples(st.sampled_from([*Operation, None]), IDS, LABELS, TIMES),  # None: of an account
    min_size=1,
    max_size=5,
)


class _Case(NamedTuple):
    records: list[tuple[int, str | None, int, int, float]]
    messages: list[tuple[Operation | None, str | None, str | None, float]]
    records_max: int
    is_late: bool


def _both(case: _Case) -> tuple[Fold, Fold]:
    """Return what the compiled fold finds, and what plain Python does."""
    holder = LearnedMemory(None, FIELDS, case.records_max, 1)
    memory = holder.log(LOG)
    for kind, name, offset, label, time_ms in case.records:
        ids = texts_of([None if name is None else name.encode()])
        fields = {"text": texts_of([b"sun"]), "": texts_of([pack_time(time_ms)])}
        memory.append(
            np.array([offset]), np.array([label], np.int32), np.array([kind], np.uint8), ids,
            fields, holder.hashed(ids.texts),
        )  # fmt: skip
    log = [
        Said(operation or Operation.DELETE, name, "sun", label)
        for operation, name, label, _ in case.messages
    ]
    messages = DECODER.decode(raw(log, 100))
    is_of_account = np.array([operation is None for operation, *_ in case.messages])
    messages.operations[is_of_account] = kernels.DELETE_OF_ACCOUNT
    is_plain = messages.operations == OPERATIONS.index(Operation.CREATE)
    is_labelled = (messages.labels != NO_LABEL) & (
        messages.operations < OPERATIONS.index(Operation.DELETE)
    )
    kinds = np.where(is_labelled, np.uint8(kernels.CREATED), np.uint8(kernels.NOTHING))
    arrivals = None
    if case.is_late:
        waits = is_plain & ~is_labelled
        kinds[waits] = kernels.WAITING
        times_ms = np.array([time_ms for *_, time_ms in case.messages])
        arrivals = Arrivals(times_ms, waits, WINDOW_MS)
    rows = np.flatnonzero(messages.ids.texts.ends >= 0)
    hashes = holder.hashed(messages.ids.texts)[rows]
    found = memory.find(np.unique(hashes))
    compiled = fold(memory, messages, kinds, rows, hashes, found, CLASSES, arrivals)
    if arrivals is not None:
        arrivals = replace(arrivals, times_ms=arrivals.times_ms.copy())
    counts = Counter[str]()
    plain = PlainFold(memory, messages, kinds.copy(), CLASSES, counts, arrivals)
    plain.run(rows, found.records(None if arrivals is None else memory.n_fields))
    times_ms = np.full(len(rows), np.nan) if arrivals is None else arrivals.times_ms[rows]
    taken = np.array(plain.taken, np.int64).reshape(-1, 2)
    holder.close()
    return compiled, Fold(
        plain.kinds[rows], plain.labels, plain.label_names, times_ms,
        taken[:, 0], taken[:, 1], plain.superseded, dict(counts),
    )  # fmt: skip


def _named(found: Fold) -> list[str | None]:
    return [None if code == NO_LABEL else found.classes[code] for code in found.labels.tolist()]


def _taken(found: Fold) -> list[tuple[int, int]]:
    return list(zip(found.takers.tolist(), found.taken.tolist(), strict=True))


_NO_TIME = float("nan")
_LAST_IS_TAKEN_BACK = _Case(
    [(0, "a", 0, 0, _NO_TIME), (0, "a", 1, 0, _NO_TIME), (8, "a", 1, 0, _NO_TIME)],
    [(Operation.CREATE, "a", "positive", _NO_TIME), (Operation.DELETE, "a", None, _NO_TIME)],
    100,
    is_late=False,
)


@example(_LAST_IS_TAKEN_BACK)
@settings(max_examples=400)
@given(st.builds(_Case, RECORDS, MESSAGES, st.sampled_from([2, 5, 100]), st.booleans()))
def test_the_compiled_fold_is_that_of_plain_python(case: _Case) -> None:
    """Kinds, labels, times, what is taken back and left out, and what is counted are the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learned_memory, "SEGMENT_RECORDS", 4)
        compiled, plain = _both(case)
    assert compiled.kinds.tolist() == plain.kinds.tolist()
    assert _named(compiled) == _named(plain)
    np.testing.assert_array_equal(compiled.times_ms, plain.times_ms)
    assert compiled.takers.tolist() == plain.takers.tolist()
    assert sorted(_taken(compiled)) == sorted(_taken(plain))
    assert compiled.superseded == plain.superseded
    assert compiled.counts == plain.counts


@settings(max_examples=400)
@given(st.lists(RECORDS, max_size=3))
def test_the_history_of_an_id_is_that_of_plain_python(
    said: list[list[tuple[int, str | None, int, int, float]]],
) -> None:
    """What teaches now and what waits, of several ids at once."""
    by_id = [
        [
            LearnedRecord(number, kind, offset, label, b"a", -1, pack_time(time_ms))
            for number, (kind, _, offset, label, time_ms) in enumerate(own)
        ]
        for own in said
    ]
    for own, found in zip(by_id, waiting_messages(by_id), strict=True):
        assert living(own) == plain_living(own)
        expected = plain_waiting(own)
        assert [(each.first, each.now, each.state, each.default) for each in found] == [
            (each.first, each.now, each.state, each.default) for each in expected
        ]
        np.testing.assert_array_equal(
            [each.time_ms for each in found], [each.time_ms for each in expected]
        )


def test_the_kinds_of_records_keep_their_numbers() -> None:
    """They stand in files, which other versions have written."""
    names = (
        "CREATED UPDATED RELABELLED DELETED EARLY_UPDATE EARLY_DELETE CONSUMED CORRECTED"
        " TAKEN_BACK ERASED WAITING WAITING_UPDATE LATE_LABELLED DEFAULTED LATE_UPDATE EARLY_LABEL"
        " WITHDRAWN"
    )
    assert [vars(kernels)[name] for name in names.split()] == list(range(17))


def test_ids_with_the_same_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ids themselves are compared, so a delete takes back its own message alone."""

    def hashed(_: LearnedMemory, texts: Texts) -> Hashes:
        return np.zeros(len(texts.ends), np.uint64)

    monkeypatch.setattr(LearnedMemory, "hashed", hashed)
    log = [Said("create", f"m{i}", f"word{i}", "positive") for i in range(8)]
    log += [Said("delete", "m3"), Said("update", "m5", "other", "positive"), Said("delete", "m")]
    run = Run(None)
    run.read(log, 6)
    run.read(log, len(log))
    left = [f"word{i}" for i in range(8) if i not in (3, 5)]
    assert sorted(run.learner.model.words()) == ["other", *left]
    run.memory.close()


@pytest.mark.parametrize("between", [(), ("update",), ("delete",), ("update", "delete")])
@pytest.mark.parametrize("is_first_seen", [False, True])
def test_a_message_to_come_is_awaited_whatever_is_said_of_its_id(
    between: tuple[str, ...], *, is_first_seen: bool
) -> None:
    """A message that comes behind its update and its deletion must not teach what was deleted.

    So the first update's word holds after others that found what it taught. One without a label
    leaves no trace: if it came before, the next message of the id pays for it.
    """
    log = [Said("create", "m1", "sun")] if is_first_seen else []
    log += [Said("update", "m1", "rain", "positive")]
    log += [Said(each, "m1", "love", "positive") for each in between]
    log += [Said("create", "m1", "snow", "negative")] * 2
    run = Run(None)
    for until in range(1, len(log) + 1):
        run.read(log, until)
        assert (run.counts, run.n_superseded) == expected(log[:until])
    assert run.n_superseded == 1
    run.memory.close()
