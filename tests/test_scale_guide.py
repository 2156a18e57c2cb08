"""docs/scale.md says what was measured: each row of its table is that of the benchmark's file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
ROWS = re.findall(
    r"^\| [^|]+ \| ([0-9.,]+) [^|]+ \| `(\w+)`: ([^|]+) \|$",
    (DOCS / "scale.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


def test_the_table_has_rows() -> None:
    """The table is read at all."""
    assert len(ROWS) == 10


@pytest.mark.parametrize(("said", "case", "name"), ROWS, ids=[each[2] for each in ROWS])
def test_a_figure_is_that_of_its_row(said: str, case: str, name: str) -> None:
    """It is there under its name, within a tenth."""
    results = json.loads((DOCS / "benchmark.json").read_text(encoding="utf-8"))["results"]
    (figures,) = [each["figures"] for each in results if each["case"] == case]
    (measured,) = [each["value"] for each in figures if each["name"] == name]
    assert float(said.replace(",", "")) == pytest.approx(measured, rel=0.1)
