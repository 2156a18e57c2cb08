"""Queries with conditions, `grade:B income:>50000`: read, met, bounded, and watched."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumers.config.settings import Settings
from consumers.features import kinds_of
from consumers.http.files import jsonl_form
from consumers.search import chunks, matching
from consumers.search import rows as rows_module
from consumers.search.chunks import RowFilter
from consumers.search.live_query import ArrivedRows, LiveQuery
from consumers.search.query_syntax import FieldCondition, Query, QueryError, parse, with_classes
from consumers.search.rows import MessageRow
from consumers.search.store import RecentStore
from consumers.search.writer import NewRows
from tests.consumers.decoded_messages import decoder, raw
from tests.consumers.search.stores import (
    CLASSES,
    LOG,
    SETTINGS,
    UNSURE_BELOW,
    Clock,
    settle,
    wall_of,
)

MODEL = Settings.model_validate(
    {
        "model": {
            "features": {
                "text": {"kind": "words"},
                "grade": {"kind": "categories", "fields": ["grade"]},
                "flags": {"kind": "flags", "fields": ["owner"]},
                "numbers": {"kind": "numbers", "fields": ["income", "monthly rate"]},
            }
        }
    }
)
FIELDS = tuple(kinds_of(MODEL.model))
NAMED = {name: kind for name, kind in kinds_of(MODEL.model).items() if name != "text"}


def test_a_class_may_be_named_as_the_page_shows_it() -> None:
    """In any case of letters; what names no class is refused, with all that do."""
    shown = {"reject": "Rejected"}

    def labels(text: str) -> list[str]:
        query = with_classes(parse(text), ["approve", "reject"], shown)
        return [each.value for each in query.conditions]

    assert labels("label:rejected -label:Approve lang:en") == ["reject", "approve", "en"]
    with pytest.raises(QueryError, match=r"no class 'rejeced'; there are approve, reject \(Rej"):
        labels("label:rejeced")
    with pytest.raises(QueryError, match="no class ''"):
        labels('label:""')


def test_a_class_with_a_quote_is_named_without() -> None:
    """Between quotes none can be typed; what else stands in its name is compared as ever."""
    classes, shown = ['so "so"', "it's", " lead"], {"it's": 'the "it"'}
    asked = 'label:"So so" label:"the it" label:it\'s label:" lead"'
    query = with_classes(parse(asked), classes, shown)
    assert [each.value for each in query.conditions] == ['so "so"', "it's", "it's", " lead"]


@contextlib.contextmanager
def running(
    messages_max: int = 1_000_000, clock: Clock | None = None, fields: Collection[str] = FIELDS
) -> Iterator[RecentStore]:
    """Run a store of messages with categories, flags and numbers."""
    store = RecentStore(
        SETTINGS.model_copy(update={"messages_max": messages_max}), None, CLASSES, fields,
        UNSURE_BELOW, wall_clock=Clock(1_700_000_000.0), clock=clock or Clock(100.0),
    )  # fmt: skip
    store.start()
    try:
        yield store
    finally:
        store.stop()


def tell(store: RecentStore, rows: Sequence[dict[str, Any]], first: int = 0) -> None:
    """Store messages; `p` is how probable the class is that they are judged to be, `k`."""
    lines = [
        msgspec.json.encode({"id": f"m{i}", "text": "good day", "p": 0.8, "k": i % 2} | row)
        for i, row in enumerate(rows, first)
    ]
    told = decoder(MODEL).decode(raw(LOG, lines, first))
    assert len(told.to_predict) == len(rows)
    given_ = [msgspec.json.decode(line) for line in lines]
    shares = np.array([[1 - row["p"], row["p"]][:: 1 if row["k"] else -1] for row in given_])
    store.offer(told, told.to_predict, np.log(shares))
    settle(store)


def found(store: RecentStore, text: str, limit: int = 1_000) -> list[str]:
    """Return the ids of what a query finds, newest first, page by page."""
    names: list[str] = []
    before = None
    while True:
        page = store.search(store.parse(text), limit=limit, before=before)
        names += [each.row.id for each in page.rows]
        if not page.more:
            return names
        assert before is None or (page.before is not None and page.before < before)
        before = page.before


def whole_rows(store: RecentStore) -> list[MessageRow]:
    """Return all rows with the fields that the model read, newest first."""
    rows = [store.get(name) for name in found(store, "")]
    return [row for row in rows if row is not None]


def conditions(text: str) -> list[tuple[str, str, str, bool]]:
    """Return the conditions that a query is read as."""
    return [(c.name, c.op, c.value, c.negated) for c in parse(text, NAMED).conditions]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("grade:B", [("grade", "=", "B", False)]),
        ('-grade:"very good" x', [("grade", "=", "very good", True)]),
        ("income:>50000", [("income", ">", "50000", False)]),
        ("income:<=-1.5e3", [("income", "<=", "-1.5e3", False)]),
        ("owner:true", [("owner", "=", "true", False)]),
        ('"monthly rate":0.5', [("monthly rate", "=", "0.5", False)]),
        ('x -"monthly rate":>=0.5', [("monthly rate", ">=", "0.5", True)]),
        ('"day" "grade":"very good"', [("grade", "=", "very good", False)]),
        ('grade:"A,B"', [("grade", "=", "A,B", False)]),
        ("income:-1..5e3", [("income", ">=", "-1", False), ("income", "<=", "5e3", False)]),
        ("confidence:0.5..0.5", [
            ("confidence", ">=", "0.5", False), ("confidence", "<=", "0.5", False),
        ]),
        ("lang:en label:positive confidence:<0.7", [
            ("lang", "=", "en", False),
            ("label", "=", "positive", False),
            ("confidence", "<", "0.7", False),
        ]),
    ],
)  # fmt: skip
def test_what_is_read_as_a_condition(text: str, expected: list[Any]) -> None:
    """A known name, a colon, and a value or a comparison with a number."""
    assert conditions(text) == expected


@pytest.mark.parametrize(
    "text",
    ["10:30", "https://example.org/a:b", '"grade:B"', '"so grade:B"', "grade:", "grade", "re:mark",
     "x.grade:B", "#grade:B", 'a"grade:B"', '"income > 5"', '"monthly rate":', "income:", "income>",
     "lang: en", "label = good", '"he said": yes', "monthly rate", "incomes>5", "x.income>5"],
)  # fmt: skip
def test_what_stays_words(text: str) -> None:
    """What names no field, or stands within quotes, is looked for as before."""
    query = parse(text, NAMED)
    assert not query.conditions
    assert query == parse(text)


@pytest.mark.parametrize(
    "text",
    ["http://x", "note:", "note: x", "income:> 5", "income>5", "confidence>0.5", "confidence: low",
     "own_home:yes", "grade:A,B", "rate:1..5", "monthly rate: 5", "lang: en"],
)  # fmt: skip
def test_of_a_model_of_texts_all_that_looks_alike_is_words(text: str) -> None:
    """Where no field has the name, a text with a colon or a comparison can be searched for."""
    assert parse(text).terms
    assert not parse(text).conditions


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("income:> 5", "At character 1: 'income:> 5' cannot be read; write income:>5, or put"),
        ("a  -income:<=", "At character 4: '-income:<=' cannot be read; write income:<=0.5,"),
        ("income>=5", "At character 1: 'income>=5' cannot be read; write income:>=5,"),
        ("income =< 5", "'income =< 5' cannot be read; write income:<=5,"),
        ("income: 5*", "write income:5,"),
        ("grade=B", "write grade:B,"),
        ("grade:>", "write grade:value,"),
        ("owner = yes", "write owner:true,"),
        ("confidence:> 0.5", "write confidence:>0.5,"),
        ("confidence>0.5", "write confidence:>0.5,"),
        ("monthly rate:>5", "'monthly rate:>5' cannot be read; write \"monthly rate\":>5,"),
        ("monthly rate:5", 'write "monthly rate":5,'),
        ('"monthly rate" > 5', 'write "monthly rate":>5,'),
        ("rate:>5", "no field 'rate' to compare; there are .*, income, \"monthly rate\""),
        ('"montly rate":>5', "no field 'montly rate' to compare"),
        ('x "monthly rate":high', "At character 3: 'high' is no number; write \"monthly rate\":>0"),
        ("owner:yes", "'yes' is no flag; write owner:true or owner:false"),
        ("owner:2", "'2' is no flag"),
        ("grade:>5", "grade is no number; write grade:5"),
        ("grade:A,B", 'A,B is a list; ask for each value, or write grade:"A,B"'),
        ("lang:en,de", "en,de is a list"),
        ("income:5..1", "'5..1' is no range; write income:0.5..2"),
        ("income:..1", "'..1' is no range"),
        ("-income:1..5", "a range cannot be left out; ask for income:<1, or for income:>5"),
    ],
)
def test_a_condition_in_a_wrong_form_is_refused(text: str, says: str) -> None:
    """The error has the place, what stands there, and an example of the right form."""
    with pytest.raises(QueryError, match=says):
        parse(text, NAMED)


def test_a_name_with_quotes_is_written_without() -> None:
    """As a class's is; a name that begins as what is left out does stands in quotes too."""
    fields = {'my "own" rate': "numbers", "-x": "numbers", "a:b": "numbers", "50%": "numbers"}
    asked = '"my own rate":>5 "-x":>5 -"a:b":1 50%:>1'
    assert [each.name for each in parse(asked, fields).conditions] == list(fields)
    with pytest.raises(QueryError, match='confidence, "my own rate", "-x", "a:b", 50%\\.'):
        parse("y:>5", fields)


