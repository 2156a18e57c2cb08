"""One tweet opened: why it was judged so, taught another label, and deleted."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.axe import violations
from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book


def only_row(page: Page) -> Locator:
    """Wait until one tweet is listed; return its row."""
    row = page.get_by_test_id("message")
    expect(row).to_have_count(1)
    return row


def opened_row(page: Page) -> Locator:
    """Open the only tweet; return its row, once the explanation is there."""
    row = only_row(page)
    row.get_by_test_id("message-why").click()
    row.get_by_test_id("numbers").click()
    expect(row.get_by_test_id("intercept-row")).to_be_visible()
    return row


def predicted(page: Page, text: str) -> dict[str, Any]:
    """Ask the daemon, from within the page, what it makes of a text now."""
    answer: dict[str, Any] = page.evaluate(
        """async text => {
            const answer = await fetch('/v1/predict', {
                method: 'POST',
                headers: {'Content-Type': 'application/json'},
                body: JSON.stringify({text}),
            });
            return (await answer.json()).predictions[0];
        }""",
        text,
    )
    return answer


def until_learned(book: Book, page: Page, word: str) -> None:
    """Wait until the snapshot that answers has learned a word of a negative tweet."""

    def is_learned() -> bool:
        of_word, of_none = (predicted(page, each)["probabilities"] for each in (word, "unwritten"))
        return bool(of_word["negative"] > of_none["negative"])

    book.daemon.until(is_learned, f"{word!r} is learned")


def test_an_explanation(book: Book, open_page: Callable[..., Opened]) -> None:
    """Each word's push is told as text and number, and together they are the judgement."""
    (name,) = book.write("what an awful boring day, said the okapi", label=None)
    book.until_found("okapi", 1)
    page, _ = open_page(f"{book.address}/?q=okapi")
    row = opened_row(page)
    expect(row.get_by_test_id("message-why")).to_have_attribute("aria-expanded", "true")
    told = book.json(f"/v1/messages/{name}")
    scores = {
        str(push.get_attribute("data-feature")): float(push.get_attribute("data-score") or "nan")
        for push in row.get_by_test_id("push-row").all()
    }
    assert "awful" in scores
    assert set(scores) == {feature["feature"] for feature in told["explanation"]["features"]}
    for feature, score in scores.items():
        push = row.locator(f"[data-testid=push-row][data-feature={json.dumps(feature)}]")
        expect(push).to_contain_text(feature)
        assert math.isfinite(score)
    probability = told["now"]["probabilities"][told["explanation"]["label"]]
    log_odds = told["explanation"]["intercept"] + sum(scores.values())
    assert math.isclose(log_odds, math.log(probability / (1 - probability)), abs_tol=0.01)
    expect(row.get_by_test_id("credible-interval")).to_have_count(0)  # a hybrid has none


def test_a_message_without_text(book: Book, open_page: Callable[..., Opened]) -> None:
    """The card says that there is none, instead of nothing."""
    book.write("", label=None, lang="fo")
    book.daemon.until(lambda: book.json("/v1/summary?lang=fo")["n"] == 1, "it is stored")
    page, _ = open_page(f"{book.address}/?lang=fo")
    said = page.get_by_test_id("message-text")
    expect(said).to_have_text("")
    written = said.evaluate("node => getComputedStyle(node, '::before').content")
    assert written == '"No text"'


def balance(book: Book) -> None:
    """Teach the rarer class of two until both are as frequent: a word that nobody knows is unsure.

    What other tests have taught is in the same model.
    """
    counts = {each["label"]: each["count"] for each in book.json("/v1/model")["classes"]}
    missing = int(counts["positive"] - counts["negative"])
    if missing:
        book.write(*["a numbat"] * abs(missing), label=0 if missing > 0 else 4)
        book.until_found("numbat", abs(missing))


def test_a_probability_is_a_number_too(book: Book, open_page: Callable[..., Opened]) -> None:
    """A tint alone says nothing: number and label stand beside it, and unsure is said in words."""
    balance(book)
    sure, unsure = book.write("great great lovely great ibexes", "ibexes", label=None)
    book.until_found("ibexes", 2)
    page, _ = open_page(f"{book.address}/?q=ibexes")
    for name, is_unsure in ((sure, False), (unsure, True)):
        row = page.locator(f"[data-testid=message][data-id={name}]")
        expect(row).to_have_attribute("data-unsure", str(is_unsure).lower())
        expect(row.get_by_test_id("message-probability")).to_contain_text("%")
        assert ("unsure" in row.inner_text().lower()) == is_unsure
        label = row.get_attribute("data-label") or ""
        assert is_unsure or label in row.inner_text().lower()


