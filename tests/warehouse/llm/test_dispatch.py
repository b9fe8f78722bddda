"""When requests leave: rates, slots, load, budgets and endpoints that want to be left alone."""

import asyncio
import time
from email.utils import formatdate
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import cases
from tests.support.openai_endpoint import Say, openai_endpoint
from tests.warehouse.llm.test_client import ASK, GOOD, Bird, ask, client
from warehouse.ledger.attempts import BudgetExceeded
from warehouse.ledger.ledger import Ledger
from warehouse.llm.client import LLM, LLMError, ModelCompletion, ModelReply, ModelRequest, Role
from warehouse.llm.endpoint import OpenAIEndpoint
from warehouse.llm.paid_calls import RequestDispatcher, RoleSlots, TokenBucket
from warehouse.llm.roles import prepare_request
from warehouse.storage.blobs import Blobs

HOUR = Say("come back later", status=429, headers={"retry-after": "3600"})


def outcomes(llm: LLM, times: int, role: str = "generator") -> list[Any]:
    async def run() -> list[Any]:
        tasks = [llm.complete(role, ASK, schema=Bird, seed=i) for i in range(times)]
        try:
            return await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await llm.aclose()

    return asyncio.run(run())


@cases("retry_after", "3600", formatdate(time.time() + 3600, usegmt=True))
def test_a_rate_limit_of_an_hour_stops_the_role_and_says_when_to_come_again(ledger, retry_after):
    hour = Say("come back later", status=429, headers={"retry-after": retry_after})
    with openai_endpoint(lambda _b, number: Say(GOOD) if number <= 2 else hour) as endpoint:
        results = outcomes(client(ledger, endpoint.url, concurrency=1), 20)
        errors = [result for result in results if isinstance(result, LLMError)]
        assert len(errors) == 18
        assert {error.kind for error in errors} == {"rate_limited"}
        assert all("run again after 20" in error.hint and "UTC" in error.hint for error in errors)
        assert len(endpoint.requests) == 3, "nobody asks again within this run"
    with openai_endpoint([Say(GOOD)]) as endpoint:
        replies = ask(client(ledger, endpoint.url), times=20)
        assert len(endpoint.requests) == 18
        assert sum(reply.cached for reply in replies) == 2


def test_roles_of_one_endpoint_and_model_stop_together_others_go_on(ledger):
    with openai_endpoint([HOUR]) as full, openai_endpoint([Say(GOOD)]) as free:
        at = {"model": "m", "api_key": "k", "base_url": full.url}
        roles = [Role("generator", **at), Role("judge", **at)]
        roles.append(Role("actor", **{**at, "base_url": free.url}))
        llm = LLM(roles, ledger, endpoint=OpenAIEndpoint(backoff_s=0.01))
        for name in ("generator", "judge"):
            (error,) = outcomes(llm, 1, name)
            assert isinstance(error, LLMError)
            assert error.kind == "rate_limited"
        assert len(full.requests) == 1
        (reply,) = outcomes(llm, 1, "actor")
        assert isinstance(reply, ModelReply)


@cases(
    "say, tries_held",
    (Say(GOOD, delay_s=5.0), 2),
    (Say(GOOD, half=True), 2),
    (Say("no", status=500), 0),
    (Say("no", status=429), 0),
    (Say("no", status=400), 0),
)
def test_what_may_have_been_billed_unseen_stays_in_the_budget(ledger, say, tries_held):
    with openai_endpoint([say]) as endpoint:
        patience = 0.5 if say.delay_s else 30.0
        llm = client(ledger, endpoint.url, usd_in=1.0, usd_out=1.0, timeout_s=patience, attempts=2)
        who = llm.role("generator")
        most = prepare_request(ModelRequest(who, ASK, Bird, 0, {}, who.max_tokens), "").most_usd
        outcomes(llm, 1)
    assert ledger.spent() == pytest.approx(tries_held * most)


