"""The daemon while kafka-python fails of itself: it goes on, or ends for a new process to go on."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from consumers.kafka.client import REPLACED_MAX
from tests.broker.broker import Broker
from tests.consumers.kafka.topics import fill
from tests.endtoend.daemon_process import Daemon, write_config
from tests.endtoend.expected_counts import counts_at, counts_of, examples, messages

pytestmark = pytest.mark.integration
UNDER = (sys.executable, "-m", "tests.endtoend.failing_client")


def test_a_client_that_fails_time_after_time_ends_the_daemon(
    broker: Broker, tmp_path: Path
) -> None:
    """An error that passes costs nothing. One that stays ends the run, with all that was learned.

    `/readyz` says so before; a new process reads on exactly.
    """
    broker.create_topic("broken-client", 1)
    config = write_config(
        tmp_path / "config.yaml",
        source=f"kafka://{broker.address}/broken-client",
        kafka={"session_timeout_s": 6, "retry_pause_max_s": 0.1},
        checkpoint={"folder": "state", "interval_s": 3600},
    )
    values, switch = messages(examples(1_500)), tmp_path / "broken"
    env = {"CLIENT_FAILS_WHILE": str(switch)}
    with Daemon(config, env=env, under=UNDER) as daemon:
        for begin, end in ((0, 500), (500, 1_000)):
            switch.touch()
            fill(broker.address, "broken-client", values[begin:end])
            daemon.until_page("/readyz", 503, r"ReferenceError('planted') (failing_client.py:")
            switch.unlink()
            daemon.until_metric("streamnb_examples_learned_total", end)
            daemon.until_page("/readyz", 200)
        switch.touch()
        fill(broker.address, "broken-client", values[1_000:])
        daemon.until_page("/readyz", 503, f"after {REPLACED_MAX} the process ends with status 70")
        assert daemon.wait() == 70
        said = " ".join(str(line) for line in daemon.lines)
        assert re.search(r"topic 'broken-client': .*ReferenceError\('planted'\)", said), said
        assert "a new process goes on from the last checkpoint" in re.sub(r"\s+", " ", said)
    assert counts_at(tmp_path / "state") == counts_of(examples(1_000))

    with Daemon(config) as daemon:
        daemon.until_metric("streamnb_examples_learned_total", 500)
        assert daemon.stop() == 0
    assert counts_at(tmp_path / "state") == counts_of(examples(1_500))
