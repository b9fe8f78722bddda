"""What a run made, where it is, and how to look at it: the text after `toolmill run`."""

from collections import Counter

import polars as pl

from assets.catalogue.catalogue import CATALOGUE
from assets.contracts.listed_contracts import LISTED, UNVERIFIED
from assets.contracts.quarantined_tools import list_held_tools
from assets.contracts.snapshot import SNAPSHOTS
from assets.marketplaces.crawl.crawl import load_adapter
from assets.marketplaces.listing_table import LISTINGS
from assets.outcomes.outcome import USEFUL
from assets.outcomes.table import EXECUTIONS, PROVED, group_by_pair, has_run
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.synthesis.tables import JUDGEMENTS, PAIRS
from orchestration.factories import list_enabled, make_crawl_policy, open_warehouse
from orchestration.runs.nightly import RunResult
from orchestration.runs.processes import CORES
from orchestration.settings.model import Settings
from training.figures import shorten_model
from training.releases.champion import read_champion
from training.releases.in_service import find_model_in_service
from training.releases.release import read_current_release
from training.role import list_roles
from warehouse.ledger.attempts import describe_losses
from warehouse.store import Warehouse


def summarise_run(settings: Settings, result: RunResult) -> str:
    warehouse = open_warehouse(settings)
    lines = ["Runs"]
    for run in result.runs:
        name = " ".join(filter(None, (run["job"], run["partition"], run["role"])))
        state = "ok" if run["success"] else "FAILED (the last data stays current; see above)"
        lines.append(f"  {name:<20} {run['seconds']:>6.1f} s  {state}")
    lines.append(f"  {'total':<20} {result.seconds:>6.1f} s  side by side on {CORES} cores")
    if result.cleared:
        lines.append(f"  {result.cleared} runs of killed processes were failed first")
    sections = [
        "\n".join(lines),
        _describe_skipped(settings),
        _describe_made(warehouse),
        _describe_failed_servers(warehouse),
        _describe_models(warehouse, result),
        _describe_effects(warehouse, result),
        _describe_next(settings, result),
    ]
    return "\n" + "\n\n".join(part for part in sections if part)


def _describe_skipped(settings: Settings) -> str:
    lines = []
    for name in list_enabled(settings):
        missing = load_adapter(name, make_crawl_policy(settings, name)).missing()
        variables = " and ".join(
            f"TOOLMILL_MARKETPLACES__{name}__{item}".upper() for item in missing
        )
        lines += [f"  {name:<20} set {variables}"] if missing else []
    return "\n".join(["Skipped for want of a key (what they had stays)", *lines]) if lines else ""


def _describe_made(warehouse: Warehouse) -> str:
    tables = warehouse.tables
    listings = tables.read(LISTINGS)
    deployed = tables.read(DEPLOYMENTS).unique("server_id")
    snapshots = tables.read(SNAPSHOTS).unique(["server_id", "tool"])
    catalogue = tables.read(CATALOGUE).filter(pl.col("gone").is_null())
    shared = catalogue.filter(pl.col("marketplaces").list.len() > 1)
    pairs = tables.read(PAIRS).unique("pair_id")
    accepted = tables.read(JUDGEMENTS).unique("pair_id").filter(pl.col("verdict") == "accept")
    executions = tables.read(EXECUTIONS)  # one call of two marketplaces has a row in each
    each = executions.unique("execution_id", keep="first", maintain_order=True).to_dicts()
    ran = [row for row in each if has_run(row)]
    useful = sum(row["outcome"] == USEFUL for row in ran)
    proved = sum(item.proof == PROVED for item in group_by_pair(executions.to_dicts()).values())
    launched = deployed.filter(pl.col("status") == "ok")
    quarantined = len({(row["server_id"], row["tool"]) for row in list_held_tools(warehouse)})
    claimed = tables.read(LISTED).filter(pl.col("standing") == UNVERIFIED)
    per_market = ", ".join(
        f"{name} {count}" for name, count in sorted(Counter(listings["marketplace"]).items())
    )
    return "\n".join(
        [
            "Made",
            f"  listings     {len(listings):>6}   {per_market}",
            f"  catalogue    {len(catalogue):>6}   servers, {len(shared)} on several marketplaces",
            f"  servers      {len(launched):>6}   deployed of {len(deployed)} with a listing",
            f"  tools        {len(snapshots):>6}   contracts of"
            f" {snapshots['server_id'].n_unique()} servers",
            f"  held         {quarantined:>6}   tools in quarantine (`toolmill quarantine`)",
            f"  listed       {len(claimed):>6}   tools that marketplaces show and nobody launched",
            f"  pairs        {len(pairs):>6}   {len(accepted)} accepted"
            f" (written by {_name_providers(pairs)}, judged by {_name_providers(accepted)})",
            f"  executed     {len(ran):>6}   calls of them, {useful} answered usefully;"
            f" {proved} pairs proved by their effect",
        ]
    )


