"""A local model in the place of the upstream, or for the first call of a conversation."""

import json
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import httpx2

from extensions.proxy.answer_calls import repair_response
from extensions.proxy.calls import CallRepair
from extensions.proxy.chat_calls import repair_chat
from extensions.proxy.exchange import list_dicts, read_object
from extensions.proxy.local_forms import (
    BadRequest,
    CannotAnswer,
    LocalAnswer,
    LocalRequest,
    read_chat_request,
    read_responses_request,
    write_chat_events,
    write_completion,
    write_response,
    write_response_events,
)
from extensions.proxy.upstream import Headers, UpstreamFailed
from warehouse.json_types import JsonObject

if TYPE_CHECKING:
    from extensions.proxy.local_caller import LocalCaller

CHAT, RESPONSES = "/chat/completions", "/responses"
_JSON, _STREAM = b"application/json", b"text/event-stream"


class LocalUpstream:
    """Answers `/v1/chat/completions`, `/v1/responses` and `/v1/models`, for one event loop.

    waiting: requests that may wait for the one that is answered; more are refused (503).
    """

    def __init__(self, model: "LocalCaller", waiting: int = 32) -> None:
        self.model, self._most = model, waiting
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
        if (asked := read_object(body)) is None:
            raise UpstreamFailed(400, "bad_request", "the body is no JSON object")
        whole = await self.write_answer(path, asked)
        if asked.get("stream"):
            yield _make_response("text/event-stream", write_events(path, asked, whole))
        else:
            yield _write_json(whole)

    async def write_answer(self, path: str, body: JsonObject) -> dict[str, Any]:
        """The body of the whole answer in the form of its API. Raises UpstreamFailed."""
        try:
            read = read_chat_request if path == CHAT else read_responses_request
            request = read(body)
        except BadRequest as error:
            raise UpstreamFailed(400, "bad_request", str(error)) from None
        answer, label = await self._ask_in_turn(request), self.model.label
        if path == CHAT:
            return write_completion(answer, label)
        return write_response(answer, label, body)

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
    return _make_response("application/json", [json.dumps(body).encode()])


def _make_response(kind: str, parts: Iterable[bytes]) -> httpx2.Response:
    """A body that is read in parts, as an upstream's is."""

    async def iterate() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    return httpx2.Response(200, headers={"content-type": kind}, content=iterate())


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
