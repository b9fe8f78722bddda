"""One conversation with one running server, held open for calls."""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import anyio

from assets.contracts.canonical import ContractError, contract_digest
from assets.servers.calls.connection import Dial, ServerConnection
from assets.servers.calls.result import CallFailed, CallLimits
from assets.servers.probe.failure_kinds import ProbeFailure
from assets.servers.probe.remote_outcome import silence_logs
from assets.servers.probe.session import (
    ProbePolicy,
    ProbeProgress,
    check_alive,
    classify_exception,
    is_stateless,
    list_tools,
    make_call_request,
    needs_task,
    open_session,
)
from assets.servers.probe.transcript import MessageFilter

Progress = Callable[[float, float | None], None]  # takes (progress, total)


class CallSession:
    """Begun by `start`, usable after `ready`, ended by `close`; all on one event loop.

    dials: ways to reach the server; a later one is tried where the one before was refused as an
    older server refuses the newer transport. owner: on whose behalf it was started. leases: calls
    at work by owner.
    """

    def __init__(
        self,
        dials: Sequence[Dial],
        limits: CallLimits,
        asks: ProbePolicy,
        on_end: Callable[[], None],
    ) -> None:
        self._dials, self._limits, self._asks, self._on_end = dials, limits, asks, on_end
        self._listener = MessageFilter()
        self._opened, self._closing = asyncio.Event(), asyncio.Event()
        self._relisting = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._check: asyncio.Task[bool] | None = None
        self._line: ServerConnection | None = None
        self._session: Any = None
        self._dispatcher: Any = None
        self.failure: CallFailed | None = None
        self.began = self.used_at = time.monotonic()
        self.owner = ""
        self.leases: Counter[str] = Counter()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    @property
    def opened(self) -> bool:
        """Whether it has answered and listed its tools, and has not ended."""
        return self._session is not None

    @property
    def dead(self) -> bool:
        ended = self._task is not None and self._task.done()
        return ended or self._closing.is_set() or (self._line is not None and self._line.dead)

    @property
    def worn(self) -> bool:
        old = time.monotonic() - self.began > self._limits.life_s
        return old or (self._line is not None and self._line.worn)

    async def ready(self, within_s: float) -> None:
        """Waits until calls may be made. Raises CallFailed; one that is not ready in time goes on
        starting."""
        try:
            await asyncio.wait_for(self._opened.wait(), within_s)
        except TimeoutError:
            detail = f"it is not up after {within_s:.0f} s, and goes on starting"
            fix = "call again in a moment"
            raise CallFailed("timeout_start", detail, fix=fix, sent=False) from None
        if self.failure:
            raise self.failure

    async def close(self) -> None:
        """Ends the conversation and the server; returns once both are gone."""
        self._closing.set()
        if self._task is None:
            return
        if not self.opened:
            self._task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await asyncio.wait_for(asyncio.shield(self._task), 10.0)

    async def _run(self) -> None:
        first: CallFailed | None = None
        with silence_logs():
            try:
                for dial in self._dials:
                    self._listener = MessageFilter()
                    try:
                        await self._hold_line(dial)
                        return
                    except CallFailed as failed:
                        if self._opened.is_set() or not failed.may_be_sse:
                            raise
                        first = first or failed  # neither: what the newer transport was told counts
                if first:
                    raise first
            except CallFailed as failed:
                self.failure = self.failure or failed
            except asyncio.CancelledError:
                self.failure = self.failure or CallFailed("closed", "", sent=False)
            except Exception as error:
                detail = f"{type(error).__name__} while the server was held"
                self.failure = self.failure or CallFailed("internal", detail)
            finally:
                self._session = None
                self.failure = self.failure or CallFailed("closed", "", sent=False)
                self._opened.set()
                self._on_end()

    async def _hold_line(self, dial: Dial) -> None:
        """Holds one conversation until either side ends it. Raises CallFailed."""
        ended: CallFailed | None = None  # raised outside: a task group would wrap it
        async with dial(self._listener) as line:
            self._line = line
            failure: ProbeFailure | None = None
            facts = (self._listener.transcript, self._asks, line.idle_s)
            try:
                talking = open_session(line.read, line.write, *facts)
                async with talking as (session, self._dispatcher):
                    await self._list(session)
                    self._session, line.answered = session, True
                    self._opened.set()
                    line.busy(self.leases.total() > 0)
                    ends = (self._closing.wait(), line.over())
                    waits = [asyncio.ensure_future(end) for end in ends]
                    try:
                        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        for wait in waits:
                            wait.cancel()
            except Exception as error:  # the SDK raises many types on malformed answers
                failure = classify_exception(error)
            if not self._closing.is_set():
                ended = await line.why(failure)
        if ended:
            raise ended

    async def _list(self, session: Any) -> None:
        """Lists all tools again. Raises ConversationEnd."""
        transcript, progress = self._listener.transcript, ProbeProgress(self.began)
        self._listener.stale = False
        transcript.lists.pop("tools", None)
        await list_tools(session, transcript, self._asks, progress)

    def _find_named(self, tool: str) -> list[dict[str, Any]]:
        tools = self._listener.transcript.tools
        return [entry for entry in tools if isinstance(entry, dict) and entry.get("name") == tool]

    async def check(self, tool: str, digest: str) -> None:
        """Whether the server still offers the tool by the contract of this digest, for a plain
        call. Raises CallFailed."""
        session = self._session
        if session is None:
            raise self._make_ended_failure(sent=False)
        async with self._relisting:
            # Without a session nobody says that the tools have changed: they are asked for.
            if self._listener.stale or is_stateless(session):
                try:
                    await self._list(session)
                except Exception as error:
                    raise CallFailed.of(classify_exception(error), sent=False) from None
        entries = self._find_named(tool)
        if not entries:
            count = len(self._listener.transcript.tools)
            detail = f"the server lists {count} tools, {tool!r} is not one"
            raise CallFailed("tool_gone", detail, sent=False)
        now = set()
        for entry in entries:
            try:
                now.add(contract_digest(entry))
            except ContractError:
                now.add("no contract")
        if now != {digest}:
            digests = ", ".join(sorted(entry[:15] for entry in now))
            detail = f"the contract of {tool!r} is {digests} now and was {digest[:15]} when indexed"
            raise CallFailed("contract_changed", detail, sent=False)
        if any(needs_task(entry, self._listener.transcript.server) for entry in entries):
            raise CallFailed("needs_task", f"{tool!r} says `taskSupport: required`", sent=False)

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        timeout_s: float,
        on_progress: Progress | None = None,
    ) -> Any:
        """The raw result. on_progress: is told how far the server says that it is. Raises
        CallFailed, or the SDK's MCPError where the server answered with an error of the
        protocol."""
        from mcp.shared.exceptions import MCPError

        session, line, transcript = self._session, self._line, self._listener.transcript
        if session is None or line is None or line.dead:
            raise self._make_ended_failure(sent=False)
        strange_before = transcript.noise + transcript.strays
        schema = next((entry.get("inputSchema") for entry in self._find_named(tool)), None)
        client = {"name": self._asks.client_name, "version": self._asks.client_version}
        params, opts = make_call_request(session, client, tool, arguments, schema)
        token = uuid.uuid4().hex
        if on_progress is not None:
            params.setdefault("_meta", {})["progressToken"] = token
            self._listener.progress[token] = on_progress
        line.busy(True)
        try:
            with anyio.move_on_after(timeout_s):
                return await self._dispatcher.send_raw_request("tools/call", params, opts)
        except MCPError as error:
            if refused := line.refused():
                raise refused from None
            # An error that the server sent looks like one that stands for a lost connection.
            assert self._task is not None
            over = line.dead or self._closing.is_set()
            if over:
                await asyncio.wait((self._task,), timeout=5.0)
            if over or self._task.done():
                raise self._make_ended_failure() from error
            if transcript.has_sent(error.error):
                raise
            raise CallFailed("protocol_error", " ".join(str(error).split())[:200]) from None
        except asyncio.CancelledError:
            self._doubt_server()
            raise
        finally:
            self._listener.progress.pop(token, None)
            line.busy(self.leases.total() > 1)
        waiting = line.waiting_hosts()  # before the server is told that nobody waits for it
        self._doubt_server()
        if refused := line.refused():
            raise refused
        detail, strange = f"no answer in {timeout_s:.0f} s", transcript.noise + transcript.strays
        if strange > strange_before:
            detail += f", but {strange - strange_before} messages that answer no question"
            raise CallFailed("protocol_error", detail)
        if waiting:
            detail += f", nor one of {', '.join(waiting)} to it"
        raise CallFailed("timeout_host" if waiting else "timeout_call", detail)

    async def usable(self) -> bool:
        """Whether it may get a call: one that left a call without an answer has to answer a ping
        first."""
        if self.dead or self.worn:
            return False
        if self._check is not None:
            lives = await asyncio.shield(self._check)
            self._check = None
            return lives and not self.dead
        return True

    def _doubt_server(self) -> None:
        self._check = self._check or asyncio.create_task(self._answers_ping())

    async def _answers_ping(self) -> bool:
        session, lives = self._session, False
        with suppress(Exception), anyio.move_on_after(self._limits.ping_s):
            await check_alive(session)
            lives = True
        if not lives and self.leases.total() == 0:
            self._closing.set()
        return lives

    def _make_ended_failure(self, *, sent: bool = True) -> CallFailed:
        failed = self.failure or CallFailed("crashed", "the server is gone")
        return CallFailed(failed.kind, failed.detail, fix=failed.fix, sent=sent and failed.sent)

    def secrets(self) -> Mapping[str, str]:
        """What must be in no answer of this server."""
        return self._line.secrets() if self._line else {}

    def list_refused_hosts(self) -> list[str]:
        """The hosts that the server asked for so far and was not granted."""
        return list(self._line.refused_hosts()) if self._line else []
