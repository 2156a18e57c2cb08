"""Light and dark, wide and narrow, by keyboard alone, with little motion: all of it works."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import sticking_out, violations
from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book

WIDEST = {"viewport": {"width": 1440, "height": 900}}
WIDE = {"viewport": {"width": 1280, "height": 900}}
PHONE = {
    "viewport": {"width": 360, "height": 740},
    "is_mobile": True,
    "has_touch": True,
    "device_scale_factor": 2,
}
LARGE_PHONE = PHONE | {"viewport": {"width": 390, "height": 844}}
VIEWS = ("search", "model", "try")
PHONE_FIRST_PX_MAX = 900
SHIFT_MAX = {1440: 0.02, 390: 0.1}  # by the window's width: how far the page may move as it loads

# Adds up, from before anything is painted, how far what is seen moves without anybody's doing.
WATCH_SHIFTS = """window.shifted = 0;
new PerformanceObserver((list) => {
    for (const {value, hadRecentInput} of list.getEntries())
        if (!hadRecentInput) window.shifted += value;
}).observe({type: 'layout-shift', buffered: true});"""

# How light the page's background is, from 0 to 255.
LIGHTNESS = """() => {
    const node = [document.body, document.documentElement].find(
        node => !/, 0\\)|transparent/.test(getComputedStyle(node).backgroundColor));
    const [red, green, blue] = getComputedStyle(node).backgroundColor.match(/[\\d.]+/g);
    return 0.3 * red + 0.6 * green + 0.1 * blue;
}"""

# Words and numbers in names of classes and features that stand on two lines, as "negativ" and "e".
BROKEN_NAMES = """() => {
    const names = '.word, .named, .judged-label, .explanation th, [data-part] th, [data-part] h3';
    const broken = [];
    for (const name of document.querySelectorAll(names)) {
        if (!name.checkVisibility()) continue;
        const walker = document.createTreeWalker(name, NodeFilter.SHOW_TEXT);
        for (let node = walker.nextNode(); node; node = walker.nextNode()) {
            const range = document.createRange();
            for (const {0: word, index} of node.data.matchAll(/[\\p{L}\\p{M}\\p{N}.,'’]+/gu)) {
                range.setStart(node, index);
                range.setEnd(node, index + word.length);
                const lines = new Set([...range.getClientRects()]
                    .filter(({width}) => width > 0).map(({top}) => Math.round(top)));
                if (lines.size > 1) broken.push(`${word} in ${name.textContent}`);
            }
        }
    }
    return broken;
}"""


def filled(page: Page, view: str) -> None:
    """Wait until a view has all it shows; in the search, open a tweet."""
    if view == "search":
        expect(page.get_by_test_id("search-figures")).to_have_attribute("aria-busy", "false")
        expect(page.get_by_test_id("ring")).to_be_visible()
        page.get_by_test_id("message-why").first.click()
        page.get_by_test_id("numbers").click()
        expect(page.get_by_test_id("intercept-row")).to_be_visible()
    elif view == "model":
        expect(page.get_by_test_id("calibration")).to_be_visible()
        expect(page.get_by_test_id("telling").first).to_be_visible()
    else:
        expect(page.get_by_test_id("try-label")).not_to_be_empty()
        expect(page.get_by_test_id("push-row").first).to_be_visible()


def address_of(book: Book, view: str) -> str:
    """Return a view's address, with something to show."""
    query = {"search": "q=coffee", "model": "view=model", "try": "view=try&text=awful+coffee"}
    return f"{book.address}/?{query[view]}"


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        pytest.param(WIDE, "light", id="wide-light"),
        pytest.param(PHONE, "dark", id="phone-dark"),
        pytest.param(WIDEST, "dark", id="widest-dark", marks=pytest.mark.deep),
        pytest.param(LARGE_PHONE, "light", id="large-phone-light", marks=pytest.mark.deep),
        pytest.param(WIDE, "dark", id="wide-dark", marks=pytest.mark.deep),
        pytest.param(PHONE, "light", id="phone-light", marks=pytest.mark.deep),
        pytest.param(WIDEST, "light", id="widest-light", marks=pytest.mark.deep),
        pytest.param(LARGE_PHONE, "dark", id="large-phone-dark", marks=pytest.mark.deep),
    ],
)
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_open_to_all(
    book: Book, open_page: Callable[..., Opened], view: str, size: dict[str, Any], scheme: str
) -> None:
    """axe-core finds nothing, and the colours are those asked for.

    Nothing sticks out sideways, and no name of a class or feature is broken inside a word.
    """
    page, _ = open_page(
        address_of(book, view), color_scheme=scheme, reduced_motion="reduce", **size
    )
    filled(page, view)
    assert violations(page) == []
    assert sticking_out(page) == []
    assert page.evaluate(BROKEN_NAMES) == []
    expect(page.locator("html")).to_have_attribute("data-theme", scheme)
    lightness = page.evaluate(LIGHTNESS)
    assert lightness > 200 if scheme == "light" else lightness < 60


