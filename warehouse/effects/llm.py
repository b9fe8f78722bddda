"""The one client through which every language-model request goes.

    role -> request -> ledger (paid once) -> provider -> tolerant parse -> pydantic value

What belongs here: roles, the key of a request, budget reservation, concurrency, asking again
(larger limit when truncated, once more when the shape is wrong) and the receipt of each reply.
What does not: prompts and rubrics (`assets/synthesis`), the wire (`endpoint.py`), reading the
model's text (`answers.py`).
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from warehouse.digest import canonical_json, digest
from warehouse.effects.answers import BadAnswer, parse
from warehouse.effects.ledger import BudgetExceeded, Ledger, Outcome

Message = Mapping[str, str]
Value = TypeVar("Value", bound=BaseModel)

OFFLINE = "offline"
# One answer in a few hundred is cut off at its limit; this much more room ends nearly all of them.
ENLARGE = 4
# After so many requests in a row that got no answer the role stops asking: the rest of the batch
# would only wait for the same time-outs, and the next run resumes where this one stopped.
GIVE_UP_AFTER = 4


@dataclass(frozen=True)
class Role:
    """Who answers one kind of request. Prices are US dollars per million tokens, times seconds."""

    name: str
    model: str = OFFLINE
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    usd_in: float = 0.0
    usd_out: float = 0.0
    concurrency: int = 8
    timeout_s: float = 60.0
    max_tokens: int = 1024
    temperature: float = 0.7
    attempts: int = 5

    @property
    def provider(self) -> str:
        """`offline`, or the host that answers."""
        if self.model == OFFLINE:
            return OFFLINE
        return urlsplit(self.base_url or "").netloc or "openai-sdk-default"

    def identity(self) -> dict[str, Any]:
        """What of a role can change its answers; time-outs, limits, keys and hosts cannot."""
        return {"model": self.model, "temperature": self.temperature}


@dataclass(frozen=True)
class Request:
    """One question. `meta` holds the facts the messages were rendered from: the offline provider
    reads them, an endpoint never sees them."""

    role: Role
    messages: Sequence[Message]
    schema: type[BaseModel]
    seed: int
    meta: Mapping[str, Any]
    max_tokens: int


@dataclass(frozen=True)
class Completion:
    """What a provider returned, as it is stored in the ledger's blob."""

    text: str
    finish: str  # stop | length | refusal | content_filter | …
    model: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    retries: int = 0


class Provider(Protocol):
    """Answers requests. Raises LLMError when no answer came."""

    def version(self) -> str:
        """Mixed into the key: answers of another version are other answers ("" for an endpoint)."""
        ...

    async def answer(self, request: Request) -> Completion: ...


@dataclass(frozen=True)
class Reply(Generic[Value]):
    """A parsed answer with its receipt; `cached` when nothing was sent for it in this run."""

    value: Value
    model: str
    provider: str
    prompt_tokens: int
    completion_tokens: int
    usd: float
    cached: bool


class LLMError(RuntimeError):
    """No usable answer. `kind` is what a row's `error_kind` says, `hint` how to mend it.

    Kinds: endpoint_down, timeout, rate_limited, server_error, auth, bad_request (no answer came);
    truncated, empty, refused, non_json, wrong_shape (an answer came and is kept in the ledger);
    unknown_role, no_provider (settings).
    """

    def __init__(self, kind: str, found: str, expected: str, hint: str) -> None:
        super().__init__(f"{kind}: found {found}; expected {expected}; {hint}")
        self.kind, self.found, self.expected, self.hint = kind, found, expected, hint


