"""The instance of a run: pools of the sizes it needs, SQLite that is not flushed per event."""

from collections import OrderedDict
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
            limits = {
                limit.name: limit.limit for limit in instance.event_log_storage.get_pool_limits()
            }
            assert limits["gpu"] == slots
            driver.touch()


def test_every_pool_of_an_asset_is_sized_before_a_run_could_make_it(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        size_pools(instance)
        size_pools(instance)
        limits = {info.name: info.limit for info in instance.event_log_storage.get_pool_limits()}
    assert limits == {**SLOTS, "gpu": count_gpu_slots(runs_instance.CORES)}
    made = [item for item in defs.assets or () if isinstance(item, dg.AssetsDefinition)]
    assert {item.op.pool for item in made if item.is_executable} - {None} == set(limits)


def test_the_connection_of_a_database_is_kept_and_its_log_is_not_flushed(tmp_path: Path) -> None:
    relax_sqlite()
    relax_sqlite()
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        log: Any = instance.event_log_storage
        with log.index_connection() as connection:
            first, kept = connection.engine, connection.connection.dbapi_connection
            assert connection.execute(sqlalchemy.text("PRAGMA synchronous")).scalar() == 1
        with log.run_connection("a") as connection:
            assert connection.engine is not first
        with log.index_connection() as connection:
            assert connection.engine is first
            assert connection.connection.dbapi_connection is kept
        wal = Path(log.path_for_shard("index") + "-wal")
        assert wal.stat().st_size > 0


def test_a_database_that_another_file_replaced_is_opened_anew(tmp_path: Path) -> None:
    path, other = tmp_path / "a.db", tmp_path / "b.db"
    path.touch()
    other.touch()
    first = runs_instance._open_engine(f"sqlite:///{path}")
    assert runs_instance._open_engine(f"sqlite:///{path}") is first
    other.replace(path)
    assert runs_instance._open_engine(f"sqlite:///{path}") is not first


def test_only_the_last_databases_are_held_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_instance, "_ENGINES", OrderedDict())
    monkeypatch.setattr(runs_instance, "_ENGINES_MOST", 3)
    engines = [runs_instance._open_engine(f"sqlite:///{tmp_path / name}.db") for name in "abcde"]
    for engine in engines:
        with engine.connect() as connection:
            assert connection.execute(sqlalchemy.text("SELECT 1")).scalar() == 1
    assert [held for _, held in runs_instance._ENGINES.values()] == engines[2:]
