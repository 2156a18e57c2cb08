"""The project's own rules, as tests that name the file and the line.

What ruff, mypy and import-linter can check stands in `pyproject.toml`; here is what they cannot.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import time
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from consumers.config.model import FieldKind

ROOT = Path(__file__).resolve().parents[1]
LINES_MAX = 600  # one idea a file, whole: a tighter bound would cut ideas into fragments
FUNCTION_LINES_MAX = 70
LEVELS_MAX = 3  # of classes of ours, each a kind of the one before
LINES_MIN = 60  # of a file in the two packages; a shorter one stands in `SHORT_FILES`

# Three numbers of today. They may only go down; whoever gets below one lowers it.
PACKAGE_FILES_MAX = 200
PACKAGE_LINES_MAX = 84_000
PRIVATE_ACCESSES_MAX = 3  # lines that silence SLF001

# Private parts of kafka-python that are asked for by name, as a version may lack them.
GUARDED_PRIVATES = {
    "consumers/kafka/patch.py": {
        "_build_transport", "_closed", "_handle_fetch_response", "_manager", "_net", "_task_done",
        "_next_partition_records",
    },
}  # fmt: skip

# Words that only this project had for what has a standard name.
PRIVATE_WORDS = {"desk", "handover", "hub", "lane", "stranger", "telling", "walk"}

# Why each of these identifiers has such a word.
SPOKEN = {
    "Telling": "a schema of the API has this name",
    "_telling": "what is said of the words of that schema",
    "telling": "a field of the API",
    "telling_words": "a method that users call",
}

# Why each of these files is shorter than `LINES_MIN`; every `__init__.py` may be.
SHORT_FILES = {
    "consumers/__main__.py": "the way in, which imports nothing that may be missing",
    "streamnb/checks.py": "an import path that users write",
}

# What reads the clock of the day, which may be set to any time while the daemon runs; and why each
# of these files may. All other times are of a clock that only grows.
DAY_CLOCK = re.compile(
    r"\btime\.(?:time|time_ns|gmtime|localtime)\b|\b(?:datetime|date)\.(?:now|utcnow|today)\b"
    r"|^\s*from time import",
    re.MULTILINE,
)
ASKS_THE_DAY_CLOCK = {
    "consumers/cli/record.py": "brokers refuse times of messages that are ahead of now",
    "consumers/corrections/service.py": "the journal says when a correction was given",
    "consumers/http/app.py": "an embedded card says when it was drawn",
    "consumers/http/routes_search.py": "a search without an end goes to now",
    "consumers/http/threads.py": "replicas of other machines know when an interval began",
    "consumers/pipeline/group_parts.py": "the age of files that other machines wrote",
    "consumers/replica.py": "replicas of other machines change over at the same time",
    "consumers/reporter.py": "the points of the history are of days, over restarts",
    "consumers/search/live_updater.py": "alerts compare the newest window",
    "consumers/search/store.py": "messages that are too old leave the page",
    "consumers/sources/base.py": "no live stream begins in the future",
    "consumers/sources/connections.py": "Retry-After and limits name a time of the day",
    "consumers/sources/live.py": "a cursor that is far ahead of now is none",
}

# Why each of these names of a class is one of a type too.
SHARED_NAMES = {
    "Flags": "the public group of features; to kernels an array, beside `F64` and `I64`"
}

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


def package_files() -> dict[str, str]:
    """Return the text of each Python file of the two packages, by its path."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in python_files()
        if path.relative_to(ROOT).parts[0] in {"streamnb", "consumers"}
    }


def place(path: Path, line: int = 1) -> str:
    """Return `file:line` as an editor understands it."""
    return f"{path.relative_to(ROOT)}:{line}"


@cache
def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return every function of a file, methods and inner ones too."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def type_aliases(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield each name that a file gives to a type; type variables are none."""
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        is_type = isinstance(target, ast.Name) and re.match(r"_?[A-Z]\w*[a-z]", target.id)
        if is_type and not (isinstance(node.value, ast.Call) and "Var" in ast.unparse(node.value)):
            yield ast.unparse(target), node.value


def pins(name: str) -> set[str]:
    """Return the `package==version` lines of a lock file."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return set(re.findall(r"^\S+==\S+", text, flags=re.MULTILINE))


def make_targets() -> dict[str, str]:
    """Return each target of the Makefile with its rule."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    rules = re.split(r"^(?=[a-z-]+:)", text, flags=re.MULTILINE)[1:]
    return {rule.split(":", 1)[0]: rule for rule in rules}


