"""`--report` of `streamnb evaluate` and `compare`: what the file holds, and when it is written."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from consumers.cli import commands
from consumers.cli import figures as figures_module
from consumers.cli.report import check_report
from consumers.errors import ConfigError, SinkError
from tests.consumers.cli.test_evaluate import stream, write


def run_unread(folder: Path, arguments: list[str]) -> tuple[int, bytes]:
    """Run a command in a folder, its output a closed pipe; return its exit code and its errors."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "consumers", *arguments],
            stdout=closed,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(Path(commands.__file__).parents[2])},
            check=False,
            timeout=100,
        )
    return done.returncode, done.stderr


@pytest.fixture(autouse=True)
def _few_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw few replicates, as their spread is not the point."""
    monkeypatch.setattr(figures_module, "REPLICATES", 20)


def test_the_report_is_the_same_again_and_shows_what_the_json_has(tmp_path: Path) -> None:
    """Two runs write the same bytes; names in it are text, and nothing in it is fetched."""
    classes = ("<b>bad</b> & $x^2$", "good", "odd")
    source = write(tmp_path / "stream.jsonl", stream(90, classes))
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"model": {"classes": classes}}), encoding="utf-8")
    path = tmp_path / "report.html"
    arguments = ["evaluate", source, "-c", str(config), "--report", str(path), "--json"]
    written = []
    for _ in range(2):
        done = CliRunner().invoke(commands.app, arguments, catch_exceptions=False)
        written.append(path.read_bytes())
    assert written[0] == written[1]
    text = written[0].decode()
    assert "<b>" not in text
    assert "&lt;b&gt;bad&lt;/b&gt; &amp; $x^2$" in text
    found = json.loads(done.stdout)
    of_class = found["by_class"]["odd"].values()
    for each in (*found["figures"].values(), *found["coverage"], *of_class):
        if isinstance(each, int) or each["value"] is None:  # a count, or a hybrid's joint
            continue
        assert f"{each['value']:.4f}<small>{each['low']:.4f} – {each['high']:.4f}" in text
    assert not re.search(r"(src|href)=\"[^#]|url\((?!#)|@import|<script", text)
    assert str(tmp_path) not in text.replace(source, "")


def test_plots_show_names_that_would_be_left_out_or_break_them(tmp_path: Path) -> None:
    """Also names that look like parts of a drawing, and characters that no font here has."""
    classes = ("_hidden", "日本", "font-family: a", 'id="a_1"', "#0a0b00")
    source = write(tmp_path / "stream.jsonl", stream(200, classes))
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"model": {"classes": classes}}), encoding="utf-8")
    path = tmp_path / "report.html"
    arguments = ["evaluate", source, "-c", str(config), "--report", str(path)]
    CliRunner().invoke(commands.app, arguments, catch_exceptions=False)
    drawings = re.findall(r"<svg.*?</svg>", path.read_text(encoding="utf-8"), re.DOTALL)
    assert len(drawings) == 6
    shown = [[each.text or "" for each in ET.fromstring(svg).iter()] for svg in drawings]
    for name in classes:
        for own in shown[-2:]:
            assert sum(each.strip().startswith(f"{name}, area") for each in own) == 1


def test_a_name_does_not_turn_the_figure_beside_it_around(tmp_path: Path) -> None:
    """A mark that turns the writing direction reaches to the end of its line in a drawing."""
    classes = ("日本 \u202e rtl", "\u2067_odd", "good")
    source = write(tmp_path / "stream.jsonl", stream(200, classes))
    config = tmp_path / "turned \u202e name.yaml"
    config.write_text(json.dumps({"model": {"classes": classes}}), encoding="utf-8")
    (tmp_path / "b.yaml").write_text(config.read_text(encoding="utf-8"), encoding="utf-8")
    path = tmp_path / "report.html"
    for command in (["evaluate", source, "-c", config], ["compare", source, config, "b.yaml"]):
        arguments = [str(each) for each in (*command, "--report", path)]
        with contextlib.chdir(tmp_path):
            CliRunner().invoke(commands.app, arguments, catch_exceptions=False)
        text = path.read_text(encoding="utf-8")
        texts = re.findall(r"<text[^>]*>([^<]*)</text>", text)
        if command[0] == "evaluate":
            begins = {each.strip().split(", area")[0] for each in texts if ", area" in each}
            assert begins == {"日本 rtl", "_odd", "good"}
        else:
            assert any(each.startswith("turned name, area") for each in texts)
            assert '">turned name</span>' in text
            assert "turned name – b" in text
        assert not {"\u202e", "\u2067"} & {*"".join(texts)}


@pytest.mark.parametrize("command", ["evaluate", "compare"])
def test_figures_are_printed_though_the_report_cannot_be_written(
    tmp_path: Path, command: str
) -> None:
    """A full disk costs the report, and not what was measured, perhaps for an hour."""
    source = write(tmp_path / "stream.jsonl", stream(90, ("negative", "positive")))
    configs = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for config in configs:
        config.write_text("{}", encoding="utf-8")
    given = ["-c", str(configs[0])] if command == "evaluate" else [*map(str, configs)]
    arguments = [command, source, *given, "--json", "--report", "/dev/full"]
    done = CliRunner().invoke(commands.app, arguments)
    assert json.loads(done.stdout)["examples"] == 90
    assert isinstance(done.exception, SinkError)


@pytest.mark.parametrize("command", ["evaluate", "compare"])
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["tables", "json"])
def test_the_report_is_written_though_nobody_reads_what_is_printed(
    tmp_path: Path, command: str, form: list[str]
) -> None:
    """`| head -2` costs what was printed, and not the report; the exit code is as without one."""
    source = write(tmp_path / "stream.jsonl", stream(90))
    configs = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for config in configs:
        config.write_text("{}", encoding="utf-8")
    given = ["-c", str(configs[0])] if command == "evaluate" else [*map(str, configs)]
    report = tmp_path / "report.html"
    arguments = [command, source, *given, *form, "--report", str(report)]
    assert run_unread(tmp_path, arguments) == (141, b"")
    assert report.read_text(encoding="utf-8").endswith("</html>\n")


def test_a_report_that_cannot_be_written_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the source is read: a missing folder, and a missing package with its extra."""
    with pytest.raises(ConfigError, match=r"there is no folder .*nowhere; make it first"):
        check_report(tmp_path / "nowhere" / "report.html")
    with pytest.raises(ConfigError, match="is a folder; name a file in it"):
        check_report(tmp_path)
    config = tmp_path / "config.yaml"
    config.touch()
    with pytest.raises(ConfigError, match="is read here, and would be lost"):
        check_report(tmp_path / "." / "config.yaml", None, tmp_path / "in.jsonl", config)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'streamnb\[plots\]'"):
        check_report(tmp_path / "report.html")
