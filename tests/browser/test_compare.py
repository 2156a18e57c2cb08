"""Comparing on the page: queries side by side, two times of one, and the words between them.

Each test writes tweets with words of its own into the book that all of them share.
"""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.axe import sticking_out, violations
from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book, open_book
from tests.browser.test_appearance import WATCH_SHIFTS, WIDEST, tab_to
from tests.browser.test_search import ask, query_of

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


@pytest.fixture(scope="module")
def animals(book: Book) -> Book:
    """Return the book with tweets of three animals, each with a word of its own."""
    book.write(*["a bilby digs termites"] * 40)
    book.write(*["a dugong eats seagrass"] * 30, label=0)
    book.write(*["ein dugong schläft"] * 30, label=0, lang="de")
    for word, n in (("bilby", 40), ("dugong", 60)):
        book.until_found(word, n)
    return book


def told(page: Page, n: int) -> list[str]:
    """Wait until so many sides are compared; return the rows of the table."""
    rows = page.get_by_test_id("compare-row")
    expect(rows).to_have_count(n)
    return [" ".join(row.split()) for row in rows.all_inner_texts()]


def words(page: Page, i: int) -> list[str]:
    """Return the words that set a side apart."""
    return page.get_by_test_id("compare-words").nth(i).locator(".word").all_inner_texts()


def test_queries_side_by_side(animals: Book, open_page: Callable[..., Opened]) -> None:
    """A second query stands in the address and comes with count, share, line and words."""
    page, _ = open_page(animals.address)
    ask(page, "bilby")
    page.get_by_test_id("compare").click()
    expect(page.get_by_test_id("compare-box")).to_be_focused()
    page.keyboard.type("dugong")
    page.keyboard.press("Enter")
    bilby, dugong = told(page, 2)
    assert re.match(r"bilby 40 \d+%", bilby)
    assert re.match(r"dugong 60 \d+%", dugong)
    assert "termites" in words(page, 0)
    assert {"seagrass", "schläft"} <= set(words(page, 1))
    assert not {"bilby", "dugong"} & {*words(page, 0), *words(page, 1)}
    expect(page.get_by_test_id("compare-chart").locator("canvas")).to_be_visible()
    assert query_of(page) == {"q": ["bilby"], "vs": ["dugong"]}


def test_the_last_step(animals: Book, open_page: Callable[..., Opened]) -> None:
    """It is told and drawn as unfinished until it is over."""
    animals.write_past("a bettong leaps")
    animals.until_found("bettong", 90)
    sides = animals.json("/v1/compare?q=bettong&q=dugong")["compared"]
    newest_ms = max(side["series"]["points"][-1]["time_ms"] for side in sides)
    newest = dt.datetime.fromtimestamp(newest_ms / 1000, dt.UTC)
    for days, said in ((0, r", unfinished: "), (1, r"\d( [AP]M)?: ")):
        page, _ = open_page("about:blank")
        page.clock.set_fixed_time(newest + dt.timedelta(days=days))
        page.goto(f"{animals.address}/?q=bettong&vs=dugong")
        expect(page.get_by_test_id("compare-when")).to_have_text(re.compile(said))
        expect(page.get_by_test_id("compare-unfinished")).to_be_visible(visible=days == 0)


def test_back_forward_and_permalink(animals: Book, open_page: Callable[..., Opened]) -> None:
    """An address shows what it compares, and the browser's buttons go back and forth."""
    page, _ = open_page(f"{animals.address}/?q=bilby&vs=dugong")
    told(page, 2)
    page.get_by_test_id("compare-box").fill("dugong lang:de")
    page.get_by_test_id("compare-add").click()
    assert "dugong lang:de 30" in told(page, 3)[2]
    assert query_of(page)["vs"] == ["dugong", "dugong lang:de"]
    page.go_back()
    told(page, 2)
    page.go_forward()
    told(page, 3)
    page.get_by_role("button", name="Compare no more with dugong", exact=True).click()
    assert "lang:de" in told(page, 2)[1]
    page.get_by_test_id("compare-end").click()
    expect(page.get_by_test_id("comparison")).to_be_hidden()
    expect(page.get_by_test_id("compare")).to_be_focused()
    assert query_of(page) == {"q": ["bilby"]}


