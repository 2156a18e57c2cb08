"""The README's table of installs has every extra, with the figures of docs/install.json alone."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from importlib import metadata
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks import install
from benchmarks.install import FOUND, INSTALLS
from benchmarks.publish import README, ROOT, UnpublishedError

AGAIN = f"run: .venv/bin/{install.COMMAND} --publish; without --publish it measures anew"
NOT_OF_THE_CORE = {
    "confluent-kafka", "fastapi", "httpx", "kafka-python", "py4j", "pyspark", "requests",
    "starlette", "urllib3", "uvicorn",
}  # fmt: skip


@pytest.fixture
def found() -> dict[str, Any]:
    """Return what the table is written from."""
    kept: dict[str, Any] = json.loads((ROOT / FOUND).read_text(encoding="utf-8"))
    return kept


def readme() -> str:
    """Return the README."""
    return (ROOT / README).read_text(encoding="utf-8")


def test_the_table_is_the_one_that_was_found(found: dict[str, Any]) -> None:
    """Every figure between the markers is a measured one, and no row was added or changed."""
    assert install.published(readme(), found) == readme(), AGAIN


def test_every_extra_has_a_row_and_no_row_lacks_one() -> None:
    """In the table, in what is measured and in what was found, the extras are pyproject.toml's.

    One that is for the command alone stands behind `daemon`.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = sorted(["", *project["optional-dependencies"]])
    shown = re.findall(r"^\| `streamnb(?:\[(?:daemon,)?(\w+)\])?` \|", readme(), re.MULTILINE)
    assert sorted(shown) == extras
    assert sorted(each.extras.removeprefix("daemon,") for each in INSTALLS) == extras


def test_every_row_of_installs_is_between_the_markers(found: dict[str, Any]) -> None:
    """No row of the section stands outside them, and what was found has no row more."""
    (section,) = (
        each for each in re.split(r"^## ", readme(), flags=re.MULTILINE) if "| install |" in each
    )
    rows = [line for line in section.splitlines() if line.startswith("|")]
    assert rows == [line for line in install.table(found) if line.startswith("|")]
    assert list(found["installs"]) == [each.extras for each in INSTALLS]


def test_a_changed_figure_is_found(found: dict[str, Any]) -> None:
    """Another size, count of packages or import time is another table."""
    for name, change in (("bytes", 5e6), ("packages", 1), ("import_s", 0.2)):
        other = copy.deepcopy(found)
        other["installs"]["daemon"][name] += change
        assert install.published(readme(), other) != readme(), name


def test_without_its_markers_nothing_is_written(found: dict[str, Any]) -> None:
    """A README that lost one says which."""
    with pytest.raises(UnpublishedError, match=r"lacks .*benchmarks\.install"):
        install.published("# streamnb\n", found)


def test_the_core_brings_no_spark_http_or_kafka() -> None:
    """What the library needs, and what that needs in turn, is no client, no server and no JVM."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found, wanted = set[str](), [Requirement(each) for each in project["dependencies"]]
    while wanted:
        needed = wanted.pop()
        name = canonicalize_name(needed.name)
        is_extra = needed.marker is not None and not needed.marker.evaluate({"extra": ""})
        if is_extra or name in found:
            continue
        found.add(name)
        wanted += map(Requirement, metadata.requires(name) or ())
    assert {"numpy", "numba"} <= found
    assert found.isdisjoint(NOT_OF_THE_CORE)
