"""Harvesting a batch: asking how far it is, and its results into the ledger, each once.

sent -> polled -> files read line by line -> answers paid, errors ended, the rest released
"""

import time
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from extensions.batch.batch_endpoint import (
    CANCELLED,
    ENDED,
    INVALID,
    UNREADABLE,
    BatchEndpoint,
    BatchStatus,
    RequestResult,
    describe_failure,
    read_limits,
    read_result,
    split_lines,
)
from extensions.batch.batch_ledger import BatchLedger
from extensions.batch.outbox import SETTLE_S, find_window_end, send_batch
from warehouse.errors import UnusableInput
from warehouse.ledger.attempts import EffectAttempt, EffectOutcome
from warehouse.ledger.batch_records import GIVEN_UP, HARVESTED, READY, SENT, BatchRecord
from warehouse.ledger.ledger import Ledger
from warehouse.llm.paid_calls import make_outcome
from warehouse.llm.roles import LLMError, Role
from warehouse.storage.blobs import BlobCorrupt

MOST_READS = 5  # of results that come to less than the provider counts
_OVERDUE_S = 3600.0  # past its window; providers end a batch at its window by themselves
_PASSING = ("token_limit_exceeded", "rate_limit_exceeded", "quota")


@dataclass
class _ResultTally:
    seen: set[str] = field(default_factory=set)
    answered: int = 0
    unreadable: int = 0
    ignored: int = 0
    torn: int = 0
    refused: set[str] = field(default_factory=set)
    broken: str = ""  # why a file could not be read to its end


def advance_batch(
    ledger: Ledger, name: str, role: Role, endpoint: BatchEndpoint, settle_s: float = SETTLE_S
) -> BatchRecord | None:
    """A batch after one step (sent, polled or harvested); None where another process is at it.
    Nothing is raised for its endpoint: `problem` says what kept it back."""
    with BatchLedger(ledger).hold(name) as batch:
        if batch is None or batch.state not in (READY, SENT):
            return batch
        if (role.base_url or "") != batch.base_url:
            problem = f"it is at {batch.base_url or 'the default endpoint'}, but role {role.name}"
            problem += f" names {role.base_url or 'the default endpoint'}: set base_url back"
            return BatchLedger(ledger).update(batch, problem=problem)
        if batch.state == READY:
            return send_batch(ledger, batch, endpoint, settle_s)
        try:
            status = endpoint.retrieve(batch.batch_id)
        except LLMError as error:
            return BatchLedger(ledger).update(batch, problem=_describe_loss(batch, error))
        if status.status not in ENDED:
            return BatchLedger(ledger).update(
                batch, status=status.status, problem=_find_delay(batch, status)
            )
        return _collect_results(ledger, batch, role, endpoint, status)


def cancel_batch(
    ledger: Ledger, name: str, endpoint: BatchEndpoint, *, give_up: bool = False
) -> BatchRecord | None:
    """Asks the provider to end a batch, whose answers so far are harvested. give_up: waits for none
    and keeps reservations as unknown. None where another process is at it. Raises LLMError."""
    with BatchLedger(ledger).hold(name) as batch:
        if batch is None or batch.state not in (READY, SENT):
            return batch
        if give_up:
            waiting = BatchLedger(ledger).list_waiting(batch.name).values()
            error = describe_failure(CANCELLED, "given up while it was under way")
            BatchLedger(ledger).end([(attempt, error) for attempt in waiting], "unknown")
            return _end_batch(ledger, batch, GIVEN_UP)
        if batch.state == READY:
            matches = endpoint.find(name, batch.opened_at) if batch.tried_at else []
            if not matches and batch.tried_at:
                wait = "creation was asked for and nothing is in the provider's list"
                hint = "cancel again in some minutes, or with --give-up"
                raise LLMError("not_found", wait, "a batch to cancel", hint)
            if not matches:
                BatchLedger(ledger).drop(batch, "cancelled before it was sent")
                return BatchLedger(ledger).read(name)
            batch = BatchLedger(ledger).update(
                batch, state=SENT, batch_id=matches[0].id, sent_at=time.time()
            )
        return BatchLedger(ledger).update(batch, status=endpoint.cancel(batch.batch_id).status)


