"""The table of deployments: which rows still hold, what is due, and one run of a marketplace."""

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from assets.columns import read_table_spec
from assets.marketplaces.listing import Listing
from assets.servers.deploy.deploy import (
    DeploymentResult,
    deploy_on,
    effect_key,
    find_refusal,
    make_failed,
)
from assets.servers.deploy.policy import DeployPolicy, digest_conditions
from assets.servers.probe.failure_kinds import compute_next_retry
from assets.servers.recipes.recipe import (
    RECIPE_VERSION,
    LaunchRecipe,
    UnlaunchableServer,
    dump_recipe,
    find_exact_version,
    identify_server,
    normalise_address,
)
from assets.servers.recipes.recipe_plan import Resolve, plan_recipe
from assets.servers.recipes.version_resolver import VersionResolver
from assets.servers.sandbox.spec import SandboxUnavailable
from assets.servers.sandbox.toolchain import HostToolchain, find_toolchain
from warehouse.fleet import Fleet, FleetUnavailable, LocalFleet, map_side_by_side
from warehouse.item_failure import INTERNAL, try_item
from warehouse.ledger.attempts import BudgetExceeded, EffectOutcome
from warehouse.ledger.ledger import Ledger
from warehouse.progress import Progress, SilentProgress
from warehouse.sanitize.untrusted_text import drop_surrogates
from warehouse.storage.blobs import Blobs
from warehouse.storage.digest import canonical_json, digest
from warehouse.storage.takedowns import read_takedowns

_LAUNCH_FACTS = {"transport", "command", "args", "env", "url", "headers", "package", "runnable"}


@dataclass(frozen=True)
class DeploymentJob:
    """A server that is to have a row. key: its id. previous: its row of the last run."""

    key: str
    listing: Listing
    previous: Mapping[str, Any] | None
    policy: DeployPolicy

    @cached_property
    def launch_digest(self) -> str:
        """Over what the listing says about launching; an edited description changes nothing."""
        listing = self.listing
        facts = listing.model_dump(mode="json", include=_LAUNCH_FACTS)
        facts["env"] = [{**variable, "description": None} for variable in facts["env"]]
        if listing.package and listing.package.type == "mcpb":
            facts["package"]["identifier"] = normalise_address(listing.package.identifier)
        facts["recipe_version"] = RECIPE_VERSION
        try:
            return digest(facts)
        except ValueError:  # halves of surrogate pairs have no canonical form
            return digest(ascii(facts))

    @cached_property
    def conditions(self) -> str:
        """Digest of the settings and secrets that the server is launched under, asked for once."""
        return digest_conditions(self.key, self.policy)

    def stands(self, now: float) -> bool:
        """Whether the last run's row still holds without asking anybody: not where the settings or
        the secrets it was launched under are others now, nor for a remote server that answered, nor
        for a local one, whose folder may have changed."""
        row = self.previous
        if row is None or row["launch_digest"] != self.launch_digest or self.listing.is_local:
            return False
        if row["recipe_digest"] and row["conditions"] != self.conditions:
            return False
        if row["status"] == "failed":
            return not _is_due(row, now)
        package = self.listing.package
        if package is None or package.digest:
            return package is not None
        return package.type != "mcpb" and find_exact_version(package) is not None

    def keep_row(
        self, recipe: LaunchRecipe | UnlaunchableServer, now: float
    ) -> dict[str, Any] | None:
        """The last run's row where the plan is the same: a failure until it is due, a launch for
        good, and never a remote server that answered, because it may answer otherwise now."""
        row = self._find_same_plan(recipe)
        if row is None:
            return None
        launched = isinstance(recipe, LaunchRecipe) and recipe.ecosystem != "remote"
        if _is_due(row, now) if row["status"] == "failed" else not launched:
            return None
        return {**row, "launch_digest": self.launch_digest, "listing_id": self.listing.listing_id}

    def count_attempts(self, recipe: LaunchRecipe | UnlaunchableServer) -> int:
        """How often the same plan has failed so far."""
        row = self._find_same_plan(recipe)
        return int(row["attempts"] or 0) if row is not None and row["status"] == "failed" else 0

    def _find_same_plan(
        self, recipe: LaunchRecipe | UnlaunchableServer
    ) -> Mapping[str, Any] | None:
        row = self.previous
        if row is None:
            return None
        if isinstance(recipe, UnlaunchableServer):
            # What is wrong with a folder is read from disk, so repeating it costs nothing.
            hint = recipe.hint if self.listing.is_local else row["hint"]
            same = (row["recipe_digest"], row["error_kind"], row["hint"]) == (
                None,
                recipe.kind,
                hint,
            )
        else:
            plan = (row["recipe_digest"], row["conditions"])
            same = plan == (recipe.digest, self.conditions)
        return row if same else None


