"""Remote MCP servers on loopback: the SDK's own, and hand-written ones that follow a script."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.support.http_server import QuietHandler, serve_http

VERSION = "2025-06-18"


def make_tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": name, "inputSchema": {"type": "object"}, **more}


@dataclass
class Call:
    """One request, and the means to answer it."""

    handler: QuietHandler
    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes
    stopped: threading.Event

    @property
    def message(self) -> dict[str, Any]:
        return json.loads(self.body or b"{}")

    @property
    def asks(self) -> str:
        """The JSON-RPC method, or the HTTP one where there is no message."""
        return self.message.get("method", self.method) if self.body else self.method

    def write(self, data: bytes) -> None:
        """Bytes as they are, onto the connection."""
        self.handler.wfile.write(data)
        self.handler.wfile.flush()

    def head(self, status: int = 200, **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} X", "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.write(("\r\n".join(lines) + "\r\n\r\n").encode())

    def say(self, body: bytes | str = b"", status: int = 200, **headers: str) -> None:
        data = body.encode() if isinstance(body, str) else body
        self.head(status, **{"Content_Length": str(len(data)), **headers})
        self.write(data)

    def json(self, value: Any, status: int = 200, **headers: str) -> None:
        self.say(json.dumps(value), status, **{"Content_Type": "application/json", **headers})

    def answer(self, result: Any, **headers: str) -> None:
        self.json(make_reply(self.message, result), **headers)

    def events(self, **headers: str) -> None:
        self.head(200, Content_Type="text/event-stream", **headers)

    def event(self, data: Any, *, event: str | None = None, event_id: str | None = None) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        lines = [f"event: {event}"] if event else []
        lines += [f"id: {event_id}"] if event_id else []
        self.write(("\n".join([*lines, f"data: {text}"]) + "\n\n").encode())

    def for_ever(self, say: Callable[[], None] | None = None, pause_s: float = 0.02) -> None:
        """Until the client hangs up or the test ends."""
        with suppress(OSError):
            while not self.stopped.wait(pause_s if say is None or pause_s else 0):
                if say is not None:
                    say()
                else:
                    self.handler.connection.settimeout(0.01)
                    with suppress(TimeoutError):
                        if self.handler.connection.recv(1) == b"":
                            return


def make_reply(message: dict[str, Any], result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message.get("id"), "result": result}


def make_welcome(version: str = VERSION, **capabilities: Any) -> dict[str, Any]:
    return {
        "protocolVersion": version,
        "capabilities": {"tools": {}, **capabilities},
        "serverInfo": {"name": "peer", "version": "1"},
    }


def begin_session(call: Call) -> None:
    call.answer(make_welcome(), Mcp_Session_Id="s-1")


def refuse(call: Call, code: int, status: int, message: str = "refused", **more: Any) -> None:
    """Answers a request with an error."""
    error = {"code": code, "message": message, **more}
    call.json({"jsonrpc": "2.0", "id": call.message.get("id"), "error": error}, status)


Script = Callable[[Call], None]


@dataclass
class Peer:
    """A running server: where it is and what it was asked, in order."""

    url: str
    calls: list[Call] = field(default_factory=list)

    @property
    def asked(self) -> list[str]:
        return [call.asks for call in self.calls]


@contextmanager
def serve_script(script: Script, *, tls: Any = None) -> Iterator[Peer]:
    """Serves `script` on 127.0.0.1; each request has a connection of its own."""
    peer = Peer("")
    stopped = threading.Event()

    class Handler(QuietHandler):
        def any(self) -> None:
            self.close_connection = True
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            call = Call(self, self.command, self.path, headers, body, stopped)
            peer.calls.append(call)
            with suppress(OSError):
                script(call)

        do_GET = do_POST = do_DELETE = any

    with serve_http(Handler, tls) as base:
        peer.url = f"{base}/mcp"
        try:
            yield peer
        finally:
            stopped.set()


def make_good_script(tools: list[Any] | None = None, **more: Any) -> Script:
    """A plain server over streamable HTTP that answers with JSON. more: JSON-RPC method -> what
    answers it instead."""
    listed = [make_tool("a"), make_tool("b")] if tools is None else tools

    def script(call: Call) -> None:
        instead = more.get(call.asks.replace("/", "_"))
        if instead is not None:
            instead(call)
        elif call.asks == "initialize":
            call.answer(make_welcome())
        elif call.asks == "tools/list":
            call.answer({"tools": listed})
        elif call.method == "POST":
            call.say(status=202)
        else:
            call.say(status=405)

    return script


def make_sse_script(tools: list[Any] | None = None, endpoint: str = "/messages?id=1") -> Script:
    """A server of the older transport: a stream by GET at /mcp, messages by POST elsewhere."""
    listed = [make_tool("a"), make_tool("b")] if tools is None else tools
    streams: list[Call] = []

    def script(call: Call) -> None:
        if call.method == "GET":
            call.events()
            call.event(endpoint, event="endpoint")
            streams.append(call)
            call.for_ever()
        elif call.path != endpoint:
            call.say(status=405)
        else:
            call.say("Accepted", status=202)
            if call.asks == "initialize":
                streams[-1].event(make_reply(call.message, make_welcome()), event="message")
            elif call.asks == "tools/list":
                streams[-1].event(make_reply(call.message, {"tools": listed}), event="message")

    return script


@contextmanager
def served(app: Any) -> Iterator[str]:
    """An ASGI application under uvicorn; yields its address."""
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=0)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join()
        listening.close()
