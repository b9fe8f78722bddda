"""The application: an OpenAI-compatible API before another one, with calls repaired on the way."""

import gc
import json
import logging
import time
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx2
from starlette.requests import ClientDisconnect, Request

from extensions.proxy.answer_calls import (
    MessageStream,
    ResponsesStream,
    repair_message,
    repair_response,
)
from extensions.proxy.auto_tools import NotChosen, ToolChoice, ToolChooser, asks_for_tools
from extensions.proxy.calls import (
    CallRepair,
    CallReviser,
    RequestReviser,
    ToolOffer,
    ToolsRefused,
    read_offer,
)
from extensions.proxy.chat_calls import ChatStream, repair_chat
from extensions.proxy.exchange import (
    EventReader,
    HttpExchange,
    ProxyMetrics,
    RequestRefused,
    read_object,
)
from extensions.proxy.local_upstream import FirstCall, LocalUpstream
from extensions.proxy.messages_search import MessagesSearch, has_custom_search
from extensions.proxy.responses_search import ResponsesSearch, drop_own_ids, has_client_search
from extensions.proxy.text_calls import ChatText, MessageText, ResponseText, TextCallStream
from extensions.proxy.tool_search import ToolSearch, is_readable
from extensions.proxy.upstream import (
    TOKEN,
    Headers,
    ProxyError,
    ProxySettings,
    Upstream,
    UpstreamFailed,
    choose_headers,
    explain_failure,
    keep_headers,
)
from serving.meta.access_control import find_owner
from serving.meta.policy import HttpSettings
from warehouse.json_types import JsonObject
from warehouse.network.egress import is_loopback

if TYPE_CHECKING:
    from extensions.proxy.traces import TraceKeeper

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
logger = logging.getLogger(__name__)
JUDGED = {
    CHAT: (repair_chat, partial(TextCallStream, ChatStream, ChatText)),
    RESPONSES: (repair_response, partial(TextCallStream, ResponsesStream, ResponseText)),
    MESSAGES: (repair_message, partial(TextCallStream, MessageStream, MessageText)),
}


@dataclass(frozen=True)
class ProxyParts:
    """chooser: picks tools where `tools` is "auto". local: a model that runs here; without an
    upstream it answers everything, beside one it writes the first call of a conversation. reviser:
    rewrites calls that the ladder leaves. search: answers the searches for tools that models
    make. traces: keeps the calls of requests."""

    chooser: ToolChooser | None = None
    local: LocalUpstream | None = None
    reviser: CallReviser | None = None
    search: ToolSearch | None = None
    traces: "TraceKeeper | None" = None


@dataclass(frozen=True)
class PreparedRequest:
    """body: to send on. repair: what its calls are judged by, None where nothing is to be judged,
    and what the upstream says of it is its answer. search: answers its searches for tools."""

    body: bytes
    repair: CallRepair | None = None
    search: ResponsesSearch | MessagesSearch | None = None


