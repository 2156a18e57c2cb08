"""What a start meets: no daemon's packages, versions, ports, large settings, a page that opens."""

from __future__ import annotations

import json
import os
import threading
import tomllib
import webbrowser
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from consumers.__main__ import EXIT_CONFIG
from consumers.config.settings import Settings, load
from consumers.errors import ConfigError
from consumers.http import server
from consumers.process import DAEMON
from streamnb import __version__
from tests.endtoend.daemon_process import ROOT, Daemon, command, write_config
from tests.hidden_packages import run_without

LEARN = """
import streamnb as nb
model = nb.NaiveBayes(classes=["a", "b"], features={"text": nb.Words(nb.Bernoulli())})
model.learn_one({"text": "x y"}, "a")
nb.save(model, sys.argv[1])
print(nb.load(sys.argv[1]))
"""


def test_the_library_needs_none_of_the_daemon_s_packages(tmp_path: Path) -> None:
    """Without them, and without river and scikit-learn, a model learns and is saved."""
    done = run_without([*DAEMON, "river", "sklearn", "pandas"], LEARN, tmp_path / "m.nb")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "m.nb").exists()


@pytest.mark.parametrize("words", [["run"], ["predict", "x"], ["--help"], ["version"], []])
def test_without_the_daemon_s_packages_a_command_says_what_to_install(words: list[str]) -> None:
    """It is one line, and the exit code of a missing configuration; there is no traceback."""
    code = "from consumers.__main__ import main; main()"
    done = run_without(["typer", "msgspec"], code, *words)
    assert done.returncode == EXIT_CONFIG == ConfigError.exit_code
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "(msgspec, typer)" in line
    assert line.endswith("pip install 'streamnb[daemon]'")


