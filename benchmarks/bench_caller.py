"""The caller on servers that it has never seen: tool, arguments, and no call where none is right.

    python -m benchmarks.bench_caller --data FOLDER --model ADAPTER [--requests N] [--language de]

FOLDER as in `benchmarks.caller_fit`, whose test servers are asked about (API-Bank: `toolmill bench
api-bank`). Every request is asked among `--candidates` tools, up to four of them of the same
server. Rows are arms, columns shares with 95% intervals by server. `--language` (en, de, es, ru,
zh): 40 of the requests, each of another server, as `translated_requests.jsonl` says them.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.canonical import tool_text
from assets.vectors.encoders.choose import open_embedder
from assets.vectors.lexical import BM25
from benchmarks.caller_fit import LabelledRequest, is_test_server, rank_by_words, read_requests
from training.caller.bases import load_base
from training.caller.fast_generation import FastModel, build_fast_copy, find_fast_copy, is_built
from training.caller.generation import CallGrammars
from training.caller.smollm2 import write_smollm2_base
from training.evaluation.adapter_predictor import AdapterPredictor
from training.evaluation.baselines import complete_cut_call, copy_slots, ground_call
from training.evaluation.caller_items import CallerItem
from training.evaluation.caller_score import score_answer
from training.evaluation.loaded_model import find_or_build_copy
from training.evaluation.metrics import bootstrap_difference, bootstrap_mean
from training.evaluation.predictor import PredictionAnswer, PredictionRequest, parse_answer
from training.prompts.render import render_conversation, render_tool_schema

Contract = Mapping[str, Any]
Arm = Callable[[Sequence[CallerItem]], list[PredictionAnswer]]
MEASURES = ("tool_ok", "ast_ok", "valid")


def make_items(
    requests: Sequence[LabelledRequest], candidates: int, seed: int
) -> tuple[list[CallerItem], list[CallerItem]]:
    """(items with one right tool, items where no tool offered is right)."""
    rng = random.Random(seed)
    by_server: dict[str, tuple[Contract, ...]] = {each.server: each.siblings for each in requests}
    right, none = [], []
    for at, each in enumerate(requests):
        own = [tool for tool in each.siblings if tool["name"] != each.contract["name"]]
        rng.shuffle(own)
        others = [
            tool for name, tools in by_server.items() if name != each.server for tool in tools
        ]
        near = rank_by_words(each.instruction, rng.sample(others, min(150, len(others))))
        names = {tool["name"] for tool in each.siblings} | {each.contract["name"]}
        near = list({t["name"]: t for t in near if t["name"] not in names}.values())
        shown = [each.contract, *own[: min(4, candidates - 1)]]
        shown += near[: candidates - len(shown)]
        rng.shuffle(shown)
        call = {"name": each.contract["name"], "arguments": dict(each.arguments)}
        row = {"server_id": each.server, "kind": each.kind, "instruction": each.instruction}
        row |= {"tool": each.contract["name"]}
        common = (candidates, "mixed", seed, row)
        right.append(CallerItem(f"r{at}", "unseen", "single", *common, [*map(dict, shown)], [call]))
        # Not the nearest five: one of them may well be able to do it.
        wrong = near[5 : 5 + candidates]
        none.append(CallerItem(f"n{at}", "unseen", "no_tool", *common, [*map(dict, wrong)], []))
    return right, none


def translate(items: Sequence[CallerItem], language: str) -> list[CallerItem]:
    """Those whose request is there in a language, among the same tools."""
    lines = Path(__file__).with_name("translated_requests.jsonl").read_text("utf-8").splitlines()
    told = {line["en"]: line[language] for line in map(json.loads, lines)}
    kept = [item for item in items if item.instruction in told]
    return [replace(x, row=x.row | {"instruction": told[x.instruction]}) for x in kept]


def rank_offered(items: Sequence[CallerItem], ranker: str) -> list[list[Contract]]:
    """The tools of every item, the likeliest first."""
    if ranker == "random":
        return [random.Random(item.item_id).sample(item.tools, len(item.tools)) for item in items]
    if ranker == "bm25":
        scored = [
            BM25.build([tool_text(tool) for tool in item.tools]).score(item.instruction)
            for item in items
        ]
    else:
        encoder = open_embedder("general")
        texts = {tool_text(tool): None for item in items for tool in item.tools}
        vectors = dict(zip(texts, encoder.embed(list(texts)), strict=True))
        asked = encoder.embed([item.instruction for item in items])
        scored = [
            np.array([vectors[tool_text(tool)] @ query for tool in item.tools])
            for item, query in zip(items, asked, strict=True)
        ]
    return [
        [item.tools[at] for at in np.argsort(-np.asarray(scores), kind="stable")]
        for item, scores in zip(items, scored, strict=True)
    ]


@dataclass(frozen=True)
class CausalArm:
    """The fast copy of a causal model, shown the first `shown` tools of a ranking. must_call: a
    grammar of those tools lets it write nothing but one call."""

    generation: FastModel
    tokenizer: Any
    ranked: Mapping[str, list[Contract]]
    shown: int
    must_call: bool = False

    def __call__(self, items: Sequence[CallerItem]) -> list[PredictionAnswer]:
        grammars = CallGrammars(self.tokenizer, len(self.tokenizer))
        answers = []
        for item in items:
            tools = self.ranked[item.item_id][: self.shown]
            schemas = [render_tool_schema(tool) for tool in tools]
            prompt, _ = render_conversation(self.tokenizer, schemas, item.instruction)
            held = [grammars.write_grammar(tools, must_call=True)] if self.must_call else None
            [text] = self.generation([prompt], grammars, held, max_new=256)
            answer = parse_answer(text)
            cut = None if answer.calls else complete_cut_call(text, tools, item.instruction)
            calls = [ground_call(c, tools, item.instruction) for c in answer.calls or [cut] if c]
            answers.append(replace(answer, calls=calls, kind="call") if calls else answer)
        return answers


def answer_with_slots(ranked: Mapping[str, list[Contract]]) -> Arm:
    """The first tool of a ranking, its arguments copied from the request by rules."""

    def answer(items: Sequence[CallerItem]) -> list[PredictionAnswer]:
        first = [ranked[item.item_id][0] for item in items]
        return [
            PredictionAnswer(
                [{"name": str(tool["name"]), "arguments": copy_slots(tool, item.instruction)}],
                "call",
            )
            for tool, item in zip(first, items, strict=True)
        ]

    return answer


def bound_share(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    """Share of rows in percent with its 95% interval over resampled servers."""
    values = [float(bool(row[name])) for row in rows]
    figure = bootstrap_mean(values, [row["server_id"] for row in rows])
    return f"{100 * figure.value:.1f} ({100 * figure.low:.0f}-{100 * figure.high:.0f})"


def compare_calls(rows: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> str:
    """Gain in right calls per item with its 95% interval over resampled servers."""
    better, worse = ([float(row["ast_ok"]) for row in each] for each in (rows, others))
    figure = bootstrap_difference(better, worse, [row["server_id"] for row in rows])
    return f"{figure:+}, n = {figure.n}"


def measure_arm(
    label: str, arm: Arm, right: Sequence[CallerItem], none: Sequence[CallerItem]
) -> list[dict[str, Any]]:
    """Prints one row of the table; returns the scored rows of items with a right tool."""
    began = time.perf_counter()
    rows = [score_answer(item, got, label, "") for item, got in zip(right, arm(right), strict=True)]
    seconds = (time.perf_counter() - began) / len(right)
    cells = [bound_share(rows, name) for name in MEASURES]
    given = [row for row in rows if row["tool_ok"]]
    cells.append(bound_share(given, "ast_ok") if given else "-")
    if none:
        left = [
            score_answer(item, got, label, "") for item, got in zip(none, arm(none), strict=True)
        ]
        cells.append(bound_share(left, "tool_ok"))
    else:
        cells.append("-")
    print(f"| {label} | {' | '.join(cells)} | {seconds:.2f} |", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--work", type=Path, default=Path("var/caller_fit"))
    parser.add_argument("--requests", type=int, default=0)
    parser.add_argument("--candidates", type=int, default=10)
    parser.add_argument("--arms", default="baselines,untuned,one,three")
    parser.add_argument("--none", type=int, default=60)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--language")
    options = parser.parse_args()
    from transformers import AutoTokenizer

    requests = [each for each in read_requests(options.data) if is_test_server(each.server)]
    random.Random(3).shuffle(requests)
    requests = requests[: options.requests or None]
    right, none = make_items(requests, options.candidates, seed=3)
    if options.language:
        right, none = (translate(items, options.language) for items in (right, none))
    none = none[: options.none]
    servers = len({item.row["server_id"] for item in right})
    print(f"{len(right)} requests, {servers} servers, {options.candidates} candidates")
    print("| arm | right tool | right call | valid | arguments given the tool | no call | s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    both = [*right, *none]
    ranked = {
        name: dict(zip((i.item_id for i in both), rank_offered(both, name), strict=True))
        for name in ("random", "bm25", "general")
    }
    wanted = options.arms.split(",")
    slots = measure_arm("general + slots", answer_with_slots(ranked["general"]), right, none)
    if "baselines" in wanted:
        for name in ("random", "bm25"):
            measure_arm(f"{name} + slots", answer_with_slots(ranked[name]), right, none)
    gold: dict[str, list[Contract]] = {
        item.item_id: [t for t in item.tools if t["name"] == item.row["tool"]] for item in right
    }
    base = write_smollm2_base(options.work)
    tokenizer = AutoTokenizer.from_pretrained(str(base))

    def open_fast(copy: Path) -> FastModel:
        return FastModel(copy, tokenizer, options.threads)

    if "untuned" in wanted:
        copy = find_fast_copy(options.work, "untuned")
        if not is_built(copy):
            build_fast_copy(copy, load_base(str(base), "cpu")[0].float(), tokenizer)
        arm = CausalArm(open_fast(copy), tokenizer, ranked["general"], 1, must_call=True)
        measure_arm("general + untuned, grammar", arm, right, none)
    if options.model:
        copy = find_or_build_copy(options.work, options.model)
        if copy is None:
            parser.error(f"{options.model} is no adapter of {base}")
        fast = open_fast(copy)
        if "gold" in wanted:
            measure_arm("right tool given + slots", answer_with_slots(gold), right, [])
            arm = CausalArm(fast, tokenizer, gold, 1, must_call=True)
            measure_arm("right tool given + ours, grammar", arm, right, [])
        for name, shown in {"one": 1, "three": 3, "ten": 10}.items():
            if name in wanted:
                arm = CausalArm(fast, tokenizer, ranked["general"], shown, must_call=True)
                rows = measure_arm(f"general, ours of {shown}, grammar", arm, right, [])
                print(f"right calls, paired with general + slots: {compare_calls(rows, slots)}")
        if "product" in wanted:
            predictor = AdapterPredictor(options.work, options.model, device="cpu")

            def ask_product(items: Sequence[CallerItem]) -> list[PredictionAnswer]:
                return predictor.predict(
                    [PredictionRequest(i.item_id, i.instruction, i.tools) for i in items]
                )

            rows = measure_arm("as the product answers", ask_product, right, none)
            print(f"right calls, paired with general + slots: {compare_calls(rows, slots)}")


if __name__ == "__main__":
    main()
