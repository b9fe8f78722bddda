"""What a report says of the caller: every cell of its evaluation, and what it costs and gets
wrong.
"""

from collections.abc import Mapping
from typing import Any

from training.reporting.format import (
    NONE,
    Json,
    format_counts,
    format_interval,
    format_points,
    format_table,
    shorten_model,
    split_name,
    split_order,
    with_n,
)
from training.reporting.models import describe_training, make_plot_places

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


def get_change_name(kind: str) -> str:
    return _CHANGES.get(kind, kind)


def render_caller_part(
    card: Json | None, summary: Json | None, champion: Json | None = None
) -> str:
    """summary: candidate beside the baseline; champion: the candidate beside the champion that it
    would replace, where that is a third model."""
    lines = ["## Caller (LoRA of a causal model)"]
    lines.append(describe_training(card) if card else "Not trained in this run.")
    if not summary:
        return "\n".join([*lines, "", "Not evaluated in this run."])
    both = [shorten_model(summary["incumbent"]), shorten_model(summary["candidate"])]
    lines += [
        "",
        f"{summary['n']} instructions for {summary['tools']} tools of {summary['servers']} servers"
        f" that were not trained on; choosing at random scores Tool {summary['chance']:.3f}."
        " 95% intervals by bootstrap over tools.",
        "",
        *format_table(
            ["", *both],
            [
                [
                    name,
                    format_interval(summary[key]["incumbent"]),
                    format_interval(summary[key]["candidate"]),
                ]
                for name, key in MEASURES
                if key in summary
            ],
        ),
        "",
        f"Paired gain in AST: {with_n(summary['gain'], signed=True)}.",
    ]
    if champion:
        told = with_n(champion.get("gain"), signed=True)
        lines.append(f"Against the champion `{shorten_model(champion['incumbent'])}`: {told}.")
    lines += (
        _list_cell_rows(summary, champion)
        + _render_other_rates(summary)
        + _render_invariance_table(summary)
    )
    lines += _render_verdict(summary)
    lines += ["", *make_plot_places("caller", "caller_splits", "invariance")]
    if card and card.get("base") == "tiny":
        lines += ["", TINY_NOTE]
    return "\n".join(lines)


def _list_cell_rows(summary: Json, champion: Json | None) -> list[str]:
    """A row per cell and model."""
    places = {_make_cell_key(cell): cell for cell in (champion or {}).get("cells") or ()}
    rows = []
    for cell in sorted(summary.get("cells") or (), key=_make_sort_key):
        models = {
            summary["candidate"]: (cell, "candidate"),
            summary["incumbent"]: (cell, "incumbent"),
        }
        if champion and _make_cell_key(cell) in places:
            models[champion["incumbent"]] = (places[_make_cell_key(cell)], "incumbent")
        told = [split_name(cell["split"]), cell["candidates"], cell["distractors"], cell["n"]]
        for at, (model, (held, who)) in enumerate(models.items()):
            figures = [format_interval((held.get(key) or {}).get(who)) for _, key in _CELL]
            rows.append([*(told if at == 0 else [""] * 4), shorten_model(model), *figures])
    if not rows:
        return []
    head = ["split", "candidates", "distractors", "n", "model", *(name for name, _ in _CELL)]
    return [
        "",
        "Every split, number of candidates and kind of distractors:",
        "",
        *format_table(head, rows),
    ]


def _make_cell_key(cell: Json) -> tuple[Any, ...]:
    return cell["split"], cell["candidates"], cell["distractors"]


def _make_sort_key(cell: Json) -> tuple[Any, ...]:
    return split_order(cell["split"]), cell["candidates"], cell["distractors"]


def _render_other_rates(summary: Json) -> list[str]:
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
            both = [format_interval(held[who]) for who in ("incumbent", "candidate")]
            rows.append([name, n, *both, format_interval(held["gain"], signed=True)])
    if not rows:
        return []
    head = [
        "",
        "n",
        shorten_model(summary["incumbent"]),
        shorten_model(summary["candidate"]),
        "paired difference",
    ]
    return ["", *format_table(head, rows)]


def _render_invariance_table(summary: Json) -> list[str]:
    held = [each for each in summary.get("invariance") or () if each["drop_candidate"]["n"]]
    rows = [
        [
            get_change_name(each["perturbation"]),
            {"ast_ok": "AST", "tool_ok": "Tool"}.get(each["measure"], each["measure"]),
            each["drop_candidate"]["n"],
            format_points(each["drop_incumbent"]),
            format_points(each["drop_candidate"]),
        ]
        for each in held
    ]
    if not rows:
        return []
    head = ["Drop in points when", "measure", "n", shorten_model(summary["incumbent"])]
    return ["", *format_table([*head, shorten_model(summary["candidate"])], rows)]


def _render_verdict(summary: Json) -> list[str]:
    """Costs, errors, the failure signature."""
    lines = []
    cost: Mapping[str, Any] = summary.get("cost") or {}
    if isinstance(cost.get("candidate"), Mapping):
        rows = [
            [shorten_model(summary[who]), cost[who]["n"], f"{cost[who]['prompt_tokens']:,.0f}",
             f"{cost[who]['completion_tokens']:,.1f}", f"{cost[who]['seconds']:.3f}",
             f"{cost[who]['usd']:.6f}"]
            for who in ("incumbent", "candidate") if who in cost
        ]  # fmt: skip
        head = ["Mean per item", "n", "prompt tokens", "completion tokens", "seconds", "USD"]
        lines += ["", *format_table(head, rows)]
    if summary.get("errors"):
        lines += ["", f"Errors of the trained caller: {format_counts(summary['errors'])}."]
    for who, counts in (summary.get("failures") or {}).items():
        told = f"{shorten_model(summary[who])}: {format_counts(counts)}"
        lines += ["", f"No answer came, in no figure: {told}."]
    sign = summary.get("signature")
    if sign:
        lines += ["", f"Check: {sign['told']}."]
    return lines