def test_words_and_conditions_stand_side_by_side() -> None:
    """The words of a query are those that it has without its conditions."""
    assert parse("good grade:B day ", NAMED).terms == parse("good day ").terms
    assert not parse("good grade:B", NAMED).prefix_last  # it is not being typed any more
    assert parse("grade:B goo", NAMED).prefix_last
    assert not parse("grade:B", NAMED).is_everything


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("incme:>50000", "no field 'incme'"),
        ("income:>much", "'much' is no number"),
        ("confidence:high", "'high' is no number"),
        ("lang:>en", "lang is no number; write lang:en"),
        ("label:neutral", "no class 'neutral'; there are negative, positive"),
        (" ".join(["grade:B"] * 9), "8 are read at most"),
    ],
)
def test_a_condition_that_makes_no_sense_is_refused(text: str, says: str) -> None:
    """The error names what was found and the way out."""
    with running() as store, pytest.raises(QueryError, match=says):
        store.parse(text)


ROWS = st.fixed_dictionaries(
    {"k": st.integers(0, 1), "p": st.sampled_from([0.55, 0.8, 0.95, 1 - 1e-9])},
    optional={
        "lang": st.sampled_from(["en", "de"]),
        "text": st.sampled_from(["good day", "bad", "good"]),
        "grade": st.sampled_from(["A", "B", "b", "1", 'it\'s "B"']),
        "income": st.sampled_from([-5, 0, 1, 2.5, 50_000]),
        "monthly rate": st.floats(0, 1, width=16),
        "owner": st.booleans(),
    },
)
ASKED = st.lists(
    st.sampled_from([
        "good", "-bad", "grade:B", "-grade:b", "grade:1", "income:1", "income:>0", "-income:<=1",
        "income:>=2.5", "owner:true", "-owner:true", "owner:0", "lang:en", "-lang:de", "lang:xx",
        "lang:EN", "-lang:EN", 'lang:""', '-lang:""', "confidence:<1", "confidence:>=1",
        "label:positive", "-label:positive", "confidence:<0.7", "confidence:>=0.95",
        """grade:"it's """, '"monthly rate":>0.25', '-"monthly rate":0', "income:0..2.5",
        "confidence:0.6..0.9",
    ]),
    min_size=1, max_size=3,
).map(lambda parts: " ".join(parts) + " ")  # fmt: skip


