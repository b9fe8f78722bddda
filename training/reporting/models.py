"""What a report says of models: how each was trained, its figures; champions and gates."""

from collections.abc import Sequence
from typing import Any

from training.evaluation.caller.markdown import render_comparison
from training.figures import (
    Json,
    format_interval,
    format_table,
    shorten_model,
    sort_by_split,
    split_name,
)
from training.releases.gate import render_gates_table

OFFLINE_NOTE = (
    "The instructions were written by the offline provider (grammar and schemas), not by a"
    " language model or by people, on both sides of the split: these figures say how well the"
    " retriever serves requests of that kind."
)
TINY_NOTE = (
    "The tiny causal model is shipped with Toolmill, trained on invented contracts. It proves that"
    " training, saving, loading, generating and scoring work; it is no evidence of what a"
    " pretrained base model would learn."
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
    both = [shorten_model(summary[who]) for who in ("incumbent", "candidate")]
    lines += [
        "",
        f"{summary['n']} instructions for {summary['tools']} tools of {summary['servers']} servers"
        f" that were not trained on, ranked among {summary['pool']} tools."
        " 95% intervals by bootstrap over tools.",
        "",
        *format_table(
            ["", *both, "paired gain"],
            [
                _list_gain_cells(name, summary[key], summary[gain])
                for name, key, gain in _RECALL
                if key in summary
            ],
        ),
        *_render_split_table(summary, both),
    ]
    lines += ["", *make_plot_places("recall", "recall_splits")]
    if "offline" in manifest.get("providers", {}):
        lines += ["", OFFLINE_NOTE]
    return "\n".join(lines)


def render_caller_part(
    card: Json | None, summary: Json | None, champion: Json | None = None
) -> str:
    """summary: candidate beside the baseline; champion: the candidate beside the champion that it
    would replace, where that is a third model."""
    lines = ["## Caller (LoRA of a causal model)"]
    lines.append(describe_training(card) if card else "Not trained in this run.")
    if not summary:
        return "\n".join([*lines, "", "Not evaluated in this run."])
    lines += ["", *render_comparison(summary, champion)]
    lines += ["", *make_plot_places("caller", "caller_splits", "invariance")]
    if card and card.get("base") == "tiny":
        lines += ["", TINY_NOTE]
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


def _render_split_table(summary: Json, both: list[str]) -> list[str]:
    splits: dict[str, Any] = summary.get("splits") or {}
    if len(splits) < 2:
        return []
    rows = []
    for split, held in sort_by_split(splits):
        name, *cells = _list_gain_cells(split_name(split), held["recall_at_1"], held["gain_at_1"])
        rows.append([name, held["n"], *cells])
    return ["", *format_table(["Recall@1 by split", "n", *both, "paired gain"], rows)]


def _list_gain_cells(name: str, figures: Json, gain: Json) -> list[str]:
    both = [format_interval(figures[who]) for who in ("incumbent", "candidate")]
    return [name, *both, format_interval(gain, signed=True)]
