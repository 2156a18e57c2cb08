"""Ports that test servers get: nobody else's, from the moment they are chosen."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

from tests.broker import broker

RANGE = range(31_000, 31_100)
ANOTHER_RUN = f"""
import itertools
from tests.broker import broker
broker._PORTS = itertools.cycle({list(RANGE)})
print(*broker.free_ports(3))
"""


def test_two_runs_never_choose_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both look at the same ports, and nobody listens on those of the first yet."""
    monkeypatch.setattr(broker, "_PORTS", itertools.cycle(RANGE))
    own = broker.free_ports(3)
    done = subprocess.run(
        [sys.executable, "-c", ANOTHER_RUN], capture_output=True, check=True, text=True
    )
    others = [int(port) for port in done.stdout.split()]
    assert len({*own, *others}) == 6
