"""One conversation with a remote server over one transport, and what its end amounts to.

The probe lists the tools in it, a call sends its requests in it.
"""

import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx2

from assets.servers.probe.failure_kinds import ConversationEnd, ProbeFailure
from assets.servers.probe.probe import ProbeResult, make_result
from assets.servers.probe.remote_outcome import (
    RemoteFailure,
    classify_exception,
    classify_refusal,
    silence_logs,
)
from assets.servers.probe.remote_transport import (
    ClientWatch,
    GuardedTransport,
    RemoteClient,
    RemotePolicy,
    Transport,
)
from assets.servers.probe.session import ProbePolicy, ProbeProgress, hold_conversation
from assets.servers.probe.transcript import MessageFilter, ProbeEvidence, classify_evidence
from warehouse.network.egress import EgressConnector
from warehouse.sanitize.scrubber import Scrubber
from warehouse.sanitize.secret_names import is_secret_name


class RemoteConversation:
    """One conversation over one transport, opened once: the probe lists the tools in it, a call
    sends its requests in it. timeout: it did not open in time; crash: how it broke."""

    def __init__(
        self,
        kind: Transport,
        url: str,
        wire: GuardedTransport,
        listener: MessageFilter,
        *,
        headers: Mapping[str, str],
        auth: httpx2.Auth | None,
    ) -> None:
        self._kind: Transport = kind
        self.listener = listener
        self._scope = anyio.CancelScope()
        self.watch = ClientWatch(url, self._scope)
        self.client = RemoteClient(wire, kind, listener, self.watch, headers=headers, auth=auth)
        self.timeout: ProbeFailure | None = None
        self.crash: ProbeFailure | None = None

    @asynccontextmanager
    async def open(self, start_s: float) -> AsyncIterator[tuple[Any, Any]]:
        """The session's two streams. Raises ConversationEnd where the transport or the watch ended
        it, by what is known without the session."""
        from mcp.client.sse import sse_client
        from mcp.client.streamable_http import streamable_http_client

        url, client = self.watch.url, self.client
        transport: Any = (
            streamable_http_client(url, http_client=client, max_sse_event_size=None)
            if self._kind == "http"
            else sse_client(url, httpx_client_factory=lambda *_, **__: client)
        )
        finished = False
        with self._scope:
            try:
                # Entering the transport of SSE waits for the server's first event.
                with anyio.CancelScope(deadline=anyio.current_time() + start_s) as start:
                    async with transport as streams:
                        start.deadline = float("inf")
                        yield streams
                        finished = True
                if start.cancelled_caught:
                    self.timeout = ProbeFailure("timeout_start", f"{start_s:.0f} s")
            except ConversationEnd as ended:
                self.timeout = ended.failure
            except Exception as error:  # groups of whatever SDK, httpx2 and OAuth raise
                self.crash = classify_exception(error, url)
        if not finished:
            raise ConversationEnd(self.rank_evidence(None, answered=False))

    def rank_evidence(self, failure: ProbeFailure | None, *, answered: bool) -> ProbeFailure:
        """What a conversation that was cut short amounts to: the strongest evidence first. failure:
        how it ended for the session; answered: whether the handshake was."""
        transcript, watch, failure = self.listener.transcript, self.watch, failure or self.timeout
        if transcript.oversize:
            return ProbeFailure("oversize", transcript.oversize)
        if transcript.broken:
            return ProbeFailure("protocol_error", transcript.broken)
        if watch.failure:
            return watch.failure
        evidence = ProbeEvidence(transcript, failure, answered=answered)
        if failure and failure.kind != "protocol_error":
            return classify_evidence(evidence) or failure
        if watch.refusal:
            return classify_refusal(watch.refusal, watch.url)
        if failure is None or "code" not in failure.detail:
            ended = ProbeFailure("remote_down", "it ended the conversation")
            return watch.trouble or self.crash or failure or ended
        if "code -32000" in failure.detail and (watch.trouble or transcript.noise):
            noise = f"{transcript.noise} answers that are no JSON-RPC"
            noise += f", first {transcript.first_noise}"
            return watch.trouble or ProbeFailure("protocol_error", noise)
        if "code -32700" in failure.detail:
            return failure  # the SDK's own words on what it could not read
        verdict = classify_evidence(evidence) or failure
        if verdict.kind == "needs_secret":
            return RemoteFailure("remote_auth", verdict.detail)
        return verdict if verdict.kind in ("no_tools", "needs_argument") else failure


