"""Kernels are compiled ahead of the stream: those that a run needs, and behind the served page."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from consumers import warm_up as warming
from consumers.config.settings import Settings
from consumers.warm_up import WarmUp, needed
from streamnb.kernels.jit import DISABLED
from tests.consumers.search.stores import Clock
from tests.endtoend.daemon_process import Daemon, environment, write_config

pytestmark = pytest.mark.compiled

# Runs each configuration to its end, and tells which kernels were compiled though they were not
# foreseen. Every run has a process of its own, forked before any kernel is loaded, so that all is
# imported once.
RUN = """
import json, os, sys
from pathlib import Path
from consumers import daemon
from consumers.config.settings import load
from consumers.terminal import make_view
from consumers.warm_up import needed
from rich.console import Console
from streamnb.kernels.jit import EntryPoint
compile_it = EntryPoint.compile
def run(path):
    settings = load(Path(path), {}, {})
    foreseen = {each.name for each in needed(settings)}
    unforeseen = []
    def noted(self):
        if self.name not in foreseen:
            unforeseen.append(self.name)
        compile_it(self)
    EntryPoint.compile = noted
    view = make_view("log", Console(stderr=True), lambda: 0.0)
    summary = daemon.run(settings, view, until_end=True)
    print(json.dumps([summary.messages, unforeseen]), flush=True)
for path in sys.argv[1:]:
    child = os.fork()
    if not child:
        run(path)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{path} failed")
"""
FEATURES: list[dict[str, Any]] = [
    {"text": {"likelihood": "bernoulli"}},
    {"text": {"likelihood": "complement"}},
    {"text": {"hybrid": True}},
    {"text": {"entities": True}},
    {
        "text": {"likelihood": "multinomial"},
        "where": {"kind": "categories", "fields": ["lang", "user"]},
        "said": {"kind": "flags", "fields": ["is_new"]},
        "size": {"kind": "numbers", "fields": ["amount"]},
    },
    {"size": {"kind": "categories", "fields": ["amount"], "bins": [10, 100]}},
]


def line(i: int) -> str:
    """Return message `i`: most are learned, some judged, and one takes another back."""
    if i == 7:
        return json.dumps({"id": 1, "operation": "delete"})
    fields = {"lang": "en", "user": f"u{i}", "is_new": i % 2 == 0, "amount": i / 4}
    label = {} if i % 5 == 4 else {"label": ("positive", "negative")[i % 2]}
    return json.dumps({"id": i, "text": f"word{i} of many", **fields, **label})


@pytest.mark.deep
def test_no_kernel_is_compiled_amid_the_stream(tmp_path: Path) -> None:
    """Learning, judging, publishing and a checkpoint take no kernel that was not foreseen."""
    stream = tmp_path / "in.jsonl"
    stream.write_text("".join(f"{line(i)}\n" for i in range(20)))
    configs = [
        write_config(
            tmp_path / f"config-{i}.yaml",
            source=f"file:{stream}",
            model={"features": features},
            checkpoint={"folder": str(tmp_path / f"state-{i}")},
        )
        for i, features in enumerate(FEATURES)
    ]
    for n in (20, 1):  # the second time from the checkpoint
        done = subprocess.run(
            [sys.executable, "-c", RUN, *configs],
            env=environment(), cwd=tmp_path, capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        printed = done.stdout.splitlines()  # with the log
        outcomes = [json.loads(each) for each in printed if each.startswith(b"[")]
        assert outcomes == [[n, []]] * len(FEATURES)
        with stream.open("a") as file:
            file.write(f"{line(20)}\n")


def test_only_the_kernels_of_the_model_are_compiled() -> None:
    """A model of words takes no kernel of numbers, and no source but Kafka one of Kafka's."""
    names = {each.name.split(".")[-2] for each in needed(Settings())}
    assert {"word_table", "posterior", "json_scan"} <= names
    assert not names & {"gaussian", "flags", "categorical", "record_batch"}
    numbers = {"size": {"kind": "numbers", "fields": ["amount"]}}
    other = Settings.model_validate(
        {"model": {"features": numbers}, "source": "kafka://127.0.0.1:1/t"}
    )
    names = {each.name.split(".")[-2] for each in needed(other)}
    assert {"gaussian", "record_batch"} <= names
    bins = {"size": {"kind": "categories", "fields": ["amount"], "bins": [10]}}
    binned = Settings.model_validate({"model": {"features": bins}})
    assert "json_numbers" in {each.name.split(".")[-2] for each in needed(binned)}
    assert "word_table" not in names
    for words, kernel in (({"likelihood": "bernoulli"}, "encode"), ({"gap": 2}, "encode_extras")):
        text = {"text": {"kind": "words", **words}}
        settings = Settings.model_validate({"model": {"features": text}})
        names = {each.name.removeprefix("streamnb.kernels.") for each in needed(settings)}
        assert {"word_table.encode", "word_table.encode_extras"} & names == {f"word_table.{kernel}"}
    watched = Settings.model_validate({"drift": {"enabled": True}})
    assert {each.name for each in needed(watched)} - {each.name for each in needed(Settings())} == {
        "streamnb.kernels.drift.bet"
    }


@pytest.mark.skipif(DISABLED, reason="nothing is compiled")
@pytest.mark.parametrize(
    "said",
    [{"corrections": {"to": "kafka:labels"}}, {"late_labels": {"source": "kafka:labels"}}, {}],
)
def test_a_topic_of_labels_takes_kernels_of_kafka(said: dict[str, Any]) -> None:
    """Its records are read in columns, also where librdkafka reads the source."""
    own = {"source": "kafka://127.0.0.1:1/t", "kafka": {"client": "librdkafka"}, **said}
    names = {each.name.split(".")[-2] for each in needed(Settings.model_validate(own))}
    assert ("record_batch" in names) is bool(said)


