"""The page's charts of times of which the messages are no longer stored."""

from __future__ import annotations

import datetime as dt
import itertools
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Route, expect

from consumers.config.sections import HistorySettings
from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book, first_tweets, open_book
from tests.consumers.search.stores import running, tell, wall_of
from tests.endtoend.daemon_process import Daemon, write_config


def test_steps_of_days_are_those_of_utc(book: Book, open_page: Callable[..., Opened]) -> None:
    """West of Greenwich a day that begins at midnight UTC is not the day before."""
    west = {"timezone_id": "America/New_York", "locale": "en-US"}
    page, _ = open_page(f"{book.address}/?view=try", **west)
    said = page.evaluate(
        """async () => {
            const { moment } = await import('/page/base.js');
            const begin = Date.UTC(2020, 10, 2);
            return [moment(begin, 86_400_000), moment(begin, 60_000)];
        }"""
    )
    assert said[0] == "Nov 2, 2020"
    assert said[1].startswith("Nov 1, 2020, 7:00")


def test_short_steps_of_another_day_are_told_apart(
    book: Book, open_page: Callable[..., Opened]
) -> None:
    """Those below a minute have seconds; the chart tells of which day it is to who hears it."""
    book.write_past("a vicuna grazes")
    book.until_found("vicuna", 90)
    page, _ = open_page("about:blank", locale="en-US")
    page.clock.set_fixed_time(dt.datetime.now(dt.UTC) + dt.timedelta(days=2))
    now_ms = int(1000 * time.time())
    page.goto(f"{book.address}/?range={now_ms - 3_600_000}-{now_ms}")
    chart = page.get_by_test_id("series-chart")
    day = re.compile(r"From \w+ \d+, \d{4}, .* to \w+ \d+, \d{4}, ")
    expect(chart).to_have_attribute("aria-label", day)
    times = "-".join(str(now_ms - ago_ms) for ago_ms in (120_000, 60_000, 0))
    page.goto(f"{book.address}/?q=vicuna&change={times}")
    for name in ("compare-row", "compare-when"):
        told = page.get_by_test_id(name).first
        expect(told).to_contain_text(re.compile(r"\w+ \d+, \d{4}, \d+:\d\d:\d\d"))
    said = page.evaluate(
        """async () => {
            const { moment } = await import('/page/base.js');
            const begin = new Date(2020, 10, 2, 10, 4).getTime();
            return [moment(begin, 1_000), moment(begin + 5_000, 1_000), moment(begin, 60_000)];
        }"""
    )
    # Some versions of the browser write a narrow blank before AM.
    assert [one.replace("\u202f", " ") for one in said] == [
        "Nov 2, 2020, 10:04:00 AM", "Nov 2, 2020, 10:04:05 AM", "Nov 2, 2020, 10:04 AM",
    ]  # fmt: skip


