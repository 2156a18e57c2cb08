"""Part files have positions in a topic of labels: those of another topic are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumers.errors import GroupMismatchError
from tests.consumers.pipeline import test_part_files as parts


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
