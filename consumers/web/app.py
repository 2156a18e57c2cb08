"""What the daemon answers over HTTP.

| path | answer |
| --- | --- |
| `/` | these paths, as plain text |
| `/metrics` | every metric, for Prometheus |
| `/healthz` | 200 while the consuming loop turns, idle or not; 503 when it is stuck |
| `/readyz` | 200 when there is a snapshot and the source can be read; else 503 |

Health answers are JSON objects with `state`, `reason`, `last_message_age_s` and
`snapshot_version`. Nothing here changes anything, and nothing asks who is calling: keep the port on
loopback, or behind something that does ask.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from consumers.health import Health, HealthReport

INDEX = """\
streamnb

/metrics   every metric, for Prometheus
/healthz   is the daemon alive? (503: stuck, restart it)
/readyz    can it answer from what it learns? (503: not yet, or the source is away)
"""

_FRESH = {"Cache-Control": "no-store"}


def make_app(registry: CollectorRegistry, health: Health) -> Starlette:
    """Return the application.

    Parameters
    ----------
    registry : CollectorRegistry
        The metrics to show.
    health : Health
        The watch over the consuming thread.

    Returns
    -------
    Starlette
        An ASGI application without state of its own.
    """

    # Plain coroutines: each answer takes a millisecond or two, less than handing it to a thread.
    async def index(_request: Request) -> Response:
        return PlainTextResponse(INDEX)

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": content_type, **_FRESH})

    async def healthz(_request: Request) -> Response:
        report = health.report()
        return _answer(report, good=report.alive)

    async def readyz(_request: Request) -> Response:
        report = health.report()
        return _answer(report, good=report.ready)

    return Starlette(
        routes=[
            Route("/", index),
            Route("/metrics", metrics),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
        ]
    )


def _answer(report: HealthReport, *, good: bool) -> JSONResponse:
    age_s = report.last_message_age_s
    return JSONResponse(
        {
            "state": report.state,
            "reason": None if good else report.reason,
            "last_message_age_s": None if age_s is None else round(age_s, 3),
            "snapshot_version": report.snapshot_version,
        },
        status_code=200 if good else 503,
        headers=_FRESH,
    )
