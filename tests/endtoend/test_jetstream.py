"""The daemon on the real Jetstream server: kills of either cost no message, and repeat none.

The server sends an event before it is durable. After a SIGKILL it reads the commits since its last
durable cursor from the network again, in one burst. Its verify queue holds 64 events of an account;
if it overflows, the server drops events, and may replace them by a resync of the account. So the
archive can lack events that were sent, and can have records of a resync in their place.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.endtoend.daemon_process import Daemon, command
from tests.endtoend.expected_counts import counts_at
from tests.endtoend.jetstream_server import JetstreamServer, last_key_at, n_posts, position_at
from tests.endtoend.recorded_wire import RecordedWire

_SYNC = "network.bsky.jetstream.subscribeEvents#sync"
N = 200  # messages between two kills
N_OF_ONE = 500  # well above the 64 events that the server's queue of an account holds


@pytest.fixture(scope="module")
def server(
    data_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JetstreamServer]:
    """Return the server, on a network that goes on posting."""
    found = JetstreamServer(programs_in(data_folder), tmp_path_factory.mktemp("jetstream"))
    yield found
    found.stop()


def programs_in(data_folder: Path) -> Path:
    """Return the folder of the server's programs, beside that of the data."""
    programs = data_folder.parent / "jetstream"
    if not (programs / "jetstream").is_file():
        pytest.skip(f"no Jetstream server at {programs}")
    return programs


def config(folder: Path, source: str, version: int, **jetstream: Any) -> Path:
    """Return a configuration that learns a post's words by what its record is."""
    at = "payload." if version == 2 else ""
    commit = "payload." if version == 2 else "commit."
    operation = [f"{commit}operation", f"{at}account.status", f"{at}$type"]
    settings: dict[str, Any] = {
        "source": source,
        "jetstream": {"version": version, "start_at": 1, **jetstream},
        "live": {"retry_pause_s": 0.05, "retry_pause_max_s": 0.2},
        "message": {
            "id": [f"{at}did", f"{commit}collection", f"{commit}rkey"],
            "text": f"{commit}record.text",
            "operation": {"first_of": operation},
            "operations": {
                "create": "create",
                "update": "update",
                "delete": "delete",
                **dict.fromkeys(("deleted", "takendown", _SYNC), "delete_account"),
            },
            "time": f"{commit}record.createdAt",
            "user": f"{at}did",
        },
        "labels": {"field": f"{commit}record.$type", "mapping": {"app.bsky.feed.post": "positive"}},
        "checkpoint": {"folder": "state", "interval_s": 0.2},
        "recent": {"enabled": False},
        "http": {"port": 0},
    }
    folder.mkdir(exist_ok=True)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def lost_by_kills(
    server: JetstreamServer, folder: Path, n: int, *, version: int, compress: bool = False
) -> set[str]:
    """Kill server and daemon while messages flow, and compare the daemon's counts.

    They must be those of what the server sent before it was killed, and of what is in its archive
    besides, read afterwards, up to the same message.

    Returns
    -------
    set of str
        The accounts of events that were sent and are not in the archive.
    """
    wire = RecordedWire(server.host)
    path = config(folder / "live", f"jetstream+ws://{wire.host}", version, compress=compress)
    state = path.parent / "state"
    position, sent = 0, dict[int, bytes]()
    with wire.open():
        for kill_server in (True, False):
            with Daemon(path) as daemon:
                daemon.until_metric("streamnb_messages_total", n)
                if kill_server:
                    server.kill()
                    frames = wire.sent()
                    daemon.until_line("source_trouble")
                    server.start()
                    sent = server.by_key(frames, version)
                    seen = daemon.metric("streamnb_messages_total")
                    daemon.until_metric("streamnb_messages_total", seen + n)
                enough = max(position + 1, len(sent))
                daemon.until(lambda: position_at(state) >= enough, "a checkpoint")  # noqa: B023
                assert daemon.metric("streamnb_stream_gaps_total") == 0
            position = position_at(state)
    archived = dict(server.archived(last_key_at(state), version))
    lost = server.lost_accounts(sent, last_key_at(state), version)
    wanted = folder / "archive"
    file = wanted / "posts.jsonl"
    plain = config(wanted, f"file:{file}", 2)
    events = list((sent | archived).values())
    file.write_bytes(b"".join(event + b"\n" for event in events))
    ended = command("run", "--config", plain, "--until-end", folder=wanted)
    assert ended.returncode == 0, ended.stderr
    assert counts_at(state) == counts_at(wanted / "state")
    assert sum(counts_at(state)[0]) == n_posts(events)
    return lost


@pytest.mark.deep
@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(("version", "compress"), [(1, False), (2, False), (2, True)])
def test_kills_cost_nothing(
    server: JetstreamServer, tmp_path: Path, *, version: int, compress: bool
) -> None:
    """Server and daemon are killed while messages flow: each message is learned once."""
    lost_by_kills(server, tmp_path, N, version=version, compress=compress)


@pytest.mark.deep
@pytest.mark.data
@pytest.mark.slow
def test_the_daemon_keeps_what_the_server_loses(data_folder: Path, tmp_path: Path) -> None:
    """If all commits are of one account, the server loses some at a kill: they stay learned, and
    each later message is learned once.
    """
    (tmp_path / "server").mkdir()
    server = JetstreamServer(
        programs_in(data_folder),
        tmp_path / "server",
        accounts=1,
        commits_per_s=100,  # the cursor is durable at 4,096 events, and the kill must come before
    )
    try:
        assert lost_by_kills(server, tmp_path, N_OF_ONE, version=2)
    finally:
        server.stop()