def _script(name: str) -> str:
    return (ROOT / "scripts" / name).read_text(encoding="utf-8")


def test_no_file_is_too_long() -> None:
    """No Python file is longer than 600 lines."""
    lengths = {path: path.read_text(encoding="utf-8").count("\n") for path in python_files()}
    long = [f"{place(path)}: {n} lines" for path, n in lengths.items() if n > LINES_MAX]
    assert not long, f"at most {LINES_MAX} lines, one idea a file: {long}"


def test_a_short_file_has_a_reason() -> None:
    """A file of the two packages has at least 60 lines, or is listed with the reason why not."""
    short = {
        path
        for path, text in package_files().items()
        if text.count("\n") < LINES_MIN and not path.endswith("__init__.py")
    }
    assert short - SHORT_FILES.keys() == set(), (
        f"below {LINES_MIN} lines: join it to the file of its idea, or give a reason in SHORT_FILES"
    )
    assert SHORT_FILES.keys() - short == set(), f"no longer below {LINES_MIN} lines: strike it out"


def test_the_packages_have_few_files() -> None:
    """The number of files that a reader has to know does not grow."""
    assert len(package_files()) <= PACKAGE_FILES_MAX


def test_a_class_name_has_one_meaning() -> None:
    """No name of a class or of a type stands for two of them in the packages."""
    meanings: dict[str, dict[str, str]] = {}  # of a name: what it stands for, and a place of each
    for path, text in package_files().items():
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                own = f"the class of line {node.lineno} of {path}"
                meanings.setdefault(node.name, {})[own] = f"{path}:{node.lineno}"
        for name, node in type_aliases(tree):
            meanings.setdefault(name, {})[ast.unparse(node)] = f"{path}:{node.lineno}"
    shared = {name: [*own.values()] for name, own in meanings.items() if len(own) > 1}
    assert shared.keys() - SHARED_NAMES.keys() == set(), shared
    assert SHARED_NAMES.keys() - shared.keys() == set(), "no longer shared: strike it out"


def test_classes_inherit_over_few_levels() -> None:
    """A class has at most two of ours above it, one over the other; errors are a tree of names."""
    bases = {
        node.name: [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
        for text in package_files().values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    }

    def level(name: str) -> int:
        return 1 + max((level(base) for base in bases[name] if base in bases), default=0)

    high = {name for name in bases if level(name) > LEVELS_MAX and not name.endswith("Error")}
    assert not high, (
        f"at most {LEVELS_MAX} levels: hold a value of the class, in place of being one"
    )


def test_times_end_with_their_unit() -> None:
    """No name has a bound's `max` or `min` behind the unit of a time."""
    odd = re.compile(r"\b\w*_(?:s|ms|us|ns)_(?:max|min)\b", flags=re.IGNORECASE)
    found = {
        f"{path}:{number}: {match[0]}"
        for path, text in package_files().items()
        for number, line in enumerate(text.splitlines(), start=1)
        for match in odd.finditer(line)
    }
    assert not found


def test_no_kinds_of_fields_are_listed_by_hand() -> None:
    """What differs by kind is asked of `holds_floats`, or by a `match` that mypy finds whole."""
    kinds = set(get_args(FieldKind))
    listed = [
        f"{path}:{node.lineno}"
        for path, text in package_files().items()
        if path.startswith("consumers/")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Set | ast.Tuple | ast.List)
        and len(node.elts) > 1
        and {each.value if isinstance(each, ast.Constant) else each for each in node.elts} <= kinds
    ]
    assert len(listed) == 1, f"besides the definition of `FieldKind`: {listed}"
    assert listed[0].startswith("consumers/config/model.py:")


def test_few_files_ask_the_clock_of_the_day() -> None:
    """Counts and intervals go by offsets and by a clock that only grows, wherever that is set."""
    found = {path for path, text in package_files().items() if DAY_CLOCK.search(text)}
    assert found - ASKS_THE_DAY_CLOCK.keys() == set(), "take a clock that only grows, or say why"
    assert ASKS_THE_DAY_CLOCK.keys() - found == set(), "no longer there: strike it out"


def test_few_lines_read_foreign_privates() -> None:
    """The number of lines that silence SLF001 does not grow."""
    silenced = [
        f"{path}:{number}"
        for path, text in package_files().items()
        for number, line in enumerate(text.splitlines(), start=1)
        if re.search(r"# noqa:.*\bSLF001\b", line)
    ]
    assert len(silenced) <= PRIVATE_ACCESSES_MAX, silenced


