"""What stands on the charts: axes with their units, values at the crosshair, and intervals."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book
from tests.browser.test_search import wilson

# Notes each text, and each half-transparent area, that is drawn on a canvas.
NOTING = """() => {
    const drawn = (window.drawn = []);
    const pen = CanvasRenderingContext2D.prototype;
    for (const name of ['fillText', 'fill']) {
        const draw = pen[name];
        pen[name] = function (...given) {
            drawn.push([this.canvas, name, name === 'fill' ? this.fillStyle : given[0]]);
            return draw.apply(this, given);
        };
    }
}"""
DRAWN = """([where, kind]) => window.drawn
    .filter(([canvas, name]) => name === kind && canvas.closest(where))
    .map(([, , said]) => String(said))"""
BAND = re.compile(r"rgba\(\d+, \d+, \d+, 0\.2\)")


def drawn(page: Page, where: str, kind: str = "fillText") -> list[str]:
    """Return the texts, or the colours of the areas, that were drawn on a chart."""
    found: list[str] = page.evaluate(DRAWN, [where, kind])
    return found


def opened(open_page: Callable[..., Opened], address: str) -> Page:
    """Open an address in a browser that notes what it draws."""
    page, _ = open_page("about:blank", locale="en-GB", timezone_id="UTC")
    page.add_init_script(f"({NOTING})()")
    page.goto(address)
    return page


@pytest.fixture(scope="module")
def dikdiks(book: Book) -> Book:
    """Return the book with tweets of two animals, one of them of both classes."""
    book.write_past("a dikdik swims", n=90)
    book.write_past("a dikdik sulks", n=60, label=0)
    book.write_past("a peccary roots", n=80)
    book.until_found("dikdik", 150)
    book.until_found("peccary", 80)
    return book


def test_the_axes_of_shares_over_time(dikdiks: Book, open_page: Callable[..., Opened]) -> None:
    """Shares are in per cent from 0 to 100, messages per step to the largest, times below."""
    page = opened(open_page, f"{dikdiks.address}/?q=dikdik&range=15m")
    when = page.get_by_test_id("series-when")
    expect(when).to_contain_text(" in ")
    step = when.inner_text().rpartition(" in ")[2]
    texts = drawn(page, "#series-chart")
    assert {"0%", "25%", "50%", "75%", "100%"} <= set(texts)
    assert f"messages per {step}" in texts
    assert any(re.fullmatch(r"\d\d:\d\d(:\d\d)?", text) for text in texts)
    page.get_by_test_id("series-numbers").click()
    cells = page.get_by_test_id("series-table").locator("tbody td:nth-of-type(1)")
    assert str(max(map(int, cells.all_inner_texts()))) in texts


def test_the_axes_of_a_comparison(dikdiks: Book, open_page: Callable[..., Opened]) -> None:
    """Shares are in per cent from 0 to 100, and times stand below."""
    page = opened(open_page, f"{dikdiks.address}/?q=dikdik&vs=peccary")
    expect(page.get_by_test_id("compare-words")).to_have_count(2)
    texts = drawn(page, "#compare-chart")
    assert {"0%", "100%"} <= set(texts)
    assert all(re.fullmatch(r"\d+%|\d\d:\d\d(:\d\d)?|\d+ \w+", text) for text in texts), texts


@pytest.mark.parametrize(
    ("line", "heading", "tick"),
    [
        ("accuracy", "Accuracy", r"\d+(\.\d+)?%"),
        ("log_loss", "Log-loss, in nats", r"\d\.\d+"),
        ("calibration_error", "Calibration error", r"\d+(\.\d+)?%"),
        ("rate_per_s", "Messages per second", r"[\d,.]+"),
    ],
)
def test_the_axes_of_a_line_of_the_model(
    dikdiks: Book, open_page: Callable[..., Opened], line: str, heading: str, tick: str
) -> None:
    """Its heading names figure and unit, and its ticks are of that unit."""
    dikdiks.daemon.until(lambda: len(dikdiks.json("/v1/model")["history"]) > 1, "there are points")
    page = opened(open_page, f"{dikdiks.address}/?view=model")
    place = page.locator(f"[data-line={line}]")
    expect(place.locator("canvas")).to_be_visible()
    expect(place.locator("h3")).to_have_text(heading)
    times = re.compile(r"\d\d:\d\d(:\d\d)?")
    ticks = [text for text in drawn(page, f"[data-line={line}]") if not times.fullmatch(text)]
    assert len(set(ticks)) > 1
    assert all(re.fullmatch(tick, text) for text in ticks), ticks


def written(share: float, low: float, high: float) -> re.Pattern[str]:
    """Return a share with its interval, as the page writes it."""
    half = 50 * (high - low)
    if abs((high + low) / 2 - share) > 0.006:
        return re.compile(rf"{100 * share:.0f}% \({100 * max(0, low):.0f}–{100 * high:.0f}\)")
    return re.compile(rf"{100 * share:.0f}(\.\d)?% ± {half:.0f}")


def test_the_crosshair_tells_the_steps_own_values(
    dikdiks: Book, open_page: Callable[..., Opened]
) -> None:
    """At each step it has the shares and the messages that the daemon counts there."""
    page, _ = open_page("about:blank", locale="en-GB")
    with page.expect_response(re.compile(r"/v1/summary\?")) as answer:
        page.goto(f"{dikdiks.address}/?q=dikdik&range=15m")
    points: list[dict[str, Any]] = answer.value.json()["series"]["points"]
    chart = page.get_by_test_id("series-chart")
    expect(chart).to_have_attribute("aria-label", re.compile("^Share over time. From "))
    chart.focus()
    page.keyboard.press("Home")
    filled = [point for point in points if any(point["counts"].values())]
    step_ms = min(b["time_ms"] - a["time_ms"] for a, b in pairwise(filled))
    n_checked = 0
    for point in filled:
        at = (point["time_ms"] - filled[0]["time_ms"]) // step_ms
        while int(chart.get_attribute("aria-valuenow") or 0) < at:
            page.keyboard.press("ArrowRight")
        n = sum(point["counts"].values())
        said = chart.get_attribute("aria-valuetext") or ""
        assert f": {n} message" in said
        for label, k in point["counts"].items():
            low, high = wilson(k, n)
            assert re.search(f"{label} {written(k / n, low, high).pattern}", said), (k, n, said)
            n_checked += 1
    assert n_checked >= 40


def test_a_comparison_has_its_intervals(dikdiks: Book, open_page: Callable[..., Opened]) -> None:
    """Each line has a band, and the crosshair tells share and interval of each side."""
    page = opened(open_page, f"{dikdiks.address}/?q=dikdik&vs=peccary")
    expect(page.get_by_test_id("compare-words")).to_have_count(2)
    page.get_by_test_id("compare-class").select_option("positive")
    page.get_by_test_id("compare-chart").focus()
    page.keyboard.press("Home")
    colours = {each for each in drawn(page, "#compare-chart", "fill") if BAND.fullmatch(each)}
    assert len(colours) == 2  # one of each side
    side, other = dikdiks.json("/v1/compare?q=dikdik&q=peccary")["compared"]
    first_ms = min(each["series"]["points"][0]["time_ms"] for each in (side, other))
    said = page.get_by_test_id("compare-when").inner_text()
    for each in (side, other):
        counts = each["series"]["points"][0]["counts"]
        if each["series"]["points"][0]["time_ms"] == first_ms and sum(counts.values()):
            k, n = counts["positive"], sum(counts.values())
            low, high = wilson(k, n)
            assert re.search(f"{each['query']} {written(k / n, low, high).pattern}", said), said
    row = page.get_by_test_id("compare-share").first
    expect(row).to_have_text(re.compile(r"\d%? ± \d|\d+% \(\d+–\d+\)"))


def test_calibration_has_its_intervals(dikdiks: Book, open_page: Callable[..., Opened]) -> None:
    """Each dot stands on a bar from one end of its interval to the other."""
    page, _ = open_page(f"{dikdiks.address}/?view=model")
    chart = page.get_by_test_id("calibration")
    expect(chart).to_be_visible()
    dots = chart.locator("circle.dot").evaluate_all(
        "nodes => nodes.map(node => [+node.getAttribute('cx'), +node.getAttribute('cy'),"
        " node.textContent])"
    )
    path = chart.locator(".whiskers").get_attribute("d") or ""
    bars = [tuple(map(float, each)) for each in re.findall(r"M([\d.]+) ([\d.]+)V([\d.]+)", path)]
    assert len(bars) == len(dots) > 2
    for (x, y, words), (at, below, above) in zip(dots, bars, strict=True):
        right, n = re.search(r"right ([\d.]+)% of ([\d,]+)", words).groups()  # type: ignore[union-attr]
        n = int(n.replace(",", ""))
        low, high = wilson(float(right) / 100 * n, n)
        assert at == x
        assert above <= y <= below
        assert (90 - below) / 80 == pytest.approx(low, abs=0.01)
        assert (90 - above) / 80 == pytest.approx(high, abs=0.01)
    shown = chart.evaluate("node => getComputedStyle(node.querySelector('.whiskers')).stroke")
    assert shown != "none"


def test_figures_are_of_the_chosen_time(dikdiks: Book, open_page: Callable[..., Opened]) -> None:
    """Ring, shares and counts are of the messages that chart and list show, and back again."""
    newest_ms = dikdiks.json("/v1/search?q=dikdik&limit=1")["messages"][0]["time_ms"]
    begin_ms, end_ms = newest_ms - 600_000, newest_ms - 120_000
    whole = dikdiks.json("/v1/summary?q=dikdik")
    own = dikdiks.json(f"/v1/summary?q=dikdik&from={begin_ms}&to={end_ms}")
    assert 30 < own["n"] < whole["n"]

    def told(summary: dict[str, Any]) -> None:
        rows = page.get_by_test_id("count-row").get_by_test_id("count")
        expect(rows).to_have_text([f"{n:,}" for n in summary["counts"].values()])
        expect(page.get_by_test_id("count-note")).to_contain_text(f"{summary['n']} matches")
        corrected = summary["corrected"]
        share = corrected["negative"]["share"] if corrected else summary["raw"]["negative"]
        words = re.compile(rf"(^|, )negative {100 * share:.0f}%")
        expect(page.get_by_test_id("ring")).to_have_attribute("aria-label", words)

    page, _ = open_page(f"{dikdiks.address}/?q=dikdik&range={begin_ms}-{end_ms}", locale="en-GB")
    told(own)
    page.get_by_test_id("newest").click()
    told(whole)
    page.go_back()
    told(own)


def test_the_list_of_times(dikdiks: Book, open_page: Callable[..., Opened]) -> None:
    """Each time of the list is what is asked for and drawn, and stands in the address."""
    page, _ = open_page(f"{dikdiks.address}/?q=dikdik")
    choice = page.get_by_test_id("series-range")
    for range_, span_ms in (("15m", 900_000), ("6h", 21_600_000), ("7d", 604_800_000)):
        with page.expect_request(re.compile(r"/v1/summary\?.*from=")) as asked:
            choice.select_option(range_)
        found = re.search(r"from=(\d+)&to=(\d+)", asked.value.url)
        assert found is not None
        assert int(found[2]) - int(found[1]) == pytest.approx(span_ms, abs=2)
        assert f"range={range_}" in page.url
    choice.select_option("all")
    page.wait_for_url(re.compile("range=all"))
    choice.select_option("")
    page.wait_for_url(re.compile(r"\?q=dikdik$"))


def test_shares_that_are_not_corrected_have_intervals(
    book: Book, open_page: Callable[..., Opened]
) -> None:
    """Where no match has a label, ring, bars and saved search show the interval of the count."""
    book.write(*["horrible, i hate it, serow"] * 40, label=None)
    book.until_found("serow", 40)
    assert book.json("/v1/summary?q=serow")["corrected"] is None
    page, _ = open_page("about:blank", locale="en-GB")
    page.goto(f"{book.address}/?q=serow")
    expect(page.get_by_test_id("percent-note")).to_contain_text("95% intervals, not corrected")
    words = ["100% (91–100)", "0% (0–9)"]
    expect(page.get_by_test_id("share")).to_have_text([re.compile(r"^\d+% \(\d+–\d+\)$")] * 2)
    assert set(page.get_by_test_id("share").all_inner_texts()) == set(words)
    expect(page.locator("#percent .whisker:not([hidden])")).to_have_count(2)
    ring = page.get_by_test_id("ring")
    for said in words:
        expect(ring).to_have_attribute("aria-label", re.compile(re.escape(said)))
    expect(ring.locator(".ring-whisker")).to_have_attribute(
        "stroke-dasharray", re.compile(r"^0\.087")
    )
    page.get_by_test_id("save-search").click()
    for said in words:
        expect(page.get_by_test_id("saved-card")).to_contain_text(said)
