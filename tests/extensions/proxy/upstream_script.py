"""A scripted upstream and the proxy before it, each a uvicorn on loopback in a thread."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import uvicorn
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from extensions.proxy.app import ProxyApp
from extensions.proxy.upstream import ProxySettings, make_listening
from serving.meta.transports import make_config


@dataclass
class Script:
    """What the upstream answers next, and what it was sent. parts: of a stream. broken: the
    connection ends before the stream does. turns: answers one after the other, each a body, the
    parts of a stream or a status; the last one stays."""

    status: int = 200
    body: bytes = b"{}"
    parts: list[bytes] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    broken: bool = False
    turns: list[Any] = field(default_factory=list)
    seen: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        self.seen.append((request.url.path, dict(request.headers), await request.body()))
        if self.turns:
            self._take_turn(self.turns.pop(0) if len(self.turns) > 1 else self.turns[0])
        await anyio.sleep(self.delay_s)
        if self.parts is None:
            kind = {"content-type": "application/json", **self.headers}
            answer = Response(self.body, self.status, kind)
        else:
            answer = StreamingResponse(self._iterate(), media_type="text/event-stream")
        await answer(scope, receive, send)

    def _take_turn(self, turn: Any) -> None:
        self.status = turn if isinstance(turn, int) else 200
        self.parts = turn if isinstance(turn, list) else None
        self.body = turn if isinstance(turn, bytes) else b'{"error": {"message": "no"}}'

    async def _iterate(self) -> Any:
        for part in self.parts or []:
            yield part
        if self.broken:
            raise ConnectionResetError


@contextmanager
def run_server(app: Any, settings: Any = None) -> Iterator[int]:
    listening = socket.create_server(("127.0.0.1", 0))
    plain = uvicorn.Config(app, log_config=None, log_level="critical", lifespan="off")
    server = uvicorn.Server(make_config(app, settings) if settings else plain)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        thread.join(60)
        listening.close()


@dataclass
class Running:
    url: str
    script: Script
    proxy: ProxyApp


@contextmanager
def run_proxied(
    *, token: str = "", max_body: int = 4_000_000, parts: Any = None, **options: Any
) -> Iterator[Running]:
    script = Script()
    with run_server(script) as port:
        settings = ProxySettings(**{"upstream": f"http://127.0.0.1:{port}", **options})
        listening = make_listening("127.0.0.1", 0, token, max_body)
        proxy = ProxyApp(settings, listening, parts)
        with run_server(proxy, listening) as own:
            yield Running(f"http://127.0.0.1:{own}", script, proxy)
