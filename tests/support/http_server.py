"""A hand-written HTTP server on loopback, in threads, silent about clients that hang up."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class QuietHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        return


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64  # of 5, a sixth connection waits a second for its second SYN

    def handle_error(self, *_: object) -> None:
        return  # a client that hung up is part of some scripts


@contextmanager
def serve_http(handler: type[BaseHTTPRequestHandler], tls: Any = None) -> Iterator[str]:
    """Serves `handler` on a free port of 127.0.0.1; the base URL, without a slash at its end."""
    server = _Server(("127.0.0.1", 0), handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
