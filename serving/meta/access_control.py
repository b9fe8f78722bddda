"""Who may ask the meta-server: bearer tokens, and the limits of each.

    [[tokens]]                        # TOML; JSON holds {"tokens": [{...}]}
    name = "alice"
    sha256 = "…"                      # printf %s "$TOKEN" | sha256sum
    allow = ["npm:files::*"]          # globs over tool ids; left out: all
    calls = true
    requests_per_minute = 600
    concurrent = 16
    consent = "ask"
    remember = "digest"               # or "text" or "vector": what the log keeps of queries
    traces = false                    # true: calls are kept whole, redacted

A file holds digests, never secrets, and no message here repeats what was sent.
"""

import hmac
import json
import secrets
import time
import tomllib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from serving.meta.policy import ClientToken, TokenError

_SHORTEST = 20  # characters of a secret; `make_token` makes 43
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "name": str,
    "sha256": str,
    "allow": list,
    "calls": bool,
    "requests_per_minute": int,
    "concurrent": int,
    "consent": str,
    "remember": str,
    "traces": bool,
}
_SHAPE = 'expected TOML with [[tokens]], or JSON like {"tokens": [{"name": …, "sha256": …}]}'
_MINUTE = 60.0


def make_token() -> tuple[str, str]:
    """(secret, sha256): the secret goes to its owner, the digest into the file."""
    secret = secrets.token_urlsafe(32)
    return secret, _digest_secret(secret)


def read_tokens(path: Path) -> tuple[ClientToken, ...]:
    """The tokens of a file. Raises TokenError naming the file and the entry."""
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else type(error).__name__
        raise TokenError(f"tokens file {path}: {reason}; {_SHAPE}") from None
    rows = data.get("tokens") if isinstance(data, dict) else None
    if not isinstance(rows, list) or not rows:
        raise TokenError(f"tokens file {path}: found no tokens; {_SHAPE}")
    return tuple(
        _parse_token(row, f"tokens file {path}, entry {at}") for at, row in enumerate(rows, 1)
    )


def build_token(secret: str, name: str = "env", **facts: Any) -> ClientToken:
    """The token of a secret from the environment. Raises TokenError when it is easily guessed."""
    if len(secret) < _SHORTEST:
        raise TokenError(
            f"token {name!r}: the secret has {len(secret)} characters, expected at least"
            f" {_SHORTEST}; make one with `openssl rand -base64 32`"
        )
    return ClientToken(name, _digest_secret(secret), **facts)


def find_owner(sent: str, tokens: Sequence[ClientToken]) -> ClientToken | None:
    """Whose secret was sent, None when nobody's. Every token is compared, whichever fits."""
    digest = _digest_secret(sent)
    owner = None
    for token in tokens:
        if hmac.compare_digest(digest, token.sha256):
            owner = token
    return owner


def find_token(name: str, tokens: Iterable[ClientToken]) -> ClientToken | None:
    return next((token for token in tokens if token.name == name), None)


def _digest_secret(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _parse_token(row: Any, where: str) -> ClientToken:
    if not isinstance(row, dict):
        raise TokenError(f"{where}: found {type(row).__name__}, expected a table")
    for key, value in row.items():
        if key not in _TYPES:
            # A secret pasted under another key must not be printed: only its key is.
            raise TokenError(f"{where}: unknown key {key[:40]!r}, expected one of {[*_TYPES]}")
        if not isinstance(value, _TYPES[key]) or (_TYPES[key] is int and isinstance(value, bool)):
            raise TokenError(f"{where}: {key} is a {type(value).__name__}, expected {_TYPES[key]}")
    if "name" not in row or "sha256" not in row:
        raise TokenError(f"{where}: expected name and sha256")
    allow = row.get("allow")
    if allow is not None and not all(isinstance(glob, str) for glob in allow):
        raise TokenError(f"{where}: allow holds something else than texts")
    try:
        return ClientToken(**{**row, "allow": None if allow is None else tuple(allow)})
    except TokenError as error:
        raise TokenError(f"{where}: {error}") from None


class TooMany(Exception):
    """A limit is reached. `retry_s`: when it is worth trying again."""

    def __init__(self, message: str, retry_s: float) -> None:
        super().__init__(message)
        self.retry_s = retry_s


class RequestLimits:
    """What every token has used. For one event loop: nothing here waits or locks."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sent: dict[str, deque[float]] = {}
        self._running: dict[str, int] = {}

    def count(self, token: ClientToken) -> None:
        """Counts a request; refused ones do not count. Raises TooMany beyond requests a minute."""
        if token.requests_per_minute is None:
            return
        now = self._clock()
        sent = self._sent.setdefault(token.name, deque())
        while sent and sent[0] <= now - _MINUTE:
            sent.popleft()
        if len(sent) >= token.requests_per_minute:
            wait = sent[0] + _MINUTE - now
            raise TooMany(
                f"token {token.name!r} sent {len(sent)} requests within a minute, allowed are"
                f" {token.requests_per_minute}; come again in {wait:.0f} s",
                wait,
            )
        sent.append(now)

    @contextmanager
    def running(self, token: ClientToken) -> Iterator[None]:
        """Holds one of the token's places for calls. Raises TooMany when all are taken."""
        running = self._running.get(token.name, 0)
        if token.concurrent is not None and running >= token.concurrent:
            raise TooMany(
                f"token {token.name!r} has {running} calls running, allowed are"
                f" {token.concurrent}; come again when one has ended",
                1.0,
            )
        self._running[token.name] = running + 1
        try:
            yield
        finally:
            self._running[token.name] -= 1
