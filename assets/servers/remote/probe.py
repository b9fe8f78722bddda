"""The probe of a remote server: the same conversation over streamable HTTP or SSE."""

import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx2

from assets.servers.probe.classify import Evidence, classify_evidence
from assets.servers.probe.failure_kinds import Failure
from assets.servers.probe.probe import ProbeResult, make_result
from assets.servers.probe.session import Ended, ProbePolicy, Progress, hold_conversation
from assets.servers.probe.transcript import Listener
from assets.servers.remote.client import Client, Transport, Watch
from assets.servers.remote.outcome import RemoteFailure, classify_exception, classify_refusal
from assets.servers.remote.transport import RemotePolicy, Wire
from warehouse.network.egress import Connector
from warehouse.sanitize.scrubber import Scrubber
from warehouse.sanitize.secret_names import is_secret_name

__all__ = ["RemotePolicy", "probe_remote"]

_ADVICE = "its answers are not those of an MCP server over HTTP; its author has to fix it"
_SESSIONS = 2  # how often a conversation is begun when the server ends its session


def probe_remote(
    url: str,
    *,
    transport: Literal["http", "sse", "auto"],
    limits: ProbePolicy,
    policy: RemotePolicy,
    headers: Mapping[str, str] | None = None,
    auth: httpx2.Auth | None = None,
    connector: Connector | None = None,
) -> ProbeResult:
    """Lists what a remote server offers. Whatever it does is a result.

    transport: `auto` tries streamable HTTP, then SSE where the POST is answered with a 4xx that is
    not about who asks. headers and `auth` are sent to the URL's origin only, and what is secret in
    them is in no result. connector: for tests.
    """
    probe = _Probe(url, dict(headers or {}), limits, policy, auth, connector)
    with silence_logs():
        anyio.run(probe.run, transport)
    return probe.result()


@dataclass
class Attempt:
    """One conversation over one transport, and what its failure amounts to."""

    listener: Listener
    progress: Progress
    watch: Watch
    crash: Failure | None = None

    @property
    def heard(self) -> Any:
        return self.listener.heard

    def failure(self) -> Failure | None:
        """The strongest evidence first. What went wrong after the last list of tools was only
        asked for besides; not so a way to a private address."""
        heard, progress, watch = self.heard, self.progress, self.watch
        denied = watch.failure is not None and watch.failure.kind == "policy_denied"
        if progress.listed_s is not None and not denied:
            return classify_evidence(Evidence(heard, None, answered=True))
        if heard.oversize:
            return Failure("oversize", heard.oversize)
        if heard.broken:
            return Failure("protocol_error", heard.broken)
        if watch.failure:
            return watch.failure
        found = progress.failure
        if found and found.kind != "protocol_error":
            return classify_evidence(Evidence(heard, found, answered=progress.answered))
        if watch.refusal:
            return classify_refusal(watch.refusal, watch.url)
        if found is None or "code" not in found.detail:
            return watch.trouble or self.crash or found or Failure("protocol_error", "it ended")
        if "code -32000" in found.detail and (watch.trouble or heard.noise):
            noise = f"{heard.noise} answers that are no JSON-RPC, first {heard.first_noise}"
            return watch.trouble or Failure("protocol_error", noise)
        if "code -32700" in found.detail:
            return found  # the SDK's own words on what it could not read
        failure = classify_evidence(Evidence(heard, found, answered=progress.answered))
        if failure and failure.kind == "needs_secret":
            return RemoteFailure("remote_auth", failure.detail)
        kept = ("no_tools", "needs_argument", "protocol_error")
        return failure if failure and failure.kind in kept else found


