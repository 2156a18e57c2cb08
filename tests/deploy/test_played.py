"""Image, compose and Kubernetes, played with processes: no engine and no cluster, but all they say.

The image is built from its Dockerfile in a folder. Commands, environment, mounts, users, read-only
file systems and probes are those of the files in `deploy/`; they are read, not repeated. Kafka and
Prometheus are those of this machine, in place of their images, and Grafana does not take part.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamnb.storage import read
from tests.broker.broker import HERE as BROKER
from tests.broker.broker import LOGGING, READY_LINE
from tests.deploy.built_image import Image, built, require_parts, unpack
from tests.deploy.containers import Container, Mount, Network, Plan
from tests.deploy.metric_names import rules
from tests.deploy.prometheus_server import require_prometheus
from tests.deploy.test_images import COMPOSE, DEPLOY, services
from tests.deploy.test_kubernetes import CONFIG, one, pod
from tests.deploy.test_kubernetes_replicas import replica
from tests.kafka_fixtures import require_parts as require_broker

pytestmark = [pytest.mark.deep, pytest.mark.slow, pytest.mark.timeout(900)]
STATE = "/var/lib/streamnb"
ALWAYS_EMPTY = "0000000000000000"  # of rights
SECRET = {"STREAMNB_TOKEN": "of-sixteen-characters"}
# As README says of corrections: the secret is made, and the hash taken away.
WITH_TOKEN = {r"^  # (token: .*)$": r"  \1"}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Return a folder that is removed at once, with all that services have written."""
    require_parts()
    namespaces = ["unshare", "--mount", "--net", "--pid", "--fork", "true"]
    if subprocess.run(namespaces, capture_output=True, check=False).returncode != 0:
        pytest.skip("the kernel gives no namespaces here")
    with tempfile.TemporaryDirectory(prefix="played-") as made:
        yield Path(made)


@pytest.fixture(scope="module")
def image() -> Image:
    """Return the image, with its kernels compiled."""
    return built()


@pytest.fixture(scope="module")
def debian(folder: Path) -> Path:
    """Return what Kafka and Prometheus run in."""
    root = folder / "debian"
    unpack(f"python:{base_tag()}", root)
    return root


def base_tag() -> str:
    """Return the tag of the image that ours begins with."""
    text = (DEPLOY / "docker" / "Dockerfile").read_text(encoding="utf-8")
    (tag,) = re.findall(r"^ARG PYTHON=(.*)$", text, re.MULTILINE)
    return str(tag)


def volume(path: Path, owner: tuple[int, int], mode: int = 0o700) -> Path:
    """Return a folder for a volume, of the owner that whoever writes there is."""
    path.mkdir()
    os.chown(path, *owner)
    path.chmod(mode)
    return path


def set_in(environment: Mapping[str, str | None]) -> dict[str, str]:
    """Return the variables that have a value; those without have none where compose is called."""
    return {name: value for name, value in environment.items() if value is not None}


def ids(user: str) -> tuple[int, int]:
    """Return the two numbers of `UID:GID`."""
    uid, _, gid = user.partition(":")
    return int(uid), int(gid)


def check_rights(container: Container, user: str) -> None:
    """Fail if it is not process 1, is another user, or has or could gain a right."""
    status = container.status()
    assert status["NSpid"].split()[-1] == "1"
    assert (int(status["Uid"].split()[0]), int(status["Gid"].split()[0])) == ids(user)
    assert [status[name] for name in ("CapEff", "CapPrm", "CapBnd")] == [ALWAYS_EMPTY] * 3
    assert status["NoNewPrivs"] == "1"
    assert container.run("touch", "/opt/streamnb/something") != 0
    assert container.run("touch", "/etc/streamnb/config.yaml") != 0
    assert container.run("touch", "/tmp/something") == 0


def test_the_image_runs_as_its_dockerfile_says(image: Image, tmp_path: Path) -> None:
    """Its command as its user on a read-only root, until its own health check is content."""
    user = image.said["USER"]
    state = volume(tmp_path / "state", ids(user))
    mounts = [Mount(image.said["VOLUME"], state), Mount("/tmp")]
    plan = image.plan(environment={}, mounts=mounts, is_read_only=True)
    with Network(tmp_path) as network, Container("streamnb", plan, network) as container:
        assert (image.root / STATE[1:]).stat().st_mode & 0o777 == 0o700
        container.until(lambda: container.run(*image.health_check()) == 0, "it is well")
        check_rights(container, user)
        container.until_page("http://127.0.0.1:8100/readyz")
        assert "compil" not in container.said  # the image's own kernels are found
        stop = signal.Signals[image.said["STOPSIGNAL"]]
        assert container.stop(stop) == 0, container.said[-2000:]
    assert read(state / "state" / "model.nb").model.n_examples > 0