def test_few_lines_read_foreign_privates_by_name() -> None:
    """What SLF001 does not see, `getattr(x, "_name")` and its kin, stands in one guard alone."""
    named: dict[str, set[str]] = {}
    for path, text in package_files().items():
        for node in ast.walk(ast.parse(text)):
            is_asked = isinstance(node, ast.Call) and ast.unparse(node.func) in {
                "getattr", "hasattr", "setattr", "delattr", "attrgetter", "operator.attrgetter",
            }  # fmt: skip
            for each in node.args if is_asked and isinstance(node, ast.Call) else ():
                name = each.value if isinstance(each, ast.Constant) else None
                if isinstance(name, str) and re.match(r"_[^_]", name):
                    named.setdefault(path, set()).add(name)
    assert named == GUARDED_PRIVATES


def test_no_private_method_is_overridden_elsewhere() -> None:
    """What a class of another module overrides has a public name."""
    methods: dict[str, tuple[str, list[str], set[str]]] = {}
    for path, text in package_files().items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                bases = [ast.unparse(each).partition("[")[0] for each in node.bases]
                own = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                names = [each.rpartition(".")[2] for each in bases]
                methods[node.name] = path, names, {name for name in own if re.match("_[^_]", name)}

    def above(name: str) -> Iterator[str]:
        for base in methods[name][1] if name in methods else ():
            yield base
            yield from above(base)

    found: dict[str, set[str]] = {}
    for name, (path, _, own) in methods.items():
        for base in above(name):
            base_path, _, theirs = methods.get(base, (path, [], set()))
            if path != base_path and own & theirs:
                found.setdefault(base, set()).update(own & theirs)
    assert not found


def test_a_name_is_imported_from_where_it_stands() -> None:
    """No file of the packages hands on what it imports, but for those that users import from."""
    of_users = {"streamnb", "streamnb.checks", "streamnb.kernels", "streamnb.testing"}
    texts = {
        path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): text
        for path, text in package_files().items()
    }
    imports: dict[str, list[ast.ImportFrom]] = {
        module: [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.ImportFrom)]
        for module, text in texts.items()
    }
    held = {
        module: {name.asname or name.name for each in own for name in each.names}
        for module, own in imports.items()
    }
    handed_on = {
        f"{each.module}.{name.name}, in {module}"
        for module, own in imports.items()
        for each in own
        for name in each.names
        if each.module in texts.keys() - of_users
        and name.name in held[each.module]
        and f"{each.module}.{name.name}" not in texts
    }
    assert not handed_on


