"""The tokens of remote servers between two processes: one private file for each."""

import fcntl
import json
import os
import time
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from assets.servers.credentials.secrets import SecretError
from assets.servers.remote.outcome import write_login_advice
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
                found = json.loads(file.read(_MAX_BYTES))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):  # what json says quotes the text
            raise self._make_error("it cannot be read", self._advise_login()) from None
        if not isinstance(found, dict) or found.get("server_id") != self.server_id:
            raise self._make_error("it holds no login of this server", self._advise_login())
        return found

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

        found = facts.get(member)
        try:
            return getattr(auth, name).model_validate(found) if found else None
        except ValueError:  # its message quotes the tokens
            raise self._make_error(f"its {member} are malformed", self._advise_login()) from None

    def _make_error(self, found: str, fix: str) -> SecretError:
        return SecretError(self.server_id, str(self.path), found, fix)

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
