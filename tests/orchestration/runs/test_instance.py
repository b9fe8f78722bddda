"""The instance of a run: pools of the sizes it needs, SQLite that is not flushed per event."""

import sqlite3
from pathlib import Path
from typing import Any

import dagster as dg
import sqlalchemy

from orchestration.runs.instance import SLOTS, relax_sqlite, size_pools


def test_pools_are_sized_once_and_the_others_keep_one_slot(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        size_pools(instance)
        size_pools(instance)
        limits = {info.name: info.limit for info in instance.event_log_storage.get_pool_limits()}
    assert limits == SLOTS
    assert not {"lance", "gpu"} & set(SLOTS)


def test_a_closed_connection_leaves_the_log_unwritten_and_the_rows_readable(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    with sqlite3.connect(path) as made:
        made.execute("PRAGMA journal_mode=WAL")
        made.execute("CREATE TABLE rows (id)")
    relax_sqlite()
    relax_sqlite()
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", poolclass=sqlalchemy.NullPool)
    with engine.begin() as connection:
        assert connection.execute(sqlalchemy.text("PRAGMA synchronous")).scalar() == 1
        connection.execute(sqlalchemy.text("INSERT INTO rows VALUES (1)"))
    assert (tmp_path / "index.db-wal").stat().st_size > 0
    with sqlite3.connect(path) as reader:
        assert reader.execute("SELECT id FROM rows").fetchall() == [(1,)]


def test_a_database_of_runs_has_one_engine_for_all_its_events(tmp_path: Path) -> None:
    relax_sqlite()
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        log: Any = instance.event_log_storage
        with log.index_connection() as connection:
            first = connection.engine
        with log.run_connection("a") as connection:
            assert connection.engine is not first
        with log.index_connection() as connection:
            assert connection.engine is first
