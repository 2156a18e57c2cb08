"""What tests of the learned memory share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from consumers.pipeline import learned_memory


@pytest.fixture(scope="module")
def short_segments() -> Iterator[None]:
    """Seal a segment every few records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learned_memory, "SEGMENT_RECORDS", 4)
        yield
