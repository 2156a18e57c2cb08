"""Write what campaigns found into docs/reliability.md.

docs/campaigns.json keeps the newest published run of each campaign; the table of the document is
written from it alone, and `tests/campaigns/test_campaigns.py` fails if a row is not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.campaigns.campaign import ROOT, Campaign

RUNS: Final = ROOT / "docs" / "campaigns.json"
GUIDE: Final = ROOT / "docs" / "reliability.md"
BEGIN: Final = "<!-- campaigns: written by `python -m tests.campaigns publish` -->\n"
END: Final = "<!-- end of campaigns -->"

Runs = Mapping[str, Mapping[str, Any]]


def publish(files: Sequence[Path], campaigns: Mapping[str, Campaign]) -> None:
    """Keep the summaries of these files, and write the document's table."""
    runs = json.loads(RUNS.read_text(encoding="utf-8"))
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            summary = json.loads(line)
            runs[summary["campaign"]] = summary
    RUNS.write_text(
        json.dumps(runs, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    text = GUIDE.read_text(encoding="utf-8")
    GUIDE.write_text(rewritten(text, runs, campaigns), encoding="utf-8")


def rewritten(text: str, runs: Runs, campaigns: Mapping[str, Campaign]) -> str:
    """Return the document with the table of these runs between its markers."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "".join([before, BEGIN, *(f"{line}\n" for line in table(runs, campaigns)), END, after])


def table(runs: Runs, campaigns: Mapping[str, Campaign]) -> Iterator[str]:
    """Yield the lines of the table: one row a campaign, in the order of the command."""
    yield "| campaign | what was run | found | date, commit | command |"
    yield "| --- | --- | --- | --- | --- |"
    for name, campaign in campaigns.items():
        run = runs.get(name)
        if run is None:
            command = f"python -m tests.campaigns {name}"
            yield f"| {campaign.what} | not yet at length | | | `{command}` |"
            continue
        of = f" of {campaign.n_full:,}" if run["n"] < campaign.n_full else ""
        size = f"{run['n']:,}{of} {campaign.step}; seed {run['seed']}, {run['seconds']:,.0f} s"
        found = ", ".join(f"{value:,} {what}" for what, value in run["figures"].items())
        command = f"python -m tests.campaigns {name} --seed {run['seed']} --n {run['n']}"
        yield (
            f"| {campaign.what} | {size} | {found} | {run['date']}, {run['commit']} | `{command}` |"
        )
