"""The example of late labels: a day of edits, some of them reverted up to two days later."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from consumers.config.settings import load
from consumers.daemon import run
from streamnb import NaiveBayes
from streamnb.inspection.summary import category_rows, flag_rows, number_rows
from streamnb.storage import read
from tests.consumers.sources.live_server import LiveServer, Peer
from tests.endtoend.daemon_process import PATIENCE_S, Daemon
from tests.endtoend.test_restart_laws import NoView

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "wikimedia.yaml"
DAY_S, BEGIN_S, N = 86_400, 1_779_719_009, 600
WINDOW_S = 2 * DAY_S
N_A_DAY = 100_000
BYTES_A_MESSAGE, NOISE_BYTES = 300, 12 << 20  # of memory: docs/late-labels.md says the first


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


def check_other_features(model: NaiveBayes, in_time: Sequence[int]) -> None:
    """Compare the counts of categories and flags, and the means of numbers, with the edits'."""
    classes = [sorted({*range(N)} - {*in_time}), in_time]
    edits = [[edit(i) for i in own] for own in classes]

    def counted(field: str, value: Any) -> list[int]:
        return [sum(each[field] == value for each in own) for own in edits]

    values = {
        (row.field, each.value): each.counts.tolist()
        for row in category_rows(model.state, N)
        for each in row.values
    }
    wanted = {("type", name): counted("type", name) for name in ("edit", "new")}
    assert values == wanted | {("namespace", str(i)): counted("namespace", i) for i in range(3)}
    flags = {row.field: (row.true.tolist(), row.false.tolist()) for row in flag_rows(model.state)}
    for name in ("minor", "bot"):
        assert flags[name] == (counted(name, True), counted(name, False))
    sizes = {row.field: row for row in number_rows(model.state)}
    for name in ("old", "new"):
        found = sizes[f"length.{name}"]
        lengths = [[each["length"][name] for each in own] for own in edits]
        assert found.n.tolist() == [len(own) for own in lengths]
        assert found.mean.tolist() == pytest.approx([sum(own) / len(own) for own in lengths])


def test_edits_are_judged_at_once_and_labelled_when_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each edit is judged when it comes, and learned once, by all its features: as reverted by its
    tag, as kept when two days are over; a tag that no edit has, or a later one, is told with its
    reason.
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
    check_other_features(model, in_time)
    assert summary.ignored == {"meta.domain": 1, "wiki": 1, "type": 1}
    told = [json.loads(line) for line in rejects.read_bytes().splitlines()]
    assert len(told) == len(bad) - len(in_time) + 1
    assert {each["reason"] for each in told} == {"unmatched_label"}


