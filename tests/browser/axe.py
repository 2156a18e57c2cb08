"""axe-core on a page: what it finds wrong for readers who do not see, or see differently."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

_AXE = Axe()


def violations(page: Page) -> list[str]:
    """Return what breaks a rule of axe-core, all of which are tried; one line for each element."""
    found = _AXE.run(page).response["violations"]
    return [
        f"{rule['id']} ({rule['impact']}): {' '.join(node['target'])}: {node['failureSummary']}"
        for rule in found
        for node in rule["nodes"]
    ]
