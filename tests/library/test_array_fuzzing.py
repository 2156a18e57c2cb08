"""Whatever arrays come in are refused as `InputError`, or answered rightly; nothing crashes.

Arrays are drawn of any type, shape, stride and content, and damaged on purpose. A right answer is
the one that plain Python values of the same content get.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from streamnb import (
    Bag,
    Bernoulli,
    Calibrator,
    Categories,
    Codes,
    Confidence,
    EveryExamples,
    Flags,
    HalfLife,
    Learner,
    Multinomial,
    NaiveBayes,
    Numbers,
    SnapshotBoard,
    TextColumn,
    Words,
)
from streamnb.errors import InputError
from streamnb.features.bag import CountTable
from streamnb.kernels.layout import Texts
from streamnb.prevalence import Quantifier, adjusted_shares

N = 4
LABELS = ["x", "y", "x", "y"]
DICTIONARY = ("a", "b", "c")
DATA = b"win a prize\xff\x80 \xc3\xa9t\xc3\xa9"
GROUPS: dict[str, Any] = {
    "words": Words(Multinomial(), field="f"),
    "presence": Words(Bernoulli(), field="f", ngrams=(1, 2), negation=True),
    "categories": Categories(fields=["f"]),
    "open categories": Categories(),
    "numbers": Numbers(fields=["f"]),
    "open numbers": Numbers(),
    "flags": Flags(fields=["f"]),
    "open flags": Flags(),
    "bag": Bag(Multinomial(), field="f", dictionary=DICTIONARY),
    "open bag": Bag(Bernoulli()),
}

_dtypes = st.one_of(
    npst.scalar_dtypes(), npst.byte_string_dtypes(max_len=3), npst.unicode_string_dtypes(max_len=3),
    st.just(np.dtype(object)), st.just(np.dtype([("a", "i4"), ("b", "f8")])),
)  # fmt: skip
_plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    """Draw an array of any type and shape, often of the right length; strided, masked or sealed."""
    dtype = draw(_dtypes)
    shape = draw(st.sampled_from([(N,), (N,), (N,), (2 * N,), (N, 1), (N, 2), (), (0,), (3,)]))
    elements = _plain if dtype.kind == "O" else None
    array = draw(npst.arrays(dtype, shape, elements=elements))
    how = draw(st.sampled_from(["", "", "step", "back", "masked", "sealed", "unaligned"]))
    if how == "step" and array.ndim:
        array = np.repeat(array, 2, axis=0)[::2]
    elif how == "back" and array.ndim:
        array = array[::-1]
    elif how == "masked" and array.ndim == 1 and array.dtype.names is None:
        array = np.ma.masked_array(array, draw(npst.arrays(np.bool_, array.shape)))
    elif how == "sealed":
        array.flags.writeable = False
    elif how == "unaligned" and array.dtype.kind in "iuf" and array.ndim == 1:
        buffer = bytearray(array.nbytes + 1)
        buffer[1:] = array.tobytes()
        array = np.frombuffer(buffer, dtype=array.dtype, offset=1)
    return array


def model_of(kind: str, **more: Any) -> NaiveBayes:
    """Return a model of one group that has learned something else already."""
    return NaiveBayes(["x", "y"], features={kind: GROUPS[kind]}, hash_key=3, **more)


def told(model: NaiveBayes, columns: Any) -> list[list[float]]:
    """Return what a model says before and after it learned some columns."""
    said = model.prequential_many(columns, LABELS)
    after = model.joint_log_likelihood_many(columns)
    assert said.shape == after.shape == (N, 2)
    return [*said.tolist(), *after.tolist()]


def must_be_refused_or_right(
    attempt: Callable[[], Any], plain: Callable[[], Any] | None = None
) -> None:
    """Try what was drawn; hold an answer to what plain values of the same content get."""
    try:
        found = attempt()
    except InputError:
        return
    if plain is not None:
        assert repr(found) == repr(plain())


@pytest.mark.parametrize("kind", GROUPS)
@given(data=st.data())
def test_columns(kind: str, data: st.DataObject) -> None:
    """An array of any kind is refused, or learned and judged as the list of its values is."""
    array = data.draw(arrays())
    model, twin = model_of(kind), model_of(kind)
    before = model.to_bytes()
    # A list of numpy's own large floats differs from an array of them in nothing but its type.
    must_be_refused_or_right(
        lambda: told(model, {"f": array}), lambda: told(twin, {"f": array.tolist()})
    )
    model = model_of(kind)
    try:
        model.learn_many({"f": array}, LABELS)
    except InputError:
        assert model.to_bytes() == before


class Sized:
    """Has a length, and no values."""

    def __len__(self) -> int:
        return N


class Shorter(list[Any]):
    """Has another length than the values that it yields."""

    def __iter__(self) -> Any:
        return iter(())


TEXT_COLUMN = TextColumn(Texts(np.zeros(N, np.uint8), np.arange(N), np.arange(N) + 1))


@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.parametrize(
    "column", [Sized(), Shorter([1] * N), TEXT_COLUMN, np.full(N, np.longdouble("1e4000"))]
)
def test_odd_columns(kind: str, column: Any) -> None:
    """What only looks like a column, or one of another group, is refused by name, or read."""
    for ask in ("learn_many", "unlearn_many"):
        model = model_of(kind)
        before = model.to_bytes()
        try:
            getattr(model, ask)({"f": column}, LABELS)
            assert kind.startswith("open") or not isinstance(column, Sized | Shorter)
        except InputError:
            assert model.to_bytes() == before
    must_be_refused_or_right(lambda: model_of(kind).predict_many({"f": column}))


@given(arrays(), st.sampled_from(["weights", "times_s", "labels"]))
def test_what_stands_beside_the_columns(array: Any, name: str) -> None:
    """Weights, times and labels of any kind are refused, or taken as the list of their values."""
    values = {"f": ["a", "b", "a b", None]}

    def learned(given: Any) -> bytes:
        model = model_of("words", decay=HalfLife(seconds=9.0))
        beside: dict[str, Any] = {"labels": LABELS, "times_s": [1.0, 2.0, 3.0, 4.0]}
        model.learn_many(values, **(beside | {name: given}))
        return model.to_bytes()

    must_be_refused_or_right(lambda: learned(array), lambda: learned(array.tolist()))


@given(arrays() | st.none() | st.just(3), st.sampled_from([("x",), ("x", "y"), (), None, "xy", 7]))
def test_codes(array: Any, classes: Any) -> None:
    """Labels as codes are refused, or are those that they stand for."""
    values = {"f": ["a", "b", "a b", None]}

    def learned(labels: Any) -> bytes:
        model = model_of("words")
        model.learn_many(values, labels)
        return model.to_bytes()

    must_be_refused_or_right(
        lambda: learned(Codes(array, classes)),
        lambda: learned([classes[code] for code in array.tolist()]),
    )


_takings = st.one_of(
    arrays(),
    st.builds(
        lambda codes, shape, dtype: np.resize(codes, shape).astype(dtype),
        npst.arrays(np.int8, 6, elements=st.integers(0, 2) | st.integers(-1, 3)),
        st.sampled_from([(6,), (6,), (6,), (6, 1), (1, 6), (5,), (7,), ()]),
        st.sampled_from(["i1", "i1", "u1", "<i8", ">i8", "u8", "f8", "?", "O", "S1"]),
    ),
    st.sampled_from([[0] * 6, [0, 1, 0, 0, 0, 0], (2,) * 6, "000000", 0, 1.0, np.int8(0)]),
)


@given(_takings, st.sampled_from(["p", "q"]), st.booleans())
def test_what_is_taken_back_among_what_is_learned(given: Any, part: str, learns: bool) -> None:
    """It is refused, and nothing has changed, or it is read as a plain int8 array of it is."""
    texts = {"f": ["a", "new b", "a", "b", "", None]}
    labels = ["x", "y", "z", "x", "y", "x"]

    def learned(taken: Any) -> tuple[bytes, list[list[float]]]:
        confidence = Confidence(Calibrator()) if learns else None
        model = model_of("words", new_classes=True)
        model.learn_many({"f": ["a b", "b", "a"]}, ["x", "y", "y"], part="p")
        before = model.to_bytes(), list(model.state.parts)
        learner = Learner(
            model, SnapshotBoard(), EveryExamples(99), lambda: 0.0, confidence=confidence
        )
        try:
            said = learner.learn(part, texts, labels, taken=taken)
        except InputError:
            assert (model.to_bytes(), list(model.state.parts)) == before
            assert learner.is_current
            assert confidence is None or confidence.calibrator.n == 0  # type: ignore[union-attr]
            raise
        return model.to_bytes(), said.tolist()

    must_be_refused_or_right(
        lambda: learned(given), lambda: learned(np.array(given.tolist(), dtype=np.int8))
    )


def test_what_is_taken_back_must_be_said_in_an_array_of_three_numbers() -> None:
    """Other numbers, and what only looks like an array, once passed for "taken back"."""
    learner = Learner(model_of("words"), SnapshotBoard(), EveryExamples(99), lambda: 0.0)
    columns = {"f": ["a", "b", "a b", None]}
    wrong: Any
    for wrong, message in (
        (np.array([7, 9, -3, 0]), r"^taken\[0\] must be 0 \(it is learned\), 1 or 2"),
        (np.array([0.5, 1, 2, 0]), "^taken must be an array of whole numbers"),
        ([0, 1, 0, 0], "^taken must be an array of whole numbers"),
        ("abcd", "^taken must be an array of whole numbers"),
        (np.ma.masked_array([0, 1, 0, 0], [False, True, False, False]), "^taken must be an array"),
        (np.zeros((4, 1), np.int8), r"^there are 4 examples, and taken has shape \(4, 1\)"),
    ):
        with pytest.raises(InputError, match=message):
            learner.learn("p", columns, LABELS, taken=wrong)
    for more in ({"judged": "no"}, {"encoded": 5}):
        with pytest.raises(InputError, match=f"^{next(iter(more))} must be"):
            learner.learn("p", columns, LABELS, **more)
    with pytest.raises(InputError, match=r"^is_current must be True or False"):
        Learner(
            learner.model, SnapshotBoard(), EveryExamples(9), lambda: 0.0, is_current="x"  # type: ignore[arg-type]
        )  # fmt: skip
    assert learner.model.n_examples == 0


_positions = st.one_of(
    arrays(),
    npst.arrays(np.int64, N, elements=st.integers(-2, len(DATA) + 1)),
    npst.arrays(np.int64, N, elements=st.sampled_from([-1, 0, 3, 5, 11, len(DATA)])),
)


@pytest.mark.parametrize("kind", ["words", "presence", "categories", "open categories"])
@given(starts=_positions, ends=_positions, later=st.booleans())
def test_text_columns(kind: str, starts: Any, ends: Any, later: bool) -> None:
    """Texts in a buffer are refused, or read as the texts they are, though changed when made."""
    data = np.frombuffer(bytearray(DATA), dtype=np.uint8)
    right = np.array([0, 4, 6, 6]), np.array([3, 5, 6, -1])

    def column() -> Any:
        if not later:
            return TextColumn(Texts(data, starts, ends))
        made = TextColumn(Texts(data, *right))
        for array, change in zip(right, (starts, ends), strict=True):
            if change.shape == (N,) and change.dtype == np.int64:
                array[:] = change
        return made

    def texts() -> Any:
        given = right if later else (starts, ends)
        rows = zip(*(each.tolist() for each in given), strict=True)
        return [None if end < 0 else DATA[start:end] for start, end in rows]

    def plain() -> Any:
        # Bytes that are not UTF-8 separate words, and in a value they are themselves: read alone.
        twin = model_of(kind)
        each = [b"" if text is None else text for text in texts()]
        ends_ = np.cumsum([len(text) for text in each])
        starts_ = ends_ - [len(text) for text in each]
        ends_[[text is None for text in texts()]] = -1
        joined = np.frombuffer(bytearray(b"".join(each)), dtype=np.uint8)
        return told(twin, {"f": TextColumn(Texts(joined, starts_, ends_))})

    must_be_refused_or_right(lambda: told(model_of(kind), {"f": column()}), plain)


@pytest.mark.parametrize("texts", [None, (), "abc", (1, 2, 3), Texts(None, None, None)])  # type: ignore[arg-type]
def test_no_text_column(texts: Any) -> None:
    """What is no buffer with positions is refused."""
    with pytest.raises(InputError, match=r"^TextColumn"):
        TextColumn(texts)


def test_a_text_that_ends_before_it_starts() -> None:
    """It is refused with its row, where it once ended the process in a group of categories."""
    data = np.frombuffer(bytearray(b"abcdef"), dtype=np.uint8)
    with pytest.raises(InputError, match=r"row 1: .* start 5 and end 2"):
        TextColumn(Texts(data, np.array([0, 5]), np.array([1, 2])))


@given(
    st.sampled_from(["csr", "csc", "coo", "lil", "dok", "bsr", "dia"]),
    npst.arrays(
        st.sampled_from([np.float64, np.int32, np.bool_, np.float32, np.complex128]),
        st.sampled_from([(N, 3), (N, 3), (N, 2), (3, 3), (0, 3)]),
        elements=st.sampled_from([0, 1]),
    ),
    st.none() | st.tuples(
        st.sampled_from(["data", "indices", "indptr", "row", "col"]),
        st.integers(0, 30), st.sampled_from([-7, -1, 1, 3, 99, 1 << 28, math.nan]),
    ),
    st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_sparse_matrices(
    form: str, grid: Any, damage: tuple[str, int, float] | None, lies: bool, named: bool
) -> None:
    """A sparse matrix, damaged or not, is refused, or counted as the mappings of its rows are."""
    matrix = sp.csr_matrix(grid.astype(grid.dtype)).asformat(form)
    if damage is not None:
        name, at, value = damage
        array = getattr(matrix, name, None)
        if isinstance(array, np.ndarray) and array.size and array.ndim == 1:
            if math.isnan(value) and array.dtype.kind not in "fc":
                return
            with np.errstate(all="ignore"):
                array[at % len(array)] = array.dtype.type(value)
    if lies and form == "csr":
        matrix.has_canonical_format = True

    def handed_in() -> Any:
        return CountTable(DICTIONARY[: grid.shape[1]], matrix) if named else matrix

    def plain() -> Any:
        rows = [dict(zip(DICTIONARY, row, strict=False)) for row in matrix.toarray().tolist()]
        return told(model_of("bag"), {"f": rows})

    must_be_refused_or_right(lambda: told(model_of("bag"), {"f": handed_in()}), plain)


def test_a_matrix_that_lies_about_its_form_counts_each_word_once() -> None:
    """A word that stands thrice in a row is present once, though the matrix denies duplicates."""
    matrix = sp.csr_matrix((np.ones(3), np.array([1, 1, 1]), np.array([0, 3])), shape=(1, 3))
    matrix.has_canonical_format = True
    group = Bag(Bernoulli(), field="f", dictionary=DICTIONARY)
    model = NaiveBayes(["x", "y"], features={"bag": group})
    model.learn_many({"f": matrix}, ["x"])
    assert model.word_counts(["b"])[:, 0].tolist() == [1.0]


@given(arrays(), arrays() | st.just(np.array([[9, 1], [2, 8]])), st.just(0.95) | st.floats())
def test_prevalence(counts: Any, confusion: Any, level: float) -> None:
    """Counts and a confusion matrix of any kind are refused, or give shares that add up to one."""
    with suppress(InputError):  # how many examples there are stands in reasons alone
        assert Quantifier([[9, 1], [2, 8]], n_examples=counts).reason is not None
    try:
        found = adjusted_shares(counts, confusion, level)
        Quantifier(confusion)
    except InputError:
        return
    assert (found.shares is None) == (found.reason is not None)
    if found.shares is not None:
        assert found.shares.sum() == pytest.approx(1.0)
        assert found.shares.min() >= 0.0
