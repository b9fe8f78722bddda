"""What a run would do and cost: the keys that are due, as the run itself plans them over the last
listings, times the means of this home's ledger (`toolmill spend`) or defaults."""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assets.catalogue.catalogue import CATALOGUE, PRIVATE, map_descriptions
from assets.contracts.quarantined_tools import read_clear
from assets.marketplaces.adapters.private import NotApproved
from assets.marketplaces.listing import read_rows
from assets.marketplaces.listing_table import LISTINGS
from assets.outcomes.plan import plan_executions
from assets.servers.deploy.deployment_table import DEPLOYMENTS, plan_jobs
from assets.synthesis.judging.judge import count_votes
from assets.synthesis.judging.plan import plan_judging
from assets.synthesis.summaries import SUMMARIES, count_due_summaries
from assets.synthesis.tables import PAIRS, make_unit_key
from assets.synthesis.writing.plan import plan_pairs
from assets.synthesis.writing.units import count_rows
from orchestration.factories import (
    list_enabled,
    make_embedder,
    make_executor,
    make_launcher,
    make_world_tasks,
    make_writer,
    open_made_warehouse,
)
from orchestration.runs.instance import SLOTS
from orchestration.settings.model import Settings
from warehouse.home import HomeUnavailable
from warehouse.llm.roles import OFFLINE
from warehouse.store import Warehouse

_CRAWLED = ("page", "render", "resolve")
_POOLS = {"page": "crawl", "render": "crawl"} | dict.fromkeys(
    ("resolve", "remote", "deploy", "execute"), "sandbox"
)
_TRIAL_ROWS = 180  # good rows and mutants of one trial that the rules leave to a judge
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
        if not any(due["listings"] for due in self.due.values()):
            return ["plan: nothing is listed yet, so nothing can be foreseen"]
        calls, usd, minutes = (self.totals[name] for name in ("calls", "usd", "minutes"))
        lines = [f"plan: effects {calls:,.0f}, {usd:.2f} USD, about {minutes:,.0f} min"]
        for name, due in self.due.items():
            lines.append(f"  {name:<12} " + ", ".join(f"{n:,} {kind}" for kind, n in due.items()))
        for stage in self.stages:
            noun = "call " if stage.calls == 1 else "calls"
            figures = (
                f"{stage.calls:>9,} {noun} {stage.tokens:>12,.0f} tokens {stage.usd:>8.2f} USD"
            )
            lines.append(f"  {stage.stage:<14} {figures} {stage.minutes:>7.1f} min  {stage.basis}")
        return lines


def make_plan(settings: Settings, only: Sequence[str] | None = None) -> RunPlan:
    """The plan of a run (default: all enabled marketplaces). Raises HomeUnavailable before one."""
    warehouse, calls = open_made_warehouse(settings), Counter[str]()
    names = only or list_enabled(settings)
    count = _DueCount(warehouse, settings, calls)
    due = {name: count.count_marketplace(name) for name in names}
    # Stage -> [effects, seconds, tokens, dollars] of what this home has done. Answers by rules say
    # nothing of a role that has a model, nor a model's of one that is offline.
    spent: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    for row in warehouse.ledger.costs():
        kind, _, name = row["stage"].partition(":")
        role = getattr(settings.roles, name, None) if kind == "llm" else None
        by_rules = str(row["model"]).startswith(OFFLINE)  # `offline-<version of the rules>`
        other = role is not None and by_rules != (role.model == OFFLINE)
        if row["status"] == "done" and not other:
            tokens = row["prompt_tokens"] + row["completion_tokens"]
            for n, value in enumerate((row["effects"], row["seconds"], tokens, row["usd"])):
                spent[row["stage"]][n] += value
    written = warehouse.tables.read(PAIRS)["contract_digest"].n_unique()
    servers = max(1, warehouse.tables.read(DEPLOYMENTS)["server_id"].n_unique())
    # A new server is expected to list as many contracts as the home's servers do on average, each
    # of which leads to as many requests as the home's contracts did.
    new = sum(of["new servers"] for of in due.values()) * written / servers
    effects = count.sum_effects()
    for stage in (*(f"llm:{role}" for role in _ROLES), "execute"):
        rate = effects[stage] / written if written else settings.synthesis.pairs_per_tool
        calls[stage] += round(new * rate)
    calls["llm:generator"] += count.count_summaries()
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
        plan = make_plan(settings, only)
        return "\n".join([*plan.describe(), *([plan.exceeded] if plan.exceeded else [])])
    except HomeUnavailable:
        return "plan: nothing is listed yet, so nothing can be foreseen"
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        return f"plan: not known ({type(error).__name__}: {reason})"


