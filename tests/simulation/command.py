"""The command line of the simulation: seeds, bugs, and what to do with a seed that fails.

A run that fails is shrunk: events leave it as long as it still fails. What is left is a plan, which
`--keep` writes into the seed book beside this file, and every later run begins with the book. A
plan of the book is run again by its number there, as its seed may draw another one by now.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

from streamnb.kernels.jit import entry_points
from tests.simulation import plan as plans
from tests.simulation.bugs import BUGS
from tests.simulation.plan import Event, Plan
from tests.simulation.run import Outcome, carry_out

BOOK = Path(__file__).with_name("seeds.txt")
_SHM = Path("/dev/shm")
_SHRINKING_MAX = 150  # runs
_SAY_S = 30.0


def attempt(plan: Plan, bug: str | None = None) -> Outcome:
    """Run a plan in a folder of its own."""
    gc.collect()  # what is left of the run before
    with tempfile.TemporaryDirectory(dir=_SHM if _SHM.is_dir() else None) as folder:
        return carry_out(plan, Path(folder), bug)


def shrunk(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """Return a plan with fewer events that still fails."""
    n_runs, size = 0, max(1, len(plan.events) // 2)
    while size and n_runs < _SHRINKING_MAX:
        begin = 0
        while begin < len(plan.events) and n_runs < _SHRINKING_MAX:
            smaller = replace(plan, events=plan.events[:begin] + plan.events[begin + size :])
            n_runs += 1
            if fails(smaller):
                plan = smaller
            else:
                begin += size
        size //= 2
    return plan


def encoded(plan: Plan) -> str:
    """Return a plan as a line of the book."""
    return json.dumps(asdict(plan))


def decoded(line: str) -> Plan:
    """Return the plan of a line of the book."""
    said = json.loads(line)
    return Plan(**{**said, "events": tuple(Event(**each) for each in said["events"])})


def book() -> Iterator[Plan]:
    """Yield the plans of the seed book."""
    for line in BOOK.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            yield decoded(line)


def warm_up() -> None:
    """Load all kernels and run one plan of each kind: what happens once in a process is done here.

    Of simulated threads two would load a kernel at the same time, behind the compiler's real lock.
    """
    gc.disable()  # collections would run finalizers at moments that no seed decides
    for kernel in entry_points:
        if kernel.is_kept:
            kernel.compile()
    kinds: set[tuple[bool, bool]] = set()
    for seed in range(100):
        plan = plans.draw(seed)
        kind = plan.has_page, plan.n_daemons > 1
        if kind not in kinds:
            kinds.add(kind)
            attempt(replace(plan, events=plan.events[:10]))
    gc.collect()
    gc.freeze()  # once: a run's last objects would never be freed


def main(arguments: list[str]) -> int:
    """Run seeds; return 1 if one fails, or with `--bug` if none does."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, metavar="N", help="how many; 300")
    parser.add_argument("--first", type=int, default=0, metavar="S", help="the first one; 0")
    parser.add_argument("--bug", choices=BUGS, help="plant a bug, and stop once it is found")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run one, and say all of it")
    parser.add_argument(
        "--replay-book", type=int, metavar="N", help="the same of a plan of the book"
    )
    parser.add_argument("--keep", action="store_true", help="write what fails into the seed book")
    said = parser.parse_args(arguments)
    warm_up()
    if said.replay_book is not None:
        return _replay(list(book())[said.replay_book - 1], said.bug)
    if said.replay is not None:
        return _replay(plans.draw(said.replay), said.bug)
    began_s, report, n_comparisons = time.process_time(), Counter[str](), 0
    ran = tree()  # as it was read: it may be changed meanwhile
    seeds = range(said.first, said.first + said.seeds)
    known = [] if said.bug else list(book())
    said_s = time.monotonic()
    for n, plan in enumerate([*known, *map(plans.draw, seeds)], start=1):
        outcome = attempt(plan, said.bug)
        report += outcome.report
        n_comparisons += outcome.n_comparisons
        if outcome.failure is not None:
            if said.bug and "WrongError" not in _head(outcome):
                continue  # it is stuck, or broke: what is wrong is found by a comparison
            if said.bug:
                _say(f"{said.bug}: found by seed {plan.seed}, number {n}: {_head(outcome)}")
                return 0
            way = f"--replay-book {n}" if n <= len(known) else f"--replay {plan.seed}"
            return fail(plan, outcome, way, BOOK if said.keep else None)
        if time.monotonic() > said_s + _SAY_S:
            said_s = time.monotonic()
            _say(f"{n:,} runs, {n_comparisons:,} comparisons")
    summary = {
        "seeds": said.seeds,
        "first": said.first,
        "book": len(known),
        "comparisons": n_comparisons,
        "met": dict(sorted(report.items())),
        "tree": ran,
        "cpu_s": round(time.process_time() - began_s, 1),
        "resident_mb": _peak_mb(),
    }
    sys.stdout.write(f"{json.dumps(summary)}\n")
    if said.bug:
        _say(f"{said.bug}: not found")
    return int(said.bug is not None)


def _replay(plan: Plan, bug: str | None) -> int:
    outcome = attempt(plan, bug)
    for line in (repr(replace(plan, events=())), *map(str, plan.events), *outcome.log):
        sys.stdout.write(f"{line}\n")
    what = outcome.failure or "nothing failed"
    sys.stdout.write(f"{outcome.n_steps} steps, trace {outcome.trace:08x}: {what}\n")
    return int(outcome.failure is not None)


def fail(plan: Plan, outcome: Outcome, way: str, kept_in: Path | None) -> int:
    """Say in which way to run a failure again, and the least that still fails; keep that."""
    _say(f"seed {plan.seed} failed: {outcome.failure}")
    _say(f"replay: python -m tests.simulation {way}")
    kind = _kind(outcome)

    def fails(smaller: Plan) -> bool:
        return _kind(attempt(smaller)) == kind

    least = shrunk(plan, fails)
    _say(f"{len(least.events)} of its {len(plan.events)} events are enough:")
    for event in least.events:
        _say(f"  {event}")
    if kept_in is not None:
        with kept_in.open("a", encoding="utf-8") as file:
            file.write(f"{encoded(least)}\n")
    return 1


def _kind(outcome: Outcome) -> str:
    """Return what a failure says, but for its figures: another one is no part of it."""
    return re.sub(r"[\d{].*", "", _head(outcome)) if outcome.failure else ""


def tree() -> str:
    """Return the commit that runs, and whether its files are changed."""
    said = [["git", "rev-parse", "--short", "HEAD"], ["git", "status", "--porcelain", "-uno"]]
    commit, changes = (
        subprocess.run(each, cwd=BOOK.parent, capture_output=True, text=True, check=False).stdout
        for each in said
    )
    return (commit.strip() or "no commit") + (" with changes" if changes.strip() else "")


def _head(outcome: Outcome) -> str:
    return (outcome.failure or "").splitlines()[0]


def _peak_mb() -> int:
    """Return the most memory this process held; `getrusage` would count its parent's, too."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
