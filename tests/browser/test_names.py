"""What things are called on the page: by the configuration, or by what the stream is of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book
from tests.browser.test_appearance import BROKEN_NAMES, LARGE_PHONE, WIDEST
from tests.endtoend.daemon_process import ROOT, Daemon, write_config

OF_TWEETS = re.compile("tweet|sentiment|obama|somebody|negative|positive(?! rate)", re.IGNORECASE)
# All that can be read or heard of the page now: text, titles, labels and placeholders.
SAID = """() => [document.title, document.body.innerText, ...[...document.querySelectorAll('*')]
    .filter(node => node.checkVisibility())
    .flatMap(node => ['title', 'aria-label', 'placeholder'].map(name => node.getAttribute(name)))
].filter(Boolean).join('\\n')"""

# Buttons that offer what stands beside them as the state already, as "Pause" beside "Paused now". A
# text of more than three words names no state; "Saved searches" is none of "Save a picture".
CONTRADICTIONS = """() => {
    const wordsOf = said => said.toLowerCase().match(/\\p{L}+/gu) ?? [];
    const seen = [...document.querySelectorAll('body *')].filter(node => node.checkVisibility());
    const isButton = node => node.closest('button, [role=button]');
    const states = seen.filter(node => !isButton(node) && !node.closest('.text'))
        .flatMap(node => [...node.childNodes].filter(({nodeType}) => nodeType === Node.TEXT_NODE))
        .map(({data}) => wordsOf(data)).filter(({length}) => length > 0 && length <= 3);
    return seen.filter(node => node.matches('button, [role=button]')).flatMap(button => {
        const [verb = '', ...more] = wordsOf(button.ariaLabel || button.textContent);
        const own = new RegExp(`^${verb.replace(/e$/, '')}(e?d|ing)$`);
        return states.filter(([state, ...rest]) => own.test(state) && !(more.length && rest.length))
            .map(([state]) => `${state} beside ${verb}`);
    });
}"""

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
    with example("loan", tmp_path_factory.mktemp("loans")) as address:
        yield address


@contextmanager
def example(name: str, folder: Path, **more: object) -> Iterator[str]:
    """Run an example of the documents; yield its address once it has seen some messages."""
    path = ROOT / "docs" / "examples" / f"{name}.yaml"
    sections: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    del sections["checkpoint"]
    sections["generator"]["rate_per_s"] = 100.0
    with Daemon(write_config(folder / "config.yaml", **sections, **more)) as daemon:
        daemon.until_metric("streamnb_messages_total", 300)
        yield daemon.address
        assert daemon.stop() == 0


def said(page: Page) -> str:
    """Return all that the page says now."""
    words: str = page.evaluate(SAID)
    return words


def check_words(page: Page, where: str) -> None:
    """See that the page speaks of no tweets, and that no button contradicts a state beside it."""
    words = said(page)
    assert OF_TWEETS.findall(words) == [], where
    assert re.findall(r"\b(?:paus|resum)(?:ed?|ing)\b", words, re.IGNORECASE) == [], where
    assert page.evaluate(CONTRADICTIONS) == [], where


@pytest.mark.parametrize("state", ["Paused", "pausing", "Paused now"])
def test_a_button_that_offers_the_state_is_noticed(
    open_page: Callable[..., Opened], state: str
) -> None:
    """What `CONTRADICTIONS` is there for it finds, and the button alone is none."""
    page, _ = open_page("about:blank")
    page.set_content("<p>Messages of a pause</p><button>Pause</button>")
    assert page.evaluate(CONTRADICTIONS) == []
    page.set_content(f"<p>{state}</p><button>Pause</button>")
    assert page.evaluate(CONTRADICTIONS) == [f"{state.split(maxsplit=1)[0].lower()} beside pause"]


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
    row = page.get_by_test_id("message").first
    words, choice = (
        row.get_by_test_id(name).bounding_box() for name in ("message-text", "teach-select")
    )
    assert words is not None
    assert choice is not None
    assert choice["y"] + choice["height"] <= words["y"]  # the text has the whole width below it
    assert choice["x"] < words["x"] + words["width"] - 40
    row.get_by_test_id("message-probability").evaluate("node => node.textContent = '> 99.99%'")
    assert (
        row.get_by_test_id("message-probability").evaluate(
            "node => node.getBoundingClientRect().right"
        )
        < words["x"]
    )
    page.get_by_test_id("message-why").first.click()
    expect(page.get_by_test_id("judged-now")).to_contain_text(re.compile("rejected|approved"))
    field = page.get_by_test_id("word-effect").get_by_text(re.compile("^(score|income) "))
    expect(field.first).to_be_visible()
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
    page.goto(f"{loans}/?q=label:rejected score:high")
    expect(page.get_by_test_id("count-row").last).to_contain_text(re.compile(r"approved\s*0"))
    # Of those judged to be rejected few are not: their error rates cannot be known. Of all of them
    # there would be enough within twenty seconds, of these some ten a second come.
    expect(page.get_by_test_id("percent-note")).to_contain_text("of each class; 'approved' has")
    page.get_by_test_id("message-why").first.click()
    detail = page.get_by_test_id("message-detail")
    expect(detail.get_by_test_id("delete")).to_have_text("Delete…")
    detail.get_by_test_id("delete").click()
    expect(detail.get_by_test_id("delete-confirm")).to_have_text("Delete and unlearn")
    assert re.findall("message", page.locator("#view-search").inner_text(), re.IGNORECASE) == []


@pytest.mark.parametrize("size", [WIDEST, LARGE_PHONE], ids=["widest", "large-phone"])
def test_no_name_breaks_inside_a_word(
    loans: str, open_page: Callable[..., Opened], size: dict[str, Any]
) -> None:
    """The names of long features have room, beside their bars and in the table of a message."""
    page, _ = open_page(loans, **size)
    page.get_by_test_id("message-why").first.click()
    page.get_by_test_id("numbers").click()
    expect(page.get_by_test_id("intercept-row")).to_be_visible()
    expect(page.get_by_test_id("explanation")).to_contain_text("record: missed_payments=")
    assert page.evaluate(BROKEN_NAMES) == []
    page.get_by_test_id("tab-model").click()
    expect(page.get_by_test_id("telling").first).to_contain_text("missed_payments=")
    expect(page.get_by_test_id("fields")).to_contain_text("missed_payments")
    assert page.evaluate(BROKEN_NAMES) == []


def test_who_is_no_handle(book: Book, open_page: Callable[..., Opened]) -> None:
    """A user has an "@" where the daemon says so, as of tweets, and none where it does not."""
    book.write("a gerenuk rests", user="dev-0")
    book.until_found("gerenuk", 1)
    page, _ = open_page(f"{book.address}/?q=gerenuk")
    expect(page.get_by_test_id("message-user")).to_have_text("@dev-0")
    answer = book.json("/v1/page")
    answer["names"]["user_prefix"] = ""
    page.route("**/v1/page", lambda route: route.fulfill(json=answer))
    page.reload()
    expect(page.get_by_test_id("message-user")).to_have_text("dev-0")


def test_a_stream_of_sensors(
    browser: Browser, tmp_path: Path, open_page: Callable[..., Opened]
) -> None:
    """Nothing is said of words, languages, people or lag: there are none. A sample says so."""
    assert browser.is_connected()
    with example("sensors", tmp_path, recent={"rate_max_per_s": 20.0}) as address:
        page, _ = open_page(address)
        expect(page.get_by_test_id("message-user").first).to_have_text(re.compile("^pump "))
        expect(page.get_by_test_id("search-lang")).to_be_hidden()
        expect(page.get_by_test_id("sample-note")).to_have_text(
            re.compile(r"^A sample: [\d.]+% of the stream is stored; in the last minute ")
        )
        expect(page.get_by_test_id("series-when")).to_contain_text(
            re.compile(r": about [\d,]+ readings?")
        )
        page.get_by_test_id("tab-model").click()
        expect(page.get_by_test_id("telling").first).to_be_visible()
        assert re.findall("word|Lag|“not”", page.locator("#view-model").inner_text()) == []
        page.get_by_test_id("tab-try").click()
        expect(page.get_by_test_id("try-text")).to_be_hidden()
        box = page.get_by_test_id("try-json")
        box.fill((box.get_attribute("placeholder") or "").replace("1.5", "61"))
        expect(page.get_by_test_id("try-label")).to_contain_text(re.compile("normal|bearing|leak"))
        page.goto("about:blank")  # it would complain of a daemon that is gone


@pytest.mark.parametrize(
    ("name", "classes"), [("loan", ("approved", "rejected")), ("sensors", ("normal", "leak"))]
)
def test_no_view_speaks_of_tweets(
    browser: Browser,
    tmp_path: Path,
    open_page: Callable[..., Opened],
    name: str,
    classes: tuple[str, str],
) -> None:
    """Of loans and of sensors every view, unfolded, has the stream's own words alone."""
    assert browser.is_connected()
    with example(name, tmp_path, labelling={"enabled": True}) as address:
        page, _ = open_page(address)
        page.get_by_test_id("message-why").first.click()
        page.get_by_test_id("numbers").click()
        expect(page.get_by_test_id("intercept-row")).to_be_visible()
        page.get_by_test_id("series-numbers").click()
        page.get_by_test_id("save-search").click()
        expect(page.get_by_test_id("saved-card")).to_be_visible()
        page.get_by_test_id("curl").click()
        check_words(page, "search")
        page.get_by_test_id("follow").click()
        expect(page.get_by_test_id("follow")).to_have_attribute("aria-pressed", "true")
        check_words(page, "following")
        page.goto(f"{address}/?range=1000-2000")
        expect(page.get_by_test_id("newest")).to_be_visible()
        check_words(page, "not the latest")
        first, second = classes
        page.goto(f"{address}/?q=label:{first}&vs=label:{second}&range=15m")
        expect(page.get_by_test_id("compare-words")).to_have_count(2)
        check_words(page, "comparison")
        page.goto(f"{address}/?q=nobodywritesthis")
        expect(page.get_by_test_id("messages-empty")).to_be_visible()
        check_words(page, "nothing found")
        page.get_by_test_id("tab-model").click()
        expect(page.get_by_test_id("telling").first).to_be_visible()
        expect(page.get_by_test_id("field").first).to_be_visible()
        expect(page.get_by_test_id("queue-button").first).to_be_visible()
        for fold in page.locator("#model details:not([open]) > summary").all():
            fold.click()
        check_words(page, "model")
        page.get_by_test_id("tab-try").click()
        box = page.get_by_test_id("try-json")
        page.get_by_test_id("try-mode-json").check(force=True)
        box.fill((box.get_attribute("placeholder") or "").replace("…", "high"))
        expect(page.get_by_test_id("try-label")).to_be_visible()
        check_words(page, "try it")
        page.goto("about:blank")  # it would complain of a daemon that is gone


def test_the_example_of_tweets_runs(
    browser: Browser, tmp_path: Path, open_page: Callable[..., Opened]
) -> None:
    """As it stands in the guides it is learned, searched and shown, by the names of tweets."""
    assert browser.is_connected()
    with example("tweets", tmp_path) as address:
        page, _ = open_page(address)
        expect(page.get_by_test_id("search-heading")).to_have_text(
            "Sentiment analysis for everything"
        )
        expect(page.get_by_test_id("messages-heading")).to_have_text("All tweets")
        expect(page.get_by_test_id("count-row")).to_contain_text(["negative", "positive"])
        expect(page.get_by_test_id("message-user").first).to_have_text(re.compile("^@"))
        page.get_by_test_id("tab-model").click()
        expect(page.get_by_test_id("model-examples")).to_contain_text(re.compile(r"\d{2,}"))
        page.goto("about:blank")  # it would complain of a daemon that is gone
