"""The other two tabs: the model at a glance, and a sentence judged while it is typed."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import violations
from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book, open_book
from tests.browser.test_search import ask, shown

DIGIT = re.compile(r"\d")
# Counts how often the chart of a search is given a size, which draws it.
SIZING = """() => {
    window.sized = 0;
    const canvas = document.querySelector('[data-testid=series-chart] canvas');
    new MutationObserver(changes => { window.sized += changes.length; })
        .observe(canvas, {attributeFilter: ['width']});
}"""

# How often it was, two frames later.
SIZED = """async () => {
    for (let i = 0; i < 2; i++) await new Promise(resolve => requestAnimationFrame(resolve));
    return window.sized;
}"""

# Of the first chart: pixels of the colour of an alarm, and how many lie below each other in it.
RED_PIXELS = """() => {
    const canvas = document.querySelector('[data-testid=history-line] canvas');
    const probe = document.body.appendChild(document.createElement('i'));
    probe.style.color = 'var(--negative)';
    const pen = document.createElement('canvas').getContext('2d');
    pen.fillStyle = getComputedStyle(probe).color;
    pen.fillRect(0, 0, 1, 1);
    probe.remove();
    const wanted = pen.getImageData(0, 0, 1, 1).data.slice(0, 3).join();
    const { width, height } = canvas;
    const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);
    let red = 0, rows = 0;
    for (let y = 0; y < height; y++) {
        const before = red;
        for (let x = 0; x < width; x++) {
            const i = 4 * (y * width + x);
            red += data.slice(i, i + 3).join() === wanted && data[i + 3] === 255;
        }
        rows += red > before;
    }
    return [red, rows, height];
}"""
# Notes each area that is filled in the chart of accuracy: its colour, and where it begins.
NOTING = """() => {
    window.filled = [];
    const pen = CanvasRenderingContext2D.prototype, { fillRect } = pen;
    pen.fillRect = function (x, ...given) {
        const isOfLine = this.canvas.closest("[data-line=accuracy]");
        if (isOfLine) window.filled.push([String(this.fillStyle), x]);
        return fillRect.call(this, x, ...given);
    };
}"""
# Where the areas of two colours begin.
MARKERS = """() => ["muted", "negative"].map((name) => {
    const pen = document.createElement("canvas").getContext("2d");
    const probe = document.body.appendChild(document.createElement("i"));
    probe.style.color = `var(--${name})`;
    pen.fillStyle = getComputedStyle(probe).color;
    probe.remove();
    return window.filled.filter(([colour]) => colour === pen.fillStyle).map(([, x]) => x);
})"""
# How many dark pixels stand at each of these places between the ends of the first curve.
DARK_PIXELS = """(places) => {
    const node = document.querySelector('[data-testid=history-line]');
    const [canvas, plot] = [node.querySelector('canvas'), node.querySelector('.u-over')];
    const { left, width } = plot.getBoundingClientRect();
    const before = left - canvas.getBoundingClientRect().left;
    const unit = canvas.width / canvas.clientWidth;
    const paper = document.createElement('canvas');
    Object.assign(paper, { width: canvas.width, height: canvas.height });
    const pen = paper.getContext('2d', { willReadFrequently: true });
    pen.drawImage(canvas, 0, 0);
    return places.map((place) => {
        const x = Math.round(unit * (before + place * width));
        const { data } = pen.getImageData(x, 0, 1, canvas.height);
        let dark = 0;
        for (let i = 0; i < data.length; i += 4) {
            dark += data[i] + data[i + 1] + data[i + 2] < 250 && data[i + 3] > 100;
        }
        return dark;
    });
}"""


def share(page: Page, label: str) -> float:
    """Return the share, in percent, that "Try it" shows of a class; `nan` while there is none."""
    text = page.locator(f"[data-testid=try-share][data-class={label}]").inner_text()
    found = re.search(r"[\d.]+(?=\s*%)", text)
    return float(found[0]) if found else float("nan")


def test_the_model(book: Book, open_page: Callable[..., Opened]) -> None:
    """The tab shows what `/v1/model` says: examples, classes, confusion, calibration and words."""
    page, _ = open_page(book.address)
    page.get_by_test_id("tab-model").click()
    expect(page.get_by_test_id("tab-model")).to_have_attribute("aria-current", "page")
    examples = page.get_by_test_id("model-examples")
    expect(examples).to_contain_text(DIGIT)
    for figure in ("model-accuracy", "model-log-loss", "model-snapshot-age"):
        expect(page.get_by_test_id(figure)).to_contain_text(DIGIT)
    expect(page.get_by_test_id("model-lag")).to_have_text("–")  # a file's messages are not counted
    # They are ranked now and then, the first time a moment after the start.
    book.daemon.until(lambda: all(book.json("/v1/model")["telling"].values()), "words are ranked")
    told = book.json("/v1/model")
    expect(examples).to_contain_text(f"{told['n_examples']:,}")
    for one in told["classes"]:
        expect(page.get_by_test_id("model-classes")).to_contain_text(one["label"])
        words = page.locator(f"[data-testid=telling][data-class={one['label']}]")
        expect(words).to_contain_text(told["telling"][one["label"]][0]["feature"])
    counts = [count for row in told["confusion"]["counts"] for count in row]
    assert sum(counts) > 1_000
    for count in counts:
        expect(page.get_by_test_id("confusion")).to_contain_text(f"{count:,}")
    expect(page.get_by_test_id("calibration")).to_be_visible()
    expect(page.get_by_test_id("history")).to_be_visible()
    line = page.get_by_test_id("history-line").first
    expect(line).to_have_attribute("aria-label", re.compile(r"^Accuracy: \d.*% to .*% since "))
    line.focus()
    page.keyboard.press("Home")
    interval = re.compile(r": [\d.]+% \([\d.]+%–[\d.]+%\)$")
    expect(line).to_have_attribute("aria-valuetext", interval)
    expect(page.locator("[data-line=accuracy] .note")).to_have_text(interval)
    off = "Off: predictions have no sets, as model.coverage is not set."
    expect(page.get_by_test_id("coverage-note")).to_have_text(off)
    for trend in ("rising", "falling"):
        expect(page.get_by_test_id(trend)).not_to_be_empty()
    expect(page.get_by_test_id("model-problem")).to_be_hidden()
    # Names of lines that stand side by side stand at one height, with a line or without.
    tops = page.locator(".line-chart").evaluate_all(
        """nodes => nodes.filter(node => node.checkVisibility())
            .map(node => node.querySelector('h3').getBoundingClientRect().top
                - node.getBoundingClientRect().top)"""
    )
    assert len(tops) > 3
    assert max(tops) - min(tops) < 1


def test_ticks_are_told_apart(book: Book, open_page: Callable[..., Opened]) -> None:
    """Where two would read the same they have another digit."""
    page, _ = open_page(book.address, locale="en-GB")
    written = """async ([name, ...ticks]) => {
      const { apart } = await import("/page/model.js");
      const format = await import("/page/base.js");
      return apart(ticks, format[name]);
    }"""
    assert page.evaluate(written, ["fine", 0.0015, 0.002]) == ["0.15%", "0.20%"]
    assert page.evaluate(written, ["fine", 0.001, 0.002]) == ["0.1%", "0.2%"]
    assert page.evaluate(written, ["decimal", 0.0242, 0.0244]) == ["0.0242", "0.0244"]
    quarters = [0.0075, 0.01, 0.0125, 0.015]
    assert page.evaluate(written, ["fine", *quarters]) == ["0.75%", "1.00%", "1.25%", "1.50%"]
    assert page.evaluate(written, ["count", 2000, 2000.5]) == ["2,000", "2,000.5"]


def test_small_shares_are_not_rounded_to_none(book: Book, open_page: Callable[..., Opened]) -> None:
    """A share has as many digits as its error, and a small one is not said to be nothing."""
    answer = book.json("/v1/summary") | {"n": 219_444, "n_unsure": 1_080}
    page, _ = open_page("about:blank", locale="en-GB")
    page.route(
        "**/v1/events*",
        lambda route: route.fulfill(
            content_type="text/event-stream", body=f"event: summary\ndata: {json.dumps(answer)}\n\n"
        ),
    )
    page.goto(book.address)
    note = "219,444 messages. 1,080 unsure (0.49%)."  # nothing is searched for, so nothing matches
    expect(page.get_by_test_id("count-note")).to_have_text(note)
    written = """async (shares) => {
      const { withError } = await import("/page/base.js");
      return shares.map(([low, share, high]) => withError({ low, share, high }));
    }"""
    shares = [[0, 0, 0.0004], [0.9996, 1, 1], [0.002, 0.003, 0.004], [0.58, 0.62, 0.66]]
    wanted = ["0% ± 0.02", "100% ± 0.02", "0.3% ± 0.1", "62% ± 4"]
    assert page.evaluate(written, shares) == wanted
    page.close()  # the events that are made up end, of which it would complain


@pytest.mark.parametrize(
    ("share", "stored", "offered", "said"),
    [
        (1.0, 50.0, 50.0, None),
        (0.996, 40.0, 50.0, None),
        (0.914, 2_017.0, 2_017.0, "91% of the stream is stored."),
        (
            0.0312, 3.0, 100.0,
            "3.1% of the stream is stored; in the last minute 3.0%, 3 of 100 messages per second.",
        ),
    ],
)  # fmt: skip
def test_what_is_said_of_a_sample(
    book: Book,
    open_page: Callable[..., Opened],
    share: float,
    stored: float,
    offered: float,
    said: str | None,
) -> None:
    """Of all that is stored nothing is; the rates of the last minute are where they differ."""
    answer = book.json("/v1/summary") | {"n": 219_444}
    answer["sample"] |= {"share": share, "stored_per_s": stored, "offered_per_s": offered}
    page, _ = open_page("about:blank", locale="en-GB")
    page.route(
        "**/v1/events*",
        lambda route: route.fulfill(
            content_type="text/event-stream", body=f"event: summary\ndata: {json.dumps(answer)}\n\n"
        ),
    )
    page.goto(book.address)
    counted = "219,444 stored messages" if said else "219,444 messages"
    expect(page.get_by_test_id("count-note")).to_contain_text(counted)
    note = page.get_by_test_id("sample-note")
    allowed = "Shares and their chart allow for it; counts by class do not."
    expect(note).to_have_text(f"A sample: {said} {allowed}" if said else "")
    expect(note).to_be_visible(visible=said is not None)
    page.close()  # the events that are made up end, of which it would complain


def test_words_left_out_by_configuration(
    book: Book, open_page: Callable[..., Opened], tmp_path: Path
) -> None:
    """`page.function_words` are in no ranking: not on the model's tab, not beside a comparison."""

    def ranked(of: Book) -> list[str]:
        of.daemon.until(lambda: all(of.json("/v1/model")["telling"].values()), "words are ranked")
        return [one["feature"] for one in of.json("/v1/model")["telling"]["positive"]]

    first = next(word for word in ranked(book) if word.isalpha())
    with open_book(tmp_path, page={"function_words": [first.upper()]}) as other:
        others = ranked(other)
        assert first not in others
        second = next(word for word in others if word.isalpha())
        page, _ = open_page(f"{other.address}/?view=model")
        words = page.locator("[data-testid=telling][data-class=positive] .word")
        expect(words.get_by_text(second, exact=True)).to_be_visible()
        expect(words.get_by_text(first, exact=True)).to_have_count(0)
        path = "/v1/compare?q=label:positive&q=label:negative"
        for of, is_there in ((book, True), (other, False)):
            told = of.json(path)["compared"][0]["words"]
            assert (first in [one["word"] for one in told]) is is_there
        page.close()  # before the daemon ends, of which it would complain


