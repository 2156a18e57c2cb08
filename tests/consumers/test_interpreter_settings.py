"""What the daemon changes in the interpreter so that nobody waits long for an answer."""

from __future__ import annotations

import gc
import sys

import pytest

from consumers.process import SWITCH_INTERVAL_S, short_pauses


def test_the_interpreter_is_given_back_as_it_was() -> None:
    """While the daemon runs threads take turns often; once it has ended, all is as before."""
    before_s, frozen = sys.getswitchinterval(), gc.get_freeze_count()
    with short_pauses():
        assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
        assert gc.get_freeze_count() > frozen
    assert sys.getswitchinterval() == before_s
    assert gc.get_freeze_count() == 0