def test_the_accuracy_is_the_share_of_right_first_judgements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they were written when the edits came: of those that were tagged by the end, and of all
    once two days are over for the others.
    """
    in_time = [i for i in range(N) if is_bad(i) and lag_s(i) <= WINDOW_S]
    tags = sorted(map(tag, in_time), key=lambda each: str(each["created_at"]))
    for name, lines in (("edits", [edit(i) for i in range(N)]), ("reverts", tags)):
        text = "".join(json.dumps(each) + "\n" for each in lines)
        (tmp_path / f"{name}.jsonl").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    outputs = {"predictions.to": "file:out.jsonl", "learning.publish": "examples"}
    numbers: dict[str, Any] = {
        "learning.publish_examples": 1,
        "file.batch_bytes": 8_192,
        "http.enabled": False,
    }
    settings = load(EXAMPLE, {}, outputs | numbers)
    summary = run(settings, NoView(), until_end=True)
    said = [
        json.loads(line)["label"] for line in (tmp_path / "out.jsonl").read_bytes().splitlines()
    ]
    assert len(said) == N
    n_right = sum(said[i] == "reverted" for i in in_time)
    assert summary.accuracy == n_right / len(in_time)
    with (tmp_path / "edits.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(
            json.dumps(edit(N + i, timestamp=BEGIN_S + 9 * DAY_S + i)) + "\n" for i in range(2)
        )
    summary = run(settings, NoView(), until_end=True)
    n_right += sum(said[i] == "kept" for i in {*range(N)} - {*in_time})
    assert summary.accuracy == n_right / N
    assert 0 < n_right < N


def test_the_commands_of_the_example_write_both_files(tmp_path: Path) -> None:
    """As written, but for the host: all edits as they came, and of the tags those of reverts."""
    if not all(map(shutil.which, ("curl", "jq", "sed"))):
        pytest.skip("no curl, jq or sed found")
    edits = [edit(i) for i in range(30)]
    reverts = [tag(i) for i in range(30) if is_bad(i)]
    tags = [
        {key: each[key] for key in ("database", "rev_id")}
        | {"tags": ["visualeditor", "mw-reverted"], "meta": {"dt": each["created_at"]}}
        for each in reverts
    ]
    others = [each | {"tags": found} for each in tags for found in ([], ["mw-undo"])]
    paths = {"recentchange": edits, "mediawiki.revision-tags-change": [*others, *tags]}

    def script(peer: Peer) -> None:
        peer.begin()
        for i, each in enumerate(paths[peer.path.rpartition("/")[2]]):
            data = json.dumps(each)
            peer.chunk(f":ok\n\nevent: message\nid: [{i}]\ndata: {data}\n\n".encode())
        peer.send(b"0\r\n\r\n")

    shown = "".join(re.findall(r"^#   (.*\n)", EXAMPLE.read_text(encoding="utf-8"), re.MULTILINE))
    shell, _, run_it = shown.partition("streamnb ")
    assert run_it == "run --config docs/examples/wikimedia.yaml --open\n"
    with LiveServer(script) as server:
        here = shell.replace("https://stream.wikimedia.org", f"http://{server.host}")
        assert here.count(server.host) == 1
        env = {"PATH": os.environ["PATH"], "no_proxy": "*"}
        subprocess.run(
            ["bash", "-c", f"{here}wait"], cwd=tmp_path, env=env, timeout=PATIENCE_S, check=True
        )
    for name, wanted in (("edits", edits), ("reverts", reverts)):
        lines = (tmp_path / f"{name}.jsonl").read_bytes().splitlines()
        assert [json.loads(line) for line in lines] == wanted


@pytest.mark.deep
@pytest.mark.parametrize("most", [1_000_000, 1 << 16])
def test_what_waits_takes_little_memory_and_was_judged(tmp_path: Path, most: int) -> None:
    """Of two days of edits all wait for their labels: each was judged when it came, in its order,
    and the second day takes no more memory than the document says; if the memory is full, three
    more take none.
    """
    all_wait = most > 2 * N_A_DAY
    n_days = 2 if all_wait else 6
    (tmp_path / "reverts.jsonl").touch()
    config, shown = tmp_path / "config.yaml", EXAMPLE.read_text(encoding="utf-8")
    bound = "messages_max: 1000000"
    assert bound in shown
    # What came since the last checkpoint is in memory, so there is one every half a second.
    more = "  interval_s: 0.5\npredictions: {to: 'file:out.jsonl'}\nhttp: {port: 0}\n"
    more += "recent: {enabled: false}\n"
    config.write_text(shown.replace(bound, f"messages_max: {most}") + more, encoding="utf-8")

    def write(first: int, end: int) -> None:
        with (tmp_path / "edits.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(
                json.dumps(edit(i, timestamp=BEGIN_S + i * DAY_S // N_A_DAY)) + "\n"
                for i in range(first, end)
            )

    peaks = []
    with Daemon(config) as daemon:
        for day in range(n_days):
            write(day * N_A_DAY, (day + 1) * N_A_DAY)
            daemon.until_metric("streamnb_messages_total", (day + 1) * N_A_DAY)
            peaks.append(daemon.peak_bytes())
        assert daemon.stop() == 0
        learned = daemon.summary["learned"]
    out = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert [each["id"] for each in out] == [f"enwiki/{10_000 + i}" for i in range(n_days * N_A_DAY)]
    assert (learned == 0) == all_wait  # one that leaves a full memory is learned as `kept`
    # Of a full memory that grew all the same each day would take as much as the second does here.
    # What leaves it is learned: the model's arrays have their room by the third day.
    before, noise = (peaks[0], NOISE_BYTES) if all_wait else (peaks[2], 0)
    assert peaks[-1] <= before + BYTES_A_MESSAGE * N_A_DAY + noise