def test_a_time_that_is_not_answered_is_not_drawn(
    book: Book, open_page: Callable[..., Opened]
) -> None:
    """The chart of the time before is none of it; it is asked for again, but ever more seldom."""
    page, watch = open_page("about:blank")
    watch.expect("503")
    page.clock.install()
    page.goto(f"{book.address}/?q=coffee")
    series = page.get_by_test_id("series")
    asked: list[str] = []
    chart, note = series.get_by_test_id("series-chart"), page.get_by_test_id("series-source")
    expect(chart.locator("canvas")).to_be_visible()

    def refuse(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(status=503, json={"detail": "The search took longer than 1 s."})

    page.route("**/v1/summary*", refuse)
    page.get_by_test_id("series-range").select_option("15m")
    expect(note).to_have_text("The search took longer than 1 s.")
    for hidden in (
        chart,
        series.get_by_test_id("series-when"),
        *series.get_by_role("button").all(),
    ):
        expect(hidden).to_be_hidden()
    while len(asked) < 3:  # though nothing new comes
        page.clock.run_for(1_000)
    page.clock.run_for(10_000)
    assert len(asked) <= 4
    page.unroute("**/v1/summary*")
    while note.is_visible():
        page.clock.run_for(1_000)
    expect(chart).to_be_visible()


def test_the_newest_step_is_unfinished_until_it_is_over(
    book: Book, open_page: Callable[..., Opened]
) -> None:
    """The newest message's step may be over for long; while it goes on, its end is waited for."""
    book.write_past("a tayra climbs")
    book.until_found("tayra", 90)
    series = book.json("/v1/summary?q=tayra")["series"]
    newest = dt.datetime.fromtimestamp(series["points"][-1]["time_ms"] / 1000, dt.UTC)
    step = dt.timedelta(seconds=series["step_s"])
    page, _ = open_page("about:blank")
    page.clock.install(time=newest + step - dt.timedelta(minutes=5))
    page.clock.pause_at(newest + step - dt.timedelta(seconds=3))
    page.goto(f"{book.address}/?q=tayra")
    when, veil = page.get_by_test_id("series-when"), page.get_by_test_id("series-unfinished")
    chart = page.get_by_test_id("series-chart")
    # The answer takes real time; the page's own goes on for its drawing alone.
    expect(page.get_by_test_id("announcer")).not_to_be_empty()
    while not when.text_content():
        page.clock.run_for(100)
    expect(when).to_contain_text(", unfinished: ")
    expect(chart).to_have_attribute("aria-label", re.compile("which is unfinished"))
    expect(veil).to_be_visible()
    page.clock.run_for(3_500)
    expect(when).not_to_contain_text("unfinished")
    expect(chart).not_to_have_attribute("aria-label", re.compile("unfinished"))
    expect(veil).to_be_hidden()


def test_a_time_before_1970(tmp_path: Path, open_page: Callable[..., Opened]) -> None:
    """It is shown, chosen and compared as any other is."""
    begin_ms = -157_766_400_000
    with open_book(tmp_path) as book:
        for i in range(40):
            book.write("an olingo digs", created_at=begin_ms + 60_000 * i)
        book.until_found("olingo", 40)
        page, _ = open_page(f"{book.address}/?q=olingo", timezone_id="UTC", locale="en-US")
        chart = page.get_by_test_id("series-chart")
        expect(chart).to_have_attribute("aria-label", re.compile("From .*1965.* to .*1965"))
        page.get_by_test_id("series-in").click()
        page.wait_for_url(re.compile(r"range=-\d+--\d+$"))
        expect(chart).to_have_attribute("aria-label", re.compile("From .*1965.* to .*1965"))
        page.reload()
        expect(chart).to_have_attribute("aria-label", re.compile("From .*1965.* to .*1965"))
        page.goto(f"{book.address}/?q=olingo&range=all")
        link = page.get_by_test_id("export-csv")
        expect(link).to_have_attribute(
            "href", re.compile(r"&from=-62135596800000&to=\d+&format=csv$")
        )
        times = "-".join(str(begin_ms + 60_000 * minute) for minute in (0, 10, 40))
        page.goto(f"{book.address}/?q=olingo&change={times}")
        rows = page.get_by_test_id("compare-row")
        expect(rows.first).to_contain_text(re.compile(r"12:10.AM\s+10\s"))
        expect(rows.last).to_contain_text(re.compile(r"12:40.AM\s+30\s"))
        page.goto("about:blank")


def test_a_time_before_the_newest_matches(tmp_path: Path, open_page: Callable[..., Opened]) -> None:
    """It is drawn of its own stored matches; where the newest of all begin is no end of these."""
    begin_ms = 1_240_000_000_000
    with open_book(tmp_path) as book:
        for i in range(60):
            book.write("a saiga rests", created_at=begin_ms + 10_000 * i)
        book.write(*["a saiga runs"] * 10_000, created_at=begin_ms + 86_400_000)
        book.until_found("runs", 10_000)
        page, _ = open_page(f"{book.address}/?q=saiga&range={begin_ms}-{begin_ms + 600_000}")
        few, source = page.locator("#series-few"), page.get_by_test_id("series-source")
        expect(page.get_by_test_id("count-note")).to_have_text("60 matches.")
        expect(page.get_by_test_id("message-text").first).to_have_text("a saiga rests")
        chart = page.get_by_test_id("series-chart")
        expect(chart).to_have_attribute("aria-label", re.compile("From .* of 1, to .* of 1"))
        expect(few).to_be_hidden()
        expect(source).to_be_hidden()
        hour = f"{begin_ms + 3_600_000}-{begin_ms + 7_200_000}"
        page.goto(f"{book.address}/?q=saiga&range={hour}")
        expect(few).to_have_text("No messages in this time.")
        expect(source).to_be_hidden()
        page.goto("about:blank")


def test_a_chosen_time_lists_its_messages(book: Book, open_page: Callable[..., Opened]) -> None:
    """List and commands are of the chart's time; with the latest they are live again."""
    begin_ms = int(time.time() * 1000) - 600_000
    for i in range(40):
        book.write(f"a jerboa naps {i}", created_at=begin_ms + 10_000 * i)
    book.until_found("jerboa", 40)
    page, _ = open_page(f"{book.address}/?q=jerboa&range={begin_ms + 100_000}-{begin_ms + 200_000}")
    texts, empty = page.get_by_test_id("message-text"), page.get_by_test_id("messages-empty")
    chosen = [f"a jerboa naps {i}" for i in range(19, 9, -1)]
    expect(texts).to_have_text(chosen)
    page.get_by_test_id("curl").click()
    expect(page.get_by_test_id("curl-commands")).to_contain_text(
        re.compile(rf"/v1/search\?q=jerboa\+&from={begin_ms + 100_000}&to={begin_ms + 200_000}'")
    )
    page.get_by_test_id("save-search").click()
    book.write("a jerboa wakes")
    expect(page.get_by_test_id("saved-count")).to_have_text("of 41")  # the page has heard of it
    expect(page.get_by_test_id("count-note")).to_have_text(
        re.compile(r"^1[01] matches")
    )  # in whole steps
    expect(texts).to_have_text(chosen)
    page.get_by_test_id("series-in").click()
    expect(texts).to_have_text(chosen[3:6])
    page.go_back()
    expect(texts).to_have_text(chosen)
    page.get_by_test_id("newest").click()
    expect(texts.first).to_have_text("a jerboa wakes")
    expect(page).to_have_url(re.compile(r"\?q=jerboa$"))
    expect(page.get_by_test_id("newest")).to_be_hidden()
    book.write("a jerboa yawns")
    page.get_by_test_id("show-new").click()
    expect(texts.first).to_have_text("a jerboa yawns")
    page.goto(f"{book.address}/?q=jerboa&range={begin_ms - 200_000}-{begin_ms - 100_000}")
    expect(empty).to_have_text("No messages with jerboa are stored of this time.")
    page.get_by_test_id("follow").click()
    expect(texts.first).to_have_text("a jerboa yawns")


def test_a_word_reaches_behind_the_stored_messages(
    browser: Browser, tmp_path: Path, open_page: Callable[..., Opened]
) -> None:
    """What has left the store is drawn by a word's counts; of two words the note says why not."""
    assert browser.is_connected()
    path = tmp_path / "recent.db"
    bounds: dict[str, Any] = {"messages_max": 1_000, "age_max_s": 1e9}
    now_s = int(time.time())
    with running(path, history=HistorySettings(), **bounds) as store:
        for day in range(6):
            wall_of(store).now_s = now_s - (6 - day) * 86_400
            tell(store, ["coffee here"] * 100 * (day + 1), first=100 * day * (day + 1) // 2)
    sections = {"source": f"file:{tmp_path / 'tweets.jsonl'}", "recent": bounds}
    (tmp_path / "tweets.jsonl").write_text("".join(itertools.islice(first_tweets(), 200)))
    config = write_config(tmp_path / "config.yaml", **sections)
    with Daemon(config) as daemon:
        Book(daemon, tmp_path / "tweets.jsonl").until_found("", 200)
        assert daemon.stop() == 0
    (file,) = set(tmp_path.rglob("recent.db")) - {path}
    file.unlink()
    shutil.copy(path, file)
    with Daemon(config) as daemon:
        page, _ = open_page(f"{daemon.address}/?q=coffee&range=7d")
        expect(page.get_by_test_id("series-source")).to_contain_text(
            "counts of those no longer stored"
        )
        page.get_by_test_id("series-numbers").click()
        cells = page.get_by_test_id("series-table").locator("tbody td:nth-child(2)")
        expect(cells.first).to_have_text("100")
        assert cells.all_inner_texts() == [f"{100 * day}" for day in range(1, 7)]
        chart, moved = page.get_by_test_id("series-chart"), page.get_by_test_id("series-moved")
        chart.focus()
        page.keyboard.press("Home")
        for _ in range(8):  # steps of three hours: to the second day's
            page.keyboard.press("ArrowRight")
        expect(moved).to_have_text("The messages of this time are no longer stored.")
        page.keyboard.press("End")
        expect(moved).to_have_text("Of those still stored: No share rose further than by chance.")
        page.goto(f"{daemon.address}/?q=coffee+here&range=7d")
        note = page.get_by_test_id("series-source")
        expect(note).to_contain_text("Stored matches go back to")
        expect(note).to_contain_text("Only a single word is counted for longer")
        page.goto("about:blank")
        assert daemon.stop() == 0
