"""A state folder in which a deleted message's text stands in three files, and its erasure."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from consumers.corrections.journal import Journal
from consumers.corrections.model import Correction, encode
from consumers.messages import Envelope, Operation, Partition, Reason, Reject, part_name
from consumers.pipeline.erasure import Erasure, Output, TextMemory
from consumers.sinks.records import prediction_record, reject_record, without_message

LOG = Partition("t", 0)
SECRET = b"xylophonist"
TEXT = f"so it goes, {SECRET.decode()}"


def correction(
    name: str, offset: int, label: str | None = None, text: str = TEXT, place: Partition = LOG
) -> bytes:
    """Return a line of the journal: a label, or without one a deletion."""
    kind: Any = "delete" if label is None else "label"
    return encode(
        Correction(kind, name, 5, {"text": text}, label, "a", part_name(place), place, offset)
    )


def prediction(name: str, text: str = TEXT) -> bytes:
    """Return a line of the predictions."""
    envelope = Envelope(name, 5, None, None, text, None, Operation.CREATE, {"more": text})
    return prediction_record(envelope, ["a", "b"], [-0.1, -2.35], 7).value


def reject(name: str, text: str = TEXT) -> bytes:
    """Return a line of the rejects."""
    value = json.dumps({"id": name, "text": text}).encode()
    return reject_record(Reject(Reason.WRONG_TYPE, f"not {text}", LOG, 3, 5, b"k", value)).value


class Forgetful:
    """A store of recent messages that notes what it is told to forget."""

    def __init__(self) -> None:
        self.told: list[tuple[list[str], list[int]]] = []
        self.accounts: list[tuple[list[str], list[int]]] = []
        self.done = threading.Event()

    def forget_ids(
        self, ids: Sequence[str], at: tuple[Partition, Sequence[int]], *, of_accounts: bool = False
    ) -> threading.Event:
        """Note it; it is done when `done` is set."""
        (self.accounts if of_accounts else self.told).append((list(ids), list(at[1])))
        return self.done


class NotingMemory:
    """A memory of what was learned that notes which ids it is told to erase."""

    keep = 0

    def __init__(self) -> None:
        self.told: list[str] = []

    def erase(self, deleted: Mapping[Partition, Mapping[str, int]]) -> None:
        """Note the ids."""
        for names in deleted.values():
            self.told += names


class Folder:
    """A state folder with a journal and both outputs; one message is to be erased."""

    def __init__(self, path: Path, name: str = "m1") -> None:
        self.path, self.name = path, name
        self.applied = 1 << 40
        self.recent = Forgetful()
        self.lines = {
            "corrections.jsonl": [
                correction("m0", 0, "a", "kept"), correction(name, 1, "a"), correction(name, 1),
            ],
            "predictions.jsonl": [prediction("m0", "kept"), prediction(name)],
            "rejects.jsonl": [reject("m0", "kept"), reject(name)],
        }  # fmt: skip
        for file, lines in self.lines.items():
            (path / file).write_bytes(b"".join(line + b"\n" for line in lines))

    @contextmanager
    def opened(self, learned: TextMemory | None = None) -> Iterator[Erasure]:
        """Run an erasure over it; time stands still, so that a pass may always begin."""
        journal = Journal(self.path / "corrections.jsonl")
        outputs = [
            Output(self.path / "predictions.jsonl", without_message),
            Output(self.path / "rejects.jsonl", without_message),
        ]
        logs = LOG, journal.partition
        erasure = Erasure(
            self.path, lambda: dict.fromkeys(logs, self.applied), journal, outputs, self.recent,
            lambda: 0.0, learned=learned, accounts="/" in self.name,
        )  # fmt: skip
        try:
            yield erasure
        finally:
            erasure.close()
            journal.close()

    def erase(self, erasure: Erasure) -> None:
        """Let a checkpoint stand, and wait for the pass behind it."""
        erasure.flush(1.0)
        erasure.begin()
        if erasure._pass is not None:
            wait([erasure._pass])
            erasure._pass.result()

    def holders(self) -> set[str]:
        """Return which files hold the secret, in base64 too."""
        held = set()
        for path in filter(Path.is_file, self.path.iterdir()):
            lines = path.read_bytes()
            if path.name == "rejects.jsonl" and b'value_base64":"eyJpZCI6ICJtMS' in lines:
                held.add(path.name)
            if SECRET in lines:
                held.add(path.name)
        return held

    def check_places(self) -> None:
        """See that no line has moved, and what was kept is as it was."""
        for name, lines in self.lines.items():
            found = (self.path / name).read_bytes().split(b"\n")
            assert list(map(len, found)) == [*map(len, lines), 0]
            assert found[0] == lines[0]
