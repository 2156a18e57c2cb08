"""What a user can see and name, as files of lines: the Python names, HTTP, commands, metrics, keys.

`python -m tests.golden.interface.record` renews the recorded files after a deliberate change.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from consumers.config.model import GROUPS
from tests.consumers.http.api_daemon import reading_daemon
from tests.endtoend.daemon_process import command
from tests.golden.daemon import ask

HERE = Path(__file__).parent
MODULES = (
    "streamnb",
    "streamnb.river",
    "streamnb.sklearn",
    "streamnb.spark",
    "consumers.http.client",
    "streamnb.checks",
    "streamnb.testing",
)
_IN_A_TERMINAL = {"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}


def python_lines() -> list[str]:
    """Return every public name with its parameters: what they are called, and their defaults.

    Types are left out: they name what is private, and mypy holds them.
    """
    found: list[str] = []
    for path in MODULES:
        try:
            module = importlib.import_module(path)
        except ModuleNotFoundError:
            continue
        for name in _public(module):
            value = getattr(module, name)
            found.append(f"{path}.{name}{_signature(value)}")
            if inspect.isclass(value):
                found += [f"{path}.{name}.{line}" for line in _members(value)]
    return sorted(found)


def _public(module: ModuleType) -> list[str]:
    named = getattr(module, "__all__", None)
    if named is not None:
        return list(named)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and callable(value)
        and str(getattr(value, "__module__", "")).startswith(module.__name__)
    ]


def _members(kind: type) -> Iterator[str]:
    own = [base for base in kind.__mro__ if base.__module__.startswith("streamnb")]
    names = {name for base in own for name in vars(base) if not name.startswith("_")}
    for name in sorted(names):
        value = inspect.getattr_static(kind, name)
        if isinstance(value, classmethod | staticmethod):
            value = value.__func__
        yield f"{name}{_signature(value)}" if inspect.isfunction(value) else name


def _signature(value: Any) -> str:
    if not callable(value):
        return ""
    try:
        signature = inspect.signature(value)
    except ValueError:  # an exception has none
        return ""
    defaults = _factories(value)
    parameters = [
        each.replace(
            annotation=each.empty,
            default=_Shown(defaults[name]) if name in defaults else each.default,
        )
        for name, each in signature.parameters.items()
    ]
    return re.sub(r" at 0x\w+", "", str(inspect.Signature(parameters)))


class _Shown:
    """A default as it is to be shown."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __repr__(self) -> str:
        return repr(self._value)


def _factories(kind: Any) -> dict[str, Any]:
    """Return the defaults that a dataclass makes anew each time."""
    if not dataclasses.is_dataclass(kind):
        return {}
    return {
        each.name: each.default_factory()
        for each in dataclasses.fields(kind)
        if each.default_factory is not dataclasses.MISSING
    }


def config_lines() -> list[str]:
    """Return every key of the configuration with its default."""
    with tempfile.TemporaryDirectory() as folder:
        done = command("check-config", folder=Path(folder))
    # The configuration that is printed has groups of words alone.
    groups = {f"NAME({kind})": own.model_validate({"kind": kind}) for kind, own in GROUPS.items()}
    own = {name: group.model_dump(mode="json") for name, group in groups.items()}
    return sorted([*_flat(yaml.safe_load(done.stdout)), *_flat(own, "model.features")])


def _flat(value: Any, at: str = "") -> Iterator[str]:
    """Yield a line for each leaf of nested values."""
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from _flat(each, f"{at}.{name}" if at else str(name))
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        for i, each in enumerate(value):
            name = each.get("name", i) if isinstance(each, dict) else i
            yield from _flat(each, f"{at}[{name}]")
    else:
        yield f"{at} = {json.dumps(value, ensure_ascii=False)}"


def help_lines() -> list[str]:
    """Return what `--help` says of the program and every command below it."""
    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        wanted: list[tuple[str, ...]] = [()]
        while wanted:
            path = wanted.pop(0)
            done = command(*path, "--help", folder=Path(folder), env=_IN_A_TERMINAL)
            said = done.stdout.decode().replace("python -m consumers", "streamnb")
            name = " ".join(["streamnb", *path])
            lines = [re.sub(r"[│╭╮╰╯─ ]+", " ", line).strip() for line in said.splitlines()]
            found += [f"{name}: {line}" for line in lines if line]
            wanted += [(*path, each) for each in _commands(said)]
    return found


def _commands(said: str) -> list[str]:
    box = re.search(r"─ Commands ─.*?╰", said, flags=re.DOTALL)
    return re.findall(r"^│ ([a-z][\w-]*)", box.group(), flags=re.MULTILINE) if box else []


def daemon_lines() -> dict[str, list[str]]:
    """Return the description of the HTTP API, and every metric with its type and labels."""
    with tempfile.TemporaryDirectory() as folder, reading_daemon(Path(folder)) as daemon:
        ask(daemon, "POST", "/v1/predict", {"text": "a lovely morning"})
        api = json.loads(daemon.get("/openapi.json")[1])
        metrics = daemon.get("/metrics")[1]
    del api["info"]["version"]
    return {
        "openapi.txt": sorted(_flat(_without_examples(api))),
        "metrics.txt": sorted(_metrics(metrics)),
    }


def _without_examples(value: Any) -> Any:
    """Return a description without its examples, which tests hold to the guide."""
    if isinstance(value, dict):
        # Beside a schema it is an example; elsewhere it may be the name of a field.
        kept = value.keys() - {"example"} if "schema" in value else value.keys()
        return {name: _without_examples(each) for name, each in value.items() if name in kept}
    return [_without_examples(each) for each in value] if isinstance(value, list) else value


def _metrics(text: str) -> Iterator[str]:
    for family in text_string_to_metric_families(text):
        labels = sorted({label for sample in family.samples for label in sample.labels})
        ending = "_total" if family.type == "counter" else ""
        yield " ".join([f"{family.name}{ending}", family.type, *labels])


def interface() -> dict[str, list[str]]:
    """Return all of it, by file."""
    return {
        "python.txt": python_lines(),
        "config.txt": config_lines(),
        "help.txt": help_lines(),
        **daemon_lines(),
    }


def main() -> None:
    """Renew the recorded files."""
    for name, lines in interface().items():
        (HERE / name).write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