def test_the_class_is_chosen(animals: Book, open_page: Callable[..., Opened]) -> None:
    """Shares are of the class that the reader chooses, by arrow keys on the chart as well."""
    page, _ = open_page(f"{animals.address}/?q=bilby&vs=dugong")
    before = told(page, 2)
    page.get_by_test_id("compare-class").select_option("positive")
    chart = page.get_by_test_id("compare-chart")
    expect(chart).to_have_attribute("aria-label", "Share of positive over time")
    assert told(page, 2) != before
    chart.focus()
    page.keyboard.press("Home")
    expect(chart).to_have_attribute("aria-valuenow", "0")
    expect(chart).to_have_attribute("aria-valuetext", re.compile(r"bilby|dugong"))


def test_the_time_of_the_chart_is_compared(animals: Book, open_page: Callable[..., Opened]) -> None:
    """Queries are compared over the range that is chosen; the file and the commands have it too."""
    animals.write_past("a potto naps")
    animals.until_found("potto", 90)
    newest_ms = animals.json("/v1/search?q=potto&limit=1")["messages"][0]["time_ms"]
    begin_ms, end_ms = newest_ms - 600_000, newest_ms - 300_000
    times = f"from={begin_ms}&to={end_ms}"
    sides = animals.json(f"/v1/compare?q=potto&q=bilby&{times}")["compared"]
    assert 0 < sides[0]["n"] < 90
    page, _ = open_page(f"{animals.address}/?q=potto&vs=bilby&range={begin_ms}-{end_ms}")
    wanted = [[side["query"].strip(), f"{side['n']}"] for side in sides]
    assert [row.split()[:2] for row in told(page, 2)] == wanted
    href = re.compile(times)
    expect(page.get_by_test_id("compare-csv")).to_have_attribute("href", href)
    page.get_by_test_id("curl").click()
    commands = page.get_by_test_id("curl-commands")
    expect(commands).to_contain_text(re.compile(rf"/v1/compare\?\S*{times}"))
    of_both = r"/v1/compare\?q=potto.*q=bilby"
    with page.expect_request(re.compile(f"{of_both}.*from=")) as asked:
        page.get_by_test_id("series-range").select_option("15m")
    span = re.search(r"from=(\d+)&to=(\d+)", asked.value.url)
    assert span is not None
    assert int(span[2]) - int(span[1]) == pytest.approx(900_000, abs=2)
    with page.expect_request(re.compile(f"{of_both}(?!.*from=)")):
        page.get_by_test_id("series-range").select_option("all")


def test_a_query_that_cannot_be_asked(animals: Book, open_page: Callable[..., Opened]) -> None:
    """What the daemon refuses is said where the comparison stands."""
    page, watch = open_page(f"{animals.address}/?q=bilby&vs=x*")
    expect(page.get_by_test_id("compare-problem")).to_contain_text("at least 2 letters")
    watch.expect("422")


def test_what_was_compared_before_is_no_answer(
    animals: Book, open_page: Callable[..., Opened]
) -> None:
    """Where the next question has none, the last one's rows and words are not shown."""
    page, watch = open_page(f"{animals.address}/?q=bilby&vs=dugong")
    watch.expect("503")
    told(page, 2)
    page.route("**/v1/compare*", lambda route: route.fulfill(status=503, json={"detail": "busy"}))
    ask(page, "coffee")
    expect(page.get_by_test_id("compare-problem")).to_have_text("busy")
    for name in ("compare-table", "compare-chart", "save-picture"):
        expect(page.get_by_test_id("comparison").get_by_test_id(name)).to_be_hidden()
    page.unroute("**/v1/compare*")
    page.get_by_test_id("compare-box").fill("tea")
    page.get_by_test_id("compare-add").click()
    assert told(page, 3)[0].startswith("coffee ")
    expect(page.get_by_test_id("compare-table")).to_be_visible()
    expect(page.get_by_test_id("compare-problem")).to_be_hidden()


