"""Commands and the daemon's factories read messages as `message.format` says."""

from __future__ import annotations

import importlib.util
import time
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from consumers.cli import conventions
from consumers.config.settings import Settings
from consumers.decode.rows import RecordFormat
from consumers.decode.schemas import payloads_of
from consumers.errors import ConfigError, RegistryError
from consumers.factories import build_decoder, build_source
from tests.consumers.raw_batches import raw, strings
from tests.schema_registry import RegistryServer, framed

SCHEMA = '{"type":"record","name":"R","fields":[{"name":"text","type":"string"}]}'


def test_a_file_of_plain_texts(tmp_path: Path) -> None:
    """Each line is a text, also where the first looks like the head of a CSV file."""
    path = tmp_path / "lines.txt"
    path.write_bytes(b"text,label\nwhat a day, isn't it\n{no json}\n")
    settings = Settings.model_validate({"source": f"file:{path}", "message": {"format": "text"}})
    source = build_source(settings, until_end=True)
    source.open(lambda _: None)
    decoder = build_decoder(settings, source)
    found = [text for each in source.poll(1.0) for text in strings(decoder.decode(each).texts)]
    source.close()
    assert found == ["text,label", "what a day, isn't it", "{no json}"]


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_what_is_not_installed_is_named(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra the start says what to install."""
    real = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name in {"fastavro", "grpc_tools"} else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    with pytest.raises(ConfigError, match=rf"pip install 'streamnb\[{kind}\]'"):
        build_decoder(_settings("http://h", kind), build_source(Settings(), until_end=True))


def test_a_command_gives_up_on_a_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that needs a registry ends with an error; one that comes back in time is asked."""
    with RegistryServer() as server:
        decoder = build_decoder(_settings(server.url), build_source(Settings(), until_end=True))
        server.status = 503
        monkeypatch.setattr(conventions, "_REGISTRY_PATIENCE_S", 0.0)
        with pytest.raises(RegistryError, match="HTTP status 503") as error:
            list(conventions.decoded(raw([framed(1, b"\2a")]), decoder))
        assert error.value.exit_code == 69
        monkeypatch.undo()

        def come_back(_pause_s: float) -> None:
            server.register(1, SCHEMA)
            server.status = None

        monkeypatch.setattr(time, "sleep", come_back)
        (messages,) = conventions.decoded(raw([framed(1, b"\2a")]), decoder)
    assert strings(messages.texts) == ["a"]


def test_certificates_that_are_none(tmp_path: Path) -> None:
    """A file without certificates is a mistake of the configuration, which names it."""
    file = tmp_path / "ca.pem"
    file.write_text("nothing")
    settings = _settings("https://127.0.0.1:1")
    registry = settings.message.registry.model_copy(update={"ssl_cafile": file})
    message = settings.message.model_copy(update={"registry": registry})
    with pytest.raises(ConfigError, match=r"message\.registry\.ssl_cafile"):
        payloads_of(message, RecordFormat())


def _settings(url: str, kind: str = "avro") -> Settings:
    message = {"format": kind, "registry": {"url": url, "unknown_timeout_s": 0}}
    return Settings.model_validate({"source": "kafka://127.0.0.1:1/t", "message": message})
