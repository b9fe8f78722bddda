"""Who may hold how many of the servers that are kept running."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from assets.servers.calls.caller import SessionPool
from assets.servers.calls.connection import plan_launch
from assets.servers.calls.result import CallFailed, CallLimits
from assets.servers.calls.session import CallSession
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.probe.session import ProbePolicy
from assets.servers.recipes.recipe import dump_recipe
from tests.serving.calling import NPM

LIMITS = CallLimits(sessions=4, share=1, launch_s=0.2)


class Idle(CallSession):
    """A session of no server, up at once."""

    ended = False

    def __init__(self, on_end) -> None:
        super().__init__([], LIMITS, ProbePolicy(), on_end)

    def start(self) -> None:
        pass

    async def ready(self, within_s: float) -> None:
        pass

    async def close(self) -> None:
        self.ended = True
        self._on_end()


async def use(pool: SessionPool, owner: str, key: str, make: type[Idle] = Idle) -> Any:
    """Leases a session of this class for a moment."""
    async with pool.lease(key, make, owner) as (session, _):
        return session


async def test_an_owner_shares_its_server_and_has_every_place_only_alone():
    pool = SessionPool(LIMITS)
    async with AsyncExitStack() as held:
        await held.enter_async_context(pool.lease("a0", Idle, "mallory"))
        for at in range(1, 4):
            with pytest.raises(CallFailed, match="1 servers are at work for this token"):
                await use(pool, "mallory", f"a{at}")
        for owner in ("alice", "bob", "carol"):
            assert await use(pool, owner, owner)
    await pool.close()
    pool = SessionPool(LIMITS)
    async with pool.lease("a", Idle, "alice") as (first, _):
        assert await use(pool, "alice", "a") is first
    await pool.close()
    pool = SessionPool(CallLimits(sessions=3, launch_s=0.2))
    async with AsyncExitStack() as held:
        for at in range(3):
            await held.enter_async_context(pool.lease(str(at), Idle))
        assert pool.running == 3
        with pytest.raises(CallFailed, match="3 of 3"):
            await use(pool, "", "4")
    await pool.close()


async def test_what_an_owner_holds_idle_beyond_its_share_makes_room_and_nobody_elses_does():
    pool = SessionPool(LIMITS)
    others = [await use(pool, owner, owner) for owner in ("alice", "bob")]
    mine = [await use(pool, "mallory", f"m{at}") for at in range(6)]
    assert not any(other.ended for other in others)
    assert pool.running == 4
    await use(pool, "carol", "carol")
    await asyncio.sleep(0)
    assert not any(other.ended for other in others)
    assert sum(one.ended for one in mine) == 5
    await pool.close()


async def test_who_stops_waiting_holds_up_nobody():
    pool = SessionPool(CallLimits(sessions=1, launch_s=5.0))
    async with pool.lease("a", Idle):
        for _ in range(5):
            async with anyio.create_task_group() as group:
                for key in "bcd":
                    group.start_soon(use, pool, "", key)
                await anyio.sleep(0.01)
                group.cancel_scope.cancel()
    with anyio.fail_after(60):
        assert await use(pool, "", "e")
        await pool.close()


async def test_who_gives_up_while_a_server_is_doubted_leaves_no_lease():
    class Doubted(Idle):
        asked = anyio.Event()

        async def usable(self) -> bool:
            self.asked.set()
            await anyio.sleep_forever()
            return True

    pool = SessionPool(CallLimits(sessions=1, launch_s=60.0))
    session = await use(pool, "", "a", Doubted)
    async with anyio.create_task_group() as group:
        group.start_soon(use, pool, "", "a")
        await session.asked.wait()
        assert session.leases.total() == 1
        group.cancel_scope.cancel()
    assert session.leases.total() == 0
    with anyio.fail_after(60):
        assert await use(pool, "", "b")  # there is room for another one
        await pool.close()


def test_two_owners_share_a_running_server_only_where_it_is_stateless(tmp_path):
    facts = dump_recipe(NPM)

    def key(owner: str, **more: frozenset[str]) -> str:
        return plan_launch("npm:x", facts, DeployPolicy(tmp_path, **more), owner).key

    assert key("alice") != key("bob")
    assert key("alice") == key("alice")
    shared = {"stateless": frozenset({"npm:x"})}
    assert key("alice", **shared) == key("bob", **shared)
