"""No secret that the daemon is given comes out of it: by no log, error, page, file or header."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.broker.secure import KEY_PASSWORD, PASSWORD, USER, SecureBroker
from tests.consumers.kafka.topics import fill
from tests.endtoend.daemon_process import Daemon, command, write_config

TOKEN = "marked-token-0123456789"
WRONG = "marked and wrong"
ENVIRONMENT = {"TOKEN": TOKEN, "KEY_PASSWORD": KEY_PASSWORD}


def configured(
    folder: Path, broker: SecureBroker, topic: str, password: str, port: int = 0
) -> Path:
    """Return a configuration with a secret of each kind, in a folder of its own."""
    folder.mkdir()
    secret = folder.parent / f"{folder.name}.secret"
    secret.write_text(f"{password}\n")
    files = broker.certificates
    return write_config(
        folder / "config.yaml",
        source=f"kafka://{broker.at('SECURE')}/{topic}",
        kafka={
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": USER,
            "sasl_password_file": str(secret),
            "ssl_cafile": str(files.authority),
            "ssl_certfile": str(files.client),
            "ssl_keyfile": str(files.locked_key),
            "ssl_key_password": "${KEY_PASSWORD}",
        },
        http={"port": port, "token": "${TOKEN}"},
        predictions={"to": f"kafka:{topic}-predictions"},
        rejects={"to": f"file:{folder / 'rejects.jsonl'}"},
        corrections={"to": f"kafka:{topic}-labels"},
        checkpoint={"folder": str(folder / "state"), "interval_s": 0.1},
    )


def asked(address: str, path: str, token: str | None = None, body: bytes | None = None) -> str:
    """Return an answer, status, head and body together."""
    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(address + path, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return f"{answer.status}\n{answer.headers}\n{answer.read().decode()}"
    except urllib.error.HTTPError as error:
        with error:
            return f"{error.code}\n{error.headers}\n{error.read().decode()}"


def everything_said(daemon: Daemon) -> str:
    """Return what every page of a daemon answers, and what it answers to refused requests."""
    routes = json.loads(daemon.get("/openapi.json")[1])["paths"]
    pages = [path for path, methods in routes.items() if "get" in methods and "{" not in path]
    pages = [*pages, "/", "/docs", "/openapi.json", "/config", "/v1/messages/0"]
    texts = [asked(daemon.address, path) for path in pages if path != "/v1/events"]
    label = b'{"id": "1", "label": "positive"}'
    for token, body in ((None, label), (WRONG, label), (TOKEN[:-1], label), (TOKEN, b"{")):
        texts.append(asked(daemon.address, "/v1/labels", token, body))
    right = asked(daemon.address, "/v1/labels", TOKEN, label)
    assert right.startswith("202")  # the token is the right one
    return "\n".join([*texts, right])


@pytest.mark.deep
@pytest.mark.slow
def test_no_secret_comes_out(secure_broker: SecureBroker, tmp_path: Path) -> None:
    """A daemon that works, one that is refused, one that crashes: none shows a secret."""
    topic = "secrets"
    for suffix in ("", "-predictions", "-labels"):
        secure_broker.create_topic(f"{topic}{suffix}")
    messages = [{"id": str(i), "text": f"so {i}", "label": "04"[i % 2]} for i in range(20)]
    messages += [{"id": "u", "text": "who knows"}, {"id": "r", "text": "x", "label": "?"}]
    fill(secure_broker.address, topic, [json.dumps(each).encode() for each in messages])
    said = []
    config = configured(tmp_path / "right", secure_broker, topic, PASSWORD)
    with Daemon(config, env=ENVIRONMENT) as daemon:
        daemon.until_metric("streamnb_messages_total", 20)
        daemon.until((config.parent / "state/model.nb").exists, "a checkpoint")
        daemon.until_page("/v1/messages/1", 200)
        daemon.until_it_takes_corrections()
        said.append(everything_said(daemon))
        assert daemon.stop() == 0
        said += [json.dumps(daemon.lines), daemon.output.decode()]

    refused = configured(tmp_path / "wrong", secure_broker, topic, WRONG)
    with Daemon(refused, env=ENVIRONMENT) as daemon:
        trouble = daemon.until_page("/readyz", 503, "Authentication failed")
        said += [json.dumps(trouble), asked(daemon.address, "/metrics")]
        daemon.kill()
        said.append(json.dumps(daemon.lines))

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        crashing = configured(tmp_path / "crash", secure_broker, topic, WRONG, port)
        env = {**ENVIRONMENT, "STREAMNB_DEBUG": "1"}
        for run in (
            command("check-config", "--config", config, folder=tmp_path, env=env),
            command("run", "--config", crashing, folder=tmp_path, env=env),
            command("inspect", "right/state", folder=tmp_path, env=env),
        ):
            said.append((run.stdout + run.stderr).decode())
    assert "Traceback" in "".join(said)

    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".secret"]
    assert {"model.nb", "recent.db", "rejects.jsonl"} <= {path.name for path in files}
    shown = "\n".join([*said, *(path.read_bytes().decode("latin-1") for path in files)])
    for secret in (PASSWORD, KEY_PASSWORD, TOKEN, WRONG):
        assert secret not in shown
