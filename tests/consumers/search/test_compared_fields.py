"""What sets sides apart where the model reads fields: conditions that a query can ask for."""

from __future__ import annotations

import contextlib
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from consumers.config.model import FieldKind
from consumers.config.sections import AlertSettings
from consumers.config.settings import Settings
from consumers.features import kinds_of
from consumers.search import comparison, database
from consumers.search.comparison import (
    STANDARD_ERRORS_MIN,
    ComparedMessages,
    ComparedSide,
    compare,
    conditions_met,
    ranked,
    share_move,
    words_of,
)
from consumers.search.live_updater import ShareAlerts
from consumers.search.matching import StoredText
from consumers.search.query_syntax import Query, parse_with_classes
from consumers.search.store import RecentStore
from tests.consumers.decoded_messages import decoder, raw
from tests.consumers.search.stores import LOG, SETTINGS, UNSURE_BELOW, Clock, settle, stream_shares

BEGIN_S = 1_700_000_000
Row = dict[str, Any]
LOANS = {
    "classes": ["approve", "reject"],
    "features": {
        "credit": {"kind": "categories", "fields": ["grade", "purpose"]},
        "record": {"kind": "flags", "fields": ["own_home"]},
        "figures": {"kind": "numbers", "fields": ["interest-rate", "amount"]},
        "note": {"kind": "words", "fields": ["note"]},
    },
}
SENSORS = {
    "classes": ["fine", "overheating"],
    "features": {
        "measured": {"kind": "numbers", "fields": ["temp", "rpm"]},
        "mode": {"kind": "categories", "fields": ["mode"]},
    },
}
MIXED = {
    "classes": ["negative", "positive"],
    "features": {"text": {"kind": "words"}, "grade": {"kind": "categories", "fields": ["grade"]}},
}


@contextlib.contextmanager
def stored(model: Mapping[str, Any], rows: Sequence[Row]) -> Iterator[RecentStore]:
    """Run a store of a model's messages, a second apart, each judged as its `label` says."""
    of = Settings.model_validate({"model": model, "message": {"time": "created_at"}})
    classes, kinds = of.model.classes, kinds_of(of.model)
    store = RecentStore(
        SETTINGS, None, classes, kinds, UNSURE_BELOW,
        wall_clock=Clock(BEGIN_S), clock=Clock(100.0), compared=kinds,
    )  # fmt: skip
    store.start()
    settle(store)
    try:
        about = [{"id": f"m{i}", "created_at": BEGIN_S + i} for i in range(len(rows))]
        lines = [msgspec.json.encode(one | row) for one, row in zip(about, rows, strict=True)]
        told = decoder(of).decode(raw(LOG, lines))
        labels = [classes.index(row["label"]) for row in rows]
        shares = np.full((len(rows), len(classes)), 0.2)
        shares[np.arange(len(rows)), labels] = 0.8
        at = np.sort(np.concatenate([told.to_learn, told.to_predict]))
        assert len(at) == len(rows)
        store.offer(told, at, np.log(shares))
        settle(store)
        yield store
    finally:
        store.stop()


def loans(n: int = 800) -> list[Row]:
    """Return applications of which those of grade A are approved, at low rates."""
    chance = random.Random(1)
    rows = []
    for _ in range(n):
        is_good = chance.random() < 0.5
        rows.append(
            {
                "grade": "A" if is_good else "B",
                "purpose": chance.choice(["car", "debt consolidation"]),
                "own_home": chance.random() < (0.8 if is_good else 0.3),
                "interest-rate": round(chance.gauss(0.08 if is_good else 0.16, 0.02), 4),
                "amount": chance.randrange(1_000, 40_000),
                "note": "please 1532 28" if is_good else "urgent 1532 28",
                "label": "approve" if is_good else "reject",
            }
        )
    return rows


