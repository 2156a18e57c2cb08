"""Lays out the site's sources: guides, the files they link to, notebooks, reference pages.

The Markdown stays as it is read where the code is kept; on its way into the site its links are
turned to where the pages stand there. A file of the project that is no page, as `config.yaml`,
becomes a page that shows it.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from scripts.lessons import lessons
from scripts.website.notebooks import notebook
from scripts.website.reference import reference_pages

ROOT = Path(__file__).resolve().parents[2]
WEBSITE = Path(__file__).resolve().parent

# Where a document stands on the site, if not where its name says.
_PLACES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "deploy/README.md": "deploy.md",
    "docs/README.md": "guides.md",
    "docs/lessons/README.md": "lessons/index.md",
}

# The navigation: each part with its pages, in their order. A page that is missing here is an error.
NAVIGATION: dict[str, list[str]] = {
    "Start": ["tutorial", "gallery", "page", "guides"],
    "How-to guides": [
        "models",
        "streams",
        "live",
        "late-labels",
        "recording",
        "evaluation",
        "calibration",
        "drift",
        "river-and-scikit-learn",
        "spark",
        "deploy",
        "runbook",
        "reproduce",
    ],
    "Reference": [
        "configuration",
        "api",
        "metrics",
        "reference/index",
        "format",
        "statistics",
        "accuracy",
        "performance",
    ],
    "Architecture": [
        "architecture",
        "reliability",
        "scale",
        "threat-model",
        "security",
        "contributing",
        "changelog",
    ],
    "Lessons": ["lessons/index"],
}

_FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
_PICTURES = {".png", ".svg"}
_LANGUAGES = {".json": "json", ".py": "python", ".yaml": "yaml", ".yml": "yaml"}


def documents() -> list[str]:
    """Return the paths of all Markdown documents that become pages."""
    below = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    return sorted({*_PLACES, *below})


def page_of(path: str) -> str:
    """Return where a document or picture of the project stands on the site."""
    return _PLACES.get(path, path.removeprefix("docs/"))


def turn_links(text: str, path: str, link_to: Callable[[str], str]) -> str:
    """Return a document with its links turned to the site.

    Parameters
    ----------
    text : str
        The document.
    path : str
        Where it stands in the project.
    link_to : callable
        Returns where on the site a file of the project stands.
    """

    def turned(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match["path"]))
        place = posixpath.relpath(link_to(target), posixpath.dirname(page_of(path)) or ".")
        return f"]({place}{match['anchor'] or ''})"

    parts = _FENCE.split(text)  # every second one is code
    return "".join(part if i % 2 else _LINK.sub(turned, part) for i, part in enumerate(parts))


def stage(folder: Path) -> None:
    """Write the sources of the site into an empty folder.

    Raises
    ------
    ValueError
        If a document has no place in the navigation, or the navigation names none.
    FileNotFoundError
        If a document links to a file that is not there.
    """
    pages = documents()
    shown: set[str] = set()  # files that are no pages, and linked to

    def link_to(path: str) -> str:
        if path in pages or PurePosixPath(path).suffix in _PICTURES:
            return page_of(path)
        if not (ROOT / path).is_file():
            raise FileNotFoundError(f"{ROOT / path}: a document links to it, and no file is there")
        shown.add(path)
        return f"files/{path}.rst"

    for path in pages:
        text = turn_links((ROOT / path).read_text(encoding="utf-8"), path, link_to)
        _write(folder / page_of(path), text + _contents(path, pages))
    for lesson in lessons():
        _write(folder / "lessons" / f"{lesson.stem}.ipynb", notebook(lesson))
        page = folder / "lessons" / lesson.name
        title, rest = page.read_text(encoding="utf-8").split("\n", 1)
        _write(page, f"{title}\n\n[This lesson as a notebook]({lesson.stem}.ipynb)\n{rest}")
    for place, text in reference_pages().items():
        _write(folder / place, text)
    for path in sorted(shown):
        _write(folder / "files" / f"{path}.rst", _file_page(path, folder))
    for pictures in ("pictures", "lessons/figures"):
        shutil.copytree(ROOT / "docs" / pictures, folder / pictures)
    shutil.copytree(WEBSITE / "static", folder / "static")


def _contents(path: str, pages: list[str]) -> str:
    """Return the lists of pages below a document, which the navigation is made of."""
    if path == "docs/lessons/README.md":
        return _toctree("", [lesson.stem for lesson in lessons()])
    if path != "README.md":
        return ""
    named = [page for part in NAVIGATION.values() for page in part]
    there = {page_of(path).removesuffix(".md") for path in pages} | {"reference/index"}
    there = {page for page in there if not re.match(r"lessons/\d|index$", page)}
    if there != set(named):
        odd = ", ".join(sorted(there.symmetric_difference(named)))
        raise ValueError(
            f"scripts/website/staging.py: NAVIGATION and docs/ differ in {odd}: "
            "give each document one place"
        )
    return "".join(_toctree(title, names) for title, names in NAVIGATION.items())


def _toctree(caption: str, names: list[str]) -> str:
    """Return a list of pages for the navigation, which the page itself does not show."""
    title = [f":caption: {caption}"] if caption else []
    return "\n".join(["\n```{toctree}", ":hidden:", *title, "", *names, "```", ""])


def _file_page(path: str, folder: Path) -> str:
    """Return a page that shows a file of the project; the search leaves it out."""
    here = (folder / "files" / path).parent
    language = _LANGUAGES.get(PurePosixPath(path).suffix, "text")
    included = os.path.relpath(ROOT / path, here)
    title = "=" * len(path)
    return (
        f":orphan:\n:nosearch:\n\n{path}\n{title}\n\n"
        f".. literalinclude:: {included}\n   :language: {language}\n"
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
