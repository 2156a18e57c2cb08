"""README and guides: their commands exist, links lead somewhere, code runs, no part is missing."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from benchmarks.__main__ import CASES
from consumers.cli.commands import app
from consumers.config.settings import load
from tests.broker.broker import free_ports
from tests.endtoend.daemon_process import Daemon, command, write_config
from tests.kafka_fixtures import require_parts

ROOT = Path(__file__).resolve().parents[1]
# In lower case: it begins a sentence in one of the two.
PROMISE = (
    "what the log says is learned once; what the log takes back is unlearned; a kill at any "
    "instant, of any part, changes no count; a replay gives the same bytes (with "
    "`learning.publish: examples` and a `model.hash_key`)."
)
GUIDES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/*.md", "deploy/*.md")
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md"  # it also speaks of what is gone
)


def read(name: str) -> str:
    """Return a guide's text."""
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    """Return a guide's code blocks in one language."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", read(name), flags=re.DOTALL | re.MULTILINE)
    return [block for kind, block in fenced if kind == language]


def commands(name: str, program: str) -> list[list[str]]:
    """Return the words of every command line of `program` that a guide shows."""
    code = "\n".join(block for kind in ("sh", "console", "") for block in blocks(name, kind)) + "\n"
    code += "\n".join(
        re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", read(name), flags=re.DOTALL))
    )
    lines = [line.strip().removeprefix("$ ") for line in code.splitlines()]
    return [
        [word for word in shlex.split(line, comments=True) if word != "&"]
        for line in lines
        if line.startswith(f"{program} ")
    ]


@pytest.mark.parametrize("name", GUIDES)
def test_shown_commands_are_understood(name: str) -> None:
    """Every `streamnb` command line in a guide has a command and options that the program knows."""
    group = get_command(app)
    for _, *rest in commands(name, "streamnb"):
        if rest[0] == "--help":
            continue
        command = group
        words = iter(rest)
        # `model subtract` is a command of a command; `model` alone may be named too.
        while isinstance(command, TyperGroup) and (word := next(words, None)) is not None:
            assert word in command.commands, f"{name}: streamnb {' '.join(rest)}"
            command = command.commands[word]
        known = {option for parameter in command.params for option in parameter.opts}
        used = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
        assert used <= known, f"{name}: streamnb {' '.join(rest)}"


@pytest.mark.parametrize("name", GUIDES)
def test_shown_benchmarks_exist(name: str) -> None:
    """Every `python -m benchmarks CASE` in a guide names a case."""
    for words in commands(name, "python -m benchmarks"):
        cases = [word for word in words[3:] if re.fullmatch(r"[a-z_]+", word)]
        assert set(cases) <= set(CASES)


def test_every_benchmark_is_explained() -> None:
    """`docs/performance.md` speaks of every case."""
    text = read("docs/performance.md")
    assert [case for case in CASES if f"`{case}`" not in text] == []


@pytest.mark.parametrize("name", GUIDES)
def test_make_commands_exist(name: str) -> None:
    """Every `make WORD` in a guide is a target."""
    targets = re.findall(r"^([a-z-]+):", read("Makefile"), flags=re.MULTILINE)
    assert {words[1] for words in commands(name, "make")} <= set(targets)


@pytest.mark.parametrize("name", GUIDES)
def test_links_lead_somewhere(name: str) -> None:
    """Every relative link in a guide is a file, and its anchor a heading there."""
    folder = (ROOT / name).parent
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", read(name)):
        path, _, anchor = target.partition("#")
        file = (folder / path).resolve() if path else ROOT / name
        assert file.exists(), f"{name}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            plain = [re.sub(r"[^\w -]", "", heading.lower()) for heading in headings]
            assert anchor in {heading.replace(" ", "-") for heading in plain}, f"{name}: {target}"


@pytest.mark.parametrize(
    ("name", "tried"),
    [
        ("README.md", "docs/reliability.md#how-it-is-tried"),
        ("docs/reliability.md", "#how-it-is-tried"),
    ],
)
def test_the_promise_stands_beside_how_it_is_tried(name: str, tried: str) -> None:
    """README and `docs/reliability.md` promise the same, and lead to what tries it."""
    text = " ".join(read(name).lower().split())
    _, promised, after = text.partition(PROMISE)
    assert promised, f"{name} has no such sentence: {PROMISE}"
    assert f"]({tried})" in after[:100]


@pytest.mark.parametrize("package", ["streamnb", "consumers"])
def test_every_part_is_on_the_map(package: str) -> None:
    """`docs/architecture.md` names every file and folder of a package."""
    shown = set(re.findall(r"`([^`\n]+)`", read("docs/architecture.md")))
    parts = {
        path.name if path.suffix == ".py" else f"{path.name}/"
        for path in (ROOT / package).iterdir()
        if (path.suffix == ".py" or path.is_dir()) and not path.name.startswith("__")
    }
    assert parts - shown == set()


@pytest.mark.parametrize("name", GUIDES)
def test_shown_configuration_is_valid(name: str, tmp_path: Path) -> None:
    """Every YAML block in a guide is a configuration without mistakes."""
    for block in blocks(name, "yaml"):
        path = tmp_path / "shown.yaml"
        path.write_text(block, encoding="utf-8")
        assert load(path, {}).source == yaml.safe_load(block)["source"]


def test_readme_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's Python does what its comments say, and leaves one model file."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks("README.md", "python"):
        exec(compile(block, "README.md", "exec"), names)
    before = names["before"]
    assert getattr(before, "shape", None) == (4, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["model.nb"]


def test_tutorial_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tutorial's file is made, learned to the figures that it shows, and loaded again."""
    monkeypatch.chdir(tmp_path)
    make_file, *others = blocks("docs/tutorial.md", "python")
    exec(compile(make_file, "docs/tutorial.md", "exec"), {})
    (settings, *_) = blocks("docs/tutorial.md", "yaml")
    Path("mine.yaml").write_text(settings + "http:\n  port: 0\n", encoding="utf-8")
    words = ["run", "-c", "mine.yaml", "--until-end", "--view", "log"]
    get_command(app).main(words, standalone_mode=False)
    told = capsys.readouterr().out.strip()
    summary, judged = blocks("docs/tutorial.md", "")
    # The log-loss over judged messages is exact too: each is judged before it is learned.
    speed = re.compile(r"[\d.]+ s from|[\d,]+ a second")
    assert speed.sub("", told) == speed.sub("", summary.strip())
    shown = [words for _, *words in commands("docs/tutorial.md", "streamnb")]
    (predict,) = (words for words in shown if words[0] == "predict")
    get_command(app).main(predict, standalone_mode=False)
    told = capsys.readouterr().out
    assert [line.rstrip() for line in told.splitlines()] == judged.splitlines()
    assert len(Path("predictions.jsonl").read_text(encoding="utf-8").splitlines()) == 10_000
    for block in others:
        exec(compile(block, "docs/tutorial.md", "exec"), {})
    assert "('negative', 'positive') 40000 26" in capsys.readouterr().out
    (check,) = (words for words in shown if words[0] == "check-config")
    checked = command(*check, folder=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert b"mine.yaml: no mistakes" in checked.stdout
    assert yaml.safe_load(checked.stdout)["source"] == "file:mine.jsonl"
    told_of = [words for words in shown if words[:2] == ["inspect", "mine-state/model.nb"]]
    plain, as_json = (command(*words, folder=tmp_path) for words in told_of)
    assert b"40,000 examples, 26 words" in plain.stdout
    found = json.loads(as_json.stdout)
    assert [row["word"] for row in found["words"]] == ["broken"]
    assert [row["name"] for row in found["sections"]] == ["file:mine.jsonl/0"]


def test_the_tutorial_asks_for_metrics(tmp_path: Path) -> None:
    """Its commands, as they are written but for the port, show each metric that it speaks of."""
    (block,) = (each for each in blocks("docs/tutorial.md", "sh") if "curl" in each)
    spoken_of = read("docs/tutorial.md").partition("## Metrics")[2].partition("\n## ")[0]
    names = re.findall(r"`(streamnb_\w+)`", spoken_of)
    with Daemon(write_config(tmp_path / "config.yaml")) as daemon:
        daemon.until_metric("streamnb_messages_total", 1_000)
        asking = block.replace("http://127.0.0.1:8100", daemon.address)
        assert asking.count(daemon.address) == 2
        done = subprocess.run(["bash", "-ec", asking], capture_output=True, text=True, check=True)
        assert daemon.stop() == 0
    assert len(names) == 3
    assert [name for name in names if f"# TYPE {name} gauge" not in done.stdout] == []
    assert '"state":' in done.stdout.splitlines()[-1]


def test_the_tutorial_leaves_the_checkout_clean(tmp_path: Path) -> None:
    """Before it makes a file it changes into a folder that git ignores, as it does `state`."""
    shell = "\n".join(blocks("docs/tutorial.md", "sh"))
    (folder,) = re.findall(r"^mkdir -p (\S+) && cd \1$", shell, flags=re.MULTILINE)
    before = shell[: shell.index(folder)].split()
    assert before == ["make", "run", "source", ".venv/bin/activate", "mkdir", "-p"]
    (tmp_path / ".gitignore").write_text(read(".gitignore"), encoding="utf-8")
    for made in (
        f"{folder}/mine.jsonl",
        f"{folder}/mine-state/model.nb",
        "state/model.nb",
        "other",
    ):
        (tmp_path / made).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / made).write_text("made", encoding="utf-8")
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    found = subprocess.run(
        [*git, "status", "--porcelain", "--untracked-files=all"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert found.stdout.split() == ["??", ".gitignore", "??", "other"]


@pytest.fixture
def tutorial_broker(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Start the tutorial's broker by its own block, and end it as a reader does.

    Return a function that gives a text the broker's port, which is free here, and its folder.
    """
    require_parts()
    (block,) = (each for each in blocks("docs/tutorial.md", "sh") if "Broker(" in each)
    (port,) = free_ports(1)

    def here(text: str) -> str:
        changed = text.replace("9092", f"{port}")
        return changed.replace("/tmp/streamnb-broker", str(tmp_path / "broker"))

    assert (block.count("9092"), block.count("/tmp/streamnb-broker")) == (1, 1)
    with subprocess.Popen(
        ["bash", "-c", here(block)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    ) as window:  # fmt: skip
        assert window.stdout is not None
        assert select.select([window.stdout], [], [], 90.0)[0], "the broker says no address"
        assert window.stdout.readline() == f"127.0.0.1:{port}\n"
        (own,) = (
            os.pidfd_open(each.pid)
            for each in psutil.Process(window.pid).children(recursive=True)
            if each.name() == "java"
        )
        yield here
        window.communicate()
    ended, _, _ = select.select([own], [], [], 60.0)
    os.close(own)
    assert ended, "the broker outlives the Python that started it"


@pytest.mark.deep
def test_the_kafka_steps_of_the_tutorial_work(
    tutorial_broker: Callable[[str], str], tmp_path: Path
) -> None:
    """As they are written, but for port and folder: kills lose nothing and double nothing."""
    make_file = blocks("docs/tutorial.md", "python")[0]
    subprocess.run([sys.executable, "-c", make_file], cwd=tmp_path, check=True)
    of_file, *_ = blocks("docs/tutorial.md", "yaml")
    (tmp_path / "mine.yaml").write_text(of_file + "http:\n  port: 0\n", encoding="utf-8")
    first = command("run", "-c", "mine.yaml", "--until-end", folder=tmp_path)  # as a reader has
    assert first.returncode == 0, first.stderr
    (settings,) = (each for each in blocks("docs/tutorial.md", "yaml") if "kafka://" in each)
    text = tutorial_broker(settings) + "http:\n  port: 0\n"
    (tmp_path / "kafka.yaml").write_text(text, encoding="utf-8")
    steps = [
        each for each in blocks("docs/tutorial.md", "sh") if re.search("kafka.yaml|^wait", each)
    ]
    assert len(steps) == 3
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", tutorial_broker("\n".join(steps))], cwd=tmp_path,
        env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    assert re.search(r"^learned +40,000$", done.stdout, flags=re.MULTILINE)
    assert "130,000 messages" in done.stdout
    *killed, _ = done.stderr.split('"event": "restored"')[1:]
    learned = [[*map(int, re.findall(r'"learned": ([1-9]\d*)', each))] for each in killed]
    assert len(learned) == 2
    assert all(learned), "a reader sees no figure go on before the kill"
    assert done.stdout.rstrip().endswith("the checkpoint counts what its log says"), done.stdout


def first_commands() -> list[str]:
    """Return the commands of the README's first block, without what is said of them."""
    return [line.partition("#")[0].strip() for line in blocks("README.md", "sh")[0].splitlines()]


def test_the_readme_s_command_for_tests_is_what_ci_runs() -> None:
    """`.ci/run` runs `make test-all`, which is `make test` and then what takes longer."""
    _, tests = first_commands()
    last = read(".ci/run").splitlines()[-1]
    assert last == f"exec {tests}-all"
    rules = read("Makefile")
    assert re.search(rf"^{tests.removeprefix('make ')}-all: test ", rules, flags=re.MULTILINE)


@pytest.mark.deep
def test_the_readme_s_first_command_in_a_fresh_clone(tmp_path: Path) -> None:
    """It sets a clone up for somebody who has nothing in his home, compiles, learns, and ends.

    Packages come out of pip's cache if they are there; all else is as it is for him.
    """
    run, _ = first_commands()
    clone, home = tmp_path / "clone", tmp_path / "home"
    home.mkdir()
    cloned = subprocess.run(["git", "clone", "-q", ROOT, clone], check=False)
    if cloned.returncode:  # this is no clone itself
        own = (".venv", ".git", "build", "libs", ".*_cache", "__pycache__", ".hypothesis")
        shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(*own), dirs_exist_ok=True)
    cache = subprocess.run(
        [sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=False
    )
    cached = {} if cache.returncode else {"PIP_CACHE_DIR": cache.stdout.strip()}  # it may be off
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "STREAMNB", "VIRTUAL_ENV", "XDG", "MAKE", "NUMBA"))
    }
    done = subprocess.run(
        [*run.split(), "ARGS=--max-messages 1000 --port 0 --json"],
        cwd=clone,
        env=inherited | cached | {"HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1_200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["messages"] == 1_000
    assert summary["checkpoint"] is not None
