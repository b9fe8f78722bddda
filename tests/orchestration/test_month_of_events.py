"""An event log of a month: what reads it reads no more than of a day, `gc` bounds it, and an hour
that the clock went back in it confuses nobody."""

import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import dagster as dg
import pytest
from dagster._core.events import (
    AssetMaterializationPlannedData,
    DagsterEvent,
    DagsterEventType,
    StepMaterializationData,
)
from dagster._core.events.log import EventLogEntry
from dagster._serdes import serialize_value
from sqlalchemy import event
from sqlalchemy.engine import Engine

from extensions.upkeep import checks, collect, policy
from orchestration import alerts
from orchestration.runs.instance import clear_dead_runs, make_process_tags
from orchestration.sensors import count_failed_trainings
from tests.orchestration.runs.test_one_server import started
from tests.orchestration.test_alerts import Webhook, hook  # noqa: F401 (a fixture)
from tests.orchestration.test_retrain_on_drift import publish, recipe, tick
from training.settings import RetentionPolicy
from warehouse.store import Warehouse

DAY, HOUR = 86_400.0, 3_600.0
ASSETS = [f"asset_{n:02}" for n in range(30)]
MARKETS = [f"market_{n}" for n in range(9)]
RUNS_A_DAY = len(MARKETS) + 2  # a nightly one each, their fan-in, and a training that failed
_STEPS = 40  # events of a run that are of no asset
_ID, _AT = "a-run", 1_234_567_890.125  # in an event before it is of a run


class EventLog:
    """Writes runs into the storage of an instance in a folder, in the order in which they began.

    runs: (id, when it began by the clock of then, in epoch seconds); events: rows in all files.
    """

    def __init__(self, instance: dg.DagsterInstance, folder: Path) -> None:
        storage: Any = instance.event_log_storage
        self._events = Path(storage.path_for_shard("index"))
        storage.get_logs_for_run(_ID)  # makes the file of a run
        self._shard = Path(storage.path_for_shard(_ID)).replace(folder / "shard.db")
        self._runs = Path(folder) / "history" / "runs.db"
        self.runs: list[tuple[str, float]] = []
        self.events = 0
        self.last_set = ""  # the training set of the last training

    def write_days(self, days: int, end: float, *, back: int | None = None) -> None:
        """Days of runs, ten minutes apart, the last of which begins at `end`. back: the day of the
        log (from 0) whose later runs have an hour less on the clock than those before."""
        with _open(self._runs) as runs, _open(self._events) as index:
            for number in range(days * RUNS_A_DAY):
                day, turn = divmod(number, RUNS_A_DAY)
                at = end - (days - 1 - day) * DAY - (RUNS_A_DAY - 1 - turn) * HOUR / 6
                if day == back and turn >= RUNS_A_DAY // 2:
                    at -= HOUR
                self._write_run(runs, index, number, turn, at)

    def _write_run(
        self, runs: sqlite3.Connection, index: sqlite3.Connection, number: int, turn: int, at: float
    ) -> None:
        run_id = str(UUID(int=number + 1, version=4))
        market = MARKETS[turn] if turn < len(MARKETS) else None
        job = "nightly" if market else "fan_in" if turn == len(MARKETS) else "train"
        self.last_set = f"set {number // (5 * RUNS_A_DAY)}"
        tags = {"toolmill/training_set": self.last_set} if job == "train" else {}
        tags |= {"dagster/partition": market} if market else {}
        status = "FAILURE" if job == "train" else "SUCCESS"
        run = dg.DagsterRun(job, run_id, tags=tags, status=dg.DagsterRunStatus(status))
        began = _format_time(at)
        row = (run_id, job, status, serialize_value(run), began, began, at, at + 600)
        runs.execute(
            "INSERT INTO runs (run_id, pipeline_name, status, run_body, create_timestamp,"
            " update_timestamp, start_time, end_time) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )
        names = [(run_id, key, value) for key, value in tags.items()]
        runs.executemany("INSERT INTO run_tags (run_id, key, value) VALUES (?, ?, ?)", names)
        rows = list(_make_rows(run_id, at, market, job))
        _insert_events(index, [row for row in rows if row[5] is not None])
        shutil.copyfile(self._shard, self._events.with_name(f"{run_id}.db"))
        with _open(self._events.with_name(f"{run_id}.db")) as own:
            _insert_events(own, rows)
        self.runs.append((run_id, at))
        self.events += len(rows)

    def note_assets(self) -> None:
        """What Dagster keeps of each asset beside its events: its last run."""
        with _open(self._events) as index:
            index.execute(
                "INSERT INTO asset_keys (asset_key, last_run_id, last_materialization_timestamp)"
                " SELECT asset_key, run_id, timestamp FROM (SELECT *, max(id) FROM event_logs"
                " WHERE dagster_event_type = 'ASSET_MATERIALIZATION' GROUP BY asset_key)"
            )


@contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA synchronous=OFF")
        yield database


@cache
def _serialize_event(kind: DagsterEventType, asset: str = "", market: str | None = None) -> str:
    """An event of the run `_ID` at `_AT`, as Dagster writes it; its own serialiser takes long."""
    key, data = dg.AssetKey(asset), None
    if kind is DagsterEventType.ASSET_MATERIALIZATION:
        made = dg.AssetMaterialization(key, partition=market, metadata={"rows": 1})
        data = StepMaterializationData(made)
    elif kind is DagsterEventType.ASSET_MATERIALIZATION_PLANNED:
        data = AssetMaterializationPlannedData(key, partition=market)
    event = DagsterEvent(kind.value, "nightly", event_specific_data=data, step_key="step")
    entry = EventLogEntry(
        error_info=None, level=10, user_message="", run_id=_ID, timestamp=_AT,
        step_key="step", job_name="nightly", dagster_event=event,
    )  # fmt: skip
    return serialize_value(entry)


def _make_rows(run_id: str, at: float, market: str | None, job: str) -> Iterator[Any]:
    def make_row(kind: DagsterEventType, step: str | None, asset: str = "") -> tuple:
        text = _serialize_event(kind, asset, market if asset else None)
        text = text.replace(_ID, run_id).replace(str(_AT), str(at))
        key = f'["{asset}"]' if asset else None
        return run_id, text, kind.value, _format_time(at), step, key, market if asset else None

    for asset in ASSETS[:20] if market else ASSETS[20:] if job == "fan_in" else ():
        yield make_row(DagsterEventType.ASSET_MATERIALIZATION_PLANNED, None, asset)
        yield make_row(DagsterEventType.ASSET_MATERIALIZATION, None, asset)
    for _ in range(_STEPS):
        yield make_row(DagsterEventType.STEP_START, "step")


def _insert_events(database: sqlite3.Connection, rows: Sequence[Any]) -> None:
    database.executemany(
        "INSERT INTO event_logs (run_id, event, dagster_event_type, timestamp, step_key, asset_key,"
        " partition) VALUES (?, ?, ?, ?, ?, ?, ?)",
        rows,
    )


def _format_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


pytestmark = pytest.mark.slow
DAYS, STEP = 30, 25  # the day on which the clock goes back


@dataclass(frozen=True)
class Log:
    instance: dg.DagsterInstance
    folder: Path
    written: EventLog


@pytest.fixture(scope="module")
def open_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Log]]:
    with ExitStack() as held:

        def open_one(days: int, back: int | None = None) -> Log:
            folder = tmp_path_factory.mktemp(f"days{days}")
            instance = held.enter_context(dg.DagsterInstance.local_temp(str(folder)))
            written = EventLog(instance, folder)
            written.write_days(days, time.time() - HOUR, back=back)
            written.note_assets()
            return Log(instance, folder, written)

        yield open_one


