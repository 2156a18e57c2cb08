"""What the daemon draws under *Model*: curves, challengers, and what to label next, by keyboard."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from consumers.monitoring.quality import function_words
from tests.browser.axe import violations
from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book, open_book
from tests.browser.test_appearance import tab_to
from tests.browser.test_downloads import is_drawn, picture_of

STATE_FILE = "corrections.jsonl"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the daemon that asks for labels."""
    return tmp_path_factory.mktemp("asking")


@pytest.fixture(scope="module")
def asking(browser: Browser, folder: Path) -> Iterator[Book]:
    """Return a daemon of two models that asks for labels."""
    assert browser.is_connected()
    sections = {
        "labelling": {"enabled": True, "per_day": 5},
        "challengers": {"triples": {"features": {"text": {"ngrams": [1, 3]}}}},
        "promotion": {"examples": 500},
        "checkpoint": {"folder": str(folder / "state")},
    }
    with open_book(folder, **sections) as book:
        book.daemon.until(lambda: bool(wanted(book)), "messages to label")
        book.daemon.until_it_takes_corrections()
        yield book


def wanted(book: Book) -> list[str]:
    """Return the ids of the messages that are to be labelled."""
    return [each["id"] for each in book.json("/v1/labels/wanted")["messages"]]


def said(folder: Path) -> list[tuple[str, str | None, str | None]]:
    """Return kind, label and former label of each line of the log of corrections."""
    path = folder / "state" / STATE_FILE
    lines = path.read_text().splitlines() if path.exists() else []
    found: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [(each["kind"], each.get("label"), each.get("was")) for each in found]


def shown(page: Page) -> str | None:
    """Return the id of the message that is asked for."""
    return page.get_by_test_id("queue-message").first.get_attribute("data-id")


def test_labelling_by_keyboard(
    asking: Book, folder: Path, open_page: Callable[..., Opened]
) -> None:
    """Labels, skips and undoes come into the log once each; the message is asked for again."""
    page, _ = open_page(f"{asking.address}/?view=model")
    first, second, third = wanted(asking)[:3]
    n_before = len(said(folder))
    state, queue = page.get_by_test_id("queue-state"), page.get_by_test_id("queue")
    expect(queue).to_have_attribute("aria-labelledby", "queue-heading")
    expect(page.get_by_test_id("queue-message").first).to_be_visible()
    expect(page.get_by_test_id("queue-message").nth(1)).to_be_hidden()
    assert shown(page) == first
    keys = page.locator(f"#{queue.get_attribute('aria-describedby')}")
    expect(keys).to_contain_text("Click the box, or go to it by Tab, for its keys: a number for")
    page.get_by_test_id("queue-message").first.click()
    expect(queue).to_be_focused()
    page.reload()
    tab_to(page, "queue")
    assert queue.evaluate("node => getComputedStyle(node).outlineStyle") == "solid"
    queue.dispatch_event("keydown", {"key": "1", "repeat": True})  # a key that is held labels once
    page.keyboard.press("2")
    expect(state).to_have_text("Labelled positive.")
    expect(page.get_by_test_id("announcer")).to_contain_text("Labelled positive.")
    assert shown(page) == second
    page.keyboard.press("s")
    expect(state).to_have_text("Skipped.")
    assert shown(page) == third
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("button", name="negative", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(state).to_have_text("Labelled negative.")
    expect(page.get_by_role("button", name="negative", exact=True)).to_be_focused()
    assert said(folder)[n_before:] == [("label", "positive", None), ("label", "negative", None)]
    assert {first, third}.isdisjoint(wanted(asking))
    for key, name in (("u", third), ("Backspace", second), ("u", first)):
        page.keyboard.press(key)
        expect(page.get_by_test_id("queue-message").first).to_have_attribute("data-id", name)
    expect(state).to_have_text("Taken back.")
    page.keyboard.press("u")  # there is nothing left to undo
    assert said(folder)[n_before + 2 :] == [
        ("withdraw", None, "negative"),
        ("withdraw", None, "positive"),
    ]
    asking.daemon.until(lambda: {first, second, third} <= {*wanted(asking)}, "they are asked again")
    page.get_by_test_id("queue-message").first.click()  # no button: nothing is meant
    assert shown(page) == first


def test_the_end_of_the_queue(asking: Book, open_page: Callable[..., Opened]) -> None:
    """Skipped messages come again; the keys go on working, and the last label can be undone."""
    page, _ = open_page(f"{asking.address}/?view=model")
    asked = wanted(asking)
    expect(page.get_by_test_id("queue-message")).to_have_count(len(asked))
    tab_to(page, "queue")
    for name in asked[1:]:
        page.keyboard.press("1")
        expect(page.get_by_test_id("queue-message").first).to_have_attribute("data-id", name)
    page.keyboard.press("s")
    expect(page.get_by_test_id("queue-message").first).to_have_attribute("data-id", asked[-1])
    page.keyboard.press("1")
    expect(page.get_by_test_id("queue-state")).to_have_text("Labelled negative.")
    expect(page.get_by_text("Nothing is to be labelled now.")).to_be_visible()
    expect(page.get_by_role("button", name="Skip")).to_be_hidden()
    expect(page.get_by_test_id("queue")).to_be_focused()
    assert violations(page) == []
    page.keyboard.press("u")
    expect(page.get_by_test_id("queue-message").first).to_have_attribute("data-id", asked[-1])
    page.keyboard.press("u")
    expect(page.get_by_test_id("queue-state")).to_have_text("Taken back.")
    for name in reversed(asked[:-1]):
        expect(page.get_by_test_id("queue-message").first).not_to_have_attribute("data-id", name)
        page.keyboard.press("u")
        expect(page.get_by_test_id("queue-message").first).to_have_attribute("data-id", name)
    asking.daemon.until(lambda: wanted(asking) == asked, "the queue as it was")


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 1440),
        ("dark", 390),
        pytest.param("dark", 1440, marks=pytest.mark.deep),
        pytest.param("dark", 1280, marks=pytest.mark.deep),
        pytest.param("light", 390, marks=pytest.mark.deep),
    ],
)
def test_curves_and_challengers(
    asking: Book, open_page: Callable[..., Opened], scheme: str, width: int
) -> None:
    """They are drawn, have their figures as tables, fit, and axe-core finds nothing."""
    page, _ = open_page(
        f"{asking.address}/?view=model",
        color_scheme=scheme,
        viewport={"width": width, "height": 900},
    )
    curves, models = page.get_by_test_id("curves"), page.get_by_test_id("challengers")
    expect(curves.locator(".xy path:not(.grid, .diagonal)")).to_have_count(4)
    curves.get_by_text("Table", exact=True).click()
    expect(curves.get_by_role("row", name="90%")).to_be_visible()
    expect(curves.get_by_role("img", name="ROC curves. Area below: negative 0.")).to_be_visible()
    expect(models.locator(".xy path:not(.grid)")).to_have_count(4)
    expect(models.get_by_role("row", name="model answers")).to_be_visible()
    expect(page.get_by_test_id("challengers-rule")).to_contain_text("the rule asks for 0.01 below")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []
    for place in ("curves", "challengers"):
        picture = picture_of(page, f"[data-testid={place}]")
        assert is_drawn(picture)
        assert picture.height > 300