def test_the_view_as_commands(book: Book, open_page: Callable[..., Opened]) -> None:
    """What asks the API for the view that is shown can be copied, and a shell gets its answer."""
    page, _ = open_page(f"{book.address}/?q=it's+coffee&vs=tea&range=1000-2000")
    expect(page.get_by_test_id("messages-empty")).to_be_visible()
    for view, paths in (
        ("search", ("/v1/summary", "/v1/search", "/v1/compare")), ("model", ("/v1/model",)),
        ("try", ("/v1/predict",)),
    ):  # fmt: skip
        if view != "search":
            page.get_by_test_id(f"tab-{view}").click()
        if view == "try":
            # DEL and CSI: a terminal would take them for keys, which delete the quote.
            page.get_by_test_id("try-text").fill("it's $(false) `false`\x7f\x9b fine")
            expect(page).to_have_url(re.compile("fine"))
        page.get_by_test_id("curl").click()
        commands = page.get_by_test_id("curl-commands")
        expect(commands).to_contain_text(paths[-1])
        told = commands.inner_text().splitlines()
        assert len(told) == len(paths)
        for command, path in zip(told, paths, strict=True):
            assert command.isprintable()
            assert command.startswith(f"curl '{book.address}{path}")
            answer = subprocess.run(
                ["sh", "-c", f"{command} --silent --fail"], capture_output=True, check=True
            )
            assert json.loads(answer.stdout)


