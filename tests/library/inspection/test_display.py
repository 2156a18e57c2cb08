"""How models show themselves at a prompt and in a notebook."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from streamnb import Bernoulli, Multinomial, NaiveBayes, Snapshot, Words
from tests.library.inspection.mixed_models import mixed_model


class Cells(HTMLParser):
    """Collects the text of table cells, and holds every tag to be closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember an open tag; nothing is fetched from elsewhere."""
        assert not {"src", "href"} & {name for name, _ in attrs}
        self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        """Close what was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Take the text of a cell."""
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data


def cells(html: str) -> list[str]:
    """Return the text of all table cells."""
    parser = Cells()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    return parser.cells


def test_one_line_says_what_the_model_is() -> None:
    """Classes, examples, groups with their likelihoods and sizes."""
    model = NaiveBayes(["ham", "spam"], features={"text": Words(Multinomial())})
    model.learn_many({"text": ["a b", "c"]}, ["ham", "spam"])
    assert repr(model) == (
        "<NaiveBayes of ['ham', 'spam'], 2 examples learned;"
        " text: Words(Multinomial(prior=Dirichlet(concentration=1.0))), 3 words>"
    )
    assert repr(Snapshot(model, 3)).startswith("<Snapshot of ['ham', 'spam'], 2 examples learned")


def test_every_kind_of_group_has_its_size() -> None:
    """Words, fields and values are counted."""
    shown = repr(mixed_model())
    for size in ("text: Words", "7 words", "flags: Flags", "2 fields", "2 fields, 5 values",
                 "1 field>"):  # fmt: skip
        assert size in shown


def test_a_notebook_shows_classes_and_groups() -> None:
    """Two tables of well-formed HTML, that fetch nothing and set no colour of their own."""
    model = mixed_model()
    html = model._repr_html_()
    found = cells(html)
    for cell in ("'ham'", "class", "prior", "text", "Words", "2 fields, 5 values"):
        assert cell in found
    assert not re.search(r"color:\s*#|color:\s*rgb|(?<!-)black|white", html)
    assert "currentColor" in html


def test_names_are_escaped() -> None:
    """A class or group that looks like a tag is shown as it is written."""
    model = NaiveBayes(["<b>"], features={"<script>": Words(Bernoulli())})
    html = model._repr_html_()
    assert "<script>" not in html
    assert "'<b>'" in cells(html)
    assert "<script>" in cells(html)


def test_of_many_classes_the_first_are_shown() -> None:
    """The rest are counted."""
    model = NaiveBayes(range(50), features={"text": Words(Bernoulli())})
    assert "… 50 in all" in repr(model)
    assert "… and 30 more" in cells(model._repr_html_())


def test_a_model_without_classes_shows_itself_too() -> None:
    """It has learned nothing yet."""
    model = NaiveBayes(features={"text": Words(Bernoulli())})
    assert "0 examples" in repr(model)
    assert "0 words" in cells(model._repr_html_())
