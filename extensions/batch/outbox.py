"""The requests of one run that go by batch: gathered under their keys, then sent together."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from extensions.batch.batch_endpoint import (
    INVALID,
    REJECTED,
    BatchEndpoint,
    BatchStatus,
    list_kinds,
    make_line,
)
from extensions.batch.batch_ledger import BatchLedger
from warehouse.ledger.attempts import EffectPending
from warehouse.ledger.batch_records import READY, SENT, BatchRecord
from warehouse.ledger.ledger import Ledger
from warehouse.llm.roles import AnswerPending, LLMError, NoAnswer, PreparedRequest, Role
from warehouse.storage.blobs import BlobCorrupt

# A provider's list may lag behind what it created; before that time a batch whose creation was
# asked for, and that is not in the list, is not created again.
SETTLE_S = 300.0


def send_batch(
    ledger: Ledger, batch: BatchRecord, endpoint: BatchEndpoint, settle_s: float = SETTLE_S
) -> BatchRecord:
    """The batch after a try to send it, held by the caller (`Batches.hold`); `problem` says what
    kept it back. Before a second try the provider is asked for it, so nothing is sent twice."""
    try:
        if batch.tried_at:
            matches = endpoint.find(batch.name, batch.opened_at)
            for twin in matches[1:]:
                endpoint.cancel(twin.id)
            if matches:
                return note_sent(ledger, batch, matches[0])
            if (left := batch.tried_at + settle_s - time.time()) > 0:
                return _note_problem(
                    ledger, batch, f"not in the provider's list yet; tried again in {left:.0f} s"
                )
        if not batch.file_id:
            file_id = endpoint.upload(batch.name, ledger.blobs.get(batch.blob))
            batch = BatchLedger(ledger).update(batch, file_id=file_id)
        batch = BatchLedger(ledger).update(batch, tried_at=time.time())
        return note_sent(ledger, batch, endpoint.create(batch))
    except NoAnswer as error:
        return _note_problem(ledger, batch, str(error))
    except (KeyError, BlobCorrupt):
        lost = f"its file of requests is lost: run `toolmill batch --cancel {batch.name}`"
        return _note_problem(ledger, batch, lost)
    except LLMError as error:
        # The provider says no: nothing was created, and the file may be one it no longer has.
        return _note_problem(ledger, batch, str(error), tried_at=0.0, file_id="")


def note_sent(ledger: Ledger, batch: BatchRecord, status: BatchStatus) -> BatchRecord:
    facts = {"batch_id": status.id, "status": status.status, "sent_at": time.time()}
    return BatchLedger(ledger).update(batch, state=SENT, problem="", **facts)


def _note_problem(ledger: Ledger, batch: BatchRecord, problem: str, **facts: object) -> BatchRecord:
    return BatchLedger(ledger).update(batch, problem=problem[:500], **facts)


_MOST_REQUESTS = 50_000  # of one batch, as the provider's API takes them
_MOST_BYTES = 200_000_000  # of one batch's file
_WINDOW = "24h"  # in which a batch is answered
_SECONDS = {"h": 3600.0, "d": 86_400.0}


@dataclass
class _OpenBatch:
    batch: BatchRecord
    lines: list[bytes] = field(default_factory=list)
    size: int = 0


class BatchOutbox:
    """What one run puts into batches. `stage` names the run's part in the batches' records."""

    def __init__(
        self,
        ledger: Ledger,
        stage: str,
        *,
        partition: str,
        scope: str,
        connect: Callable[[Role], BatchEndpoint] = BatchEndpoint,
    ) -> None:
        self._ledger, self._batches, self._stage = ledger, BatchLedger(ledger), stage
        self._partition, self._scope, self._connect = partition, scope, connect
        self._open: dict[str, _OpenBatch] = {}  # by role
        self._full: list[_OpenBatch] = []
        self._roles: dict[str, Role] = {}
        self._windows: dict[str, float] = {}  # of batches that hold what is asked for again
        self._dropped: dict[str, list[str]] = {}

    def queue(self, prepared: PreparedRequest) -> None:
        """Puts a request into a batch and raises Pending, or returns if it is to be asked directly.
        Raises BudgetExceeded, or LLMError after `attempts` batches."""
        role = prepared.request.role
        self._roles[role.name] = role
        if not _is_batched(role, list_kinds(self._batches.list_failures(prepared.key))):
            return
        line = make_line(prepared, self._list_dropped(role))
        if len(line) > _MOST_BYTES:
            return
        try:
            self._claim(prepared, line)
        except EffectPending as pending:
            self._raise_pending(role, str(pending))

    def submit(self) -> list[BatchRecord]:
        """Sends what was gathered, and what earlier runs of these roles left unsent. Nothing is
        raised for an endpoint: `problem` of a batch says what kept it back."""
        for open_batch in [*self._full, *self._open.values()]:
            self._close_file(open_batch)
        self._full, self._open = [], {}
        unsent = [
            batch for batch in self._batches.find(READY)
            if (role := self._roles.get(batch.role)) and (role.base_url or "") == batch.base_url
        ]  # fmt: skip
        return [self._send(batch, self._roles[batch.role]) for batch in unsent]

    def drop(self) -> None:
        for open_batch in [*self._full, *self._open.values()]:
            self._batches.drop(open_batch.batch, "the run ended before it was sent")
        self._full, self._open = [], {}

    def _claim(self, prepared: PreparedRequest, line: bytes) -> None:
        role = prepared.request.role
        # Looked at before a batch is opened for it: a run that only waits opens none.
        if holder := self._batches.find_holder(prepared.key):
            raise EffectPending(holder)
        gathered = self._open.get(role.name)
        if gathered and (
            len(gathered.lines) >= _MOST_REQUESTS or gathered.size + len(line) > _MOST_BYTES
        ):
            self._full.append(self._open.pop(role.name))
            gathered = None
        if gathered is None:
            gathered = self._open[role.name] = _OpenBatch(self._open_batch(role))
        stage = f"llm:{role.name}"
        reserve = prepared.most_usd * role.batch_price
        answer = self._batches.claim(
            gathered.batch, stage, prepared.key, reserve_usd=reserve, scope=self._scope
        )
        if answer is None:
            gathered.lines.append(line)
            gathered.size += len(line)
            self._raise_pending(role, gathered.batch.name)

    def _open_batch(self, role: Role) -> BatchRecord:
        return self._batches.open(
            f"tm-{secrets.token_hex(8)}",
            stage=self._stage,
            partition=self._partition,
            role=role.name,
            model=role.model,
            base_url=role.base_url or "",
            window=_WINDOW,
            usd_in=role.usd_in * role.batch_price,
            usd_out=role.usd_out * role.batch_price,
            dropped=self._list_dropped(role),
        )

    def _list_dropped(self, role: Role) -> list[str]:
        """The optional parameters that this model refused in batches before."""
        if role.name not in self._dropped:
            earlier = [
                batch for batch in self._batches.find()
                if (batch.base_url, batch.model) == (role.base_url or "", role.model)
            ]  # fmt: skip
            self._dropped[role.name] = sorted(
                {name for batch in earlier for name in (*batch.dropped, *batch.refused)}
            )
        return self._dropped[role.name]

    def _close_file(self, open_batch: _OpenBatch) -> None:
        if not open_batch.lines:
            self._batches.drop(open_batch.batch, "nothing was gathered for it")
            return
        blob = self._ledger.blobs.put(b"".join(open_batch.lines))
        facts = {"state": READY, "blob": blob, "requests": len(open_batch.lines)}
        self._batches.save(open_batch.batch.model_copy(update=facts))
        open_batch.lines.clear()

    def _send(self, batch: BatchRecord, role: Role) -> BatchRecord:
        with self._batches.hold(batch.name) as now:
            if now is None or now.state != READY:
                return now or batch
            endpoint = self._connect(role)
            try:
                return send_batch(self._ledger, now, endpoint)
            finally:
                endpoint.close()

    def _raise_pending(self, role: Role, name: str) -> NoReturn:
        if name not in self._windows:
            batch = self._batches.read(name) if name else None
            self._windows[name] = find_window_end(batch) if batch else 0.0
        # No name and no time in it: the row that says so stays the same row while it waits.
        problem = f"its request in a batch of role {role.name}"
        hint = "toolmill batch --harvest keeps what was answered; the next run goes on from there"
        raise AnswerPending(problem, hint, self._windows[name])


def find_window_end(batch: BatchRecord) -> float:
    """When the batch should be answered at the latest, in epoch seconds."""
    number, unit = batch.window[:-1], batch.window[-1]
    return (batch.sent_at or batch.opened_at) + int(number) * _SECONDS[unit]


_AGAIN = ("timeout", "rate_limited", "server_error")  # kinds that another batch may cure
_OF_THE_FILE = (REJECTED, INVALID)  # so many requests share them that none is asked directly


def _is_batched(role: Role, failures: list[str]) -> bool:
    """Whether a request that failed so goes by batch again. Raises LLMError if it may not go."""
    if not failures:
        return True
    last, spent = failures[-1], len(failures) >= role.attempts
    if last in _OF_THE_FILE and spent:
        hint = f"toolmill batch says why; batch = false for {role.name} asks directly"
        raise LLMError("bad_request", f"no answer in {len(failures)} batches", "an answer", hint)
    return last in _OF_THE_FILE or (last in _AGAIN and not spent)
