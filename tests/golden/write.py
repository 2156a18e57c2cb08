"""Write the golden data by the tree that is found first; see README.md.

PYTHONPATH=TREE:. python -P -m tests.golden.write
"""

from __future__ import annotations

import io
import json
import lzma
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import streamnb as nb
from tests.golden.answers import ask, differences, digest, go_on
from tests.golden.daemon import go_on as daemon_goes_on
from tests.golden.daemon import write_state
from tests.golden.machine import machine
from tests.golden.models import CASES

HERE = Path(__file__).parent


def write_models(folder: Path) -> None:
    """Write each model's file, and what all of them answer."""
    folder.mkdir(exist_ok=True)
    answers: dict[str, dict[str, Any]] = {}
    for name, make in CASES.items():
        golden = make()
        path = folder / f"{name}.nb"
        nb.save(golden.model, path, keep=1)
        # A sum of decayed parts that is made again may differ in its last digit, and words that
        # nobody counts any more are not saved: so what a file gives is recorded for itself.
        loaded = replace(golden, model=nb.load(path))
        said: dict[str, Any] = {"digest": digest(golden.model), "answers": ask(golden)}
        of_file = ask(loaded)
        if list(differences(said["answers"], of_file, exact=True)):
            said["answers_of_file"] = of_file
        said["digest_after_more"] = go_on(golden)
        said["digest_of_file_after_more"] = go_on(loaded)
        answers[name] = said
    packed(folder / "answers.json.xz", json.dumps(answers, ensure_ascii=False).encode())


def write_daemon(folder: Path) -> None:
    """Write a state folder with its input, and how it ends."""
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        write_state(work)
        holds = io.BytesIO()
        with tarfile.open(fileobj=holds, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in [work / "input.jsonl", *sorted((work / "state").iterdir())]:
                archive.add(path, str(path.relative_to(work)), filter=_nobody)
        packed(folder / "state.tar.xz", holds.getvalue())
        outcome = daemon_goes_on(work)
    packed(folder / "outcome.json.xz", json.dumps(outcome, ensure_ascii=False).encode())


def packed(path: Path, data: bytes) -> None:
    """Write data, packed."""
    path.write_bytes(lzma.compress(data, preset=9))


def _nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def main() -> None:
    """Write everything."""
    write_models(HERE / "models")
    write_daemon(HERE / "daemon")
    found = {"streamnb": nb.__version__, **machine()}
    (HERE / "machine.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
