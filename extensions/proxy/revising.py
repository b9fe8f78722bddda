"""The model that rewrites calls which the ladder leaves: the upstream's own, another endpoint's,
or one that runs here.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from extensions.proxy.upstream import Headers
from serving.repair.drafts import parse_arguments, read_drafts
from serving.repair.tools import ProposedCall, ReviseCall, RevisionRequest, make_revision_messages
from warehouse.network.http import open_client

_MOST_BYTES = 8_000_000  # of an answer
_MOST_TOKENS = 4096
# Of the client's own request, which is another than this: its body, the answer that it takes, and
# what makes two requests one.
_OF_THE_REQUEST = (b"content-", b"accept", b"if-", b"idempotency-", b"x-idempotency-")
_KEYS = {b"authorization", b"x-api-key", b"api-key"}


class OpenRevise(Protocol):
    """Who rewrites drafts for one request; headers: as they are sent to the upstream, so that its
    model is asked with the client's own key. Called in threads."""

    def __call__(self, headers: Headers) -> ReviseCall: ...


def guard_model(revise: ReviseCall) -> OpenRevise:
    """One model that runs here for all requests: it revises one draft at a time."""
    turn = threading.Lock()

    def revise_in_turn(request: RevisionRequest) -> ProposedCall | None:
        with turn:
            return revise(request)

    return lambda headers: revise_in_turn


@dataclass(frozen=True)
class CallReviser:
    """label: as clients are told it. timeout_s: of one call; a later answer is not used."""

    label: str
    open: OpenRevise
    timeout_s: float = 20.0

    def begin_request(
        self, headers: Iterable[tuple[bytes, bytes]], count: Callable[[str], None]
    ) -> "RequestReviser":
        """For the calls of one request. count: notes the outcome of a call: repaired or left."""
        return RequestReviser(self.label, self.open([*headers]), self.timeout_s, count)


@dataclass(frozen=True)
class RequestReviser:
    """A reviser for one request."""

    label: str
    revise: ReviseCall
    timeout_s: float
    count: Callable[[str], None]


class ReviserFailed(RuntimeError):
    """The endpoint did not answer. Clients read why: it holds neither its address nor the key, as
    an error of HTTP may."""


class UpstreamReviser:
    """Asks a model for a rewritten call. base: address that stands for `/v1`. upstream: that of the
    upstream; one of another origin is sent nothing of the client's headers. key: in the place of
    the client's, "" sends that to the upstream. timeout_s: without a byte."""

    def __init__(
        self, base: str, model: str, key: str = "", timeout_s: float = 20.0, *, upstream: str
    ) -> None:
        self._url, self._model, self._key = f"{base}/chat/completions", model, key
        self._passes = _find_origin(base) == _find_origin(upstream)
        host = urlsplit(base).hostname or ""
        self._client = open_client(
            trusted=[host], allow_loopback=True, most_bytes=_MOST_BYTES, timeout=timeout_s
        )

    def __call__(self, headers: Headers) -> ReviseCall:
        sent = [header for header in headers if self._is_passed(header[0].lower())]
        if self._key:
            sent.append((b"authorization", f"Bearer {self._key}".encode()))

        def revise(request: RevisionRequest) -> ProposedCall | None:
            """Raises ReviserFailed, or what an answer in another form does: the draft stands."""
            body = {"model": self._model, "temperature": 0, "max_tokens": _MOST_TOKENS}
            body |= {"messages": make_revision_messages(request)}
            body |= {"tools": [_write_tool(candidate.contract) for candidate in request.candidates]}
            try:
                answer = self._client.post(self._url, json=body, headers=sent).raise_for_status()
            except Exception as error:  # of HTTP, of the egress guard
                raise ReviserFailed(type(error).__name__) from None
            return read_proposal(answer.json()["choices"][0]["message"])

        return revise

    def _is_passed(self, name: bytes) -> bool:
        """Whether a header that the client sent for the upstream is sent here too."""
        if not self._passes or (self._key and name in _KEYS):
            return False
        return not name.startswith(_OF_THE_REQUEST)


def _find_origin(address: str) -> tuple[str, str | None, int | None]:
    url_parts = urlsplit(address)
    return (
        url_parts.scheme,
        url_parts.hostname,
        url_parts.port or {"http": 80, "https": 443}.get(url_parts.scheme),
    )


def read_proposal(message: Mapping[str, Any]) -> ProposedCall | None:
    """The first call in a chat message, else its question; None for neither."""
    drafts = read_drafts(message.get("tool_calls") or [])
    if drafts:
        values = [drafts[0].arguments]
        if isinstance(values[0], str):
            values = list(parse_arguments(values[0]).values)
        return ProposedCall(drafts[0].name, values[0]) if len(values) == 1 else None
    text = message.get("content")
    asked = isinstance(text, str) and text.strip().endswith("?")
    return ProposedCall("", None, " ".join(str(text).split())) if asked else None


def _write_tool(contract: Mapping[str, Any]) -> dict[str, Any]:
    named = {"name": contract["name"], "description": contract.get("description") or ""}
    return {"type": "function", "function": {**named, "parameters": contract["inputSchema"]}}
