"""`python -m tests.campaigns NAME`: runs a campaign, by default at its full size.

`python -m tests.campaigns all --json FILE` runs all, and `python -m tests.campaigns publish FILE`
writes what such files hold into docs/reliability.md.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

from tests.campaigns import publish
from tests.campaigns.campaign import Campaign, FailedError, carry_out
from tests.campaigns.correcting import corrections
from tests.campaigns.daemons import broker_kills, kills, stops
from tests.campaigns.damaged_files import damaged_files
from tests.campaigns.decoding import decoders, record_batches
from tests.campaigns.deleting import deletes
from tests.campaigns.erasing import erasures
from tests.campaigns.groups import groups
from tests.campaigns.jetstream import jetstream
from tests.campaigns.live_streams import QUIET_STEPS, live_streams
from tests.campaigns.odd_configurations import odd_configurations
from tests.campaigns.odd_requests import odd_requests
from tests.campaigns.power_loss import power_loss
from tests.campaigns.replays import replays
from tests.campaigns.soak import soak

_AMID = "kills amid a checkpoint"
CAMPAIGNS: dict[str, Campaign] = {
    each.name: each
    for each in (
        Campaign(
            kills, 40, 2, "streams with 5 kills each", ("integration", "deep"), must_meet=(_AMID,)
        ),
        Campaign(broker_kills, 17, 1, "streams with 3 kills each", ("integration", "deep")),
        Campaign(
            groups,
            12,
            1,
            "streams with 12 events each",
            ("integration", "deep"),
            must_meet=("slept beyond the session", "slept for less", "died", "left"),
        ),
        Campaign(
            stops,
            50,
            2,
            "stops",
            ("integration", "deep"),
            must_meet=(
                "stops amid the stream",
                "of a file with no labels",
                "of a topic with no labels",
            ),
        ),
        Campaign(
            deletes,
            50,
            1,
            "times 20,000 messages of one log",
            ("deep",),
            is_chain=True,
            must_meet=(_AMID, "deletes", "updates", "before their message"),
        ),
        Campaign(
            corrections,
            4,
            2,
            "logs with 20 kills amid 12,000 corrections",
            ("integration", "deep"),
            must_meet=(_AMID, "corrections in the journal", "corrections in the label topic"),
        ),
        Campaign(erasures, 10, 1, "folders with 24 deletions and 3 kills each", ("deep",)),
        Campaign(
            jetstream,
            10,
            1,
            "minutes, asked for 1,000 commits a second",
            ("deep", "data"),
            is_chain=True,
        ),
        Campaign(
            live_streams,
            4,
            2,
            "times 1,000,000 frames, 20 cuts and 5 kills",
            ("deep",),
            must_meet=(QUIET_STEPS,),
        ),
        Campaign(power_loss, 300, 1, "runs of eight kinds", ("deep",)),
        Campaign(
            replays,
            100,
            1,
            "files with 4 kills or stops each",
            ("deep",),
            must_meet=("kills", "lives ended amid the file", "controls that differed"),
        ),
        Campaign(decoders, 10_000, 5, "thousand messages"),
        Campaign(record_batches, 1_000, 5, "hundred responses"),
        Campaign(
            damaged_files,
            2_000,
            5,
            "times 50 checkpoints, 25 journals and 2 parts",
            must_meet=(
                "checkpoints damaged",
                "checkpoints forged",
                "journals damaged",
                "parts damaged",
                "parts forged",
            ),
        ),
        Campaign(soak, 2_500, 60, "times 20,000 messages", ("deep",), is_chain=True),
        Campaign(odd_configurations, 1_000, 1, "times 100 configurations"),
        Campaign(odd_requests, 1_000, 3, "times 100 requests", ("deep",)),
    )
}


def main(arguments: list[str]) -> int:
    """Run what the command line names; return 1 if a step failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns", description=__doc__)
    names = parser.add_subparsers(required=True, dest="name", metavar="NAME")
    for name in ("all", *CAMPAIGNS):
        what = CAMPAIGNS[name].what if name in CAMPAIGNS else "Run every campaign."
        # argparse fills in what follows a per cent sign of a help text, but not of a description.
        one = names.add_parser(name, help=what.replace("%", "%%"), description=what)
        one.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
        one.add_argument("--first", type=int, default=0, help="the first step")
        one.add_argument("--n", type=int, help="how many steps; all if it is not given")
        one.add_argument("--json", type=Path, metavar="FILE", help="add the summary to this file")
    files = names.add_parser("publish", help=publish.publish.__doc__)
    files.add_argument("files", type=Path, nargs="*", metavar="FILE")
    said = parser.parse_args(arguments)
    if said.name == "publish":
        publish.publish(said.files, CAMPAIGNS)
        return 0
    chosen = list(CAMPAIGNS.values()) if said.name == "all" else [CAMPAIGNS[said.name]]
    # A campaign that fails takes no other with it.
    return max([_carry_out(each, said) for each in chosen])


def _carry_out(campaign: Campaign, said: argparse.Namespace) -> int:
    n = campaign.n_full if said.n is None else said.n
    _say(f"{campaign.name}, seed {said.seed}, {n:,} {campaign.step}: {campaign.what}")
    try:
        summary = json.dumps(carry_out(campaign, said.seed, said.first, n, _say))
    except FailedError as error:
        _say(f"FAILED: {error}")
        return 1
    sys.stdout.write(f"{summary}\n")
    sys.stdout.flush()
    if said.json is not None:
        said.json.parent.mkdir(parents=True, exist_ok=True)
        with said.json.open("a", encoding="utf-8") as file:
            file.write(f"{summary}\n")
    return 0


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
