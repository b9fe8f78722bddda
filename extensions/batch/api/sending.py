"""Sending a batch once: its file, then the batch, found again by its name where a try was cut off.

ready -> file uploaded -> tried -> sent
"""

import time

from extensions.batch.api.provider import BatchEndpoint, Status
from warehouse.ledger.batch_records import SENT, Batch
from warehouse.ledger.ledger import Ledger
from warehouse.llm.roles import LLMError, Unanswered
from warehouse.storage.blobs import BlobCorrupt

# A provider's list may lag behind what it created; before that time a batch whose creation was
# asked for, and that is not in the list, is not created again.
SETTLE_S = 300.0


def send_batch(
    ledger: Ledger, batch: Batch, endpoint: BatchEndpoint, settle_s: float = SETTLE_S
) -> Batch:
    """The batch after a try to send it; `problem` says what kept it back, and the next try goes on.

    The caller holds it (`Batches.hold`). Nothing is sent twice: before a second try the provider is
    asked for a batch of this name.
    """
    try:
        if batch.tried_at:
            found = endpoint.find(batch.name, batch.opened_at)
            for twin in found[1:]:
                endpoint.cancel(twin.id)
            if found:
                return note_sent(ledger, batch, found[0])
            if (left := batch.tried_at + settle_s - time.time()) > 0:
                return _note_problem(
                    ledger, batch, f"not in the provider's list yet; tried again in {left:.0f} s"
                )
        if not batch.file_id:
            batch = _send_file(ledger, batch, endpoint)
        batch = ledger.batches.update(batch, tried_at=time.time())
        return note_sent(ledger, batch, endpoint.create(batch))
    except Unanswered as error:
        return _note_problem(ledger, batch, str(error))
    except (KeyError, BlobCorrupt):
        lost = f"its file of requests is lost: `toolmill batch cancel {batch.name}` makes them due"
        return _note_problem(ledger, batch, lost)
    except LLMError as error:
        # The provider says no: nothing was created, and the file may be one it no longer has.
        return _note_problem(ledger, batch, str(error), tried_at=0.0, file_id="")


def _send_file(ledger: Ledger, batch: Batch, endpoint: BatchEndpoint) -> Batch:
    data = ledger.blobs.get(batch.blob)
    return ledger.batches.update(batch, file_id=endpoint.upload(batch.name, data))


def note_sent(ledger: Ledger, batch: Batch, status: Status) -> Batch:
    """The batch, known to be at its provider."""
    facts = {"batch_id": status.id, "status": status.status, "sent_at": time.time()}
    return ledger.batches.update(batch, state=SENT, problem="", **facts)


def _note_problem(ledger: Ledger, batch: Batch, problem: str, **facts: object) -> Batch:
    return ledger.batches.update(batch, problem=problem[:500], **facts)
