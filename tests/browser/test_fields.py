"""What the page draws of categories, flags and numbers, and of models by the value of a field."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import yaml
from playwright.sync_api import Browser, expect

from tests.browser.axe import violations
from tests.browser.conftest import Opened
from tests.browser.file_daemon import Book
from tests.endtoend.daemon_process import Daemon, write_config

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "loan.yaml"


def test_fields_by_class(
    browser: Browser, tmp_path: Path, open_page: Callable[..., Opened]
) -> None:
    """Each field of the example of loans has its figure, which fits a phone, in either theme."""
    assert browser.is_connected()
    sections = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    sections["checkpoint"] = {"folder": None}
    with Daemon(write_config(tmp_path / "config.yaml", **sections)) as daemon:
        daemon.until_metric("streamnb_messages_total", 500)
        for scheme, width in (("light", 1280), ("dark", 390)):
            page, _ = open_page(
                f"{daemon.address}/?view=model",
                color_scheme=scheme,
                viewport={"width": width, "height": 900},
            )
            fields = page.get_by_test_id("field")
            expect(fields).to_have_count(6)
            names = fields.locator("h3 bdi").all_inner_texts()
            assert names == ["income", "score", "missed_payments", "stable_job", "age", "amount"]
            expect(fields.nth(1).locator("tbody tr")).to_have_count(2)
            expect(fields.nth(4).locator(".curves path")).to_have_count(2)
            expect(page.get_by_role("heading", name="Fields by class")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert violations(page) == []
            page.goto("about:blank")  # it would complain of a daemon that is gone
        assert daemon.stop() == 0


def test_words_alone_have_no_fields(book: Book, open_page: Callable[..., Opened]) -> None:
    """Where a model reads nothing but words the part is left away."""
    page, _ = open_page("about:blank")
    with page.expect_response("**/page/fields"):
        page.goto(f"{book.address}/?view=model")
    expect(page.get_by_test_id("telling").first).to_be_visible()
    expect(page.get_by_role("heading", name="Fields by class")).to_be_hidden()


def test_a_field_with_a_blank_can_be_asked_for(
    browser: Browser, tmp_path: Path, open_page: Callable[..., Opened]
) -> None:
    """What the page and its errors offer as a condition is read as one; a wrong form is told."""
    assert browser.is_connected()
    lines = [
        json.dumps(
            {"id": f"l{i}", "loan amount": 1_000 * i, "label": ("positive", "negative")[i % 2]}
        )
        for i in range(30)
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    features = {"amounts": {"kind": "numbers", "fields": ["loan amount"]}}
    model = {"classes": ["positive", "negative"], "features": features}
    config = write_config(tmp_path / "config.yaml", source="file:in.jsonl", model=model)
    with Daemon(config) as daemon:
        daemon.until_page("/v1/summary", 200, f'"n":{len(lines)},')
        page, _ = open_page(f"{daemon.address}/?q=wether:wet")
        offered = 'Conditions begin with lang:, label:, confidence:, "loan amount":.'
        expect(page.get_by_test_id("messages-empty")).to_contain_text(offered)
        box = page.get_by_test_id("search-box")
        for wrong in ("loan amount:>10000", '"loan amount":> 10000'):
            box.fill(wrong)
            problem = page.get_by_test_id("search-problem")
            expect(problem).to_contain_text('write "loan amount":>10000, or put words in quotes.')
        box.fill('"loan amount":>10000')
        expect(page.get_by_test_id("message")).to_have_count(19)
        page.goto("about:blank")  # it would complain of a daemon that is gone
        assert daemon.stop() == 0


def test_the_answer_names_the_model_of_its_language(
    browser: Browser, tmp_path: Path, open_page: Callable[..., Opened]
) -> None:
    """A text alone is answered by the shared model, a message by its language's; both say so."""
    assert browser.is_connected()
    lines = [
        json.dumps({"id": f"{lang}{i}", "text": text, "lang": lang, "label": label})
        for i in range(30)
        for lang, sides in (("en", ("gift", "rope")), ("de", ("rope", "gift")))
        for text, label in zip(sides, ("positive", "negative"), strict=True)
    ]
    lines.append(json.dumps({"id": "ja", "text": "gift", "lang": "ja", "label": "positive"}))
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    config = write_config(
        tmp_path / "config.yaml", source="file:in.jsonl", per={"field": "lang", "examples_min": 50}
    )
    with Daemon(config) as daemon:
        daemon.until_page("/v1/model", 200, f'"n_examples":{len(lines)},')
        page, _ = open_page(f"{daemon.address}/?view=try")
        page.get_by_test_id("try-text").fill("gift")
        found = page.get_by_test_id("try-label")
        expect(found).to_contain_text("answered by the shared model: no lang is given")
        page.get_by_test_id("try-mode-json").check()
        for lang, label in (("en", "positive"), ("de", "negative")):
            page.get_by_test_id("try-json").fill(json.dumps({"text": "gift", "lang": lang}))
            expect(found).to_contain_text(label, ignore_case=True)
            expect(found).to_contain_text(f"answered by the model of {lang}: 60 labelled messages")
        assert violations(page) == []
        page.goto(f"{daemon.address}/?view=model")
        rows = page.get_by_role("region", name="Models by lang").locator("tbody tr")
        expect(rows.nth(0)).to_contain_text(re.compile(r"en\s*60\s*[\d.]+%\s*[\d.]+%\s*itself"))
        expect(rows).to_have_count(3)
        expect(rows.nth(2)).to_contain_text("the shared model, until 50")
        assert violations(page) == []
        page.goto("about:blank")  # it would complain of a daemon that is gone
        assert daemon.stop() == 0
