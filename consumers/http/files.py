"""Rows and answers as files: CSV and JSON Lines.

The stored messages of an export are written by SQLite, as there may be a million of them; any other
answer is a table of some hundred rows, which Python writes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import msgspec
from starlette.responses import Response, StreamingResponse

from consumers.http.requests import NO_STORE, ProblemError, QueryParameters, json_response
from consumers.http.threads import WorkerPool
from consumers.messages import NO_TIME
from consumers.search.query_syntax import field_value, is_plain_name, literal
from consumers.search.rows import TEXT_MAX, ExportForm

# ---- rows as a file ------------------------------------------------------------------------------

_CELLS_MAX = 500  # texts of one piece of a file, each of TEXT_MAX characters at most
_COLUMNS_MAX = 1_000  # of one select; SQLite takes twice as many
# A spreadsheet takes a cell that begins so for a formula. A cell that begins with ' gets one too:
# whoever takes the first ' off any cell has the text again, whatever it was.
_FORMULA = "-=+@\t\r\n\uff1d\uff0b\uff0d\uff20'"
_TIME_MS = f"CASE time_ms WHEN {NO_TIME} THEN arrived_ms ELSE time_ms END"


_LinePart: TypeAlias = tuple[int, str]  # of a line: the column that it is made of, or -1; SQL


class _Column(NamedTuple):
    name: str
    value: str  # an SQL expression
    is_text: bool = True  # or anything, JSON as a blob; else a number, or the JSON of one
    group: str = ""  # the object that it belongs to in JSON


def csv_form(classes: Sequence[str], fields: Sequence[str]) -> ExportForm:
    """Return the form of CSV (RFC 4180), in UTF-8, with a header, safe in a spreadsheet.

    Besides what every row has there are a column of each class's probability and one of each of the
    model's `fields` but its text.
    """
    columns = _columns(classes, fields)
    names = [f"{column.group}.{column.name}".lstrip(".") for column in columns]
    header = ",".join(['"{}"'.format(name.replace('"', '""')) for name in names]) + "\r\n"
    formula = literal(f"[{_FORMULA}]*")
    parts: list[_LinePart] = []
    for i, column in enumerate(columns):
        text = f"iif(c{i} GLOB {formula}, '\"''', '\"') || replace(c{i}, '\"', '\"\"') || '\"'"
        cell = f"CASE typeof(c{i}) WHEN 'text' THEN {text} ELSE ifnull(c{i}, '') END"
        parts += [(-1, "','"), (i, cell if column.is_text else f"ifnull(c{i}, '')")]
    end = (-1, literal("\r\n"))
    return _form("text/csv", header.encode(), columns, [*parts[1:], end], fields)


def jsonl_form(classes: Sequence[str], fields: Sequence[str]) -> ExportForm:
    """Return the form of JSON Lines: the same values, unchanged; those of groups as objects."""
    columns = _columns(classes, fields)
    members: dict[str, dict[str, list[_LinePart]]] = {"": {}, "probabilities": {}, "fields": {}}
    for i, column in enumerate(columns):
        value = f"iif(typeof(c{i}) = 'blob', c{i}, json_quote(c{i}))"
        value = value if column.is_text else f"ifnull(c{i}, 'null')"
        members[column.group][column.name] = [(i, value)]
    groups = {group: _object(own) for group, own in members.items() if group}
    parts = [*_object(members[""] | groups), (-1, literal("\n"))]
    return _form("application/jsonl", b"", columns, parts, fields)


def _form(
    media_type: str,
    header: bytes,
    columns: Sequence[_Column],
    parts: Sequence[_LinePart],
    fields: Sequence[str],
) -> ExportForm:
    selects: list[tuple[dict[int, str], list[str]]] = [({}, [])]
    for i, sql in parts:
        if len(selects[-1][0]) == _COLUMNS_MAX:
            selects.append(({}, []))
        named, line = selects[-1]
        if i >= 0:
            named[i] = f"{columns[i].value} AS c{i}"
        line.append(sql)
    if not selects[-1][0]:  # the end of a line, behind the last column that there was room for
        selects[-2][1].extend(selects.pop()[1])
    made = tuple((tuple(named.values()), _joined(line)) for named, line in selects)
    n_rows = max(1, _CELLS_MAX // (1 + len(fields))) if len(made) == 1 else 1
    return ExportForm(media_type, header, made, n_rows)


def _columns(classes: Sequence[str], fields: Sequence[str]) -> list[_Column]:
    named = " ".join([f"WHEN {k} THEN {literal(name)}" for k, name in enumerate(classes)])
    iso = f"strftime('%Y-%m-%dT%H:%M:%fZ', ({_TIME_MS}) / 1000.0, 'unixepoch')"
    return [
        _Column("id", "id"),
        _Column("time_ms", _TIME_MS, is_text=False),
        _Column("time", iso),
        *(_Column(name, name) for name in ("user", "lang", "text")),
        _Column("label", f"CASE label {named} END"),
        _Column("probability", "probabilities -> label", is_text=False),
        # One that came later than its message is in `taught` alone.
        _Column("truth", f"CASE ifnull(truth, iif(corrected IS NULL, taught, NULL)) {named} END"),
        _Column("corrected", f"CASE corrected {named} END"),
        # A class that joined after the message came had no share of its posterior.
        *(
            _Column(name, f"ifnull(probabilities -> {k}, '0.0')", False, "probabilities")
            for k, name in enumerate(classes)
        ),
        *(_Column(name, _field(name), group="fields") for name in fields if name != "text"),
    ]


def _field(name: str) -> str:
    value, path = field_value(name), literal(f'$."{name}"')
    # A number has all its digits as JSON; SQL writes 15.
    number = f"CAST(example -> {path} AS BLOB)" if is_plain_name(name) else value
    kinds = f"WHEN 'text' THEN substr({value}, 1, {TEXT_MAX}) WHEN 'real' THEN {number}"
    return f"CASE typeof({value}) {kinds} ELSE {value} END"


def _object(members: Mapping[str, Sequence[_LinePart]]) -> list[_LinePart]:
    """Return a JSON object as SQL expressions to be joined; its values are such themselves."""
    parts: list[_LinePart] = []
    for name, value in members.items():
        before = f"{',' if parts else '{'}{msgspec.json.encode(name).decode()}:"
        parts += [(-1, literal(before)), *value]
    return [*parts, (-1, "'}'")] if parts else [(-1, "'{}'")]


def _joined(parts: Sequence[str]) -> str:
    """Return SQL that joins texts, halves first: SQLite bounds how deep an expression may be."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return f"({_joined(parts[:middle])} || {_joined(parts[middle:])})"