def _collect_results(
    ledger: Ledger, batch: BatchRecord, role: Role, endpoint: BatchEndpoint, status: BatchStatus
) -> BatchRecord:
    batch = batch.model_copy(update={"status": status.status, "completed_at": status.ended_at})
    if status.status == "failed" and not status.files:
        return _end_invalid(ledger, batch, status)
    limits, tally = _read_own_limits(ledger, batch), _ResultTally()
    for file_id in status.files:
        results = _iterate_results(batch, role, endpoint, file_id, limits, tally)
        _keep_results(ledger, batch, limits, results)
    batch = batch.model_copy(
        update={"ignored": tally.ignored, "refused": sorted({*batch.refused, *tally.refused})}
    )
    waiting = list(BatchLedger(ledger).list_waiting(batch.name).values())
    short = status.completed - tally.answered - tally.unreadable
    cut = bool(tally.broken or tally.torn or short - tally.ignored > 0)
    if waiting and cut and batch.reads + 1 < MOST_READS:
        problem = f"{len(waiting)} of {batch.requests} results are missing"
        problem += f" ({tally.broken or f'{tally.torn} torn lines'}); read again"
        return BatchLedger(ledger).update(batch, reads=batch.reads + 1, problem=problem)
    # What the provider counts as completed and did not deliver was paid for, perhaps.
    lost = short > 0 or cut
    kind = {"expired": "timeout", "cancelled": CANCELLED}.get(status.status, "server_error")
    error = describe_failure(kind, f"the batch {status.status} without a result for it")
    BatchLedger(ledger).end(
        [(attempt, error) for attempt in waiting], "unknown" if lost else "failed"
    )
    # One line about what was not as it should be; "" where all was
    missing = len(waiting)
    problems = [
        f"{missing} without a result, {'perhaps paid' if lost else 'due again'}" if missing else "",
        f"{tally.ignored} results under other ids, or twice" if tally.ignored else "",
        f"{tally.unreadable} results that cannot be read" if tally.unreadable else "",
        f"refused: {', '.join(sorted(tally.refused))}" if tally.refused else "",
        tally.broken,
    ]
    return _end_batch(ledger, batch, HARVESTED, "; ".join(filter(None, problems)))


def _keep_results(
    ledger: Ledger, batch: BatchRecord, limits: Mapping[str, int], results: Iterable[RequestResult]
) -> None:
    """Keeps a file's results, answers in transactions of many; also those before it broke off."""
    waiting = BatchLedger(ledger).list_waiting(batch.name)
    ended: dict[str, list[tuple[EffectAttempt, str]]] = {"failed": [], "unknown": []}

    def select_answers() -> Iterator[tuple[EffectAttempt, EffectOutcome]]:
        for result in results:
            attempt = waiting.get(result.key)
            if attempt is None:
                continue  # kept by a harvest that was cut off after it
            if result.completion is None:
                status = "unknown" if result.kind == UNREADABLE else "failed"
                ended[status].append((attempt, result.error))
                continue
            completion = replace(result.completion, limit=limits[result.key])
            yield attempt, make_outcome(vars(completion), batch)

    BatchLedger(ledger).finish(select_answers())
    for status, rows in ended.items():
        BatchLedger(ledger).end(rows, status)


def _iterate_results(
    batch: BatchRecord,
    role: Role,
    endpoint: BatchEndpoint,
    file_id: str,
    batch_keys: Container[str],
    tally: _ResultTally,
) -> Iterator[RequestResult]:
    """The results of one file that are this batch's, each key once; the rest is counted."""
    batch_role = replace(role, model=batch.model)
    try:
        for line in split_lines(endpoint.download(file_id)):
            result = read_result(line, batch_role, batch.dropped) if line is not None else None
            if result is None:
                tally.torn += 1
            elif result.key not in batch_keys or result.key in tally.seen:
                tally.ignored += 1
            else:
                tally.seen.add(result.key)
                tally.answered += result.completion is not None
                tally.unreadable += result.kind == UNREADABLE
                tally.refused |= {result.refused} - {""}
                yield result
    except LLMError as error:
        tally.broken = f"{error.kind}: {error.found}"[:300]


