"""What is shown of a running daemon: the frame in its room, the live screen, log lines."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from consumers.monitoring import logs
from consumers.monitoring.status import Judged, Status
from consumers.terminal import LiveView, LogView, frame, make_view, plain
from streamnb.testing import ManualClock

SIZES = [(80, 24), (120, 40)]
CLASSES = ("negative", "positive")
GREEN, RED, DIM = "32", "31", "2"
HARD_TEXTS = {
    "markup": "[bold red]loud[/bold red] [link=http://x.y]here[/link] [/]",
    "escapes": "a\x1b[31mred\x1b[2J\x9b5n\x07\b\r\n\tz\x1b]0;title\x07",
    "wide": "宽" * 300,
    "right to left": "مرحبا بالعالم " * 40,
    "turned": "\u202eevil\u202c \u2066x\u2069 \u200f\u200b",
    "emoji": "👩‍👩‍👧‍👦👍🏽🇩🇪1️⃣😀" * 40,
    "marks": "e" + "\u0301" * 300,
    "long": "x" * 5_000,
    "lines": "a\u2028b\u2029c\x85d\x0be\x0cf",
    "half": "\ud83d alone \udcff",
    "empty": "",
}


def judged(
    text: str, label: str = "positive", probability: float = 0.9, truth: str | None = None
) -> Judged:
    """Return one judged message."""
    return Judged(0, "somebody", text, label, probability, truth)


def status(**changed: Any) -> Status:
    """Return a status in the middle of a run."""
    values: dict[str, Any] = {
        "source": "kafka://127.0.0.1:9092/tweets",
        "classes": CLASSES,
        "n_messages": 1_234_567,
        "n_learned": 1_000_000,
        "n_judged": 234_000,
        "n_rejected": 567,
        "rate_per_s": 12_345.6,
        "lag_total": 7_890,
        "shares": (0.25, 0.75),
        "accuracy": 0.801,
        "log_loss": 0.456,
        "window_accuracy": 0.812,
        "window_log_loss": 0.434,
        "vocabulary_size": 2_000_000,
        "n_features": 2_000_000,
        "snapshot_version": 421,
        "snapshot_age_s": 0.1,
        "checkpoint_age_s": 3.2,
        "http_address": "http://127.0.0.1:8100",
        "newest": (judged("what a lovely day"), judged("my head hurts", "negative", 0.8)),
        "telling": {"negative": ("sad", "hurts"), "positive": ("lovely", "love")},
        "elapsed_s": 3_723.0,
    }
    return Status(**values | changed)


def terminal(file: io.StringIO, width: int, height: int) -> Console:
    """Return a console that writes as to a terminal with eight colours, whatever we run in."""
    return Console(
        file=file,
        force_terminal=True,
        color_system="standard",
        width=width,
        height=height,
        _environ={"TERM": "xterm"},
    )


def draw(shown: Status, width: int = 80, height: int = 24) -> list[str]:
    """Return the lines of a frame as a terminal gets them, colours included."""
    file = io.StringIO()
    console = terminal(file, width, height)
    console.print(frame(shown, [0.7, 0.8, 0.812], width, height))
    return file.getvalue().split("\n")[:-1]


def bare(line: str) -> str:
    """Return a line without its colours, and nothing but colours may be taken off."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", line)
    assert text.isprintable(), ascii(text)
    return text


def codes_before(line: str, text: str) -> set[str]:
    """Return the codes of the style that `text` is drawn in."""
    found = re.search(r"\x1b\[([0-9;]+)m[^\x1b]*" + re.escape(text), line)
    assert found, ascii(line)
    return set(found[1].split(";"))


def line_with(lines: list[str], text: str) -> str:
    """Return the one line that has `text`."""
    (line,) = (line for line in lines if text in bare(line))
    return line


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_frame_fills_its_room_and_says_everything(width: int, height: int) -> None:
    """In its room the frame shows every figure whole, and not one of them is cut."""
    lines = [bare(line) for line in draw(status(), width, height)]
    assert len(lines) == height
    assert max(map(cell_len, lines)) <= width
    shown = "\n".join(lines)
    for figure in (
        *("kafka://127.0.0.1:9092/tweets", "reading", "1:02:03", "12,346 /s", "1,000,000"),
        *("234,000", "567", "7,890", "2,000,000", "81.2 %", "80.1 %", "0.434", "0.456"),
        *(" 25%", " 75%", "lovely · love", "sad · hurts", "what a lovely day", "my head hurts"),
        *("snapshot 421, 0.1 s ago", "checkpoint 3.2 s ago", "http://127.0.0.1:8100"),
    ):
        assert figure in shown
    assert "…" not in shown