class Compose:
    """The services of compose on one network, each with its mounts, command and environment."""

    def __init__(self, folder: Path, image: Image, debian: Path, network: Network) -> None:
        self._folder, self._image, self._debian, self._network = folder, image, debian, network
        self._file = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))

    def _mounts(self, service: dict[str, Any], owner: tuple[int, int]) -> list[Mount]:
        found = [Mount(target) for target in service.get("tmpfs", ())]
        for each in service.get("configs", ()):
            source = DEPLOY / self._file["configs"][each["source"]]["file"]
            found.append(Mount(each["target"], source, is_read_only=True))
        for each in service.get("volumes", ()):
            source, target, *how = each.split(":")
            if source in self._file["volumes"]:
                found.append(Mount(target, volume(self._folder / source, owner)))
            else:
                found.append(Mount(target, (DEPLOY / source).resolve(), how == ["ro"]))
        # What lies in another mount is mounted after it.
        return sorted(found, key=lambda each: len(each.target))

    def ours(self, name: str) -> Container:
        """Start a service that runs our image."""
        service = services()[name]
        plan = self._image.plan(
            *service.get("command", ()),
            environment=set_in(service.get("environment", {})),
            mounts=self._mounts(service, ids(self._image.said["USER"])),
            is_read_only=service["read_only"],
        )
        return Container(name, plan, self._network)

    def kafka(self) -> Container:
        """Start the tests' Kafka with the environment of compose, as its image reads that."""
        require_broker()
        service, owner = services()["kafka"], (1000, 1000)
        settings = volume(self._folder / "settings", owner)
        properties = {
            name.removeprefix("KAFKA_").replace("_", ".").lower(): value
            for name, value in service["environment"].items()
        }
        lines = [f"{name}={value}\n" for name, value in properties.items()]
        (settings / "server.properties").write_text("".join(lines), encoding="utf-8")
        (settings / "log4j2.properties").write_text(LOGGING, encoding="utf-8")
        for each in settings.iterdir():
            each.chmod(0o644)
        settings.chmod(0o755)
        java = Path(str(shutil.which("java"))).resolve()
        # Debian's Java has links that lead to its settings.
        own_settings = Path("/etc") / re.sub(r"-[^-]*$", "", java.parents[1].name)
        mounts = [
            *self._mounts(service, owner),
            Mount(str(java.parents[1]), java.parents[1], is_read_only=True),
            Mount("/opt/kafka", (BROKER / "libs").resolve(), is_read_only=True),
            Mount("/mnt", settings, is_read_only=True),
            Mount("/tmp"),
        ]
        if own_settings.is_dir():
            mounts.append(Mount(str(own_settings), own_settings, is_read_only=True))
        options = (
            "-Xmx512m -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile=/mnt/log4j2.properties"
        )
        run = f"{java} {options} -cp '/opt/kafka/*'"
        own = "/mnt/server.properties"
        tool = f"{run} kafka.tools.StorageTool format --ignore-formatted -c {own}"
        tool += " -t c3RyZWFtbmItdGVzdHMtMQ"
        command = ["/bin/sh", "-c", f"{tool} && exec {run} kafka.Kafka {own}"]
        plan = Plan(self._debian, command, {}, user="1000:1000", mounts=mounts)
        return Container("kafka", plan, self._network)

    def prometheus(self) -> Container:
        """Start Debian's Prometheus with the command of compose."""
        require_prometheus()
        service, program = services()["prometheus"], Path(str(shutil.which("prometheus")))
        mounts = [
            *self._mounts(service, (65534, 65534)),
            Mount("/bin/prometheus", program, is_read_only=True),
        ]
        plan = Plan(
            self._debian, ["/bin/prometheus", *service["command"]], {}, "/prometheus",
            "65534:65534", mounts, service["read_only"],
        )  # fmt: skip
        return Container("prometheus", plan, self._network)


