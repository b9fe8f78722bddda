"""A round over the open batches of a ledger: each gets one step, whichever role it is of."""

from collections.abc import Collection, Mapping

from extensions.batch.api.harvest import advance_batch, cancel_batch
from extensions.batch.api.provider import BatchEndpoint
from warehouse.errors import UnusableInput
from warehouse.ledger.batch_records import READY, SENT, Batch
from warehouse.ledger.ledger import Ledger
from warehouse.llm.roles import LLMError, Role


def list_open(ledger: Ledger) -> list[Batch]:
    """Batches that wait to be sent or to be answered, oldest first."""
    return ledger.batches.find(READY, SENT)


def advance_open(
    ledger: Ledger, roles: Mapping[str, Role], only: Collection[str] | None = None
) -> list[Batch]:
    """The open batches (of these names) after a step each: sent, polled or harvested. One that
    another process is at is left out."""
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
) -> Batch:
    """The open batch of that name, cancelled (`cancel_batch`). Raises UnusableInput, LLMError."""
    batch = ledger.batches.read(name)
    if batch is None:
        known = ", ".join(one.name for one in list_open(ledger)) or "none"
        raise UnusableInput(f"batch {name[:60]!r} is not known; open: {known}")
    role = roles.get(batch.role) or Role(name=batch.role)
    endpoint = BatchEndpoint(role)
    try:
        found = cancel_batch(ledger, name, endpoint, give_up=give_up)
    finally:
        endpoint.close()
    if found is None:
        hint = "wait for it to end, and cancel again"
        raise LLMError("busy", f"another process at batch {name}", "nobody at it", hint)
    return found
