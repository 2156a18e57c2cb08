"""Reads YAML so that every value remembers its line, and takes `${NAME}` from the environment.

The file is composed to YAML's node tree first. There each key's place is noted, a key that stands
twice is found, and variables are filled in; only then are Python values made. A value from a
variable is always text (the settings turn text into numbers where numbers belong), so no variable
can bring YAML of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

Path: TypeAlias = tuple[str | int, ...]

# `$${` is how a plain `${` is written.
_VARIABLE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}|\$\{")
_TEXT_TAG = "tag:yaml.org,2002:str"
_MERGE_TAG = "tag:yaml.org,2002:merge"

# Secrets, which may come from the environment alone, with the variable that we suggest.
SECRETS: dict[Path, str] = {
    ("kafka", "sasl_password"): "STREAMNB_KAFKA_PASSWORD",
    ("http", "token"): "STREAMNB_TOKEN",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where it is, and a sentence that goes on from the key's path."""

    path: Path
    text: str


@dataclass(slots=True)
class Document:
    """What a file holds, and where.

    Attributes
    ----------
    data : object
        The values, variables filled in; None for an empty file.
    lines : dict
        Line of each key's value, from 1.
    written : dict
        Each scalar as it stands in the file, so with the name of a variable and not its value.
    problems : list of Problem
        Mistakes that reading itself has found.
    """

    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    written: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_yaml(text: str, environ: Mapping[str, str]) -> Document:
    """Read one YAML document.

    Parameters
    ----------
    text : str
        The file.
    environ : mapping
        Where `${NAME}` is looked up.

    Returns
    -------
    Document
        With `problems` where keys stand twice or variables are missing.

    Raises
    ------
    ValueError
        It is no YAML; the message has line and column.
    """
    document = Document()
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is not None:
            _Walk(document, environ).visit(node, ())
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


class _Walk:
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
                self._report(
                    path,
                    "must come from the environment, never stand in a file: write "
                    f"{path[-1]}: ${{{SECRETS[path]}}} and set that variable",
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
                    path,
                    "has a ${ that is not ${NAME} of letters, digits and _; a plain ${ is $${",
                )
                return match[0]
            if name not in self._environ:
                self._report(
                    path, f"needs the variable {name}, which the environment does not have"
                )
            return self._environ.get(name, match[0])

        node.value = _VARIABLE.sub(value_of, written)
        node.tag = _TEXT_TAG

    def _report(self, path: Path, text: str) -> None:
        self._document.problems.append(Problem(path, text))