def test_what_failed_once_is_asked_again(animals: Book, open_page: Callable[..., Opened]) -> None:
    """In a quiet stream no news makes the page ask: it does so by itself, and draws the answer."""
    page, watch = open_page("about:blank")
    watch.expect("503")
    page.route(
        "**/v1/compare*", lambda route: route.fulfill(status=503, json={"detail": "busy"}), times=2
    )
    page.goto(f"{animals.address}/?q=bilby&vs=dugong")
    expect(page.get_by_test_id("compare-problem")).to_have_text("busy")
    expect(page.get_by_test_id("compare-table")).to_be_hidden()
    told(page, 2)
    expect(page.get_by_test_id("compare-table")).to_be_visible()
    expect(page.get_by_test_id("compare-problem")).to_be_hidden()


def test_what_changed(book: Book, open_page: Callable[..., Opened]) -> None:
    """A step that is clicked, or chosen by keys, parts the time shown in two."""
    page, _ = open_page(book.address)
    chart = page.get_by_test_id("series-chart")
    expect(chart.locator("canvas")).to_be_visible()
    chart.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    button = page.get_by_test_id("what-changed")
    expect(button).to_have_text(re.compile(r"What changed at .*\d+:\d\d"))
    button.click()
    heading = page.locator("#comparison-heading")
    expect(heading).to_be_focused()
    sides = told(page, 2)
    expect(heading).to_be_in_viewport()
    begin, middle, end = query_of(page)["change"][0].split("-")
    assert int(begin) < int(middle) < int(end)
    times = {"q": "", "from": [begin, middle], "to": [middle, end]}
    answer = page.request.get(f"{book.address}/v1/compare?{_encoded(times)}").json()["compared"]
    for row, side in zip(sides, answer, strict=True):
        assert f"{side['n']:,}" in row
    page.go_back()
    expect(page.get_by_test_id("comparison")).to_be_hidden()


def test_the_words_that_moved_a_share_between_two_times(
    bandicoots: Book, open_page: Callable[..., Opened]
) -> None:
    """Two times name them, with a rise; two queries, and two times without a rise, name none."""
    singing = bandicoots.json("/v1/search?q=bandicoot+sings&limit=50")["messages"]
    middle = min(each["time_ms"] for each in singing) - 1_000
    times = [middle - 900_000, middle, middle + 900_000]
    address = f"{bandicoots.address}/?q=bandicoot&change={'-'.join(map(str, times))}"
    page, _ = open_page(address)
    moved = page.get_by_test_id("compare-moved")
    expect(moved).to_have_text(
        re.compile(
            r"^Positive rose from \d+% to \d+%, not corrected\. Moved by .*great \+.* points\.$"
        )
    )
    assert violations(page) == []
    page.goto(f"{bandicoots.address}/?q=bandicoot&vs=coffee")
    told(page, 2)
    expect(moved).to_be_hidden()
    quarters = [middle - 800_000, middle - 400_000, middle]
    page.goto(f"{bandicoots.address}/?q=bandicoot&change={'-'.join(map(str, quarters))}")
    expect(moved).to_have_text("No share rose further than by chance.")


@pytest.fixture(scope="module")
def bandicoots(book: Book) -> Book:
    """Return the book with tweets of a quarter of an hour, whose words and class end as others."""
    book.write_past("an awful horrible bandicoot", label=0)
    book.until_found("bandicoot", 90)
    book.write(*["a great lovely bandicoot sings"] * 60)
    book.until_found("bandicoot", 150)
    return book


@dataclass(frozen=True)
class Resting:
    """A page whose clock stands still, and where its chart's steps are."""

    page: Page
    asked: list[str]
    """What it asks to compare."""
    first: tuple[int, float]
    """The first step and where it is, in pixels."""
    last: tuple[int, float]
    """The last step with messages; empty ones may follow it, as time goes on."""

    def over(self, step: int) -> None:
        """Move the pointer over a step."""
        (i, x_i), (j, x_j) = self.first, self.last
        area = self.page.get_by_test_id("series-chart").locator(".u-over").bounding_box()
        assert area is not None
        self.page.mouse.move(x_i + (x_j - x_i) * (step - i) / (j - i), area["y"] + 30)