def sensors(n: int = 800) -> list[Row]:
    """Return readings: in the last quarter more are hot, and run in mode turbo."""
    chance = random.Random(2)
    rows = []
    for i in range(n):
        is_hot = chance.random() < (0.1 if i < 3 * n / 4 else 0.3)
        rows.append(
            {
                "temp": round(chance.gauss(93.0 if is_hot else 70.0, 4.0), 2),
                "rpm": round(chance.gauss(1_530.0, 30.0), 2),
                "mode": "turbo" if is_hot and chance.random() < 0.9 else "eco",
                "label": "overheating" if is_hot else "fine",
            }
        )
    return rows


def compared(
    store: RecentStore, *queries: str, spans: Sequence[tuple[int, int] | None] = ()
) -> list[ComparedMessages]:
    """Compare queries, each at its time if there are such."""
    each_at = spans or [None] * len(queries)
    sides = [
        ComparedSide(store.parse(text), None, span)
        for text, span in zip(queries, each_at, strict=True)
    ]
    return compare(store, sides)


def words(side: ComparedMessages) -> list[str]:
    """Return the words of a side."""
    return [each.word for each in side.words]


def halves(n: int, after: int) -> list[tuple[int, int]]:
    """Return the times of the first messages, and of those from number `after` on."""
    return [(1000 * (BEGIN_S + i), 1000 * (BEGIN_S + k)) for i, k in ((0, after), (after, n))]


def test_conditions_set_loans_apart() -> None:
    """Values with their fields, and words of fields of text; no piece of a number or a flag."""
    with stored(LOANS, loans()) as store:
        approved, rejected = compared(store, "label:approve", "label:reject")
        assert {"grade:A", "own_home:true", "please"} < set(words(approved))
        assert {"grade:B", "own_home:false", "urgent"} < set(words(rejected))
        numbers = [word for side in (approved, rejected) for word in words(side) if "rate" in word]
        assert [word[: len("interest-rate:<=")] for word in numbers] == [
            "interest-rate:<=", "interest-rate:>=",
        ]  # fmt: skip
        known = {"grade", "own_home", "interest-rate", "please", "urgent"}
        for side in (approved, rejected):
            assert {word.partition(":")[0] for word in words(side)} <= known


@pytest.mark.parametrize(
    ("model", "rows", "queries"),
    [
        (LOANS, loans(), ("label:approve", "label:reject")),
        (SENSORS, sensors(), ("label:fine", "label:overheating")),
    ],
)
def test_a_condition_counts_what_its_search_finds(
    model: Mapping[str, Any], rows: list[Row], queries: tuple[str, str]
) -> None:
    """What the page links to a condition has as many messages, of the same classes."""
    with stored(model, rows) as store:
        for query, side in zip(queries, compared(store, *queries), strict=True):
            assert side.n_read == side.counted.n
            listed = [each for each in side.words if ":" in each.word]
            assert listed
            for each in listed:
                assert store.counted(store.parse(f"{query} {each.word}")).counts == each.counts


def test_what_moved_a_share_of_sensors() -> None:
    """Ends of numbers and values of categories: each field once, however many ends moved."""
    rows = sensors()
    with stored(SENSORS, rows) as store:
        before, after = compared(store, "", "", spans=halves(len(rows), 600))
        move = share_move(before, after, store.classes)
    assert move is not None
    assert move.label == "overheating"
    told = {each.word: each.effect for each in move.words}
    assert "mode:turbo" in told
    (hot,) = [word for word in told if word.startswith("temp:>=")]
    assert 80.0 < float(hot.removeprefix("temp:>=")) < 95.0
    assert not [word for word in told if word.startswith("rpm")]
    assert told["mode:turbo"] == pytest.approx(move.rise, abs=0.05)


