"""What was counted of the fields, as JSON and as the page draws it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from statistics import fmean, pstdev
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from consumers.config.settings import Settings
from consumers.features import build_model
from consumers.http import routes_model, threads
from consumers.http.routes_page import drawn_fields
from consumers.http.schemas import FieldsAnswer, FlagField, NumberField
from consumers.monitoring.prequential import wilson
from consumers.search import comparison
from consumers.search.comparison import BINS, StoredBins, number_bins
from consumers.search.matching import StoredText
from consumers.search.store import RecentStore
from streamnb.columns import LARGEST
from tests.consumers.http.loopback_server import app_state, served, settings
from tests.consumers.search.test_compared_fields import SENSORS, sensors, stored

MODEL = {
    "classes": ["yes", "no", "never"],
    "features": {
        "kinds": {"kind": "categories", "fields": ["colour"]},
        "signs": {"kind": "flags", "fields": ["seen", "late"]},
        "sizes": {"kind": "numbers", "fields": ["height", "unknown"]},
        "words": {"kind": "words", "fields": ["text"]},
    },
}
N = 40
LABELS = ["yes" if i % 4 else "no" for i in range(N)]
COLUMNS: dict[str, list[Any]] = {
    # More values than are listed, of which some come twice.
    "colour": ["<red>" if i < 9 else f"colour {i}" for i in range(N)],
    "seen": [i % 3 == 0 for i in range(N)],
    "late": [None if i % 4 else True for i in range(N)],
    "height": [None if i == 5 else 1000.0 + i * i for i in range(N)],
    "unknown": [None] * N,
    "text": ["a good day"] * N,
}


def of_label(name: str, label: str) -> list[Any]:
    """Return the values of a field that the examples of a class have."""
    pairs = zip(COLUMNS[name], LABELS, strict=True)
    return [value for value, own in pairs if own == label and value is not None]


@pytest.fixture(scope="module")
def loans() -> Settings:
    """Return settings of a model with categories, flags, numbers and words."""
    return settings(model=MODEL, page={"classes": {"no": {"name": "nay", "colour": "green"}}})


@pytest.fixture(scope="module")
def http(loans: Settings) -> Iterator[httpx.Client]:
    """Yield a client of a server whose model has learned the columns."""
    model = build_model(loans.model)
    model.learn_many(COLUMNS, LABELS)
    with (
        app_state(loans, model) as of,
        served(of) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client,
    ):
        yield client


def test_each_condition_is_named_once(loans: Settings) -> None:
    """Fields that are called as what each message has are no further ones; of a text it is none."""
    fields = ["text", "lang", "loan amount", "confidence", "grade", 'grade"']
    store = RecentStore(loans.recent, None, loans.model.classes, fields, 0.65)
    with (
        app_state(loans, build_model(loans.model)) as of,
        served(of, recent=store) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client,
    ):
        named = client.get("/v1/page").json()["conditions"]
    store.stop()
    assert named == ["lang", "label", "confidence", '"loan amount"', "grade"]


def test_values_are_counted(http: httpx.Client) -> None:
    """The most frequent values come first, with their counts; how many there are stands beside."""
    (field,) = http.get("/v1/fields").json()["categories"]
    assert (field["group"], field["field"], field["n_values"]) == ("kinds", "colour", N - 8)
    assert field["counts"] == {"yes": 30.0, "no": 10.0, "never": 0.0}
    assert len(field["values"]) == 20
    first = field["values"][0]
    reds = {label: float(of_label("colour", label).count("<red>")) for label in ("yes", "no")}
    assert first == {"value": "<red>", "counts": reds | {"never": 0.0}}


def test_shares_of_flags(http: httpx.Client) -> None:
    """Of each class the share of those that are true; null where nothing is known."""
    fields = {each["field"]: each for each in http.get("/v1/fields").json()["flags"]}
    seen = {label: fmean(of_label("seen", label)) for label in ("yes", "no")}
    assert fields["seen"]["shares"] == pytest.approx(seen | {"never": None})
    assert fields["late"]["shares"] == {"yes": None, "no": 1.0, "never": None}
    assert fields["late"]["counts"] == {"yes": 0.0, "no": 10.0, "never": 0.0}


def test_means_and_deviations(http: httpx.Client) -> None:
    """They are those of the values themselves; null of a class without any."""
    fields = {each["field"]: each for each in http.get("/v1/fields").json()["numbers"]}
    height = fields["height"]
    for label in ("yes", "no"):
        values = of_label("height", label)
        assert height["counts"][label] == len(values)
        assert height["means"][label] == pytest.approx(fmean(values), rel=1e-15)
        assert height["deviations"][label] == pytest.approx(pstdev(values), rel=1e-14)
    assert height["means"]["never"] is height["deviations"]["never"] is None
    assert set(fields["unknown"]["means"].values()) == {None}
    assert http.get("/v1/fields?x=1").status_code == 422


def test_the_page_draws_the_same(loans: Settings, http: httpx.Client) -> None:
    """Each field has its figure: values stay text, names and colours are the configured ones."""
    answer = msgspec.convert(http.get("/v1/fields").json(), FieldsAnswer)
    drawn = drawn_fields(loans, answer)
    names = re.findall(r"<h3><bdi>([^<]*)</bdi> <small>([^<]*)</small></h3>", drawn)
    assert names == [
        ("colour", "kinds"), ("late", "signs"), ("seen", "signs"), ("height", "sizes"),
        ("unknown", "sizes"),
    ]  # fmt: skip
    assert "<red>" not in drawn
    assert "&lt;red&gt;" in drawn
    assert f"{N - 8} values" in drawn
    assert "<th scope=col>nay</th><th scope=col>yes</th><th scope=col>never</th>" in drawn
    assert f"{of_label('colour', 'no').count('<red>') / 10:.1%}<svg" in drawn
    # Each share has its interval: in the bar, and in words where the pointer rests on it.
    for label, n in (("yes", 30), ("no", 10)):
        k = of_label("colour", label).count("<red>")
        low, high = wilson(k, n)
        said = f'title="{low:.1%} to {high:.1%}">{k / n:.1%}<svg'
        assert said in drawn
        bar = drawn.partition(said)[2].partition("</svg>")[0]
        assert f"M{100 * low:.1f} 2V8" in bar
        assert f"H{100 * high:.1f}M" in bar
    assert "No value was learned yet." in drawn
    # One curve for each class that has values, each within its box, the sharpest to the top.
    (curves,) = re.findall(r'<svg class="curves".*?</svg>', drawn)
    assert re.findall(r'stroke="var\(--(\w+)\)"', curves) == ["k2", "k0"]
    points = [
        (float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)(?=[L\"])", curves)
    ]
    assert len(points) == 2 * 61
    assert all(-0.01 <= x <= 100.01 and 1.99 <= y <= 40 for x, y in points)
    assert min(y for _, y in points) == 2.0


@pytest.mark.parametrize(
    ("mean", "deviation"), [(5.0, 0.0), (1e308, 1e308), (-1e-300, 1e-310), (0.0, None), (2e9, 1e-9)]
)
def test_a_curve_of_odd_numbers(loans: Settings, mean: float, deviation: float | None) -> None:
    """One value, the largest and the smallest ones: what is drawn are numbers."""
    field = NumberField("g", "f", {"yes": 3.0}, {"yes": mean}, {"yes": deviation})
    drawn = drawn_fields(loans, FieldsAnswer(1, ["yes"], [], [], [field]))
    assert not re.search(r"\b(nan|inf)\b", drawn)
    assert ("path d=" in drawn) == (deviation is not None and mean < 1e300)


def test_a_class_without_a_flag_has_no_share(loans: Settings, http: httpx.Client) -> None:
    """The part of the page does not pass through JSON, in which a share of none is null."""
    part = http.get("/page/fields").text
    assert "<td class=number>–</td>" in part
    flag = FlagField("signs", "seen", {"yes": 3.0, "no": 0.0}, {"yes": 0.5, "no": math.nan})
    for drawn in (part, drawn_fields(loans, FieldsAnswer(1, ["yes", "no"], [], [flag], []))):
        assert "nan" not in drawn


def test_a_model_of_words_has_no_figures_of_fields() -> None:
    """The page leaves the part away."""
    with app_state(settings()) as of, served(of) as port:
        answer = httpx.get(f"http://127.0.0.1:{port}/v1/fields", trust_env=False, timeout=60).json()
    found = msgspec.convert(answer, FieldsAnswer)
    assert drawn_fields(settings(), found) == ""


def test_stored_numbers_lie_in_bins() -> None:
    """Of each class the newest stored numbers stand in twenty equal bins, and are drawn so."""
    rows = sensors(300)
    of = settings(model=SENSORS)
    model = build_model(of.model)
    columns = {name: [row[name] for row in rows] for name in ("temp", "rpm", "mode")}
    model.learn_many(columns, [row["label"] for row in rows])
    with (
        stored(SENSORS, rows) as store,
        app_state(of, model) as state,
        served(state, recent=store) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client,
    ):
        numbers = client.get("/v1/fields").json()["numbers"]
        drawn = client.get("/page/fields").text
        file = client.get("/v1/fields?format=jsonl").text
    for field in numbers:
        values = [row[field["field"]] for row in rows]
        assert len(field["edges"]) == BINS + 1
        assert (field["edges"][0], field["edges"][-1]) == (min(values), max(values))
        for label in ("fine", "overheating"):
            own = [row[field["field"]] for row in rows if row["label"] == label]
            assert field["bins"][label] == np.histogram(own, field["edges"])[0].tolist()
            assert sum(field["bins"][label]) == len(own)
    assert '"bins.overheating.0":' in file
    shapes = re.findall(r'<path class=bins d="M([\d.]+) 40((?:V[\d.]+H[\d.]+)+)V40Z"', drawn)
    assert len(shapes) == 2 * 2
    for _, steps in shapes:
        places = [(float(y), float(x)) for y, x in re.findall(r"V([\d.]+)H([\d.]+)", steps)]
        assert len(places) == BINS
        assert all(0 <= y <= 40 and 0 <= x <= 100 for y, x in places)
        assert [x for _, x in places] == sorted(x for _, x in places)
    # Of numbers that lie as a normal curve the highest step is about as high as the curve.
    tops = [min(float(y) for y in re.findall(r"V([\d.]+)H", steps)) for _, steps in shapes]
    assert min(tops) < 12


@pytest.mark.parametrize(
    "values", [[LARGEST, -LARGEST], [LARGEST, LARGEST], [0.0, 5e-324], [None, None], [7.0, 7.0]]
)
def test_bins_of_odd_numbers(values: list[float | None]) -> None:
    """The largest, the smallest, the same and none: there are bins of all of them, or no bins."""
    rows = [{"temp": value, "mode": "eco", "label": "fine"} for value in values]
    with stored(SENSORS, rows) as store:
        found = number_bins(store)
    if "temp" in found:
        edges, bins = found["temp"]
        assert np.isfinite(edges).all()
        assert sum(bins["fine"]) == sum(value is not None for value in values)


def test_bins_pass_over_what_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may be of before its field was one of numbers."""
    newest_texts = comparison.newest_texts

    def with_words(*given: Any) -> list[StoredText]:
        rows = newest_texts(*given)
        return [*rows, *(row._replace(fields={"temp": "hot"}) for row in rows)]

    monkeypatch.setattr(comparison, "newest_texts", with_words)
    rows = [{"temp": value, "mode": "eco", "label": "fine"} for value in (7.0, 8.0)]
    with stored(SENSORS, rows) as store:
        found = number_bins(store)
    assert sum(found["temp"][1]["fine"]) == 2


