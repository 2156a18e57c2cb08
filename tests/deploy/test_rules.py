"""Recording rules and alerts: promtool accepts them, each alert is tested, and has its runbook."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.deploy.metric_names import alerts, exported, recorded_in, rules, scraped_in
from tests.deploy.prometheus_server import DEPLOY, ROOT, promtool

RUNBOOK = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
CASES = sorted((DEPLOY / "tests").glob("*.yml"))


def unit_tests() -> list[dict[str, Any]]:
    """Return every case of every file that promtool runs."""
    return [
        case
        for path in CASES
        for test in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]
        for case in test["alert_rule_test"]
    ]


def test_promtool_accepts_the_configuration() -> None:
    """The scrape configuration and every rule in it are valid."""
    assert "SUCCESS" in promtool("check", "config", DEPLOY / "prometheus.yml")


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_promtool_runs_the_unit_tests(path: object) -> None:
    """Each alert fires when it should, with the words it should, and not when it should not."""
    assert "SUCCESS" in promtool("test", "rules", str(path))


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: str(alert["alert"]))
def test_each_alert_fires_in_one_case_and_keeps_still_in_another(alert: dict[str, Any]) -> None:
    """An alert without both cases is either untested or always on."""
    cases = [case for case in unit_tests() if case["alertname"] == alert["alert"]]
    assert any(case["exp_alerts"] for case in cases)
    assert not all(case["exp_alerts"] for case in cases)


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: str(alert["alert"]))
def test_each_alert_says_how_bad_it_is_and_what_to_do(alert: dict[str, Any]) -> None:
    """Severity, a summary, the instance and a section of the runbook are there."""
    assert alert["labels"]["severity"] in {"critical", "warning"}
    notes = alert["annotations"]
    assert set(notes) == {"summary", "description", "runbook"}
    assert "$labels.instance" in notes["description"]
    assert notes["runbook"] == f"docs/runbook.md#{alert['alert'].lower()}"
    assert f"\n## {alert['alert']}\n" in RUNBOOK


def test_the_runbook_knows_no_other_alerts() -> None:
    """Each of its sections is of an alert that there is."""
    sections = [line[3:] for line in RUNBOOK.splitlines() if line.startswith("## ")]
    assert sections == [alert["alert"] for alert in alerts()]


@pytest.mark.parametrize(
    "rule", rules(), ids=lambda rule: str(rule.get("alert", rule.get("record")))
)
def test_rules_name_what_there_is(rule: dict[str, Any]) -> None:
    """Every metric in a rule is exported by the daemon, or recorded by another rule."""
    assert scraped_in(rule["expr"]) <= exported()
    assert recorded_in(rule["expr"]) <= {each.get("record") for each in rules()}
