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
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from warehouse.digest import canonical_json, digest
from warehouse.effects.answers import BadAnswer, parse
from warehouse.effects.ledger import BudgetExceeded, Ledger, Outcome
from warehouse.effects.roles import (
    OFFLINE,
    Completion,
    LLMError,
    Message,
    Provider,
    Reply,
    Request,
    Role,
    Value,
)

__all__ = ["LLM", "OFFLINE", "Completion", "LLMError", "Provider", "Reply", "Request", "Role"]


# One answer in a few hundred is cut off at its limit; this much more room ends nearly all of them.
ENLARGE = 4
# After so many requests in a row that got no answer the role stops asking: the rest of the batch
# would only wait for the same time-outs, and the next run resumes where this one stopped.
GIVE_UP_AFTER = 4


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
