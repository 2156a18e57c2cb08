"""Takes the pictures of the guides from the real page: `python -m tests.browser.pictures [FOLDER]`.

A daemon learns the made-up tweets of a fixed seed from a file, to which more are written for a
minute, so that there is a stream to see and a history to draw. What is said in them is the same at
every run; times of day are not. The gallery's other pictures are of its examples as they stand.
"""

from __future__ import annotations

import io
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.browser.browser_path import browser_path
from tests.browser.chromium import chromium
from tests.browser.file_daemon import FIRST_TWEETS, Book, open_book
from tests.endtoend.daemon_process import Daemon, write_config

DOCS = Path(__file__).parents[2] / "docs"
FOLDER = DOCS / "pictures"
STREAM_S = 75
TWEETS_PER_S = 40
EXAMPLE_MESSAGES = 12_000  # of a gallery's example, before its picture
_COLOURS = 192  # enough for flat areas and text; a palette makes the file a third of the size

WIDE = {"viewport": {"width": 1180, "height": 960}, "device_scale_factor": 1.5}
PHONE = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 1.5,
    "is_mobile": True,
    "has_touch": True,
}


def search(page: Page) -> None:
    """Open the first tweet, so that its reasons show."""
    expect(page.get_by_test_id("ring")).to_be_visible()
    expect(page.get_by_test_id("series-chart")).to_be_visible()
    page.get_by_test_id("message-why").first.click()
    page.get_by_test_id("numbers").click()
    expect(page.get_by_test_id("intercept-row").first).to_be_visible()


def plain_search(page: Page) -> None:
    """Wait for the figures and the tweets."""
    expect(page.get_by_test_id("ring")).to_be_visible()
    expect(page.get_by_test_id("message").nth(5)).to_be_visible()


def model(page: Page) -> None:
    """Wait for what the model tells of itself."""
    expect(page.get_by_test_id("calibration")).to_be_visible()
    expect(page.get_by_test_id("telling").first).to_be_visible()


def try_it(page: Page) -> None:
    """Wait for the judgement and its reasons."""
    expect(page.get_by_test_id("push-row").nth(3)).to_be_visible()


PICTURES = (
    ("search-light", "?q=obama", plain_search, {**WIDE, "color_scheme": "light"}),
    ("search-dark", "?q=obama", search, {**WIDE, "color_scheme": "dark"}),
    ("model", "?view=model", model, {**WIDE, "color_scheme": "light"}),
    (
        "try-it",
        "?view=try&text=the+football+was+awful,+but+the+coffee+is+not+bad",
        try_it,
        {**WIDE, "color_scheme": "light"},
    ),
    ("phone", "?q=coffee", plain_search, {**PHONE, "color_scheme": "dark"}),
)


GALLERY = ("loan", "sensors")  # the tweets of the gallery are `search-light`


@contextmanager
def streaming(book: Book) -> Iterator[threading.Thread]:
    """Write tweets on, evenly, until the pictures are taken; the thread ends after the stream."""
    enough = threading.Event()

    def write() -> None:
        for second in range(STREAM_S):
            book.write_made_up(FIRST_TWEETS + second * TWEETS_PER_S, TWEETS_PER_S)
            if enough.wait(1.0):
                return

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield thread
    finally:
        enough.set()
        thread.join()


def save(page: Page, path: Path) -> None:
    """Write a small PNG of what the window shows."""
    picture = Image.open(io.BytesIO(page.screenshot(animations="disabled"))).convert("RGB")
    flat = picture.quantize(_COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    flat.save(path, optimize=True)


def take(browser: Browser, book: Book, folder: Path) -> None:
    """Take every picture."""
    for name, query, show, options in PICTURES:
        chosen: dict[str, Any] = {"reduced_motion": "reduce", "locale": "en-GB", **options}
        with browser.new_context(**chosen) as context:
            page = context.new_page()
            page.goto(f"{book.address}/{query}")
            show(page)
            save(page, folder / f"{name}.png")


def take_gallery(browser: Browser, folder: Path) -> None:
    """Take a picture of each example of the gallery, with the reasons of its newest message."""
    chosen: dict[str, Any] = {"reduced_motion": "reduce", "locale": "en-GB", **WIDE}
    for name in GALLERY:
        sections = yaml.safe_load((DOCS / "examples" / f"{name}.yaml").read_text(encoding="utf-8"))
        del sections["checkpoint"]
        sections["generator"]["rate_per_s"] = 200.0
        with (
            tempfile.TemporaryDirectory() as scratch,
            Daemon(write_config(Path(scratch) / "config.yaml", **sections)) as daemon,
            browser.new_context(**chosen, color_scheme="light") as context,
        ):
            daemon.until_metric("streamnb_messages_total", EXAMPLE_MESSAGES)
            page = context.new_page()
            page.goto(daemon.address)
            plain_search(page)
            page.get_by_test_id("message-why").first.click()
            expect(page.get_by_test_id("judged-now")).to_be_visible()
            save(page, folder / f"gallery-{name}.png")
            assert daemon.stop() == 0


def main(folder: Path) -> None:
    """Take the pictures into a folder, or say what is missing."""
    path, missing = browser_path()
    if path is None:
        sys.exit(missing)
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as scratch,
        open_book(Path(scratch)) as book,
        streaming(book) as stream,
        chromium(path) as browser,
    ):
        stream.join(STREAM_S - 15)
        take(browser, book, folder)
        take_gallery(browser, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
