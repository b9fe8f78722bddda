"""Asset definitions of snapshots, findings, changes, clear contracts and listed contracts."""

import time as clock
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg
import polars as pl

from assets.catalogue.catalogue import CATALOGUE, read_listing_ids
from assets.contracts.canonical import CANON_VERSION, index_contracts
from assets.contracts.changes import CHANGES, READ_RULE, fold_changes, fold_origins
from assets.contracts.findings import FINDINGS, SCANS, LaunchOutput, scan_snapshot
from assets.contracts.listed_contracts import LISTED, STANDINGS, ShownListing, build_listed
from assets.contracts.quarantined_tools import (
    CLEAR,
    HELD,
    find_unresolvable,
    key_contract,
    open_firewall,
    read_decisions,
    select_columns,
)
from assets.contracts.result_findings import read_result_findings
from assets.contracts.scan.rule_table import HIGH, SEVERITIES
from assets.contracts.snapshot import (
    SNAPSHOTS,
    build_snapshot,
    format_date,
    list_malformed,
    read_raw_tools,
)
from assets.marketplaces.listing import load_tools, read_row
from assets.marketplaces.listing_table import LISTINGS
from assets.one_server import keep_other_servers
from assets.partitions import close_run_after, marketplaces, read_one_server
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.servers.recipes.recipe import identify_server
from warehouse.audit import AuditVerdict
from warehouse.item_failure import try_item
from warehouse.json_types import Row
from warehouse.publish import Published, audit_table, describe_asset, publish
from warehouse.sanitize.markdown import Markdown, make_markdown_table
from warehouse.sanitize.untrusted_text import escape_text
from warehouse.statistics import wilson_interval
from warehouse.store import Warehouse

SHOWN = 50  # rows of a table in the UI


def report_findings(rows: Sequence[Row], tools: int, read: int) -> dict[str, Any]:
    """Figures and tables of FINDINGS. tools: how many there are; read: scanned in this run."""
    high = [row for row in rows if row["severity"] == HIGH]
    flagged = len({(row["server_id"], row["tool"]) for row in high})
    low_end, high_end = wilson_interval(flagged, tools)
    counts = Counter((row["severity"], row["rule"]) for row in rows)
    lines = [[str(count), severity, rule] for (severity, rule), count in counts.most_common()]
    return {
        "tools": tools,
        "scanned": read,
        "high_tools": flagged,
        "high_rate": flagged / tools if tools else 0.0,
        "high_rate_interval": f"{low_end:.4f} to {high_end:.4f}",
        "by_rule": make_markdown_table(["findings", "severity", "rule"], lines),
        "high": _tabulate_rows(("tool", "rule", "excerpt", "server_id"), high),
    }


def report_changes(rows: Sequence[Row], new: int) -> dict[str, Any]:
    """Figures of CHANGES, and a table with the latest first."""
    latest = sorted(rows, key=lambda row: row["run_date"], reverse=True)
    columns = ("run_date", "cls", "tool", "why", "renamed_from", "server_id")
    counts = Counter(str(row["cls"]) for row in rows)
    return {"new": new, **counts, "latest": _tabulate_rows(columns, latest)}


def _tabulate_rows(columns: Sequence[str], rows: Sequence[Row]) -> Markdown:
    return make_markdown_table(
        columns, [[row[name] or "" for name in columns] for row in rows[:SHOWN]]
    )


SNAPSHOTS_AUDIT = audit_table(SNAPSHOTS)
FINDINGS_AUDIT = audit_table(FINDINGS, {"severity": SEVERITIES})
CHANGES_AUDIT = audit_table(
    CHANGES, rules={READ_RULE: "Every version that changes are counted between can be read."}
)


