"""Accounts at remote servers: what signs a probe's requests, by the server's id."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assets.servers.credentials.secrets import Secrets


@dataclass(frozen=True)
class Accounts:
    """state: where `toolmill login` keeps tokens. secrets: the users' choices per server."""

    state: Path
    secrets: Secrets

    def auth(self, server_id: str, url: str) -> Any:
        """An `httpx2.Auth`, or None where there is no account. Raises SecretError."""
        from assets.servers.credentials.oauth import auth_for

        sources = self.secrets.of(server_id)
        return auth_for(url, server_id, sources.oauth if sources else None, self.state)

    def known(self, server_id: str) -> bool:
        """Whether a login is kept: after one, its server is due in the next run."""
        from assets.servers.credentials.oauth import TokenStore

        return TokenStore(self.state, server_id).path.exists()
