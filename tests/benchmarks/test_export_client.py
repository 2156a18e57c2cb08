"""The client that downloads exports counts every line of them, however it comes."""

from __future__ import annotations

import http.server
import json
import threading

import pytest

from benchmarks.export_client import main


class _Handler(http.server.BaseHTTPRequestHandler):
    """Sends a header and two rows, in pieces that end amid the end of a line."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        for piece in (b"id,text\r", b"\n1,one\r\n2,", b"two\r", b"\n", b""):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


def test_a_line_that_ends_in_two_pieces_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """Two rows come in four pieces; then it ends, though the server goes on."""
    with http.server.HTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        main(server.server_port, 2)
        server.shutdown()
        thread.join()
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["downloads"]) == (2, 1)
