"""Each campaign with a few steps, and how campaigns report what they found."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from consumers.http.app import make_app
from consumers.http.openapi import ApiRoute
from consumers.http.state import AppState
from tests.campaigns import __main__, correcting, live_streams, odd_requests, publish
from tests.campaigns.__main__ import CAMPAIGNS
from tests.campaigns.campaign import ROOT, Campaign, FailedError, Run, carry_out
from tests.campaigns.watchdog import GROWTH_MB_MAX, watched_steps
from tests.endtoend.daemon_process import environment

SEED = 14

# Published rows of before these rules, and what each lacks. None joins them: a campaign that is run
# again meets what it is for, on a commit that is merged.
MISSED = {
    "deletes": "no kill came amid a checkpoint",
    "groups": "sleeps beyond the session and shorter ones were counted together",
    "live_streams": "no step had the machine to itself, so its rate is of a busy one",
    "stops": "all were of one kind of stream",
}
OTHER_TREES = {
    "damaged_files": "on a branch, with changes",
    "deletes": "with changes",
    "simulation ece8cb0d": "on a branch, which was merged onto a newer tree",
}


@pytest.mark.deep
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[getattr(pytest.mark, mark) for mark in campaign.needs])
        for name, campaign in CAMPAIGNS.items()
    ],
)
def test_a_few_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small number of each campaign's steps passes."""
    for constant, value in {"N": 100_000, "CUTS": 2, "KILLS": 1}.items():
        monkeypatch.setattr(live_streams, constant, value)
    for constant, value in {"KILLS": 2, "CORRECTIONS": 400}.items():
        monkeypatch.setattr(correcting, constant, value)
    found = carry_out(CAMPAIGNS[name], SEED, 0, CAMPAIGNS[name].n_small, print)
    assert found["figures"]