def list_secrets(url: str, headers: Mapping[str, str], tokens: Iterable[str]) -> dict[str, str]:
    """What of an address, of headers and of an account's tokens is secret, by name."""
    secrets = {f"token {n}": value for n, value in enumerate(sorted(tokens))}
    sent = [*headers.items()]
    with suppress(ValueError):  # an address that is none
        address = urlsplit(url)
        sent += [*parse_qsl(address.query), ("password", address.password or "")]
    return secrets | {name: value for name, value in sent if is_secret_name(name)}


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
    connector: EgressConnector | None = None,
) -> ProbeResult:
    """Lists what a remote server offers. Whatever it does is a result.

    transport: `auto` tries streamable HTTP, then SSE where the POST is answered with a 4xx that is
    not about who asks. headers and `auth` are sent to the URL's origin only, and what is secret in
    them is in no result. connector: for tests.
    """
    probe = _RemoteProbe(url, dict(headers or {}), limits, policy, auth)
    with silence_logs():
        anyio.run(probe.run, transport, connector)
    return probe.make_result()


@dataclass
class _ListingAttempt:
    """One attempt to list the tools."""

    attempt: RemoteConversation
    progress: ProbeProgress

    @property
    def may_be_sse(self) -> bool:
        refusal = self.attempt.watch.refusal
        return not self.progress.answered and refusal is not None and refusal.may_be_sse

    def find_failure(self) -> ProbeFailure | None:
        """What went wrong after the last list of tools was only asked for besides; not so a way to
        a private address."""
        watch, progress = self.attempt.watch, self.progress
        denied = watch.failure is not None and watch.failure.kind == "policy_denied"
        if progress.listed_s is None or denied:
            return self.attempt.rank_evidence(progress.failure, answered=progress.answered)
        transcript = self.attempt.listener.transcript
        return classify_evidence(ProbeEvidence(transcript, None, answered=True))


@dataclass
class _RemoteProbe:
    url: str
    headers: dict[str, str] = field(repr=False)
    limits: ProbePolicy
    policy: RemotePolicy
    auth: httpx2.Auth | None
    listings: list[_ListingAttempt] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.chosen: _ListingAttempt | None = None
        self.late = False

    async def run(
        self, transport: Literal["http", "sse", "auto"], connector: EgressConnector | None
    ) -> None:
        with anyio.move_on_after(self.policy.wall_s) as clock:
            async with GuardedTransport(self.policy, connector) as wire:
                first = await self._list_tools("sse" if transport == "sse" else "http", wire)
                if transport == "auto" and first.may_be_sse:
                    second = await self._list_tools("sse", wire)
                    if second.may_be_sse:
                        self.chosen = first  # neither: what the newer transport was told counts
        self.late = clock.cancelled_caught

    async def _list_tools(self, kind: Transport, wire: GuardedTransport) -> _ListingAttempt:
        """Started again where the server ended the session before its tools were told."""
        sent = {"headers": self.headers, "auth": self.auth}
        for _ in range(_SESSIONS):
            attempt = RemoteConversation(kind, self.url, wire, MessageFilter(), **sent)
            listing = _ListingAttempt(attempt, ProbeProgress(self.began))
            self.listings.append(listing)
            facts = (attempt.listener.transcript, self.limits, listing.progress)
            # The client is not closed: that would close the wire, which the next one uses.
            with suppress(ConversationEnd):  # the attempt knows why
                async with attempt.open(self.limits.start_s) as (read, write):
                    # Silence on the line is no idleness: a server elsewhere may be starting.
                    await hold_conversation(read, write, *facts, lambda: 0.0)
            refusal = attempt.watch.refusal
            lost = refusal is not None and refusal.lost_session
            if not lost or listing.progress.listed_s is not None:
                break
        return listing

    def make_result(self) -> ProbeResult:
        ended = time.monotonic() - self.began
        listing = self.chosen or self.listings[-1]
        progress, transcript = listing.progress, listing.attempt.listener.transcript
        if self.late and progress.listed_s is None:
            kind = "timeout_list" if progress.answered else "timeout_start"
            late = ProbeFailure(kind, f"{self.policy.wall_s:.0f} s in all")
            progress.failure = progress.failure or late
        elif self.late and transcript.earlier:
            transcript.take_back()  # it may have been cut in the middle
        failure = listing.find_failure()
        if failure and failure.kind == "protocol_error" and not getattr(failure, "advice", ""):
            failure = RemoteFailure("protocol_error", failure.detail, _ADVICE)
        retry_after = getattr(failure, "retry_after", None)
        result = make_result(transcript, progress, failure, ended, retry_after=retry_after)
        # What we sent as a secret may have come back in any text.
        tokens = {token for listing in self.listings for token in listing.attempt.client.tokens}
        scrub = Scrubber(list_secrets(self.url, self.headers, tokens))
        if not scrub:
            return result
        fields = vars(result).items()  # every text, list and mapping: all of them are its words
        texts = {
            name: scrub(words) for name, words in fields if isinstance(words, str | list | dict)
        }
        return replace(result, **texts)
