"""The one way to a model: out of the ledger, or sent once within slots, rates and budget."""

import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from warehouse.ledger.attempts import EffectPending, Outcome
from warehouse.ledger.ledger import Ledger
from warehouse.llm.dispatch import Sending
from warehouse.llm.request_keys import Priced, compute_price
from warehouse.llm.roles import Pending, Role

Facts = dict[str, Any]


@dataclass(frozen=True)
class Question:
    """What is asked, by its name in the ledger, and the most it may use."""

    role: Role
    stage: str
    key: str
    most_tokens: int
    most_usd: float


@dataclass(frozen=True)
class Paid:
    """An answer as the ledger keeps it, and its price; `cached` when nothing was sent for it."""

    facts: Facts
    usd: float
    cached: bool


class PaidCalls:
    """All calls of some roles over one ledger; of one event loop at a time."""

    def __init__(
        self, roles: Iterable[Role], ledger: Ledger, *, partition: str = "_", scope: str = "usd"
    ) -> None:
        self._ledger, self._partition, self._scope = ledger, partition, scope
        self._sending = Sending(roles)

    def find(self, key: str) -> Paid | None:
        """The answer that was paid under that key, without waiting for anything."""
        data = self._ledger.seen(key)
        return None if data is None else _read_paid(data, cached=True)

    async def ask(self, question: Question, answer: Callable[[int], Awaitable[Facts]]) -> Paid:
        """The answer to a question: the kept one, or what `answer(tries before)` returns.

        Facts hold model, prompt_tokens and completion_tokens. Raises LLMError or BudgetExceeded;
        both leave everything resumable.
        """
        known = self.find(question.key)
        return known or await self._sending.send(
            question.role,
            question.most_tokens,
            lambda tries: self._try_call(question, answer, tries),
        )

    async def _try_call(
        self, question: Question, answer: Callable[[int], Awaitable[Facts]], tries: int
    ) -> tuple[Paid, int | None]:
        """One try through the ledger, and the tokens it used (None: nothing was sent)."""
        sent = False

        async def carry_out() -> Outcome:
            nonlocal sent
            sent = True
            return make_outcome(await answer(tries), question.role)

        try:
            data = await self._ledger.once_async(
                question.stage,
                question.key,
                carry_out,
                partition=self._partition,
                reserve_usd=question.most_usd,
                scope=self._scope,
            )
        except EffectPending as pending:
            hint = "wait for the batch, or cancel it: toolmill batch list"
            raise Pending(f"its request in batch {pending}", hint) from pending
        paid = _read_paid(data, cached=not sent)
        used = paid.facts["prompt_tokens"] + paid.facts["completion_tokens"]
        return paid, used if sent else None


def make_outcome(facts: Facts, priced: Priced) -> Outcome:
    """An answer as the ledger keeps it. Facts hold model, prompt_tokens, completion_tokens."""
    used = facts["prompt_tokens"], facts["completion_tokens"]
    usd = compute_price(priced, *used)
    stored = json.dumps({**facts, "usd": usd}, sort_keys=True).encode()
    return Outcome(stored, facts["model"], *used, usd)


def _read_paid(data: bytes, *, cached: bool) -> Paid:
    facts = json.loads(data)
    return Paid(facts, float(facts.pop("usd")), cached)