@given(rows=st.lists(ROWS, max_size=30), text=ASKED, limit=st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_all_that_meets_the_conditions_is_found_and_nothing_else(
    rows: list[dict[str, Any]], text: str, limit: int
) -> None:
    """Search, counts, file and live query say what looking at each row by itself says."""
    with running(16 * 7, fields=kinds_of(MODEL.model)) as store:
        tell(store, rows)
        query = store.parse(text)
        words = {each.row.key for each in store.search(Query(text, query.terms), limit=1_000).rows}
        has_words = [row for row in whole_rows(store) if row.key in words]
        expected = [row.id for row in has_words if query.admits(row.values)]
        assert found(store, text, limit) == expected
        counted = store.counted(query)
        assert counted.n == len(expected)
        assert not counted.newest_only
        form = jsonl_form(CLASSES, FIELDS)
        file = b"".join(store.exported(query, None, RowFilter(), form, 1_000)).split(b"\n")[:-1]
        assert [msgspec.json.decode(line)["id"] for line in file] == expected
        arrived = ArrivedRows(whole_rows(store)[::-1], {})
        matches = arrived.matches(query, None)
        assert [arrived.rows[i].id for i in reversed(matches)] == expected
        newest = [each.row.id for each in arrived.newest(query, None, matches, 2)]
        assert newest[::-1] == expected[:2]
        arrived.close()


@given(
    value=st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text("aB1'\"é", max_size=2)),
    op=st.sampled_from(["=", "<", "<=", ">", ">="]),
    wanted=st.sampled_from(["1", "-2.5", "a", "B", "1'", "true", "false", "é", "0"]),
    negated=st.booleans(),
    name=st.sampled_from(["grade", "monthly rate", 'it\'s "so"', "é", "a.b"]),
)
def test_the_file_and_memory_agree(
    value: Any, op: str, wanted: str, negated: bool, name: str
) -> None:
    """SQL over a stored row says what Python says of the row itself, whatever the name."""
    one = FieldCondition(name, op, wanted, negated=negated)
    if op != "=" and one.number is None:
        return
    import sqlite3  # noqa: PLC0415

    db = sqlite3.connect(":memory:")
    example = msgspec.json.encode({} if value is None else {name: value, "other": 7}).decode()
    (met,) = db.execute(f"SELECT {one.sql()} FROM (SELECT ? AS example)", (example,)).fetchone()
    assert bool(met) == one.is_met_by(value)
    db.close()


