"""Which metrics rules, alerts and the dashboard name, and which ones there are."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import yaml

from consumers.config.settings import load
from consumers.replica import FolderFeed, Replica
from tests.deploy.prometheus_server import DEPLOY, ROOT

DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "streamnb.json"
_SCRAPED = re.compile(r"(?<![:\w])(?:streamnb|process)_[a-z_]+(?![:\w])")
_RECORDED = re.compile(r"instance:[a-z_]+(?::[a-z0-9_]+)?")


class Question(NamedTuple):
    """One query of a panel: which it is, and what it asks."""

    name: str
    expression: str


def rules() -> list[dict[str, Any]]:
    """Return every rule, recorded ones first."""
    return [
        rule
        for name in ("recording.yml", "alerts.yml")
        for group in yaml.safe_load((DEPLOY / "rules" / name).read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
    ]


def alerts() -> list[dict[str, Any]]:
    """Return the alerts."""
    return [rule for rule in rules() if "alert" in rule]


def dashboard() -> dict[str, Any]:
    """Return Grafana's dashboard."""
    board: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return board


def panels() -> list[dict[str, Any]]:
    """Return its panels, without the lines between them."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def questions() -> list[Question]:
    """Return every query of every panel, with Grafana's variables filled in."""
    return [
        Question(f"{panel['id']} {panel['title']} {target['refId']}", filled(target["expr"]))
        for panel in panels()
        for target in panel["targets"]
    ]


def filled(expression: str) -> str:
    """Return a query as Grafana sends it, for all instances and a short interval."""
    return expression.replace("$instance", ".*").replace("$__rate_interval", "10s")


def scraped_in(expression: str) -> set[str]:
    """Return the scraped metrics that an expression names."""
    return set(_SCRAPED.findall(expression))


def recorded_in(expression: str) -> set[str]:
    """Return the recorded series that an expression names."""
    return set(_RECORDED.findall(expression))


def exported() -> set[str]:
    """Return the names of all series that the daemon exports, and a replica beside them."""
    of = load(None, {})
    names: set[str] = set()
    for family in Replica(of, FolderFeed(ROOT, of)).registry.collect():
        names |= {sample.name for sample in family.samples}
        if family.type == "counter":
            names.add(f"{family.name}_total")
        elif family.type == "histogram":
            names |= {f"{family.name}_{part}" for part in ("bucket", "count", "sum")}
        else:
            names.add(family.name)
    return names
