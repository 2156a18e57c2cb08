"""A schema registry on 127.0.0.1, with what readers use of its protocol; and framed values."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Reference = tuple[str, str, int]  # its name, subject and version


def framed(name: int, payload: bytes, message: bytes = b"") -> bytes:
    """Return a payload behind the id of its schema, and for Protobuf behind which message it is."""
    return b"\0" + name.to_bytes(4, "big") + message + payload


class RegistryServer:
    """Answers what was registered; `status`, if it is set, is what it answers instead.

    `asked` are the paths that were asked for, `logins` the headers that came with them. With a
    `context` it speaks TLS.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.status: int | None = None
        self.body = b"nothing here"
        self.location = "{url}/elsewhere"
        self.asked: list[str] = []
        self.logins: list[str | None] = []
        self._answers: dict[str, Mapping[str, Any]] = {}
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self.url = self.url.replace("http", "https")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def register(
        self,
        name: int,
        schema: str,
        kind: str = "AVRO",
        references: Sequence[Reference] = (),
        subject: str | None = None,
    ) -> None:
        """Register a schema by its id, and as version 1 of a subject."""
        answer: dict[str, Any] = {"schema": schema}
        if kind != "AVRO":  # as the registry itself leaves it out
            answer["schemaType"] = kind
        if references:
            keys = ("name", "subject", "version")
            answer["references"] = [dict(zip(keys, each, strict=True)) for each in references]
        self._answers[f"/schemas/ids/{name}"] = answer
        if subject is not None:
            self._answers[f"/subjects/{subject}/versions/1"] = {"id": name, **answer}

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer a request."""
        self.asked.append(request.path)
        self.logins.append(request.headers.get("Authorization"))
        found = self._answers.get(request.path)
        status, body = 200, json.dumps(found).encode()
        if self.status is not None:
            status, body = self.status, self.body
        elif found is None:
            status, body = 404, b'{"error_code":40403,"message":"Schema not found"}'
        request.send_response(status)
        if status in {301, 302}:
            request.send_header("Location", self.location.format(url=self.url))
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