# Characters that one side might cut at, fold, join or turn round otherwise than the other.
HOSTILE = st.sampled_from([
    "a", "A", "b", "B", "é", "É", "e\u0301", "E\u0301", "ß", "ẞ", "İ", "ı", "i\u0307", "ǅ", "ﬁ",
    "Ω", "\u2126", "\0", "\x1f", "\x7f", "\u0085", "\u00a0", "\u200b", "\u200d", "\u202e",
    "\u2028", "\ufeff", "\ufffd", "\ud800", "\udc00", "\ufdd0", "\ufdd1", "\ue000", "\ue004",
    "\uffff", "\U0010ffff", "שלום", "مرحبا", "ﷺ", "\u0300", "\u036f", "\u1ab0", "\u20dd", "ไทย",
    "한글", "\u1112\u1161\u11ab", "漢字", "カ\u3099", "ｶﾞ", "👨\u200d👩", "🇩🇪", "👍🏽", " ", "\t",
    "'", '"', "\\", "%", "*", "-", "#", "＃", "@", "_", "&", ":", "x" * 10_000,
])  # fmt: skip
FORMS = st.sampled_from(["{}", "{} ", "-{}", '"{}"', "#{}", "@{}", "{}*"])
STRINGS = st.lists(HOSTILE, min_size=1, max_size=4).map("".join)


@given(rows=st.lists(st.tuples(STRINGS, STRINGS), min_size=1, max_size=12), data=st.data())
@settings(max_examples=60, deadline=None)
def test_store_and_live_query_agree_on_any_characters(
    rows: list[tuple[str, str]], data: st.DataObject
) -> None:
    """Words, signs and values are found in the file as in what has just come, and marked alike."""
    with running() as store:
        new: list[NewRows] = []
        store.listeners.append(new.append)
        # As JSON escapes, as which halves of characters and NUL may come.
        lines = [
            json.dumps({"id": f"m{i}", "text": text, "grade": grade}).encode()
            for i, (text, grade) in enumerate(rows)
        ]
        told = decoder(MODEL).decode(raw(LOG, lines))
        shares = np.full((len(told.to_predict), 2), 0.5)
        store.offer(told, told.to_predict, np.log(shares))
        settle(store)
        settle(store)  # listeners of one turn are told before the next turn begins
        everything = list(chain.from_iterable(new))
        # The file would cut a value at a NUL, and memory not; so no message with one gets there.
        assert not any("\0" in row.text + row.example.get("grade", "") for row in everything)
        arrived = ArrivedRows(everything, {})
        row = st.sampled_from(rows)
        words = st.builds(lambda form, told: form.format(told[0][:90]), FORMS, row)
        values = row.map(lambda told: told[1][:90])
        values = st.one_of(values, values.map(str.swapcase), STRINGS)
        conditions = st.builds('{}grade:"{}" '.format, st.sampled_from(["", "", "-"]), values)
        asked = st.one_of(words, conditions, st.builds("{} {}".format, conditions, words))
        for text in data.draw(st.lists(asked, min_size=8, max_size=12)):
            try:
                query = store.parse(text)
            except QueryError:
                continue
            stored = list(store.search(query, limit=1_000).rows)
            matches = arrived.matches(query, None)
            keys = [arrived.rows[i].key for i in matches[::-1]]
            assert keys == [each.row.key for each in stored], text
            assert arrived.newest(query, None, matches, len(rows))[::-1] == stored, text
        arrived.close()


