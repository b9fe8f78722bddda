"""What the run of one marketplace would do: stage by stage, over what was listed last."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from assets.marketplaces.listing import Listing, Package, read_rows
from assets.marketplaces.listing_table import LISTINGS
from assets.outcomes.plan import Executor, plan_executions
from assets.outcomes.run import make_execution_key
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.servers.deploy.plan import DeploymentRun, deploy_listings
from assets.servers.deploy.policy import Launcher
from assets.servers.recipes.recipe import Resolved
from assets.servers.recipes.version_resolver import Resolver
from assets.servers.sandbox.toolchain import find_toolchain
from assets.synthesis.common.tables import JUDGEMENTS, PAIRS
from assets.synthesis.judging.plan import judge_pairs
from assets.synthesis.writing.endpoints import Writer
from assets.synthesis.writing.plan import write_pairs
from orchestration.plan.rehearsal import NotSent, RehearsedLedger
from warehouse.item_failure import INTERNAL
from warehouse.llm.client import OFFLINE
from warehouse.storage.digest import digest
from warehouse.storage.tables import Plan
from warehouse.store import Warehouse

if TYPE_CHECKING:
    from assets.vectors.embed import Embedder

LOOKED_AT = ("page", "render", "resolve")  # of the moving world: asked anew in every run
WRITING = tuple(
    f"llm:{name}"
    for name in ("generator", "reviser", "evolver", "caller", "checker_a", "checker_b", "actor")
)
_RUNS = 3  # last run dates under which an answer of the moving world is looked for


@dataclass(frozen=True)
class StagePlan:
    """A stage of one marketplace. items: new, stale, gone and unchanged rows. calls: effects by
    stage of the ledger, counted one by one. basis: how the calls were found."""

    stage: str
    new: int = 0
    stale: int = 0
    gone: int = 0
    unchanged: int = 0
    calls: Mapping[str, int] = field(default_factory=dict)
    basis: str = ""


@dataclass(frozen=True)
class Parts:
    """What the assets of a nightly run are made with."""

    launcher: Launcher
    writer: Writer
    executor: Executor
    embedder: "Callable[[], Embedder]"


def plan_marketplace(
    warehouse: Warehouse, name: str, parts: Parts, *, write: bool = True
) -> list[StagePlan]:
    """The stages of one marketplace, in the order of the data; without `write`, which takes
    seconds, the launches and the calls of the pairs that are there. warehouse: of a rehearsal."""
    ledger = warehouse.ledger
    assert isinstance(ledger, RehearsedLedger)
    looked = ledger.real.count_last_run(name, ("page", "render"))
    crawl = {stage: looked[stage] for stage in LOOKED_AT if looked.get(stage)}
    listed = warehouse.tables.read(LISTINGS, name).height
    found = [
        StagePlan("listings", unchanged=listed, calls=crawl, basis="as in its last run"),
        _plan_deployments(warehouse, ledger, name, parts.launcher),
    ]
    if not write:
        return [*found, _plan_executions(warehouse, ledger, name, parts.executor)]
    return [
        *found,
        _plan_pairs(warehouse, ledger, name, parts),
        _plan_judgements(warehouse, ledger, name, parts.writer),
        _plan_executions(warehouse, ledger, name, parts.executor),
    ]


def _plan_deployments(
    warehouse: Warehouse, ledger: RehearsedLedger, name: str, launcher: Launcher
) -> StagePlan:
    previous = warehouse.tables.read(DEPLOYMENTS, name).to_dicts()
    unresolved: list[str] = []
    toolchain = find_toolchain()

    def resolve(package: Package) -> Resolved:
        """What a package was resolved to in the last runs."""
        for run_date in ledger.real.list_run_dates(name, _RUNS):
            resolver = Resolver(
                warehouse.home, toolchain, ledger, run_date, sandbox=launcher.policy.sandbox
            )
            try:
                return resolver(package)
            except NotSent:
                continue
        unresolved.append(package.identifier)
        # Under a name of its own, so that what several marketplaces list is counted once.
        ledger.note("deploy", digest(["unresolved", package.model_dump(mode="json")]))
        raise NotSent(f"{package.identifier}: it was not resolved yet")

    before = Counter(ledger.asked)
    listings = list(read_rows(warehouse.tables.read(LISTINGS, name).to_dicts()))
    run = deploy_listings(
        listings,
        previous,
        launcher.policy,
        ledger=ledger,
        blobs=warehouse.blobs,
        run_date="planned",
        now=time.time(),
        concurrency=1,
        toolchain=toolchain,
        resolve=resolve,
    )
    calls = ledger.asked - before
    calls.pop("resolve", None)  # with those of the crawl, as its last run asked them
    ledger.launched |= _list_launched(run, listings)
    known = {row["server_id"] for row in previous}
    new = sum(key not in known for key in run.done)
    note = f", {len(unresolved)} of them as if what is not resolved yet were launched"
    return StagePlan(
        "deployments", new, len(run.done) - new, len(run.gone), len(run.kept), dict(+calls),
        "counted one by one" + note * bool(unresolved),
    )  # fmt: skip


def _list_launched(run: DeploymentRun, listings: Iterable[Listing]) -> set[str]:
    """The servers that would be launched here; a remote one is asked, in every run."""
    done, packaged = set(run.done), {listing.listing_id for listing in listings if listing.package}
    return {
        row["server_id"]
        for row in run.rows
        if row["server_id"] in done
        and row["listing_id"] in packaged
        and row["error_kind"] == INTERNAL  # as `NotSent` reads
    }


def _plan_pairs(
    warehouse: Warehouse, ledger: RehearsedLedger, name: str, parts: Parts
) -> StagePlan:
    before = Counter(ledger.asked)
    writer = _relax_rates(parts.writer)
    llm = writer.make_llm(warehouse, name)
    made = write_pairs(warehouse, name, writer.policy, llm, parts.embedder(), None, writer.worlds)
    _publish(warehouse, PAIRS, made.rows, name)
    return _make_stage("pairs", made.due, ledger.asked - before, writer, "generator")


def _plan_judgements(
    warehouse: Warehouse, ledger: RehearsedLedger, name: str, given: Writer
) -> StagePlan:
    before = Counter(ledger.asked)
    writer = _relax_rates(given)
    made = judge_pairs(warehouse, name, writer.policy, writer.make_llm(warehouse, name))
    _publish(warehouse, JUDGEMENTS, made.rows, name)
    return _make_stage("judgements", made.due, ledger.asked - before, writer, "judge")


def _plan_executions(
    warehouse: Warehouse, ledger: RehearsedLedger, name: str, executor: Executor
) -> StagePlan:
    """As many calls as a run may execute at most: its limits leave some for the next one."""
    before = Counter(ledger.asked)
    planned = plan_executions(warehouse, name, executor)
    wanted, date = set(planned.due.due), ledger.open_run(name)
    for job in planned.jobs:
        if job.id in wanted:
            asked = replace(job, again=job.id in planned.again)
            key = make_execution_key(asked, executor.policy, executor.settings, date)
            ledger.note("execute", key)
    return _make_stage("executions", planned.due, ledger.asked - before)


def _make_stage(
    stage: str, due: Plan, calls: Mapping[str, int], writer: Writer | None = None, role: str = ""
) -> StagePlan:
    """A stage of what is due. What a model answers is not known: its first questions are counted,
    and what follows from the answers is estimated (`estimate_followers`)."""
    offline = writer is None or _find_model(writer, role) == OFFLINE
    basis = "counted one by one" if offline else "first questions counted one by one"
    figures = (len(due.new), len(due.stale), len(due.gone), len(due.unchanged))
    return StagePlan(stage, *figures, dict(calls), basis)


def _find_model(writer: Writer, role: str) -> str:
    return next((one.model for one in writer.roles if one.name == role), OFFLINE)


def _relax_rates(writer: Writer) -> Writer:
    """Without limits a minute: nothing is sent."""
    free = {"requests_per_minute": 0.0, "tokens_per_minute": 0.0}
    return replace(writer, roles=tuple(replace(role, **free) for role in writer.roles))


def _publish(warehouse: Warehouse, spec: Any, rows: Any, name: str) -> None:
    """Makes rows current in the rehearsal, for the stages after."""
    warehouse.tables.promote(warehouse.tables.stage(spec, spec.frame(rows), name), "plan", [])
