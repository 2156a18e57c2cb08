"""Messages are named by their id or their place, and an id may spell the name of a place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from consumers.corrections.model import Correction
from consumers.kernels.learned_records import CREATED
from consumers.messages import id_named, marked_ids
from consumers.pipeline.learned_memory import LearnedMemory
from consumers.pipeline.waiting_messages import texts_of
from tests.consumers.pipeline.late_logs import LateRun
from tests.consumers.pipeline.late_logs import Said as Waiting
from tests.consumers.pipeline.revised_log import LOG, Run, Said
from tests.consumers.pipeline.test_late_labels import DEFAULTS

pytestmark = pytest.mark.usefixtures("short_segments")


@pytest.mark.parametrize("name", ["a", "~a", "t-0-3", "~t-0-3", "~~t-0-3", "u-0-3", "~t-0-3/~"])
def test_a_name_tells_the_id(name: str) -> None:
    """Whatever the id spells; a name without a mark may be that of a place."""
    (marked,) = marked_ids(LOG, [name])
    assert marked is not None
    assert id_named(LOG, 3, marked) == name
    assert id_named(LOG, 3, "t-0-3") is None


@pytest.mark.parametrize(
    ("name", "at", "gone"),
    [("~t-0-3", 2, {0}), ("~~t-0-3", 2, {1}), ("t-0-3", 3, {3}), ("a", 2, {2})],
)
def test_an_id_that_spells_a_place_is_erased_by_its_own_name_alone(
    tmp_path: Path, name: str, at: int, gone: set[int]
) -> None:
    """Another message's text stays, be it that of the place or of an id with a mark more."""
    memory = LearnedMemory(tmp_path, {"text": "words"}, 100, keep=0)
    ids = texts_of([b"t-0-3", b"~t-0-3", b"a", None])
    texts = texts_of([b"secret%d" % k for k in range(4)])
    kinds = np.full(4, CREATED, np.uint8)
    memory.log(LOG).append(np.arange(4), np.zeros(4, np.int32), kinds, ids, {"text": texts})
    memory.pack()
    memory.sync()
    memory.erase({LOG: {name: at}})
    memory.close()
    (data,) = (path.read_bytes() for path in tmp_path.rglob("*.records"))
    assert {k for k in range(4) if b"secret%d" % k not in data} == gone


def test_an_id_that_begins_with_a_mark_is_no_other() -> None:
    """Only before the name of a place the mark is none of the id's own."""
    run = Run(None)
    log = [
        Said("create", "b", "love", "positive"),
        Said("create", "~a", "sun"),
        Said("create", "a", "rain", "positive"),
        Said("update", "a", "snow", "positive"),
    ]
    run.read(log, 4)
    assert run.state(Correction("delete", "~a", 5, {}, None, None, None, LOG, 1)) == "never"
    assert run.state(Correction("delete", "a", 5, {}, None, None, None, LOG, 2)) == "teaches"
    run.memory.close()


def test_what_waits_under_the_name_of_a_place_is_deleted() -> None:
    """Its deletion is remembered under its own id, so it is not learned as the default."""
    run = LateRun(None, DEFAULTS)
    log = [Waiting("create", "t-0-7", 100, "sun"), *[Waiting("create", None, 300, "rain")] * 2]
    run.read(log, 1)
    run.correct(Correction("delete", "~t-0-7", 5, {"text": "sun"}, None, None, None, LOG, 0))
    run.read(log, 2)
    assert run.learner.model.n_examples == 0
    run.memory.close()
