"""The judge's own test: what it catches and what it refuses wrongly."""

import json
import random

import pytest

from assets.contracts.validate import validate_call
from assets.synthesis.compose import compose
from assets.synthesis.flaws import mutants
from assets.synthesis.mutants import mutation_test
from tests.synthesis.contracts import ALL, snapshot_rows
from warehouse.effects.llm import LLM
from warehouse.intervals import wilson

ROWS = snapshot_rows(ALL)
CONTRACTS = {row["contract_digest"]: row["contract"] for row in ROWS}
SCHEMA_FLAWS = {"missing_required_argument", "unknown_argument", "wrong_type"}


def test_each_mutant_has_its_flaw_and_the_pair_is_left_alone(offline: LLM) -> None:
    pairs = compose(ROWS, offline, k=3, seed=1)
    before = json.dumps(pairs)
    kinds = set()
    for pair in pairs:
        contract = CONTRACTS[pair["contract_digest"]]
        for made in mutants(pair, contract, CONTRACTS, random.Random(0)):
            kinds.add(made["flaw"])
            flawed = validate_call(contract, json.loads(made["pair"]["arguments"]))
            assert bool(flawed) == (made["flaw"] in SCHEMA_FLAWS), made
    assert len(kinds) >= 9
    assert json.dumps(pairs) == before


def test_rules_and_rubric_catch_mechanical_flaws_and_spare_good_pairs(offline: LLM) -> None:
    pairs = [row for seed in range(4) for row in compose(ROWS, offline, k=3, seed=seed)]
    report = mutation_test(pairs, CONTRACTS, offline, seed=3, good=60)
    rates = {rate.kind: rate for rate in report.flaws}
    assert report.judge == "offline:rules"
    for kind in (*SCHEMA_FLAWS, "names_the_tool", "not_an_instruction"):
        assert rates[kind].rate == 1.0, kind
    assert rates["missing_required_value"].rate >= 0.9
    assert rates["ungrounded_value"].rate >= 0.9
    assert report.false_alarms.rate <= 0.1
    assert report.false_alarms.n >= 40
    assert report.caught.low > 0.7


def test_the_same_seed_gives_the_same_report(offline: LLM) -> None:
    pairs = compose(ROWS, offline, k=3, seed=1)
    assert mutation_test(pairs, CONTRACTS, offline, seed=5, good=8) == mutation_test(
        pairs, CONTRACTS, offline, seed=5, good=8
    )


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"), [(0, 0, 0, 1), (10, 10, 0.722, 1.0), (5, 10, 0.237, 0.763)]
)
def test_wilson_intervals(hits: int, n: int, low: float, high: float) -> None:
    assert wilson(hits, n) == pytest.approx((low, high), abs=0.001)
