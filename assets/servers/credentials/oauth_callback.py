"""The loopback end of a person's login: one request of their browser, told from all others."""

import secrets
from collections.abc import Callable
from socket import socket
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.abc

from assets.servers.remote.outcome import show_text

PATH = "/callback"
_MOST = 16_384  # bytes of a request
_REQUEST_S = 5.0
_PAGE = "<!doctype html><meta charset=utf-8><title>toolmill</title><p>{}</p>"


class Callback:
    """Waits for the browser's return. A request with another state is answered and ignored: any
    page in that browser can send one."""

    def __init__(self, listening: socket, show: Callable[[str], None], timeout_s: float) -> None:
        self._listening, self._show, self._timeout_s = listening, show, timeout_s
        self._state = ""
        self._found: dict[str, str] = {}
        self._done: anyio.Event | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}{PATH}"

    async def show(self, url: str) -> None:
        """Hands on the authorization address, if it is one that a browser may be sent to."""
        from mcp.client.auth import OAuthFlowError

        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not url.isprintable():
            raise OAuthFlowError(f"its authorization address is no web address ({parts.scheme!r})")
        self._state = parse_qs(parts.query).get("state", [""])[-1]
        self._show(url)

    async def wait(self) -> Any:
        """The code that came back. Raises OAuthFlowError where the person or server refused."""
        from mcp.client.auth import OAuthFlowError
        from mcp.shared.auth import AuthorizationCodeResult

        self._done = anyio.Event()
        listener = await anyio.abc.SocketListener.from_socket(self._listening.dup())
        with anyio.move_on_after(self._timeout_s):
            async with listener, anyio.create_task_group() as tasks:
                tasks.start_soon(listener.serve, self._answer_request)
                await self._done.wait()
                tasks.cancel_scope.cancel()
        if not self._found:
            raise OAuthFlowError(f"nobody came back from the browser in {self._timeout_s:.0f} s")
        if "code" not in self._found:
            raise OAuthFlowError(f"refused with {show_text(self._found.get('error', ''))!r}")
        return AuthorizationCodeResult(
            code=self._found["code"], state=self._found["state"], iss=self._found.get("iss")
        )

    async def _answer_request(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            try:
                with anyio.fail_after(_REQUEST_S):
                    status, text = self._judge_request(await _request_line(stream))
                    page = _PAGE.format(text).encode()
                    head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nConnection: close\r\n"
                    await stream.send(f"{head}Content-Length: {len(page)}\r\n\r\n".encode() + page)
            except (TimeoutError, anyio.BrokenResourceError, anyio.EndOfStream):
                pass
        if self._found and self._done:
            self._done.set()

    def _judge_request(self, line: str) -> tuple[str, str]:
        """The answer's status and text; notes the code where the request brings it."""
        method, _, rest = line.partition(" ")
        target = urlsplit(rest.partition(" ")[0])
        if method != "GET" or target.path != PATH:
            return "404 Not Found", "Nothing is here."
        asked = {name: values[-1] for name, values in parse_qs(target.query).items()}
        state = asked.get("state", "")
        if not self._state or not secrets.compare_digest(state.encode(), self._state.encode()):
            return "400 Bad Request", "This is not the login that was begun."
        if self._found or not ("code" in asked or "error" in asked):
            return "400 Bad Request", "This login is over."
        self._found = asked
        outcome = "Logged in" if "code" in asked else "Refused"
        return "200 OK", f"{outcome}. You may close this page and go back to the terminal."


async def _request_line(stream: anyio.abc.SocketStream) -> str:
    data = b""
    while b"\r\n\r\n" not in data and len(data) < _MOST:
        data += await stream.receive(4096)
    return data.partition(b"\r\n")[0].decode("latin-1")
