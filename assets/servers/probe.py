"""The probe: start one server in the sandbox, shake hands, list all its tools, end it.

Belongs here: the conversation (the SDK's client session over our relay), its time limits, pages and
cursors.
Does not belong here: how to fetch and launch a package (`fetch.py`, `deploy.py`), and what the
outcome amounts to (`verdict.py`).
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from assets.servers.launch import Launch, SandboxPolicy
from assets.servers.relay import Heard, Relay
from assets.servers.sandbox import Jailed, start
from assets.servers.taxonomy import Failure
from assets.servers.verdict import Evidence, printable, verdict
from assets.servers.watchdog import Watchdog

PROBE_VERSION = 1
_STDERR_TAIL = 2000


@dataclass(frozen=True)
class ProbePolicy:
    """Limits of the conversation, in seconds and counts. A server that used no processor time for
    `idle_s` and still owes its first answer is taken to hang."""

    start_s: float = 45.0
    idle_s: float = 10.0
    list_s: float = 30.0
    max_pages: int = 200
    max_tools: int = 2000
    client_name: str = "toolmill"
    client_version: str = "0.1"


@dataclass(frozen=True)
class ProbeResult:
    """How one launch went. status `ok` or `failed` with `error_kind` and `hint` of the taxonomy.

    tools: the raw `tools/list` entries of all pages (untrusted). seconds: from start to the last
    page. peak_mb: largest proportional set size of the process tree, MiB.
    """

    status: str
    error_kind: str | None = None
    hint: str | None = None
    server_info: dict[str, Any] = field(default_factory=dict)
    tools: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    peak_mb: float = 0.0
    stderr_tail: str = ""
    pages: int = 0
    exit_code: int | None = None
    signal: str | None = None
    initiated: int = 0  # requests and notifications the server started


class _Ended(Exception):
    """The conversation is over, with this failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


@dataclass
class _Progress:
    """How far the conversation got when it ended."""

    answered: bool = False
    pages: int = 0
    failure: Failure | None = None


def probe(
    launch: Launch, policy: SandboxPolicy, conversation: ProbePolicy | None = None
) -> ProbeResult:
    """Launches a server, lists its tools and ends it. Whatever the server does is a result;
    raises only SandboxUnavailable."""
    limits = conversation or ProbePolicy()
    began = time.monotonic()
    progress = _Progress()
    with start(launch, policy) as jailed:
        watchdog = Watchdog(jailed, policy)
        relay = Relay(jailed, policy)
        with watchdog:
            anyio.run(_converse, jailed, relay, watchdog, limits, progress)
            seconds = time.monotonic() - began
            watchdog.measure()
            exited = _ends_soon(jailed) if relay.heard.ended else False
            code, signal = jailed.exit_status() if exited else (None, None)
            jailed.kill()
        _drain_stderr(jailed, relay.heard)
    failure = verdict(
        Evidence(
            relay.heard,
            progress.failure,
            breach=watchdog.breach,
            answered=progress.answered,
            exited=exited,
            code=code,
            signal=signal,
        )
    )
    return ProbeResult(
        status="failed" if failure else "ok",
        error_kind=failure.kind if failure else None,
        hint=failure.hint if failure else None,
        server_info=relay.heard.server.get("serverInfo") or {},
        tools=[] if failure else [t for t in relay.heard.tools if isinstance(t, dict)],
        seconds=round(seconds, 3),
        peak_mb=round(watchdog.peak_mb, 1),
        stderr_tail=printable(relay.heard.stderr)[-_STDERR_TAIL:],
        pages=progress.pages,
        exit_code=code,
        signal=signal,
        initiated=relay.heard.initiated,
    )


async def _converse(
    jailed: Jailed, relay: Relay, watchdog: Watchdog, limits: ProbePolicy, progress: _Progress
) -> None:
    """Fills `progress`; a server that never ends its part is cut off by the time limits."""
    async with anyio.create_task_group() as tasks:
        relay.start(tasks)
        try:
            await _session(relay, watchdog, limits, progress)
        except _Ended as ended:
            progress.failure = ended.failure
        except Exception as error:  # the SDK raises many types on malformed answers
            progress.failure = _from_exception(error)
        finally:
            tasks.cancel_scope.cancel()


async def _session(
    relay: Relay, watchdog: Watchdog, limits: ProbePolicy, progress: _Progress
) -> None:
    from mcp import ClientSession
    from mcp_types import Implementation

    info = Implementation(name=limits.client_name, version=limits.client_version)
    async with ClientSession(relay.read, relay.write, client_info=info) as session:
        await _or_hang(session.initialize, watchdog, limits)
        progress.answered = True
        with anyio.move_on_after(limits.list_s) as clock:
            await _list(session, relay.heard, limits, progress)
        if clock.cancelled_caught:
            raise _Ended(Failure("timeout_list", f"{limits.list_s:.0f} s"))


async def _or_hang(
    action: Callable[[], Awaitable[Any]], watchdog: Watchdog, limits: ProbePolicy
) -> None:
    """Awaits the first answer, bounded by the clock and by idleness."""
    reason = ""

    async def watch() -> None:
        nonlocal reason
        began = time.monotonic()
        while not reason:
            await anyio.sleep(0.1)
            waited = time.monotonic() - began
            if waited > limits.start_s:
                reason = f"{waited:.0f} s"
            elif waited > limits.idle_s and watchdog.idle_s > limits.idle_s:
                reason = f"{waited:.0f} s, the last {watchdog.idle_s:.0f} s idle"
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await action()
        tasks.cancel_scope.cancel()
    if reason:
        raise _Ended(Failure("timeout_start", reason))


async def _list(session: Any, heard: Heard, limits: ProbePolicy, progress: _Progress) -> None:
    from mcp_types import PaginatedRequestParams

    cursor: str | None = None
    seen: set[str] = set()
    while True:
        params = PaginatedRequestParams(cursor=cursor) if cursor is not None else None
        page = await session.list_tools(params=params)
        progress.pages += 1
        if heard.malformed_page:
            raise _Ended(Failure("protocol_error", heard.malformed_page))
        if len(heard.tools) > limits.max_tools:
            raise _Ended(Failure("oversize", f"more than {limits.max_tools} tools"))
        cursor = page.next_cursor
        if not cursor:
            return
        if cursor in seen:
            raise _Ended(Failure("protocol_error", f"the cursor {cursor[:40]!r} came twice"))
        if progress.pages >= limits.max_pages:
            raise _Ended(Failure("oversize", f"more than {limits.max_pages} pages of tools"))
        seen.add(cursor)


def _from_exception(error: BaseException) -> Failure:
    """The failure behind an exception of the SDK; groups are opened."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, _Ended):
        return error.failure
    code = getattr(getattr(error, "error", None), "code", None)
    text = " ".join(str(error).split())[:200] or type(error).__name__
    return Failure("protocol_error", f"{text} (code {code})" if code is not None else text)


def _ends_soon(jailed: Jailed, seconds: float = 1.0) -> bool:
    """Whether the server ends by itself within a moment (its output ends just before it does)."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if jailed.process.poll() is not None:
            return True
        time.sleep(0.01)
    return False


def _drain_stderr(jailed: Jailed, heard: Heard) -> None:
    """What the dead server still had in the pipe."""
    stream = jailed.process.stderr
    while stream is not None:
        try:
            chunk = stream.read(65_536)
        except (OSError, ValueError):
            return
        if not chunk:
            return
        heard.stderr = (heard.stderr + chunk)[-16_384:]