@pytest.fixture(scope="module")
def month(open_log: Callable[..., Log]) -> Log:
    log = open_log(DAYS, STEP)
    assert len(log.written.runs) == DAYS * RUNS_A_DAY
    assert log.written.events > 20_000
    return log


@pytest.fixture(scope="module")
def day(open_log: Callable[..., Log]) -> Log:
    return open_log(1)


@dataclass
class Work:
    """What SQLite did: statements, and instructions of its virtual machine in hundreds, in which
    each row that it passes over counts."""

    statements: int = 0
    hundreds: int = 0


@contextmanager
def count_work() -> Iterator[Work]:
    done = Work()

    def step() -> int:
        done.hundreds += 1
        return 0

    def before(connection: Any, *_: Any) -> None:
        done.statements += 1
        connection.connection.dbapi_connection.set_progress_handler(step, 100)

    def after(connection: Any, *_: Any) -> None:
        connection.connection.dbapi_connection.set_progress_handler(None, 0)

    event.listen(Engine, "before_cursor_execute", before)
    event.listen(Engine, "after_cursor_execute", after)
    try:
        yield done
    finally:
        event.remove(Engine, "before_cursor_execute", before)
        event.remove(Engine, "after_cursor_execute", after)


def look_for_dead(log: Log) -> list[str]:
    return [run.thing for run in checks.list_dead_runs(log.instance, time.time())]


READERS: dict[str, Callable[[Log], Any]] = {
    "retrain_on_drift": lambda log: tick(log.instance),
    "alert_on_silence": lambda log: alerts.find_last_nightly(log.instance),
    "failed trainings": lambda log: count_failed_trainings(
        log.instance, {"toolmill/training_set": log.written.last_set}, 90
    ),
    "dead runs": lambda log: clear_dead_runs(log.instance),
    "doctor": look_for_dead,
    "runs that go on": lambda log: collect.find_oldest_start(log.folder / "none", log.instance),
}