def test_stored_numbers_are_read_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pages are open: they ask every few seconds."""
    monkeypatch.setattr(threads, "SHARED_S", 3600.0)
    read = list[RecentStore]()

    def noted(store: RecentStore) -> StoredBins:
        read.append(store)
        return number_bins(store)

    monkeypatch.setattr(routes_model, "number_bins", noted)
    rows = [{"temp": 7.0, "mode": "eco", "label": "fine"}]
    of = settings(model=SENSORS)
    model = build_model(of.model)
    model.learn_one({"temp": 7.0, "rpm": 1.0, "mode": "eco"}, "fine")
    with (
        stored(SENSORS, rows) as store,
        app_state(of, model) as made,
        served(made, recent=store) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as http,
    ):
        answers = {http.get("/v1/fields").text for _ in range(4)}
        assert {http.get("/page/fields").status_code for _ in range(4)} == {200}
    assert len(answers) == 1
    assert len(read) == 2  # the page's part has its own


def test_a_store_that_is_not_open_has_no_bins(loans: Settings) -> None:
    """What the model has counted is told all the same."""
    store = RecentStore(loans.recent, None, loans.model.classes, ["height"], 0.65,
                        compared={"height": "numbers"})  # fmt: skip
    with app_state(loans, build_model(loans.model)) as of, served(of, recent=store) as port:
        answer = httpx.get(f"http://127.0.0.1:{port}/v1/fields", trust_env=False, timeout=60)
    store.stop()
    assert answer.status_code == 200
    assert {tuple(each["edges"]) for each in answer.json()["numbers"]} == {()}
