"""Reads YAML so that every value remembers its line, and says where mistakes in it are.

`${NAME}` comes from the environment. The file is composed to YAML's node tree first. There each
key's place is noted, a key that stands twice is found, and variables are filled in; only then are
Python values made. A value from a variable is always text (the settings turn text into numbers
where numbers belong), so no variable can bring YAML of its own.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, TypeAlias, TypeVar, get_args, get_origin

import msgspec
import yaml
from msgspec import field
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from consumers.config.message import LABELS
from consumers.config.model import GROUPS
from consumers.config.sections import Section
from consumers.errors import ConfigError

Path: TypeAlias = tuple[str | int, ...]
SomeSection = TypeVar("SomeSection", bound=Section)

# `$${` is how a plain `${` is written.
_VARIABLE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|\$\{")
_SURROGATE = re.compile("[\ud800-\udfff]")  # a byte that is no UTF-8, as Python reads variables
_SHOWN_CHARACTERS = 4  # of a variable's value: up to so many, less one, a message may show it
_TEXT_TAG = "tag:yaml.org,2002:str"
_MERGE_TAG = "tag:yaml.org,2002:merge"

# Secrets, which may come from the environment alone, with the variable that we suggest.
SECRETS: dict[Path, str] = {
    ("kafka", "sasl_password"): "STREAMNB_KAFKA_PASSWORD",
    ("kafka", "ssl_key_password"): "STREAMNB_KAFKA_KEY_PASSWORD",
    ("http", "token"): "STREAMNB_TOKEN",
    ("live", "token"): "STREAMNB_LIVE_TOKEN",
    ("jetstream", "archive_key"): "STREAMNB_ARCHIVE_KEY",
    ("message", "registry", "password"): "STREAMNB_REGISTRY_PASSWORD",
    ("message", "registry", "token"): "STREAMNB_REGISTRY_TOKEN",
    ("labels", "teacher", "token"): "STREAMNB_TEACHER_TOKEN",
    ("alerts", "webhook"): "STREAMNB_ALERTS_WEBHOOK",
}
_HEADERS: Path = ("live", "headers")  # their values may be secrets: shown nowhere
_IN_NO_FILE: Path = ("alerts", "webhook")  # the others may be read from a file of their own
HASH_KEY: Path = ("model", "hash_key")  # it may stand in a file, and is shown nowhere


_NOT_CHECKED = "Whether settings contradict each other is checked once these are mended."


class Problem(msgspec.Struct, frozen=True):
    """One mistake: where it is, and a sentence that goes on from the key's path."""

    path: Path
    text: str


