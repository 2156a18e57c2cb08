"""A client that downloads all stored rows as CSV, over and over, until the daemon ends.

`python -m benchmarks.export_client PORT [ROWS]` connects as soon as somebody listens. If it is told
how many rows to ask for, it ends once one download has come to its end. Of what comes it
counts the ends of lines and keeps nothing. It prints one JSON object: `rows` of all downloads,
headers left out, `rows_per_s` while one was under way, and how many `downloads` came to their end.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
import time

PIECE_BYTES = 1 << 18
_PATIENCE_S = 60.0


def main(port: int, n_rows: int | None = None) -> None:
    """Download so many rows once, or all until the daemon, once it has answered, is gone."""
    rows, n_ended, seconds = 0, 0, 0.0
    until_s = time.monotonic() + _PATIENCE_S
    while n_rows is None or not n_ended:
        began_s = time.monotonic()
        try:
            got, is_whole = _download(port, "" if n_rows is None else f"&limit={n_rows}")
        except (OSError, http.client.HTTPException):
            if n_ended or rows or time.monotonic() > until_s:
                break
            time.sleep(0.05)  # it does not listen yet
            continue
        if not got:
            if rows or time.monotonic() > until_s:
                break
            time.sleep(0.05)  # its store is not open yet
            continue
        rows, n_ended = rows + got, n_ended + is_whole
        seconds += time.monotonic() - began_s
    rate = rows / seconds if seconds else 0.0
    print(json.dumps({"rows": rows, "rows_per_s": rate, "downloads": n_ended}))


def _download(port: int, limit: str) -> tuple[int, bool]:
    """Return how many rows came, and whether these were all; none of an answer that is no file."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)
    with contextlib.closing(connection):
        connection.request("GET", f"/v1/export?format=csv{limit}")
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            return 0, False
        n_ends, last = 0, b""
        try:
            while piece := answer.read1(PIECE_BYTES):
                n_ends += (last + piece).count(b"\r\n")  # one may lie in two pieces
                last = piece[-1:]
        except (OSError, http.client.HTTPException):
            return max(0, n_ends - 1), False  # the daemon has ended
    return max(0, n_ends - 1), True


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
