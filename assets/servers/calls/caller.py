"""The caller: tool calls of servers, launched as the probe launches them and kept for a while."""

import asyncio
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from assets.contracts.canonical import ContractError, contract_digest
from assets.contracts.repair.problems import find_output_problems, find_problems
from assets.servers.calls.attribution import JudgedError, find_network_kind, judge_error
from assets.servers.calls.connection import Dial, LaunchPlan, dial_local, dial_remote, plan_launch
from assets.servers.calls.content import ResultInspector, shape_result
from assets.servers.calls.result import CallFailed, CallLimits, CallResult, Problem, find_kind
from assets.servers.calls.session import CallSession, Progress
from assets.servers.deploy.launch import format_advice
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.probe.remote_outcome import silence_logs
from assets.servers.probe.remote_transport import Transport
from warehouse.sanitize.scrubber import Scrubber
from warehouse.sanitize.untrusted_text import drop_surrogates

Make = Callable[[Callable[[], None]], CallSession]


class SessionPool:
    """The running servers, on one event loop.

    An owner is on whose behalf a call is made. Each is sure of `limits.share` places: it has no
    more servers at work than that, and what it holds idle beyond it makes room for the others.
    """

    def __init__(self, limits: CallLimits) -> None:
        self._limits = limits
        self._share = min(limits.share or limits.sessions, limits.sessions)
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
        self, key: str, make: Make, owner: str = ""
    ) -> AsyncIterator[tuple[CallSession, bool]]:
        """(a session that may be called, whether it was up before). Raises CallFailed."""
        session = await self._take_session(key, make, owner)
        warm = session.opened
        try:
            await session.ready(self._limits.launch_s)
            yield session, warm
        finally:
            session.leases[owner] -= 1
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

    async def _take_session(self, key: str, make: Make, owner: str) -> CallSession:
        """Counts a lease on the session of this key, made where there is none that will do."""
        until = time.monotonic() + self._limits.launch_s
        while not self._closed:
            session = self._by_key.get(key)
            at_work = [each for each in self._running if each.leases[owner] > 0]
            free = session in at_work or len(at_work) < self._share
            if session is not None and free:
                session.leases[owner] += 1
                usable = False
                try:
                    usable = await session.usable()
                finally:
                    if not usable:
                        session.leases[owner] -= 1
                        self._notify_waiters()
                if usable:
                    return session
                if self._by_key.get(key) is session:
                    self._retire(session)
            elif free and (len(self._running) < self._limits.sessions or self._evict(owner)):
                return self._make_session(key, make, owner)
            else:
                try:
                    left = until - time.monotonic()
                    await asyncio.wait_for(self._changed.wait(), max(0.0, left))
                except TimeoutError:
                    detail = f"{len(self._running)} of {self._limits.sessions} servers are at work"
                    if not free and self._share < self._limits.sessions:
                        detail = f"{self._share} servers are at work for this token, its share"
                    raise CallFailed("busy", detail, sent=False) from None
        raise CallFailed("closed", "", sent=False)

    def _make_session(self, key: str, make: Make, owner: str) -> CallSession:
        session: CallSession

        def ended() -> None:
            self._running.discard(session)
            if self._by_key.get(key) is session:
                del self._by_key[key]
            self._notify_waiters()

        session = make(ended)
        session.owner = owner
        session.leases[owner] += 1
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
            if each.leases.total() == 0
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
        self._by_key = {key: each for key, each in self._by_key.items() if each is not session}
        if session.leases.total() <= 0:
            task = asyncio.ensure_future(session.close())
            self._ends.add(task)
            task.add_done_callback(self._ends.discard)

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(min(5.0, self._limits.idle_s / 4))
            now = time.monotonic()
            for session in list(self._running):
                rests = now - session.used_at > self._limits.idle_s
                if session.leases.total() <= 0 and (rests or session.dead or session.worn):
                    self._retire(session)

    def _notify_waiters(self) -> None:
        # Not a condition: a waiter that is cancelled twice, as anyio does, leaves its lock held.
        self._changed.set()
        self._changed = asyncio.Event()


