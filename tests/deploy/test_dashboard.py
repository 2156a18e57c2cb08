"""Grafana's dashboard: of Grafana's own types, and each query finds data in a real Prometheus.

Two real daemons are scraped: one learns from the made-up stream, and is asked, searched, watched
and corrected; one reads a real broker's topic. Grafana itself does not take part: its own models of
a dashboard, as published for Python, have to know every field.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from consumers.cli.replay import replay
from consumers.config.addresses import GeneratorSettings
from tests.broker.broker import Broker
from tests.deploy.metric_names import (
    Question,
    dashboard,
    exported,
    filled,
    panels,
    questions,
    rules,
    scraped_in,
)
from tests.deploy.prometheus_server import ROOT, Prometheus, promtool
from tests.endtoend.daemon_process import Daemon

PROVISIONING = ROOT / "deploy" / "grafana" / "provisioning"


class Scraped(NamedTuple):
    """What the tests of the queries share."""

    prometheus: Prometheus
    made_up: Daemon
    from_kafka: Daemon


def write_config(folder: Path, **more: Any) -> Path:
    """Write a configuration with checkpoints every second; return its path."""
    folder.mkdir()
    path = folder / "config.yaml"
    settings = {
        "checkpoint": {"folder": "state", "interval_s": 1.0},
        "http": {"port": 0},
        "view": "log",
        **more,
    }
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


def address(daemon: Daemon) -> str:
    """Return where a daemon serves."""
    return str(daemon.until_line("serving")["address"])


def predict(daemon: Daemon) -> None:
    """Ask for a prediction."""
    body = {"text": "what a lovely day"}
    answer = httpx.post(f"{address(daemon)}/v1/predict", json=body, timeout=30.0)
    answer.raise_for_status()


def use(daemon: Daemon) -> None:
    """Search, correct, delete and watch, as somebody at the page does."""
    with httpx.Client(base_url=address(daemon), timeout=30.0) as client:

        def found() -> bool:
            answer = client.get("/v1/search", params={"q": "", "limit": 2})
            if answer.status_code == 503:  # the store is being opened
                assert answer.headers["Retry-After"]
                return False
            messages[:] = answer.raise_for_status().json()["messages"]
            return len(messages) == 2

        messages: list[dict[str, Any]] = []
        daemon.until(found, "two messages can be searched")
        daemon.until_it_takes_corrections()
        label = {"id": messages[0]["id"], "label": "positive"}
        client.post("/v1/labels", json=label).raise_for_status()
        client.delete(f"/v1/messages/{messages[1]['id']}").raise_for_status()
        with client.stream("GET", "/v1/events", params={"q": ""}) as events:
            events.raise_for_status()
            assert next(events.iter_lines())


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> Iterator[Scraped]:
    """Return a Prometheus that has scraped both daemons, one of them in use."""
    folder = tmp_path_factory.mktemp("scraped")
    topic = folder.name  # the broker outlives this fixture, which a worker may need once more
    broker.create_topic(topic, 2)
    replay(
        GeneratorSettings(rate_per_s=0.0), (broker.address,), topic, max_messages=5_000, show=False
    )
    kafka = write_config(folder / "kafka", source=f"kafka://{broker.address}/{topic}")
    made = write_config(folder / "made")
    with Daemon(made) as made_up, Daemon(kafka) as from_kafka:
        targets = [address(each).removeprefix("http://") for each in (made_up, from_kafka)]
        with Prometheus(folder, targets) as prometheus:
            use(made_up)
            predict(made_up)
            prometheus.until_data('streamnb_http_requests_total{route="/v1/predict"}')
            predict(made_up)  # a rate is of what has changed since the scrape before
            prometheus.until_data("streamnb_messages_total offset 5s")
            yield Scraped(prometheus, made_up, from_kafka)
        assert from_kafka.stop() == 0
        assert made_up.stop() == 0


@pytest.mark.integration
@pytest.mark.parametrize("question", questions(), ids=lambda each: str(each.name))
def test_every_query_finds_data(scraped: Scraped, question: Question) -> None:
    """What a panel asks for is there when a daemon is scraped."""
    scraped.prometheus.until_data(question.expression)


@pytest.mark.integration
def test_the_variables_find_both_daemons(scraped: Scraped) -> None:
    """The list of instances to choose from holds every daemon that is scraped."""
    (variable,) = [each for each in dashboard()["templating"]["list"] if each["type"] == "query"]
    metric, label = variable["query"]["query"].removeprefix("label_values(")[:-1].split(", ")
    found = scraped.prometheus.ask(f"label/{label}/values", **{"match[]": metric})
    assert found == sorted(
        address(each).removeprefix("http://") for each in (scraped.made_up, scraped.from_kafka)
    )


@pytest.mark.integration
def test_notes_in_the_graphs_can_be_asked_for(scraped: Scraped) -> None:
    """The query of every annotation is understood, whether or not it finds something to note."""
    for note in dashboard()["annotations"]["list"]:
        scraped.prometheus.query(filled(note["expr"]))


@pytest.mark.integration
@pytest.mark.parametrize("name", [rule["record"] for rule in rules() if "record" in rule], ids=str)
def test_every_recorded_series_has_data(scraped: Scraped, name: str) -> None:
    """What the alerts stand on is recorded from what real daemons export."""
    scraped.prometheus.until_data(name)


@pytest.mark.integration
def test_no_alert_fires_while_all_is_well(scraped: Scraped) -> None:
    """Every rule can be evaluated, and daemons that are well wake nobody."""
    groups = scraped.prometheus.ask("rules")["groups"]
    evaluated = [rule for group in groups for rule in group["rules"]]
    assert len(evaluated) == len(rules())
    assert {rule["health"] for rule in evaluated} == {"ok"}
    firing = scraped.prometheus.ask("query", query='ALERTS{alertstate="firing"}')["result"]
    assert firing == []


@pytest.mark.integration
def test_promtool_finds_no_fault_with_a_real_page(scraped: Scraped) -> None:
    """Names, units, types and help texts of all that a daemon exports are by the conventions."""
    for daemon in (scraped.made_up, scraped.from_kafka):
        status, page = daemon.get("/metrics")
        assert status == 200
        assert promtool("check", "metrics", stdin=page) == ""


@pytest.mark.parametrize("question", questions(), ids=lambda each: str(each.name))
def test_queries_name_what_there_is(question: Question) -> None:
    """Every metric of a panel is one that the daemon exports."""
    named = scraped_in(question.expression)
    assert named
    assert named <= exported()


def test_grafana_knows_every_field() -> None:
    """Read into Grafana's own types and written again, the dashboard is what it was."""
    register_default_plugins()
    written = json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard())))
    assert only_known(written, dashboard()) == dashboard()


