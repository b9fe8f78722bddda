"""What a trial of the judge measures, and when it refuses a partition."""

import json
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

from assets.contracts.validate import validate_call
from assets.synthesis.judging import mutants, plan, trials
from assets.synthesis.policy import SynthesisPolicy
from assets.synthesis.tables import JUDGEMENTS, PAIRS, read_goldens
from assets.synthesis.verify.rules import verify_row
from tests.support.cases import cases
from tests.support.openai_endpoint import Say, openai_endpoint
from tests.synthesis.judging.test_judge import a_model, opinion
from warehouse.ledger.ledger import Ledger
from warehouse.statistics import wilson_interval

POLICY = SynthesisPolicy()
ROWS, CONTRACTS = mutants.read_known_good()
SCHEMA_FLAWS = {"missing_required_argument", "unknown_argument", "wrong_type"}


def test_the_known_rows_are_good_and_each_mutant_of_them_has_its_flaw_everywhere():
    assert len(ROWS) >= 24
    assert len({row["server_id"] for row in ROWS}) >= 8
    assert {json.loads(row["profile"])["language"] for row in ROWS} == {"en", "de", "es"}
    verdicts = Counter(verify_row(row, CONTRACTS).verdict for row in ROWS)
    assert verdicts["reject"] == 0
    assert verdicts["accept"] >= 0.9 * len(ROWS)
    before = json.dumps(ROWS)
    for row in ROWS:
        contract = CONTRACTS[row["contract_digest"]]
        for mutant in mutants.make_mutants(row, contract, CONTRACTS, random.Random(0)):
            pair = mutant["pair"]
            flawed = validate_call(contract, json.loads(pair["arguments"]))
            assert bool(flawed) == (mutant["flaw"] in SCHEMA_FLAWS), mutant
            call = read_goldens(pair)[0]
            assert call.arguments == json.loads(pair["arguments"])
            first, spoken = json.loads(pair["messages"])
            assert first["content"] == pair["instruction"]
            function = spoken["tool_calls"][0]["function"]
            assert function["name"] == call.tool
            assert json.loads(function["arguments"]) == call.arguments
            assert call.contract_digest == pair["contract_digest"]
    assert json.dumps(ROWS) == before


def test_a_trial_holds_all_ten_flaws_of_every_kind_of_row():
    written = [{**row, "pair_id": f"row-{n}"} for n, row in enumerate(ROWS)]
    result, contracts = mutants.make_cases(written, CONTRACTS, seed=3, good=5)
    kinds = Counter(case.kind for case in result)
    assert (set(kinds), kinds[mutants.OF_THE_RUN]) == (
        {*mutants.FLAWS, mutants.GOOD, mutants.OF_THE_RUN},
        5,
    )
    assert all(case.row["contract_digest"] in contracts for case in result)
    again, _ = mutants.make_cases(reversed(written), CONTRACTS, seed=3, good=5)
    assert result == again
    refused = [{**row, "verdict": "unsure"} for row in ROWS]
    refused += [{**row, "status": "failed"} for row in ROWS]
    result, _ = mutants.make_cases(refused, CONTRACTS, seed=3, good=5)
    assert mutants.OF_THE_RUN not in {case.kind for case in result}


def test_of_a_trial_only_what_changed_is_asked_anew():
    """A simulated month paid for most of a trial again whenever one row of a marketplace changed:
    67 to 155 answers a day of the first day's 869."""
    written = [{**row, "pair_id": f"row-{n}"} for n, row in enumerate(ROWS)]

    def list_words(rows: list[dict[str, Any]], contracts: Mapping[str, Any]) -> set[str]:
        result, _ = mutants.make_cases(rows, contracts, seed=3, good=8)
        return {json.dumps([case.kind, case.row], sort_keys=True) for case in result}

    before = list_words(written, CONTRACTS)
    drawn_cases, _ = mutants.make_cases(written, CONTRACTS, seed=3, good=1)
    [drawn] = [case.row["pair_id"] for case in drawn_cases if case.kind == mutants.OF_THE_RUN]
    changed = [{**row, "pair_id": "new"} if row["pair_id"] == drawn else row for row in written]
    lost = before - list_words(changed, CONTRACTS)
    assert {json.loads(item)[1]["pair_id"] for item in lost} == {drawn}
    more = {**CONTRACTS, "c1:new": {**CONTRACTS[ROWS[0]["contract_digest"]], "name": "other"}}
    kinds = Counter(json.loads(item)[0] for item in before - list_words(written, more))
    assert kinds.keys() <= {"wrong_tool"}
    assert kinds.total() < 8


