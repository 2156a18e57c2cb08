"""What version 0.1.0 wrote is read by this tree, and answers as it did; see golden/README.md."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import streamnb as nb
from tests.golden.answers import ask, differences, digest, go_on, plain
from tests.golden.daemon import go_on as daemon_goes_on
from tests.golden.machine import machine
from tests.golden.models import CASES, Golden

GOLDEN = Path(__file__).parent / "golden"

# What is no longer answered as 0.1.0 did, by case and place in the answers, with the reason.
# The case "*" stands for all of them.
_NO_FIELD = "an example without a single field of the model is refused, not answered by the prior"
_NO_PRIOR = "normalised scores differ by thousandths, and the class prior decided alone"
CHANGED: dict[tuple[str, str], str] = {
    ("bag-mapping-bernoulli", ".rows[2]"): _NO_FIELD,
    ("categories-full", ".rows[2]"): _NO_FIELD,
    ("flags", ".rows[2]"): _NO_FIELD,
    ("words-complement-normalised", ".class_priors"): _NO_PRIOR,
    ("words-complement-normalised", ".rows"): _NO_PRIOR,
    ("words-complement-normalised", ".parameters"): _NO_PRIOR,
    ("words-complement-normalised", ".predict"): _NO_PRIOR,
    ("words-complement-normalised", ".joint"): _NO_PRIOR,
    ("words-complement-normalised", ".log_l"): _NO_PRIOR,
    ("words-complement-normalised", ".sample"): _NO_PRIOR,
    ("words-complement-normalised", ".weights.log_priors"): _NO_PRIOR,
    ("words-complement-normalised", ".with_coefficient"): _NO_PRIOR,
    ("words-complement-normalised", ".ham"): _NO_PRIOR,  # of the snapshot's row
    ("words-complement-normalised", ".eggs"): _NO_PRIOR,
    ("words-complement-normalised", ".spam"): _NO_PRIOR,
    ("words-complement-normalised", ".export.class_prior.log_prior"): _NO_PRIOR,
    ("daemon", ".counts.digest: new"): "0.1.0 knew no digest of the counts",
}

# Half-lives go through exp2, so their very bytes differ from one kind of machine to another.
ROUNDED = {name for name in CASES if name.startswith("decay-")}


def unpacked(name: str) -> bytes:
    """Return a recorded file, unpacked."""
    return lzma.decompress((GOLDEN / name).read_bytes())


@cache
def recorded() -> dict[str, Any]:
    """Return what was recorded of all models."""
    found: dict[str, Any] = json.loads(unpacked("models/answers.json.xz"))
    return found


@cache
def is_same_machine() -> bool:
    """Return whether the last bit of a logarithm is that of the machine that wrote the data."""
    then = json.loads((GOLDEN / "machine.json").read_text(encoding="utf-8"))
    return {name: then[name] for name in machine()} == machine()


def compare(case: str, recorded_answers: Any, found: Any) -> list[str]:
    """Return where answers differ, but for what is said to have changed."""
    told = differences(recorded_answers, json.loads(json.dumps(found)), exact=is_same_machine())
    changed = [place for name, place in CHANGED if name in {case, "*"}]
    return [line for line in told if not any(line.startswith(place) for place in changed)][:20]


def stored(case: str) -> Golden:
    """Return a case with the model of its file in the place of the one that is taught now."""
    now = CASES[case]()
    model = nb.load(GOLDEN / "models" / f"{case}.nb")
    return Golden(model, now.rows, now.labels, now.has_training_likelihood)


def test_every_case_was_recorded() -> None:
    """There is a file and there are answers for each model, and no others."""
    files = {path.stem for path in (GOLDEN / "models").glob("*.nb")}
    assert files == set(CASES) == set(recorded())


@pytest.mark.parametrize("case", CASES)
def test_a_model_file_of_the_first_version_answers_as_it_did(case: str) -> None:
    """Every answer of a file that 0.1.0 wrote is the recorded one, bit for bit."""
    said = recorded()[case]
    assert not compare(case, said.get("answers_of_file", said["answers"]), ask(stored(case)))


@pytest.mark.parametrize("case", CASES)
def test_a_model_learns_as_the_first_version_did(case: str) -> None:
    """A model that is taught today what 0.1.0 was taught has its answers and its very bytes."""
    golden = CASES[case]()
    if is_same_machine() or case not in ROUNDED:
        assert digest(golden.model) == recorded()[case]["digest"]
    assert not compare(case, recorded()[case]["answers"], ask(golden))
    after = go_on(golden)
    if is_same_machine() or case not in ROUNDED:
        assert after == recorded()[case]["digest_after_more"]


@pytest.mark.parametrize("case", CASES)
def test_a_model_file_of_the_first_version_learns_on(case: str) -> None:
    """What was loaded is saved as the same bytes, and learns on to the bytes 0.1.0 came to."""
    golden = stored(case)
    assert digest(golden.model) == recorded()[case]["digest"]
    after = go_on(golden)
    if is_same_machine() or case not in ROUNDED:
        assert after == recorded()[case]["digest_of_file_after_more"]


@pytest.mark.parametrize("case", CASES)
def test_a_snapshot_of_a_loaded_model_answers_the_same(case: str) -> None:
    """What a board holds says the same of rows as the model that it was made of."""
    golden = stored(case)
    board = nb.SnapshotBoard()
    nb.Learner(golden.model, board, nb.EveryExamples(1), lambda: 0.0).publish()
    snapshot = board.current()
    assert snapshot is not None
    said = recorded()[case]
    rows = said.get("answers_of_file", said["answers"])["rows"]
    for i, (row, told) in enumerate(zip(golden.rows, rows, strict=True)):
        if (case, f".rows[{i}]") in CHANGED:
            continue
        found = plain(snapshot.joint_log_likelihood_one(row))
        assert not compare(case, told["joint_log_likelihood"], found)


@pytest.mark.parametrize(
    ("newest", "hybrid"),
    [
        ("model.nb", False),
        pytest.param("model.nb.1", False, marks=pytest.mark.deep),
        pytest.param("model.nb", True, marks=pytest.mark.deep),
    ],
)
def test_a_state_folder_of_the_first_version_goes_on(
    newest: str, hybrid: bool, tmp_path: Path
) -> None:
    """Stopped in the middle by 0.1.0 it ends with its counts, also from the checkpoint before.

    With the hybrid, which is the default now, its counts are the same, and the log says once that
    weights begin.
    """
    with tarfile.open(fileobj=io.BytesIO(unpacked("daemon/state.tar.xz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    if newest != "model.nb":
        (tmp_path / "state" / "model.nb").unlink()
    outcome = json.loads(unpacked("daemon/outcome.json.xz"))
    found = daemon_goes_on(tmp_path, {"hybrid": hybrid}, {"prior": "model"})
    if hybrid:  # what it answers from there on is another model's
        for each in (outcome, found):
            del each["answers"], each["kept"]
    assert not compare("daemon", outcome, found)
