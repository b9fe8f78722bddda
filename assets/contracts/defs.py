"""Asset definitions of `snapshots`, `findings` and `contract_changes`."""

import time as clock

import dagster as dg

from assets.contracts import report
from assets.contracts.canonical import CANON_VERSION, index_contracts
from assets.contracts.history.history import CHANGES
from assets.contracts.history.origins import fold_origins
from assets.contracts.history.publications import READ_RULE, fold_changes
from assets.contracts.history.snapshot import (
    SNAPSHOTS,
    build_snapshot,
    format_date,
    list_malformed,
    read_raw_tools,
)
from assets.contracts.quarantine.findings import FINDINGS, SCANS, Launch, scan_snapshot
from assets.contracts.quarantine.firewall import key_contract
from assets.contracts.quarantine.results import read_result_findings
from assets.contracts.scan.finding import HIGH, SEVERITIES
from assets.one_server import keep_other_servers
from assets.partitions import close_run_after, marketplaces, read_one_server
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from warehouse.audit import Verdict, expect_match, expect_one_of, expect_unique
from warehouse.publish import (
    Published,
    audit_table,
    describe_asset,
    publish,
)
from warehouse.sanitize.escape import escape_text
from warehouse.store import Warehouse

SNAPSHOTS_AUDIT = audit_table(
    SNAPSHOTS,
    [expect_unique("server_id", "tool"), expect_match("contract_digest", "^c1:[0-9a-f]{64}$")],
    rules=["tools_floor"],
)
FINDINGS_AUDIT = audit_table(
    FINDINGS,
    [
        expect_match("contract_digest", "^$|^c1:[0-9a-f]{64}$"),
        expect_one_of("severity", list(SEVERITIES)),
    ],
    rules=["excerpts_escaped", "high_findings_current"],
)
CHANGES_AUDIT = audit_table(
    CHANGES,
    [
        expect_unique(*CHANGES.key),
        expect_one_of("cls", ["breaking", "compatible", "wording", "suspicious"]),
    ],
    rules=[READ_RULE],
)


@dg.asset(
    **describe_asset(SNAPSHOTS_AUDIT, "assets/contracts"),
    partitions_def=marketplaces,
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
            Verdict(
                "tools_floor",
                bool(rows) or not launched,
                f"{len(rows)} tools of {launched} launched servers",
                "some tools when any server runs",
            )
        ],
        metadata={
            "servers": len({row["server_id"] for row in rows}),
            "malformed": len(left_out),
            "malformed_tools": dg.MetadataValue.json(left_out[: report.SHOWN]),
            "canon_version": CANON_VERSION,
        },
    )
    close_run_after(context, warehouse.ledger, "snapshots")


@dg.asset(
    **describe_asset(FINDINGS_AUDIT, "assets/contracts"),
    partitions_def=marketplaces,
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
    found = scan_snapshot(
        contracts,
        _read_launches(warehouse, name),
        past.state,
        scans=tables.read(SCANS, name).to_dicts(),
        previous=previous,
        results=read_result_findings(warehouse.home),
        run_date=format_date(clock.time()),
    )
    server = read_one_server(context)
    rows = keep_other_servers(previous, found.rows, server)
    before = tables.read(SCANS, name).to_dicts()
    scans = tables.stage(SCANS, SCANS.frame(keep_other_servers(before, found.scans, server)), name)
    yield from publish(
        context,
        warehouse,
        FINDINGS_AUDIT,
        FINDINGS.frame(rows),
        rules=[_check_escaped(rows), _check_current(rows, contracts)],
        metadata=report.report_findings(rows, len(contracts), found.read),
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
        rules=[Verdict(READ_RULE, True, read)],
        metadata=report.report_changes(rows, len(rows) - previous),
    )


def _read_launches(warehouse: Warehouse, name: str) -> dict[str, Launch]:
    """What the last launch of each server of a marketplace left."""
    out = {}
    for row in warehouse.tables.read(DEPLOYMENTS, name).to_dicts():
        tools, extras = [], None
        if row["status"] == "ok":
            tools = read_raw_tools(row, warehouse.blobs)
            extras = warehouse.blobs.get_json(row["extras_blob"]) if row.get("extras_blob") else {}
        contents = tools, index_contracts(tools)[1], row.get("behaviour"), extras
        out[row["server_id"]] = Launch(row["marketplace"], *contents)
    return out


def _check_escaped(rows: list[dict]) -> Verdict:
    raw = [row["rule"] for row in rows if escape_text(row["excerpt"]) != row["excerpt"]]
    return Verdict("excerpts_escaped", not raw, f"{len(raw)} excerpts could move a cursor")


def _check_current(rows: list[dict], contracts: list[dict]) -> Verdict:
    """A high finding holds a contract, so there must be one to hold."""
    known = {key_contract(row) for row in contracts}
    lost = [row for row in rows if row["severity"] == HIGH and key_contract(row) not in known]
    return Verdict("high_findings_current", not lost, f"{len(lost)} about contracts not listed")
