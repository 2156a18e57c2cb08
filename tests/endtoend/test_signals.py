"""Signals, and outputs that are closed: what a supervisor, a shell or a terminal does to a daemon.

`docs/configuration.md` has the table of signals and exit codes that these tests hold it to.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from signal import SIGCONT, SIGHUP, SIGINT, SIGSTOP, SIGTERM

import pytest

from streamnb.storage import read
from tests.endtoend.daemon_process import STREAMNB, Daemon, environment, write_config
from tests.endtoend.expected_counts import counts_at, counts_of, examples, messages

N = 300


def make_config(folder: Path, **sections: object) -> Path:
    """Write a stream of `N` examples, and the configuration of a daemon that follows it."""
    (folder / "in.jsonl").write_bytes(b"\n".join(messages(examples(N))) + b"\n")
    state = {"folder": "state", "interval_s": 3600}
    defaults = {"source": "file:in.jsonl", "checkpoint": state}
    return write_config(folder / "config.yaml", **{**defaults, **sections})


@pytest.mark.deep
def test_a_terminal_that_hangs_up_is_ignored_after_nohup(tmp_path: Path) -> None:
    """Where SIGHUP is ignored at the start it stays so."""
    with Daemon(make_config(tmp_path), under=("nohup",)) as daemon:
        daemon.until_metric("streamnb_messages_total", N)
        daemon.send(SIGHUP)
        with (tmp_path / "in.jsonl").open("ab") as file:
            file.write(b'{"id":"more","text":"more","label":"positive"}\n')
        daemon.until_metric("streamnb_messages_total", N + 1)
        assert daemon.stop() == 0
        assert daemon.until_line("stopping")["signal"] == "SIGTERM"


def test_a_second_signal_changes_nothing(tmp_path: Path) -> None:
    """The stop goes on, says so, and ends with 0 and everything saved."""
    with Daemon(make_config(tmp_path)) as daemon:
        daemon.until_metric("streamnb_messages_total", N)
        for number in (SIGSTOP, SIGTERM, SIGINT, SIGHUP, SIGCONT):  # all that come are seen
            daemon.send(number)
        assert daemon.wait() == 0
        said = {line["signal"] for line in daemon.lines if "signal" in line}
        assert said == {"SIGTERM", "SIGINT", "SIGHUP"}
        assert daemon.count("still_stopping") == 2
    assert counts_at(tmp_path / "state") == counts_of(examples(N))


@pytest.mark.deep
def test_two_interrupts_half_a_second_apart(tmp_path: Path) -> None:
    """An impatient Ctrl-C: the stop that is under way goes on, says so once, and ends with 0."""
    n = 20_000
    config = make_config(tmp_path, file={"batch_bytes": 1 << 18})
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(messages(examples(n))) + b"\n")
    slowed = (sys.executable, "-m", "tests.endtoend.slowed")  # a batch takes it some seconds
    with Daemon(config, under=slowed, env={"SLOWED_TIMES": "400"}) as daemon:
        daemon.until_metric("streamnb_messages_total", 1)
        daemon.send(SIGINT)
        daemon.until_line("stopping")
        until_s = time.monotonic() + 0.5
        while time.monotonic() < until_s:
            assert daemon.listen(0.01), "it ended before the second one"
        daemon.send(SIGINT)
        assert daemon.wait() == 0
        assert daemon.count("stopping") == daemon.count("still_stopping") == 1
        assert {line["signal"] for line in daemon.lines if "signal" in line} == {"SIGINT"}
        n_read = daemon.summary["messages"]
        assert 0 < n_read < n
    assert counts_at(tmp_path / "state") == counts_of(examples(n_read))


def test_a_signal_after_the_summary_changes_nothing(tmp_path: Path) -> None:
    """While the interpreter ends, all is saved already, and the exit code is as it was."""
    with Daemon(make_config(tmp_path), "--until-end") as daemon:
        while not daemon.output:
            assert daemon.listen(0.01)
        daemon.send(SIGINT)
        daemon.send(SIGTERM)
        while daemon.listen(0.001):
            daemon.send(SIGHUP)  # to its very end
        assert daemon.wait() == 0


def test_a_third_signal_gives_up(tmp_path: Path) -> None:
    """The daemon ends at once with 75; the checkpoint before stays, and is gone on from."""
    config = make_config(tmp_path)
    state = tmp_path / "state"
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0
    before = (state / "model.nb").read_bytes()
    with (tmp_path / "in.jsonl").open("ab") as file:
        file.writelines(line + b"\n" for line in messages(examples(2 * N))[N:])
    with Daemon(config) as daemon:
        daemon.until_metric("streamnb_messages_total", N)
        os.mkfifo(state / ".model.nb.new")  # the checkpoint is written to it, which nobody reads
        daemon.send(SIGTERM)
        daemon.until_line("stopping")
        daemon.send(SIGINT)
        daemon.until_line("still_stopping")
        daemon.send(SIGTERM)
        assert daemon.wait() == 75
        assert "ended without saving" in daemon.lines[-1]["text"]
        assert daemon.output == b""
    assert (state / "model.nb").read_bytes() == before
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0
    assert counts_at(state) == counts_of(examples(2 * N))


@pytest.mark.parametrize("event", ["configuration", "restored"])
def test_a_signal_during_the_start_ends_it(tmp_path: Path, event: str) -> None:
    """Wherever the start is, it ends with 0 and the model is as it was."""
    config = make_config(tmp_path)
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0
    before = counts_at(tmp_path / "state")
    with Daemon(config) as daemon:
        daemon.until_line(event)
        assert daemon.stop() == 0
        assert daemon.summary["exit_reason"] == "told to stop"
    assert counts_at(tmp_path / "state") == before == counts_of(examples(N))


def test_a_signal_during_the_imports_ends_it(tmp_path: Path) -> None:
    """It is noted before anything heavy is imported, and acted on and logged once that can be."""
    command = [*STREAMNB, "run", "--config", str(make_config(tmp_path)), "--json"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(PYTHONPROFILEIMPORTTIME="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        while not process.stderr.readline().endswith(b" typer\n"):
            assert process.poll() is None
        process.send_signal(SIGTERM)
        output, log = process.communicate()
    assert process.returncode == 0
    assert json.loads(output)["exit_reason"] == "told to stop"
    assert b'"event": "stopping"' in log


@pytest.mark.parametrize(
    "source", ["file:in.jsonl", pytest.param("generator", marks=pytest.mark.deep)]
)
def test_a_stop_at_full_rate_loses_nothing(tmp_path: Path, source: str) -> None:
    """All that was learned is in the checkpoint, with the position behind it."""
    n = 200_000
    generator = {"rate_per_s": 0} if source == "generator" else {"rate_per_s": 1}
    config = make_config(tmp_path, source=source, generator=generator)
    if source != "generator":
        lines = messages(examples(n))
        (tmp_path / "in.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    with Daemon(config) as daemon:
        daemon.until_metric("streamnb_messages_total", 1)
        assert daemon.stop() == 0
        summary = daemon.summary
    stored = read(tmp_path / "state" / "model.nb")
    assert stored.model.n_examples == summary["learned"]
    assert stored.model.class_counts.tolist() == summary["class_counts"]
    if source == "generator":
        assert stored.positions == {"generator/0": summary["messages"]}
    else:
        n_bytes = sum(len(line) + 1 for line in lines[: summary["messages"]])
        assert stored.positions == {"file:in.jsonl/0": n_bytes}
        assert counts_at(tmp_path / "state") == counts_of(examples(summary["messages"]))


@pytest.mark.parametrize(
    "closed",
    [
        pytest.param("1>&-", marks=pytest.mark.deep),
        pytest.param("2>&-", marks=pytest.mark.deep),
        "0<&- 1>&- 2>&-",
    ],
)
def test_streams_that_are_closed_at_the_start(tmp_path: Path, closed: str) -> None:
    """It learns, and no file that it opens gets a line of log or summary."""
    config = make_config(tmp_path, predictions={"to": "file:out.jsonl"})
    with (tmp_path / "in.jsonl").open("ab") as file:
        file.write(b'{"id":"to-judge","text":"sun"}\n')
    under = ("sh", "-c", f'exec "$@" {closed}', "sh")
    with Daemon(config, "--until-end", under=under) as daemon:
        assert daemon.wait() == 0
        assert bool(daemon.output) is ("1" not in closed)
        assert bool(daemon.lines) is ("2" not in closed)
    assert counts_at(tmp_path / "state") == counts_of(examples(N))
    lines = (tmp_path / "out.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["to-judge"]
    assert (tmp_path / "state" / "corrections.jsonl").read_bytes() == b""


def test_a_summary_that_nobody_reads(tmp_path: Path) -> None:
    """What was learned is safe, so the exit code is 0, and the log says what was lost."""
    with Daemon(make_config(tmp_path)) as daemon:
        daemon.until_metric("streamnb_messages_total", N)
        daemon.close("stdout")
        assert daemon.stop() == 0
        assert daemon.count("summary_not_read") == 1
        assert not [line for line in daemon.lines if line.get("event") is None]
    assert counts_at(tmp_path / "state") == counts_of(examples(N))


def test_a_log_that_nobody_reads(tmp_path: Path) -> None:
    """It goes on learning, `/readyz` says so, and it ends as if its log were read."""
    config = make_config(tmp_path, checkpoint={"folder": "state", "interval_s": 0.05})
    with Daemon(config) as daemon:
        daemon.until_metric("streamnb_messages_total", N)
        assert daemon.get("/readyz")[0] == 200
        daemon.close("stderr")
        with (tmp_path / "in.jsonl").open("ab") as file:
            file.writelines(line + b"\n" for line in messages(examples(2 * N))[N:])
        daemon.until_metric("streamnb_messages_total", 2 * N)
        daemon.until_page("/readyz", 200, "log lines are lost")
        assert daemon.stop() == 0
        assert daemon.summary["learned"] == 2 * N
    assert counts_at(tmp_path / "state") == counts_of(examples(2 * N))


# It starts a command and waits for it to take Ctrl-C, sends Ctrl-C to the whole group as a terminal
# does, and starts another command.
GROUP = """
import os, signal, subprocess, time
from pathlib import Path
from tests.endtoend.daemon_process import PATIENCE_S, environment
from tests.endtoend.forked import ForkedProcess

def start(*arguments, stdin=subprocess.DEVNULL):
    return ForkedProcess(arguments, stdin=stdin, cwd=Path.cwd(), env=environment())

def ignores(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    ignored = next(line for line in lines if line.startswith("SigIgn:"))
    return int(ignored.split()[1], 16) >> (signal.SIGINT - 1) & 1

signal.signal(signal.SIGINT, lambda *_: None)
told, _ = os.pipe()  # the other end stays open: the command waits for a line
waiting = start("evaluate", "stdin", stdin=told)
until_s = time.monotonic() + PATIENCE_S
while ignores(waiting.pid):
    assert time.monotonic() < until_s
os.killpg(0, signal.SIGINT)
assert waiting.wait(PATIENCE_S) != 0
print(start("version").wait(PATIENCE_S))
"""


def test_ctrl_c_at_a_terminal_ends_what_tests_started(tmp_path: Path) -> None:
    """The commands get it; the process that they are forked from stays, and says how they end."""
    done = subprocess.run(
        [sys.executable, "-c", GROUP],
        capture_output=True,
        cwd=tmp_path,
        env=environment(),
        start_new_session=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [b"0"]