@dataclass
class _Probe:
    url: str
    headers: dict[str, str] = field(repr=False)
    limits: ProbePolicy
    policy: RemotePolicy
    auth: httpx2.Auth | None
    connector: Connector | None
    attempts: list[Attempt] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set, repr=False)

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.wire: Wire | None = None
        self.chosen: Attempt | None = None
        self.late = False

    async def run(self, transport: Literal["http", "sse", "auto"]) -> None:
        self.wire = Wire(self.policy, self.connector)
        with anyio.move_on_after(self.policy.wall_s) as clock:
            async with self.wire:
                await self._choose_transport(transport)
        self.late = clock.cancelled_caught

    async def _choose_transport(self, transport: Literal["http", "sse", "auto"]) -> None:
        first = await self._in_session("sse" if transport == "sse" else "http")
        refusal = first.watch.refusal
        if transport != "auto" or first.progress.answered or not refusal or not refusal.may_be_sse:
            return
        second = await self._in_session("sse")
        again = second.watch.refusal
        if not second.progress.answered and again and again.may_be_sse:
            self.chosen = first  # neither: what the newer transport was told is what counts

    async def _in_session(self, kind: Transport) -> Attempt:
        """One attempt, begun anew where the server ended the session before its tools were told."""
        for _ in range(_SESSIONS):
            attempt = await self._run_attempt(kind)
            refusal = attempt.watch.refusal
            if attempt.progress.listed_s is not None or not refusal or not refusal.lost_session:
                break
        return attempt

    async def _run_attempt(self, kind: Transport) -> Attempt:
        with anyio.CancelScope() as scope:
            attempt = Attempt(Listener(), Progress(self.began), Watch(self.url, scope))
            self.attempts.append(attempt)
            try:
                async with self._open_client(kind, attempt) as client:
                    await self._converse_over(kind, client, attempt)
            except Exception as error:  # groups of whatever SDK, httpx2 and OAuth raise
                attempt.crash = classify_exception(error, self.url)
        return attempt

    @asynccontextmanager
    async def _open_client(self, kind: Transport, attempt: Attempt) -> AsyncIterator[Client]:
        assert self.wire is not None
        client = Client(
            self.wire,
            kind,
            attempt.listener,
            attempt.watch,
            headers=self.headers,
            auth=self.auth,
        )
        try:
            yield client  # not closed: that would close the wire, which the next attempt uses
        finally:
            self.tokens |= client.tokens

    async def _converse_over(self, kind: Transport, client: Client, attempt: Attempt) -> None:
        try:
            async with open_streams(kind, self.url, client, self.limits.start_s) as (read, write):
                # Silence on the line is no idleness: a server elsewhere may be starting.
                await hold_conversation(
                    read, write, attempt.heard, self.limits, attempt.progress, lambda: 0.0
                )
        except Ended as ended:
            attempt.progress.failure = ended.failure

    def result(self) -> ProbeResult:
        ended = time.monotonic() - self.began
        attempt = self.chosen or self.attempts[-1]
        if self.late:
            self._cut_attempt(attempt, f"{self.policy.wall_s:.0f} s in all")
        failure = attempt.failure()
        if failure and failure.kind == "protocol_error" and not getattr(failure, "advice", ""):
            failure = RemoteFailure("protocol_error", failure.detail, _ADVICE)
        more = {"retry_after": getattr(failure, "retry_after", None)}
        found = make_result(attempt.heard, attempt.progress, failure, ended, **more)
        return self._scrub_result(found)

    def _cut_attempt(self, attempt: Attempt, detail: str) -> None:
        """The wall clock ended the conversation; a listing that was told stands."""
        progress = attempt.progress
        if progress.listed_s is None:
            kind = "timeout_list" if progress.answered else "timeout_start"
            progress.failure = progress.failure or Failure(kind, detail)
        elif attempt.heard.earlier:
            attempt.heard.take_back()  # it may have been cut in the middle

    def _scrub_result(self, found: ProbeResult) -> ProbeResult:
        """What we sent as a secret may have come back in any text."""
        scrub = Scrubber(list_secrets(self.url, self.headers, self.tokens))
        if not scrub:
            return found
        told = vars(found).items()  # every text, list and mapping: all of them are its words
        return replace(
            found, **{name: scrub(one) for name, one in told if isinstance(one, str | list | dict)}
        )


@asynccontextmanager
async def open_streams(
    kind: Transport, url: str, client: Client, start_s: float
) -> AsyncIterator[tuple[Any, Any]]:
    """The session's two streams: the SDK's transport over our client. Entering that of SSE waits
    for the server's first event, so it has the time limit of a start. Raises Ended."""
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    made: Any = (
        streamable_http_client(url, http_client=client, max_sse_event_size=None)
        if kind == "http"
        else sse_client(url, httpx_client_factory=lambda *_, **__: client)
    )
    with anyio.CancelScope(deadline=anyio.current_time() + start_s) as start:
        async with made as streams:
            start.deadline = float("inf")
            yield streams
    if start.cancelled_caught:
        raise Ended(Failure("timeout_start", f"{start_s:.0f} s"))


def list_secrets(url: str, headers: Mapping[str, str], tokens: Iterable[str]) -> dict[str, str]:
    """What of an address, of headers and of an account's tokens is secret, by name."""
    secrets = {f"token {n}": value for n, value in enumerate(sorted(tokens))}
    sent = [*headers.items()]
    with suppress(ValueError):  # an address that is none
        parts = urlsplit(url)
        sent += [*parse_qsl(parts.query), ("password", parts.password or "")]
    return secrets | {name: value for name, value in sent if is_secret_name(name)}


_PROBING: ContextVar[bool] = ContextVar("probing", default=False)
_TALKERS = (
    "client",
    "httpcore2.connection",
    "httpcore2.http11",
    "httpcore2.proxy",
    "httpx2",
    "mcp.client.auth.oauth2",
    "mcp.client.sse",
    "mcp.client.streamable_http",
    "mcp.shared.jsonrpc_dispatcher",
)


def _unless_probing(_: logging.LogRecord) -> bool:
    return not _PROBING.get()


@contextmanager
def silence_logs() -> Iterator[None]:
    """The SDK logs third-party answers with tracebacks, and httpx2 whole URLs: neither may reach a
    log. Only what this task and those it starts cause is silent; others go on."""
    for name in _TALKERS:
        logging.getLogger(name).addFilter(_unless_probing)  # once: the same filter is not doubled
    token = _PROBING.set(True)
    try:
        yield
    finally:
        _PROBING.reset(token)
