"""Answering: one request sent to the upstream, and what comes back judged and handed on."""

import json
import logging
import time
from collections.abc import Mapping
from typing import Any

import anyio
import httpx2
from starlette.requests import Request

from extensions.proxy.apis.chat import ChatStream, repair_chat
from extensions.proxy.apis.messages import MessageStream, repair_message
from extensions.proxy.apis.responses import ResponsesStream, repair_response
from extensions.proxy.calls import CallRepair
from extensions.proxy.events import EventReader
from extensions.proxy.exchange import Exchange, Refused
from extensions.proxy.local.first_call import FirstCall
from extensions.proxy.metrics import Metrics
from extensions.proxy.parts import ProxyParts
from extensions.proxy.prepare import CHAT, MESSAGES, RESPONSES, Preparation, Prepared
from extensions.proxy.settings import ProxyError, ProxySettings
from extensions.proxy.upstream import (
    Headers,
    Upstream,
    UpstreamFailed,
    choose_headers,
    explain_failure,
    keep_headers,
)

logger = logging.getLogger(__name__)

JUDGED = {
    CHAT: (repair_chat, ChatStream),
    RESPONSES: (repair_response, ResponsesStream),
    MESSAGES: (repair_message, MessageStream),
}


class Answering:
    """Sends requests on and judges what comes back, for one event loop."""

    def __init__(self, settings: ProxySettings, metrics: Metrics, parts: ProxyParts) -> None:
        self._settings, self._metrics, self._parts = settings, metrics, parts
        if not settings.upstream and parts.local is None:
            raise ProxyError("neither --upstream nor --local: nobody is there who answers")
        self._remote = Upstream(settings) if settings.upstream else None
        self._preparation = Preparation(settings, metrics, parts)
        self._first = FirstCall(parts.local) if parts.local and self._remote else None

    async def close(self) -> None:
        """Closes the connections to the upstream."""
        if self._remote is not None:
            await self._remote.close()

    async def answer_request(
        self, request: Request, body: bytes, exchange: Exchange, *, own: bool
    ) -> None:
        """Answers one request below `/v1`. own: its Authorization is the proxy's token."""
        began = time.perf_counter()
        path = request.scope["path"] if request.method == "POST" else ""
        whole, stream = JUDGED.get(path, (None, None))
        headers, ready = choose_headers(request.headers.raw, self._settings.key, own=own), None
        try:
            if path in JUDGED:
                ready = await self._preparation.prepare_request(path, body, headers)
        except Refused as error:
            self._metrics.count("refused", f'reason="{error.code}"')
            await exchange.send_error(error)
            return
        ready = ready or Prepared(body)
        repair = ready.repair
        raw = request.scope["raw_path"]
        query = request.scope["query_string"]
        rest = (raw[len(b"/v1") :] + (b"?" + query if query else b"")).decode("latin-1")
        spent = time.perf_counter() - began
        try:
            if repair is not None and self._first is not None and path != MESSAGES:
                found = await self._first.write_answer(rest, ready.body, repair)
                self._metrics.count("first_calls", f'outcome="{found.outcome}"')
                if found.sent:
                    repair = found.repair
                    await exchange.send_whole(200, found.headers, found.sent)
                    return
            opened = self._open_answer(request.method, rest, headers, ready)
            async with opened as response:
                if repair is None or response.status_code != 200 or _is_packed(response):
                    await self._pass_answer(response, exchange)
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

    def _open_answer(self, method: str, rest: str, headers: Headers, ready: Prepared) -> Any:
        """Of the upstream, or of the local model where there is none."""
        answers, body = self._remote or self._parts.local, ready.body
        assert answers is not None
        if ready.search is not None:
            most = self._settings.max_held
            return ready.search.open_answer(answers, method, rest, headers, body, most)
        return answers.open_answer(method, rest, headers, body)

    async def _pass_answer(self, response: httpx2.Response, exchange: Exchange) -> None:
        await exchange.start(response.status_code, keep_headers(response))
        async for part in response.aiter_raw():
            await exchange.send_part(part)
        await exchange.end()

    async def _send_repaired(
        self, response: httpx2.Response, exchange: Exchange, change: Any, repair: CallRepair
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
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, Mapping):
            await change(found, repair)
            if field := repair.describe_field():
                body = json.dumps({**found, "toolmill": field}).encode()
        count = str(repair.count_repaired()).encode()
        headers = [*keep_headers(response), (b"x-toolmill-repaired", count)]
        await exchange.send_whole(200, headers, body)
        return time.perf_counter() - began

    async def _stream_repaired(
        self, response: httpx2.Response, exchange: Exchange, kind: Any, repair: CallRepair
    ) -> float:
        """Seconds that it took, waiting for the upstream and the client left out."""
        await exchange.start(200, keep_headers(response))
        most, spent = self._settings.max_held, 0.0
        stream, reader = kind(repair, most), EventReader(most)
        try:
            async for part in response.aiter_raw():
                began = time.perf_counter()
                ready = b"".join([await stream.feed(one) for one in reader.take(part)])
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

    async def _tell_failure(self, error: Exception, exchange: Exchange) -> None:
        failed = (
            error if isinstance(error, UpstreamFailed) else explain_failure(error, self._settings)
        )
        self._metrics.count("upstream_failures", f'reason="{failed.code}"')
        logger.warning("%s", failed)
        await exchange.send_error(Refused(failed.status, failed.code, str(failed)))


def _is_packed(response: httpx2.Response) -> bool:
    return response.headers.get("content-encoding", "identity") != "identity"
