"""What a run would do and cost: the keys that are due, times what such keys have cost so far.

Nothing is sent. Listings are taken as they were last seen. A stage counts the keys that have no row
yet or whose row is due again. Calls, seconds, tokens and dollars of a key are means of this home's
ledger (`toolmill spend`), or defaults before the first run.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assets.marketplaces.listing import read_rows
from assets.marketplaces.listing_table import LISTINGS
from assets.outcomes.plan import plan_executions
from assets.servers.deploy.deployment_table import DEPLOYMENTS, plan_jobs
from assets.synthesis.offer import read_offer
from assets.synthesis.tables import JUDGEMENTS, PAIRS
from orchestration.factories import list_enabled, make_executor, make_launcher, open_made_warehouse
from orchestration.runs.instance import SLOTS
from orchestration.settings.model import Settings
from warehouse.home import HomeUnavailable
from warehouse.llm.roles import OFFLINE
from warehouse.store import Warehouse

_CRAWLED = ("page", "render", "resolve")
_POOLS = {"page": "crawl", "render": "crawl"} | dict.fromkeys(
    ("resolve", "remote", "deploy", "execute"), "sandbox"
)
_ROLES = ("generator", "reviser", "evolver", "caller", "checker_a", "checker_b", "judge")
# Seconds, prompt and completion tokens of an effect that this home has not measured: on two busy
# cores a launch took 29 s, a page .3, a page in a browser 18, a call in a world .7.
_DEFAULTS = {"page": (0.5, 0, 0), "render": (10.0, 0, 0), "resolve": (2.0, 0, 0),
             "remote": (2.0, 0, 0), "deploy": (15.0, 0, 0), "execute": (0.5, 0, 0),
             "llm": (3.0, 900, 250)}  # fmt: skip


@dataclass(frozen=True)
class StageEstimate:
    """Effects of one stage of the ledger over all marketplaces. basis: where the rate is from."""

    stage: str
    calls: int
    tokens: float
    usd: float
    minutes: float
    basis: str


@dataclass(frozen=True)
class RunPlan:
    """due: marketplace -> kind -> keys. exceeded: the budget that the run would pass, if any."""

    due: dict[str, dict[str, int]]
    stages: list[StageEstimate]
    totals: dict[str, float]
    exceeded: str | None

    def describe(self) -> list[str]:
        """The lines that `toolmill run` prints, with `--plan` too."""
        if not any(due["listings"] for due in self.due.values()):
            return ["plan: nothing is listed yet, so nothing can be foreseen"]
        calls, usd, minutes = (self.totals[name] for name in ("calls", "usd", "minutes"))
        lines = [f"plan: {calls:,.0f} effects, {usd:.2f} USD, about {minutes:,.0f} minutes"]
        for name, due in self.due.items():
            lines.append(f"  {name:<12} " + ", ".join(f"{n:,} {kind}" for kind, n in due.items()))
        for stage in self.stages:
            figures = f"{stage.calls:>9,} calls {stage.tokens:>12,.0f} tokens {stage.usd:>8.2f} USD"
            lines.append(f"  {stage.stage:<14} {figures} {stage.minutes:>7.1f} min  {stage.basis}")
        return lines


def make_plan(settings: Settings, only: Sequence[str] | None = None) -> RunPlan:
    """The plan of a run over these marketplaces (default: all that are enabled). Raises
    HomeUnavailable before the first run."""
    warehouse, calls = open_made_warehouse(settings), Counter[str]()
    names = only or list_enabled(settings)
    due = {name: _count_due(warehouse, settings, name, calls) for name in names}
    spent = _sum_costs(warehouse)
    paired = warehouse.tables.read(PAIRS)["contract_digest"].n_unique()
    servers = max(1, warehouse.tables.read(DEPLOYMENTS)["server_id"].n_unique())
    # A new server is expected to list as many contracts as the home's servers do on average.
    new = sum(of["new contracts"] + of["new servers"] * paired / servers for of in due.values())
    for stage in (*(f"llm:{role}" for role in _ROLES), "execute"):
        rate = spent[stage][0] / paired if paired else settings.synthesis.pairs_per_tool
        calls[stage] += round(new * rate)
    stages = [_estimate(stage, n, spent, settings) for stage, n in sorted(calls.items()) if n]
    totals: dict[str, float] = {
        name: round(sum(getattr(stage, name) for stage in stages), 4)
        for name in ("calls", "tokens", "usd", "minutes")
    }
    paid, budget, exceeded = warehouse.ledger.spent(), settings.budget_usd, None
    if totals["usd"] and paid + totals["usd"] > budget:
        exceeded = (
            f"budget_usd: {paid:.2f} USD are spent and the run is expected to need"
            f" {totals['usd']:.2f} more; the budget is {budget:.2f}"
        )
    return RunPlan(due, stages, totals, exceeded)


def describe_run(settings: Settings, only: Sequence[str] | None = None) -> str:
    """The lines of a plan for `toolmill run`. A damaged home keeps no run back."""
    try:
        return "\n".join(make_plan(settings, only).describe())
    except HomeUnavailable:
        return "plan: nothing is listed yet, so nothing can be foreseen"
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        return f"plan: not known ({type(error).__name__}: {reason})"


def _count_due(
    warehouse: Warehouse, settings: Settings, name: str, calls: Counter[str]
) -> dict[str, int]:
    """Kind -> keys due in one marketplace. Adds their effects to `calls`."""
    tables, now = warehouse.tables, time.time()
    crawled = warehouse.ledger.count_last_run(name, ("page", "render"))
    calls.update({stage: crawled.get(stage, 0) for stage in _CRAWLED})
    listings = list(read_rows(tables.read(LISTINGS, name).to_dicts()))
    before = {row["server_id"]: row for row in tables.read(DEPLOYMENTS, name).to_dicts()}
    jobs = plan_jobs(listings, before, make_launcher(settings).policy)
    due = [job for job in jobs if job.listing.runnable and not job.stands(now)]
    remote = [job for job in due if job.listing.package is None and job.listing.url]
    new = [job for job in due if job.previous is None and job not in remote]
    # A package without a pinned version is resolved again, and launched only if that changed.
    again = [
        job for job in due
        if job.previous and job not in remote
        and (job.previous["launch_digest"], "ok") != (job.launch_digest, job.previous["status"])
    ]  # fmt: skip
    pairs = tables.read(PAIRS, name)
    usable = {row["contract_digest"] for row in read_offer(warehouse, name).usable}
    judged = set(tables.read(JUDGEMENTS, name)["pair_id"])
    unjudged = len(set(pairs.filter(pairs["status"] == "ok")["pair_id"]) - judged)
    executions = len(plan_executions(warehouse, name, make_executor(settings)).due.due)
    calls.update({"remote": len(remote), "deploy": len(new) + len(again)})
    calls.update({"llm:judge": unjudged, "execute": executions})
    return {
        "listings": len(listings),
        "new servers": len(new),
        "launches again": len(again),
        "new contracts": len(usable - set(pairs["contract_digest"])),
        "pairs to judge": unjudged,
        "calls to execute": executions,
    }


def _sum_costs(warehouse: Warehouse) -> Mapping[str, list[float]]:
    """Stage -> [effects, seconds, tokens, dollars] of what this home has done."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    for row in warehouse.ledger.costs():
        if row["status"] == "done":
            tokens = row["prompt_tokens"] + row["completion_tokens"]
            for n, value in enumerate((row["effects"], row["seconds"], tokens, row["usd"])):
                sums[row["stage"]][n] += value
    return sums


def _estimate(
    stage: str, calls: int, spent: Mapping[str, list[float]], settings: Settings
) -> StageEstimate:
    """A model's price follows the settings until this home has paid for one of its answers."""
    kind, _, name = stage.partition(":")
    role: Any = getattr(settings.roles, name) if kind == "llm" else None
    paid = role is not None and role.model != OFFLINE
    n, seconds, tokens, usd = spent[stage]
    basis = f"mean of {n:,.0f} in this home"
    if not n or (paid and not tokens):
        n, basis, (seconds, prompt, completion) = 1.0, "default", _DEFAULTS[kind]
        tokens = prompt + completion if paid else 0
        usd = (role.usd_in * prompt + role.usd_out * completion) / 1e6 if role and paid else 0.0
    minutes = calls * seconds / n / 60 / SLOTS[_POOLS.get(stage, "llm")]
    return StageEstimate(stage, calls, calls * tokens / n, calls * usd / n, minutes, basis)