def test_an_alert_of_sensors_names_conditions() -> None:
    """The log's line has what the comparison of its times has."""
    rows = sensors()
    with stored(SENSORS, rows) as store, capture_logs() as logged:
        of = AlertSettings(queries=("",), window_s=200, before_s=600)
        (alert,) = ShareAlerts(
            store, of, stream_shares, wall_clock=Clock(BEGIN_S + len(rows))
        ).look()
        before, after = compared(store, "", "", spans=halves(len(rows), 600))
        move = share_move(before, after, store.classes)
    assert move is not None
    assert (alert.moved.label, alert.moved.words) == (move.label, move.words)
    # Corrected, by a model that makes no mistake.
    assert (alert.moved.before, alert.moved.after) == pytest.approx((move.before, move.after))
    (line,) = [each for each in logged if each["event"] == "share_moved"]
    fields = {word.partition(":")[0] for word in line["words"]}
    assert fields == {"temp", "mode"}
    assert all(word.endswith(" points)") for word in line["words"])


def test_texts_with_fields_have_both() -> None:
    """The words of a text are those that it has without fields, with the same figures."""
    chance = random.Random(3)
    rows = [
        {
            "text": f"{'rain' if is_sad else 'sun'} w{chance.randrange(5)}",
            "grade": "very good" if not is_sad and chance.random() < 0.9 else "B",
            "label": "negative" if is_sad else "positive",
        }
        for is_sad in (chance.random() < 0.5 for _ in range(400))
    ]
    texts: dict[str, Any] = {**MIXED, "features": {"text": {"kind": "words"}}}
    with stored(MIXED, rows) as store, stored(texts, rows) as plain:
        queries = ("label:negative", "label:positive")
        mixed, alone = compared(store, *queries), compared(plain, *queries)
    assert [words(side) for side in alone] == [["rain"], ["sun"]]
    assert [set(words(side)) for side in mixed] == [
        {"rain", "grade:B"}, {"sun", 'grade:"very good"'}
    ]  # fmt: skip
    for side, other in zip(mixed, alone, strict=True):
        assert [each for each in side.words if ":" not in each.word] == list(other.words)
        errors = [each.standard_errors for each in side.words]
        assert errors == sorted(errors, reverse=True)


def anything(seed: int) -> tuple[dict[str, Any], list[Row]]:
    """Return a model whose fields have any names and values, and messages for it."""
    chance = random.Random(seed)
    odd = ["a b", "a:b", "-a", "a,b", "<a", "日本", "é", "and", "num", "A", "label:", "a=1", "Lang"]
    names = ["text", "lang", "user", *chance.sample(odd, 5)]
    pool = [
        "red,blue", "Red,Blue", "red, blue", "very good", "en", "EN", "En", "de-AT", ">=5", "5",
        "1..2", "true", "nan", "", " ", "a:b", "-a", "x*", "#tag", "@me", "'", "(x)", "日本", "É",
        "é", "🎉", 'so "so"', "\u00a0", "\u2028x", "\\", "lang:en", "x" * 95, "y" * 300, "%", "\n",
    ]  # fmt: skip
    values = {name: chance.sample(pool, 6) for name in names}
    model = {
        "classes": ["no", "yes"],
        "features": {
            "c": {"kind": "categories", "fields": names},
            "f": {"kind": "flags", "fields": ["own home", "f"]},
            "n": {"kind": "numbers", "fields": ["in,come", "n", "Größe"]},
            "w": {"kind": "words", "fields": ["note"]},
        },
    }
    rows = []
    for _ in range(250):
        row: Row = {name: chance.choice(values[name]) for name in names if chance.random() < 0.9}
        row |= {name: chance.random() < 0.4 for name in ("own home", "f")}
        row |= {"in,come": chance.gauss(0, 1e5), "n": chance.randrange(4), "Größe": chance.random()}
        row["text"] = chance.choice(["foo", "Foo", "red,blue", "text:foo"])  # none is refused
        row["note"] = "so " * (1_000 if chance.random() < 0.1 else 1)  # long: its row is asked
        row["label"] = chance.choice(["no", "yes"])
        rows.append(row)
    return model, rows


