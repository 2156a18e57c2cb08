"""A client that downloads all stored rows as CSV, over and over, until the daemon ends.

`python -m benchmarks.export_client PORT` connects as soon as somebody listens. Of what comes it
counts the ends of lines and keeps nothing. It prints one JSON object: `rows` of all downloads,
headers left out, `rows_per_s` while one was under way, and how many `downloads` came to their end.
"""

from __future__ import annotations

import http.client
import json
import sys
import time

PIECE_BYTES = 1 << 18
_PATIENCE_S = 60.0


def main(port: int) -> None:
    """Download until the daemon, once it has answered, is gone."""
    rows, n_ended, seconds = 0, 0, 0.0
    until_s = time.monotonic() + _PATIENCE_S
    while True:
        began_s = time.monotonic()
        try:
            got, is_whole = _download(port)
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


def _download(port: int) -> tuple[int, bool]:
    """Return how many rows came, and whether these were all; none of an answer that is no file."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)
    connection.request("GET", "/v1/export?format=csv")
    answer = connection.getresponse()
    if answer.status != http.client.OK:
        return 0, False
    n_ends = 0
    try:
        while piece := answer.read1(PIECE_BYTES):
            n_ends += piece.count(b"\r\n")
    except (OSError, http.client.HTTPException):
        return max(0, n_ends - 1), False  # the daemon has ended
    return max(0, n_ends - 1), True


if __name__ == "__main__":
    main(int(sys.argv[1]))