class Document(msgspec.Struct):
    """What a file holds, and where.

    `written` has each scalar as it stands in the file, so with the name of a variable and not its
    value; `variables` are those that were filled in; `problems` are mistakes that reading itself
    has found.
    """

    data: Any = None  # variables filled in; None for an empty file
    lines: dict[Path, int] = field(default_factory=dict)  # of each key's value, from 1
    written: dict[Path, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_yaml(text: str, environ: Mapping[str, str]) -> Document:
    """Read one YAML document; what is none is a `ValueError` with line and column."""
    document = Document()
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is not None:
            _NodeVisitor(document, environ).visit(node, ())
            document.data = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        what = ", ".join(part for part in (error.context, error.problem) if part)
        raise ValueError(f"{where}{what}") from None
    except yaml.YAMLError as error:
        raise ValueError(str(error).replace("\n", " ")) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return document


class _NodeVisitor:
    """Goes over the nodes once, before they become values."""

    def __init__(self, document: Document, environ: Mapping[str, str]) -> None:
        self._document = document
        self._environ = environ
        self._seen: set[int] = set()  # an alias is the same node again, and already filled in

    def visit(self, node: yaml.Node, path: Path) -> None:
        """Note where `node` and all below it stand, and fill in variables."""
        self._document.lines[path] = node.start_mark.line + 1
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            self._visit_mapping(node, path)
        elif isinstance(node, yaml.SequenceNode):
            for i, item in enumerate(node.value):
                self.visit(item, (*path, i))
        elif isinstance(node, yaml.ScalarNode):
            self._document.written[path] = node.value
            self._fill(node, path)

    def _visit_mapping(self, node: yaml.MappingNode, path: Path) -> None:
        first_lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE_TAG:
                self.visit(value, path)
                continue
            name = str(key.value)
            line = key.start_mark.line + 1
            if name in first_lines:
                self._report(
                    (*path, name), f"stands twice, in lines {first_lines[name]} and {line}"
                )
            first_lines.setdefault(name, line)
            self.visit(value, (*path, name))

    def _fill(self, node: yaml.ScalarNode, path: Path) -> None:
        written = str(node.value)
        if path in SECRETS and node.tag != "tag:yaml.org,2002:null":
            variable = _VARIABLE.fullmatch(written)
            if variable is None or variable["name"] is None:
                of_file = f", or {path[-1]}_file with the path of a file that holds it"
                if path == _IN_NO_FILE:
                    of_file = ""
                self._report(
                    path,
                    "must come from the environment, never stand in a file: write "
                    f"{path[-1]}: ${{{SECRETS[path]}}} and set that variable{of_file}",
                )
                return
        if "${" not in written:
            return

        def value_of(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            name = match["name"]
            if name is None:
                self._report(
                    path, "has a ${ that is not ${NAME} of letters, digits and _; a plain ${ is $${"
                )
                return match[0]
            if name not in self._environ:
                self._report(
                    path, f"needs the variable {name}, which the environment does not have"
                )
                return match[0]
            if _SURROGATE.search(self._environ[name]):
                self._report(path, f"needs UTF-8 in the variable {name}; its value is not shown")
                return match[0]
            self._document.variables[name] = self._environ[name]
            return self._environ[name]

        node.value = _VARIABLE.sub(value_of, written)
        node.tag = _TEXT_TAG

    def _report(self, path: Path, text: str) -> None:
        self._document.problems.append(Problem(path, text))


def load_section(
    root: type[SomeSection],
    path: FilePath | None,
    environ: Mapping[str, str],
    overrides: Mapping[str, str | int | None],
) -> SomeSection:
    """Read a section with all below it from a file, or take its defaults.

    `${NAME}` is looked up in `environ`. `overrides`, such as ``{"http.port": 0}``, win over the
    file; None leaves one as it is. All mistakes are listed by one `ConfigError`; whether settings
    contradict each other is checked once each is right by itself, and the error says so.
    """
    name = "the built-in configuration" if path is None else str(path)
    document = Document() if path is None else _read(path, environ)
    data = {} if document.data is None else document.data
    if not isinstance(data, dict):
        raise ConfigError(f"{name} cannot be used: it must be keys and values, `source: generator`")
    given = {dotted: value for dotted, value in overrides.items() if value is not None}
    for dotted, value in given.items():
        _override(document, data, dotted, value)
    if given:  # a mistake may be of both together
        name += f" with {' and '.join(given)} of the command line"
    problems: list[Problem] = list(document.problems)
    try:
        settings = root.model_validate(data)
    except ValidationError as error:
        problems += problems_of(error, root, document)
        # The cause is left out: pydantic's own text repeats values, and one may be a secret.
        text = render(name, problems, document)
        # Without a wrong setting its default would be checked, and mistakes found that are none.
        if not all("problems" in each.get("ctx", {}) for each in error.errors()):
            text += f"\n  {_NOT_CHECKED}"
        raise ConfigError(text) from None
    if problems:
        raise ConfigError(render(name, problems, document))
    return settings


def _override(document: Document, data: dict[Any, Any], dotted: str, value: str | int) -> None:
    """Put a value in the place of a file's."""
    section, _, key = dotted.rpartition(".")
    place = (section, key) if section else (key,)
    if key == "preset" and isinstance(data.get(section), str):  # which is short for a preset
        data[section] = {key: value}
    elif isinstance(data.get(section), dict):
        data[section][key] = value
    elif section:
        # One that is no mapping stays the mistake that it is.
        data[section] = data.get(section) or {key: value}
    else:
        data[key] = value
    document.written[place] = str(value)
    document.lines.pop(place, None)  # it came from the command line


def _read(path: FilePath, environ: Mapping[str, str]) -> Document:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 at byte {error.start}: save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; check its path") from None
    try:
        return read_yaml(text, environ)
    except ValueError as error:
        raise ConfigError(f"{path} is no YAML: {error}") from None


# ---- mistakes --------------------------------------------------------------------------------

ANY_NAME = "NAME"  # stands in a setting's path for a name that the user chooses

_SHOULD = re.compile(r"^\w+ should (be|have|match)")
_MARK = re.compile(r"<(\w+)>")
_TEXTS = {
    "model_type": "must be a section of keys and values",
    "dict_type": "must be a section of keys and values",
    "tuple_type": "must be a list",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "missing": "is missing",
    "string_type": "must be text; where YAML reads something else, put it in quotes",
    "path_type": "must be a path",
    "invalid_key": "must be a name; put it in quotes",
    "recursion_loop": "holds itself",
}


def settings_of(section: type[Section], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield the path and declaration of every setting below a section at `prefix`, in order.

    A path is such as ``kafka.group_id``; NAME stands where the user chooses a name, as in
    ``model.features.NAME.alpha``.
    """
    for name, info in section.model_fields.items():
        parts = list(_sections_in(info.annotation))
        if not parts:
            yield f"{prefix}{name}", info
        inner = f"{prefix}{name}."
        if get_origin(info.annotation) is dict:
            inner += f"{ANY_NAME}."
        for part in parts:
            yield from settings_of(part, inner)


def _sections_in(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for part in get_args(annotation):
        yield from _sections_in(part)


def problems_of(error: ValidationError, root: type[Section], document: Document) -> list[Problem]:
    """Return the mistakes that pydantic found, except where reading has already said more.

    Unknown keys are guessed from those of `root`, the class that was validated.
    """
    told = {problem.path for problem in document.problems}
    paths = list(dict.fromkeys(path for path, _ in settings_of(root)))
    problems: list[Problem] = []
    for details in error.errors(include_url=False):
        for problem in _problems_in(details, paths):
            if problem.path not in told:
                found = _found(problem.path, document)
                problems.append(Problem(problem.path, f"{problem.text}{found}"))
    return problems


def _problems_in(details: ErrorDetails, paths: Sequence[str]) -> Iterator[Problem]:
    context: Mapping[str, Any] = details.get("ctx", {})
    path = _user_path(details["loc"])
    if "problems" in context:  # checks between sections bring a list with paths of its own
        for inner, text in context["problems"]:
            yield Problem(inner, text)
    elif details["type"] == "extra_forbidden":
        kind = next((part[1] for p in details["loc"] if (part := _MARK.fullmatch(str(p)))), None)
        yield Problem(path, _unknown(path, paths) if kind is None else _foreign(path, kind))
    else:
        said = details["msg"].removeprefix("Value error, ")
        text = _TEXTS.get(details["type"]) or _SHOULD.sub(r"must \1", said)
        yield Problem(path, text)


def _user_path(location: Path) -> Path:
    """Drop what pydantic adds to a location: the kind of section it tried, its mark for keys."""
    return tuple(part for part in location if part != "[key]" and not _MARK.fullmatch(str(part)))


def _foreign(path: Path, kind: str) -> str:
    """Say that a section of one kind has no such key, which one may be meant, and whose it is."""
    *parents, key = map(str, path)
    family = next(family for family in (GROUPS, LABELS) if kind in family)
    own = [*family[kind].model_fields]
    near = difflib.get_close_matches(key, own, n=1)
    if near:
        return f"is no known key; did you mean {'.'.join([*parents, near[0]])}?"
    others = [name for name, section in family.items() if key in section.model_fields]
    whose = f", only with kind: {' or '.join(others)}" if others else ""
    return f"is no known key with kind: {kind}{whose}; known here: {', '.join(own)}"


def _unknown(path: Path, paths: Sequence[str]) -> str:
    """Say that there is no such key, and which one may have been meant."""
    *parents, key = map(str, path)
    place = "".join(f"{parent}." for parent in parents)
    inside = [known.removeprefix(place) for known in paths if known.startswith(place)]
    siblings = list(dict.fromkeys(known.split(".")[0] for known in inside))
    near = difflib.get_close_matches(key, siblings, n=1)
    if near:
        return f"is no known key; did you mean {place}{near[0]}?"
    elsewhere = {known.rsplit(".", 1)[-1]: known for known in paths}
    near = difflib.get_close_matches(key, elsewhere, n=1, cutoff=0.8)
    if near:
        return f"is no known key; did you mean {elsewhere[near[0]]}?"
    return f"is no known key; known here: {', '.join(siblings)}"


def _found(path: Path, document: Document) -> str:
    """Tell what stands in the file; of a variable its name alone, of a secret nothing."""
    if path in SECRETS or path[-1:] == HASH_KEY[-1:] or path[:2] == _HEADERS:
        return ""
    if path in document.written:
        return f"; found {_shown(document.written[path])}"
    items: list[str] = []
    while (*path, len(items)) in document.written:
        items.append(_shown(document.written[(*path, len(items))]))
    return f"; found [{', '.join(items)}]" if items else ""


def _shown(text: str) -> str:
    if "@" in text and "://" in text:  # what stands before an @ in an address may be a password
        return "an address with an @"
    return repr(text if len(text) <= 80 else text[:79] + "…")


def render(name: str, problems: Sequence[Problem], document: Document) -> str:
    """Return the whole message: the file, then a line for each mistake, in the file's order."""

    def line_of(problem: Problem) -> int:
        path = problem.path
        while path not in document.lines and path:
            path = path[:-1]
        return document.lines.get(path, 0) if path else 0

    count = "1 mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
    lines = [f"{name} cannot be used: {count}"]
    for problem in sorted(problems, key=line_of):
        line = line_of(problem)
        where = f"line {line}: " if line else ""
        path = ".".join(map(str, problem.path))
        lines.append(f"  {where}{path}: {problem.text}")
    return _without_values("\n".join(lines), document.variables)


def _without_values(text: str, variables: Mapping[str, str]) -> str:
    """Put each variable's name in the place of its value; a shorter value tells nothing."""
    for name, value in sorted(variables.items(), key=lambda pair: -len(pair[1])):
        if len(value) >= _SHOWN_CHARACTERS:
            text = text.replace(value, f"${{{name}}}").replace(repr(value)[1:-1], f"${{{name}}}")
    return text