def test_a_cancelled_call_stays_in_the_budget_and_is_asked_again(ledger):
    async def cut_short(llm: LLM) -> None:
        task = asyncio.create_task(llm.complete("generator", ASK, schema=Bird))
        while not endpoint.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await llm.aclose()

    with openai_endpoint([Say(GOOD, delay_s=0.3)]) as endpoint:
        llm = client(ledger, endpoint.url, usd_out=1.0)
        asyncio.run(cut_short(llm))
        assert [attempt.stage for attempt in ledger.list_unknown()] == ["llm:generator"]
        assert ledger.spent() > 0
        (reply,) = ask(llm)
    assert not reply.cached


def test_a_rate_is_shared_by_the_roles_of_one_endpoint_and_model(ledger):
    async def run(llm: LLM) -> int:
        names = ["generator", "judge"] * 3
        calls = [llm.complete(name, ASK, schema=Bird, seed=n) for n, name in enumerate(names)]
        tasks = [asyncio.create_task(call) for call in calls]
        async with asyncio.timeout(60):
            while not endpoint.requests:
                await asyncio.sleep(0.02)
        await asyncio.wait(tasks, timeout=0.5)
        sent = len(endpoint.requests)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await llm.aclose()
        return sent

    with openai_endpoint([Say(GOOD)]) as endpoint:
        at = {"model": "m", "api_key": "k", "base_url": endpoint.url}
        roles = [Role("generator", requests_per_minute=1, **at), Role("judge", **at)]
        assert asyncio.run(run(LLM(roles, ledger))) == 1, "the second may go a minute later"


async def test_what_was_reserved_and_not_used_or_sent_uses_up_no_rate():
    role = Role("generator", model="m", tokens_per_minute=600)
    sending = RequestDispatcher([role])

    async def small(_tries: int) -> tuple[str, int]:
        return "x", 10

    async def eight() -> list[str]:
        return [await sending.send(role, 500, small) for _ in range(8)]

    # 4,000 tokens at 600 a minute would be minutes.
    assert await asyncio.wait_for(eight(), 60) == ["x"] * 8
    narrow = Role("generator", model="m", requests_per_minute=1, tokens_per_minute=1)
    refusing = RequestDispatcher([narrow])

    async def all_refused() -> None:
        for _ in range(50):
            with pytest.raises(BudgetExceeded):
                await refusing.send(narrow, 500, Mock(side_effect=BudgetExceeded("no money")))

    await asyncio.wait_for(all_refused(), 60)


class Dear:
    """A provider whose answers cost anything up to what was reserved, and sometimes time out."""

    def __init__(self, costs: list[int]) -> None:
        self.costs, self.billed = costs, 0.0

    def version(self) -> str:
        return "dear"

    async def answer(self, request: ModelRequest) -> ModelCompletion:
        cost = self.costs[request.seed % len(self.costs)]
        await asyncio.sleep(0)
        self.billed += cost * request.role.usd_out / 1e6
        return ModelCompletion(GOOD, "stop", "dear", completion_tokens=cost)


@settings(max_examples=10)
@given(
    costs=st.lists(st.integers(0, 100), min_size=1, max_size=8),
    limit=st.floats(0, 0.004),
    concurrency=st.integers(1, 40),
)
def test_a_budget_is_never_overspent_by_many_at_once(tmp_path_factory, costs, limit, concurrency):
    folder = tmp_path_factory.mktemp("budget")
    ledger = Ledger(folder / "ledger.db", Blobs(folder / "blobs"))
    ledger.set_budget("usd", limit)
    dear = Dear(costs)
    role = Role("generator", model="dear", usd_out=1.0, max_tokens=100, concurrency=concurrency)
    results = outcomes(LLM([role], ledger, endpoint=dear), 45)
    assert dear.billed <= limit + 1e-12
    assert ledger.spent() == pytest.approx(dear.billed)
    answered = sum(isinstance(result, ModelReply) for result in results)
    ledger.set_budget("usd", 1.0)
    again = outcomes(LLM([role], ledger, endpoint=dear), 45)
    assert sum(isinstance(reply, ModelReply) and reply.cached for reply in again) == answered
    assert all(isinstance(reply, ModelReply) for reply in again)
    ledger.close()


