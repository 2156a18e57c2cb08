"""What the daemon draws for the page's view of the model: figures, sentences, and no style."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from msgspec.structs import replace

from consumers.config.settings import Settings
from consumers.http.app import PAGE
from consumers.http.routes_corrections import drawn_queue
from consumers.http.routes_page import drawn_challengers, drawn_curves, drawn_quality, drawn_words
from consumers.http.schemas import WantedMessage
from consumers.http.threads import Shared
from consumers.monitoring.prequential import SCORED_MAX, Bin, Judgements, Prequential
from consumers.monitoring.quality import Confusion, QualityReport, Trend
from consumers.monitoring.status import ChallengersReport, JudgedBlock, ModelFigures, Status
from streamnb.testing import ManualClock
from tests.consumers.http.loopback_server import app_state, served, settings
from tests.consumers.monitoring.test_calibration import stream

CLASSES = ["yes", "no", "<i>"]


@pytest.fixture(scope="module")
def status() -> Iterator[Status]:
    """Return the status of a daemon of two models."""
    with app_state(settings()) as of:
        yield of.status()


def of_models(*half_lives_s: float | None, action: str = "say") -> Settings:
    """Return settings of challengers with half-lives."""
    sections = {f"c{i}": {"half_life_s": each} for i, each in enumerate(half_lives_s)}
    forgets = {"half_life_s": 1e9} if any(half_lives_s) else {}
    return settings(
        challengers=sections, promotion={"action": action, "margin_nats": 0.01}, model=forgets,
        corrections={"to": "none"}, learned={"messages_max": 0},
    )  # fmt: skip


def report(*losses: dict[str, float]) -> ChallengersReport:
    """Return blocks of a hundred with these losses, of which `model` answers."""
    models = tuple(
        ModelFigures(name, name == "model", 300, 300, 0.9, 0.3, 0.9, 0.3, 0.01)
        for name in ("model", "c0", "c1")
    )
    blocks = [
        JudgedBlock(100 * i, each, dict.fromkeys(each, 0.9)) for i, each in enumerate(losses, 1)
    ]
    return ChallengersReport("model", None, 0, models, tuple(blocks))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_curves_of_each_class(n_classes: int) -> None:
    """Each has both lines, the area that the judgements give, and how many they are of."""
    prequential, classes = Prequential(500), CLASSES[:n_classes]
    log_posteriors, labels = stream(1, 500, n_classes)
    prequential.update(log_posteriors, labels)
    judged = prequential.judged()
    drawn = drawn_curves(settings(model={"classes": classes}), classes, judged)
    roc, precision = re.findall(r'<svg viewBox="0 0 100 100".*?</svg>', drawn)
    assert roc.count("stroke=") == precision.count("stroke=") == n_classes
    points = [float(y) for _, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", roc + precision)]
    assert all(0 <= y <= 100 for y in points)
    for k in range(n_classes):
        curve = judged.curve(k)
        assert curve is not None
        assert f"{curve.auc:.3f} ({curve.low:.3f}–{curve.high:.3f})" in drawn
        assert f"<td class=number>{(labels == k).sum()}</td>" in drawn
    assert "the latest 500 labelled messages" in drawn
    assert "<i>" not in drawn.replace("<i><svg", "")


def test_classes_stand_in_the_order_of_the_page(status: Status) -> None:
    """In the matrix as in the table of classes; a line has the dashes of the other charts."""
    classes = ("negative", "positive")
    shown = settings(page={"classes": {"positive": {"name": "glad"}, "negative": {}}})
    quality = QualityReport(confusion=Confusion(classes, ((8, 2), (1, 9))))
    drawn = drawn_quality(shown, replace(status, quality=quality))
    confusion = drawn[: drawn.index("<h2>Classes")]
    assert re.findall(r"<small>(\d+)</small>", confusion) == ["9", "1", "2", "8"]
    assert confusion.index("glad") < confusion.index("negative</span>")
    prequential = Prequential(500)
    prequential.update(*stream(1, 500, 2))
    curves = drawn_curves(shown, classes, prequential.judged())
    strokes = re.findall(r'var\(--(\w+)\)" stroke-dasharray="([^"]*)"', curves)
    assert strokes[:2] == [("positive", "none"), ("negative", "8 3")]
    assert "true positive rate" in curves


def test_no_curves_without_examples_or_of_many_classes() -> None:
    """The page says which it is."""
    drawn = drawn_curves(settings(), ["negative", "positive"], Prequential(5).judged())
    assert "No class has labelled messages beside others yet." in drawn
    classes = [f"class {i}" for i in range(SCORED_MAX + 1)]
    prequential = Prequential(50)
    prequential.update(*stream(1, 50, len(classes)))
    drawn = drawn_curves(settings(model={"classes": classes}), classes, prequential.judged())
    assert f"Curves are drawn of up to {SCORED_MAX} classes; there are {len(classes)}." in drawn


@pytest.mark.parametrize(
    ("losses", "action", "words"),
    [
        ({"model": 0.32, "c0": 0.30, "c1": 0.31}, "say", "is better by the rule: the log says so"),
        ({"model": 0.32, "c0": 0.30}, "promote", "is better by the rule: it answers from there on"),
        ({"model": 0.305, "c0": 0.30}, "promote", "would not be promoted"),
        ({"model": 0.30, "c0": 0.32}, "promote", "lies 0.02 nats above that of model"),
        ({"model": 0.30, "c0": 0.300046}, "say", "lies 0.000046 nats above that of model"),
        ({"model": 0.30, "c0": 0.30 + 4e-9}, "say", "lies less than 0.000001 nats above that"),
        ({"model": 0.30}, "promote", "Nobody is compared yet"),
    ],
)
def test_who_would_be_promoted(
    status: Status, losses: dict[str, float], action: str, words: str
) -> None:
    """The sentence follows the rule of the configuration, by the last block."""
    shown = replace(status, challengers=report({"model": 0.5, "c0": 0.5}, losses))
    assert words in drawn_challengers(of_models(None, None, action=action), shown)
    assert drawn_challengers(settings(), status) == ""


def test_half_lives_stand_beside_their_figures(status: Status) -> None:
    """The best of the last block is marked; a model that came later begins amid the chart."""
    blocks = report({"model": 0.4, "c0": 0.41}, {"model": 0.33, "c0": 0.31, "c1": 0.3})
    drawn = drawn_challengers(of_models(604_800.0, 5_400.0), replace(status, challengers=blocks))
    for cell in ("7 d", "1.5 h", "<b>0.3000</b>", "model <small>answers</small>"):
        assert cell in drawn
    assert drawn.count("<th scope=col") == drawn.count("<td class=number>") / 3 + 1
    losses, _ = re.findall(r'<svg viewBox="0 0 100 100".*?</svg>', drawn)
    paths = re.findall(r'd="(M[^"]*)" stroke', losses)
    assert [path.count("L") for path in paths] == [1, 1, 0]
    assert paths[2].startswith("M100.00 ")
    assert "Half-lives are compared, not mixed" in drawn


def test_the_charts_of_challengers_have_named_axes(status: Status) -> None:
    """What goes up stands at its axis, with its unit, and what goes along below."""
    blocks = report({"model": 0.4, "c0": 0.41}, {"model": 0.33, "c0": 0.31})
    drawn = drawn_challengers(of_models(None, None), replace(status, challengers=blocks))
    assert re.findall("<h3>([^<]*)</h3>", drawn) == ["Log-loss by block", "Accuracy by block"]
    y_names = re.findall(r'<div class="xy"[^>]*><p>([^<]*)</p>', drawn)
    assert y_names == ["log-loss, in nats", "accuracy"]
    assert drawn.count("<p>labelled messages</p></div>") == 2


def test_a_class_that_joins_has_a_name_in_the_matrix(status: Status) -> None:
    """The matrix may know it before the rows of classes do."""
    classes = ("negative", "positive", "<new>")
    counts = ((8, 2, 0), (1, 9, 0), (0, 0, 1))
    quality = QualityReport(confusion=Confusion(classes, counts))
    drawn = drawn_quality(settings(), replace(status, quality=quality))
    assert "&lt;new&gt;" in drawn
    assert '<td class="number cell t8 c-negative right">80.0%<small>8</small></td>' in drawn
    assert "No labelled messages yet." in drawn_quality(settings(), status)


def test_dots_stand_inside_their_frame(status: Status) -> None:
    """The largest too, of what is always right and told so."""
    quality = QualityReport(
        calibration=(Bin(0.0, 0.1, 900, 0.0, 0.0), Bin(0.9, 1.0, 900, 1.0, 1.0))
    )
    drawn = drawn_quality(settings(), replace(status, quality=quality))
    frame = re.search(r'"frame" x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"', drawn)
    assert frame is not None
    x, y, width, height = map(int, frame.groups())
    dots = re.findall(r'cx="(.*?)" cy="(.*?)" r="(.*?)"', drawn)
    assert len(dots) == 2
    for dot in dots:
        cx, cy, r = map(float, dot)
        assert x <= cx - r < cx + r <= x + width
        assert y <= cy - r < cy + r <= y + height


# What the page once said, and what it says in its place: terms of the field, in plain sentences.
WORDING = {
    "Right of late": "<dt>Accuracy, last <",
    "Log-loss of late": "<dt>Log-loss, last <",
    "Is it as right as it is sure?": "<h2>Calibration</h2>",
    "What it takes for what": "<h2>Confusion matrix</h2>",
    "Most telling": "<h2>Strongest features</h2>",
    "Messages a second": "<dt>Messages per second</dt>",
    "Behind the stream": "<dt>Lag</dt>",
    "Age of the snapshot": "<dt>Snapshot age</dt>",
    "Age of the checkpoint": "<dt>Checkpoint age</dt>",
    "since all was written down": "since last save",
    "Drawn from the second point on": "No history yet.",
    "What is shown is from before": "Disconnected; showing last data.",
    "Sentiment by Percent": ">Share by class</h2>",
    "Sentiment by Count": ">Messages by class</h2>",
    "The newest ${": '`${isCut ? "Latest " : ""}${count(n)}',
    "A share is shown from": "`At least ${count(summary.messages_min)} ${names.messages} needed",
    "own mistakes": "Corrected for the model",
    "Back to the newest": "Back to the latest",
    "taught ${": "`sent: ${",
    "before any word": '"before any of them"',
    "with ${percent(level)} credibility": "${percent(level)} credible interval: ",
}


def test_the_page_says_it_in_terms_of_the_field(status: Status) -> None:
    """What was reworded stays so, in the page's files and in what the daemon draws for it."""
    files = sorted([*PAGE.glob("*.html"), *PAGE.glob("*.js")])
    page = "\n".join(each.read_text(encoding="utf-8") for each in files)
    page += drawn_quality(settings(), status)
    for before, now in WORDING.items():
        assert before not in page, before
        assert now in page, now


