"""A scripted HTTP site on loopback, for answers the replicas are too well-behaved to give."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support.http_server import QuietHandler, serve_http


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
    here = Site("", [], [], [])

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.0"

        def do_GET(self) -> None:
            here.paths.append(self.path)
            here.headers.append(dict(self.headers))
            here.times.append(time.monotonic())
            answer = script(self.path, here.paths.count(self.path))
            body = answer.body.encode() if isinstance(answer.body, str) else answer.body
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(body)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

    with serve_http(Handler) as here.url:
        yield here
