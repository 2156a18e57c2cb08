"""Documents, docstrings and comments name what exists: files, modules, layers, dotted names."""

from __future__ import annotations

import ast
import functools
import importlib
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        ROOT / "deploy" / "README.md",
        *(ROOT / "docs").rglob("*.md"),
    )
)
# A path below one of these folders, as in `streamnb/model.py` or `tests/library`; NAME stands for
# a file that the reader is to make.
PATH = re.compile(
    r"(?<![\w./-])(?:streamnb|consumers|tests|benchmarks|scripts)/[\w./-]*\w|(?<=`)[a-z_]+/[a-z_]+\.py"
)
MODULE = re.compile(r"(?<![\w./-])(?:streamnb|consumers)(?:\.[A-Za-z_]\w*)+")
# Installed elsewhere under the project's name, and so no path of this repository.
FOREIGN = re.compile(r"^streamnb/(?:config\.yaml|environment|out\b.*)$")

# Dotted names in prose that are of nothing here: a path into a message, a pattern for a key.
EXAMPLES = {"commit.record.text", "model.features.NAME.alpha"}
FILE_ENDINGS = (".yaml", ".nb", ".arrow", ".db")


def read(name: str) -> str:
    """Return a document's text."""
    return (ROOT / name).read_text(encoding="utf-8")


def code(text: str) -> str:
    """Return what a document shows as code: its blocks, and the words between backticks."""
    blocks = re.findall(r"^```.*?^```", text, flags=re.DOTALL | re.MULTILINE)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return "\n".join([*blocks, *(f"`{words}`" for words in re.findall(r"`([^`\n]+)`", rest))])


def is_there(path: str) -> bool:
    """Return whether a file or folder exists, below the root or below a package."""
    return any((ROOT / folder / path).exists() for folder in (".", "streamnb", "consumers"))


@functools.cache
def can_be_imported(name: str) -> bool:
    """Return whether a dotted name is a module, or an attribute of one."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[n:]:
            if not hasattr(value, attribute):
                # A field of a dataclass without a default is known to the class alone.
                return attribute in getattr(value, "__dataclass_fields__", {})
            value = getattr(value, attribute)
        return True
    return False


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_named_file_exists(name: str) -> None:
    """A path of the project that a document names is a file or folder of it."""
    found = {path for path in PATH.findall(read(name)) if "NAME" not in path}
    missing = {path for path in found if not FOREIGN.match(path) and not is_there(path)}
    assert not missing


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_named_module_can_be_imported(name: str) -> None:
    """A dotted name of the project that a document shows as code leads to something."""
    missing = {found for found in MODULE.findall(code(read(name))) if not can_be_imported(found)}
    assert not missing


def test_bare_file_names_on_the_map_exist() -> None:
    """A file that the architecture names without its folder stands somewhere in the packages."""
    names = set(re.findall(r"`([a-z_]+\.py)`", read("docs/architecture.md")))
    known = {
        path.name for folder in ("streamnb", "consumers") for path in (ROOT / folder).rglob("*.py")
    }
    assert names - known <= {"merge.py"}  # the document says why there is none


def test_named_functions_stand_in_their_files() -> None:
    """In the table "Where is …" every function or method is defined in a file of its row."""
    section = read("docs/architecture.md").partition("## Where is")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if ".py`" in line]
    assert len(rows) == 13
    for row in rows:
        text = "\n".join(read(path) for path in re.findall(r"`([\w/]+\.py)`", row))
        for function in re.findall(r"`([A-Za-z_.]+)`(?!\.py)", row):
            if function.endswith(".py"):
                continue
            for word in function.split("."):
                assert re.search(rf"^ *(?:class|def|async def) {word}\b", text, re.MULTILINE), row


@pytest.mark.parametrize(
    ("package", "title", "n_max"), [("streamnb", "library", 9), ("consumers", "daemon", 10)]
)
def test_layers_are_those_of_the_contract(package: str, title: str, n_max: int) -> None:
    """The tables of layers say what `pyproject.toml` says, in its order; they are few."""
    contracts = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each.get("containers") == [package])
    table = read("docs/architecture.md").partition(f"| layer of the {title} |")[2]
    table = table.partition("\n\n")[0].replace("\\|", "|")
    assert re.findall(r"^\| `([^`]+)` \|", table, flags=re.MULTILINE) == layers
    assert len(layers) <= n_max


@functools.cache
def class_places() -> dict[str, str]:
    """Return the module of each class in the two packages, by its name, which stands once."""
    return {
        node.name: ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }


@functools.cache
def config_keys() -> set[str]:
    """Return the keys of the configuration, and what stands before their dots."""
    lines = read("tests/golden/interface/config.txt").splitlines()
    keys = [re.sub(r"\[\w+\]", "", line.partition(" =")[0]).split(".") for line in lines]
    return {".".join(key[:n]) for key in keys for n in range(1, len(key) + 1)}


def sources() -> list[Path]:
    """Return the Python files of the two packages."""
    return sorted(
        path for package in ("streamnb", "consumers") for path in (ROOT / package).rglob("*.py")
    )


def prose(path: Path) -> Iterator[str]:
    """Yield the docstrings and comments of a file."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


@functools.cache
def words_of(path: Path) -> frozenset[str]:
    """Return the names that a file's code uses or declares, attributes among them."""
    found = (
        getattr(node, field, None)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for field in ("id", "arg", "attr", "name")
    )
    return frozenset(word for word in found if isinstance(word, str))


def leads_somewhere(name: str, path: Path) -> bool:
    """Return whether a dotted name in a file is of a module, a class, the settings or its code."""
    module = path.relative_to(ROOT).with_suffix("").parts
    places = [".".join(module[:n]) for n in range(1, len(module) + 1)]
    candidates = [f"{place}.{name}" for place in (*places, "streamnb", "consumers")]
    candidates.append(f"{class_places().get(name.partition('.')[0])}.{name}")
    return (
        name in config_keys()
        or words_of(path).issuperset(name.split("."))
        or any(map(can_be_imported, [name, *candidates]))
    )


@pytest.mark.parametrize("package", ["streamnb", "consumers"])
def test_every_name_in_the_prose_of_the_code_leads_somewhere(package: str) -> None:
    """A dotted name or path between backticks, in a docstring or comment, is of something."""
    file_names = {path.name for path in sources()}
    missing = []
    for path in sources():
        if path.relative_to(ROOT).parts[0] != package:
            continue
        for text in prose(path):
            named = (
                set(re.findall(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?`", text)) - EXAMPLES
            )
            missing += [
                f"{path.name}: {name}"
                for name in named - file_names
                if not name.endswith(FILE_ENDINGS) and not leads_somewhere(name, path)
            ]
            missing += [
                f"{path.name}: {file}"
                for file in PATH.findall(text)
                if "NAME" not in file and not FOREIGN.match(file) and not is_there(file)
            ]
    assert not missing
