"""Rates and slots: never more than was allowed, less when the endpoint groans, more again after."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.llm.paid_calls import RoleSlots, TokenBucket


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
def test_no_stretch_of_time_holds_more_than_the_rate(
    per_minute: float, early_s: float, steps: list[tuple[float, float]]
) -> None:
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


async def test_what_was_not_used_is_there_for_the_next() -> None:
    clock = SleepClock()
    bucket = clock.bucket(60, 1.0)
    await bucket.take(30)
    bucket.give_back(28)
    await bucket.take(1)
    assert clock.now == pytest.approx(1001.0), "two were used, one a second may be early"


async def test_what_was_used_beyond_the_reservation_is_waited_for() -> None:
    clock = SleepClock()
    bucket = clock.bucket(60, 0.0)
    await bucket.take(1)
    bucket.give_back(-9)
    await bucket.take(1)
    assert clock.now == pytest.approx(1010.0)


async def test_no_rate_never_waits() -> None:
    clock = SleepClock()
    bucket = clock.bucket(0, 1.0)
    for _ in range(1000):
        await bucket.take(1e9)
    assert clock.now == 1000.0


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


async def test_slots_halve_under_load_and_come_back_one_a_round() -> None:
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
    for _ in range(60):
        slots.note_answer()
    assert slots.limit == 8
    assert await most_at_once(slots, 50) == 8


async def test_one_error_in_twenty_is_not_load() -> None:
    slots = RoleSlots(32)
    for number in range(2000):
        slots.note_overload() if number % 20 == 7 else slots.note_answer()
    assert slots.limit == 32


async def test_slots_never_fall_below_one_and_a_cancelled_wait_loses_none() -> None:
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


async def test_what_the_endpoint_told_one_request_holds_for_all_once_it_groans() -> None:
    slots = RoleSlots(4)
    began = time.monotonic()
    for _ in range(5):
        slots.note_overload(0.05)
    await most_at_once(slots, 1)
    assert time.monotonic() - began >= 0.05