def test_a_condition_on_a_field_reads_a_bounded_number_of_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page ends where enough rows were read, and says from where to go on; counts say so too."""
    monkeypatch.setattr(matching, "SCANNED_MAX", 10)
    monkeypatch.setattr("consumers.search.store.Scan", partial(matching.Scan, n_left=10))
    with running() as store:
        tell(store, [{"grade": "B" if i < 3 else "A"} for i in range(35)])
        page = store.search(store.parse("grade:B"))
        assert (page.rows, page.more, page.before) == ([], True, 26)
        assert found(store, "grade:B") == ["m2", "m1", "m0"]
        assert store.counted(store.parse("grade:A")).newest_only
        assert store.counted(store.parse("grade:A")).n == 10
        # What memory answers is not read at all.
        assert len(store.search(store.parse("confidence:>0.5")).rows) == 35
        assert not store.counted(store.parse("label:positive")).newest_only


VALUES = st.fixed_dictionaries(
    {},
    optional={
        "grade": st.sampled_from(["A", "b", "B", "\u00c4", "\u00e4", "7", "x" * 3_000]),
        "owner": st.booleans(),
        "income": st.sampled_from([-1, 0, 7, 0.1 + 0.2, 50_000.5]),
        "monthly rate": st.sampled_from([1, 2.5e-7]),
        "text": st.sampled_from(["good day", "bad day", "good " * 900]),
    },
)
QUESTIONS = (
    "grade:B", "-grade:b", "grade:\u00e4", "grade:7", "grade:>1", "income:7",
    "income:0.30000000000000004", "-income:>0", "owner:true", "-owner:true", "monthly",
    'owner:1 grade:a income:>=0 -grade:"7"', "good grade:B", "good -income:<7",
    "income:<=50000.5 confidence:>0.5",
)  # fmt: skip


@given(
    rows=st.lists(VALUES, min_size=1, max_size=12),
    more=st.lists(VALUES, max_size=6),
    n_noted=st.sampled_from([0, 2, 16]),
)
@settings(max_examples=40, deadline=None)
def test_what_memory_keeps_of_fields_is_what_the_rows_say(
    rows: list[dict[str, Any]], more: list[dict[str, Any]], n_noted: int
) -> None:
    """Each question is answered by what each row's values say, again and as rows come and go."""
    with pytest.MonkeyPatch.context() as patch, running() as store:
        patch.setattr(rows_module, "NOTED_MAX", n_noted)
        for told, first, removed in ((rows, 0, None), (more, len(rows), "m0"), ([], 0, "m1")):
            tell(store, told, first)
            if removed is not None:
                store.remove(removed)
            there = whole_rows(store)
            for text in QUESTIONS:
                query = store.parse(text)
                words = [atom.value for term in query.terms for atom in term.atoms]
                expected = [
                    row.key
                    for row in there
                    if query.admits(row.values) and all(word in row.text for word in words)
                ]
                assert [each.row.key for each in store.search(query, limit=1_000).rows] == expected


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many rows were read for a question, for one after the other."""
    asked: list[int] = []

    def read_fields(db: Any, chunk: Any, columns: Any, keys: Any) -> None:
        asked.append(len(keys))
        chunks.read_fields(db, chunk, columns, keys)

    monkeypatch.setattr(matching, "read_fields", read_fields)
    return asked


def test_a_row_is_read_once_for_a_field(asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The next question about a field reads what came since, however the value is compared."""
    monkeypatch.setattr(rows_module, "NOTED_MAX", 0)
    with running() as store:
        tell(store, [{"income": i} for i in range(30)])
        assert len(found(store, "income:>10")) == 19
        assert store.counted(store.parse("-income:>20")).n == 21
        tell(store, [{"income": i} for i in range(5)], first=30)
        assert found(store, "income:3") == ["m33", "m3"]
        assert asked == [30, 5]


