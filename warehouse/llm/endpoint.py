"""Providers by protocol: OpenAI-compatible endpoints (`openai` SDK) and those of packages."""

import asyncio
import importlib
import os
import traceback
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from warehouse.llm.roles import (
    OPENAI,
    LLMError,
    ModelCompletion,
    ModelRequest,
    NoAnswer,
    Provider,
    Role,
    classify_status,
)
from warehouse.network.http import parse_retry_after
from warehouse.sanitize.untrusted_text import drop_surrogates

T = TypeVar("T")

BACKOFF_S = 0.5
# Parameters a compatible endpoint may reject by name; each is dropped (or renamed) once.
_MOST_TOKENS = 2**31
_MOST_BYTES = 8 << 20  # of an answer, decoded; JSON takes up to 25 times that in memory
_OPTIONAL = ("response_format", "max_completion_tokens", "max_tokens", "seed", "temperature")


class OpenAIEndpoint:
    """The provider behind every model that is not `offline`."""

    def __init__(self, *, backoff_s: float = BACKOFF_S) -> None:
        self._backoff_s = backoff_s
        self._clients: WeakKeyDictionary[Any, dict[tuple, Any]] = WeakKeyDictionary()
        self._refused: defaultdict[tuple, set[str]] = defaultdict(set)

    def version(self) -> str:
        return ""

    async def answer(self, request: ModelRequest) -> ModelCompletion:
        """One chat completion. Raises NoAnswer for what may pass (429, 5xx, time-outs, broken
        connections), LLMError for what will not; both name the endpoint and the fix."""
        role = request.role
        body = make_body(request)
        choice = await self.post(role, body, lambda response: read_choice(response, role))
        return choice.completion

    async def post(self, role: Role, body: Mapping[str, Any], read: Callable[[Any], T]) -> T:
        """What `read` makes of the response to one request, sent without the optional parameters
        that the endpoint refused; raises as `answer` does, also where `read` raises ValueError."""
        refused = self._refused[(role.base_url, role.model)]
        ask = self._open_client(role).chat.completions.with_raw_response.create
        while True:
            # As `extra_body` and read by ourselves: the SDK walks every message and schema that it
            # is given as arguments, and builds every answer anew; together 2 of 5 ms a call.
            parameters = drop_refused({"model": role.model, **body}, refused)
            try:
                # The SDK's own limit starts anew with every byte; this one is for the whole answer.
                async with asyncio.timeout(role.timeout_s):
                    raw = await ask(
                        model=role.model, messages=[], extra_body=parameters, timeout=role.timeout_s
                    )
                return read(raw.http_response.json())
            except Exception as error:
                code = getattr(error, "status_code", None)
                if dropped := find_rejected(code, str(error), refused):
                    refused.add(dropped)
                    continue
                from warehouse.network.http import BodyRefused

                cause = (
                    error.__cause__ if isinstance(error.__cause__, BodyRefused) else None
                ) or error
                kind, passing = classify_error(cause)
                if kind is None:
                    raise
                raise self._make_failure(kind, passing, cause, role) from error

    def _open_client(self, role: Role) -> Any:
        """One client per event loop and endpoint: its connections belong to the loop."""
        from openai import DEFAULT_CONNECTION_LIMITS, AsyncOpenAI, DefaultAsyncHttpxClient

        from warehouse.network.egress import EgressConnector
        from warehouse.network.http import AsyncTransport

        clients = self._clients.setdefault(asyncio.get_running_loop(), {})
        place = (role.base_url, role.api_key)
        if place not in clients:
            # Local servers want no key, the SDK insists on one.
            secret = role.api_key.get_secret_value() if role.api_key else None
            key = secret or ("none" if role.base_url else None)
            base_url = role.base_url or os.environ.get("OPENAI_BASE_URL") or ""
            connector = EgressConnector(trusted=[urlsplit(base_url).hostname or ""])
            transport = AsyncTransport(connector, DEFAULT_CONNECTION_LIMITS, most_bytes=_MOST_BYTES)
            # A redirect would hand the conversation to whom nobody named.
            http = DefaultAsyncHttpxClient(transport=transport, follow_redirects=False)
            clients[place] = AsyncOpenAI(
                api_key=key, base_url=role.base_url, max_retries=0, http_client=http
            )
        return clients[place]

    def _make_failure(self, kind: str, passing: bool, error: Exception, role: Role) -> LLMError:
        hints = {
            "endpoint_down": f"start it, or fix base_url of role {role.name} or OPENAI_BASE_URL",
            "timeout": f"raise timeout_s of role {role.name} (now {role.timeout_s:g} s)",
            "rate_limited": f"set requests_per_minute of role {role.name}, or lower its"
            f" concurrency ({role.concurrency}), and run again",
            "auth": f"fix api_key of role {role.name}, or OPENAI_API_KEY where it has none",
            "bad_request": f"check that {role.model!r} exists there and takes such a request",
            "server_error": "run again later: what is done is kept",
        }
        place = role.base_url or os.environ.get("OPENAI_BASE_URL") or "the SDK's default endpoint"
        message = " ".join(str(error).split())[:200]
        problem = f"{type(error).__name__} from {place} ({message})"
        expected = f"an answer of {role.model!r}"
        if not passing:
            return LLMError(kind, problem, expected, hints[kind])
        # Seconds that a `Retry-After` asks to wait (a number or a date); 0 when it says nothing
        headers = getattr(getattr(error, "response", None), "headers", None) or {}
        return NoAnswer(
            kind,
            problem,
            expected,
            hints[kind],
            retry_after_s=parse_retry_after(headers.get("retry-after", "")) or 0.0,
            backoff_s=self._backoff_s,
            maybe_paid=_may_be_paid(error),
        )

    async def aclose(self) -> None:
        """Closes the clients of the running event loop."""
        for client in self._clients.pop(asyncio.get_running_loop(), {}).values():
            await client.close()


