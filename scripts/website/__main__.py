"""Builds the site: `python -m scripts.website [FOLDER]`, into build/site if none is named.

Every warning is an error. Sphinx stands behind it because it is kept by many, reads docstrings from
the code itself, reads Markdown as CommonMark does, and its search works from a folder of files.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from sphinx.cmd.build import build_main

from scripts.website.staging import ROOT, WEBSITE, stage


def main(target: Path) -> int:
    """Build the site into a folder, which is emptied first; return Sphinx's exit code."""
    with tempfile.TemporaryDirectory() as name:
        sources, doctrees = Path(name) / "sources", Path(name) / "doctrees"
        stage(sources)
        if target.exists():
            shutil.rmtree(target)
        strict = ["--fail-on-warning", "--quiet", "--fresh-env"]
        folders = ["--conf-dir", str(WEBSITE), "--doctree-dir", str(doctrees)]
        status = build_main(["--builder", "html", *strict, *folders, str(sources), str(target)])
    if status == 0:
        print(f"{target / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"))
