"""Erasure of logs: one that was never read here, or whose files fail, holds up no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from consumers.corrections.model import OFFSET_MAX, Correction, decoded, encode
from consumers.kernels.learned_records import CREATED
from consumers.messages import Partition
from consumers.pipeline.erasure import FILE_NAME, Erasure
from consumers.pipeline.learned_memory import LearnedMemory
from consumers.pipeline.waiting_messages import texts_of

OWN, LATER = Partition("t", 0), Partition("t", 1)


@pytest.fixture
def memory(tmp_path: Path) -> LearnedMemory:
    """Return the memory of two logs, each with a message that is to be erased."""
    found = LearnedMemory(tmp_path, {"text": "words"}, 100, keep=0)
    for log in (OWN, LATER):
        found.log(log).append(
            np.array([3]), np.zeros(1, np.int32), np.array([CREATED], np.uint8),
            texts_of([b"a"]), {"text": texts_of([b"secret"])},
        )  # fmt: skip
    found.pack()
    found.sync()
    found.close()
    return found


def held(folder: Path) -> dict[str, bool]:
    """Return of each log's file whether it holds the text."""
    files = sorted(path for path in folder.rglob("*.records") if path.is_file())
    return {path.parent.name: b"secret" in path.read_bytes() for path in files}


@pytest.mark.parametrize("strange", [Partition("y" * 300, 0), Partition("other", 0)])
def test_the_deletion_of_a_log_that_was_never_read_here_is_done(
    tmp_path: Path, memory: LearnedMemory, strange: Partition
) -> None:
    """As any program may write into the topic of corrections: no folder can have such a name."""
    logs = [strange, OWN, LATER]
    said = {log: ("labels", 0, number) for number, log in enumerate(logs)}
    applied = {Partition("labels", 0): 9}
    erasure = Erasure(tmp_path, lambda: applied, None, [], None, learned=memory)
    erasure.add_said((("a", log, 4), said[log]) for log in logs)
    with capture_logs() as logged:
        erasure.begin()
        erasure.close()
    assert [each for each in logged if each["log_level"] == "error"] == []
    assert erasure.n_pending == 0
    assert held(tmp_path) == {"t%2F0": False, "t%2F1": False}


def test_what_a_correction_may_say_can_be_noted_for_erasure(tmp_path: Path) -> None:
    """Else the note would keep the daemon from starting, as one that is damaged."""
    said = Correction("delete", "a", 5, partition=("other", 2**31 - 1), offset=OFFSET_MAX)
    assert decoded(encode(said)) == said
    assert said.place is not None
    place = said.id, said.place, said.offset
    erasure = Erasure(tmp_path, dict, None, [], None)
    erasure.add_said([(place, ("labels", 0, 3))])
    erasure.close()  # killed before a checkpoint passed over it
    assert (tmp_path / FILE_NAME).exists()
    again = Erasure(tmp_path, dict, None, [], None)
    (noted,) = again.pending()
    assert (noted.topic, noted.offset) == ("other", OFFSET_MAX)
    again.close()


def test_a_log_that_fails_holds_up_no_other(tmp_path: Path, memory: LearnedMemory) -> None:
    """Deletions stay pending, and what is wrong is said with the file's name."""
    odd = [tmp_path / "learned" / name / "1.records" for name in ("t%2F0", "t%2F1")]
    for path in odd:  # in both, as it is not said which comes first
        path.mkdir()
    erasure = Erasure(tmp_path, dict, None, [], None, learned=memory)
    erasure.add([("a", OWN, 4), ("a", LATER, 4)], from_stream=False)
    with capture_logs() as logged:
        erasure.begin()
        erasure.close()
    assert held(tmp_path) == {"t%2F0": False, "t%2F1": False}
    (said,) = logged
    assert "/1.records" in said["detail"]
    assert erasure.n_pending == 2
    for path in odd:
        path.rmdir()
    again = Erasure(tmp_path, dict, None, [], None, learned=memory)
    again.begin()
    again.close()
    assert again.n_pending == 0


def test_a_deletion_that_is_handed_on_amid_a_pass_waits_for_the_next(
    tmp_path: Path, memory: LearnedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partition may have come back, with files that the pass has not seen."""
    erasure = Erasure(tmp_path, dict, None, [], None, learned=memory)
    erasure.add([("a", OWN, 4), ("a", LATER, 4)], from_stream=False)
    passes_over = erasure._pass_over

    def handed_on(by_log: Any, applied: int) -> set[str] | None:
        left = passes_over(by_log, applied)
        erasure.go_on([each for each in erasure.pending() if each.partition == OWN.partition])
        return left

    monkeypatch.setattr(erasure, "_pass_over", handed_on)
    erasure.begin()
    erasure.close()
    assert [each.partition for each in erasure.pending()] == [OWN.partition]
    again = Erasure(tmp_path, dict, None, [], None, learned=memory)
    assert [each.partition for each in again.pending()] == [OWN.partition]
    again.begin()
    again.close()
    assert again.n_pending == 0
