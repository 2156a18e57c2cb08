"""Kernels are tested as they run in earnest: compiled for their declared types, and no others."""

from __future__ import annotations

import pytest

from streamnb.kernels import warm_up


@pytest.fixture(scope="session", autouse=True)
def warm() -> None:
    """Compile every kernel before the first call, as each model does."""
    warm_up()
