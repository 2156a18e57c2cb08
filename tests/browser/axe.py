"""What is wrong with a page for readers who see otherwise, by axe-core, or on a small screen."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

_AXE = Axe()
# An emulated phone makes its window as wide as what it shows, but not the root element.
_STICKING_OUT = """() => {
    const { scrollWidth, clientWidth } = document.documentElement;
    return scrollWidth <= clientWidth ? [] : [`${scrollWidth} of ${clientWidth} px`,
        ...[...document.querySelectorAll('body *')].filter(node =>
            node.getBoundingClientRect().right > clientWidth + 1 && node.checkVisibility()
        ).slice(0, 5).map(node => node.outerHTML.slice(0, 100))];
}"""


def violations(page: Page) -> list[str]:
    """Return what breaks a rule of axe-core, all of which are tried; one line for each element."""
    found = _AXE.run(page).response["violations"]
    return [
        f"{rule['id']} ({rule['impact']}): {' '.join(node['target'])}: {node['failureSummary']}"
        for rule in found
        for node in rule["nodes"]
    ]


def sticking_out(page: Page) -> list[str]:
    """Return how wide a page is if it is wider than its window, and some elements that are."""
    found: list[str] = page.evaluate(_STICKING_OUT)
    return found
