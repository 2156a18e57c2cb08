"""Our decoder in the client's place: only where it is safe, and the log says where it is not."""

from __future__ import annotations

from typing import Any

import kafka
import pytest
from kafka.consumer.fetcher import Fetcher
from structlog.testing import capture_logs

from consumers.config import KafkaSettings
from consumers.kernels import record_batch as rb
from consumers.sources.kafka import seam, self_check
from consumers.sources.kafka.connection import Connection
from consumers.sources.kafka.response import ColumnRecords
from streamnb.kernels import warm_up

STOCK = Fetcher.PartitionRecords


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """Compile the kernels, as a connection does."""
    warm_up()


class Consumer:
    """What the seam touches of a consumer."""

    class _Fetcher:
        PartitionRecords = STOCK

    def __init__(self) -> None:
        self._fetcher = self._Fetcher()

    @property
    def decoder(self) -> Any:
        """Return the class that would read its responses."""
        return self._fetcher.PartitionRecords


def test_the_installed_client_fits() -> None:
    """The version of the client that is installed is given our class."""
    consumer = Consumer()
    assert seam.replace_decoder(consumer) is None
    assert consumer.decoder is ColumnRecords


@pytest.mark.parametrize("version", ["3.0.11", "3.1.0", "3.1.0.dev0", "4.0", "unknown"])
def test_another_version_is_left_alone(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that columns were not made for keeps its own class, and the reason says so."""
    monkeypatch.setattr(kafka, "__version__", version)
    consumer = Consumer()
    assert f"kafka-python is {version}" in (seam.replace_decoder(consumer) or "")
    assert consumer.decoder is STOCK


def test_a_client_that_reads_otherwise_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the samples do not come out the same, or not at all, the client keeps its class."""
    consumer = Consumer()
    with monkeypatch.context() as patched:
        patched.setattr(rb, "LAST_OFFSET", rb.FIRST_OFFSET)
        assert "does not come out the same" in (seam.replace_decoder(consumer) or "")
    monkeypatch.setattr(Fetcher.PartitionRecords, "take", None)
    assert "could not be read" in (self_check.difference(ColumnRecords) or "")
    assert consumer.decoder is STOCK


def test_falling_back_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line of the log says that messages are read one by one, and why."""
    monkeypatch.setattr(kafka, "__version__", "3.1.0")
    connection = Connection(["127.0.0.1:1"], "topic", KafkaSettings(), lambda: 0.0)
    with capture_logs() as said:
        assert connection._choose_decoder(Consumer()) == "records"
    (line,) = said
    assert (line["event"], line["log_level"]) == ("kafka_decoded_slowly", "warning")
    assert "kafka-python is 3.1.0" in line["why"]


def test_records_can_be_asked_for() -> None:
    """With `kafka.decode: records` the client keeps its class, and nothing is said."""
    settings = KafkaSettings(decode="records")
    connection = Connection(["127.0.0.1:1"], "topic", settings, lambda: 0.0)
    consumer = Consumer()
    with capture_logs() as said:
        assert connection._choose_decoder(consumer) == "records"
    assert (said, consumer.decoder) == ([], STOCK)
