"""A real Postgres on loopback, started by an ordinary user in a folder of its own."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

NUMBERS = count()
NOBODY = pwd.getpwnam("nobody").pw_uid


def find_program(name: str) -> str:
    places = [shutil.which(name), *Path("/usr/lib/postgresql").glob(f"*/bin/{name}")]
    if not any(places):
        pytest.skip(f"no {name} on this host (Debian: apt-get install postgresql)")
    return str(next(filter(None, places)))


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Postgres:
    """A cluster in a folder of its own, which can be stopped and started."""

    def __init__(self, folder: Path, durable: bool = False) -> None:
        """durable: a commit waits for the disk, as by default."""
        self.folder, self.port, self.durable = folder, find_free_port(), durable
        self.as_user = {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(mode=0o700)
        if self.as_user:
            os.chown(folder, NOBODY, NOBODY)
        self.url = f"postgresql://mill:x@127.0.0.1:{self.port}/postgres"
        words = ["-D", str(folder / "data"), "-U", "mill", "-A", "trust", "--no-sync"]
        self._run(find_program("initdb"), *words)

    def _run(self, *command: str) -> None:
        how: Any = {"cwd": "/", "capture_output": True, "text": True, "timeout": 120}
        done = subprocess.run(command, **how, **self.as_user)
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        words = ["-D", str(self.folder / "data"), "-h", "127.0.0.1", "-p", str(self.port)]
        words += ["-c", f"fsync={'on' if self.durable else 'off'}", "-k", ""]
        command = [find_program("postgres"), *words]
        nowhere: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, cwd="/", **nowhere, **self.as_user)
        deadline = time.monotonic() + 120
        ready = [find_program("pg_isready"), "-h", "127.0.0.1", "-p", str(self.port), "-q"]
        while subprocess.run(ready, check=False).returncode != 0:
            assert self.process.poll() is None, "postgres does not start"
            assert time.monotonic() < deadline, "postgres does not answer"
            time.sleep(0.1)

    def make_database(self, name: str) -> str:
        """A new database; its URL."""
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "mill"]
        self._run(find_program("createdb"), *where, name)
        return self.url.removesuffix("postgres") + name

    def kill(self) -> None:
        """The end of a server that no one told: its processes die with the first."""
        self.stop(signal.SIGKILL)

    def stop(self, how: int = signal.SIGINT) -> None:
        if self.process:
            self.process.send_signal(how)
            self.process.wait(timeout=120)
            self.process = None


@contextmanager
def open_postgres(durable: bool = False) -> Iterator[Postgres]:
    """One that runs while the block does; skips the test where it is not installed."""
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as place:
        os.chmod(place, 0o755)
        server = Postgres(Path(place) / "cluster", durable)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    pytest.importorskip("psycopg2", reason="uv pip install 'toolmill[postgres]'")
    with open_postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> str:
    return postgres_server.make_database(f"ledger{next(NUMBERS)}")
