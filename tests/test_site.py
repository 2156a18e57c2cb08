"""The documentation site builds without a warning, whole, and no link in it is dead.

It is built once, so one test asks all that needs it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import streamnb
from consumers.http.client import Client
from scripts.lessons import lessons
from scripts.website import staging
from scripts.website.reference import reference_pages
from scripts.website.staging import ROOT, documents, page_of, stage, turn_links
from streamnb import testing

_FETCHED = {("script", "src"), ("img", "src"), ("link", "href"), ("source", "srcset")}
_RELATIONS_UNFETCHED = {"canonical", "prev", "next", "search", "index"}


class Links(HTMLParser):
    """Reads a page's links, anchors, and what a browser fetches for it.

    Attributes
    ----------
    links, fetched : list of str
    anchors : set of str
    """

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what the tag says."""
        given = {name: value or "" for name, value in attrs}
        self.anchors.update({given.get("id", ""), given.get("name", "")} - {""})
        for name, value in given.items():
            if name in {"href", "src", "srcset"}:
                self.links.append(value)
            related = set(given.get("rel", "").split())
            if (tag, name) in _FETCHED and not related & _RELATIONS_UNFETCHED:
                self.fetched.append(value)


def dead_links(site: Path) -> list[str]:
    """Return each link within a site that leads to no file, or to no anchor of one, by its page."""
    pages = {path: Links(path) for path in sorted(site.rglob("*.html"))}
    dead = []
    for page, found in pages.items():
        for link in found.links:
            parts = urlsplit(link)
            if parts.scheme in {"http", "https", "mailto", "data"}:
                continue
            # An address from the root would be of a server's, and a folder's is not a file's.
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            anchor = unquote(parts.fragment)
            is_there = target.is_file() and not link.startswith("/")
            if anchor and target in pages:
                is_there = is_there and anchor in pages[target].anchors
            if not is_there:
                dead.append(f"{page.relative_to(site)}: {link}")
    return dead


def fetched_from_elsewhere(site: Path) -> Iterator[str]:
    """Yield what a page or a style sheet of a site would fetch from another place."""
    for path in site.rglob("*.html"):
        yield from (each for each in Links(path).fetched if "//" in each)
    for path in site.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        yield from re.findall(r"(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"')]+)", text)


def documented_names(site: Path) -> set[str]:
    """Return the names of Python objects that a site's inventory lists."""
    head, body = re.split(rb"(?<=using zlib\.\n)", (site / "objects.inv").read_bytes(), maxsplit=1)
    assert head.startswith(b"# Sphinx inventory version 2")
    lines = zlib.decompress(body).decode("utf-8").splitlines()
    return {line.split(" ", 1)[0] for line in lines if " py:" in line}


@pytest.mark.deep
def test_the_site_builds_strictly_and_no_link_is_dead(tmp_path: Path) -> None:
    """No warning, every document and public name, the search, and nothing from elsewhere."""
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "scripts.website", site],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert dead_links(site) == []
    assert list(fetched_from_elsewhere(site)) == []

    for path in documents():
        page = (site / page_of(path)).with_suffix(".html")
        heading = re.search(r"<h1>(.*?)<a class=\"headerlink\"", page.read_text(encoding="utf-8"))
        assert heading, path
    lesson = (site / "lessons" / "01_counting.html").read_text(encoding="utf-8")
    (notebook,) = re.findall(r'href="\.\./(_downloads/\w+/01_counting\.ipynb)"', lesson)
    assert (site / notebook).is_file()

    names = documented_names(site)
    assert {f"streamnb.{name}" for name in streamnb.__all__} <= names
    assert {f"streamnb.testing.{name}" for name in testing.__all__} <= names
    methods = {name for name in vars(Client) if not name.startswith("_")}
    assert {f"consumers.http.client.Client.{name}" for name in methods} <= names
    assert {f"streamnb.NaiveBayes.{name}" for name in ("learn_one", "explain_one")} <= names
    # The search is a script that is read as any other, so it works from a folder too.
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert index.startswith("Search.setIndex(")
    assert "unlearn" in index


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    """A missing page, a missing anchor, and an address from the root are dead; others are not."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "b c.html").write_text('<h1 id="top">b</h1>', encoding="utf-8")
    (tmp_path / "sub" / "a.html").write_text(
        '<a href="../b%20c.html#top">1</a> <a href="../b%20c.html#end">2</a>'
        '<a href="no.html">3</a>'
        '<a href="/b%20c.html">4</a> <a href="#here">5</a> <i id="here"></i>'
        '<a href="https://example.org/x">6</a> <a href="../sub">7</a> <img src="no.png">',
        encoding="utf-8",
    )
    assert [each.removeprefix("sub/a.html: ") for each in dead_links(tmp_path)] == [
        "../b%20c.html#end",
        "no.html",
        "/b%20c.html",
        "../sub",
        "no.png",
    ]


def test_what_is_fetched_from_elsewhere_is_found(tmp_path: Path) -> None:
    """A script or a font of another host is seen; a link to it is not fetched."""
    (tmp_path / "a.html").write_text(
        '<a href="https://example.org">1</a> <script src="//example.org/a.js"></script>'
        '<link rel="stylesheet" href="https://example.org/a.css"> <link rel="next" href="b.html">',
        encoding="utf-8",
    )
    (tmp_path / "a.css").write_text(
        "@font-face { src: url('https://example.org/a.woff2') } a { background: url(data:x) }",
        encoding="utf-8",
    )
    assert list(fetched_from_elsewhere(tmp_path)) == [
        "//example.org/a.js",
        "https://example.org/a.css",
        "https://example.org/a.woff2",
    ]


def test_links_are_turned_to_the_site() -> None:
    """Pages, pictures and files have their places there; code and other sites are left alone."""
    text = (
        "[a](models.md#words) [b](../README.md) ![c](pictures/x.png) [d](../config.yaml)\n"
        "[e](#here) [f](https://example.org/a.md) [g](lessons/README.md)\n\n"
        "```md\n[h](../README.md)\n```\n"
    )

    def link_to(path: str) -> str:
        return f"files/{path}" if path.endswith(".yaml") else page_of(path)

    assert turn_links(text, "docs/models.md", link_to) == (
        "[a](models.md#words) [b](index.md) ![c](pictures/x.png) [d](files/config.yaml)\n"
        "[e](#here) [f](https://example.org/a.md) [g](lessons/index.md)\n\n"
        "```md\n[h](../README.md)\n```\n"
    )


def test_a_document_without_a_place_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document that the navigation leaves out ends the build, by its name."""
    monkeypatch.setitem(staging.NAVIGATION, "Start", ["guides"])
    with pytest.raises(ValueError, match=r"differ in .*tutorial"):
        stage(tmp_path)


def test_a_public_name_without_a_page_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """So does a public name that no page of the reference has."""
    monkeypatch.setattr(streamnb, "__all__", [*streamnb.__all__, "NewThing"])
    with pytest.raises(ValueError, match="NewThing"):
        reference_pages()


def test_every_lesson_has_its_notebook(tmp_path: Path) -> None:
    """They are laid out beside the lessons."""
    stage(tmp_path)
    staged = sorted(path.stem for path in (tmp_path / "lessons").glob("*.ipynb"))
    assert staged == [path.stem for path in lessons()]
