"""Summaries and look-alikes through their assets: of clear tools only, and nothing twice."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from assets.contracts.defs import clear_contracts, findings, snapshots
from assets.synthesis.defs import server_summaries
from assets.synthesis.summaries import SUMMARIES
from assets.vectors.confusable_table import CONFUSABLES
from assets.vectors.defs import confusables, contract_vectors
from tests.contracts.pipeline import MARKET, POISON, Pipeline, honest_servers, poison_tool
from warehouse.store import Warehouse


@pytest.fixture
def pipeline(warehouse: Warehouse) -> Iterator[Pipeline]:
    made = Pipeline(warehouse)
    yield made
    warehouse.ledger.close()


def with_copies() -> dict[str, list[dict[str, Any]]]:
    """Every tool of one server again on another, one of them poisoned there."""
    servers = honest_servers()
    name, tools = next(iter(servers.items()))
    servers[f"{name}-copy"] = [dict(tool) for tool in tools]
    servers[f"{name}-copy"][0] = poison_tool(servers[f"{name}-copy"][0])
    return servers


def summarise(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    pipeline.run([snapshots, findings, clear_contracts, contract_vectors], MARKET)
    return pipeline.run([server_summaries, confusables])


def heads(pipeline: Pipeline) -> list[str]:
    tables = pipeline.warehouse.tables
    found = [tables.head(spec.name) for spec in (SUMMARIES, CONFUSABLES)]
    return [head.digest for head in found if head]


def test_every_server_is_summed_up_and_copies_are_twins(pipeline: Pipeline) -> None:
    servers = with_copies()
    pipeline.deploy(servers)
    metadata = summarise(pipeline)
    summaries = {row["server_id"]: row for row in pipeline.read_rows(SUMMARIES)}
    assert summaries.keys() == servers.keys()
    assert all(row["summary"] and row["provider"] == "offline" for row in summaries.values())
    rows = pipeline.read_rows(CONFUSABLES)
    name = next(iter(servers))
    copied = {row["tool"] for row in rows if row["kind"] == "twin"}
    assert {row["other_server_id"] for row in rows if row["kind"] == "twin"} == {f"{name}-copy"}
    assert copied == {tool["name"] for tool in servers[name][1:]}
    assert metadata["confusables"]["with_a_twin"] == 2 * len(copied)


def test_a_poisoned_tool_is_in_neither_table(pipeline: Pipeline) -> None:
    servers = with_copies()
    pipeline.deploy(servers)
    summarise(pipeline)
    assert POISON.strip() not in json.dumps(
        [pipeline.read_rows(SUMMARIES), pipeline.read_rows(CONFUSABLES)]
    )
    held = servers[f"{next(iter(servers))}-copy"][0]["name"]
    for row in pipeline.read_rows(CONFUSABLES):
        assert not (row["other_server_id"].endswith("-copy") and row["other_tool"] == held)


def test_the_same_world_again_makes_no_new_version(pipeline: Pipeline) -> None:
    pipeline.deploy(with_copies())
    summarise(pipeline)
    before = heads(pipeline)
    summarise(pipeline)
    assert heads(pipeline) == before
    assert len(before) == 2
