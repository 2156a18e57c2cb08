"""What SECURITY.md promises of sources and dependencies: no foreign code is run, all is pinned."""

from __future__ import annotations

import ast
import base64
import hashlib
import importlib.util
import json
import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement

from consumers.config.settings import load
from consumers.errors import ConfigError
from tests.test_project_rules import ROOT, package_files

# Modules that make objects, and so run code, of what they read.
RUNS_WHAT_IT_READS = {
    "pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "jsonpickle",
    "code", "codeop", "runpy",
}  # fmt: skip
FORBIDDEN_CALLS = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "pd.read_pickle",
    "importlib.import_module", "sys.settrace",
}  # fmt: skip
UNSAFE_YAML = re.compile(r"yaml\.(?!SafeLoader$)\w*[Ll]oad\w*")
# Why each of these is none of that, by file.
ALLOWED = {
    ("streamnb/testing/laws.py", "pickle"): "a law: a model survives its user's own pickle",
    ("streamnb/kernels/jit.py", "importlib.import_module"): "names that our own process sends",
    ("streamnb/export.py", "importlib.import_module"): "pyarrow, which an export may need",
    ("consumers/warm_up.py", "importlib.import_module"): "modules of our own packages",
}
OUR_PROCESSES = {"consumers/warm_up.py", "consumers/http/server.py", "consumers/decode/schemas.py"}


def dotted(node: ast.expr) -> str:
    """Return a name with its attributes, as `yaml.SafeLoader`; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def imported(node: ast.stmt) -> Iterator[str]:
    """Yield the modules that a statement imports, of those that run what they read."""
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    yield from (name for name in names if name.split(".")[0] in RUNS_WHAT_IT_READS)


def called(node: ast.Call) -> Iterator[str]:
    """Yield what is wrong with a call: the function, or a keyword that is not plainly false."""
    for keyword in node.keywords:
        is_false = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
        if keyword.arg in {"shell", "allow_pickle"} and not is_false:
            yield keyword.arg
    name = dotted(node.func)
    if name in FORBIDDEN_CALLS or name.endswith("load_extension"):
        yield name


def findings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each use of what makes code or objects of data, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            yield from ((name, node.lineno) for name in imported(node))
        elif isinstance(node, ast.Call):
            yield from ((name, node.lineno) for name in called(node))
        elif isinstance(node, ast.Attribute) and UNSAFE_YAML.fullmatch(dotted(node)):
            yield dotted(node), node.lineno


def test_no_source_runs_what_it_reads() -> None:
    """No module of the packages unpickles, evaluates, or loads YAML objects or SQL extensions."""
    found = {
        (path, name): f"{path}:{line}: {name}"
        for path, text in package_files().items()
        for name, line in findings(ast.parse(text))
    }
    assert [place for use, place in found.items() if use not in ALLOWED] == []
    assert ALLOWED.keys() == found.keys()  # an exception that is no longer needed is struck out


def test_other_processes_are_our_own() -> None:
    """A process is started to compile kernels, to open the browser, and to read a .proto file."""
    starting = {
        path
        for path, text in package_files().items()
        if re.search(
            r"^\s*(?:import|from) (?:subprocess|multiprocessing|webbrowser)\b", text, re.MULTILINE
        )
    }
    assert starting <= OUR_PROCESSES


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from pickle import loads", "eval('1')", "exec(text)", "yaml.load(text)",
        "yaml.unsafe_load(text)", "yaml.UnsafeLoader(text)", "numpy.load(f, allow_pickle=True)",
        "subprocess.run(c, shell=wanted)", "connection.enable_load_extension(True)",
        "importlib.import_module(name)", "os.system(c)",
    ],
)  # fmt: skip
def test_each_way_of_running_data_is_found(source: str) -> None:
    """The search above finds each of its kinds."""
    assert len(list(findings(ast.parse(source)))) == 1


@pytest.mark.parametrize("name", ["safetensors.numpy", "safetensors"])
def test_what_loads_a_model_file_makes_no_objects(name: str) -> None:
    """The modules that parse a model file neither unpickle nor evaluate."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    assert list(findings(tree)) == []