def measure(read: Callable[[Log], Any], log: Log) -> Work:
    read(log)  # what is done once in a process
    with count_work() as done:
        read(log)
    return done


@pytest.mark.parametrize("name", READERS)
def test_who_looks_at_runs_reads_no_more_of_a_month_than_of_a_day(name, day, month, home):
    publish(home, {"a": "1", "b": "1", "c": "1"})
    one, many = (measure(READERS[name], log) for log in (day, month))
    assert one.statements
    assert many.statements == one.statements
    assert many.hundreds <= one.hundreds + 10, "of 330 runs and 20,000 events"


def test_a_collection_asks_once_an_asset_and_passes_over_each_of_its_events_once(day, month):
    one, many = (
        measure(lambda log: collect.collect_last_runs(log.instance), log) for log in (day, month)
    )
    assert many.statements == one.statements
    assert many.hundreds > one.hundreds, "it is counted"
    assert many.hundreds * 100 <= 10 * month.written.events, f"{one}, {many}"


def test_it_asks_for_a_training_in_a_month_whose_clock_went_back(month, home):
    name = publish(home, {"a": "1", "b": "1", "c": "1"})
    [request] = tick(month.instance)
    assert isinstance(request, dg.RunRequest)
    assert request.run_key.startswith(f"{name}/{recipe()}/0/")
    assert count_failed_trainings(month.instance, {collect.SET_TAG: month.written.last_set}, 90) > 0
    assert clear_dead_runs(month.instance) == look_for_dead(month) == []


def test_the_heartbeat_is_that_of_the_last_run_also_where_an_earlier_one_is_stamped_later(
    open_log,
    hook,  # noqa: F811
    monkeypatch,
):
    log = open_log(1, back=0)
    nightly = log.written.runs[: len(MARKETS)]
    [*_, (_, last)] = nightly
    assert last < max(at for _, at in nightly), "the clock went back between them"
    assert alerts.find_last_nightly(log.instance) == pytest.approx(last, abs=0.01)
    cursor: str | None = ""
    for after_h, told in ((0, 0), (25.9, 0), (26.1, 1), (27, 1), (50, 1)):
        monkeypatch.setattr(alerts.time, "time", lambda at=last + after_h * HOUR: at)
        result = alerts.alert_on_silence(dg.build_sensor_context(log.instance, cursor=cursor))
        cursor = result.cursor if isinstance(result, dg.SensorResult) else cursor
        assert len(hook.taken) == told, f"{after_h} hours after it"


def count_events(log: Log) -> int:
    with closing(sqlite3.connect(log.folder / "history" / "runs" / "index.db")) as index:
        return index.execute("SELECT count(*) FROM event_logs").fetchone()[0]


def list_last_versions(log: Log) -> dict[str, Any]:
    kind, storage = dg.DagsterEventType.ASSET_MATERIALIZATION, log.instance.event_log_storage
    return {
        name: storage.get_latest_storage_id_by_partition(dg.AssetKey(name), kind) for name in ASSETS
    }


def test_gc_bounds_the_log_keeps_each_last_word_and_a_run_that_goes_on(open_log, home):
    log = open_log(DAYS, STEP)
    warehouse = Warehouse(home=home, state=home / "state")
    warehouse.ledger.open_run("a test")
    alive = started(log.instance, make_process_tags())
    before, versions = count_events(log), list_last_versions(log)
    keep = policy.GarbageLimits(grace_days=1, event_days=7)
    place = collect.GarbageScope(
        home, warehouse.state, keep=keep, releases=RetentionPolicy(), now=time.time(),
        instance=log.instance,
    )  # fmt: skip
    garbage = collect.find_garbage(place)
    gone = collect.remove_garbage(garbage)
    assert not garbage.skipped | garbage.failed
    assert {item.kind for item in gone} == {"events"}
    left = {run.run_id for run in log.instance.get_runs()} - {alive.run_id}
    began = dict(log.written.runs)
    # By when they ended on the clock of then: the hour that it went back blurs the week.
    assert {name for name, at in began.items() if at > place.now - 7 * DAY + HOUR} <= left
    assert all(began[name] > place.now - 7 * DAY - 2 * HOUR for name in left)
    files = {path.stem for path in (log.folder / "history" / "runs").glob("*.db")}
    assert files & began.keys() == left
    assert count_events(log) <= before * 8 / DAYS
    assert list_last_versions(log) == versions
    assert log.instance.get_run_by_id(alive.run_id)
    assert collect.find_garbage(place).garbage == []