def test_rules_and_rubric_catch_mechanical_flaws_and_spare_good_rows(offline):
    report = trials.try_judge([], {}, offline, POLICY)
    assert (report.judge, report.error) == ("offline:rules", None)
    for kind in (*SCHEMA_FLAWS, "names_the_tool", "not_an_instruction"):
        assert report.get_rate(kind, trials.RULES).rate == 1.0, kind
    for kind in ("missing_required_value", "ungrounded_value"):
        assert report.get_rate(kind, trials.RULES).refused == 0
        assert report.get_rate(kind, trials.RULES).unsure == report.get_rate(kind, trials.RULES).n
    assert report.get_rate("missing_required_value").rate >= 0.75
    # Rules cannot tell what is implied from what is invented.
    assert report.get_rate("ungrounded_value").rate >= 0.4
    assert report.get_rate(mutants.GOOD).n == len(ROWS)
    assert report.get_rate(mutants.GOOD).rate <= 0.1
    assert report.get_rate(trials.ALL).low > 0.7
    assert all(verdict.passed for verdict in trials.audit_trial(report))
    assert trials.try_judge([], {}, offline, POLICY) == report
    rows = trials.make_trial_rows(report, "registry")
    assert len(rows) == 2 * (len(mutants.FLAWS) + 2) + len(trials.CATCH_FLOORS) + 2
    assert len(trials.JUDGE_TRIALS.frame(rows)) == len(rows)
    assert len({tuple(row[name] for name in trials.JUDGE_TRIALS.key) for row in rows}) == len(rows)


def try_model(ledger: Ledger, answer: Say) -> trials.MutationReport:
    with openai_endpoint(lambda *_: answer) as served:
        return trials.try_judge([], {}, a_model(served.url, ledger), POLICY)


def test_a_judge_that_accepts_everything_is_found_out(ledger):
    report = try_model(ledger, Say(opinion(9)))
    assert report.judge == "model:m"
    rates = [report.get_rate("unrealistic", *stage).refused for stage in ((), (trials.RULES,))]
    assert rates == [0, 0]
    assert report.get_rate(trials.ALL).refused == report.get_rate(trials.ALL, trials.RULES).refused
    failed = {v.rule: v for v in trials.audit_trial(report) if not v.passed}
    assert failed.keys() == {"judge_adds_to_the_rules", "judge_catches_mutants"}
    caught = failed["judge_catches_mutants"]
    assert "wrong_tool 0 of 24 refused [0.00, 0.14] BELOW" in caught.observed
    assert "wrong_tool 50%" in caught.expected
    assert "unrealistic 0 of 24" in failed["judge_adds_to_the_rules"].observed


def test_a_judge_that_sees_one_kind_of_flaw_alone_is_told_which_it_misses():
    report = _report(0, 100, 0, 24, missing_required_value=(23, 23), wrong_tool=(0, 24))
    (failed,) = [v for v in trials.audit_trial(report) if not v.passed and "catches" in v.rule]
    assert "wrong_tool 0 of 24 refused [0.00, 0.14] BELOW" in failed.observed
    assert "missing_required_value 23 of 23 refused [0.86, 1.00];" in failed.observed


