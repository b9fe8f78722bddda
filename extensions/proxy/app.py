"""The application: an OpenAI-compatible API before another one, with calls repaired on the way."""

import gc
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import anyio
from starlette.requests import ClientDisconnect, Request

from extensions.proxy.answer import JUDGED, ProxyParts, RequestAnswering
from extensions.proxy.exchange import HttpExchange, ProxyMetrics, RequestRefused
from extensions.proxy.upstream import TOKEN, ProxySettings
from serving.meta.access_control import find_owner
from serving.meta.policy import HttpSettings
from warehouse.network.egress import is_loopback


class ProxyApp:
    """The ASGI application, for one event loop."""

    def __init__(
        self,
        settings: ProxySettings,
        listening: HttpSettings,
        parts: ProxyParts | None = None,
    ) -> None:
        from opentelemetry import trace

        self._settings, self._listening = settings, listening
        self.metrics = ProxyMetrics()
        self._answering = RequestAnswering(settings, self.metrics, parts or ProxyParts())
        self._tracer = trace.get_tracer("toolmill.proxy")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return await self._run_lifespan(receive, send)
        exchange = HttpExchange(send)
        path = scope["path"]
        if path == "/healthz":
            return await exchange.send_text("ok\n")
        try:
            own = self._check_sender(Request(scope))
            if path == "/metrics":
                return await exchange.send_text(self.metrics.render_text())
            if not path.startswith("/v1/") or ".." in path.split("/"):
                raise RequestRefused(
                    404, "not_found", "expected a path below /v1, /healthz or /metrics"
                )
            if self.metrics.open >= self._settings.max_open:
                found = f"{self._settings.max_open} requests are open, allowed are no more"
                raise RequestRefused(503, "too_many_open", f"{found}; try again", retry_s=1)
        except RequestRefused as error:
            self.metrics.count("refused", f'reason="{error.code}"')
            return await exchange.send_error(error)
        self.metrics.open += 1
        try:
            with self._tracer.start_as_current_span("toolmill.proxy") as span:
                span.set_attribute("url.path", path if path in JUDGED else "/v1")
                await self._answer_within(Request(scope, receive), exchange, own)
                span.set_attribute("http.response.status_code", exchange.status)
                span.set_attribute("toolmill.repaired", exchange.repaired)
        finally:
            self.metrics.open -= 1
            self.metrics.count("requests", f'status="{exchange.status}"')

    async def _run_lifespan(self, receive: Any, send: Any) -> None:
        while True:
            kind = (await receive())["type"]
            if kind == "lifespan.shutdown":
                await self._answering.close()
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return

    def _check_sender(self, request: Request) -> bool:
        """Whether the Authorization header holds our token. Raises Refused."""
        if not self._listening.tokens:
            # A page in a browser must not reach us by a name that it made point here.
            host, origin = (request.headers.get(name) for name in ("host", "origin"))
            if not (host is None or _is_own(f"//{host}")) or not (
                origin is None or _is_own(origin)
            ):
                raise RequestRefused(
                    403, "foreign_page", "only pages and names of this machine may ask"
                )
            return False
        if find_owner(request.headers.get(TOKEN.decode(), ""), self._listening.tokens):
            return False
        scheme, _, sent = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and find_owner(sent.strip(), self._listening.tokens):
            return True
        wanted = "send the proxy's token as API key or in the header x-toolmill-token"
        raise RequestRefused(401, "invalid_token", wanted)

    async def _answer_within(self, request: Request, exchange: HttpExchange, own: bool) -> None:
        """Answers until the client is gone or the time is over."""
        try:
            body = await self._read_body(request)
            ends = anyio.current_time() + self._settings.total_s
            async with anyio.create_task_group() as group:
                group.cancel_scope.deadline = ends
                group.start_soon(_watch_client, request, group.cancel_scope)
                await self._answering.answer_request(request, body, exchange, own=own)
                group.cancel_scope.cancel()
            if anyio.current_time() >= ends and not exchange.started:
                found = f"the request took more than {self._settings.total_s:g} s"
                raise RequestRefused(504, "request_timeout", f"{found}; raise --total")
        except ClientDisconnect:
            pass
        except RequestRefused as error:
            self.metrics.count("refused", f'reason="{error.code}"')
            await exchange.send_error(error)

    async def _read_body(self, request: Request) -> bytes:
        most, body = self._listening.max_body, b""
        declared = request.headers.get("content-length", "")
        async for part in request.stream():
            body += part
            if len(body) > most or (declared.isdigit() and int(declared) > most):
                found = f"the body is larger than {most} bytes"
                raise RequestRefused(
                    413, "body_too_large", f"{found}; send less, or raise --max-body"
                )
        return body


@lru_cache(1_000)
def _is_own(address: str) -> bool:
    """Whether an address names this machine's loopback."""
    try:
        return is_loopback((urlsplit(address).hostname or "").strip("[]"))
    except ValueError:
        return False


async def _watch_client(request: Request, scope: anyio.CancelScope) -> None:
    """Ends the work when the client is gone: nobody pays for an answer that nobody reads."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def run_proxy(
    settings: ProxySettings,
    listening: HttpSettings,
    parts: ProxyParts | None = None,
    ready: Any = None,
) -> None:
    """Serves until SIGINT or SIGTERM. `ready` gets the address once it is bound.

    Raises CannotServe when the address is taken or not ours.
    """
    from serving.meta.transports import serve_app

    gc.freeze()  # a pass over all that was imported takes 50 ms
    await serve_app(ProxyApp(settings, listening, parts), listening, "toolmill proxy", ready)
