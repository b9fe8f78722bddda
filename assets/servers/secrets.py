"""Real secrets for servers, from where their user keeps them."""

import hmac
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from warehouse.sanitize.scrubber import SHORTEST, Scrubber
from warehouse.storage.digest import canonical_json

_MAX_BYTES = 64 * 1024
_SOURCE = re.compile(r"(?:(?P<scheme>[A-Za-z][\w-]*) )?(?P<kind>env|file):(?P<place>.+)", re.DOTALL)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]+")
# The transport writes these itself.
_TAKEN = frozenset(
    (
        *("host", "connection", "content-length", "content-type", "transfer-encoding", "accept"),
        *("accept-encoding", "mcp-session-id", "mcp-protocol-version", "last-event-id"),
    )
)


class SecretError(RuntimeError):
    """A secret that cannot be had: which server's, from where, and the fix. Never its value."""

    def __init__(self, server_id: str, source: str, detail: str, fix: str) -> None:
        self.server_id, self.source, self.found, self.fix = server_id, source, detail, fix
        super().__init__(f"secrets of {server_id}, {source}: {detail}; {fix}")


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ServerSecrets:
    """Where one server's secrets are."""

    env: Mapping[str, str] = Field(
        default_factory=dict, description="variable -> env:NAME or file:PATH"
    )
    headers: Mapping[str, str] = Field(
        default_factory=dict, description="header -> `Bearer env:NAME`"
    )


@dataclass(frozen=True)
class LaunchSecrets:
    """What one launch is given. The values are in no repr."""

    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    salt: bytes = field(default=b"", repr=False)

    @property
    def names(self) -> set[str]:
        """The names of what is given, as placeholders are named."""
        return {f"env:{name}" for name in self.env} | {f"header:{name}" for name in self.headers}

    def fingerprint(self) -> str | None:
        """Another one for another secret, and nothing can be read back from it; None where nothing
        is given."""
        if not self.names:
            return None
        facts = canonical_json({"env": dict(self.env), "headers": dict(self.headers)})
        return hmac.new(self.salt, facts, sha256).hexdigest()

    def scrub(self, value: Any) -> Any:
        """A JSON value without the secrets."""
        return Scrubber({**self.env, **self.headers})(value)


class SecretSources:
    """The secrets of all servers, read at each launch: a rotated one needs no restart.

    salt: keys the fingerprints; at least 16 bytes, kept beside the ledger. One that has to be made
    or read is asked for with the first secret that is given.
    """

    def __init__(
        self, by_server: Mapping[str, ServerSecrets], salt: bytes | Callable[[], bytes]
    ) -> None:
        if isinstance(salt, bytes) and len(salt) < 16:
            raise ValueError(f"a salt of {len(salt)} bytes: expected at least 16")
        self._by_server, self._salt = dict(by_server), salt

    def of(self, server_id: str) -> ServerSecrets | None:
        """The sources of one server; None where its user configured none."""
        return self._by_server.get(server_id)

    def given(self, server_id: str) -> LaunchSecrets:
        """The values for one server. Raises SecretError."""
        sources = self._by_server.get(server_id)
        if sources is None:
            return LaunchSecrets()
        env = {name: read_source(server_id, text) for name, text in sources.env.items()}
        headers = {name: read_source(server_id, text) for name, text in sources.headers.items()}
        for name, value in env.items():
            if not _ENV_NAME.fullmatch(name) or "\0" in value:
                detail, fix = "no name or value of a variable", "rename or fix it"
                raise SecretError(server_id, f"variable {name!r}", detail, fix)
        for name, value in headers.items():
            _check_header(server_id, name, value)
        return LaunchSecrets(
            env, headers, self._salt if isinstance(self._salt, bytes) else self._salt()
        )


def read_source(server_id: str, source: str) -> str:
    """The value of `env:NAME` or `file:PATH`, with the scheme before it. Raises SecretError."""
    match = _SOURCE.fullmatch(source)
    if not match:
        # It may be the secret itself, put where its source belongs: it is not shown.
        fix = "write env:NAME or file:PATH"
        raise SecretError(server_id, "a source", "it has another form", fix)
    read = _from_environment if match["kind"] == "env" else _from_file
    label = f"{match['kind']}:{match['place']}"
    value = read(server_id, match["place"], label)
    if len(value) < SHORTEST:
        fix = "such a value stands in texts by chance and cannot be kept out of them; use a longer"
        fix += " secret, or set what is no secret as a plain variable"
        raise SecretError(server_id, label, f"shorter than {SHORTEST} characters", fix)
    return f"{match['scheme']} {value}" if match["scheme"] else value


def _from_environment(server_id: str, name: str, label: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise SecretError(server_id, label, "the variable is not set", f"set {name}")
    return value


def _from_file(server_id: str, place: str, label: str) -> str:
    path = Path(place).expanduser()
    try:
        with path.open("rb") as file:  # judged by what was opened, not by its name
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise SecretError(server_id, label, "no regular file", "name a file")
            if facts.st_mode & 0o077:
                mode = f"others may read it (mode {stat.S_IMODE(facts.st_mode):o})"
                raise SecretError(server_id, label, mode, f"chmod 600 {path}")
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise SecretError(server_id, label, reason, "check the path and its owner") from None
    if len(data) > _MAX_BYTES:
        raise SecretError(server_id, label, f"more than {_MAX_BYTES} bytes", "name the right file")
    try:
        value = data.decode("utf-8")
    except UnicodeDecodeError:  # its message quotes the bytes
        raise SecretError(server_id, label, "no UTF-8 text", "name the right file") from None
    value = value.removesuffix("\n").removesuffix("\r")
    if not value:
        raise SecretError(server_id, label, "the file is empty", "put the secret in it")
    return value


def _check_header(server_id: str, name: str, value: str) -> None:
    if not _HEADER_NAME.fullmatch(name) or name.lower() in _TAKEN:
        detail = "the transport sets it" if name.lower() in _TAKEN else "no name of a header"
        raise SecretError(server_id, f"header {name!r}", detail, "use another header")
    if not _HEADER_VALUE.fullmatch(value):
        detail = "its value has characters that no header may have (a line end, perhaps)"
        raise SecretError(server_id, f"header {name!r}", detail, "fix the secret")