def test_the_command_of_all_times_asks_for_all(
    book: Book, open_page: Callable[..., Opened]
) -> None:
    """Without a beginning the API would answer for a day."""
    page, _ = open_page(f"{book.address}/?range=all")
    expect(page.get_by_test_id("message").first).to_be_visible()
    page.get_by_test_id("curl").click()
    expect(page.get_by_test_id("curl-commands")).to_contain_text(
        "/v1/summary?from=-62135596800000&to="
    )


def test_what_was_found_before_is_no_answer(book: Book, open_page: Callable[..., Opened]) -> None:
    """Under the next query's heading stand no figures and messages of the last one."""
    page, _ = open_page(f"{book.address}/?q=coffee")
    expect(page.get_by_test_id("message").first).to_be_visible()
    expect(page.get_by_test_id("count-row").first).to_be_visible()
    page.route("**/v1/events?*", lambda _: None)  # it is not answered
    page.get_by_test_id("search-box").fill("tea")
    page.get_by_test_id("search-button").click()
    expect(page.get_by_test_id("search-heading")).to_contain_text("tea")
    for name in ("message", "count-row", "count-note", "save-picture"):
        expect(page.get_by_test_id(name).first).to_be_hidden()


def test_a_message_tried_as_a_command(book: Book, open_page: Callable[..., Opened]) -> None:
    """A message in JSON is copied as it was asked; half of one is nothing to ask."""
    page, _ = open_page(f"{book.address}/?view=try&text=coffee")
    page.get_by_test_id("try-mode-json").check()
    box, commands = page.get_by_test_id("try-json"), page.get_by_test_id("curl-commands")
    with page.expect_request("**/v1/predict") as asked:
        box.fill('{"text": "it\'s lovely", "lang": "en"}')
    page.get_by_test_id("curl").click()
    expect(commands).to_contain_text("message")
    told = subprocess.run(
        ["sh", "-c", f"{commands.inner_text()} --silent --fail"], capture_output=True, check=True
    )
    answer, shown = json.loads(told.stdout), asked.value.response()
    assert shown is not None
    assert answer.keys() == shown.json().keys()
    assert [one["feature"] for one in answer["predictions"][0]["explanation"]["features"]] == [
        one["feature"] for one in shown.json()["predictions"][0]["explanation"]["features"]
    ]
    box.fill('{"text": "it')
    expect(page.get_by_test_id("try-problem")).to_be_visible()
    page.get_by_test_id("curl").click()
    expect(commands).to_be_hidden()


