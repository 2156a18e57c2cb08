"""Which versions a replica asks for: each other content once, whatever its number."""

from __future__ import annotations

from consumers.features import build_model
from consumers.replica import Replica, feed_of, serving
from tests.consumers.test_replica import Source, handing_out, until, version_of


def test_a_number_that_comes_again_is_another_version() -> None:
    """A daemon that starts again may count from 1: whoever follows its replica hears of it too."""
    of = handing_out()
    runs = [Source(of), Source(of, build_model(of.model))]
    runs[1].learner.learn("a", {"text": ["a good day"] * 9}, ["negative"] * 9)
    runs[1].learner.publish()
    with runs[0].served() as before, runs[1].served() as after:
        middle = Replica(of, feed_of(before, of))
        with serving(middle) as (address, _):
            middle.turn()
            end = Replica(of, feed_of(address, of))
            end.turn()
            middle.feed = feed_of(after, of)
            middle.turn()
            assert version_of(middle) == version_of(end)
            until(end, lambda: end.figures.n_versions == 2)
        found = end.board.current()
        assert found is not None
        assert (found.version, found.n_examples) == (2, 9)
