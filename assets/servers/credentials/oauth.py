"""OAuth for remote servers: kept tokens, used and renewed by unattended probes, made by a login."""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from assets.servers.credentials.oauth_callback import Callback
from assets.servers.credentials.secrets import OAuthChoice, SecretError, Secrets, read_source
from assets.servers.credentials.token_store import TokenStore, UnsavedStore
from assets.servers.probe.probe import ProbeResult
from assets.servers.probe.session import ProbePolicy
from assets.servers.remote.outcome import show_url
from assets.servers.remote.probe import probe_remote
from assets.servers.remote.transport import RemotePolicy
from warehouse.network.egress import Connector, is_loopback


@dataclass(frozen=True)
class Accounts:
    """Accounts at remote servers. state: where `toolmill login` keeps tokens. secrets: the users'
    choices per server."""

    state: Path
    secrets: Secrets

    def auth(self, server_id: str, url: str) -> httpx2.Auth | None:
        """What signs a probe's requests, None where there is no account. Raises SecretError."""
        sources = self.secrets.of(server_id)
        return open_auth(url, server_id, sources.oauth if sources else None, self.state)

    def known(self, server_id: str) -> bool:
        """Whether a login is kept: after one, its server is due in the next run."""
        return TokenStore(self.state, server_id).path.exists()


def open_auth(
    url: str, server_id: str, choice: OAuthChoice | None, state: Path
) -> httpx2.Auth | None:
    """What an unattended probe answers OAuth with: own credentials, else the login that is kept;
    None where there is neither. Raises SecretError."""
    store, asked = TokenStore(state, server_id), _drop_query(url)
    if choice and choice.grant == "client_credentials":
        return _make_machine(asked, choice, store)
    if not store.load().get("tokens"):
        return None
    from mcp.shared.auth import OAuthClientMetadata

    from assets.servers.credentials.oauth_flow import Unattended

    return Unattended(asked, OAuthClientMetadata(redirect_uris=None), store)


def _make_machine(url: str, choice: OAuthChoice, store: TokenStore) -> httpx2.Auth:
    from assets.servers.credentials.oauth_flow import Machine

    missing = [
        name for name in ("client_id", "client_secret", "issuer") if not getattr(choice, name)
    ]
    if missing:
        fix = "client_credentials needs client_id, client_secret (a source) and issuer, which"
        fix += " names the only authorization server that may see them"
        raise SecretError(store.server_id, "oauth", f"no {missing[0]}", fix)
    secret = read_source(store.server_id, str(choice.client_secret))
    issuer, client_id = str(choice.issuer), str(choice.client_id)
    return Machine(url, store, client_id, secret, scope=choice.scope, issuer=issuer)


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
    store = UnsavedStore(state, server_id)
    with socket.create_server(("127.0.0.1", port)) as listening:
        callback = Callback(listening, show, timeout_s)
        provider = make_login(
            _drop_query(url),
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
        here = is_loopback(httpx2.URL(url).host)  # whoever types such an address means it
        found = probe_remote(
            url,
            transport="auto",
            limits=ProbePolicy(start_s=patience_s, idle_s=patience_s, extras_s=0),
            policy=RemotePolicy(allow_loopback=here, wall_s=2 * patience_s),
            auth=provider,
            connector=connector,
        )
    facts = store.load()
    if facts.get("tokens"):
        _keep_login(TokenStore(state, server_id), facts)
    return {"server_id": server_id, "url": show_url(url), **_describe_login(found, facts)}


def _keep_login(kept: TokenStore, facts: dict[str, Any]) -> None:
    try:
        kept.load()
    except SecretError:
        kept.forget()  # a new login fixes what cannot be read
    kept.save(**facts)


def _describe_login(found: ProbeResult, facts: dict[str, Any]) -> dict[str, Any]:
    tokens = facts.get("tokens") or {}
    fresh = bool(tokens)
    unasked = None if fresh or found.status != "ok" else "the server did not ask for an account"
    return {
        "status": "ok" if fresh or unasked else found.error_kind,
        "hint": unasked or found.hint,
        "logged_in": fresh,
        "tools": len(found.tools),
        "scope": tokens.get("scope"),
        "expires_at": facts.get("expires_at") if fresh else None,
        "renewable": bool(tokens.get("refresh_token")),
    }


def _drop_query(url: str) -> str:
    """The query may hold a key, and OAuth names the resource to the authorization server."""
    return str(httpx2.URL(url).copy_with(query=None, fragment=None, userinfo=b""))