def test_the_reasons_of_a_long_text_add_up(book: Book, open_page: Callable[..., Opened]) -> None:
    """Of more features than are listed the table has the sum of the others."""
    long = " ".join(["nilgai", *(f"nilgai{i}" for i in range(220))])
    book.write(long, label=4)
    book.until_found("nilgai", 1)
    page, _ = open_page(f"{book.address}/?view=try")
    expect(page.get_by_test_id("try-text")).to_be_visible()
    with page.expect_response("**/v1/predict") as heard:
        page.get_by_test_id("try-text").fill(long)
    others = page.locator("#try-reasons tr", has=page.get_by_text("others", exact=True))
    expect(others).to_be_visible()
    rows = page.locator("#try-reasons tr[data-score]")
    scores = [float(each) for each in rows.evaluate_all("all => all.map(e => e.dataset.score)")]
    logs = heard.value.json()["predictions"][0]["log_posteriors"]
    assert sum(scores[:-1]) == pytest.approx(scores[-1])  # the last is the sum
    assert scores[-1] == pytest.approx(abs(logs["positive"] - logs["negative"]))


def test_a_picture_of_a_line(book: Book, open_page: Callable[..., Opened]) -> None:
    """Each chart of the model's tab can be saved as a PNG, which is not empty."""
    page, _ = open_page(f"{book.address}/?view=model")
    expect(page.get_by_test_id("history-line").first).to_be_visible()
    with page.expect_download() as under_way:
        page.get_by_test_id("save-picture").locator("visible=true").first.click()
    assert under_way.value.suggested_filename.endswith(".png")
    assert under_way.value.path().read_bytes().startswith(b"\x89PNG")


