"""How requests leave: within slots and rates, tried again when that may help, stopped in time.

slot of the role -> bucket of endpoint and model -> one try -> wait and again, or give up
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from warehouse.llm.rate_limits import REQUESTS_EARLY_S, TOKENS_EARLY_S, Bucket, Slots
from warehouse.llm.roles import OFFLINE, LLMError, Role, Unanswered

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


class Sending:
    """The way out of one client's requests. Slots are a role's own; buckets belong to an endpoint
    and model, and the strictest rate among the roles that share them holds."""

    def __init__(self, roles: Iterable[Role]) -> None:
        by_place: dict[tuple, list[Role]] = {}
        for role in roles:
            by_place.setdefault(_find_place(role), []).append(role)
        self._requests = {
            place: Bucket(_find_strictest(r.requests_per_minute for r in sharing), REQUESTS_EARLY_S)
            for place, sharing in by_place.items()
        }
        self._tokens = {
            place: Bucket(_find_strictest(r.tokens_per_minute for r in sharing), TOKENS_EARLY_S)
            for place, sharing in by_place.items()
        }
        self._slots: WeakKeyDictionary[Any, dict[str, Slots]] = WeakKeyDictionary()
        self._next_at = 0.0
        self._silent: Counter[str] = Counter()
        self._shut: dict[tuple, tuple[float, LLMError]] = {}  # place -> (open again at, why)

    async def send(
        self,
        role: Role,
        most_tokens: int,
        one_try: Callable[[int], Awaitable[tuple[T, int | None]]],
    ) -> T:
        """What `one_try(tries before)` returns: (a value, tokens used or None if nothing was sent).

        Raises LLMError after the role's `attempts`, at once where the endpoint wants to be left
        alone for longer than LONGEST_WAIT_S, and without a try where the role has given up.
        """
        attempt = 0
        while True:
            try:
                return await self._send_once(role, most_tokens, attempt, one_try)
            except Unanswered as error:
                attempt += 1
                if error.retry_after_s > LONGEST_WAIT_S:
                    raise self._shut_until_retry(role, error) from error
                if attempt >= role.attempts:
                    self._silent[role.name] += 1
                    found = f"{error.found} after {attempt} attempts"
                    raise LLMError(error.kind, found, error.expected, error.hint) from error
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
        place, slots = _find_place(role), self._slots_of(role)
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

    def _learn_from(self, role: Role, slots: Slots, error: LLMError) -> None:
        if isinstance(error, Unanswered):
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
            found = f"{self._silent[role.name]} requests in a row without an answer"
            raise LLMError("endpoint_down", f"{found}, {role.name} stopped", "an answer", hint)

    def _shut_until_retry(self, role: Role, error: Unanswered) -> LLMError:
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() + error.retry_after_s))
        hint = f"run again after {clock} UTC (in {error.retry_after_s:.0f} s): what is done is kept"
        why = LLMError(error.kind, f"{error.found}, {role.name} stopped", error.expected, hint)
        self._shut[_find_place(role)] = (time.monotonic() + error.retry_after_s, why)
        return why

    def _slots_of(self, role: Role) -> Slots:
        slots = self._slots.setdefault(asyncio.get_running_loop(), {})
        if role.name not in slots:
            slots[role.name] = Slots(role.concurrency)
        return slots[role.name]


def _find_place(role: Role) -> tuple:
    return role.base_url, role.model


def _find_strictest(rates: Iterable[float]) -> float:
    return min((rate for rate in rates if rate > 0), default=0.0)
