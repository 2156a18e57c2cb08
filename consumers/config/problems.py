"""Turns mistakes in a configuration into lines: where, what was found, what is allowed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from consumers.config.base import Section
from consumers.config.model import GROUPS
from consumers.config.sections import LABELS
from consumers.config.yaml_file import SECRETS, Document, Path, Problem

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
    """Give every setting's path and declaration, in order.

    Parameters
    ----------
    section : type of Section
        Where to begin, usually `Settings`.
    prefix : str
        Path of the section, with its dot.

    Yields
    ------
    tuple of (str, FieldInfo)
        Path such as ``kafka.group_id``; NAME stands where the user chooses a name, as in
        ``model.features.NAME.alpha``.
    """
    for name, field in section.model_fields.items():
        parts = list(_sections_in(field.annotation))
        if not parts:
            yield f"{prefix}{name}", field
        inner = f"{prefix}{name}."
        if get_origin(field.annotation) is dict:
            inner += f"{ANY_NAME}."
        for part in parts:
            yield from settings_of(part, inner)


def _sections_in(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for part in get_args(annotation):
        yield from _sections_in(part)


def problems_of(error: ValidationError, root: type[Section], document: Document) -> list[Problem]:
    """Return the mistakes that the settings found, except where reading has already said more.

    Parameters
    ----------
    error : ValidationError
        What pydantic raised.
    root : type of Section
        The class that was validated; its keys are the ones to guess from.
    document : Document
        The file, for what was written there.
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
        text = _TEXTS.get(details["type"]) or _SHOULD.sub(r"must \1", details["msg"])
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
    inside = "".join(f"{parent}." for parent in parents)
    siblings = list(
        dict.fromkeys(
            known.removeprefix(inside).split(".")[0] for known in paths if known.startswith(inside)
        )
    )
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
    if path in SECRETS:
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
    return "\n".join(lines)