@dg.asset(
    **describe_asset(SNAPSHOTS_AUDIT, "assets/contracts", partitions=marketplaces),
    deps=["deployments"],
    group_name="contracts",
    description="Every tool contract in canonical form, with when it was first and last seen.",
)
def snapshots(
    context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]
) -> Published:
    name = context.partition_key
    deployments = warehouse.tables.read(DEPLOYMENTS, name).to_dicts()
    previous = warehouse.tables.read(SNAPSHOTS, name).to_dicts()
    rows = build_snapshot(previous, deployments, warehouse.blobs, clock.time())
    rows = keep_other_servers(previous, rows, read_one_server(context))
    left_out = list_malformed(deployments, warehouse.blobs)
    launched = sum(row["status"] == "ok" for row in deployments)
    yield from publish(
        context,
        warehouse,
        SNAPSHOTS_AUDIT,
        SNAPSHOTS.frame(rows),
        rules=[
            AuditVerdict(
                "tools_floor",
                bool(rows) or not launched,
                f"{len(rows)} tools of {launched} launched servers",
                "some tools when any server runs",
            )
        ],
        metadata={
            "servers": len({row["server_id"] for row in rows}),
            "malformed": len(left_out),
            "malformed_tools": dg.MetadataValue.json(left_out[:SHOWN]),
            "canon_version": CANON_VERSION,
        },
    )
    close_run_after(context, warehouse.ledger, "snapshots")


@dg.asset(
    **describe_asset(FINDINGS_AUDIT, "assets/contracts", partitions=marketplaces),
    deps=["deployments", "snapshots"],
    group_name="contracts",
    description="Signs of poisoning in every tool; a high one keeps it out until it is released.",
)
def findings(
    context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]
) -> Published:
    name, tables = context.partition_key, warehouse.tables
    contracts = tables.read(SNAPSHOTS, name).to_dicts()
    previous = tables.read(FINDINGS, name).to_dicts()
    past = fold_origins(tables, name)
    scan = scan_snapshot(
        contracts,
        _read_launches(warehouse, name),
        past.state,
        scans=tables.read(SCANS, name).to_dicts(),
        previous=previous,
        results=read_result_findings(warehouse.home),
        run_date=format_date(clock.time()),
    )
    server = read_one_server(context)
    rows = keep_other_servers(previous, scan.rows, server)
    before = tables.read(SCANS, name).to_dicts()
    scans = tables.stage(SCANS, SCANS.frame(keep_other_servers(before, scan.scans, server)), name)
    yield from publish(
        context,
        warehouse,
        FINDINGS_AUDIT,
        FINDINGS.frame(rows),
        rules=[_check_escaped(rows), _check_current(rows, contracts)],
        metadata=report_findings(rows, len(contracts), scan.read),
    )
    # Only now does the firewall rely on these scans; before, it reads the contracts itself.
    tables.promote(scans, context.run_id, [])
    past.keep(tables, context.run_id)
    close_run_after(context, warehouse.ledger, "findings")


@dg.asset(
    **describe_asset(CHANGES_AUDIT, "assets/contracts"),
    deps=["snapshots"],
    group_name="contracts",
    description="What changed in each contract, run by run: breaking, compatible, wording.",
)
def contract_changes(
    context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]
) -> Published:
    previous = len(warehouse.tables.read(CHANGES))
    rows, read = fold_changes(warehouse.tables)
    yield from publish(
        context,
        warehouse,
        CHANGES_AUDIT,
        CHANGES.frame(rows),
        rules=[AuditVerdict(READ_RULE, True, read)],
        metadata=report_changes(rows, len(rows) - previous),
    )


def _read_launches(warehouse: Warehouse, name: str) -> dict[str, LaunchOutput]:
    """What the last launch of each server of a marketplace left."""
    out = {}
    for row in warehouse.tables.read(DEPLOYMENTS, name).to_dicts():
        tools, extras = [], None
        if row["status"] == "ok":
            tools = read_raw_tools(row, warehouse.blobs)
            extras = warehouse.blobs.get_json(row["extras_blob"]) if row.get("extras_blob") else {}
        contents = tools, index_contracts(tools)[1], row.get("behaviour"), extras
        out[row["server_id"]] = LaunchOutput(row["marketplace"], *contents)
    return out


def _check_escaped(rows: list[dict]) -> AuditVerdict:
    raw = [row["rule"] for row in rows if escape_text(row["excerpt"]) != row["excerpt"]]
    return AuditVerdict("excerpts_escaped", not raw, f"{len(raw)} excerpts could move a cursor")


