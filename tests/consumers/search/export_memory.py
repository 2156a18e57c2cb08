"""A process that writes all stored rows as CSV and says what that takes: for the test of memory.

`python -m tests.consumers.search.export_memory FILE` opens a store, exports a thousand rows, so
that all code is loaded, and then all of them. It prints one JSON object: `lines`, and by how many
bytes the resident memory was at its highest above that before.
"""

from __future__ import annotations

import ctypes
import gc
import json
import re
import sys
from pathlib import Path

from consumers.http.files import csv_form
from consumers.search.chunks import RowFilter
from consumers.search.query_syntax import parse
from consumers.search.store import RecentStore
from tests.consumers.search.stores import CLASSES, made

ROWS_MAX = 1_000_000
_FORM = csv_form(CLASSES, ("text",))


def main(path: Path) -> None:
    """Export, and weigh before and meanwhile."""
    store = made(path, messages_max=ROWS_MAX, age_max_s=1e9)
    store.start()
    store.correct("nobody", None, None)  # answered once the file is open
    export(store, 1_000)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins here
    before = memory_bytes("VmRSS")
    lines = export(store, ROWS_MAX)
    grown = memory_bytes("VmHWM") - before
    store.stop()
    sys.stdout.write(json.dumps({"lines": lines, "grown_bytes": grown}))


def export(store: RecentStore, n_max: int) -> int:
    """Take a file piece by piece, as a client does; return how many lines it has."""
    pieces = store.exported(parse(""), None, RowFilter(), _FORM, n_max)
    return sum(piece.count(b"\r\n") for piece in pieces)


def memory_bytes(name: str) -> int:
    """Return what the system says of this process's memory."""
    said = Path("/proc/self/status").read_text(encoding="ascii")
    (size,) = re.findall(rf"^{name}:\s+(\d+) kB$", said, re.MULTILINE)
    return 1024 * int(size)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
