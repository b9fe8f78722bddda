"""A call to a model: read from the ledger, or sent once within slots, rates and budget.

slot of the role -> rates of endpoint and model -> one try -> wait and try again, or give up
"""

import asyncio
import json
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from warehouse.ledger.attempts import EffectOutcome, EffectPending
from warehouse.ledger.ledger import Ledger
from warehouse.llm.roles import (
    OFFLINE,
    AnswerPending,
    LLMError,
    NoAnswer,
    Role,
    TokenPrices,
    compute_price,
)

# Requests may come a second's worth early, tokens ten: they are reserved by an upper bound and
# corrected a few seconds later, and one bound often passes a second's worth.
REQUESTS_EARLY_S, TOKENS_EARLY_S = 1.0, 10.0
_LONGEST_SLEEP_S = 1.0  # whoever waits looks again, because others give back what they did not use
# One answer in twenty is a 429 or a 500 on an endpoint that is well; more than a quarter is load.
_ROUND, _TOO_MANY = 16, 0.25


class TokenBucket:
    """A token bucket kept as the time when all will have flowed back, so not bound to an event
    loop. A larger amount passes when it is full; later ones wait."""

    def __init__(
        self,
        per_minute: float,
        early_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._per_s, self._early_s = per_minute / 60, early_s
        self._clock, self._sleep = clock, sleep
        self._even_at = clock()

    async def take(self, amount: float) -> None:
        """Waits until `amount` may be used, and takes it."""
        if self._per_s <= 0:
            return
        while (wait := self._even_at - self._early_s - self._clock()) > 0:
            await self._sleep(min(wait, _LONGEST_SLEEP_S))
        self._even_at = max(self._even_at, self._clock()) + amount / self._per_s

    def give_back(self, amount: float) -> None:
        """Returns what was taken and not used; a negative amount is what was used beyond it."""
        if self._per_s > 0:
            self._even_at -= amount / self._per_s


class RoleSlots:
    """At most `most` requests of a role under way, by one loop. Additive increase, multiplicative
    decrease: halved when over a quarter of the last answers were 429, 5xx or time-outs."""

    def __init__(self, most: int) -> None:
        self.limit = float(most)
        self._most, self._open = most, most  # `_open`: permits that are held or free
        self._permits = asyncio.Semaphore(most)
        self._round: deque[bool] = deque(maxlen=max(_ROUND, most))
        self._closed_until = 0.0

    @asynccontextmanager
    async def hold_slot(self) -> AsyncIterator[None]:
        """Holds one slot."""
        await self._permits.acquire()
        try:
            while (wait := self._closed_until - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            yield
        finally:
            if self._open > int(self.limit):
                self._open -= 1  # halved since: this permit leaves circulation
            else:
                self._permits.release()

    def note_answer(self) -> None:
        """An answer came."""
        self._round.append(True)
        self.limit = min(self._most, self.limit + 1 / self.limit)
        if self._open < int(self.limit):
            self._open += 1
            self._permits.release()

    def note_overload(self, retry_after_s: float = 0.0) -> None:
        """A 429, a 5xx or a time-out came. retry_after_s: as it says, kept by all when halved."""
        self._round.append(False)
        if self._round.count(False) > _TOO_MANY * (self._round.maxlen or _ROUND):
            self.limit = max(1.0, self.limit / 2)
            self._closed_until = max(self._closed_until, time.monotonic() + retry_after_s)
            self._round.clear()


T = TypeVar("T")

# After so many requests in a row that got no answer the role stops asking: the rest of the batch
# would only wait for the same time-outs, and the next run resumes where this one stopped.
GIVE_UP_AFTER = 4
# A longer Retry-After is not waited for: a run has an end, and the ledger keeps what is done.
LONGEST_WAIT_S = 60.0
# Requests that leave in one burst come back in one burst: each answer costs this process some
# milliseconds, and all 32 of a burst wait for each other. Apart by about that, none waits.
APART_S = 0.004
_LOAD = ("rate_limited", "timeout", "server_error")


class RequestDispatcher:
    """The way out of one client's requests. Slots are a role's own; buckets belong to an endpoint
    and model, and the strictest rate among the roles that share them holds."""

    def __init__(self, roles: Iterable[Role]) -> None:
        by_place: dict[tuple, list[Role]] = {}
        for role in roles:
            by_place.setdefault(_find_place(role), []).append(role)
        self._requests = {
            place: TokenBucket(
                _find_strictest(r.requests_per_minute for r in sharing), REQUESTS_EARLY_S
            )
            for place, sharing in by_place.items()
        }
        self._tokens = {
            place: TokenBucket(
                _find_strictest(r.tokens_per_minute for r in sharing), TOKENS_EARLY_S
            )
            for place, sharing in by_place.items()
        }
        self._slots: WeakKeyDictionary[Any, dict[str, RoleSlots]] = WeakKeyDictionary()
        self._next_at = 0.0
        self._silent: Counter[str] = Counter()
        self._shut: dict[tuple, tuple[float, LLMError]] = {}  # place -> (open again at, why)

    async def send(
        self,
        role: Role,
        most_tokens: int,
        one_try: Callable[[int], Awaitable[tuple[T, int | None]]],
    ) -> T:
        """What `one_try(tries before)` returns: (value, tokens used, None if unsent). Raises
        LLMError after `attempts`, a wait over LONGEST_WAIT_S, or the role's giving up."""
        attempt = 0
        while True:
            try:
                return await self._send_once(role, most_tokens, attempt, one_try)
            except NoAnswer as error:
                attempt += 1
                if error.retry_after_s > LONGEST_WAIT_S:
                    raise self._shut_until_retry(role, error) from error
                if attempt >= role.attempts:
                    self._silent[role.name] += 1
                    problem = f"{error.found} after {attempt} attempts"
                    raise LLMError(error.kind, problem, error.expected, error.hint) from error
                wait = error.wait_s(attempt)
            # Without a slot and without a claim in the ledger: others go meanwhile.
            await asyncio.sleep(wait)

    async def _send_once(
        self,
        role: Role,
        most_tokens: int,
        attempt: int,
        one_try: Callable[[int], Awaitable[tuple[T, int | None]]],
    ) -> T:
        by_role = self._slots.setdefault(asyncio.get_running_loop(), {})
        if role.name not in by_role:
            by_role[role.name] = RoleSlots(role.concurrency)
        place, slots = _find_place(role), by_role[role.name]
        requests, tokens = self._requests[place], self._tokens[place]
        async with slots.hold_slot():
            self._check_open(role)
            await self._space_requests(role)
            await requests.take(1)
            await tokens.take(most_tokens)
            used: int | None = None
            try:
                self._check_open(role)
                value, used = await one_try(attempt)
            except LLMError as error:
                used = most_tokens  # it was sent, and the endpoint may have counted it
                self._learn_from(role, slots, error)
                raise
            finally:
                # Nothing went out: no budget, or another process had it answered meanwhile.
                requests.give_back(1 if used is None else 0)
                tokens.give_back(most_tokens - (used or 0))
        if used is not None:
            self._silent[role.name] = 0
            slots.note_answer()
        return value

    async def _space_requests(self, role: Role) -> None:
        if role.model == OFFLINE:
            return
        now = time.monotonic()
        at = max(now, self._next_at)
        self._next_at = at + APART_S
        if at > now:
            await asyncio.sleep(at - now)

    def _learn_from(self, role: Role, slots: RoleSlots, error: LLMError) -> None:
        if isinstance(error, NoAnswer):
            if error.kind in _LOAD:
                slots.note_overload(min(error.retry_after_s, LONGEST_WAIT_S))
        elif error.kind != "bad_request":  # that is the fault of one row, others of the endpoint
            self._silent[role.name] += 1

    def _check_open(self, role: Role) -> None:
        again_at, why = self._shut.get(_find_place(role), (0.0, None))
        if why is not None and time.monotonic() < again_at:
            raise LLMError(why.kind, why.found, why.expected, why.hint)
        if self._silent[role.name] >= GIVE_UP_AFTER:
            hint = "run again when the endpoint answers: what is done is kept"
            problem = f"{self._silent[role.name]} requests in a row without an answer"
            raise LLMError("endpoint_down", f"{problem}, {role.name} stopped", "an answer", hint)

    def _shut_until_retry(self, role: Role, error: NoAnswer) -> LLMError:
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() + error.retry_after_s))
        hint = f"run again after {clock} UTC (in {error.retry_after_s:.0f} s): what is done is kept"
        why = LLMError(error.kind, f"{error.found}, {role.name} stopped", error.expected, hint)
        self._shut[_find_place(role)] = (time.monotonic() + error.retry_after_s, why)
        return why