def test_nothing_found_is_open_to_all(book: Book, open_page: Callable[..., Opened]) -> None:
    """The empty states have nothing that axe-core would complain of either."""
    page, _ = open_page(f"{book.address}/?q=nobodywritesthis")
    expect(page.get_by_test_id("messages-empty")).to_be_visible()
    assert violations(page) == []


def test_the_theme_is_kept(book: Book, open_page: Callable[..., Opened]) -> None:
    """The other theme comes by one button and survives a reload."""
    page, _ = open_page(book.address, color_scheme="light")
    light = page.evaluate(LIGHTNESS)
    page.get_by_test_id("theme-toggle").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.get_by_test_id("theme-toggle")).to_have_attribute("aria-pressed", "true")
    assert page.evaluate(LIGHTNESS) < 60 < light


@pytest.mark.parametrize("query", ["", "?q=coffee", "?q=coffee&vs=great"])
@pytest.mark.parametrize(
    "size",
    [
        pytest.param(WIDEST, id="widest"),
        pytest.param(LARGE_PHONE, id="large-phone"),
        pytest.param({"viewport": {"width": 390, "height": 844}}, id="narrow-window"),
    ],
)
def test_nothing_jumps_while_it_loads(
    book: Book, open_page: Callable[..., Opened], query: str, size: dict[str, Any]
) -> None:
    """Figures, chart, messages and comparison come into the room that was kept for them."""
    page, _ = open_page("about:blank", **size)
    page.add_init_script(WATCH_SHIFTS)
    page.goto(f"{book.address}/{query}")
    expect(page.get_by_test_id("search-figures")).to_have_attribute("aria-busy", "false")
    expect(page.get_by_test_id("message").first).to_be_visible()
    expect(page.get_by_test_id("series-when")).not_to_be_empty()
    if "vs=" in query:
        expect(page.get_by_test_id("compare-row")).to_have_count(2)
    page.wait_for_timeout(500)  # what comes late has come
    assert page.evaluate("window.shifted") <= SHIFT_MAX[size["viewport"]["width"]]


@pytest.mark.parametrize("width", [320, 768])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_other_widths(
    book: Book, open_page: Callable[..., Opened], width: int, scheme: str
) -> None:
    """The narrowest phones and tablets need no scrolling sideways, with words that never end.

    axe-core finds nothing there either.
    """
    word = f"uakari{width}{scheme}"
    book.write(f"{'uakari' * 60} {word}", user="u" * 80)
    book.until_found(word, 1)
    page, _ = open_page(
        f"{book.address}/?q={word}",
        viewport={"width": width, "height": 700},
        is_mobile=True,
        color_scheme=scheme,
        reduced_motion="reduce",
    )
    expect(page.get_by_test_id("message")).to_have_count(1)
    page.get_by_test_id("message-why").click()
    page.get_by_test_id("numbers").click()
    expect(page.get_by_test_id("intercept-row")).to_be_visible()
    for view in (None, "tab-model", "tab-try"):
        if view is not None:
            page.get_by_test_id(view).click()
        if view == "tab-model":
            expect(page.get_by_test_id("telling").first).to_be_visible()
        assert sticking_out(page) == []
        assert violations(page) == [], view