def plan_jobs(
    listings: Iterable[Listing], before: Mapping[str, Mapping[str, Any]], policy: DeployPolicy
) -> list[DeploymentJob]:
    """One job per server that is not taken down: of several listings the first runnable one, by
    listing id."""
    taken_down = read_takedowns(policy.home).servers
    jobs: dict[str, DeploymentJob] = {}
    for listing in sorted(listings, key=lambda each: (not each.runnable, each.listing_id)):
        unnamed = f"listing:{listing.listing_id}"
        name = try_item(partial(identify_server, listing), lambda _: None) or unnamed
        key = drop_surrogates(name)
        jobs.setdefault(key, DeploymentJob(key, listing, before.get(key), policy))
    return [jobs[key] for key in sorted(jobs) if key not in taken_down]


def _is_due(row: Mapping[str, Any], now: float) -> bool:
    """Whether a failure's time to be tried again has come."""
    return row["retry_at"] is not None and row["retry_at"] <= now


DEPLOYMENTS = read_table_spec(__file__, "deployments")


def make_deployment_row(
    recipe: LaunchRecipe | UnlaunchableServer,
    deployed: DeploymentResult | None,
    blobs: Blobs,
    job: DeploymentJob,
    *,
    attempts: int,
    now: float,
) -> dict[str, Any]:
    """The row of DEPLOYMENTS; the raw tools go to a blob of their own."""
    row: dict[str, Any] = {
        **dict.fromkeys(DEPLOYMENTS.columns),
        "server_id": job.key,
        "marketplace": job.listing.marketplace,
        "listing_id": job.listing.listing_id,
        "launch_digest": job.launch_digest,
        "conditions": job.conditions,
        "attempts": attempts,
        "probed_at": now,
    }
    if isinstance(recipe, UnlaunchableServer):
        due = compute_next_retry(recipe.kind, attempts, now)
        failure = {"status": "failed", "error_kind": recipe.kind, "hint": recipe.hint}
        return row | failure | {"retry_at": due, "n_tools": 0}
    assert deployed is not None
    result, certificate = deployed.probe, deployed.certificate
    measured = ("status", "error_kind", "initialize_s", "seconds", "peak_mb", "stderr_tail")
    row |= {
        **{name: getattr(result, name) for name in measured},
        "ecosystem": recipe.ecosystem,
        "version": recipe.version,
        "recipe_digest": recipe.digest,
        "hint": result.hint and drop_surrogates(result.hint),
        "n_tools": len(result.tools),
        "behaviour": None if deployed.behaviour is None else _dump_ascii(deployed.behaviour),
        "certified": certificate and certificate["passed"],
        "certificate": certificate and blobs.put(canonical_json(certificate)),
        "protocol": result.protocol and drop_surrogates(result.protocol),
        "capabilities": _dump_ascii(result.capabilities),
        "license": deployed.license,
        "server_name": _read_text(result.server_info, "name"),
        "server_version": _read_text(result.server_info, "version"),
        "placeholders": _dump_ascii(list(deployed.placeholders)),
    }
    if result.error_kind:
        # By the kind's back-off, and not before a remote server asked to be left alone.
        due, wait = compute_next_retry(result.error_kind, attempts, now), result.retry_after or 0.0
        return row | {"retry_at": None if due is None else max(due, now + wait)}
    names = ("prompts", "resources", "templates", "instructions")
    extras = {name: getattr(result, name) for name in names}
    return row | {
        "tools_blob": blobs.put(json.dumps(result.tools).encode()),
        "extras_blob": blobs.put(json.dumps(extras).encode()) if any(extras.values()) else None,
        "recipe": _dump_ascii(deployed.launched or dump_recipe(recipe)),
    }


