"""The examples in the guides run as they stand."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from tests.conftest import ROOT

GUIDES = sorted(path for path in ROOT.glob("docs/*.md") if ">>> " in path.read_text("utf-8"))


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_a_guide_shows_what_happens(guide: Path) -> None:
    """Every example of a guide prints what the guide says."""
    found = doctest.testfile(
        str(guide),
        module_relative=False,
        optionflags=doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL,
    )
    assert found.attempted > 5
    assert not found.failed


def test_the_guides_with_examples_are_found() -> None:
    """No guide is left out because the way of looking for examples has changed."""
    assert {"models.md", "statistics.md", "accuracy.md"} <= {guide.name for guide in GUIDES}
