"""Delete messages in every way while the daemon is killed, and look for them in every byte."""

from __future__ import annotations

import base64
import json
import random
import string
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.campaigns.campaign import Run
from tests.endtoend.correction_clients import ask
from tests.endtoend.daemon_process import Daemon, write_config
from tests.endtoend.test_erasure import Stream

N = 24  # messages that are deleted
LIVES = 4
_EDGE = 3  # letters that a word's neighbours in an index, or in base64, may hide


@dataclass(frozen=True, slots=True)
class Doomed:
    """A message that will be deleted: its id, a word that no other has, its label, and how."""

    id: str
    secret: str
    label: Any
    by_stream: bool

    @property
    def line(self) -> dict[str, Any]:
        """What the stream brings."""
        text = f"good {self.secret} day \N{GRINNING FACE} “{self.id}”"
        return {"id": self.id, "text": text} | ({} if self.label is None else {"label": self.label})


def erasures(run: Run) -> None:
    """What people or the stream delete is in no byte of the state folder, kills amid or not."""
    for chance, folder in run.steps():
        state, stream = folder / "state", Stream(folder / "in.jsonl")
        doomed = [_drawn(chance, i) for i in range(N)]
        stream.add(*(each.line for each in doomed))
        config = write_config(
            folder / "config.yaml",
            source=f"file:{folder}/in.jsonl",
            predictions={"to": "file:state/predictions.jsonl"},
            rejects={"to": "file:state/rejects.jsonl"},
            checkpoint={"folder": "state", "interval_s": 0.05, "keep": chance.randint(1, 3)},
        )
        left = list(doomed)
        for life in range(LIVES):
            with Daemon(config) as daemon:
                daemon.until(_takes_corrections(daemon), "corrections are taken")
                for each in doomed if life == 0 else ():
                    if not each.by_stream:  # else a kill may leave it in the model alone
                        daemon.until_page(f"/v1/messages/{each.id}", 200)
                if life == 0:
                    daemon.until(_is_written(state, doomed), "all stand in files")
                for _ in range(len(left) if life == LIVES - 1 else chance.randrange(N // LIVES)):
                    each = left.pop(0)
                    _delete(daemon, stream, each, chance)
                    run.figures["deletions by the " + ("stream" if each.by_stream else "API")] += 1
                if life < LIVES - 1:
                    daemon.until(_later(stream, chance.uniform(0, 0.4)), "the kill")
                    daemon.kill()
                    run.figures["kills"] += 1
                    continue
                daemon.until(_is_erased(stream, state, doomed), "all is erased")
                assert daemon.stop() == 0
        assert holders(state, doomed) == {}
        assert not list(state.glob("erasures.jsonl*"))


def _drawn(chance: random.Random, number: int) -> Doomed:
    label = chance.choice((4, 0, None, None, "none that is known"))
    # A label that is unknown makes a reject, which no person can see.
    by_stream = isinstance(label, str) or (label is None and chance.random() < 0.7)
    secret = "".join(chance.choices(string.ascii_lowercase, k=16))
    return Doomed(f"m{number}", secret, label, by_stream)


def _takes_corrections(daemon: Daemon) -> Callable[[], bool]:
    def is_open() -> bool:
        corrections = json.loads(daemon.get("/v1/page")[1]).get("corrections")
        return corrections is not None and corrections["reason"] is None

    return is_open


def _delete(daemon: Daemon, stream: Stream, each: Doomed, chance: random.Random) -> None:
    """Delete a message, now and then after it was labelled by hand."""
    if each.by_stream:
        stream.add({"id": each.id, "operation": "delete"})
        return
    if chance.random() < 0.5:
        body = {"id": each.id, "label": chance.choice(("negative", "positive"))}
        assert ask(daemon.address, "POST", "/v1/labels", body)[0] == 202
    assert ask(daemon.address, "DELETE", f"/v1/messages/{each.id}")[0] == 202


def _later(stream: Stream, seconds: float) -> Callable[[], bool]:
    until_s = time.monotonic() + seconds

    def is_over() -> bool:
        stream.tick()
        return time.monotonic() > until_s

    return is_over


def _is_written(state: Path, doomed: list[Doomed]) -> Callable[[], bool]:
    """Return a condition: each message is found in some file, or looking for them were no test."""
    return lambda: {each for held in holders(state, doomed).values() for each in held} == {*doomed}


def _is_erased(stream: Stream, state: Path, doomed: list[Doomed]) -> Callable[[], bool]:
    def is_erased() -> bool:
        stream.tick()  # so that there is something for another checkpoint
        return not holders(state, doomed)

    return is_erased


def holders(folder: Path, doomed: list[Doomed]) -> dict[str, list[Doomed]]:
    """Return which files hold words of which messages, in base64 too."""
    forms = {each: _forms(each.secret) for each in doomed}
    found = {}
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # a checkpoint that was moved meanwhile
            continue
        held = [each for each in doomed if any(form in data for form in forms[each])]
        if held:
            found[path.name] = held
    return found


def _forms(secret: str) -> list[bytes]:
    """Return what shows a word in a file: its middle, as it is and in base64 at any place."""
    middle = secret[_EDGE:].encode()
    coded = [base64.b64encode(b"x" * shift + secret.encode()) for shift in range(_EDGE)]
    return [middle, *(each[2 * _EDGE : -2 * _EDGE] for each in coded)]
