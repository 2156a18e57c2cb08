"""The style of the house, as tests that name the file and the line.

What ruff, mypy and import-linter can say stands in `pyproject.toml`; here is what they cannot.
"""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINES_MAX = 600  # a bound on length alone cuts ideas into fragments; one idea a file, whole
FUNCTION_LINES_MAX = 70

MADE_BY_TOOLS = {"__pycache__", "build", "dist", "libs", "run", "state"}
TEXT_SUFFIXES = {
    "", ".cfg", ".css", ".html", ".js", ".json", ".md", ".py", ".service", ".sh", ".toml", ".txt",
    ".xml", ".yaml", ".yml",
}  # fmt: skip

# Each pattern is written so that it does not match its own line.
FORBIDDEN = {
    "a path of one machine": re.compile(r"/(?:wor[k]|far[m]|roo[t]|home/\w+)/"),
    "the host of a package registry": re.compile(
        r"py[p]i\.org|python[h]osted|repo1?\.mave[n]|npm[j]s\.|crates[.]io|docker[.]io|ghcr[.]io"
        r"|proxy\.golan[g]|deb\.debia[n]|archive\.ubunt[u]"
    ),
    "unfinished work": re.compile(r"\b(?:TOD[O]|FIXM[E]|NotImplemented[E]rror)\b"),
}


def our_files() -> Iterator[Path]:
    """Yield every text file of the project."""
    top = [path for path in ROOT.iterdir() if not path.name.startswith(".")] + [ROOT / ".ci"]
    below = [path for folder in top for path in folder.rglob("*")]
    for path in sorted(top + below):
        parts = path.relative_to(ROOT).parts
        if (
            path.suffix in TEXT_SUFFIXES
            and not MADE_BY_TOOLS.intersection(parts)
            and path.is_file()
        ):
            yield path


def python_files() -> list[Path]:
    """List the project's Python files."""
    return [path for path in our_files() if path.suffix == ".py"]


def place(path: Path, line: int = 1) -> str:
    """Return `file:line` as an editor understands it."""
    return f"{path.relative_to(ROOT)}:{line}"


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield every function of a file, methods and inner ones too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def pins(name: str) -> set[str]:
    """Return the `package==version` lines of a lock file."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return set(re.findall(r"^\S+==\S+", text, flags=re.MULTILINE))


def make_targets() -> dict[str, str]:
    """Return each target of the Makefile with its rule."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    rules = re.split(r"^(?=[a-z]+:)", text, flags=re.MULTILINE)[1:]
    return {rule.split(":", 1)[0]: rule for rule in rules}


def test_files_are_short() -> None:
    """No Python file is longer than 600 lines."""
    lengths = {path: path.read_text(encoding="utf-8").count("\n") for path in python_files()}
    long = [f"{place(path)}: {n} lines" for path, n in lengths.items() if n > LINES_MAX]
    assert not long


def test_functions_fit_a_screen() -> None:
    """No function is longer than 70 lines."""
    long = []
    for path in python_files():
        for node in functions(path):
            n_lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if n_lines > FUNCTION_LINES_MAX:
                long.append(f"{place(path, node.lineno)}: {node.name} has {n_lines} lines")
    assert not long


def test_every_file_says_what_it_is_for() -> None:
    """Every Python file opens with a docstring, and every script with a comment."""
    silent = [
        place(path)
        for path in python_files()
        if ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) is None
    ]
    for path in (ROOT / "scripts").glob("*.sh"):
        first = path.read_text(encoding="utf-8").removeprefix("#!/usr/bin/env bash\n")
        if not first.startswith("# "):
            silent.append(place(path))
    assert not silent


@pytest.mark.parametrize("what", FORBIDDEN)
def test_nothing_in_the_files_belongs_elsewhere(what: str) -> None:
    """No file names one machine's paths or a registry's host, or holds unfinished work."""
    found = [
        f"{place(path, number)}: {line.strip()}"
        for path in our_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if FORBIDDEN[what].search(line)
    ]
    assert not found


def test_tests_never_sleep() -> None:
    """No test waits for a time: it waits for what it expects."""
    sleepers = [
        place(path, node.lineno)
        for path in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (
            isinstance(node, ast.Attribute) and ast.unparse(node) in {"time.sleep", "asyncio.sleep"}
        )
        or (isinstance(node, ast.ImportFrom) and any(name.name == "sleep" for name in node.names))
    ]
    assert not sleepers


def test_every_test_says_what_is_true() -> None:
    """Every test has a docstring that ends as a sentence does."""
    silent = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in functions(path):
            if node.name.startswith("test_"):
                first_line = (ast.get_docstring(node) or "").partition("\n\n")[0]
                if not first_line.endswith("."):
                    silent.append(f"{place(path, node.lineno)}: {node.name}")
    assert not silent


def test_public_names_are_the_truth() -> None:
    """Every name in `streamnb.__all__` is there with a docstring, and no other is."""
    package = importlib.import_module("streamnb")
    submodules = {path.stem for path in (ROOT / "streamnb").iterdir()}
    public = {name for name in vars(package) if not name.startswith("_")} - submodules
    public -= {"annotations"}
    assert set(package.__all__) - {"__version__"} == public
    undocumented = [
        name
        for name in public
        if callable(getattr(package, name)) and not getattr(package, name).__doc__
    ]
    assert not undocumented


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "deploy/README.md"])
def test_make_commands_in_the_guides_exist(name: str) -> None:
    """Every `make WORD` that a guide shows is a target of the Makefile."""
    text = (ROOT / name).read_text(encoding="utf-8")
    code = re.findall(r"```.*?```|`[^`\n]+`", text, flags=re.DOTALL)
    shown = set(re.findall(r"(?:^|`|&& )make ([a-z]+)", "\n".join(code), flags=re.MULTILINE))
    assert shown <= set(make_targets())


def test_make_test_runs_every_check() -> None:
    """`make test` passes through both ruff checks, mypy, import-linter and pytest."""
    targets = make_targets()
    assert re.match(r"test: .*\blint\b", targets["test"])
    for command in ("ruff check", "ruff format --check", "mypy", "lint-imports"):
        assert f"$(BIN)/{command}" in targets["lint"]
    assert "scripts/test.sh" in targets["test"]
    assert "/pytest" in (ROOT / "scripts/test.sh").read_text(encoding="utf-8")


def test_ci_runs_what_everybody_runs() -> None:
    """`.ci/run` calls `make test` and nothing cleverer."""
    lines = (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
    commands = [line for line in lines if not line.startswith(("#", "set ", "cd "))]
    assert commands == ["exec make test"]


def test_locked_requirements_agree() -> None:
    """All that the daemon is locked to, the tests are locked to as well, at the same version."""
    assert pins("run.txt")
    assert pins("run.txt") <= pins("test.txt")


def test_every_dependency_is_locked() -> None:
    """Each dependency of `pyproject.toml` stands in the lock file of its purpose."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]
    wanted = {
        "run.txt": project["project"]["dependencies"] + groups["build"],
        "test.txt": groups["test"] + groups["lint"],
    }
    for name, requirements in wanted.items():
        locked = {pin.partition("==")[0] for pin in pins(name)}
        asked = {
            re.split(r"[\[<>=!~ ]", requirement, maxsplit=1)[0] for requirement in requirements
        }
        assert asked <= locked, name
