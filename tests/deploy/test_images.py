"""The image and the services of compose: what can be said of them without a container running."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from consumers.config.settings import load
from consumers.http.requests import AllowedHosts
from tests.deploy.prometheus_server import ROOT

DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
COMPOSE = DEPLOY / "compose.yaml"


def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions, one line each."""
    text = DOCKERFILE.read_text(encoding="utf-8")
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    return [
        (name, rest)
        for line in joined.splitlines()
        if line.strip()
        for name, _, rest in [line.partition(" ")]
    ]


def last_stage() -> list[tuple[str, str]]:
    """Return the instructions of the image that is left in the end."""
    every = instructions()
    start = max(i for i, (name, _) in enumerate(every) if name == "FROM")
    return every[start:]


def last(name: str) -> str:
    """Return what the image's last instruction of a name says."""
    return [rest for each, rest in last_stage() if each == name][-1]


def services() -> dict[str, Any]:
    """Return the services of compose."""
    text = COMPOSE.read_text(encoding="utf-8")
    every: dict[str, Any] = yaml.safe_load(text)["services"]
    return every


def test_hadolint_finds_nothing() -> None:
    """The linter of Dockerfiles has nothing to say."""
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_every_file_that_is_copied_is_there_and_let_through() -> None:
    """Sources of COPY exist, and the list of what goes into the build lets them pass."""
    ignore = (DEPLOY / "docker" / "Dockerfile.dockerignore").read_text(encoding="utf-8")
    allowed = {line[1:] for line in ignore.splitlines() if line.startswith("!")}
    copied = {
        source
        for name, rest in instructions()
        if name == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    assert copied == allowed
    assert all((ROOT / source).exists() for source in copied)


def test_the_image_runs_without_root_and_can_be_asked() -> None:
    """A numbered user, the signal that ends with a checkpoint, a health check, its own port."""
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", last("USER"))
    assert last("STOPSIGNAL") == "SIGTERM"
    assert "http://127.0.0.1:8100/healthz" in last("HEALTHCHECK")
    assert last("EXPOSE") == str(load(DEPLOY / "docker" / "config.yaml", {}).http.port)


def test_the_image_is_asked_past_a_proxy() -> None:
    """A container may have a proxy for the world outside; what it asks of itself stays in it."""
    asked = []

    class Daemon(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            pass

    program, *arguments = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    assert program == "python"
    environment = dict.fromkeys(("http_proxy", "HTTP_PROXY"), "http://127.0.0.1:1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Daemon) as daemon:
        threading.Thread(target=daemon.serve_forever, daemon=True).start()
        own = [each.replace(":8100/", f":{daemon.server_port}/") for each in arguments]
        subprocess.run([sys.executable, *own], check=True, env=environment)
        daemon.shutdown()
    assert asked == ["/healthz"]


def test_the_daemon_is_the_first_process() -> None:
    """It is started without a shell, which would keep the signal to itself."""
    assert json.loads(last("ENTRYPOINT")) == ["streamnb"]
    assert json.loads(last("CMD"))[0] == "run"


def test_kernels_are_found_under_the_name_they_were_compiled_for() -> None:
    """Both stages name one processor and one folder: else every start would compile again."""
    text = DOCKERFILE.read_text(encoding="utf-8")
    assert len(re.findall(r"NUMBA_CPU_NAME=\$\{KERNELS_CPU\}", text)) == 2
    assert len(re.findall(r"STREAMNB_CACHE_DIR=/opt/streamnb/kernels", text)) == 2
    assert "ARG KERNELS_CPU=generic" in text


def test_what_is_learned_lies_in_the_volume() -> None:
    """The checkpoint's folder of the image's own configuration is below its volume."""
    folder = load(DEPLOY / "docker" / "config.yaml", {}).checkpoint.folder
    assert folder is not None
    assert Path(last("VOLUME")) in folder.parents


def test_compose_is_of_its_schema() -> None:
    """Each key is one that the Compose specification knows."""
    schema = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.validate(
        yaml.safe_load(COMPOSE.read_text(encoding="utf-8")),
        json.loads(schema.read_text(encoding="utf-8")),
    )


def test_every_image_has_its_version() -> None:
    """No image is whatever is newest on the day; Kafka's is the one that the tests talk to."""
    images = {name: service["image"] for name, service in services().items()}
    ours = {name for name, image in images.items() if image == "streamnb"}
    assert ours == {"streamnb", "replayer"}
    for name in images.keys() - ours:
        assert re.search(r":v?\d+\.\d+\.\d+$", images[name]), name
    pom = (ROOT / "tests" / "broker" / "pom.xml").read_text(encoding="utf-8")
    assert f"<version>{images['kafka'].partition(':')[2]}</version>" in pom
    assert re.search(r"^ARG PYTHON=3\.11-slim-\w+$", DOCKERFILE.read_text("utf-8"), re.MULTILINE)


def test_nothing_listens_beyond_this_machine() -> None:
    """Every port is bound to loopback; the page, Prometheus and Grafana have one each."""
    ports = [port for service in services().values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert {port.rpartition(":")[2] for port in ports} == {"8100", "9090", "3000"}


def test_every_file_that_is_mounted_is_there() -> None:
    """Bind mounts, configurations and the build lead to files of the project."""
    composed = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    mounts = [
        volume.partition(":")[0]
        for service in services().values()
        for volume in service.get("volumes", [])
        if volume.startswith(".")
    ]
    made = [each["file"] for each in composed["configs"].values()]
    assert mounts
    assert all((DEPLOY / each).exists() for each in [*mounts, *made])
    named = {
        volume.partition(":")[0] for s in services().values() for volume in s.get("volumes", [])
    } - set(mounts)
    assert named == set(composed["volumes"])
    build = services()["streamnb"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DOCKERFILE


@pytest.mark.parametrize("name", ["streamnb", "replayer"])
def test_ours_cannot_write_but_where_they_should(name: str) -> None:
    """The root file system is read-only and nothing can be gained."""
    service = services()[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_replayer_and_daemon_mean_the_same_topic() -> None:
    """What is played is what is read, from the broker that compose starts."""
    source = load(DEPLOY / "compose.config.yaml", {}).source
    command = services()["replayer"]["command"]
    assert command[:4] == ["replay", "generator", "--to", source]
    assert source.startswith("kafka://kafka:9092/")


def test_replayer_and_daemon_are_given_the_token_of_their_configuration(tmp_path: Path) -> None:
    """With the hash taken away as it says, both services know the variable, and both can start."""
    text = (DEPLOY / "compose.config.yaml").read_text(encoding="utf-8")
    assert text.count("# token:") == 1
    path = tmp_path / "config.yaml"
    path.write_text(text.replace("# token:", "token:"), encoding="utf-8")
    for name in ("streamnb", "replayer"):
        token = "0123456789abcdef"
        given = dict.fromkeys(services()[name].get("environment", {}), token)
        assert load(path, given).http.bearer_token == token


def test_prometheus_asks_by_a_name_that_is_answered() -> None:
    """The name by which Prometheus scrapes the daemon is one of its own."""
    http = load(DEPLOY / "compose.config.yaml", {}).http
    (group,) = yaml.safe_load((DEPLOY / "prometheus" / "targets.compose.yml").read_text())
    for target in group["targets"]:
        AllowedHosts(http).check({"headers": [(b"host", target.encode())], "http_version": "1.1"})


def test_whoever_opens_grafana_may_look_and_not_change() -> None:
    """There is no account, no form to log in by, and no right but to see."""
    environment = services()["grafana"]["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ENABLED"] == "true"
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
