"""OAuth logins at remote servers: the private token store, unattended use, and `toolmill login`."""

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import httpx2

from assets.servers.probe.probe import ProbeResult
from assets.servers.probe.remote_outcome import show_url, write_login_advice
from assets.servers.probe.remote_probe import probe_remote
from assets.servers.probe.remote_transport import RemotePolicy
from assets.servers.probe.session import ProbePolicy
from assets.servers.secrets import SecretError, read_source
from warehouse.network.egress import EgressConnector, is_loopback
from warehouse.storage.files import write_atomically

_MAX_BYTES = 1024 * 1024


class TokenStore:
    """The tokens of one server under `<state>/oauth/`; the SDK's TokenStorage."""

    def __init__(self, state: Path, server_id: str) -> None:
        self.server_id = server_id
        self.path = state / "oauth" / f"{sha256(server_id.encode()).hexdigest()}.json"

    def load(self) -> dict[str, Any]:
        """What is stored; empty where nothing is. Raises SecretError."""
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_mode & 0o077:
                    raise self._make_error("others may read it", f"chmod 600 {self.path}")
                login = json.loads(file.read(_MAX_BYTES))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):  # what json says quotes the text
            raise self._make_error("it cannot be read", self._advise_login()) from None
        if not isinstance(login, dict) or login.get("server_id") != self.server_id:
            raise self._make_error("it holds no login of this server", self._advise_login())
        return login

    def save(self, **changes: Any) -> None:
        """Changes members; the file is there whole or as it was, and never readable to others."""
        facts = {**self.load(), **changes, "server_id": self.server_id}
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(self.path, json.dumps(facts).encode(), mode=0o600)

    def forget(self) -> bool:
        """Whether there was a login to forget."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True

    def try_lock(self) -> IO[bytes] | None:
        """An open file that holds the lock on this login until it is closed; None where another
        process or thread holds it."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self.path.with_suffix(".lock").open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file

    async def get_tokens(self) -> Any:
        return self.read_tokens(self.load())

    def read_tokens(self, facts: dict[str, Any]) -> Any:
        """The tokens of what `load` gave; None where it holds none. Raises SecretError."""
        return self._read_model(facts, "tokens", "OAuthToken")

    async def set_tokens(self, tokens: Any) -> None:
        ends = time.time() + tokens.expires_in if tokens.expires_in is not None else None
        self.save(tokens=tokens.model_dump(mode="json", exclude_none=True), expires_at=ends)

    async def get_client_info(self) -> Any:
        return self._read_model(self.load(), "client", "OAuthClientInformationFull")

    async def set_client_info(self, client_info: Any) -> None:
        self.save(client=client_info.model_dump(mode="json", exclude_none=True))

    def _read_model(self, facts: dict[str, Any], member: str, name: str) -> Any:
        from mcp.shared import auth

        value = facts.get(member)
        try:
            return getattr(auth, name).model_validate(value) if value else None
        except ValueError:  # its message quotes the tokens
            raise self._make_error(f"its {member} are malformed", self._advise_login()) from None

    def _make_error(self, detail: str, fix: str) -> SecretError:
        return SecretError(self.server_id, str(self.path), detail, fix)

    def _advise_login(self) -> str:
        return write_login_advice(self.server_id.removeprefix("remote:"))


class UnsavedStore(TokenStore):
    """A login that is under way: the SDK keeps a new client before anybody consented, which would
    part the old login's tokens from the client they belong to."""

    def __init__(self, state: Path, server_id: str) -> None:
        super().__init__(state, server_id)
        self._facts: dict[str, Any] = {}

    def load(self) -> dict[str, Any]:
        return self._facts

    def save(self, **changes: Any) -> None:
        self._facts |= changes


@dataclass(frozen=True)
class OAuthChoice:
    """A client that was registered by hand. client_secret: where it is, `env:NAME` or `file:PATH`;
    issuer: the only authorization server that it may be shown to."""

    client_id: str | None = None
    client_secret: str | None = None
    issuer: str | None = None


@dataclass(frozen=True)
class OAuthAccounts:
    """Accounts at remote servers. state: where `toolmill login` keeps tokens."""

    state: Path

    def auth(self, server_id: str, url: str) -> httpx2.Auth | None:
        """What signs a probe's requests: the login that is kept, None where there is none. Raises
        SecretError."""
        store = TokenStore(self.state, server_id)
        if not store.load().get("tokens"):
            return None
        from mcp.shared.auth import OAuthClientMetadata

        from assets.servers.oauth_flow import UnattendedProvider

        return UnattendedProvider(_drop_query(url), OAuthClientMetadata(redirect_uris=None), store)

    def known(self, server_id: str) -> bool:
        """Whether a login is kept: after one, its server is due in the next run."""
        return TokenStore(self.state, server_id).path.exists()


def log_in(
    url: str,
    server_id: str,
    state: Path,
    *,
    show: Callable[[str], None],
    choice: OAuthChoice | None = None,
    port: int = 0,
    timeout_s: float = 300.0,
    connector: EgressConnector | None = None,
) -> dict[str, Any]:
    """Logs a person in and keeps the tokens. show: is given the address to open in a browser.

    Returns status (`ok` or a kind of the taxonomy), hint, server_id, tools (how many are listed),
    scope, expires_at (epoch seconds) and whether the login can be renewed without a person. Raises
    SecretError, and OSError where the port is taken. The old login stays until there is a new one.
    """
    from assets.servers.oauth_flow import LoginCallback, make_login

    choice = choice or OAuthChoice()
    secret = read_source(server_id, choice.client_secret) if choice.client_secret else None
    store = UnsavedStore(state, server_id)
    with socket.create_server(("127.0.0.1", port)) as listening:
        callback = LoginCallback(listening, show, timeout_s)
        provider = make_login(
            _drop_query(url),
            store,
            redirect_uri=callback.address,
            show=callback.show,
            wait=callback.wait,
            client_id=choice.client_id,
            client_secret=secret,
            issuer=choice.issuer,
        )
        patience_s = timeout_s + 60
        here = is_loopback(httpx2.URL(url).host)  # whoever types such an address means it
        result = probe_remote(
            url,
            transport="auto",
            limits=ProbePolicy(start_s=patience_s, idle_s=patience_s, extras_s=0),
            policy=RemotePolicy(allow_loopback=here, wall_s=2 * patience_s),
            auth=provider,
            connector=connector,
        )
    facts = store.load()
    if facts.get("tokens"):
        store = TokenStore(state, server_id)
        try:
            store.load()
        except SecretError:
            store.forget()  # a new login fixes what cannot be read
        store.save(**facts)
    return {"server_id": server_id, "url": show_url(url), **_describe_login(result, facts)}


def _describe_login(result: ProbeResult, facts: dict[str, Any]) -> dict[str, Any]:
    tokens = facts.get("tokens") or {}
    fresh = bool(tokens)
    unasked = None if fresh or result.status != "ok" else "the server did not ask for an account"
    return {
        "status": "ok" if fresh or unasked else result.error_kind,
        "hint": unasked or result.hint,
        "logged_in": fresh,
        "tools": len(result.tools),
        "scope": tokens.get("scope"),
        "expires_at": facts.get("expires_at") if fresh else None,
        "renewable": bool(tokens.get("refresh_token")),
    }


def _drop_query(url: str) -> str:
    """The query may hold a key, and OAuth names the resource to the authorization server."""
    return str(httpx2.URL(url).copy_with(query=None, fragment=None, userinfo=b""))
