"""OAuth for remote servers: kept tokens, used and renewed by unattended probes, made by a login."""

import fcntl
import json
import os
import socket
import stat
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import httpx2

from assets.servers.credentials.oauth_callback import Callback
from assets.servers.credentials.secrets import OAuthChoice, SecretError, read_source
from assets.servers.probe.session import ProbePolicy
from assets.servers.remote.outcome import login_advice, show_url
from assets.servers.remote.probe import probe_remote
from assets.servers.remote.transport import RemotePolicy
from warehouse.network.egress import Connector, is_loopback

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
                found = json.loads(file.read(_MAX_BYTES))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):  # what json says quotes the text
            raise self._make_error("it cannot be read", self._mend()) from None
        if not isinstance(found, dict) or found.get("server_id") != self.server_id:
            raise self._make_error("it holds no login of this server", self._mend())
        return found

    def save(self, **changes: Any) -> None:
        """Changes members; the file is there whole or as it was, and never readable to others."""
        facts = {**self.load(), **changes, "server_id": self.server_id}
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self.path.with_name(f".{self.path.stem}.{os.getpid()}.{time.monotonic_ns()}")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IRUSR | stat.S_IWUSR)
        try:
            with os.fdopen(descriptor, "w") as file:
                json.dump(facts, file)
                file.flush()
                os.fsync(file.fileno())  # a lost refresh token is a lost login
            new.replace(self.path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise

    def forget(self) -> bool:
        """Whether there was a login to forget."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True

    def forget_unreadable(self) -> None:
        """A new login fixes what cannot be read."""
        try:
            self.load()
        except SecretError:
            self.forget()

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
        return self._model("tokens", "OAuthToken")

    async def set_tokens(self, tokens: Any) -> None:
        ends = time.time() + tokens.expires_in if tokens.expires_in is not None else None
        self.save(tokens=tokens.model_dump(mode="json", exclude_none=True), expires_at=ends)

    async def get_client_info(self) -> Any:
        return self._model("client", "OAuthClientInformationFull")

    async def set_client_info(self, client_info: Any) -> None:
        self.save(client=client_info.model_dump(mode="json", exclude_none=True))

    def expires_at(self) -> float | None:
        found = self.load().get("expires_at")
        return float(found) if isinstance(found, int | float) else None

    def metadata(self, name: str) -> dict[str, Any] | None:
        found = self.load().get(f"{name}_metadata")
        return found if isinstance(found, dict) else None

    def set_metadata(self, **found: dict[str, Any] | None) -> None:
        self.save(**{f"{name}_metadata": value for name, value in found.items()})

    def _model(self, member: str, name: str) -> Any:
        from mcp.shared import auth

        found = self.load().get(member)
        try:
            return getattr(auth, name).model_validate(found) if found else None
        except ValueError:  # its message quotes the tokens
            raise self._make_error(f"its {member} are malformed", self._mend()) from None

    def _make_error(self, found: str, fix: str) -> SecretError:
        return SecretError(self.server_id, str(self.path), found, fix)

    def _mend(self) -> str:
        return login_advice(self.server_id.removeprefix("remote:"))


class _Unsaved(TokenStore):
    """A login that is under way: the SDK keeps a new client before anybody consented, which would
    part the old login's tokens from the client they belong to."""

    def __init__(self, state: Path, server_id: str) -> None:
        super().__init__(state, server_id)
        self._facts: dict[str, Any] = {}

    def load(self) -> dict[str, Any]:
        return self._facts

    def save(self, **changes: Any) -> None:
        self._facts |= changes


def auth_for(
    url: str, server_id: str, choice: OAuthChoice | None, state: Path
) -> httpx2.Auth | None:
    """What an unattended probe answers OAuth with: own credentials, else the login that is kept;
    None where there is neither. Raises SecretError."""
    store = TokenStore(state, server_id)
    asked = _without_query(url)
    if choice and choice.grant == "client_credentials":
        return _make_machine(asked, server_id, choice, store)
    if not store.load().get("tokens"):
        return None
    from assets.servers.credentials.oauth_flow import make_unattended

    return make_unattended(asked, store)


def _make_machine(url: str, server_id: str, choice: OAuthChoice, store: TokenStore) -> httpx2.Auth:
    from assets.servers.credentials.oauth_flow import make_machine

    missing = [
        name for name in ("client_id", "client_secret", "issuer") if not getattr(choice, name)
    ]
    if missing:
        fix = "client_credentials needs client_id, client_secret (a source) and issuer, which"
        fix += " names the only authorization server that may see them"
        raise SecretError(server_id, "oauth", f"no {missing[0]}", fix)
    return make_machine(
        url,
        store,
        client_id=str(choice.client_id),
        client_secret=read_source(server_id, str(choice.client_secret)),
        issuer=str(choice.issuer),
        scope=choice.scope,
    )


def log_in(
    url: str,
    server_id: str,
    state: Path,
    *,
    show: Callable[[str], None],
    choice: OAuthChoice | None = None,
    port: int = 0,
    timeout_s: float = 300.0,
    connector: Connector | None = None,
) -> dict[str, Any]:
    """Logs a person in and keeps the tokens. show: is given the address to open in a browser.

    Returns status (`ok` or a kind of the taxonomy), hint, server_id, tools (how many are listed),
    scope, expires_at (epoch seconds) and whether the login can be renewed without a person. Raises
    SecretError, and OSError where the port is taken. The old login stays until there is a new one.
    """
    from assets.servers.credentials.oauth_flow import make_login

    choice = choice or OAuthChoice()
    secret = read_source(server_id, choice.client_secret) if choice.client_secret else None
    store = _Unsaved(state, server_id)
    with socket.create_server(("127.0.0.1", port)) as listening:
        callback = Callback(listening, show, timeout_s)
        provider = make_login(
            _without_query(url),
            store,
            redirect_uri=callback.address,
            show=callback.show,
            wait=callback.wait,
            client_id=choice.client_id,
            client_secret=secret,
            issuer=choice.issuer,
            scope=choice.scope,
        )
        patience_s = timeout_s + 60
        found = probe_remote(
            url,
            transport="auto",
            limits=ProbePolicy(start_s=patience_s, idle_s=patience_s, extras_s=0),
            # Whoever types an address on this machine means it.
            policy=RemotePolicy(allow_loopback=is_loopback(_read_host(url)), wall_s=2 * patience_s),
            auth=provider,
            connector=connector,
        )
    facts = store.load()
    tokens = facts.get("tokens") or {}
    if fresh := bool(tokens):
        kept = TokenStore(state, server_id)
        kept.forget_unreadable()
        kept.save(**facts)
    unasked = None if fresh or found.status != "ok" else "the server did not ask for an account"
    return {
        "status": "ok" if fresh or unasked else found.error_kind,
        "hint": unasked or found.hint,
        "server_id": server_id,
        "url": show_url(url),
        "logged_in": fresh,
        "tools": len(found.tools),
        "scope": tokens.get("scope") if fresh else None,
        "expires_at": facts.get("expires_at") if fresh else None,
        "renewable": bool(tokens.get("refresh_token")) if fresh else False,
    }


def _without_query(url: str) -> str:
    """The query may hold a key, and OAuth names the resource to the authorization server."""
    return str(httpx2.URL(url).copy_with(query=None, fragment=None, userinfo=b""))


def _read_host(url: str) -> str:
    return httpx2.URL(url).host
