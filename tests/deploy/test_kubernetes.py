"""The manifests for Kubernetes: of its schemas, of one mind, and strict.

The files are complete as they stand; where `kubectl` is there, what Kustomize makes of them is
looked at instead. No cluster takes part.
"""

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
from tests.deploy.prometheus_server import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
CONFIG = FOLDER / "config.yaml"
LABELS = {"app.kubernetes.io/name": "streamnb"}
VERSIONS = ("1.30", schemas.latest_version())
# What the Prometheus operator reads of a PodMonitor, as far as ours goes. It has no schema here.
MONITOR = {"jobLabel", "selector", "podMetricsEndpoints"}
ENDPOINT = {"port", "path", "interval"}


def kustomization() -> dict[str, Any]:
    """Return what Kustomize is asked for."""
    text = (FOLDER / "kustomization.yaml").read_text(encoding="utf-8")
    asked: dict[str, Any] = yaml.safe_load(text)
    return asked


def objects() -> list[dict[str, Any]]:
    """Return every object, put together by Kustomize where that is there."""
    if shutil.which("kubectl") is None:
        texts = [
            (FOLDER / name).read_text(encoding="utf-8") for name in kustomization()["resources"]
        ]
        return [each for text in texts for each in yaml.safe_load_all(text)]
    done = subprocess.run(
        ["kubectl", "kustomize", FOLDER], capture_output=True, text=True, check=True
    )
    return list(yaml.safe_load_all(done.stdout))


def one(kind: str) -> Any:
    """Return the specification of the one object of a kind."""
    (found,) = [each for each in objects() if each["kind"] == kind]
    return found["spec"]


def pod() -> Any:
    """Return the specification of the daemon's pod."""
    return one("StatefulSet")["template"]["spec"]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_of_its_schema(version: str) -> None:
    """Kubernetes' own schemas know each field, in an older release and in the newest."""
    kinds = set()
    for each in objects():
        kinds.add(each["kind"])
        if each["kind"] != "PodMonitor":
            schemas.validate(each, version, strict=True)
    assert {"StatefulSet", "Service", "PodDisruptionBudget", "NetworkPolicy", "PodMonitor"} <= kinds


def test_every_file_is_put_in() -> None:
    """No manifest lies there unused."""
    files = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml", CONFIG.name}
    assert set(kustomization()["resources"]) == files
    assert kustomization()["configMapGenerator"] == [{"name": "streamnb", "files": [CONFIG.name]}]


def test_the_pod_may_do_as_little_as_possible() -> None:
    """No root, no capabilities, nothing to write but its volumes, no token of the cluster."""
    (container,) = pod()["containers"]
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert pod()["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod()["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory"} <= set(container["resources"]["requests"])
    assert "memory" in container["resources"]["limits"]


def test_it_is_asked_by_its_own_pages() -> None:
    """Start and life are asked of /healthz, readiness of /readyz, at the daemon's port."""
    (container,) = pod()["containers"]
    paths = {
        probe: container[probe]["httpGet"]["path"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert paths == {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }
    assert container["ports"] == [{"name": "http", "containerPort": load(CONFIG, {}).http.port}]
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 120


def test_what_it_learns_lies_on_the_volume() -> None:
    """The checkpoint's folder is below the claim's mount, the configuration where it is read."""
    (container,) = pod()["containers"]
    mounts = {mount["name"]: Path(mount["mountPath"]) for mount in container["volumeMounts"]}
    claims = [each["metadata"]["name"] for each in one("StatefulSet")["volumeClaimTemplates"]]
    folder = load(CONFIG, {}).checkpoint.folder
    assert folder is not None
    assert claims == ["state"]
    assert mounts["state"] in folder.parents
    assert str(mounts["config"] / CONFIG.name) == "/etc/streamnb/config.yaml"


def test_the_services_names_are_answered() -> None:
    """In the cluster the daemon answers under each name of its services, and of one pod."""
    hosts = AllowedHosts(load(CONFIG, {}).http)
    namespace = kustomization()["namespace"]
    services = [each for each in objects() if each["kind"] == "Service"]
    for service in services:
        is_headless = service["spec"].get("clusterIP") == "None"
        name = ("streamnb-0." if is_headless else "") + service["metadata"]["name"]
        for below in ("", f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.cluster.local"):
            header = f"{name}{below}:8100".encode()
            hosts.check({"headers": [(b"host", header)], "http_version": "1.1"})
    assert services


def test_all_of_them_mean_the_same_pods() -> None:
    """Services, budget, network policy and monitor choose the pods that the set makes."""
    made = one("StatefulSet")["template"]["metadata"]["labels"]
    assert made.items() >= LABELS.items()
    assert one("PodDisruptionBudget")["selector"]["matchLabels"] == LABELS
    assert one("NetworkPolicy")["podSelector"]["matchLabels"] == LABELS
    assert one("PodMonitor")["selector"]["matchLabels"] == LABELS
    services = [each for each in objects() if each["kind"] == "Service"]
    assert all(each["spec"]["selector"] == LABELS for each in services)
    headless = [s["metadata"]["name"] for s in services if s["spec"].get("clusterIP") == "None"]
    assert headless == [one("StatefulSet")["serviceName"]]


def test_the_monitor_scrapes_as_the_alerts_expect() -> None:
    """The operator's object has only fields that it knows, and its job is called streamnb."""
    monitor = one("PodMonitor")
    assert set(monitor) == MONITOR
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert set(endpoint) == ENDPOINT
    assert (endpoint["port"], endpoint["path"]) == ("http", "/metrics")
    assert LABELS[monitor["jobLabel"]] == "streamnb"


def test_the_image_is_of_this_version() -> None:
    """The tag is this project's version, never the newest of whatever there is."""
    assert kustomization()["images"] == [{"name": "streamnb", "newTag": __version__}]
