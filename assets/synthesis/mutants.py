"""The judge is judged: seeded mutants of good pairs, one flaw each, and how many are caught.

What belongs here: making mutants mechanically, catch rates and false alarms with intervals.
What does not: judging (`judge.py`), the rules (`verify.py`).

Mechanical flaws are the easy ones; a rate over them says that the filters work, not that they
have taste.
"""

import asyncio
import json
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assets.synthesis.flaws import mutants
from assets.synthesis.judge import THRESHOLD, judge_name, opinion
from assets.synthesis.verify import verify
from warehouse.effects.llm import LLM
from warehouse.intervals import wilson

Json = Any
Pair = dict[str, Json]
Contract = Mapping[str, Json]
GOOD = "good"


@dataclass(frozen=True)
class Rate:
    """Of `n` pairs with this flaw (or of the good ones) how many were refused, with a 95% Wilson
    interval."""

    kind: str
    n: int
    refused: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        return self.refused / self.n if self.n else math.nan


@dataclass(frozen=True)
class MutationReport:
    """Catch rate per flaw kind and false alarms on the good pairs they were made from."""

    judge: str
    flaws: list[Rate]
    false_alarms: Rate

    @property
    def caught(self) -> Rate:
        """All flaw kinds together."""
        return _rate("all", sum(r.n for r in self.flaws), sum(r.refused for r in self.flaws))


def mutation_test(
    pair_rows: Sequence[Pair],
    contracts: Mapping[str, Contract],
    llm: LLM,
    *,
    seed: int = 0,
    good: int = 40,
    threshold: float = THRESHOLD,
) -> MutationReport:
    """Judges up to `good` accepted pairs and one mutant of each per flaw kind.

    `contracts` maps contract_digest -> contract. Mutants go the way of every pair: rules first,
    then the judge. Raises what the judge's client raises.
    """
    accepted = [row for row in pair_rows if row["status"] == "ok" and row["verdict"] == "accept"]
    known = [row for row in accepted if row["contract_digest"] in contracts]
    rng = random.Random(seed)
    chosen = rng.sample(sorted(known, key=lambda row: row["pair_id"]), min(good, len(known)))
    cases = [(GOOD, row) for row in chosen]
    for row in chosen:
        contract = contracts[row["contract_digest"]]
        cases += [(m["flaw"], m["pair"]) for m in mutants(row, contract, contracts, rng)]
    refused = asyncio.run(_refusals([row for _, row in cases], contracts, llm, seed, threshold))
    counts: Counter[str] = Counter(kind for kind, _ in cases)
    hits = Counter(kind for (kind, _), no in zip(cases, refused, strict=True) if no)
    rates = [_rate(kind, counts[kind], hits[kind]) for kind in sorted(counts) if kind != GOOD]
    return MutationReport(judge_name(llm), rates, _rate(GOOD, counts[GOOD], hits[GOOD]))


async def _refusals(
    rows: Sequence[Pair],
    contracts: Mapping[str, Contract],
    llm: LLM,
    seed: int,
    threshold: float,
) -> list[bool]:
    async def refused(row: Pair) -> bool:
        contract = contracts[row["contract_digest"]]
        arguments = json.loads(row["arguments"])
        found = verify(contract, row["instruction"], arguments, server=row["server_id"])
        if found.verdict == "reject":
            return True
        return (await opinion(row, contract, llm, seed)).value.score < threshold

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(refused(row)) for row in rows]
    finally:
        await llm.aclose()
    return [task.result() for task in tasks]


def _rate(kind: str, n: int, refused: int) -> Rate:
    return Rate(kind, n, refused, *wilson(refused, n))
