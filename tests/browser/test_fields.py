"""What the page draws of categories, flags and numbers, and of models by the value of a field."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest
import yaml
from playwright.sync_api import Browser, expect

from tests.browser.axe import sticking_out, violations
from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book, stamp
from tests.browser.test_downloads import downloaded, is_drawn, picture_of
from tests.browser.test_search import query_of
from tests.endtoend.daemon_process import Daemon, write_config

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "loan.yaml"
# Twelve are paid and four are not, so that smoothing alone gives what was never seen more
# probability in the smaller class.
LOANS: list[dict[str, object]] = [
    {
        "id": f"loan{i}",
        "text": f"caracal loan {i}",
        "label": "unpaid" if i % 4 == 0 else "paid",
        "grade": "ABCD"[i % 3],
        "owner": i % 2 == 0,
        "rate": 0.1 + i / 200,
    }
    for i in range(16)
]


@pytest.fixture(scope="module")
def loans(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a daemon that has learned loans of every kind of field."""
    assert browser.is_connected()
    folder = tmp_path_factory.mktemp("loans")
    lines = "".join(json.dumps(loan) + "\n" for loan in LOANS)
    (folder / "in.jsonl").write_text(lines, encoding="utf-8")
    features = {
        "grades": {"kind": "categories", "fields": ["grade"]},
        "owners": {"kind": "flags", "fields": ["owner"]},
        "rates": {"kind": "numbers", "fields": ["rate"]},
    }
    config = write_config(
        folder / "config.yaml",
        source="file:in.jsonl",
        labels={"field": "label"},
        model={"classes": ["paid", "unpaid"], "features": features},
        page={"classes": {"unpaid": {"name": "not paid"}, "paid": {}}},
    )
    with Daemon(config) as daemon:
        daemon.until_page("/v1/model", 200, f'"n_examples":{len(LOANS)},')
        yield daemon.address
        assert daemon.stop() == 0


def of_class(label: str, field: str) -> list[float]:
    """Return the values of a field that the loans of a class have."""
    return [float(str(loan[field])) for loan in LOANS if loan["label"] == label]


def test_what_was_learned_of_fields_stands_in_the_table(
    loans: str, open_page: Callable[..., Opened]
) -> None:
    """Counts of categories and flags, mean and deviation of numbers, in the order of the page."""
    page, _ = open_page(f"{loans}/?view=try")
    expect(page.get_by_test_id("try-json")).to_be_visible()  # there is no text to try
    page.get_by_test_id("try-json").fill('{"grade": "A", "owner": true, "rate": 0.13}')
    table = page.get_by_test_id("explanation")
    heads = table.locator("thead th")
    expect(heads).to_have_count(5)
    assert [each.strip() for each in heads.all_inner_texts()[3:]] == ["not paid", "paid"]
    shown = {
        str(row.get_attribute("data-feature")): row.locator("td.number").all_inner_texts()[1:]
        for row in page.get_by_test_id("push-row").all()
    }
    for name, wanted in (("grade=A", {"grade": "A"}), ("owner=true", {"owner": True})):
        for label, cell in zip(("unpaid", "paid"), shown[name], strict=True):
            n = sum((loan | wanted | {"label": label}) == loan for loan in LOANS)
            assert re.fullmatch(rf"{n} θ 0\.\d+", cell), cell
    for label, cell in zip(("unpaid", "paid"), shown["rate=0.13"], strict=True):
        rates = of_class(label, "rate")
        assert cell == f"{fmean(rates):.4g} ± {pstdev(rates):.3g}"
    assert violations(page) == []
    page.goto("about:blank")  # it would complain of a daemon that is gone


def test_the_fields_can_be_downloaded(loans: str, open_page: Callable[..., Opened]) -> None:
    """The links below the figures hand out what was counted of each field, in both forms."""
    page, _ = open_page(f"{loans}/?view=model")
    expect(page.get_by_test_id("field")).to_have_count(3)
    of = {"categories": "grade", "flags": "owner", "numbers": "rate"}
    found, table = downloaded(page, "fields-csv")
    assert found == "fields.csv"
    rows = list(csv.DictReader(io.StringIO(table.decode())))
    assert {row["of"]: row["field"] for row in rows if row["of"] in of} == of
    found, lines = downloaded(page, "fields-jsonl")
    assert found == "fields.jsonl"
    told = [json.loads(line) for line in lines.splitlines()]
    assert {each["of"]: each["field"] for each in told if each["of"] in of} == of
    seen = {each["value"]: each for each in told if each["of"] == "categories.values"}
    for grade in "ABC":
        for label in ("paid", "unpaid"):
            n = sum(loan["grade"] == grade and loan["label"] == label for loan in LOANS)
            assert seen[grade][f"counts.{label}"] == n
    page.goto("about:blank")  # it would complain of a daemon that is gone


