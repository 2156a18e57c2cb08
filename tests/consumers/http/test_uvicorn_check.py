"""What is overridden of uvicorn's is looked at before anything is served."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from prometheus_client import CollectorRegistry
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from consumers.errors import ConfigError
from consumers.http import connection
from consumers.http.connection import UVICORN, BoundedConfig, BoundedConnection, check_uvicorn
from consumers.monitoring.metrics import HttpMetrics

PROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"


@pytest.fixture
def config() -> BoundedConfig:
    """Return what a server would serve with."""
    made = BoundedConfig(lambda: None, HttpMetrics(CollectorRegistry()), 1.0, 10)
    made.load()
    return made


def test_the_installed_uvicorn_fits(config: BoundedConfig) -> None:
    """Nothing is missing in the version that is installed."""
    check_uvicorn(config)


def test_the_versions_are_those_of_the_project() -> None:
    """The way out that an error names is what the project asks for, and has an upper bound."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    assert UVICORN in project["optional-dependencies"]["daemon"]
    assert "<" in UVICORN


def test_all_that_is_overridden_is_looked_at() -> None:
    """Each method that shadows one of uvicorn's is in the table of what is checked."""
    shadowing = {
        name
        for name, value in vars(BoundedConnection).items()
        if inspect.isfunction(value) and hasattr(HttpToolsProtocol, name)
    }
    assert shadowing <= connection._METHODS.keys()


@pytest.mark.parametrize("name", [each for each in connection._METHODS if each != "__init__"])
def test_a_method_that_has_gone_or_changed_is_told(
    name: str, config: BoundedConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the method, the version that is there and the ways out."""
    with monkeypatch.context() as patched:
        patched.setattr(HttpToolsProtocol, name, lambda _self, _one, _two, _three: None)
        with pytest.raises(ConfigError, match=rf"{name}.* _two.*http\.enabled: false"):
            check_uvicorn(config)
    monkeypatch.delattr(HttpToolsProtocol, name)
    said = rf"uvicorn {uvicorn.__version__} .*{name} is not there.* Install {UVICORN}"
    with pytest.raises(ConfigError, match=said):
        check_uvicorn(config)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        *((HttpToolsProtocol, name) for name in connection._OF_A_CONNECTION),
        *((RequestResponseCycle, name) for name in connection._OF_A_REQUEST),
        (FlowControl, "write_paused"),
    ],
)
def test_an_attribute_that_has_gone_is_told(
    owner: type, name: str, config: BoundedConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read of a connection, a request and its flow is looked at on one of each."""

    class Hidden:
        def __get__(self, _instance: Any, _owner: Any) -> Any:
            raise AttributeError(name)

        def __set__(self, _instance: Any, _value: Any) -> None:
            pass

    monkeypatch.setattr(owner, name, Hidden(), raising=False)
    with pytest.raises(ConfigError, match=rf"uvicorn .*{name}"):
        check_uvicorn(config)