class _DueCount:
    """Counts what is due per marketplace and adds the effects to `calls`, each request once."""

    def __init__(self, warehouse: Warehouse, settings: Settings, calls: Counter[str]) -> None:
        self._warehouse, self._settings, self._calls = warehouse, settings, calls
        self._writer = replace(make_writer(settings), worlds=make_world_tasks(settings))
        self._units, self._pairs = set[str](), set[str]()  # counted already

    def count_marketplace(self, name: str) -> dict[str, int]:
        warehouse, tables, now = self._warehouse, self._warehouse.tables, time.time()
        crawled = warehouse.ledger.count_last_run(name, ("page", "render"))
        self._calls.update({stage: crawled.get(stage, 0) for stage in _CRAWLED})
        listings = list(read_rows(tables.read(LISTINGS, name).to_dicts()))
        before = {row["server_id"]: row for row in tables.read(DEPLOYMENTS, name).to_dicts()}
        jobs = plan_jobs(listings, before, make_launcher(self._settings).policy)
        due = [job for job in jobs if job.listing.runnable and not job.stands(now)]
        remote = [job for job in due if job.listing.package is None and job.listing.url]
        new = [job for job in due if job.previous is None and job not in remote]
        # A package without a pinned version is resolved again, and launched only if that changed.
        again = [
            job for job in due
            if job.previous and job not in remote
            and (job.previous["launch_digest"], "ok") != (job.launch_digest, job.previous["status"])
        ]  # fmt: skip
        executions = len(plan_executions(warehouse, name, make_executor(self._settings)).due.due)
        self._calls.update(
            {"remote": len(remote), "deploy": len(new) + len(again), "execute": executions}
        )
        return {
            "listings": len(listings),
            "new servers": len(new),
            "launches again": len(again),
            **self._count_synthesis(name),
            "calls to execute": executions,
        }

    def _count_synthesis(self, name: str) -> dict[str, int]:
        """What is to be written and judged, by the plans that the run itself makes."""
        try:
            llm = self._writer.make_llm(self._warehouse, name)
        except NotApproved:  # nothing private leaves: neither asset is made
            return {"units to write": 0, "pairs to judge": 0}
        policy, embedder = self._writer.policy, make_embedder(self._settings)
        writing = plan_pairs(self._warehouse, name, policy, llm, embedder, self._writer.worlds)
        due = [u for u in writing.list_due() if u.key not in self._units]
        self._units.update(unit.key for unit in due)
        requests = writing.count_requests(due)
        rows = sum(count_rows(unit, policy) for unit in due)
        judging = plan_judging(self._warehouse, name, policy, llm)
        rewritten = {unit.key for unit in writing.list_due()}
        pairs = {
            row["pair_id"]
            for row in judging.server_pairs
            if row["pair_id"] in set(judging.due.due) and make_unit_key(row) not in rewritten
        } - self._pairs
        self._pairs |= pairs
        judged, votes = len(pairs) + rows, count_votes(llm, policy)
        # A judge that has judged nothing of what is there yet has no trial either.
        trial = _TRIAL_ROWS if judged and not judging.due.unchanged else 0
        requests["judge"] += (judged + trial) * votes
        self._calls.update({f"llm:{role}": n for role, n in requests.items()})
        return {"units to write": len(due), "pairs to judge": judged}

    def count_summaries(self) -> int:
        clear = read_clear(self._warehouse)
        try:
            llm = self._writer.make_llm(self._warehouse, "_")
        except NotApproved:
            return 0
        public = [row for row in clear if row["marketplace"] != PRIVATE]
        about = map_descriptions(self._warehouse.tables.read(CATALOGUE).to_dicts())
        previous = self._warehouse.tables.read(SUMMARIES).to_dicts()
        return count_due_summaries(public, about, llm, previous)

    def sum_effects(self) -> Counter[str]:
        sums = Counter[str]()
        for row in self._warehouse.ledger.costs():
            sums[row["stage"]] += row["effects"] if row["status"] == "done" else 0
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
