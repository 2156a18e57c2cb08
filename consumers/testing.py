"""Fixtures of pytest for tests of your own: a recorded stream, a manual clock, faults on schedule.

They are there wherever streamnb is installed beside pytest. Nothing of streamnb is imported before
a test asks for one. `docs/recording.md` has an example to copy.
"""

# ruff: noqa: PLC0415 -- pytest loads this file in every project; see above

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from consumers.monitoring.status import Summary
    from consumers.sources.base import Source
    from streamnb.testing import FaultSchedule, ManualClock


class RecordedMessage(NamedTuple):
    """A message of a recording; `time_ms` is -1 if its source knew none."""

    topic: str
    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def json(self) -> Any:
        """Return the value, read as JSON; None without one."""
        import msgspec

        return None if self.value is None else msgspec.json.decode(self.value)


@dataclass(frozen=True, slots=True)
class RecordedStream:
    """What `streamnb record` wrote, for tests."""

    path: Path

    def source(self) -> Source:
        """Return it as a source of the daemon, unopened; it never waits."""
        from consumers.config.addresses import FileSettings
        from consumers.sources.recording import RecordingSource

        return RecordingSource(
            self.path, FileSettings(), with_headers=True, wait=lambda _seconds: None
        )

    def messages(self) -> Iterator[RecordedMessage]:
        """Yield its messages, each partition's in order."""
        source = self.source()
        source.open(lambda _partition: None)
        try:
            while not source.at_end():
                for raw in source.poll(0.0):
                    headers = raw.headers or [()] * len(raw)
                    for i, own in enumerate(headers):
                        offset, time_ms = int(raw.offsets[i]), int(raw.times_ms[i])
                        place = (*raw.partition, offset, time_ms)
                        yield RecordedMessage(*place, raw.key(i), raw.value(i), tuple(own))
        finally:
            source.close()

    def learn(self, folder: Path, **settings: Any) -> Summary:
        """Let a daemon read all of it, without a page; its model is in `folder`.

        `settings` are those of `config.yaml`, by section.
        """
        import io

        from rich.console import Console

        from consumers import daemon
        from consumers.config.settings import Settings
        from consumers.terminal import make_view

        own = {
            "source": f"recording:{self.path}",
            "checkpoint": {"folder": folder},
            "http": {"enabled": False},
        }
        view = make_view("log", Console(file=io.StringIO()), lambda: 0.0)
        return daemon.run(Settings.model_validate({**own, **settings}), view, until_end=True)


@pytest.fixture
def recorded_stream() -> Callable[[Path | str], RecordedStream]:
    """Return a function that opens a recording by its path."""
    from consumers.process import missing_packages

    if missing := missing_packages():
        raise ImportError(
            f"recorded_stream needs packages that are not installed ({', '.join(missing)}); install"
            " them: pip install 'streamnb[daemon]'"
        )
    return lambda path: RecordedStream(Path(path))


@pytest.fixture
def manual_clock() -> ManualClock:
    """Return a clock at 0 that moves only when it is told to."""
    from streamnb.testing import ManualClock

    return ManualClock()


@pytest.fixture
def fault_schedule() -> Callable[[dict[int, Exception]], FaultSchedule]:
    """Return a function that makes a schedule: which calls fail, and with what."""
    from streamnb.testing import FaultSchedule

    return FaultSchedule
