"""Rows that could not be made or written: what they named and what came with them is kept."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from consumers.messages import Partition
from consumers.search.query_syntax import parse
from consumers.search.rows import weights_of
from tests.consumers.decoded_messages import messages
from tests.consumers.search.stores import LOG, ids, made, offer, running, tweets, wall_of
from tests.consumers.search.test_faults import refuse, unforeseen


def test_names_are_saved_although_the_first_rows_that_had_them_were_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What then leaves the store is written before any row is: it saves them as well."""
    path = tmp_path / "recent.db"
    store, other = made(path), Partition("other", 7)
    store._sampler.open()
    store._writer._open()

    def turn(partition: Partition, offset: int, lang: str) -> None:
        row = {"id": f"m{offset}", "text": "good day", "lang": lang, "label": 0}
        offer(store, messages(partition, [msgspec.json.encode(row)], offset))
        store._writer._turn()

    turn(LOG, 0, "en")
    with monkeypatch.context() as broken:
        broken.setattr("consumers.search.database.insert", refuse)
        turn(other, 1, "fr")
    wall_of(store).now_s += 3 * 86_400
    store._writer._turn()
    assert store.state().n_messages == 0
    turn(other, 2, "fr")
    store._writer._close()
    with running(path) as store:
        (found,) = store.search(parse("good"), lang="fr").rows
        assert found.row.partition == other


def test_what_was_taken_is_not_lost_if_no_rows_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages are counted as lost; a deletion that was taken with them is done, and says so."""
    store = made(tmp_path / "recent.db")
    monkeypatch.setattr("consumers.search.writer._IDLE_S", 0.0)
    store._sampler.open()
    store._writer._open()
    offer(store, tweets(["good day", "good night"]))
    store._writer._turn()
    with monkeypatch.context() as broken:
        broken.setattr("consumers.search.rows.RowBuilder.columns", unforeseen)
        offer(store, tweets(["good morning"], 2))
        done = store.forget_ids(["m0"], (LOG, [3]))
        store._writer._survive(store._writer._turn)
    assert (store.state().n_failed, done.is_set()) == (1, False)
    store._writer._turn()
    assert (ids(store, "good"), done.is_set()) == (["m1"], True)
    store._writer._close()


def test_no_row_stands_for_what_a_fault_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be written is missing in the share that is stored, and weighs on no other."""
    store = made(tmp_path / "recent.db")
    store._sampler.open()
    store._writer._open()
    offer(store, tweets(["good day"] * 3))
    store._writer._turn()
    with monkeypatch.context() as broken:
        broken.setattr("consumers.search.database.insert", refuse)
        offer(store, tweets(["good night"] * 90, 3))
        store._writer._turn()
    for first in (93, 96):
        offer(store, tweets(["good morning"] * 3, first))
        store._writer._turn()
    assert (store.state().n_failed, store.state().share) == (90, 9 / 99)
    (chunk,) = store.chunks()
    assert (chunk.n, chunk.n_offered, weights_of(chunk)) == (9, 99, None)
    store._writer._close()