def only_known(written: Any, ours: Any) -> Any:
    """Return what was written of the fields that we set; Grafana adds its defaults."""
    if isinstance(ours, dict):
        return {
            key: only_known(written[key], value) for key, value in ours.items() if key in written
        }
    if isinstance(ours, list) and isinstance(written, list) and len(ours) == len(written):
        return [only_known(theirs, each) for theirs, each in zip(written, ours, strict=True)]
    return written


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: str(panel["title"]))
def test_every_panel_explains_itself(panel: dict[str, Any]) -> None:
    """A panel says what it shows, in which unit, from when on it is bad, and whence it comes."""
    assert panel["description"].endswith(".")
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["unit"]
    assert defaults["thresholds"]["steps"][0]["value"] is None
    for asked in [panel, *panel["targets"]]:
        assert asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_panels_do_not_lie_on_one_another() -> None:
    """Each place of the grid belongs to one panel, and each panel has its own number."""
    taken = [
        (x, y)
        for panel in dashboard()["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24
    numbers = [panel["id"] for panel in dashboard()["panels"]]
    assert len(numbers) == len(set(numbers))


def test_grafana_finds_dashboard_and_source() -> None:
    """The provider's folder is where compose puts the dashboard; the address is what it sets."""
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
    grafana = compose["services"]["grafana"]
    provider = yaml.safe_load((PROVISIONING / "dashboards" / "streamnb.yaml").read_text("utf-8"))
    source = yaml.safe_load((PROVISIONING / "datasources" / "prometheus.yaml").read_text("utf-8"))
    folder = provider["providers"][0]["options"]["path"]
    assert f"./grafana/dashboards:{folder}:ro" in grafana["volumes"]
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{folder}/streamnb.json"
    assert source["datasources"][0]["url"].removeprefix("$") in grafana["environment"]
    assert source["datasources"][0]["type"] == "prometheus"
