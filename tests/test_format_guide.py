"""`docs/format.md` names all that is in the files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from streamnb.export import export_dict, to_arrow
from streamnb.serialization import pack
from tests.library.inspection.mixed_models import mixed_model

ROOT = Path(__file__).resolve().parents[1]
FORMAT = (ROOT / "docs" / "format.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([^`]+)`", FORMAT))


def test_the_page_names_every_key_of_the_model_file() -> None:
    """Header keys and array names, of every kind of group."""
    header, arrays = pack(mixed_model(20).state, {})
    keys = set(header) | set(header["sections"][0])
    for state in header["states"].values():
        keys |= set(state)
    assert keys - NAMED == set()
    last = {name.rsplit("/", 1)[1] for name in arrays}
    assert last - {name.rsplit("/", 1)[-1] for name in NAMED} == set()


def keys_of(value: Any) -> set[str]:
    """Return the keys of an export's groups and tables; what a specification holds is its own."""
    return (set(value) | set(value.get("table", ()))) - {"table"}


@pytest.mark.parametrize("place", range(5))
def test_the_page_names_every_key_of_the_export(place: int) -> None:
    """Of each kind of group, and of the whole."""
    exported = export_dict(mixed_model(20))
    assert (set(exported) | set(exported["class_prior"])) - NAMED == set()
    assert keys_of(exported["groups"][place]) - NAMED == set()


def test_the_page_names_every_column_of_the_table_of_classes() -> None:
    """Arrow has one such table."""
    assert set(to_arrow(mixed_model(20))["classes"].column_names) - NAMED == set()
