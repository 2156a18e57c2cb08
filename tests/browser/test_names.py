"""What things are called on the page: by the configuration, or by what the stream is of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Opened
from tests.endtoend.daemon_process import ROOT, Daemon, write_config

OF_TWEETS = re.compile("tweet|sentiment|obama|somebody|negative|positive", re.IGNORECASE)
# All that can be read or heard of the page now: text, titles, labels and placeholders.
SAID = """() => [document.title, document.body.innerText, ...[...document.querySelectorAll('*')]
    .filter(node => node.checkVisibility())
    .flatMap(node => ['title', 'aria-label', 'placeholder'].map(name => node.getAttribute(name)))
].filter(Boolean).join('\\n')"""

# The colour of the bar of a class, and the shade that a variable of the style sheet stands for.
COLOURS = """([label, shade]) => {
    const bar = document.querySelector(`[data-testid=count-row][data-class=${label}] .bar`);
    const probe = document.createElement('i');
    probe.style.color = `var(--${shade})`;
    document.body.append(probe);
    const found = [getComputedStyle(bar).backgroundColor, getComputedStyle(probe).color];
    probe.remove();
    return found;
}"""


@pytest.fixture(scope="module")
def loans(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a daemon that learns the loans of the example, with its names."""
    assert browser.is_connected()
    path = ROOT / "docs" / "examples" / "loan.yaml"
    sections: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    del sections["checkpoint"]
    sections["generator"]["rate_per_s"] = 100.0
    config = write_config(tmp_path_factory.mktemp("loans") / "config.yaml", **sections)
    with Daemon(config) as daemon:
        daemon.until_metric("streamnb_messages_total", 300)
        yield daemon.address
        assert daemon.stop() == 0


def said(page: Page) -> str:
    """Return all that the page says now."""
    words: str = page.evaluate(SAID)
    return words


def test_a_stream_of_loans(loans: str, open_page: Callable[..., Opened]) -> None:
    """Names, colours and order are the configuration's, and no view speaks of tweets."""
    page, _ = open_page(loans)
    expect(page.get_by_test_id("search-heading")).to_have_text("Decisions on everything")
    expect(page.get_by_test_id("messages-heading")).to_have_text("All loan applications")
    expect(page.get_by_test_id("search-box")).to_have_attribute("placeholder", "a word of a note")
    expect(page.get_by_test_id("count-row")).to_contain_text(["rejected", "approved"])
    for label, shade in (("reject", "negative"), ("approve", "k2")):
        bar, wanted = page.evaluate(COLOURS, [label, shade])
        assert bar == wanted
    page.get_by_test_id("message-why").first.click()
    expect(page.get_by_test_id("judged-now")).to_contain_text(re.compile("rejected|approved"))
    assert page.title() == "Loans"
    assert OF_TWEETS.findall(said(page)) == []
    page.get_by_test_id("tab-model").click()
    expect(page.get_by_test_id("telling")).to_contain_text(["rejected", "approved"])
    assert OF_TWEETS.findall(said(page)) == []
    page.get_by_test_id("tab-try").click()
    page.get_by_test_id("try-mode-json").check()
    page.get_by_test_id("try-json").fill('{"score": "high", "amount": 1000}')
    expect(page.get_by_test_id("try-label")).to_contain_text(re.compile("rejected|approved"))
    assert OF_TWEETS.findall(said(page)) == []
    expect(page.locator("#foot")).to_contain_text("Classes: rejected, approved.")
