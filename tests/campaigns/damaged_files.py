"""Damage the files of a state folder and of a group's at random, and read them."""

from __future__ import annotations

import os
import random
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from structlog.testing import capture_logs

from consumers.corrections.journal import Journal, JournalSource
from consumers.errors import GroupError
from consumers.features import DecayTimes
from consumers.pipeline import learned_memory
from streamnb import NaiveBayes
from streamnb.errors import StoreError
from streamnb.serialization import from_bytes, to_blocks
from tests.campaigns.campaign import Run
from tests.campaigns.watchdog import watched_steps
from tests.consumers.pipeline.revised_log import LOG, SETTINGS, Said, expected
from tests.consumers.pipeline.test_handed_on_memory import Member
from tests.library.storage.test_forged_bytes import model

_A_STEP = 25
_PARTS_A_STEP = 2
_ROW = {"text": "a b z", "bag": {"c": 2, "z": 1}, "f": True, "k": "red", "n": 1.5}
_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 1 << 31, 1 << 63, 1 << 70, -0.5, 1e308, "", "a", "\ud800", [], [0], {},
)  # fmt: skip


def damaged_files(run: Run) -> None:
    """A damaged checkpoint or part is refused or whole; a journal gives the lines that it has."""
    whole = model().to_bytes()
    for chance, folder in watched_steps(run):
        for _ in range(_A_STEP):
            run.figures["damaged checkpoints refused"] += not _usable(_damaged(chance, whole))
            run.figures["forged checkpoints refused"] += not _usable(_forged(chance, whole))
            run.figures["checkpoints damaged"] += 1
            run.figures["checkpoints forged"] += 1
            _read_journal(chance, folder / "corrections.jsonl")
            run.figures["journals damaged"] += 1
        for k in range(_PARTS_A_STEP):
            what = "forged" if chance.random() < 0.5 else "damaged"
            is_usable = _part_usable(chance, folder / f"group {k}", is_forged=what == "forged")
            run.figures[f"{what} parts refused"] += not is_usable
            run.figures[f"parts {what}"] += 1


def _damaged(chance: random.Random, data: bytes) -> bytes:
    """Return bytes with some of them changed, lost, doubled or swapped; never the same bytes."""
    changed = bytearray(data)
    while bytes(changed) == data:
        for _ in range(chance.choice((1, 1, 1, 2, 5))):
            begin = chance.randrange(len(changed) or 1)
            end = min(len(changed), begin + chance.choice((1, 1, 8, 100, len(data))))
            piece = changed[begin:end]
            changed[begin:end] = chance.choice(
                (b"", piece + piece, bytes(len(piece)), chance.randbytes(len(piece)), piece[::-1])
            )
    return bytes(changed)


def _forged(chance: random.Random, data: bytes) -> bytes:
    """Return a checkpoint with a right digest, and a value of its header or an array changed."""
    header, arrays = from_bytes(data)
    if chance.random() < 0.5:
        place: Any = header
        while True:
            key = chance.choice(list(place)) if isinstance(place, dict) else None
            key = chance.randrange(len(place)) if isinstance(place, list) else key
            inner = place[key]
            if not inner or not isinstance(inner, dict | list) or chance.random() < 0.2:
                place[key] = chance.choice(_VALUES)
                break
            place = inner
    else:
        name = chance.choice(sorted(arrays))
        raw = bytearray(arrays[name].tobytes())
        for _ in range(chance.choice((1, 2, 8)) if raw else 0):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        array = np.frombuffer(bytes(raw), arrays[name].dtype).reshape(arrays[name].shape)
        arrays[name] = chance.choice((array, array[:-1], np.concatenate([array, array])))
    return b"".join(to_blocks(header, arrays))


def _usable(data: bytes) -> bool:
    """Return whether bytes are a model; one that is taken predicts and learns."""
    try:
        found = NaiveBayes.from_bytes(data)
    except StoreError:
        return False
    if set(found.describe()["groups"]) == set(model().describe()["groups"]):
        found.predict_one(_ROW)
        found.learn_one(_ROW, (found.classes or ["x"])[0], part=next(iter(found.parts), None))
        found.to_bytes()
    return True


def _read_journal(chance: random.Random, path: Path) -> None:
    """Open a damaged journal, append to it, and read the lines that it has."""
    data = b"".join(b'{"kind":"label","id":"m%d","label":"x"}\n' % i for i in range(20))
    path.write_bytes(_damaged(chance, data))
    left = path.read_bytes()
    left = left[: left.rfind(b"\n") + 1]
    with capture_logs(), closing(Journal(path)) as journal:
        assert journal.append(b"", b"{}").offset == len(left)
        source = JournalSource(journal)
        source.open(lambda _: None)
        found = [raw.value(i) or b"" for raw in source.poll(0.0) for i in range(len(raw))]
    lines = [line.strip() for line in left.split(b"\n") if line.strip()]
    assert [line.strip() for line in found if line.strip()] == [*lines, b"{}"]
    assert os.stat(path).st_size == len(left) + 3  # noqa: PTH116


def _part_usable(chance: random.Random, folder: Path, *, is_forged: bool) -> bool:
    """Damage or forge the furthest part of a group; return whether who takes it over goes by it.

    Else it is set aside and the one before serves, or a `GroupError` says why not. Either way the
    group goes on: a further part is written.
    """
    with capture_logs(), patch.object(learned_memory, "SEGMENT_RECORDS", 4):
        writer = Member(folder, "writer", SETTINGS)
        times = writer.group.times = DecayTimes(60.0)
        times.know(LOG, [9.0, 8.0])
        times.pack()
        log = [Said("create", f"m{i}", f"word{i} sun", "positive") for i in range(14)]
        for until in (6, 14):
            writer.take_over()
            writer.read(log, until)
            writer.save()
        files, before = writer.group.files, Member(folder, "before", SETTINGS).group.files
        furthest = max((folder / "shared").rglob("*.nb"))
        whole = furthest.read_bytes()
        furthest.write_bytes((_forged if is_forged else _damaged)(chance, whole))
        taker = Member(folder, "taker", SETTINGS)
        try:
            part = taker.group.files.load(LOG)
            times.know(LOG, None if part is None else part.times)
            taker.take_over()
            is_usable = taker.position == 14
            assert is_forged or not is_usable
            assert is_usable or taker.counts == expected(log[:6], SETTINGS)[0]
            taker.read(log, 14)
            assert is_forged or taker.counts == writer.counts
        except GroupError:
            is_usable = False
        before.write(writer.learner.model.state, LOG, 15)
        for each in (writer, taker):
            each.memory.close()
    assert files.furthest(LOG) is not None
    return is_usable
