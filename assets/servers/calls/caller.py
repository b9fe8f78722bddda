"""The caller: one tool call of one server, launched as the pipeline's probe launches servers."""

import asyncio
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from assets.contracts.canonical import ContractError, contract_digest
from assets.contracts.repair.problems import find_output_problems, find_problems
from assets.servers.calls.attribution import JudgedError, find_network_kind, judge_error
from assets.servers.calls.connection import (
    Dial,
    LaunchPlan,
    make_local_dial,
    make_remote_dial,
    plan_launch,
)
from assets.servers.calls.content import ResultInspector, shape_result
from assets.servers.calls.result import CallFailed, CallLimits, CallResult, Problem, find_kind
from assets.servers.calls.session import CallSession
from assets.servers.deploy.launch import format_advice
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.probe.remote_outcome import silence_logs
from assets.servers.probe.remote_transport import Transport
from warehouse.sanitize.scrubber import Scrubber
from warehouse.sanitize.untrusted_text import drop_surrogates

Make = Callable[[Callable[[], None]], CallSession]


class SessionPool:
    """Used on one event loop.

    An owner is on whose behalf a call is made. Each is sure of `limits.share` places: it has no
    more servers at work than that, and what it holds idle beyond it makes room for the others.
    """

    def __init__(self, limits: CallLimits) -> None:
        self._limits = limits
        self._by_key: dict[str, CallSession] = {}
        self._running: set[CallSession] = set()  # also those that get no further call
        self._changed = asyncio.Event()  # of this moment: the next change has another
        self._reaper: asyncio.Task[None] | None = None
        self._ends: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def running(self) -> int:
        return len(self._running)

    @asynccontextmanager
    async def lease(
        self, key: str, make: Make, owner: str = "", volume: str = ""
    ) -> AsyncIterator[tuple[CallSession, bool]]:
        """(a session that may be called, whether it was up before). held: names what one session at
        a time may hold; an idle one of an older key gives it up. Raises CallFailed."""
        session = await self._take_session(key, make, owner, volume)
        warm = session.opened
        try:
            await session.ready(self._limits.launch_s)
            yield session, warm
        finally:
            session.release(owner)
            session.used_at = time.monotonic()
            if session.dead or session.worn:
                self._retire(session)
            self._notify_waiters()

    async def close(self) -> None:
        """Ends every server; returns once they are gone."""
        self._closed = True
        if self._reaper:
            self._reaper.cancel()
        await asyncio.gather(*(each.close() for each in list(self._running)), *self._ends)

    async def end_owned(self, owner: str) -> None:
        """Ends the servers that were started for an owner; returns once they are gone."""
        sessions = [each for each in self._running if each.owner == owner]
        for session in sessions:
            self._retire(session)
        await asyncio.gather(*(session.close() for session in sessions))

    async def _take_session(self, key: str, make: Make, owner: str, volume: str) -> CallSession:
        """Counts a lease on the session of this key, made where there is none that will do."""
        until = time.monotonic() + self._limits.launch_s
        while True:
            if self._closed:
                raise CallFailed("closed", "", sent=False)
            session = self._by_key.get(key)
            free = self._is_free(owner, session)
            if session is not None and free:
                if await self._lease_usable(session, owner):
                    return session
                if self._by_key.get(key) is session:
                    self._retire(session)
                continue
            if free and (len(self._running) < self._limits.sessions or self._evict(owner)):
                return self._make_session(key, make, owner, volume)
            try:
                left = until - time.monotonic()
                await asyncio.wait_for(self._changed.wait(), max(0.0, left))
            except TimeoutError:
                detail = f"{len(self._running)} of {self._limits.sessions} servers are at work"
                if not free and self._share < self._limits.sessions:
                    detail = f"{self._share} servers are at work for this token, its share"
                raise CallFailed("busy", detail, sent=False) from None

    async def _lease_usable(self, session: CallSession, owner: str) -> bool:
        """Counts a lease where the session will do; none of who gives up meanwhile."""
        session.lease(owner)
        usable = False
        try:
            usable = await session.usable()
        finally:
            if not usable:
                session.release(owner)
                self._notify_waiters()
        return usable

    @property
    def _share(self) -> int:
        return min(self._limits.share or self._limits.sessions, self._limits.sessions)

    def _is_free(self, owner: str, session: CallSession | None) -> bool:
        """Whether the owner may have this session, or a new one, at work besides its others."""
        at_work = [each for each in self._running if each.is_leased_by(owner)]
        return session in at_work or len(at_work) < self._share

    def _make_session(self, key: str, make: Make, owner: str, volume: str) -> CallSession:
        session: CallSession
        for other in [each for each in self._by_key.values() if volume and each.held == volume]:
            if other.leases == 0:
                self._retire(other)

        def ended() -> None:
            self._running.discard(session)
            if self._by_key.get(key) is session:
                del self._by_key[key]
            self._notify_waiters()

        session = make(ended)
        session.owner, session.held = owner, volume
        session.lease(owner)
        self._by_key[key] = session
        self._running.add(session)
        self._reaper = self._reaper or asyncio.create_task(self._reap())
        session.start()
        return session

    def _evict(self, owner: str) -> bool:
        """Makes room by ending the idle session that was used longest ago: one of those that hold
        more than their share, or the owner's own."""
        by_owner = Counter(each.owner for each in self._running)
        within = by_owner[owner] < self._share
        idle = [
            each
            for each in self._by_key.values()
            if each.leases == 0
            and (each.owner == owner or (within and by_owner[each.owner] > self._share))
        ]
        if not idle:
            return False
        oldest = min(idle, key=lambda each: (by_owner[each.owner] <= self._share, each.used_at))
        self._retire(oldest)
        self._running.discard(oldest)
        return True

    def _retire(self, session: CallSession) -> None:
        """No further call for it; it ends once nobody holds it."""
        for key, each in list(self._by_key.items()):
            if each is session:
                del self._by_key[key]
        if session.leases <= 0:
            task = asyncio.ensure_future(session.close())
            self._ends.add(task)
            task.add_done_callback(self._ends.discard)

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(min(5.0, self._limits.idle_s / 4))
            now = time.monotonic()
            for session in list(self._running):
                rests = now - session.used_at > self._limits.idle_s
                if session.leases <= 0 and (rests or session.dead or session.worn):
                    self._retire(session)

    def _notify_waiters(self) -> None:
        # Not a condition: a waiter that is cancelled twice, as anyio does, leaves its lock held.
        self._changed.set()
        self._changed = asyncio.Event()


