"""What a report says of models: how each was trained, its figures; champions and gates."""

from collections.abc import Sequence
from typing import Any, LiteralString

from training.evaluation.caller_markdown import render_comparison
from training.figures import (
    Json,
    describe_offline,
    format_counts,
    format_interval,
    format_table,
    shorten_model,
    sort_by_split,
    split_name,
)
from training.gates import render_gates_table
from warehouse.sanitize.markdown import Markdown, fill_markdown, join_markdown, quote_text

_NOT_TRAINED = Markdown("Not trained in this run.")
_NOT_EVALUATED = Markdown("Not evaluated in this run.")
_RECALL = (
    (Markdown("Recall@1"), "recall_at_1", "gain_at_1"),
    (Markdown("Recall@5"), "recall_at_5", "gain_at_5"),
    (Markdown("Recall@10"), "recall_at_10", "gain_at_10"),
    (Markdown("NDCG@10"), "ndcg_at_10", "gain_ndcg_at_10"),
    ("MRR", "mrr", "gain_mrr"),
)


def describe_training(card: Json) -> Markdown:
    """One sentence of how a model was trained."""
    return fill_markdown(
        "{short} on {c[pairs]} pairs: loss {c[loss_first]} to {c[loss_last]} in {c[steps]} steps,"
        " {c[seconds]} s on {c[device]} ({c[tokens_per_s]} tokens/s, {c[step_ms]} ms a step, peak"
        " {c[peak_mb]} MB).",
        short=quote_text(card["name"][:16]),
        c=card,
    )


def render_retriever_part(card: Json | None, summary: Json | None, manifest: Json) -> Markdown:
    lines = [Markdown("## Retriever (LoRA of the encoder)")]
    lines.append(describe_training(card) if card else _NOT_TRAINED)
    if not summary:
        return join_markdown("\n", [*lines, "", _NOT_EVALUATED])
    both = [shorten_model(summary[who]) for who in ("incumbent", "candidate")]
    lines += [
        Markdown(""),
        fill_markdown(
            "{n} instructions for {tools} tools of {servers} servers that were not trained on,"
            " ranked among {pool} tools. 95% intervals by bootstrap over tools.",
            **{name: summary[name] for name in ("n", "tools", "servers", "pool")},
        ),
        Markdown(""),
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
    lines += [Markdown(""), *make_plot_places("recall")]
    if "offline" in manifest.get("providers", {}):
        lines += [Markdown(""), describe_offline(manifest["providers"])]
    return join_markdown("\n", lines)


def render_caller_part(
    card: Json | None, summary: Json | None, champion: Json | None = None
) -> Markdown:
    """summary: candidate beside the baseline; champion: the candidate beside the champion that it
    would replace, where that is a third model."""
    lines = [Markdown("## Caller (LoRA of a causal model)")]
    lines.append(describe_training(card) if card else _NOT_TRAINED)
    if not summary:
        return join_markdown("\n", [*lines, "", _NOT_EVALUATED])
    lines += [Markdown(""), *render_comparison(summary, champion)]
    lines += [Markdown(""), *make_plot_places("caller")]
    return join_markdown("\n", lines)


def render_champion_part(champions: Sequence[Json], release: Json | None) -> Markdown:
    lines = [Markdown("## Champions and release")]
    for each in champions:
        attempt = each.get("last_candidate") or {}
        line = fill_markdown("- {}: {}", each["role"], quote_text(shorten_model(each["model"])))
        if attempt:
            line = fill_markdown(
                "{}; last candidate {} {} ({})",
                line,
                quote_text(shorten_model(attempt["model"])),
                "promoted" if attempt["promoted"] else "not promoted",
                attempt["why"],
            )
        lines.append(line)
    if release:
        lines.append(fill_markdown("- release: {}", quote_text(release["release"][:16])))
    for each in champions:
        gates = (each.get("last_candidate") or {}).get("gates") or []
        if gates:
            passed = sum(bool(gate["passed"]) for gate in gates)
            head = fill_markdown(
                "Gates of the last {}: {} of {} passed.", each["role"], passed, len(gates)
            )
            lines += [Markdown(""), head, Markdown(""), render_gates_table(gates)]
    return join_markdown("\n", lines)


def make_plot_places(*names: LiteralString) -> list[Markdown]:
    """Places for plots; `report.py` takes out those that were not drawn."""
    return [Markdown(f"![{name.replace('_', ' ')}]({name}.png)") for name in names]


def _render_split_table(summary: Json, both: list[str]) -> list[Markdown]:
    splits: dict[str, Any] = summary.get("splits") or {}
    if len(splits) < 2:
        return []
    rows = []
    for split, figures in sort_by_split(splits):
        recall, gain = figures["recall_at_1"], figures["gain_at_1"]
        name, *cells = _list_gain_cells(split_name(split), recall, gain)
        rows.append([name, figures["n"], *cells])
    head = [Markdown("Recall@1 by split"), "n", *both, "paired gain"]
    return [Markdown(""), *format_table(head, rows)]


def _list_gain_cells(name: str, figures: Json, gain: Json) -> list[object]:
    both = [format_interval(figures[who]) for who in ("incumbent", "candidate")]
    return [name, *both, format_interval(gain, signed=True)]


def set_part(manifest: Json) -> Markdown:
    if not manifest:
        return Markdown(
            "## Training set\nNone yet: it needs accepted pairs of servers on both sides."
        )
    rows, tools, servers = manifest["rows"], manifest["tools"], manifest["servers"]
    tasks = manifest.get("tasks") or {}
    names = sorted({task for counts in tasks.values() for task in counts})
    lines = [
        Markdown("## Training set"),
        fill_markdown(
            "{}, split by server first: no server that is tested as unseen was trained on.",
            quote_text(manifest["training_set"][:16]),
        ),
        "",
        *format_table(
            ["split", "servers", "tools", "pairs", *names],
            [
                [split_name(s), len(servers[s]), tools[s], rows[s]]
                + [(tasks.get(s) or {}).get(name, 0) for name in names]
                for s in rows
            ],
        ),
    ]
    if manifest.get("empty"):
        empty = join_markdown(", ", map(split_name, manifest["empty"]))
        lines += ["", fill_markdown("No pairs, so nothing is measured there: {}.", empty)]
    if manifest.get("dropped"):
        lines += ["", fill_markdown("Left out: {}.", format_counts(manifest["dropped"]))]
    return join_markdown("\n", [*lines, *_render_leaks(manifest)])


def _render_leaks(manifest: Json) -> list[object]:
    leaks = manifest.get("leaks")
    if leaks is None:
        return []
    if not leaks:
        return ["", Markdown("Leaks between splits (twins, near-duplicates): none found.")]
    counts = format_counts({name: leak["found"] for name, leak in leaks.items()})
    line = fill_markdown("Leaks between splits, found and taken out of training: {}.", counts)
    return ["", line]
