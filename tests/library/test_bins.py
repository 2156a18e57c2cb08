"""Numbers in bins: categories by hand are what they count, for any cut, file, part and merge."""

from __future__ import annotations

import bisect
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import streamnb as nb
from streamnb.errors import InputError
from streamnb.inspection.summary import field_kinds
from streamnb.testing import check_model

NUMBERS = st.one_of(st.none(), st.floats(-1e60, 1e60), st.integers(-50, 50))
EDGES = [-2.0, 0.0, 3.5]


def twin(bins: Any, number: float | None) -> str | None:
    """Return the bin of a number, by the definition."""
    if number is None:
        return None
    if isinstance(bins, float):
        return str(math.floor(math.asinh(number) / bins))
    return str(bisect.bisect_right(bins, number))


def models(bins: Any) -> tuple[nb.NaiveBayes, nb.NaiveBayes]:
    """Return a model with bins, and one of categories that are told to it."""
    values = None if isinstance(bins, float) else {"x": [str(k) for k in range(len(bins) + 1)]}
    return tuple(  # type: ignore[return-value]  # two
        nb.NaiveBayes(["a", "b"], features={"g": nb.Categories(fields=["x"], **given)})
        for given in ({"bins": bins}, {"values": values})
    )


@pytest.mark.parametrize("bins", [0.25, 2.0, EDGES])
@given(examples=st.lists(st.tuples(NUMBERS, st.sampled_from("ab")), min_size=1, max_size=30))
def test_bins_are_categories(bins: Any, examples: list[tuple[Any, str]]) -> None:
    """In one call, one by one, and after a detour, all answers are the twin's to the last bit."""
    numbers, labels = map(list, zip(*examples, strict=True))
    told = [twin(bins, each) for each in numbers]
    own, plain = models(bins)
    found = own.prequential_many({"x": numbers}, labels)
    # At an edge that no float is, rounding may put a neighbour of it on the other side.
    if isinstance(bins, float):
        steps = [math.asinh(each) / bins for each in numbers if each]
        assume(not any(math.isclose(at, round(at), rel_tol=1e-9) for at in steps))
    assert np.array_equal(found, plain.prequential_many({"x": told}, labels))
    single, _ = models(bins)
    for number, label in examples:
        single.learn_one({"x": number}, label)
    assert single.digest() == own.digest()
    asked = own.predict_log_proba_one({"x": numbers[0]})
    assert asked == plain.predict_log_proba_one({"x": told[0]})
    own.unlearn_many({"x": numbers}, labels)
    assert own.n_examples == 0


def test_a_file_keeps_bins_and_their_names(tmp_path: Path) -> None:
    """The number's bin is told in an explanation; models of other bins do not add up."""
    own, _ = models(EDGES)
    own.learn_many({"x": [1.0, -7.5, None, 3.5]}, ["a", "b", "a", "b"])
    nb.save(own, tmp_path / "model.nb")
    again = nb.load(tmp_path / "model.nb")
    assert again.digest() == own.digest()
    assert again.predict_proba_one({"x": 0}) == own.predict_proba_one({"x": 3.4999})
    said = {each.value for each in own.explain_one({"x": -3}).contributions}
    assert any("below -2" in value for value in said)
    assert field_kinds(own.state) == {"x": "numbers"}
    with pytest.raises(InputError, match=r"features\.g\.bins"):
        _ = own + models([0.0])[0]
    assert (own + again).n_examples == 8


def test_edges_that_hardly_differ_have_names_of_their_own(tmp_path: Path) -> None:
    """Bins between neighbouring floats are kept apart, and so is a file of them."""
    edges = [0.3, math.nextafter(0.3, 1.0), math.nextafter(0.3, 2.0) + 1e-16]
    own, plain = models(edges)
    own.learn_many({"x": [0.1, *edges]}, ["a", "b", "a", "b"])
    plain.learn_many({"x": list("0123")}, ["a", "b", "a", "b"])
    nb.save(own, tmp_path / "model.nb")
    again = nb.load(tmp_path / "model.nb")
    for k, edge in enumerate(edges):
        assert again.predict_proba_one({"x": edge}) == plain.predict_proba_one({"x": str(k + 1)})


def test_a_step_may_be_a_number_of_numpy() -> None:
    """A step that was computed is the same step."""
    (made,) = {nb.Categories(fields=["x"], bins=each) for each in (2, np.int64(2), np.float32(2))}
    assert made.bins == 2.0


def test_the_export_says_how_to_find_a_bin() -> None:
    """Edges or step, and names by the rule of docs/format.md, lead to the row of a number."""
    own, _ = models(0.5)
    own.learn_many({"x": [0.1, -40.0, 7.0]}, ["a", "b", "b"])
    (said,) = nb.export_dict(own)["groups"]
    assert said["specification"]["bins"] == 0.5
    k = math.floor(math.asinh(7.0) / 0.5)
    name = f"{math.sinh(k * 0.5):.6g} to {math.sinh((k + 1) * 0.5):.6g}"
    assert name in said["table"]["value"]


def test_the_laws_hold() -> None:
    """A user's own model with bins is checked as any other."""
    groups = {
        "steps": nb.Categories(fields=["x"], bins=0.5),
        "edges": nb.Categories(fields=["y"], bins=EDGES),
    }
    check_model(lambda: nb.NaiveBayes(["a", "b"], features=dict(groups)))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"bins": 0.001}, "between 0.01 and 10.*0.001"),
        ({"bins": []}, "numbers that rise"),
        ({"bins": [1, 1]}, "numbers that rise"),
        ({"bins": [1, None]}, "numbers that rise"),
        ({"bins": "x"}, "a step, or edges"),
        ({"bins": True}, "a step, or edges.*True"),
        ({"bins": np.array(2.0)}, "a step, or edges"),
        ({"bins": 1.0, "fields": None}, "needs fields"),
        ({"bins": 1.0, "values": {"x": ["a"]}}, "exclude each other"),
    ],
)
def test_other_bins_are_refused(given: dict[str, Any], told: str) -> None:
    """Each refusal says what bins may be."""
    with pytest.raises(InputError, match=told):
        nb.Categories(**({"fields": ["x"]} | given))


def test_what_is_no_number_is_refused() -> None:
    """The field, the row and the value are named, and nothing is learned."""
    own, _ = models(1.0)
    with pytest.raises(InputError, match=r"'x', row 1.*a number.*'many'"):
        own.learn_many({"x": [1.0, "many"]}, ["a", "b"])
    assert own.n_examples == 0