def test_a_correction_teaches(book: Book, open_page: Callable[..., Opened]) -> None:
    """A thumb unlearns the old label and teaches the new: the page shows it, the model has it."""
    text = "bilbies at dusk"
    (name,) = book.write(text, label=0)
    book.until_found("bilbies", 1)
    page, _ = open_page(f"{book.address}/?q=bilbies")
    until_learned(book, page, "bilbies")
    before = predicted(page, text)["probabilities"]["positive"]
    row = opened_row(page)
    thumb = row.locator("[data-testid=teach][data-label=positive]")
    thumb.click()
    expect(row.get_by_test_id("teach-state")).to_have_attribute("data-state", "changed")
    expect(row).to_have_attribute("data-corrected", "positive")
    expect(thumb).to_have_attribute("aria-pressed", "true")
    book.daemon.until(  # the label is safe in its log; the model learns it from there
        lambda: predicted(page, text)["probabilities"]["positive"] > before, "taught"
    )
    assert book.json(f"/v1/messages/{name}")["corrected"] == "positive"
    page.reload()
    expect(only_row(page)).to_have_attribute("data-corrected", "positive")


def test_the_prediction_follows_a_correction(book: Book, open_page: Callable[..., Opened]) -> None:
    """Reasons that are open say what the model makes of the tweet once it has learned the label."""
    (name,) = book.write("kinkajous kinkajous", label=0)
    book.until_found("kinkajous", 1)
    page, _ = open_page(f"{book.address}/?q=kinkajous")
    until_learned(book, page, "kinkajous")
    row = opened_row(page)
    told = row.get_by_test_id("judged-now")
    expect(told).to_contain_text("Prediction now: negative")
    row.locator("[data-testid=teach][data-label=positive]").click()
    expect(row.get_by_test_id("teach-state")).to_have_attribute("data-state", "changed")
    expect(told).to_contain_text("Prediction now: positive")
    assert book.json(f"/v1/messages/{name}")["now"]["label"] == "positive"
    expect(row.get_by_test_id("intercept-row")).to_be_visible()  # the numbers stay open


def test_a_correction_is_seen_by_others(book: Book, open_page: Callable[..., Opened]) -> None:
    """Another page that shows the same tweet is told of its new label, and of its end."""
    book.write("numbats at dawn", label=0)
    book.until_found("numbats", 1)
    one, _ = open_page(f"{book.address}/?q=numbats")
    other, _ = open_page(f"{book.address}/?q=numbats")
    expect(only_row(other)).not_to_have_attribute("data-corrected", "positive")
    row = opened_row(one)
    row.locator("[data-testid=teach][data-label=positive]").click()
    expect(only_row(other)).to_have_attribute("data-corrected", "positive")
    row.get_by_test_id("delete").click()
    row.get_by_test_id("delete-confirm").click()
    expect(other.get_by_test_id("message")).to_have_count(0)


def test_a_deletion(book: Book, open_page: Callable[..., Opened]) -> None:
    """A tweet is deleted after one more question: gone from page, search and model."""
    text = "a manatee, so awful"
    (name,) = book.write(text, label=0)
    book.until_found("manatee", 1)
    page, _ = open_page(f"{book.address}/?q=manatee")
    until_learned(book, page, "manatee")
    before = predicted(page, "manatee")["probabilities"]["negative"]
    row = opened_row(page)
    row.get_by_test_id("delete").click()
    row.get_by_test_id("delete-cancel").click()
    expect(row).to_have_count(1)
    row.get_by_test_id("delete").click()
    row.get_by_test_id("delete-confirm").click()
    expect(page.get_by_test_id("message")).to_have_count(0)
    assert book.daemon.get(f"/v1/messages/{name}")[0] == 404
    page.reload()
    expect(page.get_by_test_id("messages-empty")).to_be_visible()
    book.daemon.until(
        lambda: predicted(page, "manatee")["probabilities"]["negative"] < before, "unlearned"
    )


