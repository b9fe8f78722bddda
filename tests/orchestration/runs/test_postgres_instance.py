"""Runs and events of Dagster in Postgres: a real one on loopback, started by an ordinary user."""

from pathlib import Path

import dagster as dg
import pytest

from extensions.upkeep.checks import check_instance
from extensions.upkeep.health import InspectedHome
from orchestration.runs.instance import (
    POSTGRES,
    SLOTS,
    check_postgres,
    explain_gone_postgres,
    make_config,
    open_instance,
    size_pools,
)
from tests.support.postgres import find_free_port, open_postgres
from warehouse.errors import UnusableInput


@pytest.fixture
def postgres():
    pytest.importorskip("dagster_postgres", reason="uv pip install 'toolmill[postgres]'")
    with open_postgres() as server:
        yield server


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    return tmp_path


def count(warehouse: Path) -> dg.JobDefinition:
    @dg.op
    def tell() -> int:
        (warehouse / "ran").open("a").write("x")
        return 1

    @dg.job
    def one() -> None:
        tell()

    return one


@pytest.mark.slow
def test_runs_events_and_pools_lie_in_postgres_and_no_password_in_a_file(
    postgres, home, monkeypatch
):
    monkeypatch.setenv(POSTGRES, postgres.url)
    (home / "dagster.yaml").write_bytes(make_config())
    assert b"mill:x" not in (home / "dagster.yaml").read_bytes()
    with open_instance() as instance:
        size_pools(instance)
        assert count(home).execute_in_process(instance=instance).success
    with open_instance() as again:
        assert [run.status for run in again.get_runs()] == [dg.DagsterRunStatus.SUCCESS]
        limits = {limit.name: limit.limit for limit in again.event_log_storage.get_pool_limits()}
    assert limits.items() >= SLOTS.items()
    assert not list(home.rglob("*.db"))


class OperationalError(Exception):
    """As psycopg2 and SQLAlchemy name what a server that is gone comes to."""


def test_a_postgres_that_goes_away_in_mid_run_is_one_line_and_no_other_error_is(monkeypatch):
    gone = OperationalError("connection to mill:x@db failed")
    monkeypatch.setenv(POSTGRES, "postgresql://mill:x@db/runs")
    with pytest.raises(UnusableInput, match=POSTGRES) as caught, explain_gone_postgres():
        raise gone
    assert "mill:x" not in str(caught.value)
    with pytest.raises(ValueError, match="else"), explain_gone_postgres():
        raise ValueError("something else")
    monkeypatch.delenv(POSTGRES)
    with pytest.raises(OperationalError), explain_gone_postgres():
        raise gone


@pytest.mark.slow
def test_postgres_that_is_gone_is_one_clear_line_and_nothing_is_lost(
    postgres, home, monkeypatch, caplog
):
    monkeypatch.setenv(POSTGRES, postgres.url)
    (home / "dagster.yaml").write_bytes(make_config())
    with open_instance() as instance:
        assert count(home).execute_in_process(instance=instance).success
    postgres.stop()
    with pytest.raises(UnusableInput, match=f"Postgres does not answer.*{POSTGRES}") as caught:
        open_instance()
    assert "mill:x" not in str(caught.value)
    assert not caplog.records
    postgres.start()
    with open_instance() as instance:
        assert count(home).execute_in_process(instance=instance).success
        assert instance.get_runs_count() == 2
    assert (home / "ran").read_text() == "xx"


@pytest.mark.slow
def test_the_doctor_reads_the_instance_by_the_address_that_a_user_gives(
    postgres, tmp_path, monkeypatch
):
    place = tmp_path / "state" / "dagster"
    place.mkdir(parents=True)
    monkeypatch.setenv("DAGSTER_HOME", str(place))
    monkeypatch.setenv(POSTGRES, postgres.url)
    (place / "dagster.yaml").write_bytes(make_config())
    with open_instance() as instance:
        assert count(tmp_path).execute_in_process(instance=instance).success
    monkeypatch.setenv(POSTGRES, postgres.url)  # as in a shell of its own: without a driver
    looked = check_instance(InspectedHome(tmp_path, tmp_path / "state"))
    assert (looked.n, looked.findings) == (1, [])


def test_a_closed_port_is_one_line_before_anything_starts(monkeypatch):
    pytest.importorskip("psycopg2", reason="uv pip install 'toolmill[postgres]'")
    monkeypatch.setenv(POSTGRES, f"postgresql+psycopg2://u:secret@127.0.0.1:{find_free_port()}/d")
    with pytest.raises(UnusableInput, match=rf"connection refused.*unset {POSTGRES}") as caught:
        check_postgres()
    assert "secret" not in str(caught.value)
    monkeypatch.delenv(POSTGRES)
    check_postgres()


def test_without_the_package_the_error_says_how_to_get_it(home, monkeypatch):
    monkeypatch.setenv(POSTGRES, "postgresql://127.0.0.1/x")
    monkeypatch.setattr("orchestration.runs.instance.find_spec", lambda _: None)
    with pytest.raises(UnusableInput, match=r"toolmill\[postgres\]"):
        make_config()


def test_without_the_variable_nothing_is_added(monkeypatch):
    monkeypatch.delenv(POSTGRES, raising=False)
    assert b"postgres" not in make_config()
