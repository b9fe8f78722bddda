"""The one client through which every language-model request goes.

prepare (request, key) -> look up in the ledger -> send (paid once) -> tolerant parse -> value
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from warehouse.ledger.ledger import BudgetExceeded, Ledger, Outcome
from warehouse.llm.dispatch import GIVE_UP_AFTER, Sending
from warehouse.llm.request_keys import Prepared, prepared, price, request_key
from warehouse.llm.roles import (
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
from warehouse.llm.structured_output import BadAnswer, parse
from warehouse.storage.digest import canonical_json

__all__ = [
    "GIVE_UP_AFTER", "LLM", "OFFLINE", "Completion", "LLMError", "Prepared", "Provider", "Reply",
    "Request", "Role", "request_key",
]  # fmt: skip

# One answer in a few hundred is cut off at its limit; this much more room ends nearly all of them.
ENLARGE = 4


@dataclass(frozen=True)
class _Paid:
    """One answer and its price; `cached` when it came out of the ledger."""

    completion: Completion
    usd: float
    cached: bool


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
        self._sending = Sending(self.roles.values())

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
            from warehouse.llm.endpoint import Endpoint

            self._endpoint = Endpoint()
        return self._endpoint

    def identity(self, name: str) -> dict[str, Any]:
        """What of this role decides its answers, for the plan of a stage: part of every key."""
        role = self.role(name)
        return {**role.identity(), "version": self.provider(role).version()}

    def figures(self) -> dict[str, int | float]:
        """What `Progress.update` is told beside done and total: asked, cached, failed, usd."""
        counts = {name: self.counts[name] for name in ("asked", "cached", "failed")}
        return {**counts, "usd": round(self.usd, 4)}

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
        try:
            return await self._converse(
                self.prepare(role, messages, schema=schema, seed=seed, meta=meta)
            )
        except (LLMError, BudgetExceeded):
            self.counts["failed"] += 1
            raise

    def prepare(
        self,
        role: str,
        messages: Sequence[Message],
        *,
        schema: type[BaseModel],
        seed: int = 0,
        meta: Mapping[str, Any] | None = None,
    ) -> Prepared:
        """The first question that `complete` would ask; nothing is sent, reserved or recorded."""
        who = self.role(role)
        request = Request(who, list(messages), schema, seed, dict(meta or {}), who.max_tokens)
        return self._prepared(request, "")

    def known(self, question: Prepared) -> Completion | None:
        """The stored answer to a question, if it was ever paid."""
        data = self._ledger.seen(question.key)
        return None if data is None else _stored(data)[0]

    def _prepared(self, request: Request, variant: str) -> Prepared:
        return prepared(request, self.provider(request.role).version(), variant)

    async def _converse(self, first: Prepared) -> "Reply[Any]":
        request, receipts = first.request, [await self._paid(first)]
        if receipts[-1].completion.finish == "length":
            receipts.append(await self._enlarged(request))
        said = receipts[-1].completion
        try:
            value = parse(said.text, said.finish, request.schema)
        except BadAnswer as flaw:
            if not flaw.ask_again:
                raise _unusable(request.role, flaw) from flaw
            asked = replace(request, messages=[*request.messages, *_complaint(said.text, flaw)])
            receipts.append(await self._paid(self._prepared(asked, "again")))
            said = receipts[-1].completion
            try:
                value = parse(said.text, said.finish, request.schema)
            except BadAnswer as second:
                raise _unusable(request.role, second) from second
        return Reply(
            value=value,
            model=said.model,
            provider=request.role.provider,
            prompt_tokens=sum(paid.completion.prompt_tokens for paid in receipts),
            completion_tokens=sum(paid.completion.completion_tokens for paid in receipts),
            usd=round(sum(paid.usd for paid in receipts), 9),
            cached=all(paid.cached for paid in receipts),
        )

    async def _enlarged(self, request: Request) -> _Paid:
        """The answer with more room. One that was kept serves whatever the limit is now, unless it
        too was cut off and there is more room now than there was then."""
        wider = replace(request, max_tokens=request.max_tokens * ENLARGE)
        paid = await self._paid(self._prepared(wider, "enlarged"))
        cut = paid.completion.finish == "length" and paid.completion.limit < wider.max_tokens
        return await self._paid(self._prepared(wider, f"to {wider.max_tokens}")) if cut else paid

    async def _paid(self, question: Prepared) -> _Paid:
        """The answer to one question: out of the ledger without waiting for anything, or sent."""
        data = self._ledger.seen(question.key)
        if data is not None:
            self.counts["cached"] += 1
            return _Paid(*_stored(data), cached=True)
        paid = await self._sending.send(
            question.request.role, question.most_tokens, lambda tries: self._try(question, tries)
        )
        self.counts["cached" if paid.cached else "asked"] += 1
        return paid

    async def _try(self, question: Prepared, tries: int) -> tuple[_Paid, int | None]:
        """One try through the ledger, and the tokens it used (None: nothing was sent)."""
        request, sent = question.request, False
        provider = self.provider(request.role)

        async def carry_out() -> Outcome:
            nonlocal sent
            sent = True
            answer = await provider.answer(request)
            completion = replace(answer, retries=tries, limit=request.max_tokens)
            used = completion.prompt_tokens, completion.completion_tokens
            usd = price(request.role, *used)
            self.usd += usd
            stored = canonical_json({**vars(completion), "usd": usd})
            return Outcome(stored, completion.model, *used, usd)

        data = await self._ledger.once_async(
            f"llm:{request.role.name}",
            question.key,
            carry_out,
            partition=self._partition,
            reserve_usd=question.most_usd,
            scope=self._scope,
        )
        completion, usd = _stored(data)
        used = completion.prompt_tokens + completion.completion_tokens
        return _Paid(completion, usd, cached=not sent), used if sent else None

    async def aclose(self) -> None:
        """Closes connections of the running event loop; call it before the loop ends."""
        close = getattr(self._endpoint, "aclose", None)
        if close is not None:
            await close()


def _stored(data: bytes) -> tuple[Completion, float]:
    """An answer as its blob holds it, and its price in US dollars."""
    stored = json.loads(data)
    usd = float(stored.pop("usd"))
    return Completion(**stored), usd


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