@pytest.mark.slow
def test_the_page_is_there_while_kernels_are_compiled(tmp_path: Path) -> None:
    """With an empty cache the page answers, readiness says how far it is, and Ctrl-C ends it."""
    config = write_config(tmp_path / "config.yaml", checkpoint={"folder": str(tmp_path / "state")})
    cold = {"STREAMNB_CACHE_DIR": str(tmp_path / "cache")}
    with Daemon(config, env=cold) as daemon:
        assert daemon.get("/")[0] == 200
        said = daemon.until_page("/readyz", 503, "compiling kernels: ")
        assert " s left" in said["reason"]
        assert daemon.until_page("/healthz", 200)["state"] == "starting"
        assert daemon.get("/v1/page")[0] == 200
        with urllib.request.urlopen(f"{daemon.address}/v1/events", timeout=60) as events:
            assert any(b'"note":"compiling kernels: ' in line for line in events)
        assert daemon.stop(signal.SIGINT) == 0
        assert daemon.summary["exit_reason"] == "told to stop"
        assert daemon.summary["learned"] == 0
    assert not list((tmp_path / "state").glob("*.nb*"))  # nothing was learned, nothing is written


class FakeKernel:
    """A kernel that is compiled in no time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sources = Path(warming.__file__).parent
        self.dispatcher = SimpleNamespace(py_func=FakeKernel.compile)
        self.is_compiled = self.is_kept = False

    def compile(self) -> None:
        """Compile it."""
        self.is_compiled = True


def test_without_processes_kernels_are_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no process can be started, the same kernels are compiled all the same."""

    def refused(*_arguments: object, **_more: object) -> None:
        raise OSError

    monkeypatch.setattr(subprocess, "Popen", refused)
    kernels: list[Any] = [FakeKernel("a.b"), FakeKernel("a.c")]
    warm_up = WarmUp(kernels, Clock(0.0))
    assert warm_up.note == "compiling kernels: 1 of 2, about 1 s left; later starts need not"
    warm_up.start()
    assert warm_up.wait(60.0)
    assert all(each.is_compiled for each in kernels)
    assert warm_up.note is None


def test_what_compiling_raises_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that cannot be compiled ends the wait for it with its error."""

    class Broken(FakeKernel):
        def compile(self) -> None:
            raise ValueError(self.name)

    monkeypatch.setattr(warming, "PROCESSES_MAX", 0)
    broken: Any = Broken("a.b")
    warm_up = WarmUp([broken])
    warm_up.start()
    with pytest.raises(ValueError, match=r"a\.b"):
        warm_up.wait(60.0)
    warm_up.cancel()


def test_what_is_on_disk_is_waited_for_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is loaded behind the first messages, all of it, and a broken one keeps none from it."""
    loaded = threading.Event()

    class Kept(FakeKernel):
        def compile(self) -> None:
            if self.name == "a.broken":
                raise ValueError(self.name)
            super().compile()
            if self.name == "a.last":
                loaded.set()

    kernels: list[Any] = [Kept(name) for name in ("a.first", "a.broken", "a.last")]
    for each in kernels:
        each.is_kept = True
    with capture_logs() as lines:
        for pause_s in (3600.0, 0.0):
            monkeypatch.setattr(warming, "LOAD_AFTER_S", pause_s)
            warm_up = WarmUp(kernels)
            assert warm_up.note is None
            warm_up.start()
            assert warm_up.wait(60.0)
            if pause_s:
                warm_up.cancel()  # which the hour does not keep waiting
                assert not any(each.is_compiled for each in kernels)
        assert loaded.wait(60.0)
        warm_up.cancel()
    assert [each.is_compiled for each in kernels] == [True, False, True]
    (said,) = lines
    assert (said["event"], said["kernel"]) == ("kernel_not_loaded", "a.broken")


COMPILE_HERE = """
import sys
from consumers.warm_up import WarmUp

class Kernel:
    name, is_compiled, is_kept, sources = "a.b", False, False, ()
    dispatcher = type("Dispatcher", (), {"py_func": staticmethod(lambda: None)})
    def compile(self):
        import numba.np.arraymath
        assert "scipy.linalg" not in sys.modules  # numba did not look for a BLAS there
        import scipy.linalg  # as others may

warm_up = WarmUp([Kernel()])
warm_up._processes_help = lambda: False
warm_up.start()
assert warm_up.wait(60.0)
warm_up.cancel()
print("compiled")
"""


def test_what_is_compiled_here_hides_no_module_from_others() -> None:
    """Numba looks for a BLAS with its first kernel, and others may import SciPy meanwhile."""
    done = subprocess.run(
        [sys.executable, "-c", COMPILE_HERE], capture_output=True, check=False, text=True
    )
    assert done.stdout == "compiled\n", done.stderr


def test_another_numba_compiles_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may look for a BLAS otherwise: to keep it from that saves time alone."""
    monkeypatch.delattr("numba.np.linalg.ensure_blas")
    kernel: Any = FakeKernel("a.b")
    warm_up = WarmUp([kernel])
    monkeypatch.setattr(warm_up, "_processes_help", lambda: False)
    warm_up.start()
    assert warm_up.wait(60.0)
    warm_up.cancel()
    assert kernel.is_compiled
