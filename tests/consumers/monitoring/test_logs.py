"""Logs: JSON for machines, colour for people, libraries by the same door, lines held back."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
from functools import partial
from typing import Any

import httpx
import pytest
import structlog

from consumers.monitoring.logs import HELD_LINES_MAX, HeldLines, configure, trouble
from tests.consumers.http.loopback_server import PATIENCE_S, app_state, served, settings

SECRET = "marked-secret"


class Terminal(io.StringIO):
    """A text file that says it is a terminal."""

    def isatty(self) -> bool:
        """Say yes."""
        return True


def objects(stream: io.StringIO) -> list[dict[str, Any]]:
    """Read a stream's lines as JSON objects."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object() -> None:
    """A log line is one line of JSON with event, level, time and its fields, whatever they hold."""
    stream = io.StringIO()
    configure(stream)
    text = "two\nlines \x1b[31m “宽” 😀"
    structlog.get_logger("streamnb").info("read", text=text, n=3, path=io, unknown=None)
    (line,) = objects(stream)
    assert stream.getvalue().count("\n") == 1
    assert line.pop("timestamp").endswith("Z")
    assert line.pop("path") == str(io)  # what JSON has no form for is told by its text
    assert line == {"event": "read", "level": "info", "text": text, "n": 3, "unknown": None}
    assert "宽" in stream.getvalue()


def test_libraries_leave_by_the_same_door() -> None:
    """A line of the standard library's logging looks like one of ours, its arguments filled in."""
    stream = io.StringIO()
    configure(stream)
    logging.getLogger("some.library").warning("%d of %s", 3, "seven")
    (line,) = objects(stream)
    assert (line["event"], line["level"]) == ("3 of seven", "warning")
    assert "timestamp" in line


def test_chatter_is_left_out() -> None:
    """Debug lines, kafka-python's errors and uvicorn's news are left out, its warnings told."""
    stream = io.StringIO()
    configure(stream)
    structlog.get_logger("streamnb").debug("detail")
    logging.getLogger("kafka.client").error("no broker")
    logging.getLogger("uvicorn.access").info("GET /")
    logging.getLogger("uvicorn.error").warning("port in use")
    assert [line["event"] for line in objects(stream)] == ["port in use"]


def test_a_server_keeps_its_chatter_back_as_long_as_it_serves() -> None:
    """Of two that serve beside each other the first may end first: nothing stays kept back."""
    stream = io.StringIO()
    configure(stream)
    chatter = logging.getLogger("uvicorn.error")
    with app_state(settings()) as made, contextlib.ExitStack() as later:
        with served(made) as port:
            get = partial(httpx.get, trust_env=False, timeout=PATIENCE_S)
            assert get(f"http://127.0.0.1:{port}/healthz").status_code
            other = later.enter_context(served(made))
            assert get(f"http://127.0.0.1:{other}/healthz").status_code
        chatter.warning("while the other serves")
    chatter.warning("after both")
    said = [line["event"] for line in objects(stream)]
    assert [each for each in said if not each.startswith("HTTP Request")] == ["after both"]


def test_an_exception_is_a_field_of_its_line() -> None:
    """A logged exception stands in its JSON line as text, and makes no lines of its own."""
    stream = io.StringIO()
    configure(stream)
    try:
        int("three")
    except ValueError:
        structlog.get_logger("streamnb").exception("failed")
    (line,) = objects(stream)
    assert "ValueError: invalid literal" in line["exception"]
    assert line["level"] == "error"


def test_people_get_text_and_colour() -> None:
    """At a terminal lines are coloured text, and JSON can be asked for all the same."""
    terminal = Terminal()
    configure(terminal)
    structlog.get_logger("streamnb").info("read", n=3)
    assert "\x1b[" in terminal.getvalue()
    assert "read" in terminal.getvalue()
    terminal = Terminal()
    configure(terminal, json=True)
    structlog.get_logger("streamnb").info("read", n=3)
    assert objects(terminal)[0]["n"] == 3
    plain = io.StringIO()
    configure(plain, json=False)
    structlog.get_logger("streamnb").info("read", n=3)
    assert "\x1b[" not in plain.getvalue()
    assert "n=3" in plain.getvalue()


def test_the_last_configuration_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """Configured anew, lines go to the new place alone; by default that is standard error."""
    stream = io.StringIO()
    configure(stream)
    logger = structlog.get_logger("streamnb")
    logger.info("first")
    configure()
    logger.info("second")
    assert [line["event"] for line in objects(stream)] == ["first"]
    captured = capsys.readouterr()
    assert json.loads(captured.err)["event"] == "second"
    assert captured.out == ""


def test_held_lines_follow_at_the_release() -> None:
    """Lines held back reach the terminal at the release, in their order, once."""
    terminal = Terminal()
    held = HeldLines(terminal)
    configure(held)
    for i in range(3):
        structlog.get_logger("streamnb").info("line", number=i)
    assert terminal.getvalue() == ""
    held.release()
    written = terminal.getvalue()
    assert written.count("\n") == 3
    assert "\x1b[" in written  # it knows that a terminal is behind it
    held.release()
    assert terminal.getvalue() == written


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_traceback_shows_no_variables(stream: type[io.StringIO]) -> None:
    """An error's traceback says where it was, at a terminal too, and no value beside it."""
    out = stream()
    configure(out, json=not out.isatty())

    def connect(password: str) -> None:
        raise ConnectionError(f"refused after {len(password)} characters")

    try:
        connect(SECRET)
    except ConnectionError:
        structlog.get_logger("streamnb").exception("it_failed")
    assert "in connect" in out.getvalue()
    assert "refused after 13" in out.getvalue()
    assert SECRET not in out.getvalue()


def test_held_lines_are_bounded_and_say_so() -> None:
    """The newest lines are kept, older ones counted; the next release begins at none."""
    stream = io.StringIO()
    held = HeldLines(stream)
    assert not held.isatty()
    for i in range(HELD_LINES_MAX + 5):
        held.write(f"{i}\n")
    held.flush()
    assert stream.getvalue() == ""
    held.release()
    first, *others = stream.getvalue().splitlines()
    assert first.startswith("(5 older")
    assert others == [str(i) for i in range(5, HELD_LINES_MAX + 5)]
    held.write("later\n")
    held.release()
    assert stream.getvalue().splitlines()[-2:] == [str(HELD_LINES_MAX + 4), "later"]


def test_a_closed_stream_is_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines that go nowhere are told of as trouble, and ended by the next one that is written."""
    stream = io.StringIO()
    configure(stream)
    stream.close()
    structlog.get_logger("streamnb").warning("lost")
    assert trouble() == "log lines are lost: they cannot be written (what they go to is closed)"
    assert capsys.readouterr() == ("", "")
    (handler,) = logging.getLogger().handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.stream = io.StringIO()
    structlog.get_logger("streamnb").warning("written")
    assert trouble() is None
    assert "written" in handler.stream.getvalue()


def test_standard_error_is_looked_up_when_asked() -> None:
    """The default is standard error as it is at the call, so that a test's capture sees it."""
    configure()
    (handler,) = logging.getLogger().handlers
    assert isinstance(handler, logging.StreamHandler)
    assert handler.stream is sys.stderr
