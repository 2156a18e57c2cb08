"""What is shown of a model that reads more than words."""

from __future__ import annotations

import re

from tests.consumers.terminal.test_view import bare, draw, judged, status


def test_a_model_of_fields_tells_its_features() -> None:
    """Where there is more than words, the screen counts features, and shows what is no text."""
    lines = draw(
        status(
            vocabulary_size=32,
            n_features=41,
            telling={"positive": ("score=high", "amount≈9,000")},
            newest=(judged("score high · age 41"),),
        )
    )
    text = "\n".join(map(bare, lines))
    assert re.search(r"features +41\b", text)
    assert "score=high · amount≈9,000" in text
    assert "score high · age 41" in text
    assert not re.search(r"\bwords\b", text)
