"""What all tests share: how hard Hypothesis looks, where recorded data is, what a skip means.

Profiles of Hypothesis, chosen by ``--hypothesis-profile NAME``:

- ``ci``, the default: the same examples at every run, and few of them;
- ``fresh``: new examples at every run, and a few more; a failure prints what replays it;
- ``deep``: ten thousand new examples for each law, for a night's search; no test has a timeout.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from streamnb import vocabulary
from streamnb.kernels.jit import check_types

pytest_plugins = ["tests.kafka_fixtures", "consumers.testing"]

# In the tests' own process; the daemons they start run as in earnest. Tables begin small there, so
# that few words make them grow.
check_types()
vocabulary._FIRST_CAPACITY = 1 << 10

# A program inherits what is ignored, but no handler: under `nohup` the daemons of the tests would
# ignore SIGHUP too, as they promise.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

ROOT = Path(__file__).resolve().parents[1]

IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}

# No deadlines: the first call of a kernel compiles it, and a busy machine proves nothing.
settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "fresh",
    derandomize=False,  # said for CI, where Hypothesis itself would choose True
    database=None,
    max_examples=60,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "deep",
    derandomize=False,
    max_examples=10_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Give logging back as the test found it: a daemon in this process sends it elsewhere."""
    names = ("", "kafka", "uvicorn", "uvicorn.error", "numba", "confluent_kafka")
    loggers = [logging.getLogger(name) for name in names]
    before = [(each, each.handlers[:], each.filters[:], each.level) for each in loggers]
    yield
    # A server's thread that outlives its test keeps nothing back in the next one.
    for logger, handlers, filters, level in before:
        logger.handlers[:] = handlers
        logger.filters[:] = filters
        logger.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Return the folder of recorded tweets and streams, which may not be handed on with us.

    It is looked for in ``STREAMNB_DATA``, else beside the project. Where it is absent the test
    skips; in CI that is a failure.
    """
    folder = Path(os.environ.get("STREAMNB_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no recorded data at {folder}; name its folder by STREAMNB_DATA")
    return folder


def pytest_collection_finish() -> None:
    """Leave the modules and eight thousand tests out of what the collector looks through.

    They stay to the end. Rules on source, which make millions of objects, took a third longer.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take away every timeout where the deep profile looks for hours; put slow tests first."""
    if config.getoption("--hypothesis-profile", None) == "deep":
        for item in items:
            item.add_marker(pytest.mark.timeout(0), append=False)
    n_workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if n_workers > 1:
        items[:] = _slow_first(items, n_workers)


def _slow_first(items: list[pytest.Item], n_workers: int) -> list[pytest.Item]:
    """Return the tests so that each worker begins with as many of the slow ones.

    Workers begin with a piece of the list each, and take over from the end of another's piece: a
    long test that stood there would be the last that all wait for.
    """
    slow = [item for item in items if item.get_closest_marker("slow")]
    others = [item for item in items if not item.get_closest_marker("slow")]
    found: list[pytest.Item] = []
    for i in range(n_workers):
        own = slow[i::n_workers]
        n = max(0, (len(items) - len(found)) // (n_workers - i) - len(own))
        found += own + others[:n]
        del others[:n]
    return found


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure: in CI every part is there, so a skip hides that one is not."""
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} would be skipped, and in CI nothing is: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Look at each test's report."""
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Look at each file's report: a whole file can skip itself while it is collected."""
    report = yield
    _refuse_skip(report)
    return report