@pytest.mark.parametrize("seed", range(8))
def test_all_that_is_listed_is_found_as_often(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """However odd names and values are, and whatever else a query asks for."""
    monkeypatch.setattr(comparison, "STANDARD_ERRORS_MIN", -math.inf)  # so that all are listed
    monkeypatch.setattr(comparison, "WORDS_MAX", 10_000)
    model, rows = anything(seed)
    seen = set()
    with stored(model, rows) as store:
        for queries in (("label:no", "label:yes"), ("foo label:no ", "label:yes n:>0 ")):
            for query, side in zip(queries, compared(store, *queries), strict=True):
                assert side.n_read == side.counted.n
                for each in side.words:
                    if ":" in each.word:
                        seen.add(each.word)
                        again = store.parse(f"{query} {each.word} ")
                        assert (each.word, store.counted(again).counts) == (each.word, each.counts)
    assert len(seen) > 40


def test_a_language_is_listed_as_it_is_spelled() -> None:
    """A search finds `en` and `EN` apart; messages without one cannot be asked for."""
    names = ["en", "EN", "", "de"]
    rows: list[Row] = [
        {"lang": names[i % 2 + 2 * (i % 8 > 5)], "label": ["fine", "overheating"][i % 2]}
        for i in range(800)
    ]
    model = {**SENSORS, "features": {"tongue": {"kind": "categories", "fields": ["lang"]}}}
    with stored(model, rows) as store:
        fine, hot = compared(store, "label:fine", "label:overheating")
        assert words(fine) == ["lang:en"]
        assert words(hot) == ["lang:EN", "lang:de"]
        for each in (*fine.words, *hot.words):
            assert store.counted(store.parse(each.word)).counts == each.counts


def test_a_language_too_many_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store counts it as unknown, and finds no message of it."""
    monkeypatch.setattr(database, "LANGS_MAX", 1)
    rows: list[Row] = [
        {"lang": ["en", "de"][i % 2], "label": ["fine", "overheating"][i % 2]} for i in range(400)
    ]
    model = {**SENSORS, "features": {"tongue": {"kind": "categories", "fields": ["lang"]}}}
    with stored(model, rows) as store:
        assert [words(side) for side in compared(store, "label:fine", "label:overheating")] == [
            ["lang:en"], []
        ]  # fmt: skip


def test_a_text_of_categories_is_searched_by_its_words() -> None:
    """So its words are listed, and no condition on it."""
    rows = [{"text": ["foo", "bar"][i % 2], "label": ["no", "yes"][i % 2]} for i in range(400)]
    model = {
        "classes": ["no", "yes"],
        "features": {"of": {"kind": "categories", "fields": ["text"]}},
    }
    with stored(model, rows) as store:
        sides = compared(store, "label:no", "label:yes")
        assert [words(side) for side in sides] == [["foo"], ["bar"]]
        assert store.counted(store.parse("foo ")).counts == sides[0].words[0].counts


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("-grade:C", {"own_home", "interest-rate", "please"}),
        ("please " + "-grade:C " * 7, {"own_home", "interest-rate"}),
        ("-grade:C " * 7 + "label:approve", {"please"}),  # as many conditions as may be
        ("amount:>=0 " * 8, {"please"}),
        (" ".join(f"-w{i}" for i in range(16)), {"own_home", "grade", "interest-rate"}),
        ("-" + "w" * 177 + " grade:A", {"own_home", "please"}),  # 186 of 200 characters
        ('-grade:C "please', set()),  # closed by what follows
    ],
)
def test_what_is_listed_can_be_added_to_the_query(query: str, wanted: set[str]) -> None:
    """Nothing is listed that the page's link could not ask for."""
    with stored(LOANS, loans()) as store:
        side, _ = compared(store, query, "label:reject")
        for each in side.words:
            asked = store.parse(f"{side.side.query.text} {each.word} ")
            assert store.counted(asked).counts == each.counts
        assert {word.partition(":")[0] for word in words(side)} == wanted


def test_long_fields_are_read_too() -> None:
    """Of a field of much text the beginning is read, and all others as they are."""
    rows = [row | {"note": f"{row['note']} " + "x" * 9_000, "amount": 0.1} for row in loans(200)]
    with stored(LOANS, rows) as store:
        approved, rejected = compared(store, "label:approve", "label:reject")
    assert {"grade:A", "own_home:true", "please"} <= set(words(approved))
    assert {"grade:B", "own_home:false", "urgent"} <= set(words(rejected))


def test_fields_that_a_query_names_are_left_out() -> None:
    """What a condition asks for says nothing; the other fields do."""
    with stored(LOANS, loans()) as store:
        good, bad = compared(store, "grade:A", "-grade:A own_home:true")
        named = {word.partition(":")[0] for side in (good, bad) for word in words(side)}
        assert "interest-rate" in named
        assert not named & {"grade", "own_home"}


# ---- conditions ----------------------------------------------------------------------------------


def reader(kinds: Mapping[str, FieldKind]) -> Callable[[str], Query]:
    """Return what reads queries as a store does whose model has fields of some kinds."""
    return partial(parse_with_classes, kinds=kinds, classes=(), shown={})


def met(kinds: Mapping[str, FieldKind], values: Sequence[Row]) -> Counter[str]:
    """Return how many messages of some fields meet each condition."""
    rows = [StoredText(i, 0, "", fields) for i, fields in enumerate(values)]
    (found,) = conditions_met([rows], kinds, reader(kinds))
    return Counter(typed for each in found for typed in each)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("A", "c:A"),
        ("very good", 'c:"very good"'),
        (">=5", 'c:">=5"'),
        ("", 'c:""'),
        ("日本", "c:日本"),
        ("red,blue", 'c:"red,blue"'),
        ('so "so"', None),
        ("two\nlines", None),
        ("x" * 300, None),
    ],
)
def test_values_as_they_are_typed(value: str, wanted: str | None) -> None:
    """In quotes if need be; a value that no query can ask for is left out."""
    assert met({"c": "categories"}, [{"c": value}] * 9) == ({} if wanted is None else {wanted: 9})


