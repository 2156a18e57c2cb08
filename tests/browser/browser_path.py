"""Where the browser of the tests is, and what to say where there is none.

`python -m tests.browser.browser_path` prints its path; or it fails, and prints what is missing.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def browser_path() -> tuple[Path | None, str]:
    """Look for a Chromium that can be driven.

    ``STREAMNB_CHROMIUM`` names one; where it is set, it is that one or none.

    Returns
    -------
    path : Path or None
        The program.
    missing : str
        Where there is none, what is missing and what to do, in one line.
    """
    named = os.environ.get("STREAMNB_CHROMIUM")
    if named is not None:
        if shutil.which(named) is not None:
            return Path(named), ""
        return None, f"STREAMNB_CHROMIUM={named} is no program: name another, or none"
    found = [Path(path) for name in NAMES if (path := shutil.which(name)) is not None]
    usable = [path for path in found if not _is_snap(path)]
    if usable:
        return usable[0], ""
    if found:
        return None, (
            f"{found[0]} is a snap, which tests cannot drive: install Chrome or another Chromium "
            "that is none, and name it by STREAMNB_CHROMIUM=/path/to/it"
        )
    return (
        None,
        "no Chromium found (Debian: apt install chromium; Ubuntu: install Chrome, no snap)",
    )


def require_browser() -> Path:
    """Return the program; skip where there is none, and in CI fail."""
    path, missing = browser_path()
    if path is None:
        if os.environ.get("CI", "").lower() in {"1", "true"}:
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    return path


def _is_snap(path: Path) -> bool:
    """Return whether a program lives in a snap's box, or is a script that leads into one."""
    resolved = path.resolve()
    if "snap" in resolved.parts or resolved.name == "snap":
        return True
    with resolved.open("rb") as file:
        head = file.read(4096)
    return head.startswith(b"#!") and b"/snap/" in head


if __name__ == "__main__":
    PATH, MISSING = browser_path()
    print(PATH or MISSING)  # noqa: T201 - what the setup script shows
    sys.exit(PATH is None)
