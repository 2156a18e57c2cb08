"""Recording rules and alerts: promtool accepts them, each alert is tested, and has its runbook."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.broker.broker import free_ports
from tests.deploy.metric_names import alerts, exported, recorded_in, rules, scraped_in
from tests.deploy.prometheus_server import DEPLOY, ROOT, Prometheus, promtool

RUNBOOK = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
CASES = sorted((DEPLOY / "tests").glob("*.yml"))

# What the operator of Kubernetes adds for a PodMonitor.
OPERATORS_LABELS = 'namespace="streamnb", pod="streamnb-0", container="streamnb", endpoint="http"'


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


@pytest.mark.deep
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_promtool_runs_the_unit_tests(path: object) -> None:
    """Each alert fires when it should, with the words it should, and not when it should not."""
    assert "SUCCESS" in promtool("test", "rules", str(path))


@pytest.mark.deep
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_alerts_fire_whatever_labels_a_target_has(path: Path, tmp_path: Path) -> None:
    """An operator adds labels of its own to all that it scrapes: the same cases come out alike.

    Whether an alert hands these labels on is its own affair, so they are left out of what is looked
    at: who fires when.
    """
    cases = yaml.safe_load(path.read_text(encoding="utf-8"))
    cases["rule_files"] = [str((path.parent / each).resolve()) for each in cases["rule_files"]]
    for test in cases["tests"]:
        for each in test["input_series"]:
            each["series"] = each["series"].replace("{", f"{{{OPERATORS_LABELS}, ", 1)
        test["promql_expr_test"] = [as_question(each) for each in test.pop("alert_rule_test")]
    labelled = tmp_path / path.name
    labelled.write_text(yaml.safe_dump(cases), encoding="utf-8")
    assert "SUCCESS" in promtool("test", "rules", labelled)


def as_question(case: dict[str, Any]) -> dict[str, Any]:
    """Return a case of an alert as a query for who fires, by the labels that it expects."""
    name, firing = case["alertname"], [each["exp_labels"] for each in case["exp_alerts"]]
    names = ", ".join({"alertname": ""} | dict.fromkeys(key for each in firing for key in each))
    shown = [
        ", ".join(f'{key}="{value}"' for key, value in (each | {"alertname": name}).items())
        for each in firing
    ]
    return {
        "expr": f'count by ({names}) (ALERTS{{alertname="{name}", alertstate="firing"}})',
        "eval_time": case["eval_time"],
        "exp_samples": [{"labels": f"{{{each}}}", "value": 1} for each in shown],
    }


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
    assert set(notes) == {"summary", "description", "runbook_url"}
    assert "$labels.instance" in notes["description"]
    base = '{{ or $externalLabels.runbook (print $externalURL "/user/runbook.md") }}'
    assert notes["runbook_url"] == f"{base}#{alert['alert'].lower()}"
    assert f"\n## {alert['alert']}\n" in RUNBOOK


def test_prometheus_itself_serves_the_runbook_that_an_alert_names(tmp_path: Path) -> None:
    """Started as compose starts it, with nobody to scrape, its first alert leads to a section."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    (shelf / "runbook.md").symlink_to(ROOT / "docs" / "runbook.md")
    assert set(assets_of_compose()) == {"runbook.md"}
    (port,) = free_ports(1)
    serves = f"--web.external-url=http://127.0.0.1:{port}", f"--web.user-assets={shelf}"
    with Prometheus(tmp_path, ["127.0.0.1:1"], serves, port=port) as prometheus:
        prometheus.until_data('ALERTS{alertname="StreamnbDown"}')
        (alert,) = prometheus.ask("alerts")["alerts"]
        page, _, section = alert["annotations"]["runbook_url"].partition("#")
        with urllib.request.urlopen(page, timeout=60) as answer:
            text = answer.read().decode()
    assert text == RUNBOOK
    assert section in {line[3:].lower() for line in text.splitlines() if line.startswith("## ")}


def assets_of_compose() -> list[str]:
    """Return the names of the files that compose mounts for its Prometheus to serve."""
    path = ROOT / "deploy" / "compose.yaml"
    service = yaml.safe_load(path.read_text(encoding="utf-8"))["services"]["prometheus"]
    told = dict(each.removeprefix("--").split("=", 1) for each in service["command"])
    (port,) = service["ports"]
    assert told["web.external-url"] == f"http://{port.rpartition(':')[0]}"
    mounts = [volume.split(":")[:2] for volume in service["volumes"]]
    return [
        target.removeprefix(f"{told['web.user-assets']}/")
        for source, target in mounts
        if target.startswith(told["web.user-assets"])
        and (path.parent / source).read_bytes() == RUNBOOK.encode()
    ]


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