def test_identifiers_are_of_standard_terms() -> None:
    """No name has a word of a private vocabulary, but for those that users know."""
    spoken: dict[str, str] = {}
    for path, text in package_files().items():
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.arg(arg=name):
                    pass
                case ast.Name(id=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                    pass
                case _:
                    continue
            words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+", name)}
            if PRIVATE_WORDS & words:
                spoken[name] = path
    assert spoken.keys() - SPOKEN.keys() == set(), spoken
    assert SPOKEN.keys() - spoken.keys() == set(), "no longer there: strike it out"


def test_the_packages_do_not_grow() -> None:
    """The number of lines that a reader has to know does not grow."""
    assert sum(text.count("\n") for text in package_files().values()) <= PACKAGE_LINES_MAX


def test_where_is_names_only_what_is_public() -> None:
    """The table that leads a new contributor names no private function, and names what is there."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = text.partition("## Where is")[2].partition("\n## ")[0]
    table = re.findall(r"^\| .*\|$", section, flags=re.MULTILINE)
    names = re.findall(r"`(\w+(?:\.\w+)*)`", "\n".join(table))
    assert len(names) > 10
    assert [name for name in names if re.search(r"(?:^|\.)_", name)] == []


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
    docstring = re.compile(r'(?:#!.*\n)?r?"""')  # parsing every file for it would take seconds
    silent = [
        place(path)
        for path in python_files()
        if not docstring.match(path.read_text(encoding="utf-8"))
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
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
    sleepers = [
        place(path, node.lineno)
        for path, text in texts.items()
        if "sleep" in text  # parsing every file would take seconds
        for node in ast.walk(ast.parse(text))
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
    shown = set(re.findall(r"(?:^|`|&& )make ([a-z-]+)", "\n".join(code), flags=re.MULTILINE))
    assert shown <= set(make_targets())


def test_make_test_runs_every_check() -> None:
    """`make test` passes through both ruff checks, mypy, import-linter and pytest."""
    targets = make_targets()
    assert "scripts/lint.sh" in targets["lint"]
    for command in ("ruff check", "ruff format --check", "mypy", "lint-imports"):
        assert f".venv/bin/{command}" in _script("lint.sh")
    assert "scripts/test.sh" in targets["test"]
    # Beside the tests, and before those that are asked for by their names.
    assert re.findall(r"scripts/lint\.sh$", _script("test.sh"), flags=re.MULTILINE) == [
        "scripts/lint.sh",
        "scripts/lint.sh",
    ]
    assert "/pytest" in _script("test.sh")


def test_every_test_is_run_by_test_all() -> None:
    """The steps of both scripts leave no test out: each marker is excluded here, taken there."""

    def steps(script: str) -> set[str]:
        return set(re.findall(r"-m \"?(\w[^\"\n]*)\"?$", _script(script), flags=re.MULTILINE))

    # What collects one folder, or one file, misses nothing: no test elsewhere is marked so.
    markers = {path for path in (ROOT / "tests").rglob("*.py") if ".mark.alone" in path.read_text()}
    spark = ROOT / "tests/endtoend/test_spark.py"
    assert markers <= {ROOT / "tests/browser/conftest.py", spark, Path(__file__)}
    assert "pytestmark = [pytest.mark.deep, pytest.mark.alone]" in spark.read_text()
    assert steps("test.sh") == {"not alone and not deep", "alone and not deep"}
    long_run = _script("test_long.sh")
    assert steps("test_long.sh") >= {"deep and not alone", "deep and alone"}
    for place in ("tests/browser", "tests/endtoend/test_spark.py"):
        assert re.search(rf'{place} -m "deep and alone"$', long_run, flags=re.MULTILINE)
    # Laws that one step leaves out are in the other.
    assert "--ignore=tests/kernels --ignore=tests/library" in long_run
    assert re.search(r"^checked_indices .*--hypothesis-profile=fresh", long_run, flags=re.MULTILINE)


def test_ci_runs_what_everybody_runs() -> None:
    """`.ci/run` calls `make test-all`, which begins with `make test`, and nothing cleverer."""
    lines = (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
    commands = [line for line in lines if not line.startswith(("#", "set ", "cd "))]
    assert commands == ["exec make test-all"]
    assert re.match(r"test-all: test\b", make_targets()["test-all"])


@pytest.mark.parametrize(
    ("ci", "took_s", "fails"), [("1", 2_690, False), ("1", 2_710, True), ("", 2_710, False)]
)
def test_ci_fails_if_it_takes_too_long(ci: str, took_s: int, fails: bool) -> None:
    """Each script ends by failing in CI once 45 minutes are over; elsewhere it may take them."""
    began = "export STREAMNB_BEGAN_S := $(shell date +%s)"
    assert began in (ROOT / "Makefile").read_text(encoding="utf-8")
    script = "source scripts/common.sh && source scripts/test_steps.sh && finish"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=ROOT,
        env=os.environ | {"CI": ci, "STREAMNB_BEGAN_S": str(int(time.time()) - took_s)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "CI waits for 2700 s" in done.stderr) == (int(fails), fails)
    for name in ("test.sh", "test_long.sh"):
        assert _script(name).splitlines()[-1] == "finish"


def test_locked_requirements_agree() -> None:
    """What the daemon is locked to is so for the site, and both are for the tests."""
    assert pins("run.txt")
    assert pins("run.txt") <= pins("docs.txt") <= pins("test.txt")


def test_every_dependency_is_locked() -> None:
    """Each dependency of `pyproject.toml` stands in the lock file of its purpose."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]
    wanted = {
        "run.txt": project["project"]["dependencies"]
        + project["project"]["optional-dependencies"]["daemon"]
        + groups["build"],
        "docs.txt": groups["docs"],
        "test.txt": groups["test"] + groups["docs"] + groups["lint"],
    }
    for name, requirements in wanted.items():
        locked = {pin.partition("==")[0] for pin in pins(name)}
        asked = {
            re.split(r"[\[<>=!~ ]", requirement, maxsplit=1)[0] for requirement in requirements
        }
        assert asked <= locked, name