def make_body(request: ModelRequest) -> dict[str, Any]:
    """A chat completion that asks for JSON of the request's shape, without the model's name."""
    form = {"type": "json_schema", "json_schema": _describe_schema(request.schema)}
    return {
        "messages": [dict(message) for message in request.messages],
        "temperature": request.role.temperature,
        "seed": request.seed,
        "max_tokens": request.max_tokens,
        "response_format": form,
    }


@dataclass(frozen=True)
class AnswerChoice:
    """The first choice of a response. calls: (name, arguments as the endpoint wrote them)."""

    completion: ModelCompletion
    calls: tuple[tuple[str, Any], ...]


def read_choice(response: Any, role: Role, most_calls: int = 0) -> AnswerChoice:
    """What a response says. Raises ValueError for what is none."""
    try:
        choice, usage = response["choices"][0], response.get("usage") or {}
        message = choice["message"]
        refusal, content = message.get("refusal"), message.get("content")
        tokens = [_read_count(usage, f"{kind}_tokens") for kind in ("prompt", "completion")]
        made = (message.get("tool_calls") or []) if most_calls else []
        calls = tuple(map(_read_call, made[:most_calls]))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"a response without choices: {str(response)[:100]}") from error
    if isinstance(content, list):  # some endpoints answer in parts
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    finish = "refusal" if refusal else drop_surrogates(str(choice.get("finish_reason") or "stop"))
    model = drop_surrogates(str(response.get("model") or role.model))
    text = drop_surrogates(str(refusal or content or ""))
    return AnswerChoice(ModelCompletion(text, finish, model, *tokens), calls)


def _read_count(usage: Mapping[str, Any], name: str) -> int:
    """Tokens; a negative number would give a budget money back."""
    count = usage.get(name) or 0
    if isinstance(count, int | float) and 0 <= count < _MOST_TOKENS:
        return int(count)
    raise ValueError(f"a response whose {name} is {str(count)[:30]}, expected a count")


def _read_call(call: Any) -> tuple[str, Any]:
    name, arguments = str(call["function"]["name"]), call["function"].get("arguments")
    return drop_surrogates(name), drop_surrogates(arguments) if isinstance(
        arguments, str
    ) else arguments


def drop_refused(body: Mapping[str, Any], refused: Collection[str]) -> dict[str, Any]:
    """The body without the optional parameters that its endpoint refused."""
    accepted = dict(body)
    if "max_tokens" in refused:
        accepted["max_completion_tokens"] = accepted["max_tokens"]
    return {name: value for name, value in accepted.items() if name not in refused}


@cache
def _describe_schema(schema: type[BaseModel]) -> dict[str, Any]:
    """Making the schema costs a millisecond or two each time."""
    return {"name": schema.__name__, "schema": schema.model_json_schema()}


