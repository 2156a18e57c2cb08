"""Nobody but their owner may read the files that the daemon writes people's texts into.

And what the daemon may not read or write for a while is told, and not lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from pathlib import Path

import pytest

from tests.endtoend.correction_clients import ask
from tests.endtoend.daemon_process import Daemon, write_config
from tests.endtoend.expected_counts import counts_at, counts_of, examples, message

# Root may open everything, but not without these.
AS_OTHERS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


def mode(path: Path) -> int:
    """Return a file's permissions."""
    return stat.S_IMODE(path.stat().st_mode)


def modes(folder: Path) -> dict[str, str]:
    """Return the permissions of all that stands in a folder, by name."""
    found = {}
    for path in sorted(folder.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # it was replaced meanwhile
            found[str(path.relative_to(folder))] = oct(mode(path))
    return found


def written(tmp_path: Path, **more: object) -> Path:
    """Return a configuration that writes all it can to files, in folders that are to be made."""
    stream = tmp_path / "given" / "in.jsonl"
    stream.parent.mkdir(exist_ok=True)
    lines: list[dict[str, object]] = [
        {"id": f"m{i}", "text": f"so it goes {i}", "label": [0, 4][i % 2]} for i in range(40)
    ]
    lines += [{"id": f"u{i}", "text": f"who knows {i}"} for i in range(10)]
    lines += [{"id": "r", "text": "what", "label": "unheard of"}]
    stream.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return write_config(
        tmp_path / "given" / "config.yaml",
        source=f"file:{stream}",
        predictions={"to": f"file:{tmp_path}/made/out/predictions.jsonl"},
        rejects={"to": f"file:{tmp_path}/made/out/rejects.jsonl"},
        checkpoint={"folder": f"{tmp_path}/made/deep/state", "interval_s": 0.05},
        **more,
    )


def test_the_umask_opens_no_file_to_others(tmp_path: Path) -> None:
    """With umask 000 each file that it makes is of mode 0600, and each folder of mode 0700."""
    made = tmp_path / "made"
    with Daemon(written(tmp_path), umask=0o000) as daemon:
        daemon.until_page("/v1/messages/u9", 200)
        daemon.until_it_takes_corrections()
        assert ask(daemon.address, "DELETE", "/v1/messages/m3")[0] == 202
        label = {"id": "m5", "label": "negative"}
        assert ask(daemon.address, "POST", "/v1/labels", label)[0] == 202
        daemon.until((made / "deep/state/model.nb.1").exists, "two checkpoints")
        found = modes(made)  # with the log that SQLite keeps beside its file while it is open
        assert daemon.stop() == 0
    found |= modes(made)
    files = {"corrections.jsonl", "model.nb", "model.nb.1", "recent.db", "recent.db-wal"}
    wanted = {f"deep/state/{name}" for name in files | {"recent.db-shm"}}
    assert wanted | {"out/predictions.jsonl", "out/rejects.jsonl"} <= found.keys()
    learned = "deep/state/learned"
    folders = {"deep", "deep/state", "out", learned, f"{learned}/file%3Ain.jsonl%2F0"}
    assert {name: found.pop(name) for name in folders} == dict.fromkeys(folders, "0o700")
    assert set(found.values()) == {"0o600"}, found


@pytest.mark.deep
def test_files_of_an_older_version_are_closed_to_others(tmp_path: Path) -> None:
    """What others could read is of mode 0600 after a start, and the log says so once a place."""
    config = written(tmp_path)
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0
    state, out = tmp_path / "made/deep/state", tmp_path / "made/out"
    (state / "recent.db.aside").write_bytes(b"what another version wrote")
    (state / "notes.txt").write_bytes(b"somebody else's")
    for path in filter(Path.is_file, (*state.iterdir(), *out.iterdir())):
        path.chmod(0o644)
    (out / "predictions.jsonl").chmod(0o640)  # another user was let in
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0
    assert modes(state).pop("notes.txt") == "0o644"
    (state / "notes.txt").unlink()
    files = {name: own for name, own in modes(state).items() if (state / name).is_file()}
    assert set(files.values()) == {"0o600"}, files
    assert modes(out) == {"predictions.jsonl": "0o640", "rejects.jsonl": "0o600"}
    told = [line["paths"] for line in daemon.lines if line["event"] == "files_tightened"]
    assert len(told) == 2
    assert {Path(name).name for name in told[0]} >= {"model.nb", "corrections.jsonl", "recent.db"}
    assert [Path(name).name for name in told[1]] == ["rejects.jsonl"]
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0
    assert daemon.count("files_tightened") == 0


@pytest.mark.deep
def test_what_messages_taught_is_not_given_up_where_it_may_not_be_read(tmp_path: Path) -> None:
    """The start is refused, by the file's name; once it may be read, deletes take all back."""
    found = examples(40)
    stream = tmp_path / "in.jsonl"
    stream.write_bytes(b"".join(message(each, i) + b"\n" for i, each in enumerate(found)))
    config = write_config(tmp_path / "config.yaml", source=f"file:{stream}")
    under = AS_OTHERS if os.geteuid() == 0 else ()

    def run() -> tuple[int, Daemon]:
        with Daemon(config, "--until-end", under=under) as daemon:
            return daemon.wait(), daemon

    assert run()[0] == 0
    with stream.open("a") as file:
        file.writelines(f'{{"id":"m{i}","operation":"delete"}}\n' for i in range(0, 40, 4))
    (records,) = (tmp_path / "state" / "learned").rglob("*.records")
    records.chmod(0)
    code, refused = run()
    assert code == 74
    assert f"learned/{records.parent.name}/{records.name}" in str(refused.lines)
    assert "cannot be read (Permission denied). See to its mode and owner" in str(refused.lines)
    records.chmod(0o600)
    assert run()[0] == 0
    assert counts_at(tmp_path / "state") == counts_of(found[i] for i in range(40) if i % 4)
