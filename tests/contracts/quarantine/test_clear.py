"""What nothing holds is published once a marketplace, and read by everything downstream."""

from collections.abc import Iterator

import dagster as dg
import pytest

from assets.contracts.defs import clear_contracts, findings, snapshots
from assets.contracts.findings import FINDINGS
from assets.contracts.quarantined_tools import (
    CLEAR,
    HELD,
    Decision,
    DecisionError,
    read_clear,
    read_contracts,
    record_decision,
)
from assets.contracts.snapshot import SNAPSHOTS
from tests.contracts.pipeline import MARKET, Pipeline, honest_servers, poison_tool
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

BAD, GOOD = ("npm:photo", "find_photo"), ("npm:photo", "make_photo")
OTHER = "mcpso"


@pytest.fixture
def pipeline(warehouse: Warehouse) -> Iterator[Pipeline]:
    built = Pipeline(warehouse)
    servers = honest_servers()
    servers["npm:photo"][0] = poison_tool(servers["npm:photo"][0])
    built.deploy(servers)
    built.run([snapshots, findings, clear_contracts], MARKET)
    yield built
    warehouse.ledger.close()


def keys(rows: list[dict]) -> set[tuple[str, str]]:
    return {(row["server_id"], row["tool"]) for row in rows}


def say(pipeline: Pipeline, verdict: str, tool: tuple[str, str], rule: str = "*") -> None:
    name = pipeline.read_digest(*tool)
    record_decision(pipeline.warehouse.home,
           Decision(name, rule, verdict, "ann", "2026-01-02T03:04:05Z", "read it"))  # fmt: skip


def put(pipeline: Pipeline, spec: TableSpec, rows: list[dict], partition: str) -> None:
    tables = pipeline.warehouse.tables
    tables.promote(tables.stage(spec, spec.frame(rows), partition), "test", [])


def test_what_is_held_is_named_beside_the_table_and_its_text_is_in_neither(pipeline):
    clear, stored = read_contracts(pipeline.warehouse, MARKET)
    assert keys(stored) == {BAD}
    assert keys(clear) == keys(pipeline.read_rows(SNAPSHOTS)) - {BAD}
    assert "contract" not in HELD.columns
    assert not any("id_rsa" in row["contract"] for row in pipeline.read_rows(CLEAR))


def test_the_same_contracts_again_are_no_new_version(pipeline):
    before = pipeline.warehouse.tables.head(CLEAR.name, MARKET)
    metadata = pipeline.run([clear_contracts], MARKET)["clear_contracts"]
    assert (metadata["version_moved"], metadata["held"], metadata["unchanged"]) == (False, 1, 17)
    assert pipeline.warehouse.tables.head(CLEAR.name, MARKET) == before


def test_a_hold_counts_at_once_and_a_release_with_the_next_publication(pipeline):
    before = pipeline.warehouse.tables.head(CLEAR.name, MARKET)
    assert before
    say(pipeline, "held", GOOD)
    for market in (None, MARKET):
        clear, stored = read_contracts(pipeline.warehouse, market)
        assert (keys(stored), GOOD in keys(clear)) == ({BAD, GOOD}, False)
    pipeline.run([clear_contracts], MARKET)
    assert keys(pipeline.read_rows(HELD)) == {BAD, GOOD}
    say(pipeline, "released", GOOD)
    assert GOOD not in keys(read_clear(pipeline.warehouse))
    pipeline.run([clear_contracts], MARKET)
    after = pipeline.warehouse.tables.head(CLEAR.name, MARKET)
    assert after
    assert after.digest == before.digest


def test_a_finding_of_another_marketplace_about_the_same_contract_holds_it_here(pipeline):
    [row] = [row for row in pipeline.read_rows(FINDINGS) if row["severity"] == "high"][:1]
    about = {"tool": GOOD[1], "contract_digest": pipeline.read_digest(*GOOD), "marketplace": OTHER}
    put(pipeline, FINDINGS, [{**row, **about}], OTHER)
    pipeline.run([clear_contracts], MARKET)
    assert keys(read_contracts(pipeline.warehouse, MARKET)[1]) == {BAD, GOOD}


def test_what_one_marketplace_holds_since_is_in_nothing_that_joins_all_of_them(pipeline):
    [row] = [row for row in pipeline.read_rows(CLEAR) if (row["server_id"], row["tool"]) == GOOD]
    names = {name: row[name] for name in HELD.columns}
    put(pipeline, HELD, [{**names, "marketplace": OTHER}], OTHER)
    assert GOOD in keys(read_clear(pipeline.warehouse, MARKET))  # until its own next run
    clear, stored = read_contracts(pipeline.warehouse)
    assert (GOOD in keys(clear), keys(stored)) == (False, {BAD, GOOD})
    put(pipeline, HELD, [{**names, "contract_digest": f"c1:{'0' * 64}"}], OTHER)
    assert GOOD in keys(read_clear(pipeline.warehouse))  # another contract of the same name


def test_a_record_of_decisions_that_cannot_be_read_stops_every_reader(pipeline):
    say(pipeline, "held", GOOD)
    [path] = pipeline.warehouse.home.rglob("decisions.jsonl")
    path.write_text(path.read_text() + '{"verdict": "released"}\n')
    with pytest.raises(DecisionError):
        read_clear(pipeline.warehouse)


def test_a_digest_of_another_contract_keeps_the_table_that_is_published(pipeline):
    before = pipeline.warehouse.tables.head(CLEAR.name, MARKET)
    rows = pipeline.read_rows(SNAPSHOTS)
    put(pipeline, SNAPSHOTS, [{**rows[0], "contract_digest": f"c1:{'0' * 64}"}, *rows[1:]], MARKET)
    with pytest.raises(dg.Failure, match="resolvable"):
        pipeline.run([clear_contracts], MARKET)
    assert pipeline.warehouse.tables.head(CLEAR.name, MARKET) == before