def test_the_posterior_moves_while_one_types(book: Book, open_page: Callable[..., Opened]) -> None:
    """Each word moves the posterior at once, with its reasons."""
    # What others have taught of these words is in the same model.
    book.write(*["horrible, i hate it, saola"] * 40, label=0)
    book.until_found("saola", 40)
    page, _ = open_page(book.address)
    page.get_by_test_id("tab-try").click()
    box = page.get_by_test_id("try-text")
    expect(box).to_be_visible()  # a click on the tab before all is there loads the page anew
    box.press_sequentially("i love this lovely, amazing ")
    up = page.locator("[data-testid=try-share][data-class=positive]")
    expect(up).to_contain_text("%")
    expect(page.get_by_test_id("try-label")).to_contain_text(re.compile("positive", re.IGNORECASE))
    expect(page.locator("[data-testid=push-row][data-feature=amazing]")).to_be_visible()
    glad = share(page, "positive")
    box.press_sequentially("not, awful, horrible, i hate it, so sad and boring")
    expect(page.get_by_test_id("try-label")).to_contain_text(re.compile("negative", re.IGNORECASE))
    assert share(page, "positive") < glad
    expect(page.locator("[data-testid=push-row][data-feature=boring]")).to_be_visible()


def test_what_cannot_be_judged_has_no_verdict(book: Book, open_page: Callable[..., Opened]) -> None:
    """Where the newest text has a problem instead, that of the text before is not shown."""
    page, watch = open_page(f"{book.address}/?view=try&text=what+a+lovely+morning")
    watch.expect("503")
    verdict, problem = page.get_by_test_id("try-posterior"), page.get_by_test_id("try-problem")
    expect(verdict).to_contain_text(re.compile("positive", re.IGNORECASE))
    page.route("**/v1/predict", lambda route: route.fulfill(status=503, json={"detail": "busy"}))
    page.get_by_test_id("try-text").fill("how awful")
    expect(problem).to_have_text("busy")
    expect(verdict).to_be_hidden()
    page.unroute("**/v1/predict")
    page.get_by_test_id("try-text").fill("how awful and boring")
    expect(verdict).to_contain_text(re.compile("negative", re.IGNORECASE))
    expect(problem).to_be_hidden()
    page.get_by_test_id("try-mode-json").check()
    page.get_by_test_id("try-json").fill('{"text": "awful')
    expect(problem).to_contain_text("Not a JSON object")
    expect(verdict).to_be_hidden()


def test_a_sentence_in_the_address(book: Book, open_page: Callable[..., Opened]) -> None:
    """A sentence to try can be handed on by its address."""
    page, _ = open_page(f"{book.address}/?view=try&text=what+a+lovely+morning")
    expect(page.get_by_test_id("try-text")).to_have_value("what a lovely morning")
    expect(page.get_by_test_id("try-label")).to_contain_text(re.compile("positive", re.IGNORECASE))


def test_a_message_as_the_stream_brings_it(book: Book, open_page: Callable[..., Opened]) -> None:
    """A whole message is tried as JSON; what is none is said so, and the next one is judged."""
    page, _ = open_page(f"{book.address}/?view=try")
    page.get_by_test_id("try-mode-json").check()
    box = page.get_by_test_id("try-json")
    box.fill('{"text": "awful, horrible"')
    expect(page.get_by_test_id("try-problem")).to_be_visible()
    box.fill('{"text": "awful, horrible"}')
    expect(page.get_by_test_id("try-problem")).to_be_hidden()
    expect(page.get_by_test_id("try-label")).to_contain_text(re.compile("negative", re.IGNORECASE))


