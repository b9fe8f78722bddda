"""The probe: start one server in the sandbox, shake hands, list all its tools, end it.

Belongs here: the conversation (the SDK's client session over our relay), its time limits, pages and
cursors, and the verdict on how it went.
Does not belong here: how to fetch and launch a package (`fetch.py`, `deploy.py`), and the reading
of last words (`taxonomy.py`).
"""

import time
from dataclasses import dataclass, field
from typing import Any

import anyio

from assets.servers.relay import Heard, Relay
from assets.servers.sandbox import Jailed, Launch, SandboxPolicy, start
from assets.servers.taxonomy import Failure, from_last_words, spoken
from assets.servers.watchdog import Breach, Watchdog

PROBE_VERSION = 1
_STDERR_TAIL = 2000
_BREACHES = {
    "memory": "out_of_memory",
    "processes": "too_many_processes",
    "disk": "disk_full",
}


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
            ended_itself = _ends_soon(jailed) if relay.heard.ended else False
            code, signal = jailed.exit_status() if ended_itself else (None, None)
            jailed.kill()
        _drain_stderr(jailed, relay.heard)
    failure = _verdict(progress, relay.heard, watchdog.breach, ended_itself, code, signal, limits)
    return ProbeResult(
        status="failed" if failure else "ok",
        error_kind=failure.kind if failure else None,
        hint=failure.hint if failure else None,
        server_info=relay.heard.server.get("serverInfo") or {},
        tools=[] if failure else [t for t in relay.heard.tools if isinstance(t, dict)],
        seconds=round(seconds, 3),
        peak_mb=round(watchdog.peak_mb, 1),
        stderr_tail=_printable(relay.heard.stderr)[-_STDERR_TAIL:],
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
        async with _hang_guard(watchdog, limits):
            await session.initialize()
        progress.answered = True
        with anyio.move_on_after(limits.list_s) as clock:
            await _list(session, relay.heard, limits, progress)
        if clock.cancelled_caught:
            raise _Ended(Failure("timeout_list", f"{limits.list_s:.0f} s"))


def _hang_guard(watchdog: Watchdog, limits: ProbePolicy) -> Any:
    return _HangGuard(watchdog, limits)


class _HangGuard:
    """Bounds the wait for the first answer by the clock and by idleness."""

    def __init__(self, watchdog: Watchdog, limits: ProbePolicy) -> None:
        self._watchdog, self._limits = watchdog, limits
        self._reason = ""

    async def __aenter__(self) -> None:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._wait)

    async def __aexit__(self, *raised: Any) -> bool | None:
        self._tasks.cancel_scope.cancel()
        if self._reason:
            await self._tasks.__aexit__(None, None, None)
            raise _Ended(Failure("timeout_start", self._reason))
        return await self._tasks.__aexit__(*raised)

    async def _wait(self) -> None:
        began = time.monotonic()
        while not self._reason:
            await anyio.sleep(0.1)
            waited = time.monotonic() - began
            if waited > self._limits.start_s:
                self._reason = f"{waited:.0f} s"
            elif waited > self._limits.idle_s and self._watchdog.idle_s > self._limits.idle_s:
                self._reason = f"{waited:.0f} s, the last {self._watchdog.idle_s:.0f} s idle"
        self._tasks.cancel_scope.cancel()


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


def _verdict(
    progress: _Progress,
    heard: Heard,
    breach: Breach | None,
    ended_itself: bool,
    code: int | None,
    signal: str | None,
    limits: ProbePolicy,
) -> Failure | None:
    """The strongest evidence first: a limit that was passed, an exit, then the conversation."""
    if heard.oversize:
        return Failure("oversize", heard.oversize)
    if breach and breach.limit in _BREACHES:
        return Failure(_BREACHES[breach.limit], breach.found)
    if breach:
        return Failure("timeout_list" if progress.answered else "timeout_start", breach.found)
    failure = progress.failure
    if failure is None:
        return None if heard.tools else Failure("no_tools", "")
    if failure.kind in ("timeout_start", "timeout_list", "oversize"):
        if failure.kind == "timeout_start" and heard.noise:
            said = f"{heard.noise} lines that are no JSON-RPC, first {heard.first_noise}"
            return Failure("protocol_error", said)
        return failure if failure.kind == "oversize" else _why_late(failure, heard)
    if ended_itself:
        return from_last_words(_printable(heard.stderr) + heard.first_noise, code, signal)
    if "code -32601" in failure.detail and progress.answered:
        return Failure("no_tools", "tools/list is not a method of this server")
    if "code" in failure.detail and not heard.ended:
        return _refusal(failure)
    if heard.ended:
        return Failure("protocol_error", "it closed its standard output and went on running")
    return failure


def _why_late(failure: Failure, heard: Heard) -> Failure:
    """A server that hangs has often said why."""
    said = spoken(_printable(heard.stderr))
    return Failure(said.kind, f"{failure.detail}, {said.detail}") if said else failure


def _refusal(failure: Failure) -> Failure:
    """An error answer may say the same things a dying server says."""
    said = spoken(failure.detail)
    return Failure(said.kind, f"answered {failure.detail!r}") if said else failure


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


def _printable(data: bytes) -> str:
    """Text without control characters: it ends up in logs and tables."""
    text = data.decode("utf-8", "replace")
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text)
