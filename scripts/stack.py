"""Run the whole picture on one machine: a Kafka broker, a replayer, the daemon and Prometheus.

`make stack` starts them in one terminal and ends them all at Ctrl-C. The replayer plays the made-up
stream into a topic, the daemon learns from it, and Prometheus scrapes the daemon by what stands in
`deploy/prometheus`, alerts and all. The broker is that of the tests. Grafana is not among them:
Debian has no package of it.

Every process dies with this one, even if that is killed. What they write lies in one folder.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from confluent_kafka import KafkaException

from tests.broker.broker import Broker, free_ports, missing_parts

ROOT = Path(__file__).resolve().parents[1]
START_S, STOP_S = 300.0, 45.0  # the first start compiles kernels; a stop writes a checkpoint
LOOK_S = 0.25  # between two looks at whether all of them live
TOPIC, PARTITIONS = "tweets", 2


class Ended(Exception):  # noqa: N818  # somebody asks for the end, which is no error
    """A signal asks for the end."""


class Program:
    """A program whose output goes to a file of its own; it dies with us.

    Parameters
    ----------
    name : str
        What it is called here, and its log.
    command : sequence of str
        Its command.
    folder : Path
        Where it runs, and its log is.
    """

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        dies_with_us = ROOT / "tests" / "broker" / "die_with_parent.py"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  # commands of our own
                [sys.executable, str(dies_with_us), str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,  # Ctrl-C reaches us alone, and we end them in order
            )

    def has_ended(self, timeout_s: float = 0.0) -> bool:
        """Return whether it has ended, after at most so long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self._process.returncode is not None

    def stop(self) -> int:
        """Ask it to end, by force if that takes long; return its exit code."""
        self._process.terminate()
        if not self.has_ended(STOP_S):
            self._process.kill()
        return self._process.wait()


def main(arguments: Sequence[str]) -> int:
    """Start all of them, wait for Ctrl-C, end them; return 1 if one ended by itself or badly."""
    parser = argparse.ArgumentParser(prog="make stack", description=__doc__.partition("\n")[0])
    parser.add_argument("--http-port", type=int, default=8100, help="of the page; 0: a free one")
    parser.add_argument("--prometheus-port", type=int, default=9090, help="0: a free one")
    parser.add_argument("--rate", type=float, default=2000.0, help="messages a second")
    parser.add_argument("--folder", type=Path, help="what is kept; without it nothing is")
    said = parser.parse_args(arguments)
    _require()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    with contextlib.ExitStack() as stack:
        folder = said.folder
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stack-")))
        folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        http_port, prometheus_port = (
            port or free_ports(1)[0] for port in (said.http_port, said.prometheus_port)
        )
        return _run(folder, http_port, prometheus_port, said.rate)


def _require() -> None:
    """End with one line if something is missing."""
    missing = missing_parts()
    if missing is None and shutil.which("prometheus") is None:
        missing = "no prometheus found (Debian and Ubuntu: apt install prometheus)"
    if missing is not None:
        sys.exit(f"stack: {missing}")


def _end(_number: int, _frame: object) -> NoReturn:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends already, which takes its time
    raise Ended


def _run(folder: Path, http_port: int, prometheus_port: int, rate: float) -> int:
    broker = Broker(folder / "broker", **{"log.retention.bytes": str(1 << 30)})
    programs: list[Program] = []
    failed: list[str] = []
    try:
        broker.start()
        source = f"kafka://{broker.address}/{TOPIC}"
        with contextlib.suppress(KafkaException):  # a folder that is kept has it already
            broker.create_topic(TOPIC, PARTITIONS)
        _start_streamnb(programs, folder, source, http_port, rate)
        _start_prometheus(programs, folder, prometheus_port, f"127.0.0.1:{http_port}")
        _say(f"the page    http://127.0.0.1:{http_port}")
        _say(f"Prometheus  http://127.0.0.1:{prometheus_port}/alerts")
        _say(f"Kafka       {broker.address}, topic {TOPIC}")
        _say(f"logs        {folder}")
        _say("all of them run; Ctrl-C ends them")
        while not failed:
            failed = [each.name for each in programs if each.has_ended(LOOK_S / len(programs))]
            failed += [] if broker.running else ["the broker"]
        _say(f"{', '.join(failed)} ended by itself; the end of its log:")
        for each in programs:
            if each.name in failed:
                _say(each.log.read_text(encoding="utf-8", errors="replace")[-2000:])
    except Ended:
        _say("ending all of them")
    except _StartError as error:
        failed.append(str(error))
        _say(f"{error}")
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        # Who writes goes first, then who reads, so that nobody looks for what has gone already.
        for each in programs:
            code = each.stop()
            _say(f"{each.name} ended with {code}")
            if code != 0 and (each.name, code) != ("replayer", -signal.SIGTERM):
                failed.append(each.name)
        broker.stop()
    return 1 if failed else 0


class _StartError(Exception):
    """One of them did not start."""


def _start_streamnb(
    programs: list[Program], folder: Path, source: str, http_port: int, rate: float
) -> None:
    """Start the replayer and the daemon, and wait until that is ready."""
    config = folder / "config.yaml"
    config.write_text(
        f"source: {source}\n"
        f"generator: {{rate_per_s: {rate}}}\n"
        f"checkpoint: {{folder: {folder / 'state'}}}\n"
        f"http: {{port: {http_port}}}\n"
        "view: log\n",
        encoding="utf-8",
    )
    streamnb = [sys.executable, "-m", "consumers"]
    told = ["--config", str(config)]
    replay = [*streamnb, "replay", "generator", "--to", source, *told]
    programs.append(Program("replayer", replay, folder))
    programs.append(Program("daemon", [*streamnb, "run", *told], folder))
    _until_it_answers(programs[-1], f"http://127.0.0.1:{http_port}/readyz")


def _start_prometheus(programs: list[Program], folder: Path, port: int, target: str) -> None:
    """Start Prometheus with the rules of `deploy`, and the daemon in place of its targets."""
    of_deploy, own = ROOT / "deploy" / "prometheus", folder / "prometheus"
    own.mkdir(exist_ok=True)
    shutil.copytree(of_deploy / "rules", own / "rules", dirs_exist_ok=True)
    shutil.copyfile(of_deploy / "prometheus.yml", own / "prometheus.yml")
    (own / "targets.yml").write_text(f"- targets: ['{target}']\n", encoding="utf-8")
    address = f"127.0.0.1:{port}"
    prometheus = Program(
        "prometheus",
        [
            "prometheus",
            f"--config.file={own / 'prometheus.yml'}",
            f"--storage.tsdb.path={own / 'data'}",
            f"--web.listen-address={address}",
            f"--web.external-url=http://{address}",
            f"--web.user-assets={ROOT / 'docs'}",
        ],
        folder,
    )
    programs.append(prometheus)
    _until_it_answers(prometheus, f"http://{address}/-/ready")


def _until_it_answers(program: Program, address: str) -> None:
    """Wait until an address answers with 200.

    Raises
    ------
    _StartError
        If the program ends first, or patience does.
    """
    deadline_s = time.monotonic() + START_S
    while True:
        # What is refused, or answered by 503 while it begins, is asked again.
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(address, timeout=5.0),  # noqa: S310  # an address of ours
        ):
            return
        if program.has_ended(LOOK_S) or time.monotonic() > deadline_s:
            end = program.log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise _StartError(f"{program.name} does not answer at {address}; its log ends: {end}")


def _say(line: str) -> None:
    sys.stdout.write(f"stack: {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
