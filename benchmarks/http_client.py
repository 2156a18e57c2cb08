"""A client that asks `/v1/predict` as fast or as evenly as it is told, and tells how long it took.

It runs as a process of its own, on connections that are kept, and does no more than it must: the
requests are made beforehand, and of an answer it reads where it ends. So it takes little of the
processor from what is measured. It reads its plan from standard input and prints an `Outcome`, both
as JSON.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import msgspec
import numpy as np
import uvloop

WARM_UP_S = 1.0
AGE = b"streamnb-follow-age:"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked, and how fast.

    Attributes
    ----------
    port : int
        Of loopback.
    texts : list of str
    texts_a_request : int
        1 sends `text`, more send `texts`.
    connections : int
    per_s : float
        Requests a second, at random times; 0: each connection asks again as soon as it is answered.
    seconds : float
    """

    port: int
    texts: list[str]
    texts_a_request: int
    connections: int
    per_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it; a request's time counts from when it was due.

    Attributes
    ----------
    per_s : float
        Requests answered a second.
    p50_ms, p99_ms, longest_ms : float
    n_failed : int
        Requests that were answered otherwise than by 200, or not at all.
    age_p99_s : float
        Of a replica's answers: for how long their model may have been outdated. 0 of a daemon's.
    """

    per_s: float
    p50_ms: float
    p99_ms: float
    longest_ms: float
    n_failed: int
    age_p99_s: float


class Asking(asyncio.Protocol):
    """One connection: asks what is given to it, one request after the other."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._due_s = 0.0
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be ready to ask."""
        self._transport = cast("asyncio.Transport", transport)
        self._pool.is_free(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Count what goes unanswered, and end at once."""
        self._pool.lost()

    def ask(self, request: bytes, due_s: float) -> None:
        """Send a request that was due at a time."""
        self._due_s = due_s
        assert self._transport is not None
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Read on until the answer is whole."""
        self._rest += data
        head, end, body = self._rest.partition(b"\r\n\r\n")
        if not end:
            return
        at = head.lower().index(b"content-length:") + len(b"content-length:")
        if len(body) < int(head[at:].partition(b"\r\n")[0]):
            return
        is_good = head.startswith(b"HTTP/1.1 200")
        self._rest = b""
        self._pool.answered(self._due_s, head, is_good=is_good)
        self._pool.is_free(self)


class Pool:
    """The connections, and the requests that are due."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._requests = requests(plan)
        self._n_asked = 0
        self._n_due = -1
        self._free: deque[Asking] = deque()
        self._due: deque[float] = deque()
        self._end_s = float("inf")
        self.took_s: list[tuple[float, float]] = []
        self.ages_s: list[float] = []
        self.n_failed = 0
        self.n_lost = 0
        self._all_answered = asyncio.Event()

    async def run(self) -> Outcome:
        """Ask until the time is over; return what came of it."""
        plan, loop = self._plan, asyncio.get_running_loop()
        for _ in range(plan.connections):
            await loop.create_connection(lambda: Asking(self), "127.0.0.1", plan.port)
        began_s = time.perf_counter()
        self._end_s = began_s + WARM_UP_S + plan.seconds
        if plan.per_s:
            await self._ask_at_times(began_s)
        else:
            for each in list(self._free):
                self._free.remove(each)
                self.is_free(each)
            await asyncio.sleep(WARM_UP_S + plan.seconds)
        first_s = began_s + WARM_UP_S
        took_s = [took for due_s, took in self.took_s if first_s <= due_s < self._end_s]
        p50_s, p99_s, longest_s = np.percentile(took_s or [np.nan], [50, 99, 100]).tolist()
        return Outcome(
            per_s=len(took_s) / plan.seconds,
            p50_ms=p50_s * 1e3,
            p99_ms=p99_s * 1e3,
            longest_ms=longest_s * 1e3,
            n_failed=self.n_failed + self.n_lost,
            age_p99_s=float(np.percentile(self.ages_s or [0.0], 99)),
        )

    async def _ask_at_times(self, began_s: float) -> None:
        plan = self._plan
        rng = np.random.default_rng(7)
        n = self._n_due = round((WARM_UP_S + plan.seconds) * plan.per_s)
        for due_s in (began_s + np.cumsum(rng.exponential(1 / plan.per_s, n))).tolist():
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            if self._free:
                self._ask(self._free.popleft(), due_s)
            else:
                self._due.append(due_s)
        await self._all_answered.wait()

    def is_free(self, asking: Asking) -> None:
        """Take a connection back, or let it ask what is due."""
        if self._due:
            self._ask(asking, self._due.popleft())
        elif self._plan.per_s or time.perf_counter() > self._end_s or self._end_s == float("inf"):
            self._free.append(asking)
        else:
            self._ask(asking, time.perf_counter())

    def lost(self) -> None:
        """Note a connection that was closed: what was asked on it has no answer."""
        self.n_lost += 1
        self._all_answered.set()

    def answered(self, due_s: float, head: bytes, *, is_good: bool) -> None:
        """Note an answer, by its head."""
        at = head.lower().find(AGE)
        if at >= 0:
            self.ages_s.append(float(head[at + len(AGE) :].partition(b"\r\n")[0]))
        self.took_s.append((due_s, time.perf_counter() - due_s))
        if len(self.took_s) == self._n_due:
            self._all_answered.set()
        self.n_failed += not is_good

    def _ask(self, asking: Asking, due_s: float) -> None:
        asking.ask(self._requests[self._n_asked % len(self._requests)], due_s)
        self._n_asked += 1


def requests(plan: Plan) -> list[bytes]:
    """Return the requests, ready to be sent."""
    n, texts = plan.texts_a_request, plan.texts
    if n == 1:
        return [_request({"text": text}) for text in texts]
    return [_request({"texts": texts[i : i + n]}) for i in range(0, len(texts) - n + 1, n)]


def _request(body: object) -> bytes:
    encoded = msgspec.json.encode(body)
    return (
        b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(encoded), encoded)
    )


def main(arguments: Sequence[str]) -> None:
    """Ask as the plan on standard input says."""
    assert not arguments
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
    print(msgspec.json.encode(uvloop.run(Pool(plan).run())).decode())


if __name__ == "__main__":
    main(sys.argv[1:])
