"""The guides say what is there: every setting, command, exit code and metric, and none besides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import typer.main
import yaml
from prometheus_client import CollectorRegistry

import streamnb
from consumers import errors
from consumers.cli import commands as cli
from consumers.cli.conventions import EXIT_CODES
from consumers.config.message import EmoticonLabels, FieldLabels
from consumers.config.model import GROUPS
from consumers.config.sections import Section
from consumers.config.settings import Settings, load
from consumers.messages import Reason
from consumers.monitoring.metrics import OUTCOMES, Metrics
from consumers.monitoring.status import State
from consumers.replica import FolderFeed, Replica
from streamnb.errors import StreamnbError

ROOT = Path(__file__).resolve().parents[1]
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
METRICS = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")


def settings_in(section: type[Section], prefix: str = "") -> Iterator[str]:
    """Yield the path of every setting below a section."""
    for name, field in section.model_fields.items():
        kind = field.annotation
        if name == "labels":
            yield from settings_in(FieldLabels, "labels.")
            yield from settings_in(EmoticonLabels, "labels.")
        elif name == "features":
            for group in GROUPS.values():
                yield from (f"{prefix}features.NAME.{key}" for key in group.model_fields)
        elif isinstance(kind, type) and issubclass(kind, Section):
            yield from settings_in(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def subclasses(kind: type[Exception]) -> Iterator[type[Exception]]:
    """Yield an error class and all below it."""
    yield kind
    for below in kind.__subclasses__():
        yield from subclasses(below)


def test_every_likelihood_and_prior_is_told_of() -> None:
    """What a model can be made of stands in the guide of models."""
    told = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    made_of = ("streamnb.likelihoods.", "streamnb.priors")
    names = [
        name
        for name, value in vars(streamnb).items()
        if isinstance(value, type) and f"{value.__module__}.".startswith(made_of)
    ]
    assert len(names) >= 10
    assert [name for name in names if not re.search(rf"\b{name}\b", told)] == []


@pytest.mark.parametrize("path", sorted(set(settings_in(Settings))))
def test_every_setting_has_its_row(path: str) -> None:
    """A setting that is not in the guide cannot be found."""
    assert f"| `{path}` |" in CONFIGURATION


def test_the_guide_invents_no_setting() -> None:
    """Each row that names a setting names one that exists."""
    known = set(settings_in(Settings))
    rows = set(re.findall(r"^\| `([a-z_]+(?:\.[A-Za-z_]+)+)` \|", CONFIGURATION, re.MULTILINE))
    assert rows - known == set()


def test_the_file_that_teaches_holds_the_defaults() -> None:
    """`config.yaml` loads as exactly the built-in configuration."""
    assert load(ROOT / "config.yaml", {}) == load(None, {})


@pytest.mark.parametrize("path", sorted(set(settings_in(Settings)) - {"labels.signs"}))
def test_the_file_that_teaches_names_every_setting(path: str) -> None:
    """Each key stands in `config.yaml`, where a reader learns of it."""
    value = all_settings()
    for key in path.split("."):
        if key == "NAME":
            value = {name: True for group in value.values() for name in group}
        else:
            assert key in value, f"{path}: no {key}"
            value = value[key]


@cache
def all_settings() -> Any:
    """Return what `config.yaml` says with all its groups."""
    return yaml.safe_load(with_all_groups())


def with_all_groups() -> str:
    """Return `config.yaml` with the groups of features that stand behind hashes."""
    text = (ROOT / "config.yaml").read_text(encoding="utf-8")
    return re.sub(r"^    # (?=(  )?[a-z_]+:)", "    ", text, flags=re.MULTILINE)


def test_the_groups_behind_hashes_hold_the_defaults(tmp_path: Path) -> None:
    """Without their hashes they are a configuration too: each kind with its default values."""
    path = tmp_path / "config.yaml"
    path.write_text(with_all_groups(), encoding="utf-8")
    groups = load(path, {}).model.features
    assert sorted(group.kind for group in groups.values()) == sorted(GROUPS)
    for group in groups.values():
        assert group == GROUPS[group.kind].model_validate({"fields": group.fields})


EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_valid_and_can_be_found(path: Path) -> None:
    """Each example is a configuration without mistakes, says how to run it, and is linked to."""
    assert load(path, {}).model.features
    name = f"examples/{path.name}"
    assert f"streamnb run --config docs/{name}" in path.read_text(encoding="utf-8")
    assert f"({name})" in CONFIGURATION
    assert f"({name})" in (ROOT / "docs" / "README.md").read_text(encoding="utf-8")


def commands() -> dict[str, click.Command]:
    """Return the commands by name."""
    group = typer.main.get_command(cli.app)
    return dict(group.commands)  # type: ignore[attr-defined]  # Typer's group has them


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_stands_in_the_guide_and_teaches(name: str) -> None:
    """A command has its row, a help text and, but for the simplest, an example."""
    assert f"`streamnb {name}" in CONFIGURATION
    command = commands()[name]
    assert command.help
    assert command.epilog or name == "version"


@pytest.mark.parametrize("code", sorted(EXIT_CODES))
def test_every_exit_code_has_its_row(code: int) -> None:
    """An exit code that is not in the guide means nothing to a supervisor."""
    assert re.search(rf"^\| `?{code}`? \|", CONFIGURATION, re.MULTILINE)


def test_every_error_ends_with_a_documented_code() -> None:
    """No error class carries a code that the table does not hold."""
    kinds = [*subclasses(errors.ConsumerError), *subclasses(StreamnbError)]
    assert {kind.exit_code for kind in kinds} <= set(EXIT_CODES)  # type: ignore[attr-defined]


def metric_names() -> set[str]:
    """Return the metrics' names as they are scraped."""
    registry = CollectorRegistry()
    Metrics(registry, ("negative", "positive"))
    return {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in registry.collect()
    }


def test_metrics_and_guide_are_the_same_list() -> None:
    """Every metric has its row, and every row its metric."""
    rows = set(re.findall(r"^\| `((?:streamnb|process)_[a-z_]+)` \|", METRICS, re.MULTILINE))
    rows = {each for each in rows if not each.startswith("streamnb_follow_")}
    assert rows == metric_names()


def test_metrics_of_a_replica_are_the_same_list() -> None:
    """The guide has each metric that a replica has besides."""
    of = load(None, {})
    families = Replica(of, FolderFeed(ROOT, of)).collect()
    names = {f"{each.name}_total" if each.type == "counter" else each.name for each in families}
    assert set(re.findall(r"`(streamnb_follow_[a-z_]+)` \|", METRICS)) == names


@pytest.mark.parametrize("word", sorted({*map(str, Reason), *OUTCOMES, *map(str, State)}))
def test_every_value_of_a_label_is_explained(word: str) -> None:
    """Reasons, outcomes and states stand in the guide."""
    assert f"`{word}`" in METRICS