class LLM:
    """All roles over one ledger. Use it from any number of tasks of one event loop at a time."""

    def __init__(
        self,
        roles: Iterable[Role],
        ledger: Ledger,
        *,
        offline: Provider | None = None,
        endpoint: Provider | None = None,
        partition: str = "_",
        scope: str = "usd",
    ) -> None:
        self.roles = {role.name: role for role in roles}
        self.counts: Counter[str] = Counter()  # asked, cached, failed (of this object's life)
        self.usd = 0.0
        self._ledger, self._partition, self._scope = ledger, partition, scope
        self._offline, self._endpoint = offline, endpoint
        self._gates: WeakKeyDictionary[Any, dict[str, asyncio.Semaphore]] = WeakKeyDictionary()
        self._silent: Counter[str] = Counter()

    def role(self, name: str) -> Role:
        """The role of that name. Raises LLMError `unknown_role` naming the known ones."""
        if name in self.roles:
            return self.roles[name]
        known = ", ".join(sorted(self.roles)) or "none"
        raise LLMError("unknown_role", repr(name), f"one of {known}", "add it to the settings")

    def provider(self, role: Role) -> Provider:
        """Who answers for this role: the injected offline provider, or the endpoint."""
        if role.model == OFFLINE:
            if self._offline is None:
                hint = "inject one, or set the role's model and base_url"
                raise LLMError("no_provider", "model 'offline'", "an offline provider", hint)
            return self._offline
        if self._endpoint is None:
            from warehouse.effects.endpoint import Endpoint

            self._endpoint = Endpoint()
        return self._endpoint

    def identity(self, name: str) -> dict[str, Any]:
        """What of this role decides its answers, for the plan of a stage: part of every key."""
        role = self.role(name)
        return {**role.identity(), "version": self.provider(role).version()}

    async def complete(
        self,
        role: str,
        messages: Sequence[Message],
        *,
        schema: type[Value],
        seed: int = 0,
        meta: Mapping[str, Any] | None = None,
    ) -> Reply[Value]:
        """Asks `role` and returns its answer as a `schema` value.

        A truncated answer is asked for once more with a larger limit, an empty or malformed one
        once more with the complaint; each of these answers is paid, kept, and part of the receipt.
        Raises LLMError (kinds above) or BudgetExceeded; both leave everything resumable.
        """
        who = self.role(role)
        first = Request(who, list(messages), schema, seed, dict(meta or {}), who.max_tokens)
        try:
            async with self._gate(who):
                return await self._converse(first)
        except (LLMError, BudgetExceeded):
            self.counts["failed"] += 1
            raise

    async def _converse(self, first: Request) -> "Reply[Any]":
        receipts: list[tuple[Completion, float, bool]] = [await self._paid(first, "")]
        completion = receipts[-1][0]
        if completion.finish == "length":
            wider = Request(**{**vars(first), "max_tokens": first.max_tokens * ENLARGE})
            receipts.append(await self._paid(wider, "enlarged"))
            completion = receipts[-1][0]
        try:
            value = parse(completion.text, completion.finish, first.schema)
        except BadAnswer as flaw:
            if not flaw.ask_again:
                raise _unusable(first.role, flaw) from flaw
            asked = [*first.messages, *_complaint(completion.text, flaw)]
            again = Request(**{**vars(first), "messages": asked})
            receipts.append(await self._paid(again, "again"))
            completion = receipts[-1][0]
            try:
                value = parse(completion.text, completion.finish, first.schema)
            except BadAnswer as second:
                raise _unusable(first.role, second) from second
        return Reply(
            value=value,
            model=completion.model,
            provider=first.role.provider,
            prompt_tokens=sum(c.prompt_tokens for c, _, _ in receipts),
            completion_tokens=sum(c.completion_tokens for c, _, _ in receipts),
            usd=round(sum(usd for _, usd, _ in receipts), 9),
            cached=all(cached for _, _, cached in receipts),
        )

    async def _paid(self, request: Request, variant: str) -> tuple[Completion, float, bool]:
        """One request through the ledger: (completion, its price in usd, came from the ledger)."""
        role, provider = request.role, self.provider(request.role)
        sent = False

        async def send() -> Outcome:
            nonlocal sent
            sent = True
            completion = await self._ask(provider, request)
            usd = price(role, completion.prompt_tokens, completion.completion_tokens)
            stored = canonical_json({**vars(completion), "usd": usd})
            used = completion.prompt_tokens, completion.completion_tokens
            return Outcome(stored, completion.model, *used, usd)

        data = await self._ledger.once_async(
            f"llm:{role.name}",
            request_key(request, provider.version(), variant),
            send,
            partition=self._partition,
            reserve_usd=price(role, _upper_bound(request.messages), request.max_tokens),
            scope=self._scope,
        )
        stored = json.loads(data)
        usd = float(stored.pop("usd"))
        self.counts["asked" if sent else "cached"] += 1
        self.usd += usd if sent else 0.0
        return Completion(**stored), usd, not sent

    async def _ask(self, provider: Provider, request: Request) -> Completion:
        name = request.role.name
        if self._silent[name] >= GIVE_UP_AFTER:
            hint = "run again when the endpoint answers: what is done is kept"
            found = f"{self._silent[name]} requests in a row without an answer, {name} stopped"
            raise LLMError("endpoint_down", found, "an answer", hint)
        try:
            completion = await provider.answer(request)
        except LLMError as error:
            # A bad request is the fault of one row, all other kinds are the fault of the endpoint.
            self._silent[name] += error.kind != "bad_request"
            raise
        self._silent[name] = 0
        return completion

    def _gate(self, role: Role) -> asyncio.Semaphore:
        gates = self._gates.setdefault(asyncio.get_running_loop(), {})
        return gates.setdefault(role.name, asyncio.Semaphore(role.concurrency))

    async def aclose(self) -> None:
        """Closes connections of the running event loop; call it before the loop ends."""
        close = getattr(self._endpoint, "aclose", None)
        if close is not None:
            await close()


def request_key(request: Request, version: str, variant: str = "") -> str:
    """The ledger key: only what can change the answer. Not the limit, the time-out or the host.

    `variant` tells the wider or second attempt from the first. `meta` counts only where the
    provider reads it (it has a version); an endpoint sees nothing but the messages.
    """
    return digest(
        {
            **request.role.identity(),
            "messages": [dict(message) for message in request.messages],
            "seed": request.seed,
            "schema": _shape(request.schema),
            "provider": version,
            "meta": dict(request.meta) if version else None,
            "variant": variant,
        }
    )


@cache
def _shape(schema: type[BaseModel]) -> str:
    """Digest of a model's JSON schema; making the schema costs a millisecond each time."""
    return digest(schema.model_json_schema())


def price(role: Role, prompt_tokens: int, completion_tokens: int) -> float:
    """US dollars for so many tokens at the role's prices."""
    return (prompt_tokens * role.usd_in + completion_tokens * role.usd_out) / 1_000_000


def _upper_bound(messages: Sequence[Message]) -> int:
    """Never fewer prompt tokens than will be billed for text that is mostly ASCII: reserving too
    much delays a request, reserving too little overspends."""
    return sum(len(str(m.get("content", "")).encode()) // 2 + 8 for m in messages)


def _complaint(text: str, flaw: BadAnswer) -> list[Message]:
    demand = f"That answer cannot be used: {flaw}. Answer again with the JSON object only."
    said = [{"role": "assistant", "content": text[:4000]}] if text.strip() else []
    return [*said, {"role": "user", "content": demand}]


def _unusable(role: Role, flaw: BadAnswer) -> LLMError:
    hints = {
        "truncated": f"raise max_tokens of role {role.name} (now {role.max_tokens})",
        "refused": "the model declined; look at the tool's text, or choose another model",
    }
    default = "the answer is kept; another seed, model or prompt asks anew"
    return LLMError(flaw.kind, str(flaw), "one JSON object", hints.get(flaw.kind, default))
