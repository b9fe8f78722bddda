"""The partition key of everything that is read from a marketplace, and the end of its run.

A marketplace is code (an adapter), so its name is code. Incrementality is inside an asset, by
digest: a partition per server was measured at 40-55 ms an event and seconds a run.
"""

import dagster as dg

from assets.marketplaces.installed import list_installed
from warehouse.ledger.ledger import Ledger

# The assets of one nightly run in the order of the data; `executions` is the last that costs.
NIGHTLY = (
    *("listings", "deployments", "snapshots", "findings", "clear_contracts"),
    *("contract_vectors", "pairs", "judgements", "executions"),
)

marketplaces = dg.StaticPartitionsDefinition(list(list_installed()))


def close_run_after(context: dg.AssetExecutionContext, ledger: Ledger, asset: str) -> None:
    """Ends the marketplace's open run when `asset` is the last nightly asset that is selected.

    Until then a killed run's successor reads the pages that were already fetched; afterwards the
    next run looks at the moving world anew.
    """
    selected = {key.to_user_string() for key in context.selected_asset_keys}
    last = max((name for name in NIGHTLY if name in selected), key=NIGHTLY.index, default=asset)
    if asset == last:
        ledger.close_run(context.partition_key)
