"""The tables of characters: they are what the script makes, and what Python's Unicode says."""

from __future__ import annotations

import importlib.util
import sys
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import streamnb
from streamnb.kernels import tokenize as characters
from tests import naive_text

SHIPPED = Path(streamnb.__file__).parent / "kernels" / "unicode.npz"
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "make_unicode_tables.py"
SURROGATES = range(0xD800, 0xE000)


@pytest.fixture(scope="module")
def shipped() -> dict[str, NDArray[Any]]:
    """Return the tables that stand in the package."""
    with np.load(SHIPPED) as tables:
        return {name: tables[name] for name in tables.files}


@pytest.fixture(scope="module")
def same_unicode(shipped: dict[str, NDArray[Any]]) -> None:
    """Go on only where this Python has the Unicode version that the tables were made from."""
    if str(shipped["version"]) != unicodedata.unidata_version:
        pytest.skip(f"tables are of Unicode {shipped['version']}, this Python's is another")


@pytest.mark.deep
@pytest.mark.usefixtures("same_unicode")
def test_the_script_makes_the_shipped_tables(shipped: dict[str, NDArray[Any]]) -> None:
    """`scripts/make_unicode_tables.py` makes, array by array, the tables that are shipped."""
    spec = importlib.util.spec_from_file_location("make_unicode_tables", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made: dict[str, NDArray[Any]] = script.build()
    assert made.keys() == shipped.keys()
    for name, table in made.items():
        assert table.dtype == shipped[name].dtype
        assert np.array_equal(table, shipped[name])


@pytest.mark.deep
@pytest.mark.usefixtures("same_unicode")
def test_folding_is_pythons() -> None:
    """Every character folds as `str.casefold` folds it."""
    odd = [
        code
        for code in range(sys.maxunicode + 1)
        if code not in SURROGATES and naive_text.folded(chr(code)) != chr(code).casefold()
    ]
    assert odd == []


@pytest.mark.deep
@pytest.mark.usefixtures("same_unicode")
def test_classes_follow_the_categories() -> None:
    """Letters, marks and digits are in words; white space is white space; symbols separate."""
    for code in range(sys.maxunicode + 1):
        if code in SURROGATES:
            continue
        char = chr(code)
        kind, category = naive_text.kind(char), unicodedata.category(char)
        if kind in {"letter", "ideograph"}:
            assert category[0] in "LM" or char == "_"
        elif kind == "digit":
            assert category[0] == "N"
        elif kind == "space":
            assert char.isspace()
        elif category[0] in "LN":
            pytest.fail(f"{char!r} ({category}) is no part of a word, but {kind}")


def test_the_kernels_numbers_are_the_tables() -> None:
    """The kernel's names of classes stand in the order in which the tables number them."""
    numbers = [getattr(characters, name.upper()) for name in naive_text.CLASSES]
    assert numbers == list(range(len(naive_text.CLASSES)))


@pytest.mark.parametrize(
    ("char", "kind"),
    [
        ("a", "letter"),
        ("_", "letter"),
        ("é", "letter"),
        ("ß", "letter"),
        ("\u0301", "letter"),
        ("カ", "letter"),
        ("한", "letter"),
        ("7", "digit"),
        ("½", "digit"),
        ("٣", "digit"),
        ("語", "ideograph"),
        ("ひ", "ideograph"),
        ("😀", "emoji"),
        ("❤", "emoji"),
        ("🇩", "flag"),
        ("🏽", "joiner"),
        ("\u200d", "joiner"),
        ("\ufe0f", "joiner"),
        ("\n", "clause"),
        ("。", "clause"),
        ("’", "apostrophe"),
        ("@", "at"),
        ("#", "hash"),
        (" ", "space"),
        ("\u00a0", "space"),
        ("\u3000", "space"),
        ("\0", "separator"),
        ("-", "separator"),
        ("\ufffd", "separator"),
        ("\ue000", "separator"),
    ],
)
def test_kinds_of_characters(char: str, kind: str) -> None:
    """One character of each kind, on every machine."""
    assert naive_text.kind(char) == kind
