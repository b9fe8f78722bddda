"""A local model in the place of an upstream: one answer at a time, so many may wait."""

import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import anyio.to_thread
import httpx2

from serving.examples.book import ExampleBook
from serving.proxy.local.chat_answers import write_chat_events, write_completion
from serving.proxy.local.model import CannotAnswer, LocalAnswer, LocalModel, LocalRequest
from serving.proxy.local.requests import BadRequest, read_chat_request, read_responses_request
from serving.proxy.local.response_answers import write_response, write_response_events
from serving.proxy.upstream import UpstreamFailed
from warehouse.json_types import JsonObject

CHAT, RESPONSES = "/chat/completions", "/responses"


class LocalUpstream:
    """Answers `/v1/chat/completions`, `/v1/responses` and `/v1/models`, for one event loop.

    waiting: requests that may wait for the one that is answered; more are refused (503).
    """

    def __init__(
        self, model: LocalModel, waiting: int = 32, examples: ExampleBook | None = None
    ) -> None:
        self.model, self._most, self._examples = model, waiting, examples
        self._waiting = 0
        self._turn = anyio.Lock()
        # An answer whose client is gone ends at its next token; until then it has the model.
        self._running = threading.Lock()

    @asynccontextmanager
    async def open_answer(
        self, method: str, rest: str, headers: Any, body: bytes
    ) -> AsyncIterator[httpx2.Response]:
        """As `serving.proxy.upstream.Upstream.open_answer`. Raises UpstreamFailed."""
        path = rest.partition("?")[0]
        if method == "GET" and path == "/models":
            about = {
                "id": self.model.label,
                "object": "model",
                "created": 0,
                "owned_by": "toolmill",
            }
            yield _write_json({"object": "list", "data": [about]})
            return
        if method != "POST" or path not in (CHAT, RESPONSES):
            known = f"POST /v1{CHAT}, POST /v1{RESPONSES} and GET /v1/models"
            raise UpstreamFailed(404, "not_found", f"a local model answers {known}, nothing else")
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError):
            asked = None
        if not isinstance(asked, dict):
            raise UpstreamFailed(400, "bad_request", "the body is no JSON object")
        whole = await self.write_answer(path, asked)
        yield _write_stream(path, asked, whole) if asked.get("stream") else _write_json(whole)

    async def write_answer(self, path: str, body: JsonObject) -> dict[str, Any]:
        """The body of the whole answer in the form of its API. Raises UpstreamFailed."""
        try:
            read = read_chat_request if path == CHAT else read_responses_request
            request = read(body)
        except BadRequest as error:
            raise UpstreamFailed(400, "bad_request", str(error)) from None
        if self._examples is not None:
            request = await anyio.to_thread.run_sync(self._add_examples, request)
        answer = await self._ask_in_turn(request)
        label = self.model.label
        return (
            write_completion(answer, label) if path == CHAT else write_response(answer, label, body)
        )

    def _add_examples(self, request: LocalRequest) -> LocalRequest:
        assert self._examples is not None
        texts = [one["content"] for one in request.messages if one["role"] == "user"]
        contracts = {str(one["name"]): one for one in request.contracts}
        found = self._examples.find_like(texts[-1] if texts else "", contracts)
        return replace(request, examples=found)

    async def close(self) -> None:
        """Nothing is open."""

    async def _ask_in_turn(self, request: LocalRequest) -> LocalAnswer:
        if self._waiting > self._most:
            found = f"{self._most} requests wait for the local model, allowed are no more"
            raise UpstreamFailed(503, "too_many_waiting", f"{found}; try again")
        over = threading.Event()
        self._waiting += 1
        try:
            async with self._turn:
                return await anyio.to_thread.run_sync(
                    self._run_model, request, over, abandon_on_cancel=True
                )
        except CannotAnswer as error:
            raise UpstreamFailed(400, "cannot_answer", str(error)) from None
        finally:
            over.set()
            self._waiting -= 1

    def _run_model(self, request: LocalRequest, over: threading.Event) -> LocalAnswer:
        with self._running:
            if over.is_set():
                return LocalAnswer("")
            return self.model.answer(request, over.is_set)


def write_events(path: str, asked: JsonObject, whole: JsonObject) -> list[bytes]:
    """A whole answer as the events of a stream of its API."""
    if path == RESPONSES:
        return list(write_response_events(whole))
    options = asked.get("stream_options")
    usage = isinstance(options, dict) and options.get("include_usage") is True
    return list(write_chat_events(whole, usage=usage))


def _write_json(body: JsonObject) -> httpx2.Response:
    return _make_response("application/json", json.dumps(body, ensure_ascii=False).encode())


def _write_stream(path: str, asked: JsonObject, whole: JsonObject) -> httpx2.Response:
    return _make_response("text/event-stream", *write_events(path, asked, whole))


def _make_response(kind: str, *parts: bytes) -> httpx2.Response:
    """A body that is read in parts, as an upstream's is."""

    async def iterate() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    return httpx2.Response(200, headers={"content-type": kind}, content=iterate())
