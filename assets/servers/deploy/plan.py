"""One run of deployments of one marketplace: what is due, and the rows that come of it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from assets.marketplaces.listing import Listing
from assets.servers.deploy.deploy import deploy, effect_key, find_refusal
from assets.servers.deploy.policy import DeployPolicy, digest_conditions
from assets.servers.deploy.result import Deployed, make_failed
from assets.servers.deploy.table import make_deployment_row
from assets.servers.packages.resolve import Resolver
from assets.servers.recipes.recipe import (
    RECIPE_VERSION,
    Recipe,
    Resolve,
    Unlaunchable,
    find_exact_version,
    identify_server,
    normalise_address,
    plan_recipe,
)
from assets.servers.sandbox.toolchain import Toolchain, find_toolchain
from warehouse.fleet import Fleet, LocalFleet
from warehouse.ledger.ledger import Ledger, Outcome
from warehouse.progress import Progress, Silent
from warehouse.storage.blobs import Blobs
from warehouse.storage.digest import digest

_LAUNCH_FACTS = {"transport", "command", "args", "env", "url", "headers", "package", "runnable"}


@dataclass
class DeploymentRun:
    """The result of a run of deployments: all rows of the partition, sorted by server, and the
    servers that were launched or newly judged (`done`), kept, or gone."""

    rows: list[dict[str, Any]]
    done: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Job:
    key: str
    listing: Listing
    facts: str
    previous: Mapping[str, Any] | None
    policy: DeployPolicy

    @cached_property
    def conditions(self) -> str:
        """Digest of the settings and secrets that the server is launched under, asked for once."""
        return digest_conditions(self.key, self.policy)


def deploy_listings(
    listings: Iterable[Listing],
    previous: Iterable[Mapping[str, Any]],
    policy: DeployPolicy,
    *,
    ledger: Ledger,
    blobs: Blobs,
    run_date: str,
    now: float,
    fleet: Fleet | None = None,
    concurrency: int = 3,
    progress: Progress | None = None,
    toolchain: Toolchain | None = None,
    resolve: Resolve | None = None,
) -> DeploymentRun:
    """Brings the deployments of one marketplace up to date with its listings.

    `previous` are the rows of the last run (of DEPLOYMENTS). Every server of `listings` has a row
    in the result; whatever fails is a row with `error_kind` and `hint`. Raises SandboxUnavailable,
    or the ledger's own errors; what was done until then is in the ledger and not done again.
    """
    toolchain = toolchain or find_toolchain()
    resolve = resolve or Resolver(
        policy.home, toolchain, ledger, run_date, allow_loopback=policy.sandbox.allow_loopback
    )
    before = {row["server_id"]: row for row in previous}
    jobs = _plan_jobs(listings, before, policy)
    result = DeploymentRun(rows=[], gone=sorted(before.keys() - {job.key for job in jobs}))
    due = []
    for job in jobs:
        if _row_stands(job, now):
            result.rows.append(dict(job.previous or {}))
            result.kept.append(job.key)
        else:
            due.append(job)

    def one(job: _Job) -> tuple[dict[str, Any], bool]:
        return _carry_out(job, ledger, blobs, run_date, now, toolchain, resolve)

    done = (fleet or LocalFleet()).map(
        one, due, concurrency=concurrency, on_done=_reporter(progress or Silent(), len(due))
    )
    for outcome in done:
        if outcome.error is not None:
            raise outcome.error
        row, kept = outcome.value or ({}, False)
        result.rows.append(row)
        (result.kept if kept else result.done).append(outcome.item.key)
    result.rows.sort(key=lambda row: row["server_id"])
    return result


def launch_digest(listing: Listing) -> str:
    """Over what the listing says about launching; an edited description changes nothing here."""
    facts = listing.model_dump(mode="json", include=_LAUNCH_FACTS)
    facts["env"] = [{**variable, "description": None} for variable in facts["env"]]
    if listing.package and listing.package.type == "mcpb":
        facts["package"]["identifier"] = normalise_address(listing.package.identifier)
    return digest({**facts, "recipe_version": RECIPE_VERSION})


def _plan_jobs(
    listings: Iterable[Listing], before: Mapping[str, Mapping[str, Any]], policy: DeployPolicy
) -> list[_Job]:
    """One job per server: of several listings the first runnable one, by listing id."""
    jobs: dict[str, _Job] = {}
    for listing in sorted(listings, key=lambda one: (not one.runnable, one.listing_id)):
        key = identify_server(listing) or f"listing:{listing.listing_id}"
        if key not in jobs:
            jobs[key] = _Job(key, listing, launch_digest(listing), before.get(key), policy)
    return [jobs[key] for key in sorted(jobs)]


def _row_stands(job: _Job, now: float) -> bool:
    """Whether the last run's row still holds without asking anybody: not where the settings or the
    secrets it was launched under are others now, nor for a remote server that answered."""
    row = job.previous
    if row is None or row["launch_digest"] != job.facts:
        return False
    if row["recipe_digest"] and row["conditions"] != job.conditions:
        return False
    if row["status"] == "failed":
        return not _is_due(row, now)
    package = job.listing.package
    if package is None or package.digest:
        return package is not None
    return package.type != "mcpb" and find_exact_version(package) is not None


def _is_due(row: Mapping[str, Any], now: float) -> bool:
    """Whether a failure's time to be tried again has come."""
    return row["retry_at"] is not None and row["retry_at"] <= now


