"""One conversation with a remote server over one transport, and what its end amounts to.

The probe lists the tools in it, a call sends its requests in it.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx2

from assets.servers.probe.classify import Evidence, classify_evidence
from assets.servers.probe.failure_kinds import Ended, Failure
from assets.servers.probe.transcript import Listener
from assets.servers.remote.client import Client, Transport, Watch
from assets.servers.remote.outcome import RemoteFailure, classify_exception, classify_refusal
from assets.servers.remote.transport import Wire
from warehouse.sanitize.secret_names import is_secret_name


class Attempt:
    """Opened once. timeout: the transport did not open in time; crash: how it broke."""

    def __init__(
        self,
        kind: Transport,
        url: str,
        wire: Wire,
        listener: Listener,
        *,
        headers: Mapping[str, str],
        auth: httpx2.Auth | None,
    ) -> None:
        self._kind: Transport = kind
        self.listener = listener
        self._scope = anyio.CancelScope()
        self.watch = Watch(url, self._scope)
        self.client = Client(wire, kind, listener, self.watch, headers=headers, auth=auth)
        self.timeout: Failure | None = None
        self.crash: Failure | None = None

    @asynccontextmanager
    async def open(self, start_s: float) -> AsyncIterator[tuple[Any, Any]]:
        """The session's two streams. Raises Ended where the transport or the watch ended it, by
        what is known without the session."""
        finished = False
        with self._scope:
            try:
                async with _open_transport(
                    self._kind, self.client, self.watch.url, start_s
                ) as both:
                    yield both
                    finished = True
            except Ended as ended:
                self.timeout = ended.failure
            except Exception as error:  # groups of whatever SDK, httpx2 and OAuth raise
                self.crash = classify_exception(error, self.watch.url)
        if not finished:
            raise Ended(self.rank_evidence(None, answered=False))

    def rank_evidence(self, found: Failure | None, *, answered: bool) -> Failure:
        """What a conversation that was cut short amounts to: the strongest evidence first. found:
        how it ended for the session; answered: whether the handshake was."""
        transcript, watch, found = self.listener.transcript, self.watch, found or self.timeout
        if transcript.oversize:
            return Failure("oversize", transcript.oversize)
        if transcript.broken:
            return Failure("protocol_error", transcript.broken)
        if watch.failure:
            return watch.failure
        if found and found.kind != "protocol_error":
            return classify_evidence(Evidence(transcript, found, answered=answered)) or found
        if watch.refusal:
            return classify_refusal(watch.refusal, watch.url)
        if found is None or "code" not in found.detail:
            ended = Failure("remote_down", "it ended the conversation")
            return watch.trouble or self.crash or found or ended
        if "code -32000" in found.detail and (watch.trouble or transcript.noise):
            noise = (
                f"{transcript.noise} answers that are no JSON-RPC, first {transcript.first_noise}"
            )
            return watch.trouble or Failure("protocol_error", noise)
        if "code -32700" in found.detail:
            return found  # the SDK's own words on what it could not read
        failure = classify_evidence(Evidence(transcript, found, answered=answered)) or found
        if failure.kind == "needs_secret":
            return RemoteFailure("remote_auth", failure.detail)
        return failure if failure.kind in ("no_tools", "needs_argument") else found


@asynccontextmanager
async def _open_transport(
    kind: Transport, client: Client, url: str, start_s: float
) -> AsyncIterator[tuple[Any, Any]]:
    """The SDK's transport over our client. Entering that of SSE waits for the server's first event,
    so it has the time limit of a start. Raises Ended."""
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
