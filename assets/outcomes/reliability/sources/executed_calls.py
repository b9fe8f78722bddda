"""Observations of the calls that Toolmill executes itself, in disposable worlds."""

import polars as pl

from assets.contracts.tool_id import ToolId
from assets.outcomes.outcome import USEFUL
from assets.outcomes.reliability.observation import BLAMED, EXECUTION
from assets.outcomes.reliability.sources.frame import OBSERVED
from assets.outcomes.table import EXECUTIONS, PASSING
from warehouse.storage.tables import Tables


def read_executed(tables: Tables) -> pl.DataFrame:
    """Rows of OBSERVED: of each executed call that was useful, or failed by the tool's own fault.
    A call that two marketplaces list is one."""
    held = tables.read(EXECUTIONS).unique("execution_id", keep="first", maintain_order=True)
    useful = (pl.col("outcome") == USEFUL) & pl.col("blame").is_null()
    failed = pl.col("blame").is_in(BLAMED) & ~pl.col("error_kind").is_in(PASSING).fill_null(False)
    ids = [str(ToolId(*row)) for row in held.select("server_id", "tool").iter_rows()]
    return (
        held.with_columns(
            tool_id=pl.Series(ids, dtype=pl.String),
            at="executed_at",
            success=useful,
            weight=pl.lit(1.0),
            query=pl.lit(""),
            query_key=pl.lit(""),
            source=pl.lit(EXECUTION),
            client=pl.lit(None, pl.String),
            kind=pl.coalesce("error_kind", "outcome"),
            rank=pl.lit(None, pl.Int64),
            call_id="execution_id",
            search_id=pl.lit(""),
            claimed=pl.lit(False),
        )
        .filter((useful | failed) & pl.col("at").is_finite())
        .select(list(OBSERVED))
    )