def test_a_part_that_never_comes_is_told_and_asked_for_again(
    asking: Book, open_page: Callable[..., Opened]
) -> None:
    """A server that takes a request and never answers it does not stop the view for ever."""
    page, _ = open_page("about:blank")
    page.clock.install()
    page.route("**/page/quality", lambda _: None)  # never answered
    with page.expect_request("**/page/quality"):
        page.goto(f"{asking.address}/?view=model")
    page.clock.fast_forward(16_000)
    expect(page.get_by_test_id("model-problem")).to_contain_text("does not answer")
    page.unroute("**/page/quality")
    page.clock.fast_forward(3_000)
    expect(page.get_by_test_id("confusion")).to_be_visible()
    expect(page.get_by_test_id("model-problem")).to_be_hidden()


def test_headings_of_charts_stand_in_one_line_on_a_phone(
    asking: Book, open_page: Callable[..., Opened]
) -> None:
    """Beside the controls, which fit, too."""
    page, _ = open_page(asking.address, viewport={"width": 390, "height": 844})
    expect(page.get_by_test_id("series-chart")).to_be_visible()
    heading = page.get_by_role("heading", name="Share over time")
    box, button = heading.bounding_box(), page.get_by_test_id("series-out").bounding_box()
    assert box is not None
    assert button is not None
    assert box["height"] < 30
    assert button["y"] < box["y"] + box["height"] < button["y"] + button["height"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_rank_of_features_is_what_the_page_says(
    book: Book, open_page: Callable[..., Opened]
) -> None:
    """What speaks most for a class against the other, in nats; frequent words rank high.

    That is θ·log(θ/θ') of the likelihoods which the API tells of each word: what it adds on average
    to an example of the class. A word that says less, but is more frequent, ranks above others.
    """
    page, _ = open_page("about:blank")

    def likelihoods(feature: str) -> dict[str, float]:
        """Return what the model has of a feature, as it tells of a text that has it."""
        text = re.sub(r"^\^ | \$$|¬", "", feature)
        asked = {"text": text, "explain": True}
        answer = page.request.post(f"{book.address}/v1/predict", data=asked).json()
        features = answer["predictions"][0]["explanation"]["features"]
        return next(each["likelihoods"] for each in features if each["feature"] == feature)

    def ranked() -> dict[str, list[tuple[float, float, float, str]]]:
        """Return the score of the API, and that of the definition with θ, of each feature."""
        found: dict[str, list[tuple[float, float, float, str]]] = {}
        for label, features in book.json("/v1/model")["telling"].items():
            found[label] = []
            for each in features:
                theta = likelihoods(each["feature"])
                own = theta.pop(label)
                wanted = own * math.log(own / fmean(theta.values()))
                found[label].append((each["score"], wanted, own, each["feature"]))
        return found

    def is_of_now() -> bool:
        """Return whether the ranking, which is made now and then, is of all that was learned."""
        of = ranked()
        rows = [row for rows in of.values() for row in rows]
        return all(of.values()) and all(math.isclose(*row[:2], rel_tol=1e-9) for row in rows)

    book.daemon.until(is_of_now, "a ranking of all that was learned, by θ·log(θ/θ')")
    n_frequent = 0
    page.goto(f"{book.address}/?view=model")
    page.get_by_text("What speaks most for a class against the others, in nats.").wait_for()
    expect(page.get_by_text("Frequent words rank high, even if each says little")).to_be_visible()
    for label, rows in ranked().items():
        assert rows == sorted(rows, key=lambda row: -row[1])
        shown = page.locator(f"[data-testid=telling][data-class={label}]")
        expect(shown.locator(".word")).to_have_text([name for *_, name in rows])
        expect(shown.locator(".number")).to_have_text([f"+{score:.3f}" for score, *_ in rows])
        assert function_words(None).isdisjoint(name for *_, name in rows)
        n_frequent += sum(
            wanted / own < other / theirs and own > theirs
            for (_, wanted, own, _), (_, other, theirs, _) in itertools.combinations(rows, 2)
        )
    assert n_frequent > 0
