"""Any OpenAI-compatible endpoint, through the `openai` SDK.

What belongs here: the wire: retries with jitter, `Retry-After`, time-outs, structured output
where it is offered, and the differences between endpoints that claim to be compatible.
What does not: keys, budgets and parsing (`llm.py`, `answers.py`).
"""

import asyncio
import random
from collections import defaultdict
from typing import Any
from weakref import WeakKeyDictionary

from warehouse.effects.roles import Completion, LLMError, Request, Role

BACKOFF_S, LONGEST_WAIT_S = 0.5, 30.0
# Parameters a compatible endpoint may reject by name; each is dropped (or renamed) once.
_OPTIONAL = ("response_format", "max_completion_tokens", "max_tokens", "seed", "temperature")


class Endpoint:
    """The provider behind every model that is not `offline`."""

    def __init__(self, *, backoff_s: float = BACKOFF_S) -> None:
        self._backoff_s = backoff_s
        self._clients: WeakKeyDictionary[Any, dict[tuple, Any]] = WeakKeyDictionary()
        self._refused: defaultdict[tuple, set[str]] = defaultdict(set)

    def version(self) -> str:
        return ""

    async def answer(self, request: Request) -> Completion:
        """One chat completion. Retries what may pass (429, 5xx, time-outs, broken connections) up
        to the role's `attempts`. Raises LLMError naming the endpoint and the mend."""
        role = request.role
        place = (role.base_url, role.model)
        retries, attempt = 0, 0
        while True:
            try:
                return await self._send(request, self._refused[place], retries)
            except Exception as error:
                if dropped := _rejected(error, self._refused[place]):
                    self._refused[place].add(dropped)
                    continue
                attempt += 1
                kind, passing = _classify(error)
                if kind is None:
                    raise
                if not passing or attempt >= role.attempts:
                    raise _failure(kind, error, role, attempt) from error
                retries += 1
                await asyncio.sleep(self._wait(error, attempt))

    async def _send(self, request: Request, refused: set[str], retries: int) -> Completion:
        role = request.role
        response = await self._client(role).chat.completions.create(
            **_parameters(request, refused), timeout=role.timeout_s
        )
        choices = getattr(response, "choices", None)
        if not choices:
            raise ValueError("a response without choices")
        message, usage = choices[0].message, response.usage
        refusal = getattr(message, "refusal", None)
        return Completion(
            text=refusal or message.content or "",
            finish="refusal" if refusal else (choices[0].finish_reason or "stop"),
            model=response.model or role.model,
            prompt_tokens=getattr(usage, "prompt_tokens", 0) or 0,
            completion_tokens=getattr(usage, "completion_tokens", 0) or 0,
            retries=retries,
        )

    def _client(self, role: Role) -> Any:
        """One client per event loop and endpoint: its connections belong to the loop."""
        from openai import AsyncOpenAI

        clients = self._clients.setdefault(asyncio.get_running_loop(), {})
        place = (role.base_url, role.api_key)
        if place not in clients:
            # Local servers want no key, the SDK insists on one.
            key = role.api_key or ("none" if role.base_url else None)
            clients[place] = AsyncOpenAI(api_key=key, base_url=role.base_url, max_retries=0)
        return clients[place]

    def _wait(self, error: Exception, attempt: int) -> float:
        headers = getattr(getattr(error, "response", None), "headers", None) or {}
        try:
            told = float(headers.get("retry-after", ""))
        except ValueError:
            told = 0.0
        grown = self._backoff_s * 2 ** (attempt - 1)
        return min(max(told, grown * random.uniform(0.5, 1.5)), LONGEST_WAIT_S)

    async def aclose(self) -> None:
        """Closes the clients of the running event loop."""
        for client in self._clients.pop(asyncio.get_running_loop(), {}).values():
            await client.close()


def _parameters(request: Request, refused: set[str]) -> dict[str, Any]:
    role, schema = request.role, request.schema
    limit = "max_completion_tokens" if "max_tokens" in refused else "max_tokens"
    shape = {"name": schema.__name__, "schema": schema.model_json_schema()}
    wanted = {
        "model": role.model,
        "messages": [dict(message) for message in request.messages],
        "temperature": role.temperature,
        "seed": request.seed,
        limit: request.max_tokens,
        "response_format": {"type": "json_schema", "json_schema": shape},
    }
    return {name: value for name, value in wanted.items() if name not in refused}


def _rejected(error: Exception, refused: set[str]) -> str | None:
    """The optional parameter that a 400 or 422 complains of, if it was sent."""
    if getattr(error, "status_code", None) not in (400, 422):
        return None
    said = str(error)
    if "json_schema" in said:
        said += " response_format"
    return next((name for name in _OPTIONAL if name in said and name not in refused), None)


def _classify(error: Exception) -> tuple[str | None, bool]:
    """(error kind, may pass when tried again); kind None for what is a fault of this program."""
    import json

    import openai

    if isinstance(error, openai.APITimeoutError):
        return "timeout", True
    if isinstance(error, openai.APIConnectionError):
        return "endpoint_down", True
    if isinstance(error, openai.APIStatusError):
        status = error.status_code
        if status == 429:
            return "rate_limited", "insufficient_quota" not in str(error)
        if status in (401, 403):
            return "auth", False
        passing = status >= 500 or status in (408, 409)
        return ("server_error" if passing else "bad_request"), passing
    if isinstance(error, (openai.APIError, json.JSONDecodeError, ValueError, AttributeError)):
        # HTML or half a JSON document under status 200: a proxy or a dying server.
        return "server_error", True
    return None, False


def _failure(kind: str, error: Exception, role: Role, attempts: int) -> LLMError:
    hints = {
        "endpoint_down": f"start the endpoint or mend base_url of role {role.name}",
        "timeout": f"raise timeout_s of role {role.name} (now {role.timeout_s:g} s)",
        "rate_limited": f"lower concurrency of role {role.name} ({role.concurrency}), run again",
        "auth": f"mend api_key of role {role.name}",
        "bad_request": f"check that {role.model!r} exists there and takes such a request",
        "server_error": "run again later: what is done is kept",
    }
    place = role.base_url or "the SDK's default endpoint"
    said = " ".join(str(error).split())[:200]
    found = f"{type(error).__name__} from {place} after {attempts} attempts ({said})"
    return LLMError(kind, found, f"an answer of {role.model!r}", hints[kind])
