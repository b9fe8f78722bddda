"""A local model in the place of the upstream, or for the first call of a conversation."""

import json
import math
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import httpx2

from extensions.proxy.calls import CallRepair
from extensions.proxy.chat_calls import repair_chat
from extensions.proxy.examples_book import ExampleBook
from extensions.proxy.exchange import list_dicts
from extensions.proxy.local_answers import (
    ChatWriter,
    ResponseWriter,
    make_completion_head,
    write_chat_events,
    write_completion,
    write_response,
    write_response_events,
)
from extensions.proxy.local_requests import (
    BadRequest,
    CannotAnswer,
    LocalAnswer,
    LocalModel,
    LocalRequest,
    read_chat_request,
    read_responses_request,
)
from extensions.proxy.responses_calls import repair_response
from extensions.proxy.upstream import Headers, UpstreamFailed
from warehouse.json_types import JsonObject

Tell = Callable[[str], None]
CHAT, RESPONSES = "/chat/completions", "/responses"
_JSON, _STREAM = b"application/json", b"text/event-stream"


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
        """As `extensions.proxy.upstream.Upstream.open_answer`. Raises UpstreamFailed."""
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
        if asked.get("stream"):
            async with self._stream_answer(path, asked) as parts:
                yield _make_response("text/event-stream", parts)
        else:
            yield _write_json(await self.write_answer(path, asked))

    async def write_answer(self, path: str, body: JsonObject) -> dict[str, Any]:
        """The body of the whole answer in the form of its API. Raises UpstreamFailed."""
        return self._write_whole(path, body, await self._answer_body(path, body))

    def _write_whole(self, path: str, body: JsonObject, answer: LocalAnswer) -> dict[str, Any]:
        label = self.model.label
        return (
            write_completion(answer, label) if path == CHAT else write_response(answer, label, body)
        )

    async def _answer_body(
        self, path: str, body: JsonObject, tell: Tell | None = None
    ) -> LocalAnswer:
        try:
            read = read_chat_request if path == CHAT else read_responses_request
            request = read(body)
        except BadRequest as error:
            raise UpstreamFailed(400, "bad_request", str(error)) from None
        if self._examples is not None:
            request = await anyio.to_thread.run_sync(self._add_examples, request)
        return await self._ask_in_turn(request, tell)

    @asynccontextmanager
    async def _stream_answer(
        self, path: str, body: JsonObject
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The events of an answer while it is written. Raises UpstreamFailed, before the first."""
        pieces, told = anyio.create_memory_object_stream[str](math.inf)
        raised: list[Exception] = []
        found: list[LocalAnswer] = []

        async def ask() -> None:
            async with pieces:
                try:
                    tell = partial(anyio.from_thread.run_sync, pieces.send_nowait)
                    found.append(await self._answer_body(path, body, tell))
                except Exception as error:  # a group would wrap it
                    raised.append(error)

        async with anyio.create_task_group() as group, told:
            group.start_soon(ask)
            first = [piece async for piece in _take_one(told)]
            if not raised:
                try:
                    yield self._write_events(path, body, first, told, found, raised)
                except Exception as error:
                    raised.append(error)
            group.cancel_scope.cancel()
        if raised:
            raise raised[0]

    async def _write_events(
        self,
        path: str,
        body: JsonObject,
        first: list[str],
        told: AsyncIterable[str],
        found: list[LocalAnswer],
        raised: list[Exception],
    ) -> AsyncIterator[bytes]:
        label = self.model.label
        writer = (
            ChatWriter(make_completion_head(label), usage=_asks_usage(body))
            if path == CHAT
            else ResponseWriter(write_response(LocalAnswer(""), label, body))
        )
        for piece in first:
            for event in writer.write_text(piece):
                yield event
        async for piece in told:
            for event in writer.write_text(piece):
                yield event
        if raised:
            raise raised[0]
        for event in writer.end(self._write_whole(path, body, found[0])):
            yield event

    def _add_examples(self, request: LocalRequest) -> LocalRequest:
        assert self._examples is not None
        texts = [message["content"] for message in request.messages if message["role"] == "user"]
        contracts = {str(contract["name"]): contract for contract in request.contracts}
        like = self._examples.find_like(texts[-1] if texts else "", contracts)
        return replace(request, examples=like)

    async def close(self) -> None:
        """Nothing is open."""

    async def _ask_in_turn(self, request: LocalRequest, tell: Tell | None = None) -> LocalAnswer:
        if self._waiting > self._most:
            found = f"{self._most} requests wait for the local model, allowed are no more"
            raise UpstreamFailed(503, "too_many_waiting", f"{found}; try again")
        over = threading.Event()
        self._waiting += 1
        try:
            async with self._turn:
                return await anyio.to_thread.run_sync(
                    self._run_model, request, over, tell, abandon_on_cancel=True
                )
        except CannotAnswer as error:
            raise UpstreamFailed(400, "cannot_answer", str(error)) from None
        finally:
            over.set()
            self._waiting -= 1

    def _run_model(
        self, request: LocalRequest, over: threading.Event, tell: Tell | None
    ) -> LocalAnswer:
        with self._running:
            if over.is_set():
                return LocalAnswer("")
            return self.model.answer(request, over.is_set, tell)


def write_events(path: str, asked: JsonObject, whole: JsonObject) -> list[bytes]:
    """A whole answer as the events of a stream of its API."""
    if path == RESPONSES:
        return list(write_response_events(whole))
    return list(write_chat_events(whole, usage=_asks_usage(asked)))


def _asks_usage(asked: JsonObject) -> bool:
    options = asked.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


async def _take_one(told: AsyncIterable[str]) -> AsyncIterator[str]:
    """The first piece, once it is there; nothing where there is none."""
    async for piece in told:
        yield piece
        return


def _write_json(body: JsonObject) -> httpx2.Response:
    async def iterate() -> AsyncIterator[bytes]:
        yield json.dumps(body).encode()

    return _make_response("application/json", iterate())


def _make_response(kind: str, parts: AsyncIterator[bytes]) -> httpx2.Response:
    """A body that is read in parts, as an upstream's is."""
    return httpx2.Response(200, headers={"content-type": kind}, content=parts)


@dataclass(frozen=True)
class FirstAnswer:
    """outcome: written; later (the conversation has begun), none (no call), unfit, failed. sent:
    the body, b"" where the upstream is to answer. repair: of the calls in it."""

    outcome: str
    sent: bytes = b""
    headers: Headers = field(default_factory=list)
    repair: CallRepair | None = None


class FirstCall:
    """Asks the local model for the first call of a conversation. What is no call that fits, after
    the ladder, is the upstream's to answer."""

    def __init__(self, local: LocalUpstream) -> None:
        self._local = local

    async def write_answer(self, rest: str, body: bytes, repair: CallRepair) -> FirstAnswer:
        """rest: the path below `/v1`. repair: of this request, with nothing judged yet."""
        path, asked = rest.partition("?")[0], json.loads(body)
        if not is_beginning(asked):
            return FirstAnswer("later")
        try:
            whole = await self._local.write_answer(path, asked)
        except UpstreamFailed:
            return FirstAnswer("failed")
        own = repair.begin_again()
        calls = await _repair_calls(path, whole, own)
        if not calls or own.count_left():
            return FirstAnswer("unfit" if calls else "none")
        whole["toolmill"] = {**(own.describe_field() or {}), "first_call": self._local.model.label}
        if asked.get("stream"):
            sent, kind = b"".join(write_events(path, asked, whole)), _STREAM
        else:
            sent, kind = json.dumps(whole).encode(), _JSON
        count = str(own.count_repaired()).encode()
        headers = [(b"content-type", kind), (b"x-toolmill-repaired", count)]
        return FirstAnswer("written", sent, headers, own)


def is_beginning(body: JsonObject) -> bool:
    """Whether nothing was answered yet: only the user and the system have spoken."""
    if body.get("previous_response_id") or body.get("conversation"):
        return False
    given = body.get("messages", body.get("input"))
    if isinstance(given, str):
        return True
    listed = given if isinstance(given, list) else []
    roles = {
        str(item.get("role", item.get("type"))) for item in listed if isinstance(item, Mapping)
    }
    return bool(roles) and roles <= {"system", "developer", "user"}


async def _repair_calls(path: str, whole: dict[str, Any], repair: CallRepair) -> int:
    """Repairs the calls of an answer in place; how many it has."""
    if path == RESPONSES:
        await repair_response(whole, repair)
        return sum(item.get("type") == "function_call" for item in list_dicts(whole, "output"))
    assert path == CHAT
    await repair_chat(whole, repair)
    return sum(
        len(list_dicts(item.get("message"), "tool_calls")) for item in list_dicts(whole, "choices")
    )
