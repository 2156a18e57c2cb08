"""The example of late labels: a day of edits, some of them reverted up to two days later."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from consumers.config.settings import load
from consumers.daemon import run
from streamnb.storage import read
from tests.endtoend.test_restart_laws import NoView

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "wikimedia.yaml"
DAY_S, BEGIN_S, N = 86_400, 1_779_719_009, 600
WINDOW_S = 2 * DAY_S


def edit(i: int, **more: Any) -> dict[str, Any]:
    """Return change `i` of a day as the stream has it; vandals write in capitals."""
    return {
        "type": "new" if i % 20 == 0 else "edit", "wiki": "enwiki", "namespace": i % 3,
        "title": f"Page {i % 50}", "comment": "HAHA" if is_bad(i) else "fixed a typo",
        "timestamp": BEGIN_S + i * (DAY_S // N), "user": f"u{i % 30}", "bot": i % 9 == 0,
        "minor": i % 2 == 0, "length": {"old": 900, "new": 900 + (i % 7 if i % 5 else -800)},
        "revision": {"old": i, "new": 10_000 + i}, "meta": {"domain": "en.wikipedia.org"},
    } | more  # fmt: skip


def is_bad(i: int) -> bool:
    """Return whether an edit is reverted, sooner or later or too late."""
    return i % 5 == 0


def lag_s(i: int) -> int:
    """Return after how many seconds an edit is tagged as reverted: some after two days."""
    return WINDOW_S + 60 if i % 50 == 0 else i * 7919 % WINDOW_S


def tag(i: int) -> dict[str, Any]:
    """Return the tag of a revert, as the example's filter writes it."""
    at = datetime.fromtimestamp(BEGIN_S + i * (DAY_S // N) + lag_s(i), UTC)
    return {"database": "enwiki", "rev_id": 10_000 + i, "label": "reverted"} | {
        "created_at": at.isoformat().replace("+00:00", "Z")
    }


def test_edits_are_judged_at_once_and_labelled_when_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each edit is judged when it comes, and learned once: as reverted by its tag, as kept when
    two days are over; a tag that no edit has, or a later one, is told with its reason.
    """
    canary = edit(1) | {"meta": {"domain": "canary"}}
    elsewhere, log = edit(2, wiki="dewiki"), edit(3, type="log")
    # Long after somebody edits again, twice: the time of the stream is one that two have reached.
    late = [edit(N + i, timestamp=BEGIN_S + 9 * DAY_S + i) for i in range(2)]
    edits = [canary, *(edit(i) for i in range(N)), elsewhere, log, *late]
    bad = [i for i in range(N) if is_bad(i)]
    tags = sorted(map(tag, bad), key=lambda each: str(each["created_at"]))
    tags.append(tag(5) | {"rev_id": 1})
    for name, lines in (("edits", edits), ("reverts", tags)):
        text = "".join(json.dumps(each) + "\n" for each in lines)
        (tmp_path / f"{name}.jsonl").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    rejects = tmp_path / "rejects.jsonl"
    outputs = {"predictions.to": "file:out.jsonl", "rejects.to": "file:rejects.jsonl"}
    settings = load(EXAMPLE, {}, outputs | {"http.enabled": False})
    summary = run(settings, NoView(), until_end=True)
    out = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert [each["id"] for each in out] == [f"enwiki/{10_000 + i}" for i in range(N + 2)]
    in_time = [i for i in bad if lag_s(i) <= WINDOW_S]
    assert 0 < len(in_time) < len(bad)
    model = read(tmp_path / "state" / "wikimedia" / "model.nb").model
    assert model.class_counts.tolist() == [N - len(in_time), len(in_time)]
    by_word = dict(
        zip(
            ("HAHA", "typo"),
            model.word_counts(["haha", "typo"], group="comment").tolist(),
            strict=True,
        )
    )
    assert by_word["HAHA"] == [len(bad) - len(in_time), len(in_time)]
    assert by_word["typo"] == [N - len(bad), 0]
    assert summary.ignored == {"meta.domain": 1, "wiki": 1, "type": 1}
    told = [json.loads(line) for line in rejects.read_bytes().splitlines()]
    assert len(told) == len(bad) - len(in_time) + 1
    assert {each["reason"] for each in told} == {"unmatched_label"}
