"""What a report says of the caller: every cell of its evaluation, and what it costs and gets
wrong.
"""

from collections.abc import Mapping
from typing import Any

from training.reporting.format import (
    NONE,
    Json,
    counted,
    interval,
    points,
    short,
    split_name,
    split_order,
    table,
    with_n,
)
from training.reporting.models import card_line, plots

TINY_NOTE = (
    "The tiny causal model is shipped with Toolmill, trained on invented contracts. It proves that"
    " training, saving, loading, generating and scoring work; it is no evidence of what a"
    " pretrained base model would learn."
)
MEASURES = (
    ("Parsed as a call", "parsed"),
    ("Valid call", "valid"),
    ("Tool", "tool_ok"),
    ("Param-name F1", "name_f1"),
    ("Param-value F1", "value_f1"),
    ("AST", "ast_ok"),
)
_CELL = MEASURES[2:]
_CHANGES = {
    "renamed_tool": "tool renamed",
    "renamed_parameters": "parameters renamed",
    "reordered_parameters": "parameters reordered",
    "paraphrased": "descriptions paraphrased",
}


def change_name(kind: str) -> str:
    return _CHANGES.get(kind, kind)


def caller_part(card: Json | None, summary: Json | None, champion: Json | None = None) -> str:
    """summary: candidate beside the baseline; champion: the candidate beside the champion that it
    would replace, where that is a third model."""
    lines = ["## Caller (LoRA of a causal model)"]
    lines.append(card_line(card) if card else "Not trained in this run.")
    if not summary:
        return "\n".join([*lines, "", "Not evaluated in this run."])
    both = [short(summary["incumbent"]), short(summary["candidate"])]
    lines += [
        "",
        f"{summary['n']} instructions for {summary['tools']} tools of {summary['servers']} servers"
        f" that were not trained on; choosing at random scores Tool {summary['chance']:.3f}."
        " 95% intervals by bootstrap over tools.",
        "",
        *table(
            ["", *both],
            [
                [name, interval(summary[key]["incumbent"]), interval(summary[key]["candidate"])]
                for name, key in MEASURES
                if key in summary
            ],
        ),
        "",
        f"Paired gain in AST: {with_n(summary['gain'], signed=True)}.",
    ]
    if champion:
        told = with_n(champion.get("gain"), signed=True)
        lines.append(f"Against the champion `{short(champion['incumbent'])}`: {told}.")
    lines += _cells(summary, champion) + _beyond(summary) + _invariance(summary)
    lines += _verdict(summary)
    lines += ["", *plots("caller", "caller_splits", "invariance")]
    if card and card.get("base") == "tiny":
        lines += ["", TINY_NOTE]
    return "\n".join(lines)


def _cells(summary: Json, champion: Json | None) -> list[str]:
    """A row per cell and model."""
    places = {_place(cell): cell for cell in (champion or {}).get("cells") or ()}
    rows = []
    for cell in sorted(summary.get("cells") or (), key=_order):
        models = {
            summary["candidate"]: (cell, "candidate"),
            summary["incumbent"]: (cell, "incumbent"),
        }
        if champion and _place(cell) in places:
            models[champion["incumbent"]] = (places[_place(cell)], "incumbent")
        told = [split_name(cell["split"]), cell["candidates"], cell["distractors"], cell["n"]]
        for at, (model, (held, who)) in enumerate(models.items()):
            figures = [interval((held.get(key) or {}).get(who)) for _, key in _CELL]
            rows.append([*(told if at == 0 else [""] * 4), short(model), *figures])
    if not rows:
        return []
    head = ["split", "candidates", "distractors", "n", "model", *(name for name, _ in _CELL)]
    return [
        "",
        "Every split, number of candidates and kind of distractors:",
        "",
        *table(head, rows),
    ]


def _place(cell: Json) -> tuple[Any, ...]:
    return cell["split"], cell["candidates"], cell["distractors"]


def _order(cell: Json) -> tuple[Any, ...]:
    return split_order(cell["split"]), cell["candidates"], cell["distractors"]


def _beyond(summary: Json) -> list[str]:
    """Irrelevance, phantom calls and MCP-Bench's rates."""
    without, gone = summary.get("irrelevance") or {}, summary.get("phantom") or {}
    bench = summary.get("mcp_bench") or {}
    named: list[tuple[str, Any]] = [
        ("No call where none is right (irrelevance)", without.get("all")),
        ("… written as no-tool requests", without.get("no_tool")),
        ("… with the right tool taken away", without.get("not_offered")),
        ("Phantom calls (lower is better)", gone.get("all")),
        ("… to tools that are gone", gone.get("gone")),
        ("… to tools renamed in a snapshot", gone.get("renamed")),
        ("… to tools renamed for the test", gone.get("renamed_here")),
        *((f"MCP-Bench {name}", held) for name, held in bench.items()),
    ]
    rows = []
    for name, held in named:
        if isinstance(held, str):
            rows.append([name, "", held, held, NONE])
        elif held:
            n = held["candidate"]["n"]
            both = [interval(held[who]) for who in ("incumbent", "candidate")]
            rows.append([name, n, *both, interval(held["gain"], signed=True)])
    if not rows:
        return []
    head = ["", "n", short(summary["incumbent"]), short(summary["candidate"]), "paired difference"]
    return ["", *table(head, rows)]


def _invariance(summary: Json) -> list[str]:
    held = [each for each in summary.get("invariance") or () if each["drop_candidate"]["n"]]
    rows = [
        [
            change_name(each["perturbation"]),
            {"ast_ok": "AST", "tool_ok": "Tool"}.get(each["measure"], each["measure"]),
            each["drop_candidate"]["n"],
            points(each["drop_incumbent"]),
            points(each["drop_candidate"]),
        ]
        for each in held
    ]
    if not rows:
        return []
    head = ["Drop in points when", "measure", "n", short(summary["incumbent"])]
    return ["", *table([*head, short(summary["candidate"])], rows)]


def _verdict(summary: Json) -> list[str]:
    """Costs, errors, the failure signature."""
    lines = []
    cost: Mapping[str, Any] = summary.get("cost") or {}
    if isinstance(cost.get("candidate"), Mapping):
        rows = [
            [short(summary[who]), cost[who]["n"], f"{cost[who]['prompt_tokens']:,.0f}",
             f"{cost[who]['completion_tokens']:,.1f}", f"{cost[who]['seconds']:.3f}",
             f"{cost[who]['usd']:.6f}"]
            for who in ("incumbent", "candidate") if who in cost
        ]  # fmt: skip
        head = ["Mean per item", "n", "prompt tokens", "completion tokens", "seconds", "USD"]
        lines += ["", *table(head, rows)]
    if summary.get("errors"):
        lines += ["", f"Errors of the trained caller: {counted(summary['errors'])}."]
    for who, counts in (summary.get("failures") or {}).items():
        told = f"{short(summary[who])}: {counted(counts)}"
        lines += ["", f"No answer came, in no figure: {told}."]
    sign = summary.get("signature")
    if sign:
        lines += ["", f"Check: {sign['told']}."]
    return lines
