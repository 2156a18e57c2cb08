"""Teaching where a token is asked for, with more classes than two, and with classes that join."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.browser.axe import violations
from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book, open_book
from tests.browser.test_appearance import tab_to

TOKEN = "a-token-of-the-tests"
CLASSES = ["negative", "neutral", "positive"]


@pytest.fixture(scope="module")
def guarded(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Book]:
    """Return a daemon of three classes that asks for a token."""
    assert browser.is_connected()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STREAMNB_TOKEN", TOKEN)
        http = {"port": 0, "token": "${STREAMNB_TOKEN}"}
        folder = tmp_path_factory.mktemp("guarded")
        with open_book(folder, http=http, model={"classes": CLASSES}) as book:
            yield book


def test_a_token_is_asked_for(guarded: Book, open_page: Callable[..., Opened]) -> None:
    """The first correction asks for the token; a wrong one is refused, the right one is kept."""
    names = guarded.write("an aardvark is here", "an aardvark is there", label=2)
    guarded.until_found("aardvark", 2)
    page, watch = open_page(f"{guarded.address}/?q=aardvark")
    watch.expect("401")
    dialog = page.get_by_test_id("token-dialog")
    for name, token, state in ((0, "wrong", "failed"), (0, TOKEN, "changed"), (1, None, "changed")):
        row = page.locator(f"[data-testid=message][data-id={names[name]}]")
        row.get_by_test_id("teach-select").select_option("positive")
        if token is None:
            expect(dialog).to_be_hidden()
        else:
            page.get_by_test_id("token-input").fill(token)
            assert violations(page) == []
            page.get_by_test_id("token-send").click()
        expect(row.get_by_test_id("teach-state")).to_have_attribute("data-state", state)
        if state == "failed":
            expect(row.get_by_test_id("teach-state")).to_contain_text("The token was refused")
    expect(page.locator("[data-testid=message][data-corrected=positive]")).to_have_count(2)


def test_a_token_is_given_by_keys(guarded: Book, open_page: Callable[..., Opened]) -> None:
    """The dialog takes the focus; Escape sends nothing, and Enter sends the token."""
    guarded.write("an aoudad climbs", label=2)
    guarded.until_found("aoudad", 1)
    page, _ = open_page(f"{guarded.address}/?q=aoudad")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.method))
    tab_to(page, "teach-select")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_test_id("token-input")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("token-dialog")).to_be_hidden()
    expect(page.get_by_test_id("teach-state")).to_be_empty()
    assert "POST" not in sent
    expect(page.get_by_test_id("teach-select")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_test_id("token-input")).to_be_focused()
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("teach-state")).to_have_attribute("data-state", "changed")


def test_a_token_that_was_pasted_with_more(guarded: Book, open_page: Callable[..., Opened]) -> None:
    """What cannot be seen of it is left out; what no token can have is refused in the dialog."""
    (name,) = guarded.write("a cuscus is here", label="neutral")
    guarded.until_found("cuscus", 1)
    page, _ = open_page(f"{guarded.address}/?q=cuscus")
    row = page.locator(f"[data-testid=message][data-id={name}]")
    row.get_by_test_id("teach-select").select_option("positive")
    token, send = page.get_by_test_id("token-input"), page.get_by_test_id("token-send")
    token.fill(f"{TOKEN}…")
    send.click()
    assert token.evaluate("each => each.validity.patternMismatch")
    expect(page.get_by_test_id("token-dialog")).to_be_visible()
    token.fill(f"\u200b{TOKEN}\ufeff")
    send.click()
    expect(row.get_by_test_id("teach-state")).to_have_attribute("data-state", "changed")


def test_the_last_of_two_quick_labels_holds(
    guarded: Book, open_page: Callable[..., Opened]
) -> None:
    """The second is sent when the first has its answer; one that is taught already is sent too."""
    (name,) = guarded.write("an aye-aye is here", label="neutral")
    guarded.until_found("aye", 1)
    page, _ = open_page(f"{guarded.address}/?q=aye")
    row = page.locator(f"[data-testid=message][data-id={name}]")
    select = row.get_by_test_id("teach-select")
    select.select_option("neutral")
    page.get_by_test_id("token-input").fill(TOKEN)
    page.get_by_test_id("token-send").click()
    expect(row).to_have_attribute("data-corrected", "neutral")
    sent: list[Route] = []

    def answer(route: Route) -> None:
        """Let the first wait until another label was chosen."""
        sent.append(route)
        if len(sent) > 1:
            route.continue_()

    page.route("**/v1/labels", answer)
    with page.expect_request("**/v1/labels"):
        select.select_option("negative")
    select.select_option("positive")
    sent[0].continue_()
    expect(row).to_have_attribute("data-corrected", "positive")
    labels = [json.loads(each.request.post_data or "")["label"] for each in sent]
    assert labels == ["negative", "positive"]


def test_corrections_that_are_taken_later(guarded: Book, open_page: Callable[..., Opened]) -> None:
    """A page that is opened while earlier corrections are read offers them when they are taken."""
    page, _ = open_page("about:blank")
    reason = "earlier corrections are still being read"
    early = {"enabled": False, "needs_token": True, "reason": reason}
    answers = [{**guarded.json("/v1/page"), "corrections": early}]

    def answer(route: Route) -> None:
        if answers:
            route.fulfill(json=answers[0])
        else:
            route.continue_()

    page.route("**/v1/page", answer)
    page.goto(guarded.address)
    expect(page.get_by_text(reason)).to_be_visible()
    answers.clear()
    expect(page.get_by_test_id("teach-select").first).to_be_visible()
    expect(page.get_by_text(reason)).to_be_hidden()


def test_three_classes(guarded: Book, open_page: Callable[..., Opened]) -> None:
    """Every view shows three classes as it shows two, and axe-core finds nothing."""
    page, _ = open_page(guarded.address, reduced_motion="reduce")
    expect(page.get_by_test_id("ring")).to_be_visible()
    for test_id in ("share-row", "count-row"):
        expect(page.get_by_test_id(test_id)).to_have_count(3)
    page.get_by_test_id("message-why").first.click()
    page.get_by_test_id("numbers").click()
    expect(page.get_by_test_id("intercept-row")).to_be_visible()
    assert violations(page) == []
    page.get_by_test_id("tab-model").click()
    expect(page.get_by_test_id("telling")).to_have_count(3)
    assert violations(page) == []
    page.get_by_test_id("tab-try").click()
    page.get_by_test_id("try-text").fill("what a lovely day")
    expect(page.get_by_test_id("try-share")).to_have_count(3)
    assert violations(page) == []


def test_a_class_joins_an_open_page(
    open_page: Callable[..., Opened], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The page takes it in as it is: words typed, an open row and the saved search stay."""
    with open_book(tmp_path_factory.mktemp("joins"), model={"new_classes": True}) as book:
        names = book.write(*[f"a narwhal number {i}" for i in range(30)])
        book.until_found("narwhal", 30)
        page, _ = open_page(book.address)
        page.get_by_test_id("search-box").fill("narwhal")
        expect(page.get_by_test_id("share-row")).to_have_count(2)
        page.get_by_test_id("save-search").click()
        expect(page.get_by_test_id("teach-select").first).to_be_hidden()
        row = page.locator(f"[data-testid=message][data-id={names[-1]}]")
        row.get_by_test_id("message-why").click()
        expect(row.get_by_test_id("judged-now")).to_be_visible()
        page.get_by_test_id("search-box").fill("narwhal n")
        expect(page.get_by_test_id("messages-heading")).to_have_text("Messages with narwhal")
        page.evaluate("window.still = true")
        book.write("a narwhal scores", label="sport")
        for test_id in ("share-row", "count-row"):
            expect(page.get_by_test_id(test_id)).to_contain_text(["negative", "positive", "sport"])
        expect(page.get_by_test_id("saved-card").locator("li")).to_have_count(3)
        expect(page.locator("#foot")).to_contain_text("positive, sport")
        expect(page.get_by_test_id("search-box")).to_have_value("narwhal n")
        expect(row.get_by_test_id("judged-now")).to_be_visible()
        expect(row.get_by_test_id("teach")).to_have_count(2)
        expect(row.get_by_test_id("teach").first).to_be_hidden()
        row.get_by_test_id("teach-select").select_option("sport")
        expect(row).to_have_attribute("data-corrected", "sport")
        assert violations(page) == []
        page.get_by_test_id("tab-try").click()
        page.get_by_test_id("try-text").fill("it scores")
        expect(page.get_by_test_id("try-share")).to_have_count(3)
        assert page.evaluate("window.still") is True
        page.close()  # it would ask the daemon that ends
