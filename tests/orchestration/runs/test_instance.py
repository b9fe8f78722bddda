"""The instance of a run: pools of the sizes it needs, SQLite that is not flushed per event."""

import sqlite3
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy

from orchestration.definitions import defs
from orchestration.runs import instance as runs_instance
from orchestration.runs.instance import SLOTS, count_gpu_slots, relax_sqlite, size_pools


def test_trainings_share_the_cores_and_take_turns_on_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = tmp_path / "nvidiactl"
    monkeypatch.setattr(runs_instance, "_GPU_FILES", (tmp_path / "kfd", driver))
    assert [count_gpu_slots(cores) for cores in (1, 2, 16)] == [1, 2, 2]
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        for slots in (2, 1):  # a GPU that is new is found by the next run
            monkeypatch.setattr(runs_instance, "CORES", 2)
            size_pools(instance)
            limits = {one.name: one.limit for one in instance.event_log_storage.get_pool_limits()}
            assert limits["gpu"] == slots
            driver.touch()


def test_every_pool_of_an_asset_is_sized_before_a_run_could_make_it(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        size_pools(instance)
        size_pools(instance)
        limits = {info.name: info.limit for info in instance.event_log_storage.get_pool_limits()}
    assert limits == {**SLOTS, "gpu": count_gpu_slots(runs_instance.CORES)}
    made = [one for one in defs.assets or () if isinstance(one, dg.AssetsDefinition)]
    assert {one.op.pool for one in made if one.is_executable} - {None} == set(limits)


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
