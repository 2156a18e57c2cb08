"""A category is a text of one word: where both families speak, they say the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamnb import Categorical, Categories, Dirichlet, Multinomial, NaiveBayes, Words
from tests.kernels.likelihood_runs import RELATIVE, deviation

VALUES = ["red", "green", "blue", "grey"]
rows = st.lists(st.tuples(st.sampled_from(VALUES), st.sampled_from(["x", "y"])), max_size=30)


@given(rows, st.sampled_from([0.0, 0.25, 1.0, 3.0]))
def test_a_seen_value_is_a_text_of_one_word(stream: list[tuple[str, str]], alpha: float) -> None:
    """For values that some class has seen, categorical and multinomial have one likelihood."""
    prior = Dirichlet(alpha)
    words = NaiveBayes(["x", "y"], features={"colour": Words(Multinomial(prior))})
    values = NaiveBayes(
        ["x", "y"], features={"colour": Categories(Categorical(prior), fields=["colour"])}
    )
    columns, labels = {"colour": [value for value, _ in stream]}, [label for _, label in stream]
    words.learn_many(columns, labels)
    values.learn_many(columns, labels)
    values_seen: list[str | None] = [*sorted({value for value, _ in stream}), None]
    seen = {"colour": values_seen}
    expected = words.joint_log_likelihood_many(seen).tolist()
    assert deviation(values.joint_log_likelihood_many(seen), expected) < RELATIVE