def test_words_that_rise_and_fall_begin_at_one_height(status: Status) -> None:
    """Both say over which time, in figures that can be read."""
    drawn = drawn_words(settings(), replace(status, quality=QualityReport(trend_s=234.12)))
    assert drawn.count("<p class=note>Change over the last 3.9 min, against the time before.") == 2


def test_words_stand_in_the_order_of_their_change(status: Status) -> None:
    """The one that rose most is first among the rising, the one that fell most among the others."""
    rose, fell = {"b": 2.0, "a": 9.0, "c": 3.0}, {"e": 0.5, "d": 0.1, "f": 0.3}
    rising, falling = (
        tuple(Trend(word, 1.0, ratio, ratio) for word, ratio in each.items())
        for each in (rose, fell)
    )
    quality = QualityReport(trend_s=60.0, rising=rising, falling=falling)
    drawn = drawn_words(settings(), replace(status, quality=quality))
    assert re.findall(r'class="word" dir="auto">(\w)<', drawn) == list("acbdfe")


def test_curves_are_drawn_once_for_all_that_ask_within_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each open page asks for them again and again; they are the same for all."""
    clock, made = ManualClock(10.0), iter("abc")
    shared = Shared(lambda: next(made), clock)
    assert [shared(), shared()] == ["a", "a"]
    clock.now_s += 0.9
    assert shared() == "a"
    clock.now_s += 0.1
    assert [shared(), shared()] == ["b", "b"]
    nothing = iter([None, "never"])
    shared_nothing = Shared(lambda: next(nothing), clock)
    assert [shared_nothing(), shared_nothing()] == [None, None]
    monkeypatch.setattr("consumers.http.threads.SHARED_S", 600.0)
    asked: list[Judgements] = []

    def judged() -> Judgements:
        asked.append(prequential.judged())
        return asked[-1]

    prequential = Prequential(500)
    prequential.update(*stream(1, 500, 2))
    with app_state(settings()) as state, served(state, judged=judged) as port:
        url = f"http://127.0.0.1:{port}/page/curves"
        answers = {httpx.get(url, trust_env=False, timeout=60).text for _ in range(3)}
    assert len(asked) == len(answers) == 1
    assert "the latest 500 labelled messages" in answers.pop()


def message(name: str, picked: str, text: str = "rain") -> WantedMessage:
    """Return a message to label."""
    return WantedMessage(
        1, name, 0, None, None, text, [text], "yes", 0.5, {"yes": 0.52, "no": 0.4, "<i>": 0.08},
        True, None, None, picked, 0.1, None,  # type: ignore[arg-type]
    )  # fmt: skip


def test_what_to_label_next() -> None:
    """Nobody is told what the model says of a message at random; only nine classes have a key."""
    asked = [message('"7"', "random", "<b>"), message("8", "uncertain")]
    drawn = drawn_queue(settings(), CLASSES, asked, None)
    at_random, unsure = re.findall(r"<li.*?</li>", drawn)
    assert "52%" not in at_random
    assert 'data-id="&quot;7&quot;"' in at_random
    assert "&lt;b&gt;" in at_random
    assert "Among the least sure of its day: yes 52%, no 40%" in unsure
    assert re.findall(r'data-label="([^"]*)"', drawn) == ["yes", "no", "&lt;i&gt;"]
    many = drawn_queue(settings(), [f"c{i}" for i in range(11)], [], None)
    assert re.findall(r'data-keys="([^"])', many) == [*"123456789", "s", "u"]
    refused = drawn_queue(settings(), CLASSES, asked, "corrections are off")
    assert "corrections are off" in refused
    assert "<button" not in refused


def test_the_parts_by_http() -> None:
    """All answer; they have no style and no script of their own, which the page forbids."""
    of = settings(challengers={"c0": {}})
    with app_state(of) as state, served(state) as port:
        for name in ("fields", "quality", "words", "curves", "challengers", "queue"):
            answer = httpx.get(f"http://127.0.0.1:{port}/page/{name}", trust_env=False, timeout=60)
            assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
            assert not re.search(r"<script|style=|\son\w+=", answer.text)
            asked = f"http://127.0.0.1:{port}/page/{name}?x=1"
            wrong = httpx.get(asked, trust_env=False, timeout=60)
            assert wrong.status_code == 422
