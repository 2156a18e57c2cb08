"""Values of categories become columns: by all of their bytes, and by field."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb.columns import Strings
from streamnb.features.category_values import ValueColumns, ValueTable
from streamnb.kernels.categorical import KEPT_BYTES, MISSING, UNSEEN
from tests import naive

KEY = 0xA5A5_0123_4567_89AB_CDEF_5A5A_7654_3210
Cell = str | None


def fingerprint(field: str, value: str) -> int:
    """Return a value's fingerprint, spelled out."""
    of_field = naive.mix(naive.siphash(field.encode(), KEY))
    whole = of_field * 0x9E3779B97F4A7C15 + naive.siphash(value.encode(), KEY)
    return naive.mix(whole & naive.MASK)


def shown(value: str) -> str:
    """Return the text that is kept of a value."""
    encoded = value.encode()
    if len(encoded) <= KEPT_BYTES:
        return value
    head = encoded[:KEPT_BYTES].decode("utf-8", "ignore")
    return f"{head}…{naive.plain_hash(encoded):016x}"


def table_of(*names: str) -> ValueTable:
    """Return a table of open fields."""
    return ValueTable(names, [], KEY)


def encode(table: ValueTable, columns: dict[str, list[Cell]], *, labels: list[int]) -> np.ndarray:
    """Look up, and enter the rows with a label."""
    read = {name: Strings(list(values), has_missing=True) for name, values in columns.items()}
    source = ValueColumns(read, len(labels))
    given_ = np.array(labels, dtype=np.int32)
    return table.encode(source, 0, len(labels), given_, learn=max(labels, default=-1) >= 0)


values = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=30),
    st.text(st.characters(codec="utf-8"), min_size=190, max_size=260),
    st.sampled_from(["", "a", "é" * 101, "x" * 200, "x" * 201, "x" * 199 + "é"]),
)


@given(st.lists(values, max_size=12), st.sampled_from(["p", "field", "ü", "a longer name"]))
def test_fingerprint_and_text_are_the_twins(texts: list[str], field: str) -> None:
    """A value is known by SipHash of all its bytes, and a bounded text of it is kept."""
    table = table_of(field)
    found = table.fingerprints(field, texts)
    assert found.tolist() == [fingerprint(field, text) for text in texts]
    columns = encode(table, {field: list(texts)}, labels=[0] * len(texts))[:, 0]
    kept = table.values(columns.astype(np.int64))
    assert kept == [(field, shown(text)) for text in texts]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, *"abc"]), st.sampled_from([None, *"abc"]), st.integers(-1, 1)
        ),
        max_size=30,
    )
)
def test_columns_are_the_twins(rows: list[tuple[Cell, Cell, int]]) -> None:
    """Each field and value has one column; those of rows without a label get none."""
    table = table_of("p", "q")
    columns = {"p": [a for a, _, _ in rows], "q": [b for _, b, _ in rows]}
    found = encode(table, columns, labels=[y for _, _, y in rows])
    seen: dict[tuple[str, str], int] = {}
    for j, name in enumerate(("p", "q")):
        for i, (_, _, y) in enumerate(rows):
            value = columns[name][i]
            if value is None:
                assert found[i, j] == MISSING
            elif (name, value) in seen:
                assert found[i, j] == seen[name, value]
            elif y < 0:
                assert found[i, j] == UNSEEN
            else:
                seen[name, value] = int(found[i, j])
    assert sorted(seen.values()) == list(range(table.vocabulary.n_words))
    assert all(table.fields.names[table.field_of[c]] == name for (name, _), c in seen.items())


def test_a_table_grows_and_finds_all_it_had() -> None:
    """Many values make the table grow on the way, and each keeps its column."""
    table = table_of("p")
    texts = [f"value number {i}" for i in range(5000)]
    columns = encode(table, {"p": list(texts)}, labels=[0] * 5000)[:, 0]
    assert columns.tolist() == list(range(5000))
    assert table.find("p", texts).tolist() == columns.tolist()
    assert table.find("p", ["none such"]).tolist() == [-1]


def test_declared_values_come_first_and_alone() -> None:
    """Declared values have the first columns in their order; others are as if missing."""
    table = ValueTable(["p", "q"], [("q", ["z", "a"])], KEY)
    found = encode(table, {"p": ["z", "z"], "q": ["a", "other"]}, labels=[0, 0])
    assert found.tolist() == [[2, 1], [2, MISSING]]


def test_a_view_does_not_see_what_comes_later() -> None:
    """A table as it was does not know the values and fields that came after."""
    table = table_of("p")
    encode(table, {"p": ["a"]}, labels=[0])
    view = table.view()
    encode(table, {"p": ["b"], "q": ["c"]}, labels=[0])
    assert encode(view, {"p": ["b"], "q": ["c"]}, labels=[-1]).tolist() == [[UNSEEN]]
    assert encode(table, {"p": ["b"], "q": ["c"]}, labels=[-1]).min() >= 0


@pytest.mark.parametrize("size", range(18))
def test_a_value_at_the_end_of_its_buffer(size: int) -> None:
    """No byte behind a value counts, wherever it ends."""
    table = table_of("p")
    text = "abcdefghijklmnopqr"[:size]
    assert table.fingerprints("p", [text])[0] == fingerprint("p", text)
    assert table.fingerprints("p", [text, "zzzz"])[0] == fingerprint("p", text)
