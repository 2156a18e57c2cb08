"""Measure what each way to install streamnb takes, and write the README's table of them.

`python -m benchmarks.install` installs every row of the table, with the newest releases that pip
finds, into an environment of its own below `--folder`, a few gigabytes that it removes again. It
keeps what it found as docs/install.json and writes the table from that alone;
`tests/benchmarks/test_install.py` fails if the two differ, or if an extra has no row. With
`--publish` it only writes the table.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.publish import END, README, ROOT, UnpublishedError

FOUND: Final = Path("docs") / "install.json"
COMMAND: Final = "python -m benchmarks.install"
_TIMES: Final = 5  # a process is started; the least of their times counts
_DAEMON: Final = "consumers.cli.commands, consumers.daemon"


@dataclass(frozen=True, slots=True)
class Install:
    """A row of the table."""

    extras: str  # in the brackets behind `streamnb`; "" is the library alone
    adds: str
    imported: str  # what a program that uses it imports
    note: str = ""  # of its import


INSTALLS: Final = (
    Install(
        "",
        "numpy, numba, scipy (imported when intervals are asked for), narwhals, safetensors",
        "streamnb",
    ),
    Install("daemon", "the command: page, API, Kafka, checkpoints", _DAEMON),
    Install("daemon,codecs", "Kafka topics compressed by lz4 or snappy", "lz4.frame, snappy"),
    Install("daemon,librdkafka", "the other Kafka client", "consumers.kafka.librdkafka"),
    Install(
        "daemon,live",
        "live streams: Bluesky, server-sent events, WebSockets",
        "consumers.sources.jetstream",
    ),
    Install("daemon,avro", "topics of Avro, by a schema registry", "fastavro"),
    Install(
        "daemon,protobuf", "topics of Protobuf, by a schema registry", "google.protobuf.message"
    ),
    Install(
        "daemon,evaluation",
        "`streamnb evaluate` and `compare`",
        "sklearn.metrics",
        ", for that command",
    ),
    Install(
        "daemon,tracing",
        "OpenTelemetry",
        "opentelemetry.sdk.trace.export, opentelemetry.exporter.otlp.proto.http.trace_exporter",
    ),
    Install("river", "`streamnb.river`", "streamnb.river"),
    Install("sklearn", "`streamnb.sklearn`", "streamnb.sklearn"),
    Install(
        "spark",
        "`streamnb.spark`, with PySpark; Java of 17 or later must be there",
        "streamnb.spark, pyspark.sql",
    ),
    Install("arrow", "`export_arrow`", "streamnb, pyarrow.ipc"),
    Install(
        "mlflow",
        "`export_mlflow`, with MLflow's small package and pandas",
        "streamnb, mlflow.pyfunc",
    ),
    Install("plots", "matplotlib", "streamnb, matplotlib.figure"),
)


# ---- the table -----------------------------------------------------------------------------------


def published(text: str, found: Mapping[str, Any]) -> str:
    """Return the README with its table of installs written from what was found."""
    begin, end = f"<!-- installs: written by `{COMMAND}` -->", END.format("installs")
    before, began, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not began or not ended:
        raise UnpublishedError(f"{README} lacks {begin!r}, or {end!r} behind it")
    return "\n".join([before + begin, *table(found), end]) + after


def table(found: Mapping[str, Any]) -> list[str]:
    """Return the lines between the markers."""
    rows = found["installs"]
    where = f"`site-packages` on {found['system']}, Python {found['python']}"
    lines = [
        f"Found on {found['date']}. Sizes are of {where}; import is processor time.",
        "",
        "| install | adds | MB | packages | import |",
        "| --- | --- | --- | --- | --- |",
    ]
    for each in INSTALLS:
        row = rows[each.extras]
        name = f"streamnb[{each.extras}]" if each.extras else "streamnb"
        cells = f"`{name}`", each.adds, f"{row['bytes'] / 1e6:.0f}", f"{row['packages']}"
        lines.append(f"| {' | '.join(cells)} | {_import_cell(each, rows)} |")
    return lines


def _import_cell(install: Install, rows: Mapping[str, Any]) -> str:
    import_s = rows[install.extras]["import_s"]
    if not install.extras.startswith("daemon,"):
        return f"{import_s:.1f} s"
    more_s = import_s - rows["daemon"]["import_s"]
    shown = f"{more_s:.1f}" if more_s >= 0.05 else f"{max(more_s, 0.01):.2f}"
    return f"{shown} s more{install.note}"


# ---- what is measured ----------------------------------------------------------------------------


def measure(install: Install, wheel: Path, folder: Path) -> dict[str, float]:
    """Install a row into an environment of its own; return its size, packages and import time."""
    venv.create(folder)
    python = folder / "bin" / "python"
    wanted = f"streamnb[{install.extras}] @ {wheel.as_uri()}"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", wanted], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    daemon = f"{_DAEMON}, " if install.extras.startswith("daemon,") else ""
    program = [str(python), "-c", f"import {daemon}{install.imported}"]
    times_s = []
    for _ in range(_TIMES + 1):  # the first reads files that no process has read yet
        before = _children_s()
        subprocess.run(program, check=True, cwd=folder, env=_without_paths())
        times_s.append(_children_s() - before)
    return {
        "bytes": sum(each.lstat().st_size for each in site.rglob("*") if each.is_file()),
        "packages": len(list(site.glob("*.dist-info"))),
        "import_s": round(min(times_s[1:]), 3),
    }


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _without_paths() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _wheel(folder: Path) -> Path:
    """Build this checkout's wheel."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    subprocess.run(
        [*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)],
        check=True,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all rows, unless only the table is to be written."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--publish", action="store_true", help="only write the table")
    parser.add_argument("--folder", help="where the environments are made")
    given = parser.parse_args(arguments)
    if not given.publish:
        installs = {}
        with tempfile.TemporaryDirectory(prefix="install-", dir=given.folder) as folder:
            wheel = _wheel(Path(folder))
            for i, each in enumerate(INSTALLS):
                with tempfile.TemporaryDirectory(prefix=f"{i}-", dir=folder) as own:
                    installs[each.extras] = measure(each, wheel, Path(own) / "env")
                print(each.extras or "the library", installs[each.extras], flush=True)
        found = {
            "date": dt.datetime.now(dt.UTC).date().isoformat(),
            "system": f"{platform.system()}, {platform.machine()}",
            "python": ".".join(platform.python_version_tuple()[:2]),
            "installs": installs,
        }
        (ROOT / FOUND).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    found = json.loads((ROOT / FOUND).read_text(encoding="utf-8"))
    text = (ROOT / README).read_text(encoding="utf-8")
    (ROOT / README).write_text(published(text, found), encoding="utf-8")


if __name__ == "__main__":
    main()
