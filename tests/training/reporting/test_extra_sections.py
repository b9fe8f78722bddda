"""Outside data, contamination and the agent in the report, in the shapes they are kept in."""

from pathlib import Path
from typing import Any

from extensions.bench.agent_tasks import AgentLimits, compare_agents, summarise_agents
from extensions.bench.contamination import find_contamination
from extensions.bench.outside_items import RULES, summarise_outside_rows
from tests.training.evaluation.scripted_agent import Script, Tools, calls, says, small, task
from tests.training.reporting.test_report import NOTHING
from training.evaluation.saved import (
    AGENT,
    CONTAMINATION,
    OUTSIDE,
    load_evaluations,
    save_evaluation,
)
from training.reporting.report import write_report


def written(home: Path, **facts: Any) -> str:
    return write_report(home, "n", {**NOTHING, **facts}).read_text()


async def test_the_agent_stands_beside_the_larger_model_alone(tmp_path: Path) -> None:
    right = ("do", {"x": 7})

    class Larger(Script):
        async def say(self, messages: Any, tools: Any) -> Any:
            held = any(message["role"] == "tool" for message in messages)
            return says("It is 49.", tokens=30) if held else calls(right, tokens=20)

    tasks = [task(f"p{n}") for n in range(3)]
    pairs = await compare_agents(tasks, [small(right)] * 3, Larger(), Tools().fresh, AgentLimits())
    head = {"small": "baseline:bm25+slots", "larger": "big", "left_out": {"not_one_call": 4}}
    save_evaluation(tmp_path, AGENT, "both", {**head, **summarise_agents(pairs)})
    text = written(tmp_path, agent=load_evaluations(tmp_path, AGENT))
    assert "`baseline:bm25+slots` makes the first call, `big` goes on: 3 tasks" in text
    assert "| success | 1.000 [1.000, 1.000] | 1.000 [1.000, 1.000] | +0.000" in text
    assert "| tokens of the larger model | 60 [60, 60] | 35 [35, 35] | -25 [-25, -25] |" in text
    assert "small first: answered 3." in text
    assert "Left out: not_one_call 4." in text
    assert "- called: at some step" in text
    assert "agent against a larger model" not in text


def test_outside_data_stand_by_both_rules_and_clean_beside_all(tmp_path: Path) -> None:
    rows = [
        {
            "model": model,
            "item_id": f"i{n}",
            "category": "simple_java" if n > 2 else "multiple",
            "bfcl": n % 2 == at,
            "bfcl_error": "wrong_value",
            "ours": None if n > 2 else True,
            "clean": n != 0,
            "failed": n == 4 and at == 1,
            "error": "timeout",
            "prompt_tokens": 5,
            "completion_tokens": 2,
            "usd": 0.0,
        }
        for at, model in enumerate(("first", "second"))
        for n in range(6)
    ]
    for model in ("first", "second"):
        facts = {
            "set": "BFCL-format data",
            "rules": RULES,
            **summarise_outside_rows(rows, model, "first"),
        }
        save_evaluation(tmp_path, OUTSIDE, model, facts)
    text = written(tmp_path, outside=load_evaluations(tmp_path, OUTSIDE))
    assert "| BFCL-format data | first | 6 | 0.500" in text
    assert "against first |" in text
    assert "| simple_java | 3 |" in text
    assert "No answer came, in no figure: timeout 1." in text
    assert "data of others in BFCL's format" not in text


def test_contamination_is_a_rate_with_its_rules(tmp_path: Path) -> None:
    found = find_contamination(["the very same request here", "nothing of the kind at all"],
                          ["The very same request here."])  # fmt: skip
    text = written(
        tmp_path, contamination=[{"name": "s", "result": found.summarise_flags("their set")}]
    )
    assert "| their set | 2 | 1 | 0.500 [0.095, 0.905] |" in text
    assert "Rules: exact: same words;" in text


def test_the_last_result_of_a_name_is_kept_and_an_unreadable_one_is_passed_over(
    tmp_path: Path,
) -> None:
    first = save_evaluation(tmp_path, AGENT, "a", {"n": 1})
    save_evaluation(tmp_path, AGENT, "a", {"n": 2})
    save_evaluation(tmp_path, AGENT, "b", {"n": 3})
    (first.parent / "broken.json").write_text('{"name": ')
    (first.parent / "odd.json").write_text("[]")
    assert [
        (evaluation["name"], evaluation["result"])
        for evaluation in load_evaluations(tmp_path, AGENT)
    ] == [
        ("a", {"n": 2}),
        ("b", {"n": 3}),
    ]
    assert [load_evaluations(tmp_path, kind) for kind in (OUTSIDE, CONTAMINATION)] == [[], []]


def test_what_another_version_kept_costs_its_own_lines_only(tmp_path: Path) -> None:
    fine = find_contamination(["the very same request"], ["other"]).summarise_flags("theirs")
    odd: list[Any] = [{"name": "old", "result": {"n": 3, "rules": "text"}}]
    text = written(
        tmp_path, agent=odd, outside=odd, contamination=[*odd, {"name": "s", "result": fine}]
    )
    assert text.count("`old` was kept by another version (KeyError) and is not shown") == 3
    assert "| theirs | 1 | 1 |" in text