def step_at(page: Page, key: str) -> tuple[int, float]:
    """Return which step a key chooses in the chart, and where that is, in pixels."""
    chart = page.get_by_test_id("series-chart")
    chart.focus()
    page.keyboard.press(key)
    step = int(chart.get_attribute("aria-valuenow") or 0)
    crosshair = chart.locator(".u-cursor-x").bounding_box()
    page.keyboard.press("Escape")
    assert crosshair is not None
    return step, crosshair["x"]


@pytest.fixture
def resting(bandicoots: Book, open_page: Callable[..., Opened]) -> Resting:
    """Return a page with bandicoots whose clock stands still."""
    return rested(f"{bandicoots.address}/?q=bandicoot&range=15m", open_page)


def rested(
    address: str, open_page: Callable[..., Opened], *, is_drawn_again: bool = False
) -> Resting:
    """Return what `resting` does, of an address; unless it is drawn again, its steps stay."""
    page, watch = open_page(address)
    watch.expect("ERR_ABORTED")
    expect(page.get_by_test_id("series-chart").locator("canvas")).to_be_visible()
    if not is_drawn_again:
        page.route("**/v1/summary*", lambda _: None)  # never answered
    page.clock.install()
    # By then it has been told to: a clock cannot be stopped at a time that is past.
    page.clock.pause_at(dt.datetime.now(dt.UTC) + dt.timedelta(seconds=10))
    first, last = step_at(page, "Home"), step_at(page, "End")  # now they move no more
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url) if "/v1/compare" in one.url else None)
    return Resting(page, asked, first, last)


def test_the_words_that_moved_a_share_on_hover(resting: Resting) -> None:
    """They are named where the pointer rests, asked for once; nothing is where it only crosses."""
    page, asked, first, last = resting.page, resting.asked, resting.first[0], resting.last[0]
    moved = page.get_by_test_id("series-moved")
    # No step twice running, whatever their number is: there the pointer would rest.
    for step in (*range(first, last, 3), *range(last, first, -3)):
        resting.over(step)
        page.clock.run_for(200)
    assert asked == []
    resting.over(last)
    page.clock.run_for(200)
    assert asked == []
    expect(moved).to_be_hidden()
    page.clock.run_for(200)
    expect(moved).to_contain_text(
        re.compile(r"^Positive rose from \d+% to \d+%, not corrected\. Moved by ")
    )
    for word in ("great", "lovely", "sings"):
        expect(moved).to_contain_text(re.compile(rf"{word} \+\d"))
    assert len(asked) == 1
    resting.over(first + 1)
    expect(moved).to_be_hidden()
    resting.over(last)
    expect(moved).to_contain_text("great")
    page.clock.run_for(1_000)
    assert len(asked) == 1


def test_the_words_are_named_to_keys(resting: Resting) -> None:
    """The crosshair of the arrow keys names them too, to who hears the page as well."""
    page, asked = resting.page, resting.asked
    chart = page.get_by_test_id("series-chart")
    chart.focus()
    page.keyboard.press("End")
    page.clock.run_for(400)
    expect(page.get_by_test_id("series-moved")).to_contain_text("lovely +")
    expect(chart).to_have_attribute("aria-valuetext", re.compile(r"\. Positive rose .*lovely \+"))
    assert len(asked) == 1
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("series-moved")).to_be_hidden()


