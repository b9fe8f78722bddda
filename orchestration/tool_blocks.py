"""Keeping what was held or taken down since out of the answers of the index that is served."""

from assets.contracts.quarantined_tools import find_held_rows
from serving.ranking.overlays import write_blocklist
from warehouse.store import Warehouse


def block_tools(warehouse: Warehouse) -> int:
    """Blocks what is held and what is taken down now; a running router sees it at its next query.
    Returns how many contracts and tools are blocked. Raises DecisionError, TakedownError."""
    return write_blocklist(
        warehouse.home, (row["contract_digest"] for row in find_held_rows(warehouse))
    )
