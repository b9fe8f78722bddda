"""One run of deployments of one marketplace: launches what is due and returns all rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from assets.marketplaces.listing import Listing
from assets.servers.deploy.deploy import deploy_on, effect_key, find_refusal
from assets.servers.deploy.deployment_table import (
    DEPLOYMENTS,
    DeploymentJob,
    make_deployment_row,
    plan_jobs,
)
from assets.servers.deploy.package import DeploymentResult, find_local_image, make_failed
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.recipes.recipe import LaunchRecipe, UnlaunchableServer
from assets.servers.recipes.recipe_plan import Resolve, plan_recipe
from assets.servers.recipes.version_resolver import VersionResolver
from assets.servers.sandbox.spec import SandboxUnavailable
from assets.servers.sandbox.toolchain import HostToolchain, find_toolchain
from warehouse.fleet import Fleet, FleetUnavailable, LocalFleet, map_side_by_side
from warehouse.item_failure import INTERNAL, try_item
from warehouse.ledger.attempts import BudgetExceeded, EffectOutcome
from warehouse.ledger.ledger import Ledger
from warehouse.progress import Progress, SilentProgress
from warehouse.storage.blobs import Blobs

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
    resolve = resolve or VersionResolver(
        policy.home, toolchain, ledger, run_date, sandbox=policy.sandbox
    )
    launches = _RunLauncher(
        policy, ledger, blobs, run_date, now, fleet, toolchain, resolve, anew=only is not None
    )
    before = {row["server_id"]: row for row in previous}
    result, due = _split_due(plan_jobs(listings, before, policy), before, now, only)
    on_done = _make_reporter(progress or SilentProgress(), len(due))
    done = map_side_by_side(launches.carry_out, due, concurrency=concurrency, on_done=on_done)
    for job, (row, is_kept) in zip(due, done, strict=True):
        result.rows.append(row)
        (result.kept if is_kept else result.done).append(job.key)
    result.rows.sort(key=lambda row: row["server_id"])
    return result


def _split_due(
    jobs: Sequence[DeploymentJob],
    before: Mapping[str, Mapping[str, Any]],
    now: float,
    only: str | None,
) -> tuple[DeploymentRun, list[DeploymentJob]]:
    """The run with the rows that still hold, and the jobs that are due."""
    if only is not None:
        jobs = [job for job in jobs if job.key == only]
    others = [dict(row) for key, row in before.items() if only is not None and key != only]
    kept_ids = sorted(row["server_id"] for row in others)
    gone = sorted(before.keys() - {job.key for job in jobs} - set(kept_ids))
    result, due = DeploymentRun(rows=others, kept=kept_ids, gone=gone), []
    for job in jobs:
        if only is None and try_item(partial(job.stands, now), lambda _: False):
            result.rows.append(dict(job.previous or {}))
            result.kept.append(job.key)
        else:
            due.append(job)
    return result, due


@dataclass(frozen=True)
class _RunLauncher:
    """What all launches of a run share. anew: of one server, whether or not its row still holds."""

    policy: DeployPolicy
    ledger: Ledger
    blobs: Blobs
    run_date: str
    now: float
    fleet: Fleet
    toolchain: HostToolchain
    resolve: Resolve
    anew: bool

    def carry_out(self, job: DeploymentJob) -> tuple[Row, bool]:
        """The row of one server, and whether it is the old one because the recipe is the same."""

        def fail(hint: str) -> tuple[Row, bool]:
            failed = UnlaunchableServer(job.key, INTERNAL, hint)
            return self._make_row(failed, None, job, job.count_attempts(failed) + 1), False

        return try_item(partial(self._launch, job), fail, through=_OF_THE_RUN)

    def _launch(self, job: DeploymentJob) -> tuple[Row, bool]:
        find_image = partial(find_local_image, sandbox=self.policy.sandbox)
        recipe = plan_recipe(job.listing, self.resolve, find_image=find_image)
        if not self.anew and (previous_row := job.keep_row(recipe, self.now)):
            return previous_row, True
        attempt = job.count_attempts(recipe) + 1
        deployed = self._deploy(recipe, job, attempt) if isinstance(recipe, LaunchRecipe) else None
        row = self._make_row(recipe, deployed, job, attempt)
        DEPLOYMENTS.frame([row])  # what no column takes is found here, not when all are published
        return row, False

    def _deploy(self, recipe: LaunchRecipe, job: DeploymentJob, attempt: int) -> DeploymentResult:
        if refused := find_refusal(recipe, self.policy):
            return make_failed(refused)
        stage = "remote" if recipe.ecosystem == "remote" else "deploy"
        conditions = f"{job.conditions} {self.run_date}" if self.anew else job.conditions
        key = effect_key(recipe, conditions, attempt, self.run_date)
        launch = partial(deploy_on, self.fleet, recipe, self.policy, self.toolchain)
        return DeploymentResult.from_json(
            self.ledger.once(stage, key, lambda: EffectOutcome(launch()))
        )

    def _make_row(
        self,
        recipe: LaunchRecipe | UnlaunchableServer,
        deployed: DeploymentResult | None,
        job: DeploymentJob,
        attempts: int,
    ) -> Row:
        return make_deployment_row(
            recipe, deployed, self.blobs, job, attempts=attempts, now=self.now
        )


def _make_reporter(progress: Progress, total: int) -> Callable[[Future[Any]], None]:
    done: list[str] = []

    def report(job: Future[Any]) -> None:
        if job.cancelled():
            return
        done.append("error" if job.exception() is not None else job.result()[0]["status"])
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
