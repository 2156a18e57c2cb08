"""People who correct a daemon over HTTP while it is killed, and what it must have learned after."""

from __future__ import annotations

import http.client
import json
import random
import threading
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from streamnb.storage import read
from tests.consumers.corrections.stepped_daemon import by_part, taught_anew
from tests.endtoend.daemon_process import Daemon
from tests.endtoend.expected_counts import Example, counts

CLASSES = ("negative", "positive")
_GONE = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)


def ask(address: str, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
    """Return status and JSON of one request.

    Raises
    ------
    OSError or HTTPException
        Where the daemon is gone before it has answered.
    """
    data = None if body is None else json.dumps(body).encode()
    headers = {} if body is None else {"Content-Type": "application/json"}
    request = urllib.request.Request(address + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status), json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


class People:
    """Several who label and delete messages at random, each their own, until the daemon is gone.

    Attributes
    ----------
    answered : list of (str, dict)
        What was taken: the kind of correction, and its receipt.
    refused : list of (int, dict)
        What was answered otherwise.
    """

    def __init__(
        self, daemon: Daemon, ids: Iterable[int], n_people: int, seed: int, deleted: float = 0.2
    ) -> None:
        self.answered: list[tuple[str, dict[str, Any]]] = []
        self.refused: list[tuple[int, dict[str, Any]]] = []
        self._address, self._deleted = daemon.address, deleted
        known = list(ids)
        self._threads = [
            threading.Thread(target=self._correct, args=(known[i::n_people], seed * 100 + i))
            for i in range(n_people)
        ]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait until all have noticed that the daemon is gone."""
        for thread in self._threads:
            thread.join()

    def _correct(self, ids: list[int], seed: int) -> None:
        chance = random.Random(seed)
        try:
            while True:
                number = chance.choice(ids)
                if chance.random() < self._deleted:
                    self._note("delete", *ask(self._address, "DELETE", f"/v1/messages/m{number}"))
                else:
                    body = {"id": f"m{number}", "label": chance.choice(CLASSES)}
                    self._note("label", *ask(self._address, "POST", "/v1/labels", body))
        except _GONE:
            return

    def _note(self, kind: str, status: int, body: dict[str, Any]) -> None:
        if status == 202:
            self.answered.append((kind, body))
        else:
            self.refused.append((status, body))


def expected(
    found: list[Example], partitions: int, topic: str, said: Iterable[tuple[Mapping[str, Any], str]]
) -> dict[str, list[Example]]:
    """Return what each part must have learned.

    Parameters
    ----------
    found : list of Example
        The stream; message `i` stands in partition `i % partitions`.
    partitions, topic
        How the stream is cut, and its name.
    said : iterable of (dict, str)
        Every correction of the log in the order of its message, with the part that it teaches.
    """
    last = {correction["id"]: (correction, part) for correction, part in said}
    parts: defaultdict[str, list[Example]] = defaultdict(list)
    for number, (text, label) in enumerate(found):
        correction, part = last.get(
            f"m{number}", ({"label": label}, f"{topic}/{number % partitions}")
        )
        if correction.get("label") is not None:
            parts[part].append((text, correction["label"]))
    return dict(parts)


def check_model(folder: Path, wanted: Mapping[str, list[Example]]) -> None:
    """Compare a checkpoint with the model that learned what it should from scratch, by part."""
    model, twin = read(folder / "model.nb").model, taught_anew(wanted)
    assert model.class_counts.tolist() == twin.class_counts.tolist()
    assert counts(model) == counts(twin)
    assert by_part(model) == by_part(twin)
