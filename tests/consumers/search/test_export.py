"""Rows as a file: what is in it, in which form, and how little of it is held at once."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.config.settings import Settings
from consumers.http.files import csv_form, jsonl_form
from consumers.search.chunks import RowFilter
from consumers.search.query_syntax import parse
from consumers.search.rows import TEXT_MAX, ExportForm
from consumers.search.store import RecentStore
from tests.consumers.decoded_messages import decoder, raw
from tests.consumers.search.stores import CLASSES, LOG, forget, offer, running, settle, tell, tweets

EVERYTHING = RowFilter()
CSV, JSONL = csv_form(CLASSES, ("text",)), jsonl_form(CLASSES, ("text",))
FORMULA = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"


def exported(
    store: RecentStore,
    form: ExportForm = JSONL,
    text: str = "",
    lang: str | None = None,
    rows: RowFilter = EVERYTHING,
    n_max: int = 1_000_000,
) -> bytes:
    """Return a whole file."""
    return b"".join(store.exported(parse(text), lang, rows, form, n_max))


def of_jsonl(file: bytes) -> list[dict[str, Any]]:
    """Return the messages of a file of JSON Lines."""
    return [json.loads(line) for line in file.decode().split("\n")[:-1]]


def of_csv(file: bytes) -> list[dict[str, str]]:
    """Return the rows of a CSV file as a strict reader finds them."""
    return list(csv.DictReader(io.StringIO(file.decode(), newline=""), strict=True))


def ids(file: bytes) -> list[str]:
    """Return the ids of a file of JSON Lines."""
    return [message["id"] for message in of_jsonl(file)]


def unprotected(cell: str) -> str:
    """Return what a cell was before it was made safe for spreadsheets, as the guide says."""
    return cell.removeprefix("'")


# What SQLite ends a text at, or no file of text can hold, does not come through its JSON either.
CHARACTERS = st.characters(exclude_characters="\0\ufdd0\ufdd1", exclude_categories=["Cs"])
TEXTS = st.text(CHARACTERS | st.sampled_from(f"{FORMULA}'\",\r\n"), max_size=12)


@given(told=st.lists(st.tuples(TEXTS, TEXTS, st.sampled_from(["en", "de", None])), max_size=12))
def test_a_file_says_what_a_search_does(told: list[tuple[str, str, str | None]]) -> None:
    """Both forms hold the rows that a search finds, in its order, whatever characters they have."""
    with running(None) as store:
        tell(store, [{"text": text, "user": user, "lang": lang} for text, user, lang in told])
        rows = [found.row for found in store.search(parse(""), limit=1_000).rows]
        file = of_jsonl(exported(store))
        table = of_csv(exported(store, CSV))
        assert len(rows) == len(file) == len(table)
        for row, message, cells in zip(rows, file, table, strict=True):
            assert message["id"] == unprotected(cells["id"]) == row.id
            assert message["text"] == unprotected(cells["text"]) == row.text
            assert message["user"] == row.user
            assert unprotected(cells["user"]) == (row.user or "")
            assert message["lang"] == row.lang
            assert message["label"] == cells["label"] == row.label
            assert message["truth"] == row.truth
            assert message["corrected"] is row.corrected is None
            assert message["time_ms"] == int(cells["time_ms"]) == row.arrived_ms
            assert message["time"] == cells["time"] == "2023-11-14T22:13:20.000Z"
            assert message["probability"] == float(cells["probability"]) == row.probability
            assert tuple(message["probabilities"].values()) == row.probabilities
            assert [float(cells[f"probabilities.{name}"]) for name in CLASSES] == [
                *row.probabilities
            ]


@pytest.mark.parametrize("first", [*FORMULA, "'"])
def test_no_cell_is_a_formula(first: str) -> None:
    """A cell that a spreadsheet would compute begins with an apostrophe; JSON has the text."""
    with running(None) as store:
        tell(store, [{"text": f"{first}cmd|' /C calc'!A0", "user": f"{first}SUM(1)"}])
        (cells,) = of_csv(exported(store, CSV))
        assert (cells["text"][:2], cells["user"][:2]) == (f"'{first}", f"'{first}")
        assert of_jsonl(exported(store))[0]["user"] == f"{first}SUM(1)"


def test_a_csv_file_is_written_as_the_standard_says() -> None:
    """A header, CRLF behind every line, and quotes doubled within quotes (RFC 4180)."""
    with running(None) as store:
        tell(store, ['she said "so"\nand left'])
        header, line, rest = exported(store, CSV).split(b"\r\n")
        assert header.startswith(b'"id","time_ms","time","user","lang","text","label"')
        assert b'"she said ""so""\nand left"' in line
        assert rest == b""


def test_a_file_without_rows_is_its_header() -> None:
    """CSV has its header alone, JSON Lines nothing at all."""
    with running(None) as store:
        assert of_csv(exported(store, CSV)) == []
        assert exported(store, CSV).count(b"\r\n") == 1
        tell(store, ["something"])
        assert exported(store, CSV, lang="xx").count(b"\r\n") == 1
        assert exported(store, text="nothing ") == exported(store, lang="xx") == b""


def test_only_what_is_asked_for_is_in_a_file() -> None:
    """A query, a language, a class, times and a number of rows each leave out the others."""
    with running(None) as store:
        rows = [
            {"text": f"{word} day", "lang": lang, "created_at": f"2023-11-14T10:00:0{i}Z"}
            for i, (word, lang) in enumerate([("good", "en"), ("bad", "de"), ("good", "de")] * 2)
        ]
        tell(store, rows)
        first_ms = 1_699_956_000_000
        assert ids(exported(store)) == ["m5", "m4", "m3", "m2", "m1", "m0"]
        assert ids(exported(store, text="good ")) == ["m5", "m3", "m2", "m0"]
        assert ids(exported(store, lang="de")) == ["m5", "m4", "m2", "m1"]
        assert ids(exported(store, text="good ", lang="de")) == ["m5", "m2"]
        assert ids(exported(store, rows=RowFilter(label=1))) == ["m5", "m3", "m1"]
        span = RowFilter(from_ms=first_ms + 1_000, to_ms=first_ms + 4_000)
        assert ids(exported(store, rows=span)) == ["m3", "m2", "m1"]
        assert ids(exported(store, text="good ", rows=span)) == ["m3", "m2"]
        for text in ("", "good ", "good label:negative", "label:positive"):
            found = store.search(parse(text), rows=span).rows
            assert [each.row.id for each in found] == ids(exported(store, text=text, rows=span))
        assert ids(exported(store, n_max=2)) == ["m5", "m4"]
        assert ids(exported(store, text="good ", rows=RowFilter(label=0), n_max=1)) == ["m2"]


def test_fields_have_columns_of_their_own() -> None:
    """Categories and numbers of the model are there by name, also names that SQL would not take."""
    fields = ("grade", "income", 'it\'s "so"')
    with running(None) as store:
        # The stores of these tests read a text alone; what stands in `example` is put in here.
        tell(store, ["x", "y"])
        file = store._file()
        for key, example in enumerate(
            [{"grade": "=B", "income": -5.5, 'it\'s "so"': "yes"}, {"grade": "x" * 5_000}], 1
        ):
            file._db.execute(
                "UPDATE rows1 SET example = ? WHERE key = ?", (json.dumps(example), key)
            )
        newest, oldest = of_csv(exported(store, csv_form(CLASSES, fields)))
        assert [oldest[f"fields.{name}"] for name in fields] == ["'=B", "-5.5", "yes"]
        assert [newest[f"fields.{name}"] for name in fields] == ["x" * TEXT_MAX, "", ""]
        newest_message, message = of_jsonl(exported(store, jsonl_form(CLASSES, fields)))
        assert message["fields"] == {"grade": "=B", "income": -5.5, 'it\'s "so"': "yes"}
        assert newest_message["fields"]["income"] is None


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_keeps_all_its_digits(number: float) -> None:
    """SQL writes 15 of them."""
    with running(None) as store:
        tell(store, ["x"])
        example = json.dumps({"ratio": number, "age": 7})
        store._file()._db.execute("UPDATE rows1 SET example = ?", (example,))
        (message,) = of_jsonl(exported(store, jsonl_form(CLASSES, ("age", "ratio"))))
        assert message["fields"] == {"ratio": number, "age": 7}
        (cells,) = of_csv(exported(store, csv_form(CLASSES, ("age", "ratio"))))
        assert (cells["fields.age"], float(cells["fields.ratio"])) == ("7", number)


def test_an_empty_text_is_an_empty_text() -> None:
    """Only a message whose text is not read shows its fields in the place of one."""
    line = b'{"id": "a", "text": "", "place": "here", "label": 4}'
    read = Settings.model_validate({"message": {"fields": ["place"]}})
    unread = Settings.model_validate({"model": {"features": {"place": {"kind": "categories"}}}})
    for settings, shown in ((read, ""), (unread, "place here")):
        told = decoder(settings).decode(raw(LOG, [line]))
        assert told.envelope(0).shown == shown
        with running(None) as store:
            offer(store, told)
            settle(store)
            assert [row["text"] for row in of_jsonl(exported(store))] == [shown]
            assert [cells["text"] for cells in of_csv(exported(store, CSV))] == [shown]
            assert [found.row.text for found in store.search(parse(""), limit=9).rows] == [shown]


def test_many_classes_make_no_expression_too_deep() -> None:
    """A model of 400 classes is exported too."""
    classes = [f"class {k}" for k in range(400)]
    with running(None) as store:
        tell(store, ["one", "two"])
        (first, _) = of_csv(exported(store, csv_form(classes, ("text",))))
        assert first["probabilities.class 1"] == "0.8"
        assert first["probabilities.class 399"] == "0.0"  # it joined after the message came
        assert (
            len(of_jsonl(exported(store, jsonl_form(classes, ("text",))))[0]["probabilities"])
            == 400
        )


def started(store: RecentStore, **asked: Any) -> tuple[Iterator[bytes], list[str]]:
    """Begin a file; return what is to come of it, and the ids of the first piece."""
    pieces = store.exported(parse(""), None, EVERYTHING, JSONL, asked.get("n_max", 1_000_000))
    return pieces, ids(next(pieces))


def test_what_is_removed_meanwhile_is_left_out() -> None:
    """A message that is deleted while a file is written is not in the rest of it."""
    with running(None) as store:
        tell(store, ["good day"] * 1_200)
        pieces, first = started(store)
        store.remove("m3")
        forget(store, ["m4"])
        settle(store)
        rest = ids(b"".join(pieces))
        assert len(first) + len(rest) == 1_198
        assert not {"m3", "m4"} & set(rest)


def test_what_comes_meanwhile_is_left_out_and_what_goes_as_well() -> None:
    """A file ends, however quickly messages come, and chunks that go take their rows along."""
    with running(None, messages_max=16 * 600) as store:
        tell(store, ["good day"] * 2_400)
        pieces, first = started(store)
        offer(store, tweets(["new"] * 9_000, first=2_400))
        settle(store)
        assert store.get("m700") is None
        rest = ids(b"".join(pieces))
        assert all(int(name[1:]) < 2_400 for name in first + rest)
        assert len(set(first + rest)) == len(first + rest) < 2_400


def test_a_chunk_that_leaves_while_it_is_read_is_left_out() -> None:
    """Its first rows are in the file, and the rest of them no longer in the store."""
    with running(None, messages_max=16 * 600) as store:
        tell(store, ["good day"] * 1_200)
        pieces, first = started(store)
        assert 0 < len(first) < 600
        offer(store, tweets(["new"] * 12_000, first=1_200))
        settle(store)
        assert store.get("m1199") is None
        assert list(pieces) == []


@pytest.mark.parametrize("form", [CSV, JSONL])
def test_a_file_is_read_in_small_pieces(form: ExportForm) -> None:
    """However long the file, a piece has some hundreds of rows; no reader is held between them."""
    with running(None) as store:
        tell(store, ["x" * TEXT_MAX] * 1_500)
        pieces = list(store.exported(parse(""), None, EVERYTHING, form, 1_000_000))
        most = form.piece_rows * (TEXT_MAX + 400)
        assert max(map(len, pieces)) <= most < sum(map(len, pieces)) / 2
        unfinished = [
            store.exported(parse(""), None, EVERYTHING, form, 1_000_000) for _ in range(9)
        ]
        assert all(next(each) for each in unfinished)  # there are four readers
        (busy, _, _) = store._file()._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert not busy  # nor does one keep the log from being emptied


@pytest.mark.parametrize("n_fields", [986, 987, 988, 1_990, 4_100])
def test_a_model_may_have_more_fields_than_sqlite_takes_columns(n_fields: int) -> None:
    """A line is made in parts then, whole and in its order; with as many classes too."""
    fields = tuple(f"c{k}" for k in range(n_fields))  # as the expressions are called
    example = {name: k if k % 2 else f'"{name}"' for k, name in enumerate(fields)}
    classes = [f"class {k}" for k in range(n_fields)]
    with running(None) as store:
        tell(store, ["one", "two", "three"])
        store._file()._db.execute("UPDATE rows1 SET example = ?", (json.dumps(example),))
        for each in of_jsonl(exported(store, jsonl_form(CLASSES, fields))):
            assert each["fields"] == example
        for cells in of_csv(exported(store, csv_form(CLASSES, fields))):
            assert list(cells)[-n_fields:] == [f"fields.{name}" for name in fields]
            assert [cells[f"fields.{name}"] for name in fields] == list(map(str, example.values()))
        found = of_csv(exported(store, csv_form(classes, ("text",))))
        assert [each["text"] for each in found] == ["three", "two", "one"]
        assert {each[f"probabilities.class {n_fields - 1}"] for each in found} == {"0.0"}


def test_more_fields_make_smaller_pieces() -> None:
    """The texts of a piece are bounded, not its rows alone."""
    fields = tuple(f"f{k}" for k in range(99))
    assert csv_form(CLASSES, fields).piece_rows == CSV.piece_rows * 2 // 100


@pytest.mark.parametrize(("n_rows", "n_more"), [(50_000, 800), (1_000_000, 40)])
@pytest.mark.deep
def test_an_export_takes_little_memory_however_long_it_is(
    tmp_path: Path, n_rows: int, n_more: int
) -> None:
    """A million rows as CSV take 20 MB at most beside the store that holds them.

    Either file is larger than that by far.
    """
    path, step = tmp_path / "recent.db", 5_000
    bounds: dict[str, Any] = {"messages_max": n_rows, "age_max_s": 1e9, "rate_max_per_s": 1e9}
    with running(path, processor_share_max=1.0, **bounds) as store:
        for first in range(0, n_rows, step):
            texts = [f"message {i} of many {'x' * n_more}" for i in range(step)]
            tell(store, texts, first=first)
    done = subprocess.run(
        [sys.executable, "-m", "tests.consumers.search.export_memory", path],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["lines"] == n_rows + 1
    assert found["grown_bytes"] <= 20_000_000