def test_tweets_have_the_colour_of_their_sentiment() -> None:
    """A tweet is green where it is judged positive and red where negative, its label as well."""
    lines = draw(status(telling={}))
    for text, label, colour in (
        ("what a lovely day", "positive", GREEN),
        ("my head hurts", "negative", RED),
    ):
        line = line_with(lines, text)
        assert codes_before(line, text) == {colour}
        assert codes_before(line, label) == {colour}


def test_an_unsure_answer_is_dimmed_and_a_wrong_one_marked() -> None:
    """A low posterior dims the tweet; a truth adds a mark for right or wrong, none adds nothing."""
    newest = (judged("hm", probability=0.55), judged("yes", truth="positive"))
    lines = draw(status(newest=(*newest, judged("no", truth="negative"))))
    assert codes_before(line_with(lines, "@somebody hm"), "positive") == {DIM, GREEN}
    assert codes_before(line_with(lines, "@somebody hm"), "hm") == {DIM}
    assert "55%" in bare(line_with(lines, "@somebody hm"))
    assert "✓ @somebody yes" in bare(line_with(lines, "@somebody yes"))
    assert "✗ @somebody no" in bare(line_with(lines, "@somebody no"))
    assert not {"✓", "✗"} & set(line_with(lines, "@somebody hm"))


def test_markup_in_a_tweet_is_text() -> None:
    """Square brackets in tweets, users, words and troubles are shown as they came."""
    text = HARD_TEXTS["markup"]
    shown = status(
        newest=(Judged(0, "[red]me[/red]", text, "positive", 0.9, None),),
        telling={"positive": ("[bold]", "[/]")},
        trouble="[blink]no broker[/blink]",
    )
    lines = draw(shown, 120, 40)
    assert f"@[red]me[/red] {text}" in bare(line_with(lines, "loud"))
    assert "[bold] · [/]" in bare(line_with(lines, "[bold] ·"))
    assert "[blink]no broker[/blink]" in bare(lines[-1])


@pytest.mark.parametrize("name", HARD_TEXTS)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_no_text_breaks_the_layout(width: int, height: int, name: str) -> None:
    """Whatever stands in the texts, no line is wider than the screen and none is added."""
    text = HARD_TEXTS[name]
    message = Judged(0, text, text, "positive", 0.9, "negative")
    shown = status(
        source=text,
        newest=(message,) * 50,
        telling={"negative": (text,) * 9, "positive": (text,)},
        trouble=text if width == 80 else None,
        note=text,
    )
    lines = [bare(line) for line in draw(shown, width, height)]
    assert len(lines) == height
    assert max(map(cell_len, lines)) <= width
    assert lines[2].startswith(" rate ")


@given(
    st.text(), st.text(min_size=1), st.integers(20, 200), st.integers(3, 60), st.none() | st.text()
)
def test_every_frame_stays_in_its_room(
    text: str, label: str, width: int, height: int, note: str | None
) -> None:
    """For any text, class and size of the screen the frame is as high as asked, and no wider."""
    message = Judged(0, text, text, label, 0.6, None)
    shown = status(
        classes=(label, "positive"), newest=(message,) * 60, telling={label: (text,)}, note=note
    )
    lines = [bare(line) for line in draw(shown, width, height)]
    assert len(lines) == height
    assert max(map(cell_len, lines)) <= width


@given(st.text())
def test_plain_text_obeys_nobody(text: str) -> None:
    """Made plain, a text is one printable line; made plain again it stays as it is."""
    assert plain(text).isprintable()
    assert plain(plain(text)) == plain(text)


def test_what_does_not_exist_yet_is_a_dash() -> None:
    """Before the first example and snapshot, figures are dashes and ages are never."""
    lines = [bare(line) for line in draw(Status(source="stdin", classes=CLASSES))]
    assert re.search(r"lag +– ", line_with(lines, " lag "))
    assert re.search(r"accuracy +– +–", line_with(lines, "accuracy"))
    assert re.search(r"log-loss +– +–", line_with(lines, "log-loss"))
    assert "snapshot 0, never" in lines[-1]
    assert "checkpoint never" in lines[-1]
    assert "None" not in "".join(lines)
    assert "idle" in lines[0]


def test_note_and_trouble_are_told() -> None:
    """A note explains a pause at the foot, and trouble, which matters more, takes its place."""
    lines = [bare(line) for line in draw(status(note="compiling the kernels"))]
    assert "busy" in lines[0]
    assert lines[-1].strip() == "compiling the kernels"
    lines = [bare(line) for line in draw(status(note="compiling", trouble="no broker"))]
    assert "waiting for source" in lines[0]
    assert lines[-1].strip() == "no broker"
    low = [bare(line) for line in draw(status(trouble="no broker"), 80, 5)]
    assert low[-1].strip() == "no broker"