def test_without_the_daemon_s_packages_the_version_is_told() -> None:
    """It is the library's, which is all that is there."""
    code = "from consumers.__main__ import main; main()"
    done = run_without(["typer", "msgspec"], code, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"streamnb {__version__}\n"


def test_the_guard_knows_the_daemon_s_packages() -> None:
    """What it looks for is what the extra `daemon` brings."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra = {
        name.split(">")[0].split("[")[0] for name in project["optional-dependencies"]["daemon"]
    }
    assert extra == set(DAEMON.values())
    library = {name.split(">")[0] for name in project["dependencies"]}
    assert library == {"numpy", "numba", "narwhals", "safetensors", "scipy"}


def test_version(tmp_path: Path) -> None:
    """`--version` prints one line."""
    done = command("--version", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() in {
        f"streamnb {__version__}\n",
        "streamnb from its source folder, not installed\n",
    }


def test_the_command_line_s_port_wins(tmp_path: Path) -> None:
    """`--port` takes the place of `http.port`, and leaves the section's other keys."""
    path = tmp_path / "config.yaml"
    path.write_text("http: {port: 1, stuck_after_s: 45}\n", encoding="utf-8")
    http = load(path, {}, {"http.port": 8123}).http
    assert (http.port, http.stuck_after_s) == (8123, 45)
    assert load(None, {}, {"http.port": 8123}).http.port == 8123
    path.write_text("http: 8100\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="http"):
        load(path, {}, {"http.port": 8123})


def test_a_run_is_summed_up(tmp_path: Path) -> None:
    """Learned, judged, deleted and rejected are all messages; the checkpoint's path is told."""
    lines = [json.dumps({"id": i, "text": f"w{i}", "label": "positive"}) for i in range(5)]
    lines += [json.dumps({"id": 9, "text": "w"}), "no json"]
    lines += [json.dumps({"id": 3, "operation": "delete"})]
    (tmp_path / "in.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    config = write_config(
        tmp_path / "config.yaml",
        source=f"file:{tmp_path / 'in.jsonl'}",
        checkpoint={"folder": str(tmp_path / "state")},
    )
    with Daemon(config, "--until-end", "--port", "0", "--open", env={"DISPLAY": ""}) as daemon:
        assert daemon.wait() == 0
        said = daemon.summary
    rejected = sum(said["rejected"].values())
    assert (said["learned"], said["judged"], said["deletions"], rejected) == (5, 1, 1, 1)
    assert said["messages"] == 8
    assert said["checkpoint"] == str(tmp_path / "state" / "model.nb")
    assert Path(said["checkpoint"]).exists()


@pytest.fixture
def page() -> Iterator[str]:
    """Serve a page that answers everything."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer."""
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_words: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://0.0.0.0:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_page_opens_once_it_answers(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The browser gets an address that it can reach."""
    opened: list[str] = []
    done = threading.Event()

    def note(address: str) -> bool:
        opened.append(address)
        done.set()
        return True

    monkeypatch.setattr(webbrowser, "open", note)
    server.open_page(page, {"DISPLAY": ":0"})
    assert done.wait(60.0)
    assert opened == [page.replace("0.0.0.0", "127.0.0.1")]


def test_the_page_opens_past_a_proxy(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy for the world outside is not asked for a page of this machine."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    test_the_page_opens_once_it_answers(page, monkeypatch)


def test_without_a_screen_the_page_s_address_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """No browser is looked for: one of the terminal would take the daemon's screen."""
    monkeypatch.setattr(webbrowser, "open", lambda _address: pytest.fail("a browser was opened"))
    with capture_logs() as lines:
        server.open_page("http://127.0.0.1:8100", {})
        server.open_page(None, dict(os.environ))
    assert ["8100" in line["detail"] for line in lines] == [True, False]


Where = tuple[str, ...]
SCHEMA = Settings.model_json_schema()


def numbers(node: dict[str, Any], where: Where = ()) -> Iterator[tuple[Where, dict[str, Any]]]:
    """Yield each setting below a node of the schema that is a number, with what is said of it."""
    if "$ref" in node:
        node = SCHEMA["$defs"][node["$ref"].rpartition("/")[2]]
    for each in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from numbers(each, where)
    if node.get("type") in ("integer", "number") and "enum" not in node:
        yield where, node
    for key, each in node.get("properties", {}).items():
        yield from numbers(each, (*where, key))
    if isinstance(node.get("additionalProperties"), dict):
        yield from numbers(node["additionalProperties"], (*where, "*"))


def largest(node: dict[str, Any]) -> float | None:
    """Return the largest number that is allowed; None if the schema has no bound."""
    if "exclusiveMaximum" not in node:
        found: float | None = node.get("maximum")
        return found
    above: float = node["exclusiveMaximum"]
    return above - 1 if node["type"] == "integer" else above * (1 - 1e-9)


def test_every_number_has_an_upper_bound_that_what_uses_it_can_take() -> None:
    """A thread waits for 292 years at most, and counts have 64 bits with a sign."""
    free = set()
    for where, node in numbers(SCHEMA):
        most = largest(node)
        if most is None:
            free.add((where[0], where[-1] if where[-1] != "*" else where[-2]))
        else:
            limit = threading.TIMEOUT_MAX if where[-1].endswith("_s") else (1 << 63) - 1
            assert most <= limit, where
    # Their bounds are of the library: `between` and `pseudo_count`, which the schema cannot show.
    priors = {"alpha", "prior_alpha", "prior_beta", "prior_kappa", "prior_mean", "variance_floor"}
    priors |= {"alpha_by_class", "alpha_by_value", "class_prior"}
    kinds = {(section, key) for section in ("model", "challengers") for key in priors}
    assert free <= kinds | {("model", "costs"), ("model", "*")}


@pytest.mark.parametrize(
    "more",
    [
        {"challengers": {"a": {}}, "labelling": {"enabled": True}, "alerts": {"queries": [""]}},
        {"per": {"field": "lang"}, "learning": {"publish": "examples"}},
    ],
)
def test_a_daemon_runs_with_the_largest_values_of_all_numbers(
    tmp_path: Path, more: dict[str, dict[str, Any]]
) -> None:
    """What a setting allows ends in no error of the interpreter or of a library."""
    sections: dict[str, Any] = {"checkpoint": {"folder": str(tmp_path / "state")}, **more}
    sections |= {"message": {"fields": ["text", "lang"]}, "drift": {"enabled": True}}
    sections["generator"] = {"labelled_share": 0.7}
    for where, node in numbers(SCHEMA):
        most = largest(node)
        if len(where) > 1 and "*" not in where and where[0] != "labels" and most is not None:
            *path, key = where
            section = sections
            for each in path:
                section = section.setdefault(each, {})
            section.setdefault(key, most)
    sections["http"]["port"] = 0
    del sections["model"]["half_life_s"], sections["model"]["prior_half_life"]
    # Replicas that change over together must have looked by then.
    sections["follow"]["interval_s"] = sections["follow"]["switch_after_s"] / 2
    config = write_config(tmp_path / "config.yaml", source="generator", **sections)
    with Daemon(config, "--max-messages", "3000") as daemon:
        assert daemon.wait() == 0
        assert daemon.summary["messages"] == 3_000
        assert daemon.summary["judged"] > 0
        assert not [line for line in daemon.lines if line.get("level") == "error"]