def test_the_words_stay_while_time_goes_on(book: Book, open_page: Callable[..., Opened]) -> None:
    """The last quarter of an hour begins later when it is drawn again, and nothing is asked."""
    book.write_past("an awful horrible quoll", n=30, label=0)  # so it begins with empty steps
    book.write(*["a great lovely quoll sings"] * 60)
    book.until_found("quoll", 90)
    found = rested(f"{book.address}/?q=quoll&range=15m", open_page, is_drawn_again=True)
    page, asked = found.page, found.asked
    chart, moved = page.get_by_test_id("series-chart"), page.get_by_test_id("series-moved")

    n = 90

    def draw_again() -> None:
        nonlocal n
        before = chart.get_attribute("aria-label")
        book.write(*["a great lovely quoll sings"] * 30)  # a rise of theirs alone is one, too
        n += 30
        book.until_found("quoll", n)  # meanwhile the page's clock stands: it has a step to go on
        while chart.get_attribute("aria-label") == before:
            page.clock.run_for(20)

    now_ms = page.evaluate("Date.now()")
    times = f"from={now_ms - 900_000}&to={now_ms}"
    step_ms = 1000 * book.json(f"/v1/summary?q=quoll&{times}")["series"]["step_s"]
    page.clock.run_for(step_ms + (900_000 - now_ms) % step_ms)  # now the chart begins with a step
    draw_again()  # from an answer, maybe, to what was asked before that
    draw_again()
    chart.focus()
    page.keyboard.press("End")
    page.clock.run_for(400)
    expect(moved).to_contain_text(" rose from ")
    said = moved.inner_text()
    assert len(asked) == 1
    page.clock.run_for(3_000)
    draw_again()
    page.clock.run_for(1_000)
    assert (moved.inner_text(), len(asked)) == (said, 1)


def test_what_comes_soon_after_an_answer_is_drawn(
    book: Book, open_page: Callable[..., Opened]
) -> None:
    """A chosen time is asked for again at intervals; the last news within one are not forgotten."""
    book.write_past("a dunnart digs")
    book.until_found("dunnart", 90)
    address = f"{book.address}/?q=dunnart&range=15m"
    page = rested(address, open_page, is_drawn_again=True).page
    note, chart = page.get_by_test_id("count-note"), page.get_by_test_id("series-chart")

    def drawn() -> str:
        """Return what the chart is of; that its last step is over is no other answer."""
        return (chart.get_attribute("aria-label") or "").replace(", which is unfinished", "")

    for n in (100, 110):
        before = drawn()
        book.write(*["a dunnart digs"] * 10)
        book.until_found("dunnart", n)
        while not note.inner_text().startswith(f"{n} "):
            page.clock.run_for(1)
        if n == 100:
            while drawn() == before:
                page.clock.run_for(20)
    assert drawn() == before
    with page.expect_request("**/v1/summary*"):
        page.clock.run_for(4_000)
    while drawn() == before:
        page.clock.run_for(20)


def test_a_question_is_given_up(resting: Resting) -> None:
    """One that is under way ends when the pointer goes on, before another is asked."""
    page, asked, last = resting.page, resting.asked, resting.last[0]
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/v1/compare*", hold)
    resting.over(last)
    with page.expect_request("**/v1/compare*") as first:
        page.clock.run_for(400)
    with page.expect_event("requestfailed", lambda one: "/v1/compare" in one.url) as failed:
        resting.over(last - 1)
    assert failed.value.url == first.value.url
    page.unroute("**/v1/compare*")
    with page.expect_response("**/v1/compare*"):
        page.clock.run_for(400)
    assert len(set(asked)) == 2


def test_a_touch_names_the_words(bandicoots: Book, open_page: Callable[..., Opened]) -> None:
    """A tap on a step is enough."""
    page, _ = open_page(f"{bandicoots.address}/?q=bandicoot&range=15m", **PHONE)
    chart = page.get_by_test_id("series-chart")
    expect(chart.locator("canvas")).to_be_visible()
    chart.scroll_into_view_if_needed()
    _, x = step_at(page, "End")
    area = chart.locator(".u-over").bounding_box()
    assert area is not None
    page.touchscreen.tap(x, area["y"] + 20)
    expect(page.get_by_test_id("series-moved")).to_contain_text("great +")
    assert violations(page) == []
    assert sticking_out(page) == []