class RequestPreparation:
    """Makes requests ready, for one event loop."""

    def __init__(self, settings: ProxySettings, metrics: ProxyMetrics, parts: ProxyParts) -> None:
        self._settings, self._metrics, self._parts = settings, metrics, parts

    async def prepare_request(self, path: str, body: bytes, headers: Headers) -> PreparedRequest:
        """A request to one of the three paths above. Raises Refused."""
        try:
            found = json.loads(body)
            if path == MESSAGES:
                return await self._prepare_messages(found, body, headers)
            return await self._prepare_repair(path, found, body, headers)
        except ToolsRefused as error:
            raise RequestRefused(400, "too_many_tools", str(error)) from None
        except (ValueError, RecursionError, AttributeError):
            return PreparedRequest(body)

    async def _prepare_messages(
        self, found: JsonObject, body: bytes, headers: Headers
    ) -> PreparedRequest:
        offer, search = read_offer(found, self._settings.max_tools), self._parts.search
        if offer is None:
            return PreparedRequest(body)
        repair = self._begin_repair(offer, headers)
        if search is None or not has_custom_search(found):
            return PreparedRequest(body, repair)
        count = partial(self._count_outcome, "tool_searches")
        asked = search, found, repair, count, self._settings.max_held
        made = await anyio.to_thread.run_sync(MessagesSearch, *asked)
        return PreparedRequest(body, repair, made)

    async def _prepare_repair(
        self, path: str, found: Any, body: bytes, headers: Headers
    ) -> PreparedRequest:
        chosen, search = dict[str, str](), self._parts.search
        if asks_for_tools(found):
            picked = await self._choose_tools(found)
            found, chosen = picked.body, picked.tool_ids
            body = _write_body(found)
        if search is not None and path == RESPONSES:
            resumed = search.continued.resume_request(found)
            body = body if resumed is found else _write_body(resumed)
            found = resumed
        searches = search is not None and path == RESPONSES and has_client_search(found)
        offer = read_offer(found, self._settings.max_tools, empty=searches)
        if offer is None:
            return PreparedRequest(body)
        if searches:
            found = drop_own_ids(found)
            body = _write_body(found)
        repair = self._begin_repair(replace(offer, chosen=chosen), headers)
        if search is None or not searches:
            return PreparedRequest(body, repair)
        count = partial(self._count_outcome, "tool_searches")
        most = self._settings.max_held
        return PreparedRequest(body, repair, ResponsesSearch(search, found, repair, count, most))

    def _begin_repair(self, offer: ToolOffer, headers: Headers) -> CallRepair:
        revising, reviser = None, self._parts.reviser
        if reviser is not None:
            count = partial(self._count_outcome, "calls_revised")
            opened = reviser.open(headers)
            revising = RequestReviser(reviser.label, opened, reviser.timeout_s, count)
        return CallRepair(offer, self._settings.history, revising)

    def _count_outcome(self, name: str, outcome: str) -> None:
        self._metrics.count(name, f'outcome="{outcome}"')

    async def _choose_tools(self, body: Any) -> ToolChoice:
        if self._parts.chooser is None:
            reason = 'tools: "auto" needs an index to pick from; start the proxy with --index'
            raise RequestRefused(400, "no_index", reason)
        try:
            return await anyio.to_thread.run_sync(self._parts.chooser.choose_tools, body)
        except NotChosen as error:
            raise RequestRefused(400, "no_tools_chosen", str(error)) from None


def _write_body(body: JsonObject) -> bytes:
    return json.dumps(body).encode()  # half a surrogate pair is no UTF-8


