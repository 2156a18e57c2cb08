"""The guide to models runs as it stands."""

from __future__ import annotations

import doctest

from tests.conftest import ROOT


def test_the_guide_to_models_runs() -> None:
    """Every example of docs/models.md gives what it says."""
    found = doctest.testfile(
        str(ROOT / "docs" / "models.md"),
        module_relative=False,
        optionflags=doctest.IGNORE_EXCEPTION_DETAIL,
    )
    assert found.attempted > 15
    assert not found.failed