def test_fields_by_class(
    browser: Browser, tmp_path: Path, open_page: Callable[..., Opened]
) -> None:
    """Each field of the example of loans has its figure, which fits a phone, in either theme."""
    assert browser.is_connected()
    sections = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    sections["checkpoint"] = {"folder": None}
    with Daemon(write_config(tmp_path / "config.yaml", **sections)) as daemon:
        daemon.until_metric("streamnb_messages_total", 500)
        for scheme, width in (("light", 1280), ("dark", 390), ("dark", 1440)):
            page, _ = open_page(
                f"{daemon.address}/?view=model",
                color_scheme=scheme,
                viewport={"width": width, "height": 900},
            )
            fields = page.get_by_test_id("field")
            expect(fields).to_have_count(6)
            names = fields.locator("h3 bdi").all_inner_texts()
            assert names == ["income", "score", "missed_payments", "stable_job", "age", "amount"]
            expect(fields.nth(1).locator("tbody tr")).to_have_count(2)
            expect(fields.nth(4).locator(".curves path:not(.bins)")).to_have_count(2)
            bins = fields.nth(4).locator(".curves .bins")
            expect(bins).to_have_count(2)
            for shape in bins.all():  # half seen, behind the curves, and as high as they are
                assert shape.evaluate("node => getComputedStyle(node).fill") != "none"
                height, whole = shape.evaluate(
                    "node => [node, node.parentNode].map(n => n.getBoundingClientRect().height)"
                )
                assert 0.2 * whole < height <= whole + 1
            expect(page.get_by_test_id("fields-csv")).to_be_visible()
            expect(page.get_by_role("heading", name="Fields by class")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert violations(page) == []
            for i in (0, 4):
                assert is_drawn(picture_of(page, f"[data-testid=field]:nth-of-type({i + 1})"))
            page.goto("about:blank")  # it would complain of a daemon that is gone
        assert daemon.stop() == 0


_CUT = """() => [...document.querySelectorAll('.scroll')]
    .filter(node => node.checkVisibility() && node.scrollWidth > node.clientWidth)
    .map(node => `${node.ariaLabel}: ${node.scrollWidth} of ${node.clientWidth} px`)"""


@pytest.mark.parametrize("classes", [("sound", "leaking"), ("sound", "leaking", "broken")])
def test_no_table_of_fields_is_cut_at_a_desk(
    browser: Browser, tmp_path: Path, open_page: Callable[..., Opened], classes: tuple[str, ...]
) -> None:
    """What each feature contributes, and the shares by class, need no scrolling of up to three."""
    assert browser.is_connected()
    chance = random.Random(5)
    lines = [
        json.dumps(
            {
                "id": f"gnu{i}",
                "label": chance.choice(classes),
                "missed_services": chance.random() < 0.3,
                "pressure_mbar": round(chance.gauss(14_000, 5_000), 2),
                "fuel": chance.choice(("oil", "gas", "pellets")),
            }
        )
        for i in range(40_000)
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    features = {
        "visits": {"kind": "flags", "fields": ["missed_services"]},
        "measured": {"kind": "numbers", "fields": ["pressure_mbar"]},
        "plants": {"kind": "categories", "fields": ["fuel"]},
    }
    model = {"classes": list(classes), "features": features}
    config = write_config(tmp_path / "config.yaml", source="file:in.jsonl", model=model)
    with Daemon(config) as daemon:
        daemon.until_page("/v1/model", 200, f'"n_examples":{len(lines)},')
        for width in (1280, 1440):
            page, _ = open_page(daemon.address, viewport={"width": width, "height": 900})
            page.get_by_test_id("message-why").first.click()
            page.get_by_test_id("numbers").click()
            expect(page.get_by_test_id("push-row")).to_have_count(3)
            assert page.evaluate(_CUT) == []
            page.goto(f"{daemon.address}/?view=model")
            expect(page.get_by_test_id("field")).to_have_count(3)
            assert page.evaluate(_CUT) == []
            page.goto("about:blank")  # it would complain of a daemon that is gone
        assert daemon.stop() == 0


def test_a_value_that_no_class_has_learned_speaks_for_none(
    loans: str, open_page: Callable[..., Opened]
) -> None:
    """Alone nothing is known; beside others the sentence leaves it out, and the table marks it."""
    page, _ = open_page(f"{loans}/?view=try")
    expect(page.get_by_test_id("try-json")).to_be_visible()  # there is no text to try
    box, found = page.get_by_test_id("try-json"), page.get_by_test_id("try-label")
    box.fill('{"grade": "E"}')
    expect(found).to_contain_text("Nothing in this is known to the model.")
    expect(page.get_by_test_id("try-bars")).to_be_hidden()
    expect(page.get_by_test_id("because")).to_be_hidden()
    box.fill('{"grade": "E", "rate": 0.13}')
    because = page.get_by_test_id("because")
    expect(because).to_contain_text("rate=0.13")
    expect(because).not_to_contain_text("grade")
    row = page.locator("[data-testid=push-row][data-feature='grade=E']")
    expect(row).to_contain_text("(unseen)")
    assert float(row.get_attribute("data-score") or 0) != 0
    expect(page.locator("[data-testid=push-row][data-feature='rate=0.13']")).not_to_contain_text(
        "(unseen)"
    )
    assert violations(page) == []
    page.goto("about:blank")  # it would complain of a daemon that is gone


def test_where_every_class_is_impossible_the_scores_are_no_reason(
    tmp_path: Path, open_page: Callable[..., Opened]
) -> None:
    """The class prior answers then: the page says so, and draws no sum of the scores."""
    lines = "".join(json.dumps(loan) + "\n" for loan in LOANS)
    (tmp_path / "in.jsonl").write_text(lines, encoding="utf-8")
    grades = {"kind": "categories", "fields": ["grade"], "alpha": 0}
    features = {"grades": grades, "rates": {"kind": "numbers", "fields": ["rate"]}}
    config = write_config(
        tmp_path / "config.yaml",
        source="file:in.jsonl",
        labels={"field": "label"},
        model={"classes": ["paid", "unpaid"], "features": features},
    )
    with Daemon(config) as daemon:
        daemon.until_page("/v1/model", 200, f'"n_examples":{len(LOANS)},')
        page, _ = open_page(f"{daemon.address}/?view=try")
        expect(page.get_by_test_id("try-json")).to_be_visible()  # there is no text to try
        box, sums = (
            page.get_by_test_id("try-json"),
            page.get_by_test_id("explanation").locator("tfoot"),
        )
        for grade, by_prior in (("E", True), ("A", False)):
            box.fill(json.dumps({"grade": grade, "rate": 0.13}))
            row = page.locator(f"[data-testid=push-row][data-feature='grade={grade}']")
            expect(row).to_be_visible()
            expect(page.get_by_test_id("by-prior")).to_be_visible(visible=by_prior)
            expect(page.get_by_test_id("because")).to_be_visible(visible=not by_prior)
            expect(sums).to_be_visible(visible=not by_prior)
            assert violations(page) == []
        page.goto("about:blank")  # it would complain of a daemon that is gone
        assert daemon.stop() == 0


def test_the_example_has_what_lies_inside(
    browser: Browser, tmp_path: Path, open_page: Callable[..., Opened]
) -> None:
    """A column whose name has a dot is read as a path, so the example of *Try it* is nested."""
    assert browser.is_connected()
    rows = ("good,Bonn,53,1", "bad,Ulm,89,0")
    lines = ["state,site.name,site.postcode,open", *(row for row in rows for _ in range(20))]
    (tmp_path / "in.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    features = {
        "site": {"kind": "categories", "fields": ["site.name"]},
        "code": {"kind": "numbers", "fields": ["site.postcode"]},
        "open": {"kind": "flags", "fields": ["open"]},
    }
    config = write_config(
        tmp_path / "config.yaml",
        source="file:in.csv",
        labels={"field": "state"},
        model={"classes": ["good", "bad"], "features": features},
    )
    with Daemon(config) as daemon:
        daemon.until_page("/v1/model", 200, '"n_examples":40,')
        page, _ = open_page(f"{daemon.address}/?view=try")
        box = page.get_by_test_id("try-json")
        expect(box).to_be_visible()
        example = box.get_attribute("placeholder") or ""
        assert json.loads(example) == {"site": {"name": "…", "postcode": 1.5}, "open": True}
        box.fill(example.replace("…", "Ulm"))
        expect(page.get_by_test_id("push-row")).to_have_count(3)
        expect(page.locator("[data-testid=push-row][data-feature='site.name=Ulm']")).to_be_visible()
        page.goto("about:blank")  # it would complain of a daemon that is gone
        assert daemon.stop() == 0


def test_words_alone_have_no_fields(book: Book, open_page: Callable[..., Opened]) -> None:
    """Where a model reads nothing but words the part is left away."""
    page, _ = open_page("about:blank")
    with page.expect_response("**/page/fields"):
        page.goto(f"{book.address}/?view=model")
    expect(page.get_by_test_id("telling").first).to_be_visible()
    expect(page.get_by_role("heading", name="Fields by class")).to_be_hidden()


def test_a_field_with_a_blank_can_be_asked_for(
    browser: Browser, tmp_path: Path, open_page: Callable[..., Opened]
) -> None:
    """What the page and its errors offer as a condition is read as one; a wrong form is told."""
    assert browser.is_connected()
    lines = [
        json.dumps(
            {"id": f"l{i}", "loan amount": 1_000 * i, "label": ("positive", "negative")[i % 2]}
        )
        for i in range(30)
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    features = {"amounts": {"kind": "numbers", "fields": ["loan amount"]}}
    model = {"classes": ["positive", "negative"], "features": features}
    config = write_config(tmp_path / "config.yaml", source="file:in.jsonl", model=model)
    with Daemon(config) as daemon:
        daemon.until_page("/v1/summary", 200, f'"n":{len(lines)},')
        page, _ = open_page(f"{daemon.address}/?q=wether:wet")
        offered = 'Conditions begin with lang:, label:, confidence:, "loan amount":.'
        expect(page.get_by_test_id("messages-empty")).to_contain_text(offered)
        box = page.get_by_test_id("search-box")
        for wrong in ("loan amount:>10000", '"loan amount":> 10000'):
            box.fill(wrong)
            problem = page.get_by_test_id("search-problem")
            expect(problem).to_contain_text('write "loan amount":>10000, or put words in quotes.')
        box.fill('"loan amount":>10000')
        expect(page.get_by_test_id("message")).to_have_count(19)
        page.goto("about:blank")  # it would complain of a daemon that is gone
        assert daemon.stop() == 0


def test_the_answer_names_the_model_of_its_language(
    browser: Browser, tmp_path: Path, open_page: Callable[..., Opened]
) -> None:
    """A text alone is answered by the shared model, a message by its language's; both say so."""
    assert browser.is_connected()
    lines = [
        json.dumps({"id": f"{lang}{i}", "text": text, "lang": lang, "label": label})
        for i in range(30)
        for lang, sides in (("en", ("gift", "rope")), ("de", ("rope", "gift")))
        for text, label in zip(sides, ("positive", "negative"), strict=True)
    ]
    lines.append(json.dumps({"id": "ja", "text": "gift", "lang": "ja", "label": "positive"}))
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    config = write_config(
        tmp_path / "config.yaml", source="file:in.jsonl", per={"field": "lang", "examples_min": 50}
    )
    with Daemon(config) as daemon:
        daemon.until_page("/v1/model", 200, f'"n_examples":{len(lines)},')
        page, _ = open_page(f"{daemon.address}/?view=try")
        page.get_by_test_id("try-text").fill("gift")
        found = page.get_by_test_id("try-label")
        expect(found).to_contain_text("answered by the shared model: no lang is given")
        page.get_by_test_id("try-mode-json").check()
        for lang, label in (("en", "positive"), ("de", "negative")):
            page.get_by_test_id("try-json").fill(json.dumps({"text": "gift", "lang": lang}))
            expect(found).to_contain_text(label, ignore_case=True)
            expect(found).to_contain_text(f"answered by the model of {lang}: 60 labelled messages")
        assert violations(page) == []
        page.goto(f"{daemon.address}/?view=model")
        rows = page.get_by_role("region", name="Models by lang").locator("tbody tr")
        expect(rows.nth(0)).to_contain_text(re.compile(r"en\s*60\s*[\d.]+%\s*[\d.]+%\s*itself"))
        expect(rows).to_have_count(3)
        expect(rows.nth(2)).to_contain_text("the shared model, until 50")
        assert violations(page) == []
        page.goto("about:blank")  # it would complain of a daemon that is gone
        assert daemon.stop() == 0


# ---- what sets sides apart -----------------------------------------------------------------------

SENSORS = {
    "classes": ["fine", "overheating"],
    "features": {
        "measured": {"kind": "numbers", "fields": ["temp", "rpm"]},
        "mode": {"kind": "categories", "fields": ["mode"]},
    },
}


def readings(name: str, n: int, share: float, span_s: float) -> Iterator[str]:
    """Yield readings that end now, so many of them hot and in mode turbo."""
    chance = random.Random(n)
    for i in range(n):
        is_hot = chance.random() < share
        reading = {
            "id": f"{name}-{i}",
            "created_at": stamp(span_s * (1 - i / n)),
            "temp": round(chance.gauss(93.0 if is_hot else 70.0, 3.0), 2),
            "rpm": round(chance.gauss(1_530.0, 30.0), 2),
            "mode": "turbo" if is_hot else "eco mode",
            "label": "overheating" if is_hot else "fine",
        }
        yield json.dumps(reading) + "\n"


@pytest.fixture(scope="module")
def pump(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Yield a daemon of readings that has just told that more of them overheat."""
    assert browser.is_connected()
    folder = tmp_path_factory.mktemp("pump")
    path = folder / "readings.jsonl"
    path.write_text("".join(readings("before", 900, 0.1, 840.0)), encoding="utf-8")
    alerts = {"queries": [""], "window_s": 60, "before_s": 1_800}
    sections: dict[str, Any] = {"model": SENSORS, "alerts": alerts, "source": f"file:{path}"}
    with Daemon(write_config(folder / "config.yaml", **sections)) as daemon:
        daemon.until_metric("streamnb_messages_total", 900)
        with path.open("a", encoding="utf-8") as file:
            file.writelines(readings("after", 300, 0.4, 0.0))  # in one step of the chart
        daemon.until_metric("streamnb_messages_total", 1_200)
        yield daemon
        assert daemon.stop() == 0


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_conditions_set_readings_apart(
    pump: Daemon, open_page: Callable[..., Opened], scheme: str, width: int
) -> None:
    """Log, alert, crosshair and comparison name values with their field; each is a search."""
    line = pump.until_line("share_moved")
    assert {word.partition(":")[0] for word in line["words"]} == {"mode", "temp"}
    assert any(word.startswith("mode:turbo (+") for word in line["words"])
    first, middle, last = line["change"].split("-")
    times = f"from={first}&to={middle}&from={middle}&to={last}"
    answer = json.loads(pump.get(f"/v1/compare?q=&{times}")[1])
    told = {each["word"].partition(":")[0] for each in answer["moved"]["words"]}
    assert told == {"mode", "temp"}
    page, _ = open_page(pump.address, color_scheme=scheme, viewport={"width": width, "height": 900})
    moved = re.compile(
        r"Overheating rose from \d+% to \d+%, corrected\. Moved by .*mode:turbo \+\d"
    )
    expect(page.get_by_test_id("alerts")).to_contain_text(moved)
    chart = page.get_by_test_id("series-chart")
    expect(chart.locator("canvas")).to_be_visible()  # the alert may be told before it is drawn
    chart.focus()
    page.keyboard.press("End")
    expect(page.get_by_test_id("series-moved")).to_contain_text(moved)
    assert violations(page) == []
    page.get_by_test_id("alerts").get_by_role("link").first.click()
    sides = page.get_by_test_id("compare-words")
    expect(sides).to_have_count(2)
    before, after = sides.all()
    expect(after.locator(".word").get_by_text("mode:turbo", exact=True)).to_be_visible()
    expect(before.locator(".word").get_by_text('mode:"eco mode"', exact=True)).to_be_visible()
    listed = sides.locator(".word").all_inner_texts()
    assert {word.partition(":")[0] for word in listed} == {"mode", "temp"}
    assert violations(page) == []
    assert sticking_out(page) == []
    before.locator(".word").get_by_text('mode:"eco mode"', exact=True).click()
    assert [query.strip() for query in query_of(page)["q"]] == ['mode:"eco mode"']
    expect(page.get_by_test_id("message").first).to_contain_text("mode eco mode")
    page.goto("about:blank")  # it would complain of a daemon that is gone