@pytest.mark.parametrize(
    "tag",
    [
        "!!python/object/apply:os.system ['touch RAN']",
        "!!python/name:os.system",
        "!!python/tuple [1]",
    ],
)
def test_a_configuration_makes_no_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tag: str
) -> None:
    """A tag of Python's is a mistake with its line, and nothing was run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(f"source: {tag}\n")
    with pytest.raises(ConfigError, match=r"line 1.*could not determine a constructor"):
        load(tmp_path / "config.yaml", {})
    assert not (tmp_path / "RAN").exists()
    assert not any("python" in str(key) for key in yaml.SafeLoader.yaml_constructors)


def test_each_named_test_is_there() -> None:
    """Each test that the threat model names stands in its file, and each file is one of tests."""
    text = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 30
    for path, test in named:
        found = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"^def {test or 'test_|^def '}", found, re.MULTILINE), (path, test)


# -- dependencies -----------------------------------------------------------------------------


def locked(name: str) -> dict[str, tuple[Requirement, int]]:
    """Return the requirements of a lock file by name, each with its number of hashes."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8").replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        requirement, *hashes = re.split(r"\s+--hash=sha256:[0-9a-f]{64}", line)
        parsed = Requirement(requirement)
        assert hashes[-1:] in ([], [""]), line  # nothing but hashes stands behind it
        found[parsed.name] = (parsed, len(hashes))
    return found


@pytest.mark.parametrize("name", ["run.txt", "docs.txt", "test.txt", "bench.txt", "spark.txt"])
def test_every_dependency_is_pinned_with_hashes(name: str) -> None:
    """Each line names one version and the hashes of its files, and no address."""
    for requirement, n_hashes in locked(name).values():
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier)), requirement
        assert requirement.url is None
        assert n_hashes >= 1, requirement


def test_only_what_is_hashed_is_installed() -> None:
    """The set-up installs by hash, takes no source archive, and builds the project by itself."""
    text = (ROOT / "scripts" / "setup.sh").read_text(encoding="utf-8")
    (install,) = re.findall(r"^.*--requirement.*$", text, flags=re.MULTILINE)
    assert "--require-hashes" in install
    assert "--only-binary :all:" in install
    assert "--no-deps" in install  # else pip looks beyond the lock, and fails at the next release
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert {Requirement(each).name for each in build} <= locked("run.txt").keys()


def installed() -> Iterator[tuple[Requirement, Distribution | None]]:
    """Yield what the daemon's lock file asks for here, with what is installed of it."""
    for requirement, _ in locked("run.txt").values():
        marker = requirement.marker
        if marker is None or marker.evaluate(default_environment()):  # type: ignore[arg-type]
            try:
                yield requirement, distribution(requirement.name)
            except PackageNotFoundError:
                yield requirement, None


def test_what_is_installed_is_what_is_locked() -> None:
    """Each of the daemon's dependencies is installed at the version of the lock file."""
    versions = {
        requirement.name: (str(requirement.specifier), f"=={found.version if found else None}")
        for requirement, found in installed()
    }
    assert versions
    assert {name: pair for name, pair in versions.items() if pair[0] != pair[1]} == {}


@pytest.mark.deep
def test_no_installed_file_was_changed() -> None:
    """Each file of the daemon's dependencies has the hash that its package came with."""
    changed = []
    for _, found in installed():
        for file in (found.files if found else None) or ():
            if file.hash is None or file.hash.mode != "sha256" or ".." in file.parts:
                continue  # programs of `bin` get the name of the interpreter written into them
            digest = hashlib.sha256(Path(str(file.locate())).read_bytes()).digest()
            if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value:
                changed.append(str(file))
    assert not changed


def test_foreign_scripts_are_those_of_their_release() -> None:
    """Each vendored file is listed with its source, and has the checksum that is written there."""
    folder = ROOT / "consumers" / "http" / "static" / "vendor"
    (library,) = json.loads((folder / "vendor.json").read_text(encoding="utf-8"))
    listed = {each["file"]: each for each in library["files"]}
    found = {path.name for path in folder.iterdir()} - {"vendor.json"}
    assert found == set(listed)
    assert any(name.endswith("LICENSE") for name in listed)
    for name, each in listed.items():
        assert f"/{library['version']}/" in each["source"]
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == each["sha256"], name
    guide = (ROOT / "docs" / "page.md").read_text(encoding="utf-8")
    assert f"uPlot {library['version']}" in guide
    assert listed["uPlot.iife.min.js"]["sha256"] in guide
