"""The door of synthesis: `pairs`, `judgements` and `spend`."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
import polars as pl

from assets.contracts.aliases import read_aliases
from assets.contracts.clear import contract_key, firewall
from assets.contracts.snapshot import SNAPSHOTS
from assets.marketplaces.private import NotApproved
from assets.partitions import close_night_after, marketplaces
from assets.synthesis.compose import compose, wanted
from assets.synthesis.judge import judge, wanted_judgements
from assets.synthesis.mutants import MutationReport, Rate, mutation_test
from assets.synthesis.rows import JUDGEMENTS, PAIRS, contract_of, tool_key
from assets.synthesis.spend import SPEND, spend_rows
from assets.synthesis.writer import Writer
from warehouse.audit import Verdict, expect_between, expect_match, expect_one_of, expect_unique
from warehouse.effects.ledger import BudgetExceeded
from warehouse.effects.llm import LLM, LLMError
from warehouse.progress import Lines
from warehouse.publish import Published, audited, publish, refuse
from warehouse.store import Warehouse
from warehouse.tables import plan

Row = dict[str, Any]
# Failures of the endpoint or the budget pass; a bad answer is kept and would only come back.
PASSING = {"endpoint_down", "timeout", "rate_limited", "server_error", "auth", "budget"}
WRITTEN_FLOOR = 0.5  # of all pairs asked for: below it the endpoint or the budget failed, not rows
ACCEPT_BAND = (0.1, 1.0)  # the seed's signature of incoherent prompts is a rejection rate above 90%
CATCH_FLOOR, FALSE_ALARM_CEILING = 0.6, 0.3


@dg.asset(
    partitions_def=marketplaces,
    deps=["snapshots", "findings"],
    group_name="synthesis",
    check_specs=audited("pairs"),
    pool="llm",
    description="Requests and the calls that answer them, written per contract, rules applied.",
)
def pairs(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    writer: dg.ResourceParam[Writer],
) -> Published:
    name = context.partition_key
    try:
        llm = writer.llm(warehouse, name)
    except NotApproved as error:
        yield from refuse(context, warehouse, "pairs", "approved_endpoint", error)
        return
    previous = warehouse.tables.read(PAIRS, name).to_dicts()
    bought, held = _offered(warehouse, name, previous)
    contracts = _usable(bought)
    ask = {"k": writer.policy.pairs_per_tool, "seed": writer.policy.seed}
    due = plan(
        {tool_key(row): row["plan_digest"] for row in previous},
        wanted(contracts.values(), llm, **ask),
        retry={tool_key(row) for row in previous if row["error_kind"] in PASSING},
    )
    kept = [row for row in previous if tool_key(row) in set(due.unchanged)]
    made = compose(
        [contracts[key] for key in due.due], llm, **ask, progress=Lines(context.log.info)
    )
    frame = PAIRS.frame([*kept, *made])
    rows = frame.to_dicts()  # a failed row has all columns only here
    yield from publish(
        context,
        warehouse,
        PAIRS,
        frame,
        expectations=[
            expect_unique("pair_id"),
            expect_match("contract_digest", "^c1:[0-9a-f]{64}$"),
            expect_one_of("status", ["ok", "failed"]),
        ],
        rules=[_written(rows), _current(rows, contracts)],
        plan=due,
        metadata={**_figures(rows, llm), "held": held},
    )
    close_night_after(context, warehouse.ledger, "pairs")


@dg.asset(
    partitions_def=marketplaces,
    deps=["pairs", "snapshots", "findings"],
    group_name="synthesis",
    check_specs=audited("judgements"),
    pool="llm",
    description="A score and a verdict for each pair the rules let through, by a judged judge.",
)
def judgements(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    writer: dg.ResourceParam[Writer],
) -> Published:
    name = context.partition_key
    try:
        llm = writer.llm(warehouse, name)
    except NotApproved as error:
        yield from refuse(context, warehouse, "judgements", "approved_endpoint", error)
        return
    written = warehouse.tables.read(PAIRS, name).to_dicts()
    bought, _ = _offered(warehouse, name, written)
    offered = {contract_key(row) for row in bought}
    written = [row for row in written if contract_key(row) in offered]
    contracts = {row["contract_digest"]: contract_of(row) for row in bought}
    previous = warehouse.tables.read(JUDGEMENTS, name).to_dicts()
    ask = {"seed": writer.policy.seed, "threshold": writer.policy.threshold}
    due = plan(
        {row["pair_id"]: row["plan_digest"] for row in previous},
        wanted_judgements(written, llm, **ask),
        retry={row["pair_id"] for row in previous if row["error_kind"] in PASSING},
    )
    wants = set(due.due)
    kept = [row for row in previous if row["pair_id"] in set(due.unchanged)]
    made = judge(
        [row for row in written if row["pair_id"] in wants],
        contracts,
        llm,
        **ask,
        progress=Lines(context.log.info),
    )
    frame = JUDGEMENTS.frame([*kept, *made])
    rows = frame.to_dicts()
    trial = _trial(written, contracts, llm, ask) if due.due else None
    yield from publish(
        context,
        warehouse,
        JUDGEMENTS,
        frame,
        expectations=[
            expect_unique("pair_id"),
            expect_between("score", 1, 10),
            expect_one_of("verdict", ["accept", "reject"]),
        ],
        rules=[_accepted(rows, written), *_judge_rules(trial)],
        plan=due,
        metadata={**_verdicts(rows), **_trial_figures(trial)},
    )
    close_night_after(context, warehouse.ledger, "judgements")


@dg.asset(
    deps=["judgements"],
    group_name="synthesis",
    check_specs=audited("spend"),
    description="What every stage cost per marketplace and model, and per accepted pair.",
)
def spend(context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]) -> Published:
    accepted = warehouse.tables.read(JUDGEMENTS).filter(pl.col("verdict") == "accept")
    rows = spend_rows(warehouse.ledger.costs(), dict(accepted["marketplace"].value_counts().rows()))
    spent, limit = warehouse.ledger.spent(), warehouse.budget_usd
    within = limit is None or spent <= limit + 1e-9
    yield from publish(
        context,
        warehouse,
        SPEND,
        SPEND.frame(rows),
        rules=[Verdict("budget", within, f"{spent:.4f} USD", f"at most {limit} USD")],
        metadata={"spent_usd": spent, "accepted": len(accepted)},
    )


def _offered(warehouse: Warehouse, name: str, held: Sequence[Row]) -> tuple[list[Row], int]:
    """The clear contracts of a marketplace, under the names that the rows `held` were bought under,
    and how many contracts are not clear."""
    rows = warehouse.tables.read(SNAPSHOTS, name).to_dicts()
    clear, kept_out = firewall(warehouse).part(rows)
    return read_aliases(warehouse.tables, name).as_bought(clear, held), len(kept_out)


def _usable(rows: list[Row]) -> dict[str, Row]:
    """Contracts whose schema can be validated against; the others get no pairs."""
    return {tool_key(row): row for row in rows if row["schema_problem"] is None}


def _written(rows: Sequence[Row]) -> Verdict:
    ok = sum(row["status"] == "ok" for row in rows)
    kinds = sorted({row["error_kind"] for row in rows if row["status"] != "ok"})
    observed = f"{ok} of {len(rows)} written" + (f"; failed by {', '.join(kinds)}" if kinds else "")
    hints = [row["hint"] for row in rows if row["status"] != "ok"]
    if hints and ok < WRITTEN_FLOOR * len(rows):
        observed += f", e.g. {hints[0]}"
    expected = f"at least {WRITTEN_FLOOR:.0%} of the pairs asked for"
    return Verdict("written_floor", ok >= WRITTEN_FLOOR * len(rows), observed, expected)


def _current(rows: Sequence[Row], contracts: dict[str, Row]) -> Verdict:
    stale = [
        row["pair_id"]
        for row in rows
        if contracts[tool_key(row)]["contract_digest"] != row["contract_digest"]
    ]
    return Verdict("contracts_current", not stale, f"{len(stale)} pairs of other contracts")


def _accepted(rows: Sequence[Row], written: Sequence[Row]) -> Verdict:
    """Over all written pairs, so that rules and judge together are held to the band."""
    whole = sum(row["status"] == "ok" for row in written)
    accepted = sum(row["verdict"] == "accept" for row in rows)
    rate = accepted / whole if whole else 1.0
    low, high = ACCEPT_BAND
    observed = f"{accepted} of {whole} ({rate:.0%})"
    return Verdict("accept_rate", low <= rate <= high, observed, f"{low:.0%} to {high:.0%}")


def _trial(
    written: list[Row], contracts: dict[str, Row], llm: LLM, ask: Mapping[str, Any]
) -> MutationReport | str:
    """The judge's own trial, or why it could not be held."""
    try:
        return mutation_test(written, contracts, llm, **ask)
    except ExceptionGroup as errors:
        expected, other = errors.split((LLMError, BudgetExceeded))
        if expected is None or other is not None:
            raise
        return str(expected.exceptions[0])