def test_names_as_they_are_typed() -> None:
    """In quotes if need be, without its own; what a query has for something else is left out."""
    names = ("a b", "a:b", 'a"', "-a", "label", "confidence", "a.b", "lang", "text")
    kinds: dict[str, FieldKind] = dict.fromkeys(names, "categories")
    assert set(met(kinds, [dict.fromkeys(names, "x")] * 9)) == {
        '"a b":x',
        '"a:b":x',
        '"-a":x',
        "a.b:x",
        "a:x",
        "lang:x",
    }


def test_spellings_of_a_value_are_one() -> None:
    """As a query takes them, whatever the case of ASCII letters; a language is what it is."""
    for name, wanted in (("c", {"c:A": 9}), ("lang", {"lang:A": 5, "lang:a": 4})):
        assert met({name: "categories"}, [{name: "A"}] * 5 + [{name: "a"}] * 4) == wanted


_NASTY = st.text(st.sampled_from("aB1é日🎉\u2028\u00a0_-:<>=,.;\"\\ *#@'()|\x00"), max_size=5)
_NAMES = _NASTY.filter(bool) | st.sampled_from(["lang", "text", "label", "confidence", "user", "a"])
_VALUES = _NASTY | st.sampled_from(["true", "nan", "5", "1..2", "lang:en", "x" * 95])
_KINDS: list[FieldKind] = ["categories", "flags", "numbers"]


