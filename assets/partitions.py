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
    *("contract_vectors", "explorations", "pairs", "judgements", "executions"),
)

marketplaces = dg.StaticPartitionsDefinition(list(list_installed()))


SERVER_TAG = "toolmill/server"  # of a run of one server: its id
ONE_SERVER_JOB = "one_server"


def read_one_server(context: dg.AssetExecutionContext) -> str | None:
    """The server that this run is about; None where it is about all of the marketplace.

    Raises dg.Failure in the job of one server where none is named: it would run all.
    """
    server_id = context.run.tags.get(SERVER_TAG)
    if server_id is None and context.run.job_name == ONE_SERVER_JOB:
        raise dg.Failure(
            f"this job runs one server: launch it with the tag {SERVER_TAG} set to the server's id,"
            " or the job nightly for the whole marketplace",
            allow_retries=False,
        )
    return server_id


def read_run_scope(context: dg.AssetExecutionContext) -> str:
    """Whose open run in the ledger a run belongs to: the marketplace's, or the one server's in it,
    which leaves a killed nightly run's pages to its successor."""
    server_id = context.run.tags.get(SERVER_TAG)
    return context.partition_key if server_id is None else f"{context.partition_key} {server_id}"


def close_run_after(context: dg.AssetExecutionContext, ledger: Ledger, asset: str) -> None:
    """Ends the marketplace's open run when `asset` is the last nightly asset that is selected.

    Until then a killed run's successor reads the pages that were already fetched; afterwards the
    next run reads the moving world again.
    """
    selected = {key.to_user_string() for key in context.selected_asset_keys}
    last = max((name for name in NIGHTLY if name in selected), key=NIGHTLY.index, default=asset)
    if asset == last:
        ledger.close_run(read_run_scope(context))
