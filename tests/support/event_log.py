"""An event log of many days, written straight into Dagster's SQLite files: a run is a few rows."""

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import dagster as dg
from dagster._core.events import (
    AssetMaterializationPlannedData,
    DagsterEvent,
    DagsterEventType,
    StepMaterializationData,
)
from dagster._core.events.log import EventLogEntry
from dagster._serdes import serialize_value

DAY, HOUR = 86_400.0, 3_600.0
ASSETS = [f"asset_{n:02}" for n in range(30)]
MARKETS = [f"market_{n}" for n in range(9)]
RUNS_A_DAY = len(MARKETS) + 2  # a nightly one each, their fan-in, and a training that failed
_STEPS = 40  # events of a run that are of no asset
_ID, _AT, _ASSET, _MARKET = "a-run", 1_234_567_890.125, "an_asset", "a_market"  # in the templates


class EventLog:
    """Writes runs into the storage of an instance in a folder, in the order in which they began.

    runs: (id, when it began by the clock of then, in epoch seconds); events: rows in all files.
    """

    def __init__(self, instance: dg.DagsterInstance, folder: Path) -> None:
        storage: Any = instance.event_log_storage
        self._events = Path(storage.path_for_shard("index"))
        self._shard = folder / "shard.db"
        storage.get_logs_for_run(_ID)  # makes the file of a run
        Path(storage.path_for_shard(_ID)).replace(self._shard)
        self._runs = Path(folder) / "history" / "runs.db"
        self._storage = storage
        result = {}
        for market in (_MARKET, None):
            key = dg.AssetKey(_ASSET)
            materialization = dg.AssetMaterialization(key, partition=market, metadata={"rows": 1})
            data: dict[DagsterEventType, Any] = {
                DagsterEventType.ASSET_MATERIALIZATION: StepMaterializationData(materialization),
                DagsterEventType.ASSET_MATERIALIZATION_PLANNED: AssetMaterializationPlannedData(
                    key, partition=market
                ),
                DagsterEventType.STEP_START: None,
            }
            for kind, what in data.items():
                event = DagsterEvent(
                    kind.value, "nightly", event_specific_data=what, step_key="step"
                )
                entry = EventLogEntry(
                    error_info=None, level=10, user_message="", run_id=_ID, timestamp=_AT,
                    step_key="step", job_name="nightly", dagster_event=event,
                )  # fmt: skip
                result[kind, market is not None] = serialize_value(entry)
        self._kinds = result
        self.runs: list[tuple[str, float]] = []
        self.events = 0
        self.last_set = ""  # the training set of the last training

    def write_days(self, days: int, end: float, *, back: int | None = None) -> None:
        """Days of runs, ten minutes apart, the last of which begins at `end`. back: the day of the
        log (from 0) whose later runs have an hour less on the clock than those before."""
        with closing(sqlite3.connect(self._runs)) as runs:
            with closing(sqlite3.connect(self._events)) as index:
                for number in range(days * RUNS_A_DAY):
                    day, turn = divmod(number, RUNS_A_DAY)
                    at = end - (days - 1 - day) * DAY - (RUNS_A_DAY - 1 - turn) * HOUR / 6
                    if day == back and turn >= RUNS_A_DAY // 2:
                        at -= HOUR
                    self._write_run(runs, index, number, turn, at)
                index.commit()
            runs.commit()

    def _write_run(
        self, runs: sqlite3.Connection, index: sqlite3.Connection, number: int, turn: int, at: float
    ) -> None:
        run_id = str(UUID(int=number + 1, version=4))
        nightly = turn < len(MARKETS)
        job = "nightly" if nightly else "fan_in" if turn == len(MARKETS) else "train"
        self.last_set = f"set {number // (5 * RUNS_A_DAY)}"
        tags = {"toolmill/training_set": self.last_set} if job == "train" else {}
        tags |= {"dagster/partition": MARKETS[turn]} if nightly else {}
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
        rows = list(self._make_rows(run_id, at, MARKETS[turn] if nightly else None, job))
        _insert_events(index, [row for row in rows if row[5] is not None])
        shard = self._events.with_name(f"{run_id}.db")
        shutil.copyfile(self._shard, shard)
        with closing(sqlite3.connect(shard)) as own:
            own.execute("PRAGMA synchronous=OFF")
            _insert_events(own, rows)
            own.commit()
        self.runs.append((run_id, at))
        self.events += len(rows)

    def _make_rows(self, run_id: str, at: float, market: str | None, job: str) -> Iterator[Any]:
        began = _format_time(at)
        assets = ASSETS[:20] if market else ASSETS[20:] if job == "fan_in" else ()
        for asset in assets:
            for kind in (
                DagsterEventType.ASSET_MATERIALIZATION_PLANNED,
                DagsterEventType.ASSET_MATERIALIZATION,
            ):
                text = self._kinds[kind, market is not None]
                for old, new in ((_ID, run_id), (str(_AT), str(at)), (_ASSET, asset)):
                    text = text.replace(old, new)
                text = text.replace(_MARKET, market or "")
                yield run_id, text, kind.value, began, None, f'["{asset}"]', market
        text = self._kinds[DagsterEventType.STEP_START, False].replace(_ID, run_id)
        for _ in range(_STEPS):
            yield run_id, text, DagsterEventType.STEP_START.value, began, "step", None, None

    def note_assets(self) -> None:
        """What Dagster keeps of each asset beside its events: its last run."""
        with closing(sqlite3.connect(self._events)) as index:
            last = index.execute(
                "SELECT asset_key, run_id, max(id), timestamp FROM event_logs"
                " WHERE dagster_event_type = 'ASSET_MATERIALIZATION' GROUP BY asset_key"
            ).fetchall()
            index.executemany(
                "INSERT INTO asset_keys (asset_key, last_run_id, last_materialization_timestamp)"
                " VALUES (?, ?, ?)",
                [(key, run_id, at) for key, run_id, _, at in last],
            )
            index.commit()


def _insert_events(database: sqlite3.Connection, rows: Sequence[Any]) -> None:
    database.executemany(
        "INSERT INTO event_logs (run_id, event, dagster_event_type, timestamp, step_key, asset_key,"
        " partition) VALUES (?, ?, ?, ?, ?, ?, ?)",
        rows,
    )


def _format_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