def find_rejected(status: int | None, message: str, refused: Collection[str]) -> str | None:
    """The optional parameter that a 400 or 422 complains of, if it was sent."""
    if status not in (400, 422):
        return None
    if "json_schema" in message:
        message += " response_format"
    return next((name for name in _OPTIONAL if name in message and name not in refused), None)


def classify_error(error: Exception) -> tuple[str | None, bool]:
    """(error kind, may pass when tried again); kind None for what is a fault of this program."""
    import openai

    from warehouse.network.http import BodyRefused

    broken = (ValueError, AttributeError, RecursionError, OverflowError, BodyRefused)
    unreadable = (openai.APIError, *broken)
    if isinstance(error, (openai.APITimeoutError, TimeoutError)):
        return "timeout", True
    if isinstance(error, openai.APIConnectionError):
        return "endpoint_down", True
    if isinstance(error, openai.APIStatusError):
        return classify_status(error.status_code, str(error))
    if isinstance(error, unreadable):
        # HTML or half a JSON document under status 200: a proxy or a dying server.
        return "server_error", True
    return None, False


def _may_be_paid(error: Exception) -> bool:
    """Whether an answer may have been billed unseen: no refusing status, no failed connection."""
    if getattr(error, "status_code", None) is not None:
        return False
    cause: BaseException | None = error
    while cause is not None:
        if type(cause).__name__ in ("ConnectError", "ConnectTimeout", "PoolTimeout"):
            return False
        cause = cause.__cause__
    return True


GROUP = "toolmill.providers"
_IMPORTING = ("<frozen ", str(Path(importlib.__file__).parent))  # frames that say nothing


@cache
def load_protocols() -> dict[str, EntryPoint]:
    """The protocols of installed packages by name; `openai` is ours and cannot be replaced."""
    points = {point.name: point for point in entry_points(group=GROUP)}
    return {name: point for name, point in sorted(points.items()) if name != OPENAI}


def open_provider(protocol: str) -> Provider:
    """A new provider of `protocol`. Raises LLMError `no_provider` if absent or broken."""
    if protocol == OPENAI:
        return OpenAIEndpoint()
    protocols = load_protocols()
    if protocol not in protocols:
        expected = f"one of {', '.join((OPENAI, *protocols))}"
        hint = f"install the package that registers it under {GROUP}"
        raise LLMError("no_provider", f"protocol {protocol!r:.80}", expected, hint)
    point = protocols[protocol]
    expected = "a class without arguments, with version() and answer(request)"
    hint = f"correct that package, or choose another protocol than {protocol!r:.80} for the role"
    try:
        provider = point.load()()
        missing = [
            name for name in ("version", "answer") if not callable(getattr(provider, name, 0))
        ]
    except (Exception, SystemExit) as error:  # another package's code
        problem = f"{point.value}, which fails with {_describe_place(error)}"
        raise LLMError("no_provider", problem, expected, hint) from error
    if missing:
        raise LLMError("no_provider", f"{point.value} without {missing[0]}()", expected, hint)
    return _PackageProvider(point, provider)


class _PackageProvider:
    """Another package's provider; its faults are told by place, as its words may hold a key."""

    def __init__(self, point: EntryPoint, provider: Any) -> None:
        self._point, self._made = point, provider

    def version(self) -> str:
        return str(self._made.version())

    async def answer(self, request: ModelRequest) -> ModelCompletion:
        hint = "correct that package; what it answered before is kept"
        try:
            answer = await self._made.answer(request)
        except LLMError:
            raise
        except (Exception, SystemExit) as error:
            problem = f"{self._point.value}, which fails with {_describe_place(error)}"
            raise LLMError(
                "provider_failed", problem, "a Completion or an LLMError", hint
            ) from error
        if not isinstance(answer, ModelCompletion):
            problem = f"{self._point.value}, which answers with a {type(answer).__name__}"
            raise LLMError("provider_failed", problem, "a Completion", hint)
        return answer

    async def aclose(self) -> None:
        if close := getattr(self._made, "aclose", None):
            await close()


def _describe_place(error: BaseException) -> str:
    """`ModuleNotFoundError of 'acme' at provider.py:12 answer`; no message, it may hold a key."""
    place = type(error).__name__
    if isinstance(error, ImportError | AttributeError) and error.name:
        place += f" of {error.name!r:.80}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and not frame.filename.startswith(_IMPORTING)
    ]
    if not frames:
        return f"{place} when it is made"
    return f"{place} at {Path(frames[-1].filename).name}:{frames[-1].lineno} {frames[-1].name}"