def _carry_out(
    job: _Job,
    ledger: Ledger,
    blobs: Blobs,
    run_date: str,
    now: float,
    toolchain: Toolchain,
    resolve: Resolve,
) -> tuple[dict[str, Any], bool]:
    """The row of one server, and whether it is the old one because the recipe is the same."""
    recipe = plan_recipe(job.listing, resolve)
    row, deployed = job.previous, None
    same = row is not None and _same_plan(row, recipe, job.conditions)
    if row is not None and same and _keeps_row(row, recipe, now):
        facts = {"launch_digest": job.facts, "listing_id": job.listing.listing_id}
        return {**row, **facts}, True
    failed_before = row is not None and same and row["status"] == "failed"
    attempts = int((row or {}).get("attempts") or 0) + 1 if failed_before else 1
    if isinstance(recipe, Recipe):
        deployed = _find_or_deploy(recipe, job, ledger, attempts, run_date, toolchain)
    new = make_deployment_row(
        recipe,
        deployed,
        blobs,
        server_id=job.key,
        marketplace=job.listing.marketplace,
        listing_id=job.listing.listing_id,
        launch_digest=job.facts,
        conditions=job.conditions,
        attempts=attempts,
        now=now,
    )
    return new, False


def _find_or_deploy(
    recipe: Recipe,
    job: _Job,
    ledger: Ledger,
    attempt: int,
    run_date: str,
    toolchain: Toolchain,
) -> Deployed:
    """The result of a recipe, of the ledger where it holds it."""
    if refused := find_refusal(recipe, job.policy):
        return make_failed(refused)
    stage = "remote" if recipe.ecosystem == "remote" else "deploy"
    key = effect_key(recipe, job.conditions, attempt, run_date)
    return Deployed.from_json(
        ledger.once(stage, key, lambda: Outcome(deploy(recipe, job.policy, toolchain).to_json()))
    )


def _same_plan(row: Mapping[str, Any], recipe: Recipe | Unlaunchable, under: str) -> bool:
    if isinstance(recipe, Unlaunchable):
        return row["recipe_digest"] is None and row["error_kind"] == recipe.kind
    return (row["recipe_digest"], row["conditions"]) == (recipe.digest, under)


def _keeps_row(row: Mapping[str, Any], recipe: Recipe | Unlaunchable, now: float) -> bool:
    """Whether the row of the same plan is kept: a failure until it is due, a launch for good, and
    never a remote server that answered, because it may answer otherwise now."""
    if row["status"] == "failed":
        return not _is_due(row, now)
    return isinstance(recipe, Recipe) and recipe.ecosystem != "remote"


def _reporter(progress: Progress, total: int) -> Callable[[Any], None]:
    done: list[str] = []

    def report(outcome: Any) -> None:
        row, _ = outcome.value or ({}, False)
        done.append(row.get("status", "error"))
        progress.update(
            "deployments", len(done), total, ok=done.count("ok"), failed=done.count("failed")
        )

    return report


def summarise_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Counts for reports: servers, ok, failed, tools, and one `failed_<kind>` per kind."""
    counts = {"servers": len(rows), "ok": 0, "failed": 0, "tools": 0}
    for row in rows:
        counts["ok" if row["status"] == "ok" else "failed"] += 1
        counts["tools"] += int(row["n_tools"] or 0)
        if row["error_kind"]:
            name = f"failed_{row['error_kind']}"
            counts[name] = counts.get(name, 0) + 1
    return counts