Recipes = Callable[[str], Mapping[str, Any] | None]
_HINT = 2000  # characters
_FINAL = ("contract_changed", "tool_gone", "needs_task", "busy", "closed", "timeout_start")

log = logging.getLogger(__name__)


class ToolCaller:
    """Calls tools and keeps their servers running for a while between calls.

    recipes: server id -> `recipe_facts`, asked at each call, so that a new index is followed.
    Usable from any event loop and any number of tasks at once; `close` ends every server. Servers
    also end with this process.
    """

    def __init__(
        self,
        recipes: Recipes | Mapping[str, Mapping[str, Any]],
        policy: DeployPolicy,
        limits: CallLimits | None = None,
    ) -> None:
        self._recipes: Recipes = recipes.get if isinstance(recipes, Mapping) else recipes
        self._policy, self._limits = policy, limits or CallLimits()
        self._pool = SessionPool(self._limits)
        self._inspector = ResultInspector(policy.home)
        self._lock, self._thread = threading.Lock(), ExitStack()
        self._portal: BlockingPortal | None = None
        self._closed = False

    async def call(
        self,
        server_id: str,
        tool: str,
        contract: Mapping[str, Any],
        arguments: Any,
        *,
        timeout_s: float = 60.0,
        owner: str = "",
    ) -> CallResult:
        """Calls a tool by the contract that the index knows. Whatever happens is a result.

        timeout_s: for the tool's answer; starting a server that is not up has its own limit.
        owner: on whose behalf; no two owners share a running server that is not stateless.
        """
        began = time.monotonic()
        try:
            if self._closed:
                raise CallFailed("closed", "", sent=False)
            if problems := await asyncio.to_thread(self._find_problems, contract, arguments):
                kind = "invalid_arguments"
                hint = find_kind(kind).hint
                result = CallResult(kind, [], None, kind, hint, "caller", problems=problems)
            else:
                sent = (server_id, tool, contract, arguments or {}, timeout_s, owner)
                result = await self._run(self._make_call, *sent)
        except CallFailed as failed:
            result = _make_failed_result(failed, Scrubber({}))
        except Exception as error:  # ours: a server's doings are CallFailed
            log.error("a call of %s failed by a fault of toolmill: %s", server_id, type(error))
            detail = f"{type(error).__name__} in toolmill"
            result = _make_failed_result(CallFailed("internal", detail), Scrubber({}))
        return replace(result, seconds=round(time.monotonic() - began, 3))

    async def end_servers(self, owner: str) -> None:
        """Ends what runs for one owner; its next call finds a fresh server."""
        if not self._closed:
            await self._run(self._pool.end_owned, owner)

    async def close(self) -> None:
        """Ends every server; returns once they are gone."""
        if self._closed:
            return
        self._closed = True
        await self._run(self._pool.close)
        await asyncio.to_thread(self._thread.close)

    async def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Its result, from the one event loop that holds all servers, in a thread begun at first
        use. Cancelling this cancels it."""
        with self._lock:
            if self._portal is None:
                self._portal = self._thread.enter_context(start_blocking_portal(name="calls"))
        return await asyncio.wrap_future(self._portal.start_task_soon(function, *args))

    async def _make_call(
        self,
        server_id: str,
        tool: str,
        contract: Mapping[str, Any],
        arguments: Mapping[str, Any],
        timeout_s: float,
        owner: str,
    ) -> CallResult:
        scrub, made_up, offline, digest = Scrubber({}), (), False, ""
        refused: list[str] = []
        reached = self._policy.grant_of(server_id).reached
        try:
            digest = _digest_contract(contract)
            facts = await asyncio.to_thread(self._recipes, server_id)
            server = await asyncio.to_thread(plan_launch, server_id, facts, self._policy, owner)
            scrub, made_up = Scrubber({**server.given.env, **server.given.headers}), server.made_up
            offline = self._is_offline(server)
            limit = min(max(timeout_s, 0.1), self._limits.timeout_s)
            with silence_logs():  # the SDK logs in the name of who sends
                sent = (server, tool, digest, arguments, limit, owner)
                raw, scrub = await self._send_call(*sent, refused=refused)
            where = {"local": server.recipe.ecosystem != "remote", "reached": reached}
            judge = partial(
                judge_error, refused=refused, offline=offline, arguments=arguments, **where
            )
            result = await asyncio.to_thread(self._shape_result, raw, scrub, contract, judge)
            result = replace(result, offline=offline, **where)
        except CallFailed as failed:
            result = _make_failed_result(failed, scrub, refused)
        refused = [scrub.scrub_text(host) for host in refused]  # a server may ask for its secret
        result = _note_made_up(_explain_network(result, server_id, refused), made_up)
        of, own_words = (
            (server_id, tool, digest),
            offline and not reached,
        )  # a host may have said it
        return await asyncio.to_thread(self._inspector, of, result, arguments, own_words=own_words)

    async def _send_call(
        self,
        server: LaunchPlan,
        tool: str,
        digest: str,
        arguments: Mapping[str, Any],
        limit: float,
        owner: str,
        *,
        refused: list[str],
    ) -> tuple[Any, Scrubber]:
        """(the raw result or the protocol's error, what takes secrets out of it). A server that
        died while nobody asked it is started once more; a call that may have reached one is not
        repeated. refused: takes the hosts that it asked for meanwhile. Raises CallFailed."""
        from mcp.shared.exceptions import MCPError

        def make(on_end: Callable[[], None]) -> CallSession:
            return CallSession(
                self._list_dials(server), self._limits, self._policy.conversation, on_end
            )

        for last in (False, True):
            warm = False
            try:
                leased = self._pool.lease(server.key, make, owner, server.held)
                async with leased as (session, warm):
                    await session.check(tool, digest)
                    before = len(session.list_refused_hosts())
                    try:
                        raw = await session.call(tool, arguments, limit)
                    except MCPError as error:
                        raw = error
                    finally:
                        refused.extend(sorted({*session.list_refused_hosts()[before:]}))
                    return raw, Scrubber(dict(session.secrets()))
            except CallFailed as failed:
                again = warm and not failed.sent and failed.kind not in _FINAL
                if last or not again:
                    raise
        raise AssertionError("the second try returns or raises")

    def _list_dials(self, server: LaunchPlan) -> list[Dial]:
        if server.recipe.ecosystem != "remote":
            return [make_local_dial(server, self._policy, self._limits)]
        kinds: dict[str, tuple[Transport, ...]] = {"http": ("http",), "sse": ("sse",)}
        spoken = kinds.get(server.recipe.transport or "auto", ("http", "sse"))
        return [make_remote_dial(server, self._policy, self._limits, kind) for kind in spoken]

    def _find_problems(self, contract: Mapping[str, Any], arguments: Any) -> list[Problem]:
        """What keeps the call from being sent. A schema that cannot be used keeps nothing back: the
        server may understand it."""
        arguments = {} if arguments is None else arguments
        try:
            size = len(json.dumps(arguments, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            detail = f"no JSON: {error}"[:200]
            return [_make_problem(detail, "a JSON object", "send JSON values only")]
        if size > self._limits.arguments_kb * 1024:
            most = f"at most {self._limits.arguments_kb * 1024:,}"
            return [_make_problem(f"{size:,} bytes", most, "send less, or a path or URL to it")]
        return [
            problem
            for problem in find_problems(contract, arguments)
            if problem["kind"] != "bad_schema"
        ]

    def _is_offline(self, server: LaunchPlan) -> bool:
        remote = server.recipe.ecosystem == "remote"
        policy = self._policy.sandbox_of(server.recipe.server_id)
        return not remote and policy.network == "none"

    def _shape_result(
        self,
        raw: Any,
        scrub: Scrubber,
        contract: Mapping[str, Any],
        judge: Callable[..., JudgedError],
    ) -> CallResult:
        """The answer as a result. Raises CallFailed where it is none of MCP."""
        code = getattr(getattr(raw, "error", None), "code", None)
        if code is not None:
            message = drop_surrogates(scrub.scrub_text(str(raw.error.message)[:_HINT]))
            content = [{"type": "text", "text": message}]
            return replace(_make_tool_error(content, judge(message, code)), code=code)
        answer = shape_result(raw, scrub, self._limits)
        if answer.is_error:
            result = _make_tool_error(answer.content, judge(answer.text))
            return replace(result, structured=answer.structured, cut=answer.cut)
        problems = [*answer.problems]
        if contract.get("outputSchema") and not problems:
            problems += find_output_problems(contract, answer.structured)
        return CallResult(
            "ok", answer.content, answer.structured, problems=problems, cut=answer.cut
        )


def _digest_contract(contract: Mapping[str, Any]) -> str:
    try:
        return contract_digest(contract)
    except ContractError as error:
        detail = f"the contract given is none: {error}"[:300]
        raise CallFailed("no_recipe", detail, fix="build the index again", sent=False) from None


def _make_tool_error(content: list[dict[str, Any]], judged: JudgedError) -> CallResult:
    blame = find_kind(judged.kind).blame
    return CallResult("tool_error", content, None, judged.kind, judged.hint, blame)


def _explain_network(result: CallResult, server_id: str, refused: Sequence[str]) -> CallResult:
    """The result with the hosts that the server was refused meanwhile, and with the command that
    grants it what it failed for."""
    result = replace(result, refused=tuple(refused))
    if result.error_kind != "needs_network":
        return result
    advice = format_advice(server_id, refused, str(result.hint))
    return replace(result, hint=f"{result.hint}; {advice}")


def _make_failed_result(
    failed: CallFailed, scrub: Scrubber, refused: Sequence[str] = ()
) -> CallResult:
    hint = drop_surrogates(scrub.scrub_text(failed.hint))[:_HINT]
    kind = find_network_kind(failed.kind, refused)
    return CallResult("failed", error_kind=kind, hint=hint, blame=find_kind(kind).blame)


def _note_made_up(result: CallResult, made_up: tuple[str, ...]) -> CallResult:
    """A server that was started with made-up values fails for that reason more often than not."""
    if result.status == "ok" or not made_up or result.hint is None:
        return result
    note = f"; the server was started with made-up values for {', '.join(made_up)}"
    return replace(result, hint=result.hint + note)


def _make_problem(detail: str, expected: str, fix: str) -> Problem:
    facts = {"path": "$", "kind": "not_an_object", "found": detail}
    return {**facts, "expected": expected, "fix": fix}