def test_of_the_newest_messages_nothing_is_read(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came since the start is known, of as many rows as one question looks at, about."""
    monkeypatch.setattr(rows_module, "SCANNED_MAX", 100)
    with running(messages_max=1_000) as store:  # so a chunk has 62
        tell(store, [{"income": i} for i in range(186)])
        assert len(found(store, "income:>100")) == 85
        assert not asked
        tell(store, [{"income": 1}], first=186)
        assert len(found(store, "income:>0", limit=186)) == 186
        assert asked == [62]


def reading_slowly(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> list[int]:
    """Let each reading of fields take two seconds; return how many rows each of them reads."""
    n_read = list[int]()

    def read_fields(db: Any, chunk: Any, columns: Any, keys: Any) -> None:
        n_read.append(len(keys))
        chunks.read_fields(db, chunk, columns, keys)
        clock.now_s += 2.0

    monkeypatch.setattr(matching, "read_fields", read_fields)
    return n_read


def test_a_slow_question_about_a_field_answers_what_it_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says that there may be more; asked again it gets farther, as what was read is known."""
    monkeypatch.setattr(rows_module, "NOTED_MAX", 0)
    clock = Clock(100.0)
    with running(messages_max=1_000, clock=clock) as store:
        tell(store, [{"income": i} for i in range(186)])
        asked = reading_slowly(monkeypatch, clock)
        query = store.parse("income:>=0")
        for n in (62, 124):
            counted = store.counted(query)
            assert (counted.n, counted.newest_only) == (n, True)
        assert (store.counted(query).n, asked) == (186, [62, 62, 62])


def test_a_live_query_that_was_cut_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that opens while the values of a field are read is told the whole once they are."""
    monkeypatch.setattr(rows_module, "NOTED_MAX", 0)
    clock = Clock(100.0)
    with running(messages_max=1_000, clock=clock) as store:
        tell(store, [{"income": i} for i in range(310)])
        n_read = reading_slowly(monkeypatch, clock)
        live = LiveQuery(store.parse("income:>=0"), None, store)
        told = [live.settled() for _ in range(9)]
        # Each time the store got farther and was slow again, there were more turns in between.
        assert [each.n for each in told] == [124, *[186] * 2, *[248] * 4, *[310] * 2]
        assert [each.newest_only for each in told] == [True] * 7 + [False] * 2
        assert (n_read, live.is_stale) == ([62] * 5, False)


def test_a_live_query_is_whole_once_what_was_not_looked_at_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where as many rows were read as may be, the store is not asked again."""
    monkeypatch.setattr("consumers.search.store.Scan", partial(matching.Scan, n_left=20))
    with running() as store:
        tell(store, [{"grade": "B"}] * 10)
        wall_of(store).now_s += 1_000.0
        tell(store, [{"grade": "B"}] * 20, first=10)
        live = LiveQuery(store.parse("grade:B"), None, store)
        assert (live.settled().n, live.settled().newest_only, live.is_stale) == (20, True, False)
        wall_of(store).now_s += SETTINGS.age_max_s - 500.0
        assert (live.settled().n, live.settled().newest_only, live.is_stale) == (20, False, False)


def test_the_values_of_few_fields_stay_in_memory() -> None:
    """As many as a chunk may keep, those that were asked for last."""
    chunk = chunks.Chunk(1, 1, 10)
    first = chunk.field_values("a")
    for name in ("b", "c", "a", "d"):
        chunk.field_values(name)
    assert chunk.field_values("a") is first
    chunk.field_values("e")
    chunk.field_values("f")
    chunk.field_values("g")
    assert chunk.field_values("a") is first
    for name in ("b", "c", "d", "e"):
        chunk.field_values(name)
    assert chunk.field_values("a") is not first


def test_words_are_marked_beside_conditions() -> None:
    """The words of the query are shown as such, as without a condition."""
    with running() as store:
        tell(store, [{"grade": "B"}])
        (one,) = store.search(store.parse("good grade:B")).rows
        assert one.marked == ("", "good", " day")


def test_a_teacher_of_fields_is_asked_without_a_text_too() -> None:
    """One that is sent texts alone, as a service is, has nothing to judge in an empty one."""
    new: list[NewRows] = []
    with running() as store:
        store.listeners.append(new.append)
        tell(store, [{"text": "", "grade": "A"}, {"text": ""}, {"grade": "B"}])
    for by_text, ids in ((True, ["m2"]), (False, ["m0", "m2"])):
        rows, n = next(iter(new)).unlabelled(10, by_text=by_text)
        assert ([row.id for row in rows], n) == (ids, len(ids))
