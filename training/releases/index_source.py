"""What a run knows of every served tool, as the source of an index. Listed contracts enter by a
setting, last, marked, and without recipe, request or summary: training reads none of them."""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import polars as pl

from assets.catalogue.catalogue import CATALOGUE, read_listing_ids
from assets.contracts.changes import CHANGES
from assets.contracts.findings import FINDINGS, Contract
from assets.contracts.listed_contracts import read_unverified
from assets.contracts.quarantined_tools import key_contract, open_firewall, read_contracts
from assets.contracts.rename_history import ContractMove
from assets.contracts.scan.rule_table import MEDIUM
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.synthesis.old_contracts import find_renamed_parameters, read_old_contracts
from assets.synthesis.summaries import SUMMARIES
from assets.synthesis.tables import JUDGEMENTS, PAIRS, read_contract, select_accepted
from assets.synthesis.verify.model_text import find_order
from serving.index.folder import load_index
from serving.index.model import UNVERIFIED, IndexSource
from warehouse.item_failure import try_item
from warehouse.json_types import Row
from warehouse.storage.tables import Tables
from warehouse.store import Warehouse


def build_published_source(
    warehouse: Warehouse, *, unverified: bool = False
) -> tuple[IndexSource, list[str]]:
    """The source of the index that serves the current tables, and the digests of contracts that are
    held out of it. unverified: with the tools that marketplaces list and nobody launched."""
    tables = warehouse.tables
    clear, held_rows = read_contracts(warehouse)
    catalogue = tables.read(CATALOGUE).to_dicts()
    about = build_server_facts(catalogue, tables.read(SUMMARIES).to_dicts())
    findings: dict[Contract, set[str]] = defaultdict(set)  # rules with a finding about each
    for row in tables.read(FINDINGS).filter(severity=MEDIUM).to_dicts():
        findings[key_contract(row)].add(row["rule"])
    rows = [
        {
            **row,
            "flags": (
                *about.get(row["server_id"], {}).get("flags", ()),
                *sorted(findings.get(key_contract(row), ())),
            ),
        }
        for row in clear
    ]
    if unverified:
        launched = {row["server_id"] for row in clear}
        unverified_rows = [
            row for row in read_unverified(warehouse) if row["server_id"] not in launched
        ]
        rows += [{**row, "flags": (UNVERIFIED,)} for row in unverified_rows]
        about |= describe_listed_servers({row["server_id"] for row in unverified_rows}, catalogue)
    accepted = select_accepted(tables.read(PAIRS).to_dicts(), tables.read(JUDGEMENTS).to_dicts())
    recipes = map_server_recipes(tables.read(DEPLOYMENTS).to_dicts())
    moves = collect_moves(tables, {row["server_id"] for row in clear})
    source = IndexSource(rows, about, group_requests_by_contract(accepted), recipes, moves)
    return source, [row["contract_digest"] for row in held_rows]


def list_held_contracts(warehouse: Warehouse, version: str) -> list[str]:
    """Digests in an index version that are held today: an old one may hold later findings."""
    index = load_index(warehouse.home, version)
    rows = [
        {
            "server_id": tool.server_id,
            "tool": tool.tool,
            "contract_digest": tool.contract_digest,
            "contract": json.dumps(index.contract(at), ensure_ascii=False),
        }
        for at, tool in enumerate(index.tools)
    ]
    return sorted({row["contract_digest"] for row in open_firewall(warehouse).split(rows)[1]})


def make_hold(warehouse: Warehouse) -> Callable[[str], None]:
    """Blocks what is held or taken down today in an older index, before it is served."""
    from serving.ranking.overlays import read_blocked, write_blocklist

    def hold(version: str) -> None:
        blocked = read_blocked(warehouse.home)
        write_blocklist(
            warehouse.home,
            {*blocked.digests, *list_held_contracts(warehouse, version)},
            set(blocked.tools),
            version,
        )

    return hold


def build_server_facts(
    catalogue: Iterable[Row], summaries: Iterable[Row]
) -> dict[str, dict[str, Any]]:
    """Server id -> {name, description, summary, flags}: what listings say, and what was written."""
    facts_of: dict[str, dict[str, Any]] = defaultdict(dict)
    for row in catalogue:
        for server_id in row["server_ids"] or ():
            facts_of[server_id] |= {
                "name": row["name"] or "",
                "description": row["description"] or "",
                "flags": tuple(row["flags"] or ()),
            }
    for row in summaries:
        facts_of[row["server_id"]]["summary"] = row["summary"] or ""
    return dict(facts_of)


def describe_listed_servers(
    wanted: Collection[str], catalogue: Iterable[Row]
) -> dict[str, dict[str, Any]]:
    """Server id -> {name, description} of servers that nobody launched. No scan of tools has read
    these texts: one that gives orders is left out."""
    result = {}
    for row in catalogue:
        names = {*(row["server_ids"] or ()), *(f"listing:{name}" for name in read_listing_ids(row))}
        for server_id in names.intersection(wanted):
            texts = {part: row[part] or "" for part in ("name", "description")}
            result[server_id] = {
                part: "" if find_order(text) else text for part, text in texts.items()
            }
    return result


def group_requests_by_contract(rows: Iterable[Row]) -> dict[str, list[str]]:
    """Contract digest -> the accepted requests for it, in an order of their own."""
    requests_of: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        requests_of[row["contract_digest"]].append(row["instruction"])
    return dict(requests_of)


def map_server_recipes(deployments: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """Server id -> the facts of the recipe by which it was last seen to list its tools."""
    return {
        row["server_id"]: json.loads(row["recipe"])
        for row in deployments
        if row["status"] == "ok" and row["recipe"]
    }


def collect_moves(tables: Tables, servers: Collection[str]) -> list[ContractMove]:
    """These servers' moves, oldest first: renames that the changes state, and parameters' where
    contracts that something published still holds leave no doubt."""
    changes = tables.read(CHANGES).filter(
        pl.col("server_id").is_in(list(servers))
        & (pl.col("from_digest") != "")
        & (pl.col("to_digest") != "")
    )
    rows = changes.sort("run_date", "server_id", "tool").to_dicts()
    old_contracts = read_old_contracts(
        tables, {r[c] for r in rows for c in ("from_digest", "to_digest")}
    )
    return list(list_moves(rows, old_contracts))


def list_moves(changes: Iterable[Row], known: Mapping[str, Row]) -> Iterator[ContractMove]:
    """changes: rows of CHANGES, in order. known: contract digest -> snapshot row."""
    bodies = {
        name: try_item(partial(read_contract, row), lambda _: None) for name, row in known.items()
    }
    for row in changes:
        before, after = bodies.get(row["from_digest"]), bodies.get(row["to_digest"])
        schemas = [body["inputSchema"] for body in (before, after) if body]
        renamed = find_renamed_parameters(*schemas) if len(schemas) == 2 else {}
        was = row["renamed_from"] or row["tool"]
        if renamed or was != row["tool"]:
            digests = row["from_digest"], row["to_digest"]
            yield ContractMove(
                row["server_id"], row["tool"], was, renamed, *digests, row["run_date"]
            )