Recipes = Callable[[str], Mapping[str, Any] | None]
_HINT = 2000  # characters
_FINAL = ("contract_changed", "tool_gone", "needs_task", "busy", "closed", "timeout_start")
_PROGRESS_S = 0.1  # between two words of a call's progress

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _CallRequest:
    """One call. owner: on whose behalf; no two share a running server that is not stateless.
    on_progress: may be called from any thread."""

    server_id: str
    tool: str
    contract: Mapping[str, Any]
    arguments: Any
    timeout_s: float
    owner: str
    on_progress: Progress | None = None


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
        on_progress: Progress | None = None,
    ) -> CallResult:
        """Calls a tool by the contract that the index knows. Whatever happens is a result.

        timeout_s: for the tool's answer; starting a server that is not up has its own limit.
        on_progress: is called with (0, None) once the server is up, then as the tool tells, at most
        ten times a second.
        """
        began = time.monotonic()
        told = _bound_progress(on_progress) if on_progress is not None else None
        try:
            if self._closed:
                raise CallFailed("closed", "", sent=False)
            if problems := await asyncio.to_thread(self._find_problems, contract, arguments):
                kind = "invalid_arguments"
                hint = find_kind(kind).hint
                result = CallResult(kind, [], None, kind, hint, "caller", problems=problems)
            else:
                request = _CallRequest(
                    server_id, tool, contract, arguments or {}, timeout_s, owner, told
                )
                result = await self._run(self._make_call, request)
        except CallFailed as failed:
            result = _make_failed_result(failed)
        except Exception as error:  # ours: a server's doings are CallFailed
            log.error("a call of %s failed by a fault of toolmill: %s", server_id, type(error))
            failed = CallFailed("internal", f"{type(error).__name__} in toolmill")
            result = _make_failed_result(failed)
        return replace(result, seconds=round(time.monotonic() - began, 3))

    async def end_servers(self, owner: str) -> None:
        """Ends what runs for one owner; its next call finds a fresh server."""
        if not self._closed:
            await self._run(self._pool.end_owned, owner)

    async def close(self) -> None:
        """Ends every server; returns once they are gone."""
        if not self._closed:
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

    async def _make_call(self, request: _CallRequest) -> CallResult:
        server_id, contract, arguments = request.server_id, request.contract, request.arguments
        scrub, made_up, offline, digest = Scrubber({}), (), False, ""
        refused: list[str] = []
        reached = self._policy.grant_of(server_id).reached
        try:
            try:
                digest = contract_digest(contract)
            except ContractError as error:
                detail, fix = f"the contract given is none: {error}"[:300], "build the index again"
                raise CallFailed("no_recipe", detail, fix=fix, sent=False) from None
            facts = await asyncio.to_thread(self._recipes, server_id)
            planned = (plan_launch, server_id, facts, self._policy, request.owner)
            server = await asyncio.to_thread(*planned)
            scrub, made_up = Scrubber({**server.given.env, **server.given.headers}), server.made_up
            local = server.recipe.ecosystem != "remote"
            offline = local and self._policy.sandbox_of(server_id).network == "none"
            with silence_logs():  # the SDK logs in the name of who sends
                raw, scrub = await self._send_call(request, server, digest, refused)
            where = {"local": local, "reached": reached, "offline": offline}
            judge = partial(judge_error, refused=refused, arguments=arguments, **where)
            result = await asyncio.to_thread(self._shape_result, raw, scrub, contract, judge)
            result = replace(result, **where)
        except CallFailed as failed:
            result = _make_failed_result(failed, scrub, refused)
        refused = [scrub.scrub_text(host) for host in refused]  # a server may ask for its secret
        result = replace(result, refused=tuple(refused))
        if result.error_kind == "needs_network":
            advice = format_advice(server_id, refused, str(result.hint))
            result = replace(result, hint=f"{result.hint}; {advice}")
        if result.status != "ok" and made_up and result.hint is not None:
            # Made-up values are the reason of a failure more often than not.
            note = f"the server was started with made-up values for {', '.join(made_up)}"
            result = replace(result, hint=f"{result.hint}; {note}")
        of, own_words = (server_id, request.tool, digest), offline and not reached
        return await asyncio.to_thread(self._inspector, of, result, arguments, own_words=own_words)

    async def _send_call(
        self, request: _CallRequest, server: LaunchPlan, digest: str, refused: list[str]
    ) -> tuple[Any, Scrubber]:
        """(the raw result or the protocol's error, what takes secrets out of it). A server that
        died while nobody asked it is started once more; a call that may have reached one is not
        repeated. refused: takes the hosts that it asked for meanwhile. Raises CallFailed."""
        from mcp.shared.exceptions import MCPError

        def make(on_end: Callable[[], None]) -> CallSession:
            dials = self._list_dials(server)
            return CallSession(dials, self._limits, self._policy.conversation, on_end)

        limit = min(max(request.timeout_s, 0.1), self._limits.timeout_s)
        for last in (False, True):
            warm = False
            try:
                leased = self._pool.lease(server.key, make, request.owner)
                async with leased as (session, warm):
                    await session.check(request.tool, digest)
                    before = len(session.list_refused_hosts())
                    try:
                        if request.on_progress is not None:
                            request.on_progress(0.0, None)
                        asked = request.tool, request.arguments, limit, request.on_progress
                        raw = await session.call(*asked)
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
        facts = (server, self._policy, self._limits)
        if server.recipe.ecosystem != "remote":
            return [partial(dial_local, *facts)]
        kinds: dict[str, tuple[Transport, ...]] = {"http": ("http",), "sse": ("sse",)}
        spoken = kinds.get(server.recipe.transport or "auto", ("http", "sse"))
        return [partial(dial_remote, *facts, kind) for kind in spoken]

    def _find_problems(self, contract: Mapping[str, Any], arguments: Any) -> list[Problem]:
        """What keeps the call from being sent. A schema that cannot be used keeps nothing back: the
        server may understand it."""
        arguments = {} if arguments is None else arguments
        problem: Problem = {"path": "$", "kind": "not_an_object"}
        try:
            size = len(json.dumps(arguments, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            problem |= {"found": f"no JSON: {error}"[:200], "expected": "a JSON object"}
            return [problem | {"fix": "send JSON values only"}]
        if size > self._limits.arguments_kb * 1024:
            most = f"at most {self._limits.arguments_kb * 1024:,}"
            problem |= {"found": f"{size:,} bytes", "expected": most}
            return [problem | {"fix": "send less, or a path or URL to it"}]
        problems = find_problems(contract, arguments)
        return [problem for problem in problems if problem["kind"] != "bad_schema"]

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
            content, judged = [{"type": "text", "text": message}], judge(message, code)
            structured, cut = None, False
        else:
            answer = shape_result(raw, scrub, self._limits)
            content, structured, cut = answer.content, answer.structured, answer.cut
            if not answer.is_error:
                problems = [*answer.problems]
                if contract.get("outputSchema") and not problems:
                    problems += find_output_problems(contract, structured)
                return CallResult("ok", content, structured, problems=problems, cut=cut)
            judged = judge(answer.text)
        return CallResult(
            "tool_error",
            content,
            structured,
            judged.kind,
            judged.hint,
            find_kind(judged.kind).blame,
            cut=cut,
            code=code,
        )


def _bound_progress(on_progress: Progress) -> Progress:
    """What calls `on_progress` on this event loop, from any thread; a flood is thinned out."""
    loop, next_at = asyncio.get_running_loop(), 0.0

    def tell(done: float, total: float | None) -> None:
        nonlocal next_at
        if time.monotonic() >= next_at:
            next_at = time.monotonic() + _PROGRESS_S
            loop.call_soon_threadsafe(on_progress, done, total)

    return tell


def _make_failed_result(
    failed: CallFailed, scrub: Scrubber | None = None, refused: Sequence[str] = ()
) -> CallResult:
    hint = drop_surrogates((scrub or Scrubber({})).scrub_text(failed.hint))[:_HINT]
    kind = find_network_kind(failed.kind, refused)
    return CallResult("failed", error_kind=kind, hint=hint, blame=find_kind(kind).blame)
