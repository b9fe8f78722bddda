"""A server elsewhere, reached over HTTP by the guarded client."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from assets.servers.calls.connection import CallListener, Dial, Line
from assets.servers.calls.launch import Wanted
from assets.servers.calls.result import CallFailed, CallLimits
from assets.servers.credentials.secrets import SecretError
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.probe.failure_kinds import Failure
from assets.servers.probe.session import Ended
from assets.servers.probe.transcript import Heard
from assets.servers.remote.client import MAX_REQUESTS, Client, Transport, Watch
from assets.servers.remote.meter import MIB
from assets.servers.remote.outcome import classify_exception, classify_refusal
from assets.servers.remote.probe import RemotePolicy, list_secrets, open_streams
from assets.servers.remote.transport import Wire


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
    async def dial(listener: CallListener) -> AsyncIterator[Line]:
        try:
            auth = policy.accounts.auth(recipe.server_id, url) if policy.accounts else None
        except SecretError as error:
            raise CallFailed("remote_auth", "", fix=str(error), sent=False) from None
        line: _RemoteLine | None = None
        crash: Failure | None = None
        finished = False
        with anyio.CancelScope() as scope:
            watch = Watch(url, scope)
            try:
                async with Wire(remote) as wire:
                    client = Client(wire, kind, listener, watch, headers=headers, auth=auth)
                    line = _RemoteLine(url, headers, wanted, wire, client, watch, listener)
                    streams = open_streams(kind, url, client, policy.conversation.start_s)
                    async with streams as (line.read, line.write):
                        yield line
                        finished = True
            except CallFailed:
                raise
            except Ended as ended:
                crash = ended.failure
            except Exception as error:  # groups of whatever SDK, httpx2 and OAuth raise
                crash = classify_exception(error, url)
        if not finished:
            answered = line is not None and line.answered
            raise _classify_failure(watch, listener.heard, crash, answered)

    return dial


def _classify_failure(
    watch: Watch, heard: Heard, found: Failure | None, answered: bool
) -> CallFailed:
    """The strongest evidence first, as in the probe of a remote server."""
    refusal = watch.refusal
    sent = answered and not (refusal and refusal.lost_session)
    if heard.oversize:
        failure = Failure("oversize", heard.oversize)
    elif heard.broken:
        failure = Failure("protocol_error", heard.broken)
    elif watch.failure:
        failure = watch.failure
    elif refusal:
        failure = classify_refusal(refusal, watch.url)
    else:
        failure = watch.trouble or found or Failure("remote_down", "it ended the conversation")
    made = CallFailed.of(failure, sent=sent)
    made.may_be_sse = not answered and bool(refusal and refusal.may_be_sse)
    return made


def _find_error(excerpt: str) -> dict[str, Any] | None:
    """The error of the protocol that a refusal's body holds."""
    try:
        said = json.loads(excerpt)
    except (ValueError, RecursionError):
        return None
    error = said.get("error") if isinstance(said, dict) and "jsonrpc" in said else None
    return error if isinstance(error, dict) else None


@dataclass
class _RemoteLine:
    url: str
    headers: dict[str, str] = field(repr=False)
    wanted: Wanted
    wire: Wire
    client: Client
    watch: Watch
    listener: CallListener
    read: Any = None
    write: Any = None
    answered: bool = False

    async def over(self) -> None:
        """Ends with the scope of the attempt, which the watch cancels."""
        await anyio.sleep_forever()

    def idle_s(self) -> float:
        return 0.0  # silence on the line is no idleness: a server elsewhere may be starting

    def busy(self, busy: bool) -> None:
        return

    @property
    def dead(self) -> bool:
        lost = self.watch.refusal is not None and self.watch.refusal.lost_session
        return self.watch.failure is not None or lost

    @property
    def worn(self) -> bool:
        meter = self.wire.meter
        heavy = max(meter.wire, meter.decoded) > self.wire.policy.max_mb * MIB // 2
        return heavy or self.client.requests > MAX_REQUESTS // 2

    def secrets(self) -> Mapping[str, str]:
        ours = {**self.wanted.given.env, **self.wanted.given.headers}
        return {**list_secrets(self.url, self.headers, self.client.tokens), **ours}

    def refused(self) -> CallFailed | None:
        refusal = self.watch.refusal
        if refusal is None:
            return None
        if not refusal.lost_session and (error := _find_error(refusal.excerpt)):
            self.listener.note_error(error)  # the session has been given it
            return None
        return _classify_failure(self.watch, self.listener.heard, None, True)

    async def why(self, found: Failure | None) -> CallFailed:
        return _classify_failure(self.watch, self.listener.heard, found, self.answered)