def test_the_services_of_compose_work_together(
    image: Image, debian: Path, folder: Path, tmp_path: Path
) -> None:
    """What the replayer plays into Kafka the daemon learns, and Prometheus sees it."""
    at = Path(tempfile.mkdtemp(dir=folder))
    with Network(tmp_path, list(services())) as network, ExitStack() as stack:
        compose = Compose(at, image, debian, network)
        kafka = stack.enter_context(compose.kafka())
        kafka.until(lambda: READY_LINE in kafka.said, "Kafka is there")
        replayer = stack.enter_context(compose.ours("replayer"))
        daemon = stack.enter_context(compose.ours("streamnb"))
        prometheus = stack.enter_context(compose.prometheus())
        daemon.until(lambda: daemon.run(*image.health_check()) == 0, "it is well")
        check_rights(daemon, image.said["USER"])
        check_rights(replayer, image.said["USER"])

        def value(expression: str) -> float:
            query = urllib.parse.urlencode({"query": expression})
            status, body = network.get(f"http://127.0.0.1:9090/api/v1/query?{query}")
            found = json.loads(body)["data"]["result"] if status == 200 else []
            return float(found[0]["value"][1]) if found else 0.0

        prometheus.until(lambda: value('up{job="streamnb"}') == 1, "the daemon is scraped")
        prometheus.until(lambda: value("sum(streamnb_messages_total)") > 0, "it has learned")
        groups = json.loads(prometheus.until_page("http://127.0.0.1:9090/api/v1/rules"))
        assert sum(len(each["rules"]) for each in groups["data"]["groups"]) == len(rules())
        assert b"## StreamnbDown" in prometheus.until_page("http://127.0.0.1:9090/user/runbook.md")
        assert daemon.stop() == 0, daemon.said[-2000:]
        assert prometheus.stop() == 0
    stored = read(at / "state" / "state" / "model.nb")
    assert stored.model.n_examples > 0
    assert {name.partition("/")[0] for name in stored.positions} == {"tweets"}
    assert list((at / "kafka").glob("tweets-*"))  # on its volume, so that it outlives a container
    assert list((at / "prometheus").iterdir())


class Pod:
    """A pod of Kubernetes: its one container, and how its kubelet asks for it.

    `sources` says for each of the pod's volumes what lies there, or None for an empty one.
    """

    def __init__(self, spec: dict[str, Any], sources: Mapping[str, Path | None]) -> None:
        (self._container,) = spec["containers"]
        self._sources = sources
        rules_ = spec["securityContext"]
        self.user = f"{rules_['runAsUser']}:{rules_['runAsGroup']}"
        self.grace_s = float(spec["terminationGracePeriodSeconds"])

    def plan(self, image: Image) -> Plan:
        """Return how its container is run."""
        container = self._container
        mounts = [
            Mount(each["mountPath"], self._sources[each["name"]], each.get("readOnly", False))
            for each in container["volumeMounts"]
        ]
        assert [each["secretRef"]["name"] for each in container["envFrom"]] == ["streamnb"]
        return image.plan(
            *container.get("args", ()),
            environment=SECRET,
            mounts=mounts,
            user=self.user,
            is_read_only=container["securityContext"]["readOnlyRootFilesystem"],
        )

    def probe(self, name: str, network: Network, host: str | None = None) -> int:
        """Return the status that a probe finds."""
        (port,), asked = self._container["ports"], self._container[name]["httpGet"]
        assert asked["port"] == port["name"]
        address = f"http://127.0.0.1:{port['containerPort']}{asked['path']}"
        return network.get(address, host)[0]


def config_map(folder: Path, changed: Mapping[str, str]) -> Path:
    """Write the configuration of both pods, with hashes taken away and other lines changed."""
    text = CONFIG.read_text("utf-8")
    for pattern, line in changed.items():
        text, n_changed = re.subn(pattern, line, text, flags=re.MULTILINE)
        assert n_changed == 1, pattern
    folder.mkdir()
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    return folder


def claim(folder: Path) -> dict[str, Path | None]:
    """Return the daemon's volumes: that of its claim belongs to root and to fsGroup."""
    (wanted,) = one("StatefulSet")["volumeClaimTemplates"]
    made = volume(folder, (0, pod()["securityContext"]["fsGroup"]), 0o2775)
    return {wanted["metadata"]["name"]: made, "tmp": None}


