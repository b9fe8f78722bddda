"""The sensor that polls batches of model requests, and asks for the runs that they serve."""

import json
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import dagster as dg

from assets.partitions import NIGHTLY
from extensions.batch.batch_ledger import BatchLedger
from extensions.batch.harvest import advance_open, list_open
from orchestration.factories import make_writer, open_warehouse
from orchestration.settings.load import load_settings
from warehouse.ledger.batch_records import HARVESTED, OPEN, BatchRecord
from warehouse.storage.digest import digest

_MOST_POLLED = 20  # batches in one tick
_FIRST_WAIT_S, _LONGEST_WAIT_S = 60.0, 900.0
_REMEMBERED_S = 7 * 86_400.0  # for so long an answered batch may still ask for its run
# Part of a run, as a batch names it -> the job, and the assets of it, that its answers serve.
_SERVES = {
    "pairs": ("nightly", NIGHTLY[NIGHTLY.index("pairs") :]),
    "judgements": ("nightly", NIGHTLY[NIGHTLY.index("judgements") :]),
    "summaries": ("fan_in", ("server_summaries",)),
}


@dataclass
class PollCursor:
    """What the sensor remembers. polls: batch -> (epoch seconds of the next poll, seconds to wait
    after it); asked: answered batches whose run was asked for."""

    polls: dict[str, tuple[float, float]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


def read_cursor(text: str | None) -> PollCursor:
    """The cursor as `write_cursor` wrote it; an empty one where it cannot be read."""
    try:
        body = json.loads(text or "{}")
        polls = {str(name): (float(at), float(wait)) for name, (at, wait) in body["polls"].items()}
        return PollCursor(polls, [str(name) for name in body["asked"]])
    except (ValueError, KeyError, TypeError, AttributeError):
        return PollCursor()


def write_cursor(cursor: PollCursor) -> str:
    return json.dumps(asdict(cursor))


def choose_due(open_: Iterable[BatchRecord], cursor: PollCursor, now: float) -> list[str]:
    """The batches to poll now, those that waited longest first, at most twenty."""
    due = [(cursor.polls.get(batch.name, (0.0, 0.0))[0], batch.name) for batch in open_]
    return [name for at, name in sorted(due) if at <= now][:_MOST_POLLED]


def note_polls(
    cursor: PollCursor, polled: Iterable[str], open_: Iterable[BatchRecord], now: float
) -> None:
    """Doubles the wait of what was polled and is still open; forgets what has ended."""
    polled, left = set(polled), {batch.name for batch in open_}
    for name in polled & left:
        wait = min(cursor.polls.get(name, (0.0, _FIRST_WAIT_S))[1], _LONGEST_WAIT_S)
        cursor.polls[name] = (now + wait, 2 * wait)
    cursor.polls = {name: poll for name, poll in cursor.polls.items() if name in left}


def request_runs(
    batches: Iterable[BatchRecord], cursor: PollCursor, now: float
) -> list[dg.RunRequest]:
    """One run for each part of a marketplace with batches answered since the last tick. A batch
    without any answer asks for none: its requests go again with the next due run."""
    recent = [batch for batch in batches if batch.opened_at > now - _REMEMBERED_S]
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in recent:
        answered = one.state == HARVESTED and one.answered > 0
        if answered and one.stage in _SERVES and one.name not in cursor.asked:
            groups[(one.stage, one.partition)].append(one.name)
    cursor.asked = [item.name for item in recent if item.state not in OPEN]
    return [
        dg.RunRequest(
            run_key=f"batch/{stage}/{partition}/{digest(sorted(names))[:16]}",
            job_name=_SERVES[stage][0],
            partition_key=partition if _SERVES[stage][0] == "nightly" else None,
            asset_selection=[dg.AssetKey(name) for name in _SERVES[stage][1]],
            tags={"toolmill/batches": str(len(names))},
        )
        for (stage, partition), names in sorted(groups.items())
    ]


def build_sensors(jobs: Iterable[Any]) -> list[dg.SensorDefinition]:
    served = {job for job, _ in _SERVES.values()}

    @dg.sensor(
        name="harvest_batches",
        jobs=[job for job in jobs if job.name in served],
        minimum_interval_seconds=60,
        description="Polls the Batch API, keeps its answers, and asks for the runs they serve.",
    )
    def harvest_batches(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return run_tick(context.cursor)

    return [harvest_batches]


def run_tick(text: str | None) -> dg.SensorResult:
    settings = load_settings()
    ledger = open_warehouse(settings).ledger
    cursor, now = read_cursor(text), time.time()
    roles = {role.name: role for role in make_writer(settings).roles}
    due = choose_due(list_open(ledger), cursor, now)
    advanced = advance_open(ledger, roles, due)
    note_polls(cursor, due, list_open(ledger), now)
    requests = request_runs(BatchLedger(ledger).find(), cursor, now)
    problems = [f"{batch.name}: {batch.problem}" for batch in advanced if batch.problem]
    skip = "; ".join(problems)[:1000] or f"{len(list_open(ledger))} batches are open"
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else dg.SkipReason(skip),
        cursor=write_cursor(cursor),
    )
