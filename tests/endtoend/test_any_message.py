"""Whatever a message holds, it is learned, judged, deleted or rejected, and the daemon goes on.

The daemon runs here within the test's own process, with the page, the store of recent messages, a
screen and both outputs: all that reads a message, shows it or writes it down.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from rich.console import Console
from structlog.testing import capture_logs

from consumers.config.settings import Settings
from consumers.daemon import run
from consumers.decode.decoder import Decoder
from consumers.decode.labels import NoLabels
from consumers.features import build_model
from consumers.http.state import ApiEventSerializer
from consumers.messages import NO_LABEL, RawColumns
from consumers.monitoring.status import Status, Summary
from consumers.search.query_syntax import parse
from consumers.search.store import RecentStore
from consumers.terminal import frame
from tests.broker.broker import Broker
from tests.consumers.http.loopback_server import app_state
from tests.consumers.kafka.topics import fill
from tests.consumers.raw_batches import CLASSES, raw
from tests.consumers.search.stores import forget, made, settle
from tests.endtoend.expected_counts import counts_at

NewTopic = Callable[..., str]

SEED = 13
N_MESSAGES = 900
FAR = "Sat Jul 9999999999 01:09:05 +0000 2016"
DIGITS = [15, 16, 18, 19, 20, 21, 40, 300, 308, 309, 310, 4_299, 4_300, 4_301, 20_000]
DEPTHS = [20, 59, 60, 61, 197, 198, 199, 200, 201, 400, 900, 950, 960, 970, 980, 990, 1_000, 9_000]
# Values as JSON, or as what only looks like it.
VALUES = [
    "null", "true", "false", "0", "1", "-0", "0.0", "-0.0", "1.0", "4.0", "2", "7",
    "1e400", "-1e400", "1e308", "-1e308", "1e-400", "1E+99", "1e-99", "1.5e300",
    "NaN", "Infinity", "-Infinity", "nan", "01", "+1", ".5", "1.", "0x10",
    "9007199254740993", "99999999999", "1e13", "8.9e18", "9.1e18", "-8.9e18", "-62135596800",
    *("9" * n for n in DIGITS), *("-" + "9" * n for n in DIGITS),
    "{}", "[]", "[null]", "[1,2]", '["en"]', '[["en"]]', '{"y":{"z":1}}', '{"name":"ann","y":2}',
    '{"\\ud800":"\\udfff","":{"\\u0000":1}}', '{"a":1,"a":2}',
    '""', '"a"', '" "', '"create"', '"update"', '"delete"', '"DELETE"', '"positive"', '"4"',
    '"\\ud800"', '"\\udc00x"', '"\\ud83d\\ude00"', '"\\u0000"', '"a\\u0000b"', '"\\ufdd0\\ufdd1"',
    '"\ud800"', '"\x00"', '"\x1f"', '"\\x"', '"\u2028<script>alert(1)</script>"',
    '"[bold red]x[/nope] [link=file:///]"', '"\\u001b[31m\\u009b2J\\u0007"', '"\\u202e\\u200f"',
    '"%s %d %(x)s {x} {0} \\n\\r\\t\\u2028"',
    '"\U0001f468\u200d\U0001f469\u200d\U0001f467 #tag 漢字"',
    '"good day :) :("', '"bad :( day"', '"#' + "_" * 300 + '"', '"' + "x" * 70_000 + '"',
    f'"{FAR}"', '"Sat Jul 09 01:09:05 +0000 99999999999"', '"Sat Jul 09 01:09:05 +9999 2016"',
    '"9999-12-31T23:59:59.999-23:59"', '"0001-01-01T00:00:00+23:59"', '"2016-07-09T01:09:05Z"',
]  # fmt: skip
USUAL: dict[str, list[str]] = {
    "text": ['"a good day"', '"what a bad day"', '"day after day"'],
    "label": ["0", "4", '"positive"', "4.0", "null"],
    "operation": ["null", "null", '"create"', '"update"', '"delete"'],
    "created_at": ['"2009-04-07T05:19:45Z"', f'"{FAR}"', "1239081585"],
    "id": ["1", "2", "3", '"x"', '"\U0001f600"'],
    "user": ['"ann"', '"bob"', '{"name":"cyd"}'],
    "lang": ['"en"', '["de"]'],
    "amount": ["1", "2.5"],
    "flag": ["true", "0"],
    "kind": ['"red"', "3"],
}
FIELDS = [*USUAL, "other", "x"]
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "emoticons": {"labels": {"kind": "emoticons"}},
    "kept": {"message": {"fields": ["other", "x.y", "user.name"], "user": "user.name"}},
    "several ids": {"message": {"id": ["id", "user", "x"], "lang": "x.y"}},
    "fields": {
        "message": {"fields": ["other"]},
        "model": {
            "features": {
                "amount": {"kind": "numbers", "fields": ["amount"]},
                "flag": {"kind": "flags", "fields": ["flag"]},
                "kind": {"kind": "categories", "fields": ["kind", "lang"]},
                "x": {"kind": "words", "fields": ["x"]},
            }
        },
    },
}


def odd_messages(seed: int, n: int) -> list[bytes]:
    """Return messages of which most are nearly right; the same for a seed."""
    rng = random.Random(seed)
    return [
        b'{"id":1,"operation":"delete","created_at":"%s"}' % FAR.encode(),
        *(odd_message(rng) for _ in range(n - 1)),
    ]


def odd_message(rng: random.Random) -> bytes:
    """Return a message with up to three odd values, now and then cut off or with something behind.

    It is never empty: an empty line of a file is no message.
    """
    odd = set(rng.sample(FIELDS, rng.choice((0, 1, 1, 1, 2, 3))))
    parts = []
    for name in FIELDS:
        if name in odd:
            parts.append(f'"{name}":{odd_value(rng)}')
        elif name in USUAL and rng.random() < (0.95 if name == "text" else 0.6):
            parts.append(f'"{name}":{rng.choice(USUAL[name])}')
    rng.shuffle(parts)
    line = ("{" + ",".join(parts) + "}").encode("utf-8", "surrogatepass")
    if rng.random() < 0.04:
        line = line[: rng.randrange(1, len(line))] + rng.choice([b"", b"\xff", b"}", b"{}", b"\0"])
    return line


def odd_value(rng: random.Random) -> str:
    """Return a value as JSON, one in five of them deep."""
    if rng.random() < 0.8:
        return rng.choice(VALUES)
    depth = rng.choice(DEPTHS)
    return rng.choice(["[" * depth + "]" * depth, '{"y":' * depth + "1e9" + "}" * depth])


class DrawnView:
    """Draws each status as the screen does, to nobody."""

    def __init__(self) -> None:
        self.n_drawn = 0

    def start(self) -> None:
        """Begin."""

    def update(self, status: Status) -> None:
        """Draw."""
        console = Console(file=io.StringIO(), width=100, height=40, force_terminal=True)
        console.print(frame(status, [0.5, 0.6], 100, 40))
        self.n_drawn += 1

    def stop(self) -> None:
        """End."""


def settings_of(folder: Path, source: str, **sections: Any) -> Settings:
    """Return settings with everything turned on, in a folder."""
    return Settings.model_validate(
        {
            "source": source,
            "http": {"port": 0},
            "recent": {"rate_max_per_s": 1e6},
            "checkpoint": {"folder": folder / "state", "interval_s": 0.2},
            "predictions": {"to": f"file:{folder / 'predictions.jsonl'}"},
            "rejects": {"to": f"file:{folder / 'rejects.jsonl'}"},
            **sections,
        }
    )


def run_on(settings: Settings) -> Summary:
    """Run the daemon to the source's end, which no message may keep it from."""
    view = DrawnView()
    with capture_logs() as lines:
        summary = run(settings, view, until_end=True)
    assert [line for line in lines if line["log_level"] in {"error", "critical"}] == []
    assert view.n_drawn
    return summary