def test_markup_is_text(book: Book, open_page: Callable[..., Opened]) -> None:
    """Markup in a tweet, in its author's name or in a query is shown as it stands."""
    texts = [
        "<script>window.fell = 1</script> gharial",
        '<img src="x" onerror="window.fell = 2"> gharial',
        "gharial</b></li><style>*{display:none}</style>",
        "gharial &lt;b&gt; &amp; <b>bold</b>",
        '"><svg onload=window.fell=3> gharial',
    ]
    book.write(*texts, user='<img src=x onerror="window.fell = 4">')
    book.until_found("gharial", len(texts))
    page, _ = open_page(f"{book.address}/?q=gharial")
    expect(page.get_by_test_id("message-text")).to_have_text(texts[::-1])
    expect(page.get_by_test_id("message-user").first).to_contain_text("onerror")
    row = page.get_by_test_id("message").first
    row.get_by_test_id("message-why").click()
    row.get_by_test_id("numbers").click()
    expect(row.get_by_test_id("intercept-row")).to_be_visible()
    page.get_by_test_id("save-search").click()
    expect(page.get_by_test_id("saved-newest")).to_contain_text("svg onload")
    query = '"<img src=x onerror=window.fell=5>"'
    page.get_by_test_id("search-box").fill(query)
    page.get_by_test_id("search-button").click()
    expect(page.get_by_test_id("search-heading")).to_contain_text(query)
    assert page.evaluate("window.fell ?? null") is None
    assert page.locator("main :is(img, script, style)").count() == 0


# The least contrast of ink and ground of a coloured word, as drawn, over all classes' colours.
CONTRAST = """word => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
    const luminance = colour => {
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const [red, green, blue] = [...canvas.getImageData(0, 0, 1, 1).data].map(value => {
            const part = value / 255;
            return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const others = [0, 1, 2, 3, 4, 5, 6, 7].map(i => `k${i}`);
    const names = ["positive", "negative", "neutral", ...others];
    return Math.min(...names.map(name => {
        word.style.setProperty("--class", `var(--${name})`);
        word.style.setProperty("--strength", "42%");
        const {color, backgroundColor} = getComputedStyle(word);
        const [low, high] = [luminance(color), luminance(backgroundColor)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    }));
}"""
CONTRAST_MIN = 4.5  # WCAG 2 AA


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_are_coloured(book: Book, open_page: Callable[..., Opened], scheme: str) -> None:
    """Why? colours the words of the message by class and strength, and says it in a sentence."""
    animal = {"light": "tarsier", "dark": "loris"}[scheme]
    book.write(f"an AWFUL boring, sad {animal} but awful lovely", label=None)
    book.until_found(animal, 1)
    page, _ = open_page(f"{book.address}/?q={animal}", color_scheme=scheme)
    row = only_row(page)
    text = row.get_by_test_id("message-text")
    words = row.get_by_test_id("word-effect")
    expect(words).to_have_count(0)
    said = text.inner_text()
    row.get_by_test_id("message-why").click()
    because = row.get_by_test_id("because")
    expect(because).to_have_text(
        re.compile(r"“.*awful.*” speaks? most for negative, “.+” for positive\.$")
    )
    assert not re.search(r"[¬^$<>]", because.inner_text())
    expect(page.get_by_test_id("announcer")).to_have_text(because.inner_text())
    shown: dict[str, list[Any]] = dict(
        words.evaluate_all("""words => words.map(word => [word.textContent, [
            word.style.getPropertyValue("--class"), word.title,
            parseFloat(word.style.getPropertyValue("--strength"))]])""")
    )
    assert shown["AWFUL"] == shown["awful"]
    assert shown["awful"][:2] == ["var(--negative)", "speaks for negative"]
    assert shown["lovely"][:2] == ["var(--positive)", "speaks for positive"]
    strengths = {word: strength for word, (_, _, strength) in shown.items()}
    assert max(strengths.values()) == 42
    assert min(strengths.values()) >= 3
    assert strengths["boring"] < strengths["awful"]
    assert text.inner_text() == said
    expect(row.get_by_test_id("explanation")).to_be_hidden()  # until it is unfolded
    assert violations(page) == []
    row.locator("[data-testid=teach][data-label=negative]").click()
    expect(row).to_have_attribute("data-corrected", "negative")
    expect(words.get_by_text("AWFUL", exact=True)).to_be_visible()  # with what is learned now too
    assert words.first.evaluate(CONTRAST) >= CONTRAST_MIN
    row.get_by_test_id("message-why").click()
    expect(words).to_have_count(0)
    assert text.inner_text() == said


def test_nothing_to_colour(book: Book, open_page: Callable[..., Opened]) -> None:
    """Of unknown words none is coloured, and the sentence says so."""
    book.write("zyzzyva qwyjibo", label=None)
    book.until_found("zyzzyva", 1)
    page, _ = open_page(f"{book.address}/?q=zyzzyva")
    row = opened_row(page)
    expect(row.get_by_test_id("because")).to_have_text(
        "Nothing in it speaks for one class more than for another."
    )
    expect(row.get_by_test_id("word-effect")).to_have_count(0)
