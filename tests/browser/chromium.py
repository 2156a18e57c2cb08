"""Chromium for the tests: the system's own, without a window, and with nobody to talk to.

Everything but 127.0.0.1 is sent to a proxy that does not exist. So neither the page nor the
browser itself can reach another machine, whatever they try.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

_NOBODY = "http://127.0.0.1:9"  # the port of "discard": nothing listens there

_LEFT_OUT = (
    # Pages that each window keeps ready below its address line, though nobody sees the window:
    # they took a quarter of the browser's processor time.
    *("AimEnabled", "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup", "WebUIOmniboxPopup"),
    # What Playwright leaves out by default, which ours stands in the place of.
    *("AvoidCorsURLLoaderRestartOnRedirect", "AvoidUnnecessaryBeforeUnloadCheckSync"),
    *("DestroyProfileOnBrowserClose", "HttpsFirstBalancedModeAutoEnable", "HttpsUpgrades"),
    *("LensOverlay", "MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints"),
    *("PaintHolding", "PreconnectToSearch", "ThirdPartyStoragePartitioning"),
)
_ARGUMENTS = (
    f"--proxy-server={_NOBODY}",
    "--proxy-bypass-list=<-loopback>;127.0.0.1",  # of this machine's addresses, that one alone
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-pings",
    "--force-color-profile=srgb",  # pictures have the same colours everywhere
    "--font-render-hinting=none",  # and letters the same widths
    f"--disable-features={','.join(_LEFT_OUT)}",
)


@contextmanager
def chromium(path: Path) -> Iterator[Browser]:
    """Start the browser; end it afterwards.

    It runs without its sandbox, which root may not use; it shows pages of ours alone.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=list(_ARGUMENTS), chromium_sandbox=False
        )
        try:
            yield browser
        finally:
            browser.close()