BEHIND_THE_BOX = """() => {
    scrollTo(0, document.body.scrollHeight);
    return [...document.querySelectorAll('.foot :is(a, button)')].filter(node => {
        const { left, top, width, height } = node.getBoundingClientRect();
        return document.elementFromPoint(left + width / 2, top + height / 2) !== node;
    }).map(node => node.textContent);
}"""


def test_an_alert_on_the_page(open_page: Callable[..., Opened], tmp_path: Path) -> None:
    """A share that rises is told with its words, and its link compares the two times."""
    alerts = {"queries": ["bandicoot"], "window_s": 30, "before_s": 1_800}
    with open_book(tmp_path, alerts=alerts) as book:
        page, _ = open_page(f"{book.address}/?q=wombat")
        book.write_past("an awful horrible bandicoot", label=0)
        book.until_found("bandicoot", 90)
        expect(page.get_by_test_id("alerts")).to_be_hidden()
        book.write(*["a great lovely bandicoot sings"] * 60)
        told = page.get_by_test_id("alerts")
        expect(told).to_contain_text(
            re.compile(r"bandicoot: Positive rose from \d+% to \d+%, not corrected\.")
        )
        expect(told).to_contain_text("great +")
        line = book.daemon.until_line("share_moved")
        assert line["label"] == "positive"
        assert any(word.startswith("great (+") for word in line["words"])
        assert violations(page) == []
        page.add_init_script(WATCH_SHIFTS)
        page.set_viewport_size({"width": 1440, "height": 900})
        page.goto(book.address)
        expect(told).to_be_visible()
        expect(page.get_by_test_id("message").first).to_be_visible()
        expect(page.get_by_test_id("series-when")).not_to_be_empty()
        assert page.evaluate("window.shifted") <= 0.02  # it lies over the page
        for width, view in itertools.product((1440, 390), ("search", "model", "try")):
            page.set_viewport_size({"width": width, "height": 844})
            page.goto(f"{book.address}/?view={view}")
            expect(told).to_be_in_viewport()
            assert page.evaluate(BEHIND_THE_BOX) == []
        page.goto(book.address)
        tab_to(page, "alerts-close", n_max=200)  # behind the list and the foot
        page.keyboard.press("Enter")
        expect(told).to_be_hidden()
        expect(page.locator("#main")).to_be_focused()
        page.reload()
        expect(told).to_be_visible()
        page.set_viewport_size({"width": 390, "height": 844})
        assert sticking_out(page) == []
        told.get_by_role("link").first.click()
        assert query_of(page)["q"] == ["bandicoot"]
        expect(page.get_by_test_id("compare-row")).to_have_count(2)
        assert query_of(page)["change"][0] == line["change"]
        moved = page.get_by_test_id("compare-moved")
        expect(moved).to_have_text(re.compile(r"^Positive rose .* Moved by .*great \+"))
        page.close()  # before the daemon ends, of which it would complain


def _encoded(values: dict[str, Any]) -> str:
    return "&".join(
        f"{name}={one}"
        for name, value in values.items()
        for one in (value if isinstance(value, list) else [value])
    )


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        pytest.param({}, "dark", id="wide-dark"),
        pytest.param(WIDEST, "light", id="widest-light"),
        pytest.param(WIDEST, "dark", id="widest-dark", marks=pytest.mark.deep),
        pytest.param(PHONE, "light", id="phone-light"),
        pytest.param({}, "light", id="wide-light", marks=pytest.mark.deep),
        pytest.param(PHONE, "dark", id="phone-dark", marks=pytest.mark.deep),
    ],
)
def test_the_comparison_is_open_to_all(
    animals: Book, open_page: Callable[..., Opened], size: dict[str, Any], scheme: str
) -> None:
    """axe-core finds nothing, and nothing sticks out sideways."""
    page, _ = open_page(
        f"{animals.address}/?q=bilby&vs=dugong&vs=coffee&vs=dugong+lang:de",
        color_scheme=scheme,
        reduced_motion="reduce",
        **size,
    )
    told(page, 4)
    expect(page.get_by_test_id("ring")).to_be_visible()
    assert violations(page) == []
    assert sticking_out(page) == []