def _read_own_limits(ledger: Ledger, batch: BatchRecord) -> dict[str, int]:
    """Key -> limit, of the batch's own file; where that is lost, the keys that wait alone."""
    try:
        return read_limits(ledger.blobs.get(batch.blob))
    except (KeyError, ValueError, BlobCorrupt):
        return dict.fromkeys(BatchLedger(ledger).list_waiting(batch.name), 0)


def _end_invalid(ledger: Ledger, batch: BatchRecord, status: BatchStatus) -> BatchRecord:
    """A refused file is not paid. A line that it names is at fault alone; others go again."""
    first = "; ".join(f"{code}: {message}" for code, message, _ in status.errors[:3]) or "no reason"
    passing = any(word in first for word in _PASSING)
    line_errors = {line: f"{code}: {message}" for code, message, line in status.errors if line}
    keys = list(_read_own_limits(ledger, batch)) if line_errors else []
    at_fault = {keys[line - 1]: why for line, why in line_errors.items() if 0 < line <= len(keys)}
    kind = CANCELLED if passing or at_fault else INVALID  # the first says nothing about a request
    ended = [
        (attempt, describe_failure("bad_request", at_fault[key]))
        if key in at_fault
        else (attempt, describe_failure(kind, first))
        for key, attempt in BatchLedger(ledger).list_waiting(batch.name).items()
    ]
    BatchLedger(ledger).end(ended, "failed")
    return _end_batch(ledger, batch, HARVESTED, f"the provider refused the file: {first}")


def _end_batch(ledger: Ledger, batch: BatchRecord, state: str, problem: str = "") -> BatchRecord:
    totals = BatchLedger(ledger).count(batch.name)
    return BatchLedger(ledger).update(batch, state=state, problem=problem, **totals)


def _find_delay(batch: BatchRecord, status: BatchStatus) -> str:
    late = time.time() - find_window_end(batch)
    if late < _OVERDUE_S:
        return ""
    return (
        f"still {status.status} {late / 3600:.0f} h after its window of {batch.window}:"
        f" toolmill batch --cancel {batch.name}, and with --give-up where that does not end it"
    )


def _describe_loss(batch: BatchRecord, error: LLMError) -> str:
    if error.kind != "not_found":
        return str(error)[:500]
    return (
        f"the provider knows no batch {batch.batch_id}: look at base_url and api_key of role"
        f" {batch.role}, or let go of it with toolmill batch --cancel {batch.name} --give-up"
    )


def list_open(ledger: Ledger) -> list[BatchRecord]:
    return BatchLedger(ledger).find(READY, SENT)


def advance_open(
    ledger: Ledger, roles: Mapping[str, Role], only: Collection[str] | None = None
) -> list[BatchRecord]:
    """The open batches (of these names) after a step; those at other processes are left out."""
    endpoints: dict[str, BatchEndpoint] = {}
    advanced = []
    try:
        for batch in list_open(ledger):
            if only is None or batch.name in only:
                role = roles.get(batch.role) or Role(name=batch.role)
                endpoint = endpoints.setdefault(role.name, BatchEndpoint(role))
                advanced.append(advance_batch(ledger, batch.name, role, endpoint))
    finally:
        for endpoint in endpoints.values():
            endpoint.close()
    return [batch for batch in advanced if batch is not None]


def cancel_open(
    ledger: Ledger, roles: Mapping[str, Role], name: str, *, give_up: bool = False
) -> BatchRecord:
    """The open batch of that name, cancelled (`cancel_batch`). Raises UnusableInput, LLMError."""
    batch = BatchLedger(ledger).read(name)
    if batch is None:
        open_names = ", ".join(item.name for item in list_open(ledger)) or "none"
        raise UnusableInput(f"batch {name[:60]!r} is not known; open: {open_names}")
    endpoint = BatchEndpoint(roles.get(batch.role) or Role(name=batch.role))
    try:
        cancelled = cancel_batch(ledger, name, endpoint, give_up=give_up)
    finally:
        endpoint.close()
    if cancelled is None:
        hint = "wait for it to end, and cancel again"
        raise LLMError("busy", f"another process at batch {name}", "nobody at it", hint)
    return cancelled