def test_the_live_view_gives_the_screen_back() -> None:
    """The live view takes the other screen, draws the newest status, and gives it back once."""
    file = io.StringIO()
    console = terminal(file, 80, 24)
    view = make_view("auto", console, ManualClock(10.0))
    assert isinstance(view, LiveView)
    view.stop()  # before a start
    assert file.getvalue() == ""
    view.update(status())
    view.start()
    view.update(status(note="nearly done"))
    assert view._live is not None
    view._live.refresh()  # as Rich's own thread does, four times a second
    view.stop()
    written = file.getvalue()
    assert written.count("\x1b[?1049h") == written.count("\x1b[?1049l") == 1
    assert "what a lovely day" in written
    assert "nearly done" in written
    view.stop()
    assert file.getvalue() == written


def test_without_a_terminal_there_are_lines() -> None:
    """The automatic view is the log where nobody watches; each view can be asked for."""
    file = io.StringIO()
    console = Console(file=file, _environ={})
    assert isinstance(make_view("auto", console, ManualClock(10.0)), LogView)
    assert isinstance(make_view("log", terminal(file, 80, 24), ManualClock(10.0)), LogView)
    assert isinstance(make_view("live", console, ManualClock(10.0)), LiveView)


@pytest.mark.parametrize(
    ("encoding", "view"), [("utf-8", LiveView), ("latin-1", LogView), ("ascii", LogView)]
)
def test_a_terminal_that_lacks_the_signs_has_lines(encoding: str, view: type) -> None:
    """The automatic view is the log where bars and blocks cannot be drawn."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, force_terminal=True, _environ={"TERM": "xterm"})
    assert isinstance(make_view("auto", console, ManualClock(10.0)), view)


@pytest.fixture
def log_stream() -> io.StringIO:
    """Return where JSON log lines go."""
    stream = io.StringIO()
    logs.configure(stream, json=True)
    return stream


def test_the_log_has_a_line_every_few_seconds(log_stream: io.StringIO) -> None:
    """However often it is updated, the log view writes the first status and one each interval."""
    clock = ManualClock(10.0)
    view = LogView(structlog.get_logger("streamnb"), clock, interval_s=5.0)
    view.start()
    for n in range(21):  # a status each half second
        view.update(status(n_messages=n))
        clock.now_s += 0.5
    view.stop()
    lines = [json.loads(line) for line in log_stream.getvalue().splitlines()]
    assert [line["messages"] for line in lines] == [0, 10, 20]
    assert {line["event"] for line in lines} == {"status"}
    assert lines[0]["window_accuracy"] == 0.812
    assert lines[0]["source"] == "kafka://127.0.0.1:9092/tweets"


def test_the_log_tells_news_at_once_and_the_end(log_stream: io.StringIO) -> None:
    """Trouble and notes are logged when they come and go; stop logs what was left, once."""
    view = LogView(structlog.get_logger("streamnb"), ManualClock(10.0))
    view.stop()  # before a start
    view.start()
    for n, news in enumerate([{}, {}, {"trouble": "away"}, {"trouble": "away"}, {"note": "x"}, {}]):
        view.update(status(n_messages=n, **news))
    view.update(status(n_messages=99))
    view.stop()
    view.stop()
    lines = [json.loads(line) for line in log_stream.getvalue().splitlines()]
    assert [line["messages"] for line in lines] == [0, 2, 4, 5, 99]
    assert [line.get("trouble") for line in lines] == [None, "away", None, None, None]
    assert "note" not in lines[0]


def test_a_log_line_leaves_out_what_is_unknown(log_stream: io.StringIO) -> None:
    """A field without a value is absent from the line, and so are the messages themselves."""
    view = LogView(structlog.get_logger("streamnb"), ManualClock(10.0))
    view.start()
    view.update(Status(source="stdin", newest=(judged("secret"),)))
    line = json.loads(log_stream.getvalue())
    assert not {"lag", "window_accuracy", "checkpoint_age_s", "trouble", "newest"} & set(line)
    assert "secret" not in log_stream.getvalue()


def test_a_model_of_fields_tells_its_features() -> None:
    """Where there is more than words, the screen counts features, and shows what is no text."""
    lines = draw(
        status(
            vocabulary_size=32,
            n_features=41,
            telling={"positive": ("score=high", "amount≈9,000")},
            newest=(judged("score high · age 41"),),
        )
    )
    text = "\n".join(map(bare, lines))
    assert re.search(r"features +41\b", text)
    assert "score=high · amount≈9,000" in text
    assert "score high · age 41" in text
    assert not re.search(r"\bwords\b", text)
