"""A real broker for the tests that talk to Kafka, and short ways to fill and read its topics."""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker.broker import Broker, missing_parts
from tests.broker.secure import SecureBroker

_NUMBERS = itertools.count(1)
# No test kills these: one that stands still for a while must not be shut out by its own controller.
_PATIENT = {"broker_session_timeout_ms": "30000"}


def require_parts() -> None:
    """Skip where Java or the jars are missing; in CI fail instead, in one line."""
    missing = missing_parts()
    if missing is None:
        return
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(missing, pytrace=False)
    pytest.skip(missing)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Return the broker that tests share; they leave it running, and use a topic of their own."""
    require_parts()
    folder = tmp_path_factory.mktemp("broker")
    shared = Broker(folder, message_max_bytes=str(16 << 20), **_PATIENT)
    shared.start()
    yield shared
    shared.stop()


@pytest.fixture(scope="session")
def secure_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """Return the shared broker with TLS, logins and clients' certificates."""
    require_parts()
    secure = SecureBroker(tmp_path_factory.mktemp("secure") / "broker", **_PATIENT)
    secure.start()
    yield secure
    secure.stop()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """Return a broker of the test's own, not started, to be killed at will."""
    require_parts()
    own = Broker(tmp_path / "broker")
    yield own
    own.kill()
    gc.collect()  # sockets that the client forgot: see the mark in the tests that use this


@pytest.fixture
def new_topic(broker: Broker) -> Callable[..., str]:
    """Return a function that makes a topic with a name nobody else has."""

    def make(partitions: int = 1, **config: str) -> str:
        name = f"topic-{next(_NUMBERS)}"
        broker.create_topic(name, partitions, **config)
        return name

    return make
