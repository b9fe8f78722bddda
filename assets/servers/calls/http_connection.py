"""A server elsewhere, reached over HTTP by the guarded client."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import anyio

from assets.servers.calls.connection import Dial, Line
from assets.servers.calls.launch import Wanted
from assets.servers.calls.result import CallFailed, CallLimits
from assets.servers.credentials.secrets import SecretError
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.probe.failure_kinds import Ended, Failure
from assets.servers.probe.transcript import Listener
from assets.servers.remote.attempt import Attempt, list_secrets
from assets.servers.remote.client import MAX_REQUESTS, Transport
from assets.servers.remote.transport import MIB, RemotePolicy, Wire


def make_remote_dial(
    wanted: Wanted, policy: DeployPolicy, limits: CallLimits, kind: Transport
) -> Dial:
    """Reaches the recipe's address over one transport, with its user's headers and account."""
    recipe = wanted.recipe
    url = str(recipe.url)
    remote = replace(
        policy.remote or RemotePolicy(),
        wall_s=limits.timeout_s + limits.launch_s,
        message_mb=limits.message_mb,
    )
    headers = {**dict(recipe.headers), **wanted.given.headers}

    @asynccontextmanager
    async def dial(listener: Listener) -> AsyncIterator[Line]:
        try:
            auth = policy.accounts.auth(recipe.server_id, url) if policy.accounts else None
        except SecretError as error:
            raise CallFailed("remote_auth", "", fix=str(error), sent=False) from None
        async with Wire(remote) as wire:
            attempt = Attempt(kind, url, wire, listener, headers=headers, auth=auth)
            line = _RemoteLine(wanted, headers=headers, wire=wire, attempt=attempt)
            try:
                async with attempt.open(policy.conversation.start_s) as (line.read, line.write):
                    yield line
            except Ended as ended:
                raise line.make_failure(ended.failure) from None

    return dial


@dataclass(repr=False)
class _RemoteLine(Line):
    """Silence on it is no idleness: a server elsewhere may be starting."""

    headers: dict[str, str] = field(kw_only=True)
    wire: Wire = field(kw_only=True)
    attempt: Attempt = field(kw_only=True)

    async def over(self) -> None:
        """Ends with the scope of the attempt, which the watch cancels."""
        await anyio.sleep_forever()

    @property
    def dead(self) -> bool:
        watch = self.attempt.watch
        return watch.failure is not None or bool(watch.refusal and watch.refusal.lost_session)

    @property
    def worn(self) -> bool:
        meter = self.wire.meter
        heavy = max(meter.wire, meter.decoded) > self.wire.policy.max_mb * MIB // 2
        return heavy or self.attempt.client.requests > MAX_REQUESTS // 2

    def secrets(self) -> dict[str, str]:
        url, tokens = self.attempt.watch.url, self.attempt.client.tokens
        return {**list_secrets(url, self.headers, tokens), **super().secrets()}

    def refused(self) -> CallFailed | None:
        refusal = self.attempt.watch.refusal
        if refusal is None:
            return None
        if not refusal.lost_session and refusal.error is not None:
            return None  # the session has been given it
        return self.make_failure(self.attempt.rank_evidence(None, answered=True))

    async def why(self, found: Failure | None) -> CallFailed:
        return self.make_failure(self.attempt.rank_evidence(found, answered=self.answered))

    def make_failure(self, failure: Failure) -> CallFailed:
        refusal = self.attempt.watch.refusal
        sent = self.answered and not (refusal and refusal.lost_session)
        made = CallFailed.of(failure, sent=sent)
        made.may_be_sse = not self.answered and bool(refusal and refusal.may_be_sse)
        return made