def test_a_judge_that_refuses_everything_stops_the_partition(ledger):
    report = try_model(ledger, Say(opinion(2)))
    failed = {verdict.rule for verdict in trials.audit_trial(report) if not verdict.passed}
    assert failed == {"judge_adds_to_the_rules", "judge_false_alarms"}


def test_a_judge_that_does_not_answer_has_not_been_judged(ledger):
    report = try_model(ledger, Say("no", status=400))
    assert report.get_rate(mutants.GOOD).n == 0
    assert report.get_rate(mutants.GOOD).unanswered == len(ROWS)
    failed = {v.rule: v.observed for v in trials.audit_trial(report) if not v.passed}
    assert "bad_request" in failed["judge_was_judged"]


def _report(
    caught: int, flawed: int, alarms: int, good: int, **kinds: tuple[int, int]
) -> trials.MutationReport:
    counts = {**kinds, trials.ALL: (caught, flawed), mutants.GOOD: (alarms, good)}
    rates = [
        trials.RefusalRate(trials.JUDGE, kind, n, refused, 0, 0, *wilson_interval(refused, n))
        for kind, (refused, n) in counts.items()
    ]
    return trials.MutationReport("model:m", rates)


@cases(
    "report, failed",
    (_report(25, 100, 6, 24), {"judge_adds_to_the_rules"}),  # it refuses at random
    (_report(90, 100, 1, 24), set()),
    (_report(90, 100, 1, 24, wrong_tool=(9, 24)), set()),  # .38: its interval reaches .5
    (_report(90, 100, 1, 24, wrong_tool=(5, 24)), {"judge_catches_mutants"}),
    (_report(90, 100, 1, 24, wrong_tool=(0, 2)), set()),
    (_report(90, 100, 10, 24), set()),
    (_report(99, 100, 15, 24), {"judge_false_alarms"}),
)
def test_a_bar_is_missed_only_by_the_whole_interval(report, failed):
    assert {v.rule for v in trials.audit_trial(report) if not v.passed} == failed
    assert trials.audit_trial(None) == []


def _pair(key: str, verdict: str = "accept", **more: object) -> dict[str, object]:
    blank = dict.fromkeys(PAIRS.columns)
    return {**blank, "pair_id": key, "status": "ok", "verdict": verdict} | more


def _judged(key: str, verdict: str, **more: object) -> dict[str, object]:
    blank = dict.fromkeys(JUDGEMENTS.columns)
    return {**blank, "pair_id": key, "status": "ok", "verdict": verdict, "threshold": 6.0} | more


def test_rejections_are_counted_by_flaw_and_more_than_nine_tenths_stop_the_partition():
    flaws = [
        {"kind": "wrong_type", "certain": True},
        {"kind": "ungrounded_value", "certain": False},
    ]
    pairs = [
        _pair("a", "reject", flaws=json.dumps(flaws)),
        _pair("b"), _pair("c"), _pair("d"), _pair("e", twin_of="b"),
        _pair("f", status="failed"),
    ]  # fmt: skip
    judgements = [
        _judged("b", "accept"),
        _judged("c", "reject", scores=json.dumps({"realism": 2, "clarity": 9})),
        _judged("d", "", status="failed"),
    ]
    verdict = plan.audit_rejections(pairs, judgements)
    assert verdict.passed
    assert verdict.observed == (
        "4 of 5 rejected (80%): wrong_type 1, not judged 1, repeats another 1; judge: realism 1"
    )
    flaws = json.dumps([{"kind": "not_an_instruction", "certain": True}])
    bad = [_pair(f"b{n}", "reject", flaws=flaws) for n in range(19)]
    pairs, judged = [_pair("good"), *bad], [_judged("good", "accept")]
    stopped = plan.audit_rejections(pairs, judged)
    assert not stopped.passed
    assert "not_an_instruction 19" in stopped.observed
    assert plan.audit_rejections(pairs[:10], judged).passed  # 9 of 10 is not more than 90%
    assert plan.audit_rejections([], []).passed