def test_the_pod_of_kubernetes_passes_its_probes(
    image: Image, debian: Path, folder: Path, tmp_path: Path
) -> None:
    """With its configuration, secret, volumes and user; its broker is that of compose."""
    at = Path(tempfile.mkdtemp(dir=folder))
    played = Pod(pod(), claim(at / "claim") | {"config": config_map(at / "config", WITH_TOKEN)})
    with (
        Network(tmp_path, [*services(), "kafka.kafka.svc"]) as network,
        Compose(at, image, debian, network).kafka() as kafka,
    ):
        kafka.until(lambda: READY_LINE in kafka.said, "Kafka is there")
        with Container("pod", played.plan(image), network) as daemon:
            daemon.until(lambda: played.probe("startupProbe", network) == 200, "it has started")
            daemon.until(lambda: played.probe("livenessProbe", network) == 200, "it lives")
            daemon.until(lambda: played.probe("readinessProbe", network) == 200, "it is ready")
            for host, status in (
                ("streamnb.streamnb.svc:8100", 200),
                ("streamnb-0.streamnb-pods:8100", 200),
                ("elsewhere.example.org", 403),
            ):
                assert played.probe("readinessProbe", network, host) == status
            check_rights(daemon, played.user)
            assert SECRET["STREAMNB_TOKEN"] not in daemon.said
            assert daemon.stop(grace_s=played.grace_s) == 0, daemon.said[-2000:]
    assert (at / "claim" / "state" / "model.nb").is_file()


def test_the_pod_of_a_replica_follows_the_daemon_s(
    image: Image, folder: Path, tmp_path: Path
) -> None:
    """Each on a network of its own: it is ready by the daemon's version, and answers without it."""
    at = Path(tempfile.mkdtemp(dir=folder))
    # As README says of replicas; and a stream that ends, so that there is a last version.
    changed = WITH_TOKEN | {
        r"^  # (snapshots: true)$": r"  \1",
        r"^source: .*$": "source: file:/etc/streamnb/messages.jsonl",
    }
    config = config_map(at / "config", changed)
    lines = [
        json.dumps({"id": str(i), "text": f"{word} day", "label": label}) + "\n"
        for i, (word, label) in enumerate((("sunny", "positive"), ("awful", "negative")) * 50)
    ]
    (config / "messages.jsonl").write_text("".join(lines), encoding="utf-8")
    theirs = Pod(pod(), claim(at / "claim") | {"config": config})
    ours = Pod(replica(), {"config": config, "tmp": None})
    for name in ("theirs", "ours"):
        (tmp_path / name).mkdir()
    asked = json.dumps({"texts": ["a sunny day", "an awful day"]}).encode()

    def answer(network: Network) -> dict[str, Any]:
        status, body = network.get("http://127.0.0.1:8100/v1/predict", body=asked)
        found: dict[str, Any] = json.loads(body) if status == 200 else {}
        return found

    with Network(tmp_path / "theirs") as network, Network(tmp_path / "ours") as own:
        own.reach(network, ["streamnb-0.streamnb-pods"])
        with Container("replica", ours.plan(image), own) as follower:
            follower.until(lambda: ours.probe("startupProbe", own) == 200, "it has started")
            assert ours.probe("readinessProbe", own) == 503  # there is no version yet
            with Container("daemon", theirs.plan(image), network) as daemon:
                daemon.until(lambda: answer(network).get("n_examples") == 100, "all is learned")
                follower.until(lambda: ours.probe("readinessProbe", own) == 200, "it is ready")
                follower.until(lambda: answer(own) == answer(network), "it has the version")
                last = answer(own)
                assert daemon.stop(grace_s=theirs.grace_s) == 0, daemon.said[-2000:]
            assert [each["label"] for each in last["predictions"]] == ["positive", "negative"]
            found = answer(own)  # the daemon publishes once more when it ends
            assert (found["predictions"], found["n_examples"]) == (last["predictions"], 100)
            for name in ("livenessProbe", "readinessProbe"):
                assert ours.probe(name, own, "streamnb-replica.streamnb.svc") == 200
            check_rights(follower, ours.user)
            assert SECRET["STREAMNB_TOKEN"] not in follower.said + daemon.said
            assert follower.stop(grace_s=ours.grace_s) == 0, follower.said[-2000:]
