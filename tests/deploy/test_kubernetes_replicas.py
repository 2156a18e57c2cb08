"""The manifests of replicas: of Kubernetes' schemas, as strict as the daemon's, and of one mind."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_validate import utils as schemas

from consumers.config.settings import load
from consumers.http.requests import AllowedHosts
from streamnb import __version__
from tests.deploy.metric_names import alerts
from tests.deploy.prometheus_server import ROOT
from tests.deploy.test_kubernetes import CONFIG, VERSIONS, pod

FOLDER = ROOT / "deploy" / "kubernetes-replicas"
LABELS = {"app.kubernetes.io/name": "streamnb-replica"}


def kustomization() -> dict[str, Any]:
    """Return what Kustomize is asked for."""
    asked: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text("utf-8"))
    return asked


def own() -> dict[str, Any]:
    """Return the objects of the replicas alone, by kind."""
    paths = [path for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml"]
    found = [yaml.safe_load(path.read_text("utf-8")) for path in paths]
    return {each["kind"]: each for each in found}


def replica() -> Any:
    """Return the specification of a replica's pod."""
    return own()["Deployment"]["spec"]["template"]["spec"]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_of_its_schema(version: str) -> None:
    """Kubernetes' own schemas know each field, in an older release and in the newest."""
    for kind, each in own().items():
        if kind != "PodMonitor":
            schemas.validate(each, version, strict=True)
    assert set(own()) == {
        "Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget", "NetworkPolicy",
        "PodMonitor",
    }  # fmt: skip


def test_every_file_is_put_in() -> None:
    """No manifest lies there unused, and the daemon's come along."""
    files = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization()["resources"]) == files | {"../kubernetes"}
    assert kustomization()["images"] == [{"name": "streamnb", "newTag": __version__}]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not there")
def test_kustomize_puts_both_together() -> None:
    """Replicas mount the very configuration that the daemon has, and run its image."""
    done = subprocess.run(
        ["kubectl", "kustomize", FOLDER], capture_output=True, text=True, check=True
    )
    made = [
        each["spec"]["template"]["spec"]
        for each in yaml.safe_load_all(done.stdout)
        if each["kind"] in {"Deployment", "StatefulSet"}
    ]
    assert len(made) == 2
    (configs, images) = (
        {
            next(v["configMap"]["name"] for v in each["volumes"] if "configMap" in v)
            for each in made
        },
        {each["containers"][0]["image"] for each in made},
    )
    assert len(configs) == 1
    assert images == {f"streamnb:{__version__}"}


def test_a_replica_may_do_as_little_as_the_daemon() -> None:
    """Its pod is as strict, is probed alike, and has no volume to write to but its /tmp."""
    (ours,), (theirs,) = replica()["containers"], pod()["containers"]
    for key in ("securityContext", "startupProbe", "livenessProbe", "readinessProbe", "ports"):
        assert ours[key] == theirs[key]
    assert replica()["securityContext"].items() <= pod()["securityContext"].items()
    assert replica()["automountServiceAccountToken"] is False
    assert {each["name"] for each in ours["volumeMounts"]} == {"config", "tmp"}


def test_a_lost_daemon_takes_no_replica_out_of_the_service() -> None:
    """All follow one daemon: readiness lasts far longer than the alert takes to fire."""
    (container,) = replica()["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    (alert,) = [each for each in alerts() if each["alert"] == "StreamnbReplicasOutdated"]
    _, _, outdated_s = alert["expr"].partition("streamnb_follow_age_seconds > ")
    assert load(CONFIG, {}).follow.stale_after_s >= 24 * 3600 > 100 * float(outdated_s)


def test_replicas_change_over_together_within_a_second() -> None:
    """Each looks in each interval and has time to get the version, and its age stays below 1 s."""
    found = load(CONFIG, {})
    follow, each_s = found.follow, found.http.snapshot_interval_s
    assert 0 < 2 * follow.interval_s < each_s
    assert 2 * each_s <= follow.switch_after_s < 1 - each_s


def test_it_follows_the_daemon_in_the_cluster() -> None:
    """The address is that of the first pod, which answers under it, and may be reached."""
    (container,) = replica()["containers"]
    command, *options = container["args"]
    given = dict(zip(options[::2], options[1::2], strict=True))
    http = load(CONFIG, {}).http
    host = f"streamnb-0.streamnb-pods:{http.port}"
    assert (command, given["--follow"]) == ("serve", f"http://{host}")
    assert Path(given["--config"]).name == CONFIG.name
    hosts = AllowedHosts(http)
    hosts.check({"headers": [(b"host", host.encode())], "http_version": "1.1"})
    hosts.check({"headers": [(b"host", b"streamnb-replica")], "http_version": "1.1"})
    egress = own()["NetworkPolicy"]["spec"]["egress"]
    assert {"protocol": "TCP", "port": http.port} in egress[1]["ports"]


def test_all_of_them_mean_the_replicas() -> None:
    """Service, budget, policy and monitor choose the pods that the deployment makes and scales."""
    found = own()
    deployment, scaler = found["Deployment"], found["HorizontalPodAutoscaler"]["spec"]
    assert deployment["spec"]["template"]["metadata"]["labels"] == LABELS
    assert deployment["spec"]["selector"]["matchLabels"] == LABELS
    assert found["Service"]["spec"]["selector"] == LABELS
    assert found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == LABELS
    for kind in ("PodDisruptionBudget", "PodMonitor"):
        assert found[kind]["spec"]["selector"]["matchLabels"] == LABELS
    target = scaler["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", deployment["metadata"]["name"])
    assert "replicas" not in deployment["spec"]  # the autoscaler would be overruled
    assert "cpu" in replica()["containers"][0]["resources"]["requests"]
    assert scaler["minReplicas"] >= 2
