"""The Dagster instance of `toolmill run`. Dagster opens a connection and an engine for each event,
and each close of the last connection flushes twice: so engine and connection are kept."""

import logging
import os
import platform
import re
import sqlite3
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from dagster._core.instance.ref import InstanceRef

from orchestration.runs.processes import CORES
from warehouse.errors import UnusableInput
from warehouse.home import POSTGRES
from warehouse.process_identity import identify_process

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
# Of dagster-postgres, SQLAlchemy and psycopg2.
_GONE = {"DagsterPostgresException", "OperationalError", "InterfaceError"}
# (process, database) -> (its file, the engine), the last used ones.
_ENGINES: OrderedDict[tuple[int, str], tuple[int | None, Any]] = OrderedDict()
_ENGINES_LOCK = threading.Lock()
_ENGINES_MOST = 16  # the index, the runs, the schedules, and the last runs' own files


def open_instance() -> dg.DagsterInstance:
    """The instance of DAGSTER_HOME. Raises UnusableInput if its Postgres does not answer."""
    relax_sqlite()
    ref = InstanceRef.from_dir(os.environ["DAGSTER_HOME"], overrides=_OVERRIDES)
    try:
        with _retry_silently():
            return dg.DagsterInstance.from_ref(ref)
    except Exception as error:  # psycopg2's, SQLAlchemy's or Dagster's own
        if POSTGRES not in os.environ:
            raise
        raise _describe_gone(type(error).__name__) from None


def silence_retries() -> None:
    """dagster-postgres logs each try, perhaps with the password; the last one is raised."""
    logging.getLogger().addFilter(_is_no_retry)