def counts_of(summary: Summary) -> tuple[int, int, int, dict[str, int]]:
    """Return where all messages ended."""
    return summary.learned, summary.judged, summary.deletions, dict(summary.rejected)


def check_places(folder: Path, summary: Summary, n: int) -> None:
    """Compare a summary with what was written: each message stands in one place, and is JSON."""
    n_rejected = sum(summary.rejected.values())
    n_left_out = summary.deletions + summary.superseded
    assert summary.learned + summary.judged + n_left_out + n_rejected == n
    assert "decoder_failed" not in summary.rejected
    predictions, rejects = (
        [json.loads(line) for line in (folder / f"{name}.jsonl").read_bytes().splitlines()]
        for name in ("predictions", "rejects")
    )
    assert (len(predictions), len(rejects)) == (summary.judged, n_rejected)
    assert len({(line["topic"], line["partition"], line["offset"]) for line in rejects}) == (
        n_rejected
    )
    assert all(line["detail"] for line in rejects)


def check_page(settings: Settings, recent: RecentStore) -> int:
    """Show all that a store holds as the page is told it; return how many those are."""
    n, before = 0, None
    with app_state(settings, build_model(settings.model)) as of:
        serializer, all_of_them = ApiEventSerializer(of), parse("")
        while True:
            found = recent.search(all_of_them, limit=1_000, before=before)
            told = json.loads(serializer.messages(found.rows))["messages"]
            for each in told:  # else no browser or export could show it
                dt.datetime.fromtimestamp(each["time_ms"] / 1000, dt.UTC)
            n += len(told)
            before = found.before
            if not found.more:
                break
        for text in ("", "day", "#tag", '"good day"'):
            query = parse(text)
            summary = serializer.summary(query, None, recent.counted(query), recent.state())
            assert json.loads(summary)["n"] <= n
    return n