def _dump_ascii(value: Any) -> str:
    """ASCII only: third-party names may hold halves of surrogate pairs, which no column takes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _read_text(info: Mapping[str, Any], name: str) -> str | None:
    value = info.get(name)
    return drop_surrogates(value[:200]) if isinstance(value, str) else None


_OF_THE_RUN = (SandboxUnavailable, FleetUnavailable, BudgetExceeded)
_HERE = LocalFleet()
Row = dict[str, Any]


@dataclass
class DeploymentRun:
    """The result of a run of deployments: all rows of the partition, sorted by server, and the
    servers that were launched or newly judged (`done`), kept, or gone."""

    rows: list[dict[str, Any]]
    done: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)


def deploy_listings(
    listings: Iterable[Listing],
    previous: Iterable[Mapping[str, Any]],
    policy: DeployPolicy,
    *,
    ledger: Ledger,
    blobs: Blobs,
    run_date: str,
    now: float,
    concurrency: int = 3,
    fleet: Fleet = _HERE,
    progress: Progress | None = None,
    toolchain: HostToolchain | None = None,
    resolve: Resolve | None = None,
    only: str | None = None,
) -> DeploymentRun:
    """Brings the deployments of one marketplace up to date with its listings.

    `previous` are the rows of the last run (of DEPLOYMENTS). Every server of `listings` has a row
    in the result; whatever fails is a row with `error_kind` and `hint`, `internal` where nobody
    foresaw it. `only` launches one server, whether or not its row still holds, and leaves the rows
    of all others as they are. Raises SandboxUnavailable, FleetUnavailable, or the ledger's own
    errors; what was done until then is in the ledger and not done again.
    """
    toolchain = toolchain or find_toolchain()
    asked = {"sandbox": policy.sandbox}
    resolve = resolve or VersionResolver(policy.home, toolchain, ledger, run_date, **asked)
    forced = only is not None
    shared = (policy, ledger, blobs, run_date, now, fleet, toolchain, resolve, forced)
    before = {row["server_id"]: row for row in previous}
    jobs = [job for job in plan_jobs(listings, before, policy) if not forced or job.key == only]
    rows = [dict(row) for key, row in before.items() if forced and key != only]
    kept = sorted(row["server_id"] for row in rows)
    gone = sorted(before.keys() - {job.key for job in jobs} - set(kept))
    result = DeploymentRun(rows=rows, kept=kept, gone=gone)
    due = []
    for job in jobs:
        if not forced and try_item(partial(job.stands, now), lambda _: False):
            result.rows.append(dict(job.previous or {}))
            result.kept.append(job.key)
        else:
            due.append(job)
    states: list[str] = []

    def report(finished: Future[Any]) -> None:
        if not finished.cancelled():
            failed = finished.exception() is not None
            states.append("error" if failed else finished.result()[0]["status"])
            counts = {state: states.count(state) for state in ("ok", "failed")}
            (progress or SilentProgress()).update("deployments", len(states), len(due), **counts)

    launch = _RunLauncher(*shared).carry_out
    done = map_side_by_side(launch, due, concurrency=concurrency, on_done=report)
    for job, (row, is_kept) in zip(due, done, strict=True):
        result.rows.append(row)
        (result.kept if is_kept else result.done).append(job.key)
    result.rows.sort(key=lambda row: row["server_id"])
    return result


@dataclass(frozen=True)
class _RunLauncher:
    """What all launches of a run share. forced: one server, whether or not its row still holds."""

    policy: DeployPolicy
    ledger: Ledger
    blobs: Blobs
    run_date: str
    now: float
    fleet: Fleet
    toolchain: HostToolchain
    resolve: Resolve
    forced: bool

    def carry_out(self, job: DeploymentJob) -> tuple[Row, bool]:
        """The row of one server, and whether it is the old one because the recipe is the same."""

        def fail(hint: str) -> tuple[Row, bool]:
            failed = UnlaunchableServer(job.key, INTERNAL, hint)
            attempts = job.count_attempts(failed) + 1
            return make_deployment_row(
                failed, None, self.blobs, job, attempts=attempts, now=self.now
            ), False

        return try_item(partial(self._launch, job), fail, through=_OF_THE_RUN)

    def _launch(self, job: DeploymentJob) -> tuple[Row, bool]:
        recipe = plan_recipe(job.listing, self.resolve)
        if not self.forced and (previous_row := job.keep_row(recipe, self.now)):
            return previous_row, True
        attempt = job.count_attempts(recipe) + 1
        deployed = self._deploy(recipe, job, attempt) if isinstance(recipe, LaunchRecipe) else None
        row = make_deployment_row(recipe, deployed, self.blobs, job, attempts=attempt, now=self.now)
        DEPLOYMENTS.frame([row])  # what no column takes is found here, not when all are published
        return row, False

    def _deploy(self, recipe: LaunchRecipe, job: DeploymentJob, attempt: int) -> DeploymentResult:
        if refused := find_refusal(recipe, self.policy):
            return make_failed(refused)
        stage = "remote" if recipe.ecosystem == "remote" else "deploy"
        conditions = f"{job.conditions} {self.run_date}" if self.forced else job.conditions
        key = effect_key(recipe, conditions, attempt, self.run_date)
        launch = partial(deploy_on, self.fleet, recipe, self.policy, self.toolchain)
        data = self.ledger.once(stage, key, lambda: EffectOutcome(launch()))
        return DeploymentResult.from_json(data)


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