def test_the_pages_about_the_interface_fit_a_phone(
    book: Book, open_page: Callable[..., Opened]
) -> None:
    """No table of `/docs` sticks out sideways."""
    page, _ = open_page(f"{book.address}/docs", **PHONE)
    expect(page.get_by_role("heading").first).to_be_visible()
    assert sticking_out(page) == []


@pytest.mark.parametrize("width", [1440, 1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_description_is_open_to_all(
    book: Book, open_page: Callable[..., Opened], width: int, scheme: str
) -> None:
    """axe-core finds nothing on `/docs`, also in an example that is unfolded."""
    size = {"viewport": {"width": width, "height": 900}}
    page, _ = open_page(f"{book.address}/docs", color_scheme=scheme, **size)
    page.locator("details summary").first.click()
    assert violations(page) == []
    assert sticking_out(page) == []


def tab_to(page: Page, test_id: str, label: str | None = None, *, n_max: int = 80) -> None:
    """Press Tab, at most `n_max` times, until an element has the focus and shows so."""
    which = f"[data-testid={test_id}]" + (f"[data-label={label}]" if label else "")
    expect(page.locator(which).first).to_be_visible()  # a page that still loads has it not
    expect(page.locator(which).first).to_be_enabled()
    for _ in range(n_max):
        page.keyboard.press("Tab")
        found = page.evaluate(
            """() => {
                const {dataset} = document.activeElement;
                return [dataset.testid ?? null, dataset.label ?? null];
            }"""
        )
        if found[0] == test_id and label in (None, found[1]):
            break
    else:
        raise AssertionError(f"{test_id} is not reached by Tab")
    ring = page.evaluate(
        """() => {
            const {activeElement: node} = document;  // a form may show it for its box
            return [node, node.closest('form')].filter(Boolean).some(node => {
                const {outlineStyle, outlineWidth, boxShadow} = getComputedStyle(node);
                return outlineStyle !== 'none' && outlineWidth !== '0px' || boxShadow !== 'none';
            });
        }"""
    )
    assert ring, f"{test_id} does not show that it has the focus"


def test_by_keyboard_alone(book: Book, open_page: Callable[..., Opened]) -> None:
    """Searching, opening a tweet, correcting it, and the other tabs take no pointer."""
    book.write("a quokka is here", label=0)
    book.until_found("quokka", 1)
    page, _ = open_page(book.address)
    tab_to(page, "search-box")
    page.keyboard.type("quokka")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("message")).to_have_count(1)
    tab_to(page, "message-why")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("numbers")).to_be_visible()
    tab_to(page, "numbers")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("intercept-row")).to_be_visible()
    page.reload()
    tab_to(page, "teach", "positive")
    page.keyboard.press("Space")
    expect(page.get_by_test_id("teach-state")).to_have_attribute("data-state", "changed")
    page.reload()
    tab_to(page, "tab-model")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("view-model")).to_be_visible()
    expect(page.get_by_test_id("model-examples")).not_to_be_empty()


