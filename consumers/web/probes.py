"""What machines ask: metrics for Prometheus, and whether the daemon is alive and ready."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from consumers.health import HealthReport
from consumers.web.rooms import Rooms
from consumers.web.route import FRESH, PlainRoute, Told, json_response
from consumers.web.wire import HealthAnswer


def probe_routes(rooms: Rooms) -> list[PlainRoute]:
    """Return the routes `/metrics`, `/healthz` and `/readyz`."""

    # Plain coroutines: each answer takes a millisecond or two, less than handing it to a thread.
    async def metrics(request: Request) -> Response:
        encode, content_type = _encoder(request.headers.get("accept", ""))
        headers = {"Content-Type": content_type, **FRESH}
        return Response(encode(rooms.registry), headers=headers)

    async def healthz(_request: Request) -> Response:
        report = rooms.health.report()
        return _answer(report, good=report.alive)

    async def readyz(_request: Request) -> Response:
        report = rooms.health.report()
        return _answer(report, good=report.ready)

    return [
        PlainRoute("/metrics", metrics, Told("Every metric, for Prometheus", "text/plain")),
        PlainRoute("/healthz", healthz, Told("Is the daemon alive? (503: stuck)", HealthAnswer)),
        PlainRoute("/readyz", readyz, Told("Can it answer from what it learns?", HealthAnswer)),
    ]


def _encoder(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """Return what makes the text that is wanted, and its type; plain, where none of ours is."""
    try:
        return choose_encoder(accept)
    except TypeError:  # from a version that is no number
        return choose_encoder("")


def _answer(report: HealthReport, *, good: bool) -> Response:
    age_s = report.last_message_age_s
    answer = HealthAnswer(
        state=report.state,
        reason=None if good else report.reason,
        last_message_age_s=None if age_s is None else round(age_s, 3),
        snapshot_version=report.snapshot_version,
        degraded=report.degraded,
    )
    return json_response(answer, 200 if good else 503)