def _find_place(role: Role) -> tuple:
    return role.base_url, role.model


def _find_strictest(rates: Iterable[float]) -> float:
    return min((rate for rate in rates if rate > 0), default=0.0)


Facts = dict[str, Any]


@dataclass(frozen=True)
class PaidQuestion:
    """What is asked, by its name in the ledger, and the most it may use."""

    role: Role
    stage: str
    key: str
    most_tokens: int
    most_usd: float


@dataclass(frozen=True)
class PaidAnswer:
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
        self._sending = RequestDispatcher(roles)

    def find(self, key: str) -> PaidAnswer | None:
        """The answer that was paid under that key, without waiting for anything."""
        data = self._ledger.seen(key)
        return None if data is None else _read_paid(data, cached=True)

    async def ask(
        self, question: PaidQuestion, answer: Callable[[int], Awaitable[Facts]]
    ) -> PaidAnswer:
        """The kept answer, or what `answer(tries before)` returns; facts: model, prompt_tokens,
        completion_tokens. Raises LLMError or BudgetExceeded, both resumable."""
        return self.find(question.key) or await self._sending.send(
            question.role,
            question.most_tokens,
            lambda tries: self._try_call(question, answer, tries),
        )

    async def _try_call(
        self, question: PaidQuestion, answer: Callable[[int], Awaitable[Facts]], tries: int
    ) -> tuple[PaidAnswer, int | None]:
        """One try through the ledger, and the tokens it used (None: nothing was sent)."""
        sent = False

        async def carry_out() -> EffectOutcome:
            nonlocal sent
            sent = True
            outcome = make_outcome(await answer(tries), question.role)
            return replace(outcome, repeatable=question.role.model == OFFLINE)

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
            hint = "wait for the batch, or cancel it: toolmill batch"
            raise AnswerPending(f"its request in batch {pending}", hint) from pending
        paid = _read_paid(data, cached=not sent)
        used = paid.facts["prompt_tokens"] + paid.facts["completion_tokens"]
        return paid, used if sent else None


def make_outcome(facts: Facts, priced: TokenPrices) -> EffectOutcome:
    """An answer as the ledger keeps it. Facts hold model, prompt_tokens, completion_tokens."""
    used = facts["prompt_tokens"], facts["completion_tokens"]
    usd = compute_price(priced, *used)
    stored = json.dumps({**facts, "usd": usd}, sort_keys=True).encode()
    return EffectOutcome(stored, facts["model"], *used, usd)


def _read_paid(data: bytes, *, cached: bool) -> PaidAnswer:
    facts = json.loads(data)
    return PaidAnswer(facts, float(facts.pop("usd")), cached)
