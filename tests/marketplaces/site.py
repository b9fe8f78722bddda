"""A scripted HTTP site on loopback, for answers the replicas are too well-behaved to give."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Answer:
    body: bytes | str = b""
    status: int = 200
    content_type: str = "text/html"
    headers: dict[str, str] = field(default_factory=dict)


Script = Callable[[str, int], Answer]  # (path with query, number of this path's request) -> answer


@dataclass
class Site:
    url: str
    paths: list[str]
    headers: list[dict[str, str]]  # of each request
    times: list[float]  # monotonic seconds of each request


@contextmanager
def site(script: Script) -> Iterator[Site]:
    paths: list[str] = []
    headers: list[dict[str, str]] = []
    times: list[float] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            headers.append(dict(self.headers))
            times.append(time.monotonic())
            answer = script(self.path, paths.count(self.path))
            body = answer.body.encode() if isinstance(answer.body, str) else answer.body
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(body)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Site(f"http://127.0.0.1:{server.server_address[1]}", paths, headers, times)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
