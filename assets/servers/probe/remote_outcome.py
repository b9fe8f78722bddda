"""What the answers of a remote server amount to, where it is not the conversation that says so.

| seen | kind |
| --- | --- |
| 401, 402, 403; OAuth that needs a person; 4xx whose words name a credential | remote_auth |
| 404, 410 before there is a session | not_found |
| 404 within a session (retried once), 407, 408, 425, 429, 5xx | remote_down |
| no address, refused, time-out, TLS, a connection that is lost | remote_down |
| other 4xx, 3xx that cannot be followed, a content type that is not MCP, no HTTP | protocol_error |
| a private address, https to http, another scheme | policy_denied |
| an address that is no http(s) URL | no_recipe |
"""

import json
import logging
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx2

from assets.servers.probe.failure_kinds import ProbeFailure, classify_text
from assets.servers.probe.transcript import make_printable
from warehouse.network.egress import PrivateAddress
from warehouse.network.http import parse_retry_after

_BUSY = (407, 408, 425, 429)
_GONE = (404, 410)
_CLOSED = (401, 402, 403)

PUBLIC_ONLY = (
    "remote servers are probed at public addresses only; one on this machine needs allow_loopback,"
    " one in a private network is probed from its own command line or not at all"
)


@dataclass(frozen=True)
class RemoteFailure(ProbeFailure):
    """A failure of a server elsewhere. retry_after: seconds, as the server told."""

    retry_after: float | None = None


@dataclass(frozen=True)
class RefusedAnswer:
    """An answer that is no MCP: its method, status and headers, and how its body begins."""

    method: str
    response: httpx2.Response
    in_session: bool = False
    excerpt: str = ""

    @property
    def status(self) -> int:
        return self.response.status_code

    @property
    def error(self) -> dict[str, Any] | None:
        """The error of the protocol that its body holds."""
        try:
            message = json.loads(self.excerpt)
        except (ValueError, RecursionError):
            return None
        error = message.get("error") if isinstance(message, dict) and "jsonrpc" in message else None
        return error if isinstance(error, dict) else None

    @property
    def may_be_sse(self) -> bool:
        """Whether an older server may stand behind it: the specification tries SSE on 4xx. Not
        where the answer is about who asks or how often."""
        return 400 <= self.status < 500 and self.status not in (*_CLOSED, *_BUSY)

    @property
    def lost_session(self) -> bool:
        return self.status == 404 and self.in_session


def classify_refusal(refusal: RefusedAnswer, url: str) -> RemoteFailure:
    """The failure that an answer's status or content type amounts to."""
    from mcp.client.auth.utils import extract_field_from_www_auth

    status, detail = refusal.status, f"answered {refusal.status} to {refusal.method}"
    headers, excerpt = refusal.response.headers, refusal.excerpt
    says = show_text(excerpt) if excerpt.strip() else ""
    if status in _CLOSED:
        if metadata := extract_field_from_www_auth(refusal.response, "resource_metadata"):
            detail += f", offers OAuth (see {show_text(metadata, 200)})"
            return RemoteFailure("remote_auth", detail, write_login_advice(url))
        scheme = headers.get("www-authenticate", "").partition(" ")[0]
        detail += f", names the scheme {show_text(scheme, 40)!r}" if scheme else ", names no scheme"
        detail += f", says {says!r}" if excerpt.strip() else ""
        advice = "it offers no OAuth by itself; give it its key as a header (`secrets`), or "
        return RemoteFailure("remote_auth", detail, advice + write_login_advice(url))
    if refusal.lost_session:
        return RemoteFailure("remote_down", f"{detail}: it ends its sessions at once")
    if status in _GONE:
        return RemoteFailure("not_found", detail, f"nothing is at {show_url(url)}; check the URL")
    if status in _BUSY or status >= 500:
        wait_s = parse_retry_after(headers.get("retry-after", ""))
        retry = f", retry after {wait_s:.0f} s" if wait_s is not None else ""
        return RemoteFailure("remote_down", detail + retry, retry_after=wait_s)
    if status < 300:
        content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        what = show_text(content_type, 60) or "no content type"
        what = "a web page" if content_type == "text/html" else what
        return RemoteFailure("protocol_error", f"{detail} with {what} instead of MCP", _NO_MCP)
    if status < 400:
        return RemoteFailure("protocol_error", f"{detail} without an address to go to", _NO_MCP)
    words = classify_text(excerpt)
    if words and words.kind in ("needs_secret", "needs_argument"):
        kind = "remote_auth" if words.kind == "needs_secret" else words.kind
        return RemoteFailure(kind, f"{detail}, {words.detail}")
    quoted = f" and {says!r}" if excerpt.strip() else ""
    return RemoteFailure("protocol_error", detail + quoted, _NO_MCP)


