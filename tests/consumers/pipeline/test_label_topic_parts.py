"""A group's topic of labels: positions in another one are refused, partitions grow one by one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from consumers.corrections.applier import CorrectionApplier, SharedStream
from consumers.corrections.model import LogReader
from consumers.errors import ConfigError, GroupError, GroupMismatchError
from consumers.messages import Partition
from consumers.monitoring.metrics import Metrics
from consumers.pipeline.group_parts import GroupParts
from consumers.sources.base import LogFacts
from tests.consumers.corrections.test_applier import Lines
from tests.consumers.pipeline import test_part_files as parts
from tests.consumers.pipeline.revised_log import FIELDS


@pytest.mark.parametrize("is_known_first", [True, False])
def test_positions_in_a_label_topic_made_anew_are_refused(
    tmp_path: Path, is_known_first: bool
) -> None:
    """Whether the topic's id is known before a file is loaded or behind it; none is known at all
    where a broker gives topics no ids.
    """
    writer, reader = (
        parts.files_in(tmp_path, writer="a" * 16),
        parts.files_in(tmp_path, writer="b" * 16),
    )
    writer.write(parts.learned("sun").state, parts.LOG, 1)
    writer.know_labels("one")
    assert reader.load(parts.LOG) is not None
    writer.write(parts.learned("sun").state, parts.LOG, 1, labels=3)
    wrong = "the id one, which is another topic now, or was .* created again: the id is two"
    if is_known_first:
        reader.know_labels("two")
        with pytest.raises(GroupMismatchError, match=wrong):
            reader.load(parts.LOG)
    else:
        assert reader.load(parts.LOG) is not None
        with pytest.raises(GroupMismatchError, match=wrong):
            reader.know_labels("two")
    again = parts.files_in(tmp_path, writer="c" * 16)
    assert again.load(parts.LOG) is not None
    # It does not know the topic yet, as while there is none; its files have the position's id.
    again.write(parts.learned("sun").state, parts.LOG, 2, labels=3)
    last = parts.files_in(tmp_path, writer="d" * 16)
    last.know_labels("two")
    with pytest.raises(GroupMismatchError, match=wrong):
        last.load(parts.LOG)


def test_part_files_tell_whether_labels_were_taken(tmp_path: Path) -> None:
    """Of this stream: then their topic had as many partitions."""
    writer = parts.files_in(tmp_path, writer="a" * 16)
    group = GroupParts(parts.files_in(tmp_path, writer="b" * 16), parts.LOG.topic, 1.0)
    assert not group.has_labels()
    writer.write(parts.learned("sun").state, parts.LOG, 1)
    assert not group.has_labels()
    writer.write(parts.learned("sun").state, parts.LOG, 1, labels=3)
    assert group.has_labels()
    assert not GroupParts(group.files, "another", 1.0).has_labels()


class Others:
    """What the part files of a group say."""

    def __init__(self, *said: bool | GroupError) -> None:
        self._said = list(said)

    def takes_class(self, _label: object) -> bool:
        """Let any class join."""
        return True

    def has_labels(self) -> bool:
        """Return what was said next."""
        said = self._said.pop(0)
        if isinstance(said, GroupError):
            raise said
        return said


@pytest.mark.parametrize("known", ["facts", "position", "part files", "nothing"])
def test_a_start_between_two_changes_of_partitions_waits(known: str) -> None:
    """If checkpoint or part files show that both topics had as many; not so the very first one."""
    log = Partition("labels", 0)

    def started(
        positions: dict[Partition, int], logs: Mapping[Partition, LogFacts], others: Others | None
    ) -> tuple[CorrectionApplier, Lines]:
        source = Lines()
        source.beginnings = {log: LogFacts(1)}
        reading = LogReader(source, ("negative", "positive"), lambda _: None, is_shared=True)
        metrics = Metrics(CollectorRegistry(), ("negative", "positive")).corrections
        stream = SharedStream("t", "labels")
        applier = CorrectionApplier(reading, FIELDS, metrics, lambda: 0.0, stream=stream)
        applier.start(positions, logs, group=others)
        applier.close()
        return applier, source

    first, _ = started({parts.LOG: 3}, {log: LogFacts(1)}, None)
    assert first.beginnings() == {log: LogFacts(1)}
    assert first.are_partitions_known(2)
    facts = first.beginnings()
    assert facts is first.beginnings()
    others = Others(GroupError("the folder is away"), known == "part files")
    again, source = started(
        {parts.LOG: 3, log: 1} if known == "position" else {parts.LOG: 3},
        facts if known == "facts" else {log: LogFacts(1)},
        others,
    )
    said = "corrections wait: corrections.to: its topic has 2 partitions, and that of source has 3"
    with capture_logs() as lines:
        if known in {"part files", "nothing"}:
            assert not again.are_partitions_known(3)
            assert "the folder is away" in (again.trouble or "")
        if known == "nothing":
            with pytest.raises(ConfigError, match="has 2 partitions"):
                again.are_partitions_known(3)
            return
        for _ in range(2):
            assert not again.are_partitions_known(3)
            assert (again.trouble or "").startswith(said)
    assert [line["event"] for line in lines] == ["label_partitions_differ"]
    source.n_partitions = 3
    assert again.are_partitions_known(3)
    assert again.trouble is None