def test_all_else_by_keyboard_alone(book: Book, open_page: Callable[..., Opened]) -> None:
    """Comparing, saving, downloading, deleting and trying a sentence take no pointer either."""
    book.write("a bongo grazes", "a bongo sleeps", label=0)
    book.until_found("bongo", 2)
    page, _ = open_page(f"{book.address}/?q=bongo")
    expect(page.get_by_test_id("message")).to_have_count(2)
    tab_to(page, "compare")
    page.keyboard.press("Enter")
    page.keyboard.type("coffee")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("compare-row")).to_have_count(2)
    tab_to(page, "compare-end")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("comparison")).to_be_hidden()
    page.reload()
    tab_to(page, "save-search")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("saved")).to_contain_text("bongo")
    tab_to(page, "export-csv")
    with page.expect_download() as under_way:
        page.keyboard.press("Enter")
    assert under_way.value.path().read_bytes().count(b"\n") == 3
    page.reload()
    expect(page.get_by_test_id("message")).to_have_count(2)
    tab_to(page, "message-why")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("delete")).to_be_visible()
    tab_to(page, "delete")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("delete-confirm")).to_be_visible()
    tab_to(page, "delete-confirm")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("message")).to_have_count(1)
    page.reload()
    tab_to(page, "theme-toggle")
    pressed = page.get_by_test_id("theme-toggle").get_attribute("aria-pressed")
    page.keyboard.press("Space")
    expect(page.get_by_test_id("theme-toggle")).not_to_have_attribute("aria-pressed", str(pressed))
    page.reload()
    tab_to(page, "tab-try")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("view-try")).to_be_visible()
    tab_to(page, "try-text")
    page.keyboard.type("what a lovely day")
    expect(page.get_by_test_id("try-label")).to_contain_text("ositive")
    tab_to(page, "curl")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("curl-commands")).to_contain_text("/v1/predict")


def test_what_changes_is_announced(book: Book, open_page: Callable[..., Opened]) -> None:
    """A reader who hears the page is told what a search found, politely and once."""
    book.write("a numbered axis deer")
    book.until_found("deer", 1)
    page, _ = open_page(book.address)
    announcer = page.get_by_test_id("announcer")
    expect(announcer).to_have_attribute("role", "status")
    page.get_by_test_id("search-box").fill("deer")
    page.get_by_test_id("search-button").click()
    expect(announcer).to_contain_text("deer")


def test_reduced_motion(book: Book, open_page: Callable[..., Opened]) -> None:
    """Who asks for less motion gets none: nothing is animated while tweets come in."""
    book.write("a vole runs")
    book.until_found("vole", 1)
    page, _ = open_page(f"{book.address}/?q=vole", reduced_motion="reduce")
    expect(page.get_by_test_id("message")).to_have_count(1)
    page.get_by_test_id("follow").click()
    page.evaluate(
        """() => {
            window.moved = [];
            const look = () => {
                for (const animation of document.getAnimations())
                    if (animation.effect.getComputedTiming().duration > 10)
                        window.moved.push(animation.effect.target.outerHTML.slice(0, 100));
                requestAnimationFrame(look);
            };
            look();
        }"""
    )
    book.write("a vole jumps", "a vole digs")
    expect(page.get_by_test_id("message")).to_have_count(3)
    assert page.evaluate("window.moved") == []


def test_the_first_message_on_a_phone(book: Book, open_page: Callable[..., Opened]) -> None:
    """On a phone the messages begin on the first screen or soon below it, before the counts."""
    page, _ = open_page(f"{book.address}/?q=coffee", **PHONE)
    expect(page.get_by_test_id("ring")).to_be_visible()
    expect(page.get_by_test_id("series-chart")).to_be_visible()
    first = page.get_by_test_id("message").first.bounding_box()
    counts = page.get_by_test_id("counts").bounding_box()
    assert first is not None
    assert counts is not None
    assert first["y"] < PHONE_FIRST_PX_MAX
    assert first["y"] < counts["y"]


def test_a_slash_searches(book: Book, open_page: Callable[..., Opened]) -> None:
    """The key "/" goes to the search box from every view, but is a letter where one types."""
    page, _ = open_page(f"{book.address}/?view=model")
    expect(page.get_by_test_id("model-examples")).to_contain_text(re.compile(r"\d"))
    page.keyboard.press("/")
    box = page.get_by_test_id("search-box")
    expect(box).to_be_focused()
    expect(box).to_have_value("")
    page.keyboard.type("a/b")
    expect(box).to_have_value("a/b")
