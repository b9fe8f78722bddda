"""What a report says of a model: how it was trained; the retriever's figures; champions, gates."""

from collections.abc import Sequence
from typing import Any

from training.releases.gate import render_gates_table
from training.reporting.format import (
    Json,
    format_interval,
    format_table,
    shorten_model,
    sort_by_split,
    split_name,
)

OFFLINE_NOTE = (
    "The instructions were written by the offline provider (grammar and schemas), not by a"
    " language model or by people, on both sides of the split: these figures say how well the"
    " retriever serves requests of that kind."
)
_RECALL = (
    ("Recall@1", "recall_at_1", "gain_at_1"),
    ("Recall@5", "recall_at_5", "gain_at_5"),
    ("Recall@10", "recall_at_10", "gain_at_10"),
    ("NDCG@10", "ndcg_at_10", "gain_ndcg_at_10"),
    ("MRR", "mrr", "gain_mrr"),
)


def describe_training(card: Json) -> str:
    """One sentence of how a model was trained."""
    return (
        f"`{card['name'][:16]}` on {card['pairs']} pairs: loss {card['loss_first']} to"
        f" {card['loss_last']} in {card['steps']} steps, {card['seconds']} s on {card['device']}"
        f" ({card['tokens_per_s']} tokens/s, {card['step_ms']} ms a step, peak {card['peak_mb']}"
        " MB)."
    )


def render_retriever_part(card: Json | None, summary: Json | None, manifest: Json) -> str:
    lines = ["## Retriever (LoRA of MiniLM)"]
    lines.append(describe_training(card) if card else "Not trained in this run.")
    if not summary:
        return "\n".join([*lines, "", "Not evaluated in this run."])
    lines += [
        "",
        f"{summary['n']} instructions for {summary['tools']} tools of {summary['servers']} servers"
        f" that were not trained on, ranked among {summary['pool']} tools."
        " 95% intervals by bootstrap over tools.",
        "",
        *format_table(
            [
                "",
                shorten_model(summary["incumbent"]),
                shorten_model(summary["candidate"]),
                "paired gain",
            ],
            [
                [
                    name,
                    format_interval(summary[key]["incumbent"]),
                    format_interval(summary[key]["candidate"]),
                    format_interval(summary[gain], signed=True),
                ]
                for name, key, gain in _RECALL
                if key in summary
            ],
        ),
        *_render_split_table(summary),
    ]
    lines += ["", *make_plot_places("recall", "recall_splits")]
    if "offline" in manifest.get("providers", {}):
        lines += ["", OFFLINE_NOTE]
    return "\n".join(lines)


def render_champion_part(
    champions: Sequence[Json], release: Json | None, drift: Json | None
) -> str:
    lines = ["## Champions and release"]
    for each in champions:
        attempt = each.get("last_candidate") or {}
        told = f"- {each['role']}: `{shorten_model(each['model'])}`"
        if attempt:
            verdict = "promoted" if attempt["promoted"] else "not promoted"
            told += (
                f"; last candidate `{shorten_model(attempt['model'])}` {verdict} ({attempt['why']})"
            )
        lines.append(told)
    if release:
        lines.append(f"- release: `{release['release'][:16]}`")
    if drift:
        lines.append(
            f"- drift since the last training: {drift['changed']} changed, {drift['new']} new,"
            f" {drift['gone']} gone of {drift['known']} contracts"
        )
    for each in champions:
        gates = (each.get("last_candidate") or {}).get("gates") or []
        if gates:
            passed = sum(bool(gate["passed"]) for gate in gates)
            head = f"Gates of the last {each['role']}: {passed} of {len(gates)} passed."
            lines += ["", head, "", render_gates_table(gates)]
    return "\n".join(lines)


def make_plot_places(*names: str) -> list[str]:
    """Places for plots; `report.py` takes out those that were not drawn."""
    return [f"![{name.replace('_', ' ')}]({name}.png)" for name in names]


def _render_split_table(summary: Json) -> list[str]:
    splits: dict[str, Any] = summary.get("splits") or {}
    if len(splits) < 2:
        return []
    rows = [
        [
            split_name(name),
            held["n"],
            format_interval(held["recall_at_1"]["incumbent"]),
            format_interval(held["recall_at_1"]["candidate"]),
            format_interval(held["gain_at_1"], signed=True),
        ]
        for name, held in sort_by_split(splits)
    ]
    head = [
        "Recall@1 by split",
        "n",
        shorten_model(summary["incumbent"]),
        shorten_model(summary["candidate"]),
    ]
    return ["", *format_table([*head, "paired gain"], rows)]
