"""The Dagster instance of `toolmill run`: its pools sized, its SQLite files not flushed per event.

Dagster opens and closes a connection for each event, and each close of the last connection writes
the whole log back: two flushes an event, a third of the seconds of a run that finds nothing new.
It also makes an engine for each, which compiles every statement again: another third.
"""

import logging
import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from dagster._core.instance.ref import InstanceRef

from orchestration.runs.fork_server import CORES
from warehouse.errors import UnusableInput

POSTGRES = "DAGSTER_POSTGRES_URL"
ROOT = Path(__file__).resolve().parents[2]

# How many steps of a kind run at once. Marketplaces are hosts of their own; `lance` is
# one index. A pool left out would be made by the run that needs it first, and in Postgres Dagster
# fails the second of two that make it at once.
SLOTS = {"crawl": 4, "llm": 4, "sandbox": CORES, "lance": 1}
# NVIDIA's driver, also below WSL, and AMD's.
_GPU_FILES = (Path("/dev/nvidiactl"), Path("/dev/dxg"), Path("/dev/kfd"))
# What a run prints on this terminal is not kept a second time; the events hold it.
_OVERRIDES: Any = {
    "compute_logs": {
        "module": "dagster._core.storage.noop_compute_log_manager",
        "class": "NoOpComputeLogManager",
    }
}
_ENGINES: dict[str, Any] = {}
_HELD: dict[str, sqlite3.Connection] = {}
_HELD_MOST = 16  # the index, the runs, the schedules, and the last runs' own files


def open_instance() -> dg.DagsterInstance:
    """The instance of DAGSTER_HOME, to be closed by the caller. Raises UnusableInput where its
    Postgres does not answer."""
    relax_sqlite()
    ref = InstanceRef.from_dir(os.environ["DAGSTER_HOME"], overrides=_OVERRIDES)
    try:
        with _retry_silently():
            return dg.DagsterInstance.from_ref(ref)
    except Exception as error:  # psycopg2's, SQLAlchemy's or Dagster's own
        if POSTGRES not in os.environ:
            raise
        # Neither the address nor the error's words: both may hold the password.
        found = f"Dagster's Postgres does not answer ({type(error).__name__})"
        raise UnusableInput(f"{found}: start it, or correct or unset {POSTGRES}") from None


@contextmanager
def _retry_silently() -> Iterator[None]:
    """dagster-postgres logs each of its tries on the root logger, in words that may hold the
    password; the one that counts is raised."""

    def is_other(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith("Retrying failed database")

    root = logging.getLogger()
    root.addFilter(is_other)
    try:
        yield
    finally:
        root.removeFilter(is_other)


def make_config() -> bytes:
    """The configuration of our instance: runs and events in SQLite files beside it, or in the
    Postgres that DAGSTER_POSTGRES_URL names, whose driver this process and its children are told.
    Raises UnusableInput."""
    config = (ROOT / "dagster.yaml").read_bytes()
    if not (url := os.environ.get(POSTGRES)):
        return config
    if find_spec("dagster_postgres") is None:
        fix = "uv pip install 'toolmill[postgres]', or unset it"
        raise UnusableInput(f"{POSTGRES} needs the package dagster-postgres: {fix}")
    # SQLAlchemy 2.1 reads a URL without a driver as psycopg 3's; Dagster's storage is psycopg2's.
    os.environ[POSTGRES] = re.sub(r"^postgres(ql)?://", "postgresql+psycopg2://", url)
    storage = {"storage": {"postgres": {"postgres_url": {"env": POSTGRES}}}}
    return config + yaml.safe_dump(storage).encode()


def size_pools(instance: dg.DagsterInstance) -> None:
    """Gives the instance's pools their slots."""
    storage = instance.event_log_storage
    have = {info.name: info.limit for info in storage.get_pool_limits()}
    for pool, slots in {**SLOTS, "gpu": count_gpu_slots(CORES)}.items():
        if have.get(pool) != slots:
            storage.set_concurrency_slots(pool, slots)


def count_gpu_slots(cores: int) -> int:
    """How many trainings and evaluations run at once: one where there is a GPU, as it takes all of
    it; else both roles, each on its share of the cores. In turns, each on its share all the same,
    both took 206 s of a first run on two cores; side by side they take 124."""
    return 1 if any(path.exists() for path in _GPU_FILES) else min(2, cores)


def relax_sqlite() -> None:
    """Lets SQLite flush at checkpoints only, which leaves its files whole when the machine dies.

    What is lost then is the end of Dagster's log; tables and ledger are not in it.
    """
    from dagster._core.storage.event_log.sqlite import sqlite_event_log
    from dagster._core.storage.runs.sqlite import sqlite_run_storage
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    if not event.contains(Engine, "connect", _relax):
        event.listen(Engine, "connect", _relax)
    for storage in (sqlite_event_log, sqlite_run_storage):
        vars(storage)["create_engine"] = _open_engine


def _open_engine(url: str, **options: Any) -> Any:
    """One engine a database for as long as the process lives; its connections are not kept."""
    from sqlalchemy import create_engine

    if url not in _ENGINES:
        _ENGINES[url] = create_engine(url, **options)
    return _ENGINES[url]


def _relax(connection: Any, _record: Any) -> None:
    if not isinstance(connection, sqlite3.Connection):
        return
    connection.execute("PRAGMA synchronous=NORMAL")
    path = connection.execute("PRAGMA database_list").fetchone()[2]
    if path and path not in _HELD:
        _hold_open(path)


def _hold_open(path: str) -> None:
    """Keeps one connection to a database in WAL mode, so that no other one is its last."""
    held = sqlite3.connect(path, check_same_thread=False)
    if held.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        held.close()  # a new file: Dagster sets the mode, and the next connection is held
        return
    held.execute("SELECT count(*) FROM sqlite_master").fetchone()
    _HELD[path] = held
    if len(_HELD) > _HELD_MOST:
        _HELD.pop(next(iter(_HELD))).close()


if __name__ == "__main__":  # of a container that starts Dagster's own commands
    from warehouse.storage.files import write_atomically

    write_atomically(Path(sys.argv[1]), make_config())
    with open_instance() as opened:
        size_pools(opened)