@pytest.mark.parametrize("name", [None, *CAMPAIGNS])
def test_help_says_what_a_campaign_shows(
    name: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list of all campaigns, and the help of each."""
    with pytest.raises(SystemExit, match="0"):
        __main__.main(["--help"] if name is None else [name, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for campaign in CAMPAIGNS.values() if name is None else [CAMPAIGNS[name]]:
        assert campaign.what in shown


def unlucky(run: Run) -> None:
    """Fails by chance."""
    for chance, folder in run.steps():
        assert not list(folder.iterdir())
        run.figures["steps begun"] += 1
        assert chance.random() < 0.9


def test_a_failure_names_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that a failure prints fails at once; one that passes prints its summary."""
    monkeypatch.setitem(CAMPAIGNS, "unlucky", Campaign(unlucky, 1_000, 1, "steps"))
    assert __main__.main(["unlucky", "--seed", "5"]) == 1
    said = capsys.readouterr().err
    command = said.strip().rpartition("replay: python -m tests.campaigns ")[2].split()
    assert command[:3] == ["unlucky", "--seed", "5"]
    assert int(command[4]) > 0
    assert __main__.main(command) == 1
    seed = next(s for s in range(10_000) if _first_failure(s) == 4)
    with pytest.raises(FailedError, match="step 4 failed"):
        carry_out(CAMPAIGNS["unlucky"], seed, 2, 10, print)
    capsys.readouterr()
    assert __main__.main(["unlucky", "--seed", "5", "--n", "1"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["campaign"], summary["n"], summary["seed"]) == ("unlucky", 1, 5)
    assert summary["figures"] == {"steps begun": 1}


def _first_failure(seed: int) -> int:
    return next(i for i in range(1_000) if random.Random(f"unlucky/{seed}/{i}").random() >= 0.9)


def test_a_long_run_that_missed_what_it_is_for_fails() -> None:
    """A short run may miss it by chance; from a tenth of the full size on it is an error."""
    campaign = Campaign(unlucky, 100, 1, "steps", must_meet=("steps begun", "kills"))
    seed = next(seed for seed in range(10_000) if _first_failure(seed) >= 10)
    assert carry_out(campaign, seed, 0, 9, print)["figures"] == {"steps begun": 9}
    with pytest.raises(FailedError, match="10 steps, and never: kills"):
        carry_out(campaign, seed, 0, 10, print)


def test_odd_requests_ask_whatever_route_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A route that is new is asked by itself; one that nobody asks is found in the metrics."""

    async def answer(_request: Request) -> Response:
        return Response()

    def with_one_more(state: AppState) -> Starlette:
        app = make_app(state)
        app.router.routes.append(ApiRoute("/v1/new/{name}", answer, None, "PUT"))
        return app

    monkeypatch.setattr(odd_requests, "make_app", with_one_more)
    known, chance = odd_requests.routes(), random.Random(SEED)
    assert ("PUT", "/v1/new/") in known
    assert {("GET", f"/v1/{name}") for name in ("export", "history", "snapshot")} < {*known}
    lines = b"\n".join(odd_requests.request(chance, known) for _ in range(3_000)).splitlines()
    for method, path in known:
        begin = f"{method} {path}".encode()
        assert any(line.startswith((begin + b" ", begin + b"?")) for line in lines), path
    served = 'streamnb_http_requests_total{method="PUT",route="/v1/new/{name}",status="200"} 1'
    assert ("GET", "/embed") in odd_requests.unasked(served)
    assert ("PUT", "/v1/new/{name}") in odd_requests.unasked("")
    assert ("PUT", "/v1/new/{name}") not in odd_requests.unasked(served)


# The first waits, the second works for ever.
@pytest.mark.parametrize("hang", ["threading.Event().wait()", "next(i for i in count() if i < 0)"])
def test_a_step_that_hangs_is_ended_and_named(hang: str) -> None:
    """A step has a limit that only a hang reaches; the replay and the tracebacks are shown."""
    code = f"""
import threading
from itertools import count
from tests.campaigns.watchdog import watchdog
with watchdog(0.5) as say:
    for step in range(3):
        say(f"step {{step}}")
    {hang}
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env=environment(), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == -signal.SIGABRT
    assert "it hangs, for more than 0.5 s; replay: step 2\n" in done.stderr
    assert 'File "<string>", line 8' in done.stderr


def hoarding(run: Run) -> None:
    """Holds ten megabytes more with each step."""
    held = [b"x" * 10_000_000 for _ in watched_steps(run)]
    assert len(held) == run.n


def test_a_campaign_that_grows_fails() -> None:
    """What it holds may grow after its first tenth, but not beyond the bound."""
    campaign = Campaign(hoarding, 100, 1, "steps")
    found = carry_out(campaign, SEED, 0, 4, print)
    assert 20 <= found["figures"]["MB of growth"] <= GROWTH_MB_MAX
    with pytest.raises(FailedError, match=r"it holds \d+ MB more than"):
        carry_out(campaign, SEED, 0, 14, print)


def test_the_table_is_that_of_the_published_runs() -> None:
    """Every row of docs/reliability.md is written from docs/campaigns.json."""
    runs = json.loads(publish.RUNS.read_text(encoding="utf-8"))
    text = publish.GUIDE.read_text(encoding="utf-8")
    again = "run: python -m tests.campaigns publish (with no new file it renews the table)"
    assert publish.rewritten(text, runs, CAMPAIGNS) == text, again
    assert set(runs) <= set(CAMPAIGNS)


def test_published_runs_met_what_their_campaigns_are_for() -> None:
    """No figure that a campaign must meet is missing from its row, but in the rows listed."""
    runs = json.loads(publish.RUNS.read_text(encoding="utf-8"))
    missed = {
        name
        for name, run in runs.items()
        if not all(run["figures"].get(each) for each in CAMPAIGNS[name].must_meet)
    }
    assert missed == set(MISSED), "run them again; what is mended is struck out of MISSED"


def test_published_runs_are_of_this_history() -> None:
    """Each row's commit led to this tree, with no changes beside it, but for the rows listed.

    A copy without the history cannot say so, and CI takes no skip: there nothing is asked.
    """
    runs = json.loads(publish.RUNS.read_text(encoding="utf-8"))
    trees = {name: run["commit"] for name, run in runs.items()}
    for commit in re.findall(r"\bcommit ([0-9a-f]{7,})", publish.GUIDE.read_text(encoding="utf-8")):
        trees[f"simulation {commit}"] = commit
    is_shallow = _git("rev-parse", "--is-shallow-repository").stdout.strip() != "false"
    if is_shallow or all(_git("cat-file", "-e", tree).returncode for tree in trees.values()):
        return
    odd = {
        name
        for name, tree in trees.items()
        if " " in tree or _git("merge-base", "--is-ancestor", tree, "HEAD").returncode
    }
    assert odd == set(OTHER_TREES), "run them again; what is mended is struck out of OTHER_TREES"


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_summary_becomes_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishing a file of summaries changes the rows of its campaigns, and no other line."""
    for name in ("RUNS", "GUIDE"):
        copy = tmp_path / getattr(publish, name).name
        copy.write_bytes(getattr(publish, name).read_bytes())
        monkeypatch.setattr(publish, name, copy)
    before = publish.GUIDE.read_text(encoding="utf-8").splitlines()
    name = "damaged_files"
    summary = carry_out(CAMPAIGNS[name], 77_777, 0, 1, print)
    file = tmp_path / "found.json"
    file.write_text(json.dumps(summary) + "\n", encoding="utf-8")
    assert __main__.main(["publish", str(file)]) == 0
    after = publish.GUIDE.read_text(encoding="utf-8").splitlines()
    (new,) = set(after) - set(before)
    assert f"`python -m tests.campaigns {name} --seed 77777 --n 1`" in new
    assert len(after) == len(before)