def test_cached_answers_wait_for_nothing(ledger):
    with openai_endpoint([Say(GOOD)]) as endpoint:
        ask(client(ledger, endpoint.url), times=5)
    (first, *_rest) = ask(client(ledger, endpoint.url, requests_per_minute=0.001), times=5)
    assert first.cached


class SleepClock:
    """A clock that only moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    def bucket(self, per_minute: float, early_s: float) -> TokenBucket:
        return TokenBucket(per_minute, early_s, clock=lambda: self.now, sleep=self.sleep)


@given(
    per_minute=st.floats(1, 10_000),
    early_s=st.floats(0, 10),
    steps=st.lists(st.tuples(st.floats(0.01, 500), st.floats(0, 3)), min_size=1, max_size=60),
)
def test_no_stretch_of_time_holds_more_than_the_rate(per_minute, early_s, steps):
    clock = SleepClock()
    bucket = clock.bucket(per_minute, early_s)
    taken: list[tuple[float, float]] = []

    async def run() -> None:
        for amount, pause in steps:
            await bucket.take(amount)
            taken.append((clock.now, amount))
            clock.now += pause

    asyncio.run(run())
    largest = max(amount for _, amount in taken)
    for first, (began, _) in enumerate(taken):
        used = 0.0
        for at, amount in taken[first:]:
            used += amount
            allowed = per_minute / 60 * (at - began + early_s) + largest
            assert used <= allowed * (1 + 1e-6) + 1e-6


@cases("early_s, taken, given_back, waited", (1.0, 30, 28, 1.0), (0.0, 1, -9, 10.0))
async def test_a_reservation_counts_as_what_was_used(early_s, taken, given_back, waited):
    clock = SleepClock()
    bucket = clock.bucket(60, early_s)
    await bucket.take(taken)
    bucket.give_back(given_back)
    await bucket.take(1)
    assert clock.now == pytest.approx(1000.0 + waited)
    unlimited = clock.bucket(0, 1.0)
    for _ in range(2):
        await unlimited.take(1e9)
    assert clock.now == pytest.approx(1000.0 + waited)


async def most_at_once(slots: RoleSlots, tasks: int) -> int:
    now = most = 0

    async def one() -> None:
        nonlocal now, most
        async with slots.hold_slot():
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            now -= 1

    await asyncio.gather(*(one() for _ in range(tasks)))
    return most


async def test_slots_halve_under_load_to_one_at_least_and_come_back_one_a_round():
    slots = RoleSlots(8)
    assert await most_at_once(slots, 50) == 8
    for _ in range(5):
        slots.note_overload()
    assert int(slots.limit) == 4
    await most_at_once(slots, 8)  # permits that were free leave circulation as they are used
    assert await most_at_once(slots, 50) == 4
    for _ in range(4):
        slots.note_answer()
    assert 4 < slots.limit < 5.5, "slowly"
    for number in range(2000):  # one error in twenty is not load
        slots.note_overload() if number % 20 == 7 else slots.note_answer()
    assert slots.limit == 8
    assert await most_at_once(slots, 50) == 8
    slots = RoleSlots(2)
    for _ in range(40):
        slots.note_overload()
    assert slots.limit == 1
    await most_at_once(slots, 4)
    async with slots.hold_slot():
        waiter = asyncio.create_task(most_at_once(slots, 1))
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
    assert await asyncio.wait_for(most_at_once(slots, 3), 60) == 1


async def test_what_the_endpoint_told_one_request_holds_for_all_once_it_groans():
    slots = RoleSlots(4)
    began = time.monotonic()
    for _ in range(5):
        slots.note_overload(0.05)
    await most_at_once(slots, 1)
    assert time.monotonic() - began >= 0.05