class RequestAnswering:
    """Sends requests on and judges what comes back, for one event loop."""

    def __init__(self, settings: ProxySettings, metrics: ProxyMetrics, parts: ProxyParts) -> None:
        self._settings, self._metrics, self._parts = settings, metrics, parts
        if not settings.upstream and parts.local is None:
            raise ProxyError("neither --upstream nor --local: nobody is there who answers")
        self._remote = Upstream(settings) if settings.upstream else None
        self._preparation = RequestPreparation(settings, metrics, parts)
        self._first = FirstCall(parts.local) if parts.local and self._remote else None

    async def close(self) -> None:
        """Closes the connections to the upstream."""
        if self._remote is not None:
            await self._remote.close()

    async def answer_request(
        self, request: Request, body: bytes, exchange: HttpExchange, *, own: bool
    ) -> None:
        """Answers one request below `/v1`. own: its Authorization is the proxy's token."""
        began = time.perf_counter()
        path = request.scope["path"] if request.method == "POST" else ""
        whole, stream = JUDGED.get(path, (None, None))
        headers, ready = choose_headers(request.headers.raw, self._settings.key, own=own), None
        try:
            if path in JUDGED:
                ready = await self._preparation.prepare_request(path, body, headers)
        except RequestRefused as error:
            self._metrics.count("refused", f'reason="{error.code}"')
            await exchange.send_error(error)
            return
        ready = ready or PreparedRequest(body)
        repair = ready.repair
        raw = request.scope["raw_path"]
        query = request.scope["query_string"]
        rest = (raw[len(b"/v1") :] + (b"?" + query if query else b"")).decode("latin-1")
        spent = time.perf_counter() - began
        try:
            if repair is not None and self._first is not None and path != MESSAGES:
                answer = await self._first.write_answer(rest, ready.body, repair)
                self._metrics.count("first_calls", f'outcome="{answer.outcome}"')
                if answer.sent:
                    repair = answer.repair
                    await exchange.send_whole(200, answer.headers, answer.sent)
                    return
            opened = self._open_answer(request.method, rest, headers, ready)
            async with opened as response:
                if repair is None or not is_readable(response):
                    await exchange.start(response.status_code, keep_headers(response))
                    async for part in response.aiter_raw():
                        await exchange.send_part(part)
                    await exchange.end()
                elif response.headers.get("content-type", "").startswith("text/event-stream"):
                    spent += await self._stream_repaired(response, exchange, stream, repair)
                else:
                    spent += await self._send_repaired(response, exchange, whole, repair)
        except (UpstreamFailed, httpx2.HTTPError) as error:
            await self._tell_failure(error, exchange)
        if repair is not None:
            exchange.repaired = repair.count_repaired()
            self._metrics.count("calls_repaired", by=exchange.repaired)
            self._metrics.count("calls_left", by=repair.count_left())
            self._metrics.observe_overhead(spent)

    def _open_answer(self, method: str, rest: str, headers: Headers, ready: PreparedRequest) -> Any:
        """Of the upstream, or of the local model where there is none."""
        answers, body = self._remote or self._parts.local, ready.body
        assert answers is not None
        if ready.search is not None:
            return ready.search.open_answer(answers, method, rest, headers, body)
        return answers.open_answer(method, rest, headers, body)

    async def _send_repaired(
        self, response: httpx2.Response, exchange: HttpExchange, change: Any, repair: CallRepair
    ) -> float:
        """Seconds that it took once the body was there."""
        parts, size, source = [], 0, response.aiter_raw()
        async for part in source:
            parts.append(part)
            size += len(part)
            if size > self._settings.max_held:
                await exchange.start(200, keep_headers(response))
                await exchange.send_part(b"".join(parts))
                async for more in source:
                    await exchange.send_part(more)
                await exchange.end()
                return 0.0
        began, body = time.perf_counter(), b"".join(parts)
        if (found := read_object(body)) is not None:
            await change(found, repair)
            if field := repair.describe_field():
                body = json.dumps({**found, "toolmill": field}).encode()
        count = str(repair.count_repaired()).encode()
        headers = [*keep_headers(response), (b"x-toolmill-repaired", count)]
        await exchange.send_whole(200, headers, body)
        return time.perf_counter() - began

    async def _stream_repaired(
        self, response: httpx2.Response, exchange: HttpExchange, kind: Any, repair: CallRepair
    ) -> float:
        """Seconds that it took, waiting for the upstream and the client left out."""
        await exchange.start(200, keep_headers(response))
        most, spent = self._settings.max_held, 0.0
        stream, reader = kind(repair, most), EventReader(most)
        try:
            async for part in response.aiter_raw():
                began = time.perf_counter()
                ready = b"".join([await stream.feed(item) for item in reader.take(part)])
                spent += time.perf_counter() - began
                if ready:
                    await exchange.send_part(ready)
            for event in reader.end():
                await exchange.send_part(b"".join([*stream.drain(), event.raw]))
        finally:  # of an answer that broke off, what there is goes on as it came
            held = b"".join(stream.drain())
            if held:
                with anyio.move_on_after(1, shield=True):
                    await exchange.send_part(held)
        await exchange.end()
        return spent

    async def _tell_failure(self, error: Exception, exchange: HttpExchange) -> None:
        failed = (
            error if isinstance(error, UpstreamFailed) else explain_failure(error, self._settings)
        )
        self._metrics.count("upstream_failures", f'reason="{failed.code}"')
        logger.warning("%s", failed)
        await exchange.send_error(RequestRefused(failed.status, failed.code, str(failed)))


class ProxyApp:
    """The ASGI application, for one event loop."""

    def __init__(
        self, settings: ProxySettings, listening: HttpSettings, parts: ProxyParts | None = None
    ) -> None:
        from opentelemetry import trace

        self._settings, self._listening = settings, listening
        self.metrics = ProxyMetrics()
        parts = parts or ProxyParts()
        self._answering = RequestAnswering(settings, self.metrics, parts)
        self._traces = parts.traces
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
                try:
                    await self._answering.answer_request(request, body, exchange, own=own)
                finally:
                    if self._traces is not None and request.scope["path"] in JUDGED:
                        with anyio.CancelScope(shield=True):
                            await anyio.to_thread.run_sync(self._traces.keep_request, body)
                group.cancel_scope.cancel()
            if anyio.current_time() >= ends and not exchange.started:
                found = f"the request took more than {self._settings.total_s:g} s"
                raise RequestRefused(504, "request_timeout", f"{found}; ask for less at once")
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
                raise RequestRefused(413, "body_too_large", f"{found}; send less")
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
