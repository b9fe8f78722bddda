"""A Postgres of our own in the sandbox: started, asked by psql, and ended with the world.

Its server has no network, and its user is no superuser: what a third-party server may ask of it is
contained twice. psql runs in the sandbox too, for what it reads was written by others.
"""

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex

from assets.outcomes.worlds.errors import WorldFailed
from assets.servers.deploy.grants import SERVER_UID
from assets.servers.recipes.placeholders import DATA
from assets.servers.sandbox.process import SandboxProcess, start
from assets.servers.sandbox.spec import (
    LaunchRefused,
    SandboxLaunch,
    SandboxMount,
    SandboxPolicy,
    SandboxUnavailable,
)

OWNER, WORKER, DATABASE, SEED = "mill", "worker", "shop", "seed"
_CLUSTER, _PASSWORD = "/srv/cluster", "/srv/cluster/.password"
_POLICY = SandboxPolicy(backend="bubblewrap", cpu_s=3600, file_mb=64, memory_mb=512)
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_directories": DATA,
    "fsync": "off",
    "shared_buffers": "16MB",
    "max_connections": "20",
    "autovacuum": "off",
    "dynamic_shared_memory_type": "mmap",
    "log_min_messages": "panic",  # nobody reads its log, and a full pipe would stop it
    "log_min_error_statement": "panic",
    "statement_timeout": "30s",
    "timezone": "UTC",
}
_ACCESS = f"local all {OWNER} scram-sha-256\nlocal {DATABASE} {WORKER} trust\n"
_PATIENCE_S, _MOST_OUTPUT = 60.0, 16 << 20


class Cluster:
    """One running Postgres. socket: the folder that holds its socket; other processes, those of a
    sandbox too, reach it there as the worker, without a password."""

    def __init__(self, place: Path, socket: Path) -> None:
        self._data, self._socket, self._secret = place, socket, token_hex(16)
        self._held: list[SandboxProcess] = []
        self._server: SandboxProcess | None = None

    def start_server(self) -> None:
        """Makes an empty cluster and starts it. Raises WorldFailed."""
        shutil.rmtree(self._data, ignore_errors=True)
        self._data.mkdir(mode=0o700)
        (self._data / ".password").write_text(self._secret)
        if os.geteuid() == 0:
            os.chown(self._data, SERVER_UID, SERVER_UID)
            os.chown(self._data / ".password", SERVER_UID, SERVER_UID)
        made = f"{_CLUSTER}/data"
        self._run(
            "initdb", "-D", made, "-U", OWNER, f"--pwfile={_PASSWORD}", "-A", "scram-sha-256",
            *("-E", "UTF8", "--no-locale", "--no-sync"),
        )  # fmt: skip
        access = self._data / "data" / "pg_hba.conf"
        access.write_text(_ACCESS)
        words = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
        self._server = self._start("postgres", "-D", made, *words)
        deadline = time.monotonic() + _PATIENCE_S
        while not (self._socket / ".s.PGSQL.5432").exists():
            if not self._is_running() or time.monotonic() > deadline:
                raise WorldFailed("postgres does not start in the sandbox")
            time.sleep(0.02)
        self.run_sql("postgres", "SELECT 1", patient=True)

    def run_sql(
        self, database: str, sql: str, *, user: str = OWNER, patient: bool = False
    ) -> list[str]:
        """The lines that statements print, each in a transaction of its own. patient: it may still
        be starting. Raises WorldFailed with what psql says."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return self._run(*self._list_psql(database, user), sent=sql).splitlines()
            except WorldFailed:
                if not (patient and self._is_running()) or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def hold_sql(self, database: str, sql: str) -> None:
        """Statements whose session stays open until `release`; returns once they are done."""
        held = self._start(*self._list_psql(database, OWNER))
        self._held.append(held)
        assert held.process.stdin is not None
        assert held.process.stdout is not None
        held.process.stdin.write(f"{sql}; SELECT 'held';\n".encode())
        held.process.stdin.flush()
        while line := held.process.stdout.readline():
            if line.strip() == b"held":
                return
        raise WorldFailed(f"no session that holds {sql[:60]!r}")

    def release(self) -> None:
        """Ends the sessions that are held."""
        while self._held:
            self._held.pop().__exit__()

    def close(self) -> None:
        """Ends the server. Its files stay until it is started again."""
        self.release()
        if self._server is not None:
            self._server.__exit__()
            self._server = None

    def _list_psql(self, database: str, user: str) -> tuple[str, ...]:
        # No file of anybody's is read, and an error ends it.
        quiet = ("-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1")
        return ("psql", *quiet, "-h", DATA, "-U", user, "-d", database)

    def _run(self, program: str, *words: str, sent: str = "") -> str:
        with self._start(program, *words) as jailed:
            try:
                out, err = jailed.process.communicate(sent.encode(), timeout=_PATIENCE_S)
            except Exception as error:
                raise WorldFailed(f"{program}: {type(error).__name__}") from error
            if jailed.process.returncode:
                message = " ".join(err.decode("utf-8", "replace").split())[:300]
                raise WorldFailed(f"{program}: {message}")
            if len(out) > _MOST_OUTPUT:
                raise WorldFailed(f"{program}: more than {_MOST_OUTPUT:,} bytes")
            return out.decode("utf-8", "replace")

    def _start(self, program: str, *words: str) -> SandboxProcess:
        """In the sandbox; only what needs the cluster's files sees them. Bubblewrap ends it with
        the thread that opened the world."""
        mounts = [SandboxMount(self._socket, DATA, writable=True)]
        if program != "psql":
            mounts.append(SandboxMount(self._data, _CLUSTER, writable=True))
        # /usr/lib/postgresql/15/bin on Debian: what is on PATH is a link or a wrapper.
        found = Path(os.path.realpath(shutil.which("initdb") or "initdb")).with_name(program)
        env = {"PGPASSWORD": self._secret} if program == "psql" else {}
        uid = SERVER_UID if os.geteuid() == 0 else None
        launch = SandboxLaunch(
            (str(found), *words), env=env, mounts=tuple(mounts), uid=uid, segments=True
        )
        try:
            return start(launch, _POLICY)
        except (SandboxUnavailable, LaunchRefused, OSError) as error:
            raise WorldFailed(f"{program} does not start in the sandbox: {error}") from error

    def _is_running(self) -> bool:
        return self._server is not None and self._server.process.poll() is None


def quote_names(names: Sequence[str]) -> str:
    """Names as SQL quotes them, joined by dots."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)
