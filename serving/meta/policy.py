"""Policy: whom the meta-server answers, how much, and what it runs without asking."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import Field

from assets.outcomes.policy import ReliabilityPolicy
from warehouse.errors import UnusableInput

Consent = Literal["ask", "never", "always"]
Remember = Literal["digest", "text", "vector"]
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[\w.@+-]{1,60}")
_CONSENTS = " or ".join(map(repr, get_args(Consent)))


class TokenError(UnusableInput):
    """A token or setting that cannot be used, with what was found and expected."""


@dataclass(frozen=True)
class ClientToken:
    """`sha256` is the secret's digest. `allow`: globs over tool ids, None: all, (): none. `calls`:
    whether to call at all; `concurrent`: at a time, consent waits included. `consent` overrides the
    policy's. Limits may be None. `remember`: queries as digest, or with results as text or vector.
    `traces`: whole calls, redacted."""

    name: str
    sha256: str = ""
    allow: tuple[str, ...] | None = None
    calls: bool = True
    requests_per_minute: int | None = 600
    concurrent: int | None = 16
    consent: Consent | None = None
    remember: Remember = "digest"
    traces: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise TokenError(
                f"token name {self.name[:80]!r}: expected 1 to 60 of letters, digits, . _ @ + -"
            )
        if self.sha256 and not _SHA256.fullmatch(self.sha256):
            raise TokenError(
                f"token {self.name!r}: sha256 is not 64 lower-case hex digits; make it with"
                " `printf %s TOKEN | sha256sum`"
            )
        for limit in ("requests_per_minute", "concurrent"):
            value = getattr(self, limit)
            if value is not None and value < 1:
                raise TokenError(f"token {self.name!r}: {limit} is {value}, expected at least 1")
        if self.consent is not None and self.consent not in get_args(Consent):
            raise TokenError(
                f"token {self.name!r}: consent is {self.consent!r}, expected {_CONSENTS}"
            )
        if self.remember not in get_args(Remember):
            expected = " or ".join(map(repr, get_args(Remember)))
            raise TokenError(
                f"token {self.name!r}: remember is {self.remember!r}, expected {expected}"
            )


LOCAL = ClientToken("local", requests_per_minute=None)  # who started the server over stdio


@dataclass(frozen=True)
class MetaSettings:
    """consent: for tools that are not read-only if the client cannot ask: `ask` refuses and says
    how to allow, `never`, `always`. trust_read_only: whether a server's word lets a tool run
    unasked (never a flagged one). results: text like orders is handed on with a `mark`, or
    `block`ed with what is too long. pinned: tools listed beside ours, by id or glob."""

    consent: Consent = "ask"
    trust_read_only: bool = True
    results: Literal["mark", "block"] = "mark"
    timeout_s: Annotated[float, Field(gt=0, description="for a tool's answer")] = 120.0
    pinned: Annotated[
        tuple[str, ...], Field(description="tools listed beside ours: ids, or globs over ids")
    ] = ()


@dataclass(frozen=True)
class LogSettings:
    """The log of calls. remember, traces: as in Token, where no tokens file says it. learn: whether
    a served reranker learns at once from logged words. days: to keep lines, 0: until deleted."""

    remember: Remember = "digest"
    traces: bool = False
    learn: bool = True
    days: Annotated[int, Field(ge=0)] = 0


@dataclass(frozen=True)
class MetaPolicy(MetaSettings):
    """How the meta-server behaves. local: whom stdio, and loopback HTTP without tokens, serve.
    learning: what outcomes count that the served reranker learns from at once; None: from none."""

    local: ClientToken = LOCAL
    learning: ReliabilityPolicy | None = None
    grace_s: float = 120.0  # beyond it, in which a server that is not running yet is started
    consent_timeout_s: float = 300.0
    max_result: int = (
        200_000  # characters of a result's text; ten times that of its pictures and sounds
    )
    poll_s: float = 2.0  # how often the pointer to the served index is looked at

    def __post_init__(self) -> None:
        if self.consent not in get_args(Consent):
            raise TokenError(f"consent is {self.consent!r}, expected {_CONSENTS}")
        if self.results not in ("mark", "block"):
            raise TokenError(f"results is {self.results!r}, expected 'mark' or 'block'")

    def consent_of(self, token: ClientToken) -> Consent:
        return token.consent or self.consent


@dataclass(frozen=True)
class AddressSettings:
    """What a user can set of where HTTP is served. hosts, origins: values of the `Host` and
    `Origin` headers that are accepted besides loopback's (`name` or `name:*`)."""

    host: Annotated[str, Field(description="beyond this machine only with tokens")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8930
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()


@dataclass(frozen=True)
class HttpSettings(AddressSettings):
    """tokens: () serves loopback alone. header_s, body_s: for the whole of it; write_s: until some
    of an answer is read. token_sessions, open_requests (streams too): of one token."""

    path: str = "/mcp"
    tokens: tuple[ClientToken, ...] = ()
    max_body: int = 4_000_000  # bytes of one request
    max_sessions: int = 1_000
    idle_s: float = 1_800.0
    max_connections: int = 512  # half of the files that a process may open by default
    header_s: float = 10.0
    body_s: float = 30.0
    write_s: float = 20.0
    token_sessions: int = 32
    open_requests: int = 64

    def __post_init__(self) -> None:
        if not self.tokens and not is_loopback(self.host):
            raise TokenError(
                f"HTTP on {self.host!r} without tokens would let anybody call tools here; give a"
                " tokens file, or bind 127.0.0.1"
            )
        names = [token.name for token in self.tokens]
        if len(set(names)) < len(names):
            raise TokenError("two tokens have one name; expected a name each")
        if any(not token.sha256 for token in self.tokens):
            raise TokenError("a token over HTTP needs the sha256 of its secret")


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
