"""The archive of the real Jetstream server, and its live stream behind it, are one log."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from consumers.config.addresses import Bound, StreamRange
from consumers.config.settings import Settings
from consumers.factories import build_source
from consumers.sources.records import EPOCH
from tests.endtoend.daemon_process import Daemon, command
from tests.endtoend.expected_counts import counts_at
from tests.endtoend.jetstream_server import PATIENCE_S, JetstreamServer, last_of
from tests.endtoend.recorded_wire import RecordedWire
from tests.endtoend.test_jetstream import N, config
from tests.endtoend.test_jetstream import server as server  # noqa: PLC0414 -- a fixture

pytestmark = [pytest.mark.deep, pytest.mark.data, pytest.mark.slow]
LONG_AGO_US = 10**15
BEYOND = 500  # events behind the archive's last one


def test_history_is_what_the_wire_had_sent(server: JetstreamServer) -> None:
    """From the archive's first event to far behind its last one, the frames are byte for byte those
    of a subscription that begins with the first number; packed ones too.
    """
    last = server.sealed() + BEYOND
    for collections in (["app.bsky.feed.post"], ["app.bsky.graph.*"], []):
        for compress in (False, True):
            given = {"kinds": ["commit", "identity"], "collections": collections}
            plain = server.frames(last, start_at=1, **given)
            begin = {"start_at": LONG_AGO_US, "history": True, "compress": compress}
            assert server.frames(last, **begin, **given) == plain


@pytest.mark.parametrize("history", [False, True])
def test_a_run_begins_at_a_time(server: JetstreamServer, *, history: bool) -> None:
    """`--from` brings what a run from the beginning has from that time on, byte for byte, from the
    middle of the archive to behind it.
    """
    whole = server.frames(server.sealed() + BEYOND, start_at=1, kinds=["commit"])
    times_us = [time_us_of(each) for each in whole]
    begin_ms = sorted(times_us)[len(whole) // 2] // 1000
    wanted = [each for each, at in zip(whole, times_us, strict=True) if at >= begin_ms * 1000]
    asked = {"version": 2, "kinds": ["commit"], "history": history}
    settings = Settings.model_validate(
        {"source": f"jetstream+ws://{server.host}", "jetstream": asked}
    )
    part = StreamRange(Bound("time", begin_ms), None)
    source = build_source(settings, until_end=False, part=part)
    source.open(lambda _: None)
    found: list[bytes] = []
    while len(found) < len(wanted):
        for raw in source.poll(1.0):
            found += [raw.value(i) or b"" for i in range(len(raw))]
    source.close()
    assert len(wanted) > N
    assert found[: len(wanted)] == wanted
    assert source.gaps == 0


def time_us_of(frame: bytes) -> int:
    """Return the time of a frame of the second wire."""
    at = datetime.fromisoformat(json.loads(frame)["payload"]["time"])
    return (at - EPOCH) // timedelta(microseconds=1)


def test_a_cursor_that_is_too_old_goes_on_by_the_archive(
    server: JetstreamServer, tmp_path: Path
) -> None:
    """A daemon that began with the archive is killed, and the server then forgets what it had sent
    but for its archive, of which it takes what was deleted or replaced: the daemon goes on without
    a gap, and has in the end what one run has over all of the archive, and over what the server
    had sent and lost when it was killed.
    """
    wire = RecordedWire(server.host)
    path = config(
        tmp_path / "live", f"jetstream+ws://{wire.host}", 2, start_at=LONG_AGO_US, history=True
    )
    state = path.parent / "state"
    tip = server.sealed()
    with wire.open():
        with Daemon(path) as daemon:
            daemon.until(lambda: last_of(state)[0] > tip + N, "a checkpoint behind the archive")
        number, key = last_of(state)
        learned = dict(server.archived(key, 2))
        server.kill()
        n_sent = len(wire.sent())
        server.start("--cursor-lookback", "1ms", "--compaction-interval", "1s")
        deadline_s = time.monotonic() + PATIENCE_S
        while (tip := server.sealed()) <= number + N:  # until it is compacted
            assert time.monotonic() < deadline_s
        with Daemon(path) as daemon:
            daemon.until(lambda: last_of(state)[0] > tip, "a checkpoint behind the archive")
            server.kill()
            frames = wire.sent()[n_sent:]
            daemon.until_line("source_trouble")
            server.start()  # which takes nothing more away
            sent = server.by_key(frames, 2)
            tip = server.sealed()
            daemon.until(
                lambda: last_of(state)[0] > tip + N and last_of(state)[1] not in sent,
                "a checkpoint behind the archive",
            )
            assert daemon.metric("streamnb_stream_gaps_total") == 0
    archived = dict(server.archived(last_of(state)[1], 2))
    first = number_of(next(iter(sent.values())))  # the daemon read older ones from the archive
    learned |= {key: frame for key, frame in archived.items() if number_of(frame) < first}
    wanted = tmp_path / "archive"
    file = wanted / "posts.jsonl"
    plain = config(wanted, f"file:{file}", 2)
    file.write_bytes(b"".join(post + b"\n" for post in (learned | sent | archived).values()))
    ended = command("run", "--config", plain, "--until-end", folder=wanted)
    assert ended.returncode == 0, ended.stderr
    assert counts_at(state) == counts_at(wanted / "state")


def number_of(frame: bytes) -> int:
    """Return the number of a frame of the second wire."""
    return int(json.loads(frame)["payload"]["seq"])
