"""Mechanical mutants of a corpus's good rows: what rules and offline judge catch of each kind."""

import random
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assets.synthesis.judging.adhoc import CandidatePair, ToolsFile, _make_pair_row
from assets.synthesis.judging.judge import judge, make_offline_provider
from assets.synthesis.judging.mutants import make_mutants
from assets.synthesis.policy import SynthesisPolicy
from assets.synthesis.verify.rules import verify_row
from warehouse.ledger.ledger import Ledger
from warehouse.llm.client import LLM, Role
from warehouse.statistics import wilson_interval
from warehouse.storage.blobs import Blobs

Json = Any


def mutant_rates(
    labelled: Sequence[Json],
    rows: Sequence[CandidatePair],
    tools: ToolsFile,
    most: int,
    seed: int = 7,
) -> dict[str, Json]:
    """Per flaw kind: n, refused and unsure by rules, refused by rules and offline judge, and the
    95% intervals of both."""
    rng = random.Random(seed)
    good = [at for at, row in enumerate(labelled) if row["flaw"] is None]
    made: list[tuple[str, dict[str, Json]]] = []
    for at in sorted(rng.sample(good, min(most, len(good)))):
        row = _make_pair_row(at, rows[at], "accept", tools)
        contract = tools.by_id[rows[at].tool_id]
        beside = tools.list_server_tools(rows[at].server)
        near = {tools.digests[item]: tools.by_id[item] for item in beside}
        made += [
            (mutant["flaw"], mutant["pair"]) for mutant in make_mutants(row, contract, near, rng)
        ]
    by_rules = [verify_row(row, tools.contracts).verdict for _, row in made]
    refused = judge_refusals([row for _, row in made], by_rules, tools.contracts)
    n, rules, unsure, both = Counter(), Counter(), Counter(), Counter()
    for (flaw, _), verdict, no in zip(made, by_rules, refused, strict=True):
        for kind in (flaw, "all"):
            n[kind] += 1
            rules[kind] += verdict == "reject"
            unsure[kind] += verdict == "unsure"
            both[kind] += no
    return {
        kind: {
            "n": n[kind],
            "rules": rules[kind],
            "rules_interval": [round(x, 4) for x in wilson_interval(rules[kind], n[kind])],
            "unsure": unsure[kind],
            "rules_and_offline_judge": both[kind],
            "interval": [round(x, 4) for x in wilson_interval(both[kind], n[kind])],
        }
        for kind in sorted(n)
    }


def judge_refusals(
    rows: Sequence[Json], by_rules: Sequence[str], contracts: Mapping[str, Json]
) -> list[bool]:
    """Whether rules or offline judge refuse each row. contracts: by digest."""
    asked = [
        {**row, "pair_id": str(place), "verdict": verdict}
        for place, (row, verdict) in enumerate(zip(rows, by_rules, strict=True))
    ]
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "ledger.db", Blobs(Path(folder) / "blobs"))
        llm = LLM([Role("judge")], ledger, offline=make_offline_provider())
        judged = judge(asked, contracts, llm, SynthesisPolicy())
    accepted = {int(row["pair_id"]) for row in judged if row.get("verdict") == "accept"}
    return [place not in accepted for place in range(len(rows))]
