"""Calls of a home's caller: as it writes them, held by a grammar, repaired, asked for again.

    python -m benchmarks.bench_constrained HOME [--items 100] [--model NAME] [--candidates 10 100]

The test splits of the home's training set. Arms: the model alone; its answer repaired by the
ladder (conversation at hand); asked again with what was wrong; held by a grammar of the tools it is
shown; that, repaired. valid: every call fits a tool that is offered; right: the expected calls and
no others. Intervals draw whole tools.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assets.contracts.validate import validate_call
from serving.repair.ladder import repair_drafts
from serving.repair.report import ABSTAINED
from training.adapter_table import make_adapter_table
from training.evaluation.adapter_predictor import AdapterPredictor
from training.evaluation.caller_items import CallerItem, TestPlan
from training.evaluation.caller_run import load_bench, to_asked
from training.evaluation.caller_score import score_answer
from training.evaluation.caller_table import UNPERTURBED
from training.evaluation.metrics import bootstrap_difference, bootstrap_mean
from training.evaluation.predictor import PredictionAnswer
from training.prompts.render import SYSTEM, render_tool_schema
from warehouse.store import Warehouse

_AGAIN = "This call does not fit: {flaws}. Write the whole call again."


def climb_ladder(item: CallerItem, answer: PredictionAnswer) -> PredictionAnswer:
    """The answer with its calls repaired; those that the ladder leaves stay as they are."""
    if not answer.calls:
        return answer
    found = repair_drafts(answer.calls, item.tools, conversation=item.instruction)
    made = [
        call if one.outcome == ABSTAINED else {"name": one.name, "arguments": one.arguments}
        for one, call in zip(found, answer.calls, strict=True)
    ]
    return replace(answer, calls=made)


def list_flaws(item: CallerItem, answer: PredictionAnswer) -> list[str]:
    """What is wrong with the calls of an answer, in words."""
    by_name = {tool["name"]: tool for tool in item.tools}
    found = []
    for call in answer.calls:
        if call["name"] not in by_name:
            found.append(f"there is no tool {call['name'][:60]!r}")
            continue
        flaws = validate_call(by_name[call["name"]], call["arguments"])
        found += [f"{flaw.path or 'the call'}: {flaw.message}" for flaw in flaws]
    return found[:3]


def ask_again(
    model: AdapterPredictor, item: CallerItem, answer: PredictionAnswer
) -> PredictionAnswer:
    """A second answer, where the first does not fit; what the second cost is added."""
    flaws = list_flaws(item, answer)
    if not flaws:
        return answer
    calls = [{"type": "function", "function": call} for call in answer.calls]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": item.instruction},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "user", "content": _AGAIN.format(flaws="; ".join(flaws))},
    ]
    made = model.converse(messages, [render_tool_schema(tool) for tool in item.tools])
    if made.error:
        return answer
    return replace(made, seconds=(answer.seconds or 0) + (made.seconds or 0))


def run_arms(
    home: Path, name: str, items: Sequence[CallerItem]
) -> dict[str, list[PredictionAnswer]]:
    """Answers of each arm, in the order of the items."""
    asked = [to_asked(item) for item in items]
    free, held = AdapterPredictor(home, name), AdapterPredictor(home, name, constrained=True)
    arms = {"model alone": free.predict(asked), "held by a grammar": held.predict(asked)}
    print(f"quarantined schemas: {json.dumps(held.quarantined)[:600]}\n")

    def follow(
        arm: str, step: Callable[[CallerItem, PredictionAnswer], PredictionAnswer]
    ) -> list[PredictionAnswer]:
        return [step(*pair) for pair in zip(items, arms[arm], strict=True)]

    arms["+ ladder"] = follow("model alone", climb_ladder)
    arms["+ asked again"] = follow("model alone", lambda *pair: ask_again(free, *pair))
    arms["grammar + ladder"] = follow("held by a grammar", climb_ladder)
    return arms


def print_arms(items: Sequence[CallerItem], arms: dict[str, list[PredictionAnswer]]) -> None:
    """A table of shares; gain: right, paired with the model alone."""
    tools = [f"{item.row['server_id']}::{item.row['tool']}" for item in items]
    scored = {
        arm: [score_answer(item, one, arm, "") for item, one in zip(items, answers, strict=True)]
        for arm, answers in arms.items()
    }
    alone = [float(bool(row.get("ast_ok"))) for row in scored["model alone"]]
    print("| arm | any call | valid | right | right, against the model alone | s an answer |")
    print("| --- | --- | --- | --- | --- | --- |")
    for arm, rows in scored.items():
        shares = [
            bootstrap_mean([float(bool(row.get(key))) for row in rows], tools)
            for key in ("calls", "valid", "ast_ok")
        ]
        right = [float(bool(row.get("ast_ok"))) for row in rows]
        gain = bootstrap_difference(right, alone, tools)
        seconds = sum(item.seconds or 0 for item in arms[arm]) / len(rows)
        cells = " | ".join(f"{share:}" for share in shares)
        print(f"| {arm} | {cells} | {gain:} | {seconds:.3f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("home", type=Path)
    parser.add_argument("--model", default="", help="default: the last that was trained")
    parser.add_argument("--items", type=int, default=100, help="of each split and kind of cell")
    parser.add_argument("--candidates", type=int, nargs="+", default=[10])
    args = parser.parse_args()
    warehouse = Warehouse(args.home, args.home)
    name = args.model or warehouse.tables.read(make_adapter_table("caller"))["model"][0]
    plan = TestPlan(candidates=tuple(args.candidates), per_split=args.items, per_large=args.items)
    every = load_bench(warehouse).make_items_for(plan)
    plain = [item for item in every if item.expected and not (item.phantom or item.before)]
    items = [item for item in plain if item.perturbation == UNPERTURBED]
    print(f"{name[:12]}: {len(items)} items, {len({i.row['server_id'] for i in items})} servers\n")
    print_arms(items, run_arms(args.home, name, items))


if __name__ == "__main__":
    main()