def check_store(settings: Settings, summary: Summary) -> None:
    """Open the file that a run has left, show its messages, and delete each by its id."""
    folder, model = settings.checkpoint.folder, settings.model
    assert folder is not None
    recent = RecentStore(settings.recent, folder / "recent.db", model.classes, model.fields, 0.65)
    recent.start()
    try:
        settle(recent)
        n = check_page(settings, recent)
        assert 0 < n <= summary.learned + summary.judged
        found = recent.search(parse(""), limit=1_000)
        forget(recent, [each.row.id for each in found.rows])
        settle(recent)
        assert recent.state().n_messages == n - len(found.rows)
    finally:
        recent.stop()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_message_ends_in_one_place(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Learned, judged, deleted or rejected: in sum all there are, whether the scan reads or not."""
    lines = odd_messages(SEED, N_MESSAGES)
    assert not any(b"\n" in line or b"\r" in line for line in lines)
    stream = tmp_path / "odd.jsonl"
    stream.write_bytes(b"\n".join(lines) + b"\n")
    ends = []
    for way in ("scan", "one by one"):
        folder = tmp_path / way
        folder.mkdir()
        settings = settings_of(folder, f"file:{stream}", **CONFIGURATIONS[name])
        if way == "one by one":
            monkeypatch.setattr(
                Decoder, "_scanned", lambda self, raw, _: self._empty_columns(len(raw))
            )
        summary = run_on(settings)
        check_places(folder, summary, N_MESSAGES)
        check_store(settings, summary)
        ends.append((counts_of(summary), counts_at(folder / "state")))
    assert ends[0] == ends[1]
    assert summary.judged > N_MESSAGES // 10
    assert summary.deletions > N_MESSAGES // 50


@pytest.mark.integration
@pytest.mark.parametrize(
    "kafka",
    [{"decode": "columns"}, {"decode": "records"}, {"client": "librdkafka"}],
    ids=["columns", "records", "librdkafka"],
)
def test_every_message_of_a_topic_ends_in_one_place(
    tmp_path: Path, broker: Broker, new_topic: NewTopic, kafka: dict[str, str]
) -> None:
    """Both clients, and both ways of decoding a response, agree with a file of the same messages.

    A topic has also values that a file cannot have: null, empty, and with line feeds in them.
    """
    lines = odd_messages(SEED + 1, N_MESSAGES // 3)
    topic = new_topic()
    fill(broker.address, topic, [*lines, None, b"", b'\n{"text":\r\n"a",\n"id":\n1}\n'])
    stream = tmp_path / "odd.jsonl"
    stream.write_bytes(b"\n".join(lines) + b"\n")
    by_file, by_topic = tmp_path / "by file", tmp_path / "by topic"
    by_file.mkdir()
    by_topic.mkdir()
    expected = run_on(settings_of(by_file, f"file:{stream}"))
    settings = settings_of(
        by_topic, f"kafka://{broker.address}/{topic}", kafka=kafka | {"group_id": topic}
    )
    summary = run_on(settings)
    check_places(by_topic, summary, len(lines) + 3)
    check_store(settings, summary)
    learned, judged, deletions, rejected = counts_of(expected)
    rejected |= {"not_json": rejected["not_json"] + 1}
    # The null value deletes the message that its key names.
    assert counts_of(summary) == (learned, judged + 1, deletions + 1, rejected)


def test_any_time_of_a_source_can_be_shown() -> None:
    """A broker hands on what a producer said: any 64 bits. The page shows what a browser knows."""
    times = [-(1 << 63), (1 << 63) - 1, -1, 0, 1 << 53, (1 << 53) + 1, -(1 << 53) - 1]
    values: list[bytes | None] = [b'{"text":"a good day","id":%d}' % n for n in range(len(times))]
    batch: RawColumns = replace(raw(values), times_ms=np.array(times, np.int64))
    told = Decoder(Settings().message, NoLabels(CLASSES)).decode(batch)
    assert set(told.labels.tolist()) == {NO_LABEL}
    assert [row.time_ms for row in told.envelopes(np.arange(len(times)))] == times
    recent = made(None)
    recent.start()
    try:
        recent.offer(told, told.to_predict, np.log(np.full((len(times), 2), 0.5)))
        settle(recent)
        assert check_page(settings_of(Path("nowhere"), "stdin"), recent) == len(times)
    finally:
        recent.stop()
