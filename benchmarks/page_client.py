"""Many open pages in one process: reads what a daemon tells each, and how long each waited.

`python -m benchmarks.page_client PORT PAGES` connects as soon as somebody listens, and reads until
the daemon ends. It does no more than it must: of what comes, it looks for the beginnings of events.
So it takes little of the processor from what is measured. It prints one JSON object: `pages` that
were told anything, `gap_s`, the longest time that any of them was without new figures, and how many
`bytes` came.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import sys
import time
from dataclasses import dataclass
from urllib.parse import quote

# Words of tweets, from frequent to rare; further pages ask the same again.
QUERIES = (
    "", "the ", "i ", "you ", "love ", "good ", "day ", "work ", "happy ", "sad ", "lol ", "today ",
    "night ", "miss ", "thanks ", "home ", "sleep ", "school ", "music ", "rain ", "coffee ",
    "movie ", "phone ", "weekend ", "-not ", "new -old ", '"good morning" ', "lov* ", "#music ",
    "obama ",
)  # fmt: skip
_NEWS = b"event: summary"
_PATIENCE_S = 60.0


@dataclass(slots=True)
class Page:
    """One connection.

    Attributes
    ----------
    told_s : float or None
        When the last figures came.
    gap_s : float
        The longest time between figures.
    """

    told_s: float | None = None
    gap_s: float = 0.0


def main(port: int, n_pages: int) -> None:
    """Open the pages, and read until they are closed."""
    pages = {_connected(port, i): Page() for i in range(n_pages)}
    selector = selectors.DefaultSelector()
    for each in pages:
        selector.register(each, selectors.EVENT_READ, each)
    n_bytes, n_open, buffer = 0, n_pages, bytearray(1 << 18)
    while n_open:
        for key, _ in selector.select():
            connection: socket.socket = key.data
            n_read = 0
            with contextlib.suppress(ConnectionError):
                n_read = connection.recv_into(buffer)
            n_bytes += n_read
            if not n_read:
                n_open -= 1
                selector.unregister(connection)
            elif buffer.find(_NEWS, 0, n_read) >= 0:
                _note(pages[connection])
    told = [page for page in pages.values() if page.told_s is not None]
    gap_s = max((page.gap_s for page in told), default=0.0)
    print(json.dumps({"pages": len(told), "gap_s": gap_s, "bytes": n_bytes}))


def _connected(port: int, i: int) -> socket.socket:
    """Return a connection that has asked for the events of its query."""
    until_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port), _PATIENCE_S)
            break
        except ConnectionRefusedError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.05)
    query = quote(QUERIES[i % len(QUERIES)])
    head = f"GET /v1/events?q={query} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    connection.sendall(head.encode())
    return connection


def _note(page: Page) -> None:
    """Note that figures have come."""
    now_s = time.monotonic()
    if page.told_s is not None:
        page.gap_s = max(page.gap_s, now_s - page.told_s)
    page.told_s = now_s


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