def _judge_rules(trial: MutationReport | str | None) -> list[Verdict]:
    if trial is None:
        return []  # nothing was judged tonight: the judge's last trial stands
    if isinstance(trial, str):
        return [Verdict("judge_was_judged", False, trial, "a verdict on every seeded mutant")]
    caught, alarms = trial.caught, trial.false_alarms
    return [
        Verdict(
            "judge_catches_mutants",
            caught.n == 0 or caught.high >= CATCH_FLOOR,
            _told(caught),
            f"{CATCH_FLOOR:.0%} caught, within the 95% interval",
        ),
        Verdict(
            "judge_false_alarms",
            alarms.n == 0 or alarms.low <= FALSE_ALARM_CEILING,
            _told(alarms),
            f"at most {FALSE_ALARM_CEILING:.0%} of good pairs refused, within the 95% interval",
        ),
    ]


def _told(rate: Rate) -> str:
    return f"{rate.refused} of {rate.n} refused [{rate.low:.2f}, {rate.high:.2f}]"


def _trial_figures(trial: MutationReport | str | None) -> Row:
    if trial is None or isinstance(trial, str):
        return {"judge_trial": trial or "not held: nothing was judged tonight"}
    lines = ["| flaw | refused | n | 95% interval |", "| --- | --- | --- | --- |"]
    rates = [*trial.flaws, trial.false_alarms]
    lines += [f"| {r.kind} | {r.refused} | {r.n} | {r.low:.2f} to {r.high:.2f} |" for r in rates]
    return {
        "judge_catch_rate": trial.caught.rate if trial.caught.n else None,
        "judge_false_alarms": trial.false_alarms.rate if trial.false_alarms.n else None,
        "judge_trial": dg.MetadataValue.md("\n".join(lines)),
    }


def _figures(rows: Sequence[Row], llm: LLM) -> Row:
    return {
        "written": sum(row["status"] == "ok" for row in rows),
        "rejected_by_rules": sum(row["verdict"] == "reject" for row in rows),
        "unsure": sum(row["verdict"] == "unsure" for row in rows),
        "provider": ", ".join(sorted({str(row["provider"]) for row in rows})) or "none",
        "asked_tonight": llm.counts["asked"],
        "usd_tonight": llm.usd,
    }


def _verdicts(rows: Sequence[Row]) -> Row:
    return {
        "accepted": sum(row["verdict"] == "accept" for row in rows),
        "rejected": sum(row["verdict"] == "reject" for row in rows),
        "failed": sum(row["status"] != "ok" for row in rows),
        "judge": ", ".join(sorted({str(row["judge"]) for row in rows})) or "none",
    }
