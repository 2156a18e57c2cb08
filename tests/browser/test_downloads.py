"""What the page hands out: each view as CSV and JSON Lines, and each chart as a picture."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book

HEAD_PX = 28  # of a picture: the names of its lines


@pytest.fixture(scope="module")
def civets(book: Book) -> Book:
    """Return the book with tweets of two animals."""
    book.write(*["a civet sniffs coffee"] * 40)
    book.write(*["a bontebok climbs trees"] * 40, label=0)
    for word in ("civet", "bontebok"):
        book.until_found(word, 40)
    return book


def downloaded(page: Page, test_id: str) -> tuple[str, bytes]:
    """Click a link or button; return the name and the content of what it hands out."""
    with page.expect_download() as under_way:
        page.get_by_test_id(test_id).click()
    return under_way.value.suggested_filename, under_way.value.path().read_bytes()


@pytest.mark.parametrize(
    ("query", "view", "name", "lists"),
    [
        ("?q=civet&vs=bontebok", "compare", "comparison", {"compared", "compared.words"}),
        ("?view=model", "model", "model", {"classes", "calibration", "confusion.counts"}),
        ("?view=model", "fields", "fields", {"", "classes"}),
    ],
)
def test_a_view_can_be_downloaded(
    civets: Book,
    open_page: Callable[..., Opened],
    query: str,
    view: str,
    name: str,
    lists: set[str],
) -> None:
    """Its links hand out all of its figures, as CSV and as JSON Lines."""
    page, _ = open_page(f"{civets.address}/{query}")
    if view == "compare":
        expect(page.get_by_test_id("compare-words")).to_have_count(2)
    if view == "fields":  # of a model of words alone there is nothing to hand out
        expect(page.get_by_test_id("model-classes")).to_be_visible()
        expect(page.get_by_test_id("fields-csv")).to_be_hidden()
        return
    found, table = downloaded(page, f"{view}-csv")
    assert found == f"{name}.csv"
    head, *rows = csv.reader(io.StringIO(table.decode()))
    assert head[:2] == ["of", "at"]
    assert lists <= {row[0] for row in rows}
    found, lines = downloaded(page, f"{view}-jsonl")
    assert found == f"{name}.jsonl"
    told = [json.loads(line) for line in lines.splitlines()]
    assert lists <= {each["of"] for each in told}
    if view == "compare":
        queries = [each["query"].strip() for each in told if each["of"] == "compared"]
        assert queries == ["civet", "bontebok"]
        words = {each["word"] for each in told if each["of"] == "compared.words"}
        assert {"sniffs", "climbs"} <= words


def picture_of(page: Page, place: str) -> Image.Image:
    """Save the picture of a chart; return it."""
    with page.expect_download() as under_way:
        page.locator(place).get_by_test_id("save-picture").click()
    assert under_way.value.suggested_filename.endswith(".png")
    return Image.open(under_way.value.path()).convert("RGB")


def is_drawn(picture: Image.Image) -> bool:
    """Return whether there are names above, and lines below them."""
    width, height = picture.size
    above = np.asarray(picture.crop((0, 0, width, HEAD_PX))).astype(int)
    below = np.asarray(picture.crop((60, HEAD_PX, width - 60, height - 30))).astype(int)
    n_colours = len(np.unique(below.reshape(-1, 3), axis=0))
    return height > HEAD_PX + 60 and bool(np.ptp(above) > 100) and n_colours > 3


def n_pixels(picture: Image.Image, colour: str) -> int:
    """Return how many pixels of a picture have a colour, given as in CSS."""
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return int((np.asarray(picture).astype(int) == wanted).all(axis=2).sum())


@pytest.mark.parametrize(
    ("query", "place", "colour"),
    [
        ("?q=civet", "percent", "#0b6a8c"),
        ("?q=civet", "counts", "#0b6a8c"),
        ("?view=model", "calibration", "#0b6a8c"),
        ("?view=model", "confusion", "#14212a"),
        ("?view=model", "telling", "#b8304f"),
    ],
)
def test_a_chart_of_elements_as_a_picture(
    civets: Book, open_page: Callable[..., Opened], query: str, place: str, colour: str
) -> None:
    """It has the figure's size and colours, where the page is scrolled to as well."""
    if place == "telling":
        civets.daemon.until(
            lambda: all(civets.json("/v1/model")["telling"].values()), "words are ranked"
        )
    page, _ = open_page(f"{civets.address}/{query}")
    inner = page.get_by_test_id(place).first
    expect(inner).to_be_visible()
    expect(page.get_by_test_id("save-picture").locator("visible=true").nth(1)).to_be_visible()
    figure = f".figure[data-testid={place}], .figure:has([data-testid={place}])"
    box = page.locator(figure).bounding_box()
    picture = picture_of(page, figure)
    assert box is not None
    assert abs(picture.width - box["width"]) < 30
    assert abs(picture.height - box["height"]) < 60
    assert is_drawn(picture)
    assert n_pixels(picture, colour) > 200
    page.evaluate("document.body.style.minHeight = '4000px'; scrollTo(0, 60)")
    assert n_pixels(picture_of(page, figure), colour) == pytest.approx(
        n_pixels(picture, colour), rel=0.2
    )


