"""The documentation site as a folder of files, in the browser: search, shades, width."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, ViewportSize, expect

from tests.browser.axe import sticking_out, violations
from tests.browser.conftest import Opened
from tests.conftest import ROOT

GROUND = "getComputedStyle(document.body).backgroundColor"
PAGES = ("index.html", "configuration.html", "gallery.html", "reference/model.html")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "-m", "scripts.website", folder], cwd=ROOT, check=True)
    return folder


@pytest.mark.deep
def test_the_search_works_without_a_server(site: Path, browser: Browser) -> None:
    """A word that is typed finds a method of the reference, which a click leads to.

    Excerpts of the pages it would fetch, which a browser refuses a page that is a file: nobody
    watches what the page complains of.
    """
    with browser.new_context() as context:
        page = context.new_page()
        page.goto((site / "tutorial.html").as_uri())
        page.get_by_placeholder("Search").fill("unlearn_many")
        page.keyboard.press("Enter")
        page.get_by_role("link", name="streamnb.NaiveBayes.unlearn_many").first.click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("The model")
        assert page.url.partition("#")[2].startswith("streamnb.NaiveBayes.unlearn_many")


@pytest.mark.deep
@pytest.mark.parametrize("width", [1440, 1280, 390])
def test_pages_fit_in_light_and_dark(
    width: int, site: Path, open_page: Callable[..., Opened]
) -> None:
    """No page is wider than its window, every picture is there, and dark is dark."""
    grounds = []
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for scheme in schemes:
        size = {"width": width, "height": 900}
        page, watch = open_page((site / PAGES[0]).as_uri(), viewport=size, color_scheme=scheme)
        watch.expect(f"leaves the machine: {re.escape(site.as_uri())}/")
        for name in PAGES:
            page.goto((site / name).as_uri())
            assert sticking_out(page) == [], name
            for picture in page.locator("article img").all():
                picture.scroll_into_view_if_needed()
                assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)")
        grounds.append(page.evaluate(GROUND))
    assert grounds == ["rgb(255, 255, 255)", "rgb(19, 20, 22)"]


@pytest.mark.deep
@pytest.mark.parametrize("width", [1440, 1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(
    width: int, scheme: Literal["light", "dark"], site: Path, browser: Browser
) -> None:
    """On pages with code, tables, pictures and signatures.

    It asks for the style sheets, which a browser refuses a page that is a file: nobody watches what
    the page complains of.
    """
    size: ViewportSize = {"width": width, "height": 900}
    with browser.new_context(viewport=size, color_scheme=scheme) as context:
        page = context.new_page()
        for name in PAGES:
            page.goto((site / name).as_uri())
            assert violations(page) == [], name