def test_nothing_known(book: Book, open_page: Callable[..., Opened]) -> None:
    """Of words that were never learned no class is said; one known word is enough to say one."""
    page, _ = open_page(f"{book.address}/?view=try")
    box, label = page.get_by_test_id("try-text"), page.get_by_test_id("try-label")
    box.fill("xylophonist qwzrk")
    expect(label).to_contain_text("None of these words is known to the model")
    expect(page.get_by_test_id("try-share").first).to_be_hidden()
    expect(page.get_by_test_id("explanation")).to_be_hidden()
    assert "%" not in page.get_by_test_id("try-posterior").inner_text()
    box.fill("xylophonist qwzrk awful")
    expect(label).to_contain_text("negative")
    expect(page.get_by_test_id("try-share").first).to_be_visible()
    expect(page.locator("[data-testid=push-row][data-feature=awful]")).to_be_visible()
    page.get_by_test_id("try-mode-json").check()
    page.get_by_test_id("try-json").fill('{"text": "qwzrk"}')
    expect(label).to_contain_text("Nothing in this is known to the model")


def test_sets_and_drift(open_page: Callable[..., Opened], tmp_path: Path) -> None:
    """Which classes can be meant is said beside each answer; a line marks where drift was seen.

    The curves are broken before a restart.
    """
    with open_book(tmp_path, drift={"enabled": True}, model={"coverage": 0.9}) as book:
        (name,) = book.write("what an awful boring day, said the takin", label=None)
        book.until_found("takin", 1)
        page, _ = open_page(f"{book.address}/?q=takin")
        page.get_by_test_id("message-why").click()
        said = book.json(f"/v1/messages/{name}")["now"]["prediction_set"]
        words = f"Can be meant: {', '.join(said)}."
        expect(page.get_by_test_id("prediction-set")).to_have_text(words)
        page.get_by_test_id("tab-try").click()
        page.get_by_test_id("try-text").fill("qwzrk awful horrible")
        expect(page.get_by_test_id("try-label").get_by_test_id("prediction-set")).to_have_text(
            "Can be meant: negative."
        )
        told = book.json("/v1/model")
        # Points of history come each ten seconds: these are as they would be after an alarm.
        told["history"] = [
            {**told["history"][0], "time_ms": 10_000 * i, "n_alarms": n}
            | {
                "accuracy": 0.8,
                "log_loss": 0.5,
                "n": 100,
                "covered": 0.88 + i / 100,
                "covered_low": 0.8,
                "covered_high": 0.93,
                "set_size": 1.25,
                "events": ([], [], ["drift"], ["restart", "promotion of wider"])[i],
            }
            for i, n in enumerate((None, 4, 5, 5))
        ]
        moved = {"word": "awful", "label": "positive", "z": 9.0, "before": 0.1, "after": 0.9}
        told["drift"] |= {"n_alarms": 1, "alarm_at": 3_000, "words": [moved]}
        page.route("**/v1/model", lambda route: route.fulfill(json=told))
        page.evaluate(NOTING)
        page.get_by_test_id("tab-model").click()
        expect(page.get_by_test_id("drift")).to_contain_text("awful (positive)")
        line = page.get_by_test_id("history-line").first
        line.focus()
        for key, is_there in (("Home", False), ("ArrowRight", False), ("ArrowRight", True)):
            page.keyboard.press(key)
            ending = re.compile(", drift$" if is_there else r"\)$")
            expect(line).to_have_attribute("aria-valuetext", ending)
        page.keyboard.press("End")
        ending = re.compile(r"\), restart, promotion of wider$")
        expect(line).to_have_attribute("aria-valuetext", ending)
        expect(page.get_by_test_id("events")).to_be_visible()
        assert told["coverage"] == 0.9
        covered = page.locator("[data-line=covered]")
        expect(covered.get_by_test_id("coverage-note")).to_contain_text("to 91.0%")
        expect(covered.get_by_test_id("coverage-note")).to_contain_text("90.0% wanted")
        line = covered.get_by_test_id("history-line")
        line.focus()
        page.keyboard.press("Home")
        said = re.compile(r"88\.0% \(1\.25 classes a set\) \(80\.0%–93\.0%\)")
        expect(line).to_have_attribute("aria-valuetext", said)
        red, rows, height = page.evaluate(RED_PIXELS)
        assert rows > 0.5 * height
        assert rows <= red <= 3 * rows
        grey, alarm = page.evaluate(MARKERS)  # each once, however often it is drawn
        assert len(grey) == len(alarm) > 0
        assert grey[-1] > alarm[-1]  # the restart came later
        *while_up, while_down = page.evaluate(DARK_PIXELS, [1 / 6, 1 / 2, 5 / 6])
        assert min(while_up) > 0
        assert while_down == 0
        assert violations(page) == []
        page.close()  # before the daemon ends, of which it would complain