def test_a_picture_in_the_dark_of_what_is_no_xml(
    book: Book, open_page: Callable[..., Opened]
) -> None:
    """It has the colours of the theme, and a word that XML cannot hold does not hinder it."""
    book.write(*["a genet digs"] * 40)
    book.until_found("genet", 40)
    page, _ = open_page(f"{book.address}/?q=genet", color_scheme="dark", device_scale_factor=2)
    expect(page.get_by_test_id("share-row").first).to_be_visible()
    page.evaluate("document.title = document.querySelector('#percent-note').textContent = 'a\\bb'")
    picture = picture_of(page, "[data-testid=percent]")
    assert picture.getpixel((0, 0)) == (0x17, 0x21, 0x28)
    assert n_pixels(picture, "#58bfe3") > 400


def test_the_comparison_as_a_picture(civets: Book, open_page: Callable[..., Opened]) -> None:
    """Both lines have their names and colours in it."""
    civets.write_past("a nyala waits", n=60)
    civets.until_found("nyala", 60)
    page, _ = open_page(f"{civets.address}/?q=nyala&vs=bontebok")
    expect(page.get_by_test_id("compare-words")).to_have_count(2)
    picture = picture_of(page, "#comparison")
    assert is_drawn(picture)
    assert min(n_pixels(picture, colour) for colour in ("#3f5fbf", "#b35309")) > 60
    alone, _ = open_page(f"{civets.address}/?q=nyala")
    expect(alone.get_by_test_id("series-chart").locator("canvas")).to_be_visible()
    assert picture.tobytes() != picture_of(alone, "[data-testid=series]").tobytes()


LINES = {
    "accuracy": "Accuracy", "log_loss": "Log-loss, in nats", "rate_per_s": "Messages per second",
    "calibration_error": "Calibration error", "covered": "Coverage", "lag": "Lag, in messages",
}  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_the_model_as_a_picture(
    civets: Book, open_page: Callable[..., Opened], line: str
) -> None:
    """Each has a button of its own, and the picture is of that line."""
    page, _ = open_page("about:blank")

    def answer(route: Route) -> None:
        told = route.fetch().json()
        point = told["history"][0]
        told["history"] = [
            {**point, "time_ms": 1_700_000_000_000 + 10_000 * i, "events": []}
            | {"accuracy": 0.7 + 0.002 * i, "log_loss": 0.5 - 0.002 * i, "lag": 3 * i}
            | {"calibration_error": 0.01 * (i % 7), "rate_per_s": 100.0 + i * i, "n": 1_000}
            | {"covered": 0.9 + 0.001 * (i % 9), "set_size": 1.2}
            for i in range(40)
        ]
        route.fulfill(json=told | {"coverage": 0.9, "lag": 9})

    civets.daemon.until(lambda: bool(civets.json("/v1/model")["history"]), "there is a point")
    page.route("**/v1/model", answer)
    page.goto(f"{civets.address}/?view=model")
    place = page.locator(f"[data-line={line}]")
    expect(place.locator("canvas")).to_be_visible()
    expect(place.get_by_test_id("history-line")).to_have_attribute(
        "aria-label", re.compile(f"^{re.escape(LINES[line])}: ")
    )
    assert is_drawn(picture_of(page, f"[data-line={line}]"))


@pytest.mark.parametrize(
    ("query", "n_commands"),
    [("?q=civet&vs=bontebok", 3), ("?q=civet&range=15m", 2), ("?view=model", 1)],
)
def test_what_asks_for_a_view_is_in_the_clipboard(
    civets: Book, open_page: Callable[..., Opened], query: str, n_commands: int
) -> None:
    """It has the commands that are shown, and what they ask for is answered."""
    page, _ = open_page(
        f"{civets.address}/{query}", permissions=["clipboard-read", "clipboard-write"]
    )
    expect(page.locator("#foot")).to_contain_text("learning from")
    page.get_by_test_id("curl").click()
    commands = page.get_by_test_id("curl-commands")
    expect(commands).to_be_visible()
    expect(page.locator("#announcer")).to_have_text("Copied.")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == commands.inner_text()
    paths = re.findall(rf"^curl '{re.escape(civets.address)}(/[^']+)'$", copied, re.MULTILINE)
    assert len(paths) == n_commands == len(copied.splitlines())
    for path in paths:
        assert civets.daemon.get(path)[0] == 200