_NO_MCP = "no MCP at this URL; check it against the server's documentation"


def write_login_advice(url: str) -> str:
    """What to do where only a person's consent helps."""
    return f"run `toolmill login {shlex.quote(show_url(url))}`"


def classify_exception(error: BaseException, url: str) -> ProbeFailure:
    """The failure behind an exception of connector, client, OAuth or SDK; groups are opened."""
    for cause_link in _iter_chain(error):
        if isinstance(failure := getattr(cause_link, "failure", None), ProbeFailure):
            return failure
        if isinstance(cause_link, PrivateAddress):
            return RemoteFailure("policy_denied", show_text(str(cause_link), 200), PUBLIC_ONLY)
    cause = next(_iter_chain(error))
    if type(cause).__module__.startswith("mcp.client.auth"):
        # What follows the colon is the body of the server's answer, which may hold what was sent.
        detail = f"OAuth: {show_text(str(cause).partition(': ')[0])}"
        return RemoteFailure("remote_auth", detail, write_login_advice(url))
    text = show_text(str(cause)) or type(cause).__name__
    if isinstance(cause, httpx2.ConnectTimeout):
        return RemoteFailure("remote_down", f"no connection in time, {text}")
    if isinstance(cause, httpx2.RemoteProtocolError) and "disconnected" not in text:
        if "closed" not in text:
            return RemoteFailure("protocol_error", f"does not speak HTTP: {text}", _NO_MCP)
    elif isinstance(cause, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
        return RemoteFailure("no_recipe", f"not an http(s) address: {text}")
    elif isinstance(cause, httpx2.DecodingError | httpx2.LocalProtocolError | httpx2.SSEError):
        return RemoteFailure("protocol_error", text, _NO_MCP)
    if isinstance(cause, httpx2.TransportError):
        return RemoteFailure("remote_down", f"{type(cause).__name__}: {text}")
    return ProbeFailure("protocol_error", text)


def _iter_chain(error: BaseException) -> Iterator[BaseException]:
    """The first leaf of a group, then what caused it."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    current: BaseException | None = error
    for _ in range(20):
        if current is None:
            return
        yield current
        current = current.__cause__ or current.__context__


def show_text(text: str, limit: int = 120) -> str:
    """Third-party text on one line, without control characters: it ends up in logs and tables."""
    clean = make_printable(text.encode("utf-8", "replace")[: 8 * limit])
    return " ".join(clean.split())[:limit]


def show_url(url: str) -> str:
    """A URL without credentials, query and fragment: listings hold keys in them."""
    try:
        address = urlsplit(url)
        host = address.hostname or ""
        host = f"[{host}]" if ":" in host else host
        netloc = f"{host}:{address.port}" if address.port else host
        return show_text(urlunsplit((address.scheme, netloc, address.path, "", "")), 300)
    except ValueError:
        return "this address"


_TALKING: ContextVar[bool] = ContextVar("talking", default=False)
_LOGGERS = (
    *("client", "httpcore2.connection", "httpcore2.http11", "httpcore2.proxy", "httpx2"),
    *("mcp.client.auth.oauth2", "mcp.client.sse", "mcp.client.streamable_http"),
    "mcp.shared.jsonrpc_dispatcher",
)


def _allow_record(_: logging.LogRecord) -> bool:
    return not _TALKING.get()


@contextmanager
def silence_logs() -> Iterator[None]:
    """The SDK logs third-party answers with tracebacks, and httpx2 whole URLs: neither may reach a
    log. Only what this task and those it starts cause is silent; others go on."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_allow_record)  # once: the same filter is not doubled
    token = _TALKING.set(True)
    try:
        yield
    finally:
        _TALKING.reset(token)
