"""The daemon on the real Jetstream server: kills of either cost no message, and repeat none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.endtoend.daemon_process import Daemon, command
from tests.endtoend.expected_counts import counts_at
from tests.endtoend.jetstream_server import JetstreamServer, last_key_at, position_at

N = 200  # messages between two kills


@pytest.fixture(scope="module")
def server(
    data_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JetstreamServer]:
    """Return the server, on a network that goes on posting."""
    programs = data_folder.parent / "jetstream"
    if not (programs / "jetstream").is_file():
        pytest.skip(f"no Jetstream server at {programs}")
    found = JetstreamServer(programs, tmp_path_factory.mktemp("jetstream"))
    yield found
    found.stop()


def config(folder: Path, source: str, version: int, **jetstream: Any) -> Path:
    """Return a configuration that learns a post's words by what its record is."""
    at = "payload." if version == 2 else ""
    commit = "payload." if version == 2 else "commit."
    settings: dict[str, Any] = {
        "source": source,
        "jetstream": {"version": version, "start_at": 1, "kinds": ["commit"], **jetstream},
        "live": {"retry_pause_s": 0.05, "retry_pause_max_s": 0.2},
        "message": {
            "id": [f"{at}did", f"{commit}collection", f"{commit}rkey"],
            "text": f"{commit}record.text",
            "operation": f"{commit}operation",
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


@pytest.mark.deep
@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize(("version", "compress"), [(1, False), (2, False), (2, True)])
def test_kills_cost_nothing(
    server: JetstreamServer, tmp_path: Path, *, version: int, compress: bool
) -> None:
    """The server is killed under the daemon, then the daemon: in the end the counts are those of
    the server's own archive, read afterwards, up to the same message.
    """
    source = f"jetstream+ws://{server.host}"
    path = config(tmp_path / "live", source, version, compress=compress)
    state = path.parent / "state"
    position = 0
    for kill_server in (True, False):
        with Daemon(path) as daemon:
            daemon.until_metric("streamnb_messages_total", N)
            if kill_server:
                server.kill()
                daemon.until_line("source_trouble")
                server.start()
                seen = daemon.metric("streamnb_messages_total")
                daemon.until_metric("streamnb_messages_total", seen + N)
            daemon.until(lambda: position_at(state) > position, "a checkpoint")  # noqa: B023
            assert daemon.metric("streamnb_stream_gaps_total") == 0
        position = position_at(state)
    # The first wire sends accounts and identities whatever is asked for; both daemons reject them.
    kinds = ("commit",) if version == 2 else ("commit", "account", "identity")
    wanted = tmp_path / "archive"
    file = wanted / "posts.jsonl"
    plain = config(wanted, f"file:{file}", 2)
    with file.open("wb") as lines:
        lines.writelines(post + b"\n" for post in server.archived(last_key_at(state), *kinds))
    ended = command("run", "--config", plain, "--until-end", folder=wanted)
    assert ended.returncode == 0, ended.stderr
    assert counts_at(state) == counts_at(wanted / "state")