# ---- an answer as a table ------------------------------------------------------------------------

FORMS = {"csv": "text/csv", "jsonl": "application/jsonl"}
_ROWS_AT_ONCE = 200
FileRow = dict[str, Any]
_OfAnswer: TypeAlias = msgspec.Struct | bytes


def form_of(given: QueryParameters) -> str:
    """Return the form that is asked for, `json` by default; 422 if there is no such form."""
    form = given.text("format") or "json"
    if form != "json" and form not in FORMS:
        raise ProblemError(
            422, f"format is {form[:80]!r}; one of json, {', '.join(FORMS)} is wanted"
        )
    return form


async def response_in(workers: WorkerPool, form: str, answer: _OfAnswer, name: str) -> Response:
    """Return an answer as JSON, or as the file of its rows, which a worker makes."""
    if form == "json":
        return json_response(answer)

    def made() -> list[bytes]:
        return list(pieces_in(form, msgspec.json.decode(json_response(answer).body)))

    headers = NO_STORE | {"Content-Disposition": f'attachment; filename="{name}.{form}"'}
    return StreamingResponse(_each(await workers.run(made)), 200, headers, FORMS[form])


async def _each(pieces: list[bytes]) -> AsyncIterator[bytes]:
    while pieces:  # what is sent is held no longer
        yield pieces.pop(0)


def pieces_in(form: str, answer: Any) -> Iterator[bytes]:
    """Yield the file of an answer's rows, piece by piece."""
    rows = list(_rows((), (), answer))
    columns = list(dict.fromkeys(chain.from_iterable(rows)))
    if form == "csv":
        yield _line(columns)
    for i in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[i : i + _ROWS_AT_ONCE]
        if form == "csv":
            yield b"".join([_line([row.get(name) for name in columns]) for row in some])
        else:
            yield b"".join([msgspec.json.encode(row) + b"\n" for row in some])


def _rows(of: tuple[str, ...], at: tuple[str, ...], value: Any) -> Iterator[FileRow]:
    """Yield a value as a row, then those of the lists in it: `of` names the list, `at` the place.

    >>> list(_rows((), (), {"n": 2, "points": [{"t": 1, "counts": {"a": 2}}]}))
    [{'of': '', 'at': '', 'n': 2}, {'of': 'points', 'at': '0', 't': 1, 'counts.a': 2}]
    """
    row: FileRow = {"of": ".".join(of), "at": ".".join(at)}
    lists: list[tuple[tuple[str, ...], list[Any]]] = []
    _flatten((), value, row, lists)
    yield row
    for name, items in lists:
        for i, item in enumerate(items):
            yield from _rows((*of, *name), (*at, str(i)), item)


def _flatten(
    name: tuple[str, ...], value: Any, row: FileRow, lists: list[tuple[tuple[str, ...], list[Any]]]
) -> None:
    """Put what is plain into a row, and note lists of lists and objects."""
    if isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        lists.append((name, value))
    elif isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            _flatten((*name, str(key)), each, row, lists)
    else:
        row[".".join(name)] = value


def _line(cells: Sequence[Any]) -> bytes:
    return (",".join(map(_cell, cells)) + "\r\n").encode()


def _cell(value: Any) -> str:
    """Return a cell of CSV, safe in a spreadsheet."""
    if not isinstance(value, str):
        return "" if value is None else msgspec.json.encode(value).decode()
    guard = "'" if value.startswith(tuple(_FORMULA)) else ""
    return '"{}{}"'.format(guard, value.replace('"', '""'))