@settings(max_examples=400)
@given(st.data())
def test_whatever_is_typed_is_read_as_it_was_meant(data: st.DataObject) -> None:
    """Whatever names and values are: read again, it asks for what was counted, and no more."""
    kinds = data.draw(st.dictionaries(_NAMES, st.sampled_from(_KINDS), min_size=1, max_size=5))
    drawn = {"categories": _VALUES, "flags": st.booleans(), "numbers": st.floats(-1e9, 1e9)}
    rows = st.fixed_dictionaries({name: drawn[kind] for name, kind in kinds.items()})
    values = data.draw(st.lists(rows, min_size=4, max_size=4)) * 4  # often enough to be listed
    read = reader(kinds)
    for typed, n in met(kinds, values).items():
        for text in (typed, f"{typed} ", f"word {typed} "):
            (condition,) = read(text).conditions
            assert len(read(text).terms) == text.startswith("word")
            assert n == sum(condition.is_met_by(row.get(condition.name)) for row in values)


def test_flags_and_what_is_missing() -> None:
    """A flag may be stored as a number; a message without a field meets no condition on it."""
    values: list[Row] = [{"f": 1.0}] * 5 + [{"f": False}] * 6 + [{}] * 7
    assert met({"f": "flags"}, values) == {"f:true": 5, "f:false": 6}


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([0.0] * 95 + [3.0] * 5, {"n:>=3": 5, "n:<=0": 95}),
        ([7.0] * 9, {}),
        ([], {}),
        ([-0.001, 0.0, 0.001] * 10, {"n:<=-0.001": 10, "n:>=0.001": 10}),
        ([float(i) for i in range(1_000)],
         {"n:<=100": 101, "n:<=250": 251, "n:>=749": 251, "n:>=899": 101}),
        ([50_000.0 + 997 * i for i in range(100)],
         {"n:<=59900": 10, "n:<=74700": 25, "n:>=124000": 25, "n:>=138800": 10}),
    ],
)  # fmt: skip
def test_ends_of_numbers(values: list[float], wanted: Mapping[str, int]) -> None:
    """Round numbers; of one that is nearly always the same what is not."""
    assert met({"n": "numbers"}, [{"n": value} for value in values]) == wanted


@settings(max_examples=60)
@given(st.lists(st.floats(-1e60, 1e60) | st.integers(-5, 5).map(float), max_size=60))
def test_any_numbers_have_ends(values: list[float]) -> None:
    """Whatever the numbers: a condition holds for those that are so far, and can be typed."""
    for typed, n in met({"n": "numbers"}, [{"n": value} for value in values]).items():
        op, bound = typed[2:4], float(typed[4:])
        assert n == sum(value <= bound if op == "<=" else value >= bound for value in values)


def test_chance_sets_no_conditions_apart() -> None:
    """Of two halves of one stream hardly any is listed, also of a single flag that is even."""
    chance = random.Random(4)
    n_far = n_all = 0
    for _ in range(2_000):
        n_rows = (200, chance.choice([100, 200, 800]))
        share = chance.choice([0.1, 0.5, 0.9])
        counts = [sum(chance.random() < share for _ in range(n)) for n in n_rows]
        sides = [{"f:true": y, "f:false": n - y} for y, n in zip(counts, n_rows, strict=True)]
        n_far += sum(map(len, ranked(sides, n_rows)))
        n_all += 4
    assert n_far / n_all < 1 / 740
    assert STANDARD_ERRORS_MIN == 3.0  # of which one in 740 is as far


def test_a_flag_that_moved_far_is_listed() -> None:
    """Also where it is the only field, and most messages have it."""
    sides = [{"f:true": 160, "f:false": 40}, {"f:true": 120, "f:false": 80}]
    assert [[word for word, *_ in side] for side in ranked(sides, (200, 200))] == [
        ["f:true"], ["f:false"]
    ]  # fmt: skip


def test_no_word_has_a_colon() -> None:
    """So none is taken for a condition."""
    assert words_of("temp:>=93 a:b http://x:1") == {"temp", "93"}