def test_back_and_forward(book: Book, open_page: Callable[..., Opened]) -> None:
    """The browser's own buttons walk through searches and views."""
    page, _ = open_page(book.address)
    heading = page.get_by_test_id("search-heading")
    book.write(*["a zorilla walks"] * 2)
    book.until_found("zorilla", 2)
    ask(page, "coffee")
    ask(page, "monday")
    ask(page, "zorilla")
    page.get_by_test_id("tab-model").click()
    expect(page.get_by_test_id("view-model")).to_be_visible()
    page.go_back()
    expect(page.get_by_test_id("count-note")).to_have_text(re.compile(r"^2 matches\."))
    shown(page, 2)
    page.go_back()
    expect(heading).to_have_text("Sentiment analysis for monday")
    expect(page.get_by_test_id("view-model")).to_be_hidden()
    page.go_back()
    expect(heading).to_have_text("Sentiment analysis for coffee")
    expect(page.get_by_test_id("search-box")).to_have_value("coffee")
    page.go_forward()
    expect(heading).to_have_text("Sentiment analysis for monday")


def test_back_to_what_was_typed(book: Book, open_page: Callable[..., Opened]) -> None:
    """Without Enter, too, a search is where Back leads from another time; Enter makes no second.

    Nor does a pause behind the first letter, which is no search yet, take away what was before.
    """
    page, _ = open_page("about:blank")
    page.clock.install()
    page.goto(book.address)
    box = page.get_by_test_id("search-box")
    box.press_sequentially("c")
    page.clock.run_for(1_000)
    box.press_sequentially("off")
    expect(page).to_have_url(re.compile(r"/\?q=coff\*$"))
    page.get_by_test_id("series-range").select_option("15m")
    expect(page).to_have_url(re.compile(r"/\?q=coff\*&range=15m$"))
    page.go_back()
    expect(page).to_have_url(re.compile(r"/\?q=coff\*$"))
    expect(page.get_by_test_id("search-heading")).to_contain_text("coff*")
    box.fill("coffee")
    box.press("Enter")
    expect(page).to_have_url(re.compile(r"/\?q=coffee$"))
    page.go_back()
    expect(page).to_have_url(re.compile(r"/$"))


def test_the_search_outlasts_another_view(book: Book, open_page: Callable[..., Opened]) -> None:
    """The tab leads back to it, and its events go on; there the tab leads to everything."""
    page, _ = open_page(f"{book.address}/?q=coffee&range=15m")
    heading = page.get_by_test_id("search-heading")
    expect(page.get_by_test_id("search-figures")).to_have_attribute("aria-busy", "false")
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url) if "/v1/events" in one.url else None)
    page.get_by_test_id("tab-model").click()
    expect(page.get_by_test_id("model-examples")).to_contain_text(DIGIT)
    page.get_by_test_id("tab-search").click()
    expect(heading).to_have_text("Sentiment analysis for coffee")
    expect(page.get_by_test_id("search-box")).to_have_value("coffee")
    assert page.url == f"{book.address}/?q=coffee&range=15m"
    assert asked == []
    page.get_by_test_id("tab-search").click()
    expect(heading).to_have_text("Sentiment analysis for everything")


def test_a_view_that_is_shown_again_is_not_drawn_again(
    book: Book, open_page: Callable[..., Opened]
) -> None:
    """Its chart has the size that it had: the tab answers without another drawing of it."""
    page, _ = open_page(book.address)
    expect(page.get_by_test_id("series-chart").locator("canvas")).to_be_visible()
    page.evaluate(SIZING)
    page.get_by_test_id("tab-try").click()
    expect(page.get_by_test_id("series-chart")).to_be_hidden()
    page.get_by_test_id("tab-search").click()
    assert page.evaluate(SIZED) == 0
