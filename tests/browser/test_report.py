"""The reports of `evaluate` and `compare` in the real browser: opened from a file, offline."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from consumers.cli import commands
from tests.browser.axe import violations
from tests.browser.conftest import Opened

DARK = "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g)[0] < 100"
INKS = "() => [...document.querySelectorAll('svg text')].map(each => getComputedStyle(each).fill)"
WIDTHS = "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"


@pytest.fixture(scope="module", params=["evaluate", "compare"])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the report of some made-up tweets."""
    folder = tmp_path_factory.mktemp("report")
    arguments = [request.param, "generator", "--max-messages", "3000"]
    if request.param == "compare":
        for name, longest in (("words", 1), ("pairs", 2)):
            path = folder / f"{name}.yaml"
            path.write_text(
                f"model: {{features: {{text: {{kind: words, ngrams: [1, {longest}]}}}}}}"
            )
            arguments.append(str(path))
    arguments += ["--report", str(folder / "report.html")]
    assert CliRunner().invoke(commands.app, arguments, catch_exceptions=False).exit_code == 0
    return folder / "report.html"


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (1440, "light"),
        pytest.param(390, "dark", marks=pytest.mark.deep),
        pytest.param(1440, "dark", marks=pytest.mark.deep),
        pytest.param(390, "light", marks=pytest.mark.deep),
    ],
)
def test_it_opens_offline(
    report: Path, open_page: Callable[..., Opened], scheme: str, width: int
) -> None:
    """It asks for nothing but itself, complains of nothing, fits the window and can be read."""
    options: dict[str, Any] = {"viewport": {"width": width, "height": 900}, "offline": True}
    page, watch = open_page(report.as_uri(), color_scheme=scheme, **options)
    watch.expect(f"leaves the machine: {re.escape(report.as_uri())}$")
    assert len(watch.complaints) == 1
    titles = page.locator("figcaption").all_inner_texts()
    assert {"Reliability", "ROC: positive", "Coverage against accuracy"} < set(titles)
    assert page.locator("svg path").count() > 50
    assert page.evaluate(DARK) is (scheme == "dark")
    assert set(page.evaluate(INKS)) == {
        "rgb(230, 234, 238)" if scheme == "dark" else "rgb(29, 39, 51)"
    }
    needed, there = page.evaluate(WIDTHS)
    assert needed <= there
    assert violations(page) == []
