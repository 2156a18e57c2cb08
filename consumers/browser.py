"""Opens the page in a browser: `streamnb run --open`."""

from __future__ import annotations

import os
import threading
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Mapping

import structlog

# A page that is served answers at once, one whose server is being imported a second later.
PATIENCE_S = 30.0
EVERY_ADDRESS = {"http://0.0.0.0:": "http://127.0.0.1:", "http://[::]:": "http://[::1]:"}
log = structlog.get_logger(__name__)


def open_page(address: str | None, environ: Mapping[str, str] = os.environ) -> None:
    """Open a page once it answers, on a thread of its own; without a screen, say where it is.

    `address` is None if nothing is served. `environ` says whether there is a screen, or a browser
    that needs none (BROWSER).
    """
    if address is None:
        log.warning("page_not_opened", detail="http.enabled is false, so there is no page to open")
        return
    for every, this in EVERY_ADDRESS.items():
        address = address.replace(every, this)
    # A browser of a terminal would take the screen that the daemon draws on.
    if not any(environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")):
        log.warning("page_not_opened", detail=f"there is no screen here; the page is at {address}")
        return
    threading.Thread(target=_open, args=(address,), name="open-page", daemon=True).start()


def _open(address: str) -> None:
    try:
        with urllib.request.urlopen(address, timeout=PATIENCE_S):  # noqa: S310 -- our own address
            opened = webbrowser.open(address)
    except (urllib.error.URLError, OSError, webbrowser.Error) as error:
        log.warning("page_not_opened", detail=f"{address}: {error}")
        return
    if not opened:
        log.warning("page_not_opened", detail=f"no browser was found; the page is at {address}")
