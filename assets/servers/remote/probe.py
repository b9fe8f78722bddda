"""The probe of a remote server: the same conversation over streamable HTTP or SSE."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

import anyio
import httpx2

from assets.servers.probe.classify import Evidence, classify_evidence
from assets.servers.probe.failure_kinds import Ended, Failure
from assets.servers.probe.probe import ProbeResult, make_result
from assets.servers.probe.session import ProbePolicy, Progress, hold_conversation
from assets.servers.probe.transcript import Listener
from assets.servers.remote.attempt import Attempt, list_secrets
from assets.servers.remote.client import Transport
from assets.servers.remote.log_filter import silence_logs
from assets.servers.remote.outcome import RemoteFailure
from assets.servers.remote.transport import RemotePolicy, Wire
from warehouse.network.egress import Connector
from warehouse.sanitize.scrubber import Scrubber

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
    probe = _Probe(url, dict(headers or {}), limits, policy, auth)
    with silence_logs():
        anyio.run(probe.run, transport, connector)
    return probe.make_result()


@dataclass
class _Listing:
    """One attempt to list the tools."""

    attempt: Attempt
    progress: Progress

    @property
    def may_be_sse(self) -> bool:
        refusal = self.attempt.watch.refusal
        return not self.progress.answered and refusal is not None and refusal.may_be_sse

    @property
    def lost_session(self) -> bool:
        refusal = self.attempt.watch.refusal
        return self.progress.listed_s is None and refusal is not None and refusal.lost_session

    def find_failure(self) -> Failure | None:
        """What went wrong after the last list of tools was only asked for besides; not so a way to
        a private address."""
        watch, progress = self.attempt.watch, self.progress
        denied = watch.failure is not None and watch.failure.kind == "policy_denied"
        if progress.listed_s is not None and not denied:
            return classify_evidence(
                Evidence(self.attempt.listener.transcript, None, answered=True)
            )
        return self.attempt.rank_evidence(progress.failure, answered=progress.answered)


@dataclass
class _Probe:
    url: str
    headers: dict[str, str] = field(repr=False)
    limits: ProbePolicy
    policy: RemotePolicy
    auth: httpx2.Auth | None
    listings: list[_Listing] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.chosen: _Listing | None = None
        self.late = False

    async def run(
        self, transport: Literal["http", "sse", "auto"], connector: Connector | None
    ) -> None:
        with anyio.move_on_after(self.policy.wall_s) as clock:
            async with Wire(self.policy, connector) as wire:
                first = await self._list_tools("sse" if transport == "sse" else "http", wire)
                if transport == "auto" and first.may_be_sse:
                    second = await self._list_tools("sse", wire)
                    if second.may_be_sse:
                        self.chosen = first  # neither: what the newer transport was told counts
        self.late = clock.cancelled_caught

    async def _list_tools(self, kind: Transport, wire: Wire) -> _Listing:
        """Begun anew where the server ended the session before its tools were told."""
        for _ in range(_SESSIONS):
            attempt = Attempt(
                kind, self.url, wire, Listener(), headers=self.headers, auth=self.auth
            )
            listing = _Listing(attempt, Progress(self.began))
            self.listings.append(listing)
            # The client is not closed: that would close the wire, which the next one uses.
            with suppress(Ended):  # the attempt knows why
                async with attempt.open(self.limits.start_s) as (read, write):
                    # Silence on the line is no idleness: a server elsewhere may be starting.
                    transcript, idle = attempt.listener.transcript, lambda: 0.0
                    await hold_conversation(
                        read, write, transcript, self.limits, listing.progress, idle
                    )
            if not listing.lost_session:
                break
        return listing

    def make_result(self) -> ProbeResult:
        ended = time.monotonic() - self.began
        listing = self.chosen or self.listings[-1]
        if self.late:
            self._cut_listing(listing, f"{self.policy.wall_s:.0f} s in all")
        failure = listing.find_failure()
        if failure and failure.kind == "protocol_error" and not getattr(failure, "advice", ""):
            failure = RemoteFailure("protocol_error", failure.detail, _ADVICE)
        transcript = listing.attempt.listener.transcript
        retry_after = getattr(failure, "retry_after", None)
        found = make_result(transcript, listing.progress, failure, ended, retry_after=retry_after)
        return self._scrub_result(found)

    def _cut_listing(self, listing: _Listing, detail: str) -> None:
        """The wall clock ended the conversation; a listing that was told stands."""
        progress, transcript = listing.progress, listing.attempt.listener.transcript
        if progress.listed_s is None:
            kind = "timeout_list" if progress.answered else "timeout_start"
            progress.failure = progress.failure or Failure(kind, detail)
        elif transcript.earlier:
            transcript.take_back()  # it may have been cut in the middle

    def _scrub_result(self, found: ProbeResult) -> ProbeResult:
        """What we sent as a secret may have come back in any text."""
        tokens = {token for listing in self.listings for token in listing.attempt.client.tokens}
        scrub = Scrubber(list_secrets(self.url, self.headers, tokens))
        if not scrub:
            return found
        fields = vars(found).items()  # every text, list and mapping: all of them are its words
        return replace(
            found,
            **{name: scrub(one) for name, one in fields if isinstance(one, str | list | dict)},
        )
