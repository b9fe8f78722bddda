"""Observations as a frame: a million of them are weighed as columns."""

from collections.abc import Iterable
from dataclasses import asdict

import polars as pl

from assets.outcomes.reliability.observation import Observation

OBSERVED = {
    "at": pl.Float64,
    "tool_id": pl.String,
    "contract_digest": pl.String,
    "success": pl.Boolean,
    "weight": pl.Float64,
    "seconds": pl.Float64,
    "query": pl.String,
    "query_key": pl.String,
    "source": pl.String,
    "client": pl.String,
    "kind": pl.String,
    "rank": pl.Int64,
    "call_id": pl.String,
    "search_id": pl.String,
    "claimed": pl.Boolean,
}


def make_frame(observations: Iterable[Observation]) -> pl.DataFrame:
    """The observations, one row each."""
    return pl.DataFrame([asdict(observation) for observation in observations], schema=OBSERVED)


def list_observations(frame: pl.DataFrame) -> list[Observation]:
    """The rows, oldest first."""
    ordered = frame.select(list(OBSERVED)).sort("at", "tool_id", "call_id")
    return [Observation(**row) for row in ordered.iter_rows(named=True)]
