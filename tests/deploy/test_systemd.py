"""The unit for systemd: its own tools read it, and judge it well shut in."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.prometheus_server import ROOT

UNIT = ROOT / "deploy" / "systemd" / "streamnb.service"
EXPOSURE_TENTHS_MAX = 15  # of 100, by systemd's own account: 0 is shut in, 100 is open


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze; skip where there is none."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze found (Debian and Ubuntu: apt install systemd)")
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, check=False
    )


def test_systemd_understands_every_line(tmp_path: Path) -> None:
    """Nothing in the unit is unknown to systemd, once there is a program to start."""
    program = tmp_path / "streamnb"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    unit = tmp_path / UNIT.name
    text = UNIT.read_text(encoding="utf-8")
    unit.write_text(
        text.replace("/opt/streamnb/.venv/bin/streamnb", str(program)), encoding="utf-8"
    )
    done = analyze("verify", "--man=no", unit)
    assert (done.returncode, [line for line in done.stderr.splitlines() if UNIT.name in line]) == (
        0,
        [],
    )


def test_the_service_is_well_shut_in() -> None:
    """By systemd's own score what the service could do stays below 1.5 of 10."""
    done = analyze(
        "security", "--no-pager", "--offline=true", f"--threshold={EXPOSURE_TENTHS_MAX}", UNIT
    )
    assert done.returncode == 0, done.stdout.splitlines()[-1]


def test_it_may_open_as_many_connections_as_it_takes() -> None:
    """Its 8,192 files are more than http.connections_max; the usual 1,024 would hardly be."""
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]  # names keep their case
    unit.read(UNIT, encoding="utf-8")
    assert int(unit["Service"]["LimitNOFILE"]) >= 4096