def _name_providers(frame: pl.DataFrame) -> str:
    return ", ".join(sorted({str(name) for name in frame["provider"].drop_nulls()})) or "nobody yet"


def _describe_failed_servers(warehouse: Warehouse) -> str:
    frame = warehouse.tables.read(DEPLOYMENTS).unique("server_id")
    failed = frame.filter(pl.col("status") != "ok").sort("server_id")
    if not len(failed):
        return ""
    alike: dict[tuple[str, str], list[str]] = {}
    for row in failed.to_dicts():
        alike.setdefault((row["error_kind"], row["hint"]), []).append(row["server_id"])
    lines = ["Servers that did not start"]
    for (kind, hint), servers in alike.items():
        who = servers[0] if len(servers) == 1 else f"{len(servers)} servers"
        lines.append(f"  {who:<44} {kind}: {hint}")
        if len(servers) > 1:
            lines += [f"    {server}" for server in servers]
    return "\n".join(lines)


def _describe_models(warehouse: Warehouse, result: RunResult) -> str:
    stages = {stage.partition(":") for stage, _ in _count_effects(warehouse, result)}
    trained = sorted(role for kind, _, role in stages if kind == "train")
    lines = ["Models", f"  trained in this run: {', '.join(trained) or 'none'}"]
    lines += [f"    {reason}" for reason in result.reasons]
    for role in list_roles():
        standing = find_model_in_service(warehouse.home, role)
        lines.append(f"  {role:<10} {shorten_model(standing.model)}")
        lines += [f"  {'':<10} {standing.notice}"] if standing.notice else []
        now = read_champion(warehouse.home, role)
        if now.last_candidate:
            outcome = "promoted" if now.last_candidate["promoted"] else "not promoted"
            model = shorten_model(now.last_candidate["model"])
            lines.append(f"  {'':<10} candidate {model} {outcome}: {now.last_candidate['why']}")
    release = shorten_model(read_current_release(warehouse.home).get("release", "none yet"))
    return "\n".join([*lines, f"  release    {release}"])


def _count_effects(warehouse: Warehouse, result: RunResult) -> Counter[tuple[str, str]]:
    """(stage, status) -> effects of all its runs."""
    counts: Counter[tuple[str, str]] = Counter()
    for run in result.runs:
        counts.update(warehouse.ledger.counts(run_id=run["run_id"]))
    return counts


def _describe_effects(warehouse: Warehouse, result: RunResult) -> str:
    counts = _count_effects(warehouse, result)
    lines = [f"Effects of this run (spent in all: {warehouse.ledger.spent():.4f} USD)"]
    lines += [
        f"  {stage:<14} {status:<8} {count:>6}" for (stage, status), count in sorted(counts.items())
    ]
    if not counts:
        lines.append("  none: everything was known already")
    unknown = warehouse.ledger.list_unknown()
    if unknown:
        losses = describe_losses((attempt.error, attempt.batch) for attempt in unknown)
        lines.append(f"  attempts that may have been paid: {losses}; `toolmill spend` lists them")
    return "\n".join(lines)


def _describe_next(settings: Settings, result: RunResult) -> str:
    home = settings.home_path()
    lines = [
        "Where",
        f"  tables   {home / 'tables'}",
        f"  report   {home / 'reports'}",
        "Next",
        "  make dev                                the Dagster UI on http://127.0.0.1:3000",
    ]
    if (home / "router" / "HEAD.json").exists():
        lines.append('  .venv/bin/toolmill search "list the files of a folder"')
    if result.failed:
        lines.append("  .venv/bin/toolmill doctor               what is wrong here, and its fix")
    elif settings.source == "demo" and settings.demo.day == 1:
        lines.append(
            "  make run DAY=2                          two servers new, one changed, one gone"
        )
    return "\n".join(lines)
