"""What a run would do before it does it: calls, dollars and minutes, and whether they fit."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

from assets.servers.deploy.deployment_table import DEPLOYMENTS
from orchestration.factories import (
    list_enabled,
    make_embedder,
    make_executor,
    make_launcher,
    make_trainer,
    make_world_tasks,
    make_writer,
    open_made_warehouse,
)
from orchestration.plan.launches import weigh_launches
from orchestration.plan.marketplace import WRITING, Parts, StagePlan, plan_marketplace
from orchestration.plan.rates import Rates
from orchestration.plan.rehearsal import RehearsedLedger, open_rehearsal
from orchestration.runs.instance import SLOTS
from orchestration.settings.model import Settings
from training.drift.decide import Retrain, Skip, decide_before_drift, find_exceeded_budget
from training.drift.facts import read_budget
from training.policies import ROLES
from warehouse.llm.roles import OFFLINE
from warehouse.store import Warehouse

_POOLS = {"page": "crawl", "render": "crawl", "resolve": "sandbox", "remote": "sandbox",
          "deploy": "sandbox", "execute": "sandbox"}  # fmt: skip
_DAY_S = 86_400.0


@dataclass(frozen=True)
class Effects:
    """The effects of one stage of the ledger over all marketplaces, and what they take."""

    stage: str
    calls: float
    tokens: float
    usd: float
    minutes: float
    counted: int  # of the calls, one by one; the rest is estimated
    basis: str


@dataclass(frozen=True)
class RunPlan:
    """A run as it would go. exceeded: the budgets that it would pass."""

    marketplaces: dict[str, list[StagePlan]]
    effects: list[Effects]
    training: str
    assumed: list[str]
    spent_usd: float
    exceeded: list[str] = field(default_factory=list)

    @property
    def usd(self) -> float:
        return sum(effect.usd for effect in self.effects)

    @property
    def calls(self) -> float:
        return sum(effect.calls for effect in self.effects)

    @property
    def minutes(self) -> float:
        """Of stages one after another, each side by side within its slots."""
        return sum(effect.minutes for effect in self.effects)

    def describe_first_line(self) -> str:
        """`plan: 73 requests, 2 launches, 310 model calls, …, 0.00 USD, about 4 minutes; …`;
        `at least` so many model calls where no pairs were rehearsed."""
        if not any(stage.unchanged + stage.new for stage in self._list_stages("listings")):
            return "plan: nothing is listed yet, so nothing can be foreseen"
        calls = Counter[str]()
        for one in self.effects:
            kind = "model calls" if one.stage.startswith("llm:") else _KINDS.get(one.stage, "")
            calls[kind] += round(one.calls)
        parts = [f"{calls[kind]:,} {kind}" for kind in dict.fromkeys(_KINDS.values()) if kind]
        least = "" if self._list_stages("pairs") else "at least "
        parts.insert(2, f"{least}{calls['model calls']:,} model calls")
        return (
            f"plan: {', '.join(parts)}, {self.usd:.2f} USD, about {self.minutes:.0f} minutes;"
            f" training: {self.training}"
        )

    def _list_stages(self, stage: str) -> list[StagePlan]:
        return [
            one for stages in self.marketplaces.values() for one in stages if one.stage == stage
        ]

    def as_json(self) -> dict[str, Any]:
        totals = {"calls": self.calls, "usd": round(self.usd, 6), "minutes": round(self.minutes, 1)}
        return {**asdict(self), "totals": totals, "affordable": not self.exceeded}


_KINDS = {
    "page": "requests", "render": "requests", "resolve": "requests", "remote": "requests",
    "deploy": "launches", "execute": "executed calls",
}  # fmt: skip


def describe_run(settings: Settings, only: Sequence[str] | None = None) -> str:
    """The first line of a run's plan. A damaged home has none: what hinders the plan the run itself
    makes anew, or names."""
    try:
        return make_plan(settings, only, write=False).describe_first_line()
    except Exception as error:  # a damaged home breaks what reads it in ways nobody listed
        reason = " ".join(str(error).split())[:200]
        return f"plan: not known ({type(error).__name__}: {reason})"


def make_plan(
    settings: Settings, only: Sequence[str] | None = None, *, write: bool = True
) -> RunPlan:
    """The plan of `toolmill run` over what was listed last; nothing is sent, launched or kept.
    Without `write` it rehearses no pairs: what is due of them, and what new ones are executed with,
    is in no figure.

    Raises HomeUnavailable where no run was made yet, NotApproved.
    """
    warehouse = open_made_warehouse(settings)
    writer = make_writer(settings)
    offline = frozenset(role.name for role in writer.roles if role.model == OFFLINE)
    names = list(only or list_enabled(settings))
    with open_rehearsal(warehouse, offline) as rehearsal:
        moved = settings.model_copy(update={"home": rehearsal.home})
        parts = Parts(
            make_launcher(settings),
            replace(writer, worlds=make_world_tasks(moved)),
            make_executor(settings),
            lambda: make_embedder(settings),
        )
        stages = {name: plan_marketplace(rehearsal, name, parts, write=write) for name in names}
        ledger = rehearsal.ledger
        assert isinstance(ledger, RehearsedLedger)
        launched = weigh_launches(warehouse.tables, ledger.launched)
    rates = Rates(warehouse.ledger.costs(), settings)
    training, effects = _plan_training(warehouse, settings, rates)
    made = [*estimate_effects(warehouse, stages, rates, offline, launched), *effects]
    spent = warehouse.ledger.spent()
    plan = RunPlan(stages, made, training, list_assumptions(warehouse, names), spent)
    plan.exceeded.extend(find_exceeded(settings, warehouse, plan, bool(effects)))
    return plan


def estimate_effects(
    warehouse: Warehouse,
    stages: dict[str, list[StagePlan]],
    rates: Rates,
    offline: frozenset[str],
    launched: float,
) -> list[Effects]:
    """Calls over all marketplaces with what they take. A model's answers lead to further questions:
    for each first one as many follow as its home paid for each request written so far. launched:
    what `weigh_launches` says of the servers to be launched."""
    counted = Counter[str]()
    for plans in stages.values():
        for plan in plans:
            counted.update(plan.calls)
    calls: dict[str, float] = dict(counted)
    first = counted["llm:generator"]
    if first and "generator" not in offline:
        for stage in (*WRITING[1:], "llm:judge"):
            calls[stage] = max(counted[stage], first * _measure_followers(rates, stage))
    for stage, share in _estimate_launched(warehouse, launched, rates).items():
        calls[stage] = calls.get(stage, 0) + share
    return [
        _make_effects(stage, count, counted[stage], rates)
        for stage, count in sorted(calls.items())
        if count
    ]


def _measure_followers(rates: Rates, stage: str) -> float:
    """Calls of a stage for each request that was written."""
    written = rates.count("llm:generator")
    return rates.count(stage) / written if written else 1.0


def _estimate_launched(warehouse: Warehouse, launches: float, rates: Rates) -> dict[str, float]:
    """Model calls and executions that servers lead to whose tools of then nobody has seen yet: so
    many times as many as a server of this home led to."""
    servers = warehouse.tables.read(DEPLOYMENTS)["server_id"].n_unique()
    if not launches or not servers:
        return {}
    stages = (*WRITING, "llm:judge", "execute")
    return {stage: launches * rates.count(stage) / servers for stage in stages}


def _make_effects(stage: str, calls: float, counted: int, rates: Rates) -> Effects:
    rate, pool = rates.find(stage), _POOLS.get(stage, "llm")
    minutes = calls * rate.seconds / 60 / SLOTS.get(pool, 1)
    return Effects(
        stage, round(calls, 1), round(calls * rate.tokens), calls * rate.usd, round(minutes, 2),
        counted, rate.basis,
    )  # fmt: skip


def _plan_training(
    warehouse: Warehouse, settings: Settings, rates: Rates
) -> tuple[str, list[Effects]]:
    """Whether a training would follow, in words, and what one takes where it may: whether drift
    asks for it is known once it is measured."""
    trainer = make_trainer(settings)
    facts = trainer.read_facts(warehouse)
    early = decide_before_drift(facts.trained_on, facts.last_run, facts.budget, trainer.drift)
    made = [_make_effects(f"train:{role}", 1, 0, rates) for role in ROLES]
    if isinstance(early, Retrain):
        return f"yes ({'; '.join(early.why)})", made
    if isinstance(early, Skip):
        return f"no, as it stands ({'; '.join(early.why)})", []
    return "if drift asks, once it is measured", made


def list_assumptions(warehouse: Warehouse, names: Iterable[str]) -> list[str]:
    """What the plan takes for granted."""
    found = ["listings are as they were last seen: nothing was crawled"]
    for name in names:
        share, days = measure_daily_change(warehouse, name)
        if days:
            found.append(
                f"{name}: {share:.1%} of its servers changed a day in its last {days} versions;"
                " such changes come on top"
            )
    return found


def measure_daily_change(warehouse: Warehouse, name: str) -> tuple[float, int]:
    """(share of a marketplace's servers that are new, gone or launched otherwise a day, over the
    last versions of its deployments; how many versions were compared)."""
    heads = warehouse.tables.history(DEPLOYMENTS.name, name)[-8:]
    moved = total = 0.0
    for before, after in pairwise(heads):
        then, now = (
            dict(
                warehouse.tables.read(DEPLOYMENTS, name, as_of=head.at)
                .select("server_id", "launch_digest")
                .iter_rows()
            )
            for head in (before, after)
        )
        moved += sum(then.get(key) != now.get(key) for key in then.keys() | now.keys())
        total += max(len(then), 1) * max((after.at - before.at) / _DAY_S, 1.0)
    return (moved / total if total else 0.0), max(len(heads) - 1, 0)


def find_exceeded(
    settings: Settings, warehouse: Warehouse, plan: RunPlan, trains: bool
) -> list[str]:
    """The budgets that the plan would pass, each in one line."""
    found = []
    limit = settings.budget_usd
    if limit is not None and plan.usd > 0 and plan.spent_usd + plan.usd > limit:
        found.append(
            f"budget_usd: {plan.spent_usd:.2f} USD are spent and the run is taken to need"
            f" {plan.usd:.2f} more; the budget is {limit:.2f}"
        )
    trainer = make_trainer(settings)
    over = find_exceeded_budget(read_budget(warehouse, trainer.gpus), trainer.drift)
    if trains and over:
        found.append(f"training.drift: {over}")
    return found