def _is_no_retry(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("Retrying failed database")


@contextmanager
def _retry_silently() -> Iterator[None]:
    silenced = _is_no_retry in logging.getLogger().filters
    silence_retries()
    try:
        yield
    finally:
        if not silenced:
            logging.getLogger().removeFilter(_is_no_retry)


@contextmanager
def explain_gone_postgres() -> Iterator[None]:
    """Raises UnusableInput where Dagster's Postgres goes away while the block runs."""
    with _retry_silently():
        try:
            yield
        except Exception as error:
            if not os.environ.get(POSTGRES) or type(error).__name__ not in _GONE:
                raise
            raise _describe_gone(type(error).__name__) from None


def make_config() -> bytes:
    """The configuration of our instance: SQLite files beside it, or DAGSTER_POSTGRES_URL, whose
    driver this process and its children are told. Raises UnusableInput."""
    config = (ROOT / "dagster.yaml").read_bytes()
    if not os.environ.get(POSTGRES):
        return config
    if find_spec("dagster_postgres") is None:
        fix = ".venv/bin/uv pip install 'toolmill[postgres]', or unset it"
        raise UnusableInput(f"{POSTGRES} needs the package dagster-postgres: {fix}")
    write_driver()
    storage = {"storage": {"postgres": {"postgres_url": {"env": POSTGRES}}}}
    return config + yaml.safe_dump(storage).encode()


def write_driver() -> None:
    """SQLAlchemy 2.1 reads a URL without a driver as psycopg 3's; Dagster's storage is psycopg2's.
    Whoever opens the instance of a state needs it, that of an earlier run too."""
    if url := os.environ.get(POSTGRES):
        os.environ[POSTGRES] = re.sub(r"^postgres(ql)?://", "postgresql+psycopg2://", url)


def check_postgres() -> None:
    """Raises UnusableInput if Postgres does not answer; Dagster itself tries for many seconds."""
    if url := os.environ.get(POSTGRES):
        from warehouse.postgres import PostgresUnreachable, open_connection

        try:
            open_connection(re.sub(r"^postgres[^:]*", "postgresql", url)).close()
        except PostgresUnreachable as error:
            raise _describe_gone(str(error)) from None


@contextmanager
def open_history(folder: Path) -> Iterator[dg.DagsterInstance]:
    """The instance of a folder, to be looked at. Raises UnusableInput where the Postgres that its
    history is in does not answer or is not named; else what Dagster and its databases raise."""
    in_postgres = POSTGRES in (folder / "dagster.yaml").read_text()
    if in_postgres and not os.environ.get(POSTGRES):
        raise UnusableInput(
            f"{folder}: its last run kept its history in the Postgres of {POSTGRES}, which is not"
            " set: set it as it was, or `toolmill run` without it goes on in SQLite"
        )
    if in_postgres:
        write_driver()
        check_postgres()
    with _retry_silently(), dg.DagsterInstance.from_config(str(folder)) as instance:
        yield instance


def _describe_gone(reason: str) -> UnusableInput:
    # Neither the address nor the error's words: both may hold the password.
    return UnusableInput(
        f"Dagster's Postgres does not answer ({reason}): start it, or correct or unset {POSTGRES}"
    )


def place_runs(instance: dg.DagsterInstance) -> None:
    """Gives runs of this process the origin of `toolmill dev`: the UI leaves others out."""
    from dagster._core.definitions.definitions_class import SINGLETON_REPOSITORY_NAME
    from dagster._core.remote_origin import RemoteJobOrigin, RemoteRepositoryOrigin
    from dagster._core.workspace.load import location_origins_from_yaml_paths

    [location] = location_origins_from_yaml_paths([str(ROOT / "workspace.yaml")])
    repository = RemoteRepositoryOrigin(location, SINGLETON_REPOSITORY_NAME)
    create_run = instance.create_run_for_job

    def create_placed_run(job_def: dg.JobDefinition, **options: Any) -> dg.DagsterRun:
        options["remote_job_origin"] = RemoteJobOrigin(repository, job_def.name)
        return create_run(job_def=job_def, **options)

    vars(instance)["create_run_for_job"] = create_placed_run


def size_pools(instance: dg.DagsterInstance) -> None:
    storage = instance.event_log_storage
    have = {info.name: info.limit for info in storage.get_pool_limits()}
    for pool, slots in {**SLOTS, "gpu": count_gpu_slots(CORES)}.items():
        if have.get(pool) != slots:
            storage.set_concurrency_slots(pool, slots)


def count_gpu_slots(cores: int) -> int:
    """How many trainings run at once: one on a GPU; else both roles, each on its share of the cores
    (two cores: 124 s side by side, 206 in turns)."""
    return 1 if any(path.exists() for path in _GPU_FILES) else min(2, cores)


def relax_sqlite() -> None:
    """Lets SQLite flush at checkpoints only, which leaves its files whole when the machine dies.
    What is lost then is the end of Dagster's log; tables and ledger are not in it."""
    from dagster._core.storage.event_log.sqlite import sqlite_event_log
    from dagster._core.storage.runs.sqlite import sqlite_run_storage
    from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    if not event.contains(Engine, "connect", _relax):
        event.listen(Engine, "connect", _relax)
    for storage in (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage):
        vars(storage)["create_engine"] = _open_engine


def _open_engine(url: str, **options: Any) -> Any:
    from sqlalchemy import Engine
    from sqlalchemy.engine import make_url

    key, file = (os.getpid(), url), _find_file(make_url(url).database)
    with _ENGINES_LOCK:
        known_file, engine = _ENGINES.pop(key, (None, None))
        if engine is None or known_file not in (None, file):
            if engine is not None:
                Engine.dispose(engine)
            engine = _make_engine(url, **options)
        _ENGINES[key] = (file, engine)
        if len(_ENGINES) > _ENGINES_MOST:
            Engine.dispose(_ENGINES.popitem(last=False)[1][1])
    return engine


def _make_engine(url: str, **options: Any) -> Any:
    from sqlalchemy import QueuePool, create_engine

    options["poolclass"] = QueuePool
    options["connect_args"] = {**options.get("connect_args", {}), "check_same_thread": False}
    engine = create_engine(url, pool_size=1, max_overflow=-1, **options)
    vars(engine)["dispose"] = lambda close=True: None  # Dagster ends its engines after each event
    return engine


def _find_file(path: str | None) -> int | None:
    try:
        return os.stat(path).st_ino if path else None
    except OSError:
        return None


def _relax(connection: Any, _record: Any) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=NORMAL")


if __name__ == "__main__":  # of a container that starts Dagster's own commands
    from warehouse.storage.files import write_atomically

    write_atomically(Path(sys.argv[1]), make_config())
    with open_instance() as opened:
        size_pools(opened)


# Hidden from the UI's list of runs by its prefix. A run that the daemon started has no such tag:
# the daemon watches it.
PROCESS_TAG = ".dagster/toolmill_process"
UNFINISHED = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]


def make_process_tags() -> dict[str, str]:
    """A run's process as "pid@start@host": pids are reused, and hosts may share one Postgres."""
    return {PROCESS_TAG: f"{os.getpid()}@{identify_process()}@{platform.node()}"}


def clear_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Fails this host's runs without a process and frees their pool slots; returns their ids."""
    cleared = []
    for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)):
        if find_run_process(run) is not False:
            continue
        pid = run.tags[PROCESS_TAG].split("@")[0]
        instance.report_run_failed(run, message=f"process {pid} is gone: it was killed")
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
        cleared.append(run.run_id)
    return cleared


def find_run_process(run: dg.DagsterRun) -> bool | None:
    """Whether a run's process lives; None if this host cannot tell (the daemon's, another's)."""
    if PROCESS_TAG not in run.tags:
        return None
    pid, identity, host = (*run.tags[PROCESS_TAG].split("@", 2), "", "")[:3]
    if host not in ("", platform.node()):  # "": of a version that did not name it
        return None
    return pid.isdecimal() and identify_process(int(pid)) == identity