def _check_current(rows: list[dict], contracts: list[dict]) -> AuditVerdict:
    """A high finding holds a contract, so there must be one to hold."""
    contract_keys = {key_contract(row) for row in contracts}
    lost = [
        row for row in rows if row["severity"] == HIGH and key_contract(row) not in contract_keys
    ]
    return AuditVerdict(
        "high_findings_current", not lost, f"{len(lost)} about contracts not listed"
    )


CLEAR_AUDIT = audit_table(CLEAR)


@dg.asset(
    **describe_asset(CLEAR_AUDIT, "assets/contracts", partitions=marketplaces),
    deps=["snapshots", "findings"],
    group_name="contracts",
    description="The contracts that nothing holds: what all that follows is made of.",
)
def clear_contracts(
    context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]
) -> Published:
    name, tables = context.partition_key, warehouse.tables
    clear, quarantined = open_firewall(warehouse).split(tables.read(SNAPSHOTS, name).to_dicts())
    rows = select_columns(CLEAR, clear)
    slipped = [row["contract_digest"] for row in open_firewall(warehouse).split(rows)[1]]
    lost = find_unresolvable(rows)
    # What is held goes first: a run that dies in between holds more, never less.
    kept_out = tables.stage(HELD, HELD.frame(select_columns(HELD, quarantined)), name)
    tables.promote(kept_out, context.run_id, [])
    yield from publish(
        context,
        warehouse,
        CLEAR_AUDIT,
        CLEAR.frame(rows),
        rules=[
            AuditVerdict("resolvable", not lost, f"{len(lost)} digests of other contracts"),
            AuditVerdict("none_held", not slipped, f"{len(slipped)} held contracts"),
        ],
        metadata={"held": len(quarantined)},
    )
    if quarantined:
        context.log.info(f"tools held: {len(quarantined)} (toolmill quarantine)")
    close_run_after(context, warehouse.ledger, "clear_contracts")


Aliases = defaultdict[str, tuple[frozenset[str], frozenset[str]]]

LISTED_AUDIT = audit_table(LISTED, {"standing": STANDINGS})


@dg.asset(
    **describe_asset(LISTED_AUDIT, "assets/contracts"),
    deps=["listings", "snapshots", "catalogue"],
    group_name="contracts",
    description="Tools that marketplaces show of servers that nobody launched: unverified, and no"
    " part of what is trained or called.",
)
def listed_contracts(
    context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]
) -> Published:
    previous = warehouse.tables.read(LISTED).to_dicts()
    # Every server that listed its tools to a launch, one that listed none included.
    ran = warehouse.tables.read(DEPLOYMENTS).filter(status="ok")["server_id"]
    launched = {*ran, *warehouse.tables.read(SNAPSHOTS)["server_id"]}
    decided = read_decisions(warehouse.home)
    aliases: Aliases = defaultdict(lambda: (frozenset(), frozenset()))
    for row in warehouse.tables.read(CATALOGUE).filter(pl.col("gone").is_null()).to_dicts():
        names = frozenset(read_listing_ids(row))
        for name in names:
            aliases[name] = (names, frozenset(row["server_ids"] or ()))
    listings = _iterate_shown(warehouse, aliases)
    result = build_listed(listings, launched, decided, previous, clock.time())
    slipped = [row for row in result.rows if row["server_id"] in launched]
    yield from publish(
        context,
        warehouse,
        LISTED_AUDIT,
        LISTED.frame(result.rows),
        rules=[AuditVerdict("none_launched", not slipped, f"{len(slipped)} of servers that ran")],
        metadata={
            **Counter(str(row["standing"]) for row in result.rows),
            "malformed": result.malformed,
            "unread": result.unread,
        },
    )


def _iterate_shown(warehouse: Warehouse, aliases: Aliases) -> Iterator[ShownListing]:
    """What each listing shows, with the ids of its server's other listings."""
    rows = warehouse.tables.read(LISTINGS).filter(pl.col("tools_blob").is_not_null())
    for row in rows.iter_rows(named=True):
        name, blob = row["listing_id"], row["tools_blob"]
        server = try_item(lambda row=row: identify_server(read_row(row)), lambda _: None)
        tools = try_item(
            lambda blob=blob: load_tools(warehouse.blobs.get(blob)), lambda _: list[dict]()
        )
        server = server or f"listing:{name}"
        yield ShownListing(name, row["marketplace"], server, tools, aliases[name][1])
