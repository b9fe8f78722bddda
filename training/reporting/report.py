"""The training report of a run: what was measured, on how much, beside which baseline.

<home>/reports/<run>/report.md, *.png, figures.json
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training.drift.drift import render_drift_part
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
from training.reporting.plots import draw_losses
from warehouse.extensions import REPORTS, load_extensions
from warehouse.sanitize.markdown import (
    Markdown,
    embed_image,
    escape_markdown,
    fill_markdown,
    join_markdown,
    mark_markdown,
    quote_text,
)
from warehouse.storage.files import write_changed
from warehouse.store import Warehouse

_NOT_TRAINED = Markdown("Not trained in this run.")
_NOT_EVALUATED = Markdown("Not evaluated in this run.")
_MODELS = ("incumbent", "candidate")
_RECALL = (
    (Markdown("Recall@1"), "recall_at_1", "gain_at_1"),
    (Markdown("Recall@5"), "recall_at_5", "gain_at_5"),
    (Markdown("Recall@10"), "recall_at_10", "gain_at_10"),
    (Markdown("NDCG@10"), "ndcg_at_10", "gain_ndcg_at_10"),
    ("MRR", "mrr", "gain_mrr"),
)


def describe_training(card: Json) -> Markdown:
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
    both = list(dict.fromkeys(shorten_model(summary[who]) for who in _MODELS))
    head = [*both, "paired gain"] if len(both) > 1 else both
    lines += [
        Markdown(""),
        fill_markdown(
            "{n} instructions for {tools} tools of {servers} servers that were not trained on,"
            " ranked among {pool} tools. 95% intervals by bootstrap over tools.",
            **{name: summary[name] for name in ("n", "tools", "servers", "pool")},
        ),
        Markdown(""),
        *format_table(
            ["", *head],
            [
                _list_gain_cells(name, summary[key], summary[gain])[: len(head) + 1]
                for name, key, gain in _RECALL
                if key in summary
            ],
        ),
        *_render_split_table(summary, head),
    ]
    if "offline" in manifest.get("providers", {}):
        lines += [Markdown(""), describe_offline(manifest["providers"])]
    return join_markdown("\n", lines)


def render_caller_part(card: Json | None, summary: Json | None) -> Markdown:
    """summary: beside the baseline."""
    lines = [Markdown("## Caller (LoRA of a causal model)")]
    lines.append(describe_training(card) if card else _NOT_TRAINED)
    if not summary:
        return join_markdown("\n", [*lines, "", _NOT_EVALUATED])
    return join_markdown("\n", [*lines, Markdown(""), *render_comparison(summary)])


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
                "Gates of the last {}, against the model then in service: {} of {} passed.",
                each["role"],
                passed,
                len(gates),
            )
            lines += [Markdown(""), head, Markdown(""), render_gates_table(gates)]
    return join_markdown("\n", lines)


def _render_split_table(summary: Json, figures_head: list[str]) -> list[Markdown]:
    splits: dict[str, Any] = summary.get("splits") or {}
    if len(splits) < 2:
        return []
    rows = []
    for split, figures in sort_by_split(splits):
        recall, gain = figures["recall_at_1"], figures["gain_at_1"]
        name, *cells = _list_gain_cells(split_name(split), recall, gain)
        rows.append([name, figures["n"], *cells[: len(figures_head)]])
    head = [Markdown("Recall@1 by split"), "n", *figures_head]
    return [Markdown(""), *format_table(head, rows)]


def _list_gain_cells(name: str, figures: Json, gain: Json) -> list[object]:
    both = [format_interval(figures[who]) for who in _MODELS]
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
    return ["", fill_markdown("Leaks between splits, found and taken out of training: {}.", counts)]


_PLACE = re.compile(r"(?m)^!\[loss\]\(loss\.png\)$")  # a line of its own: ours


def write_report(home: Path, run: str, facts: Mapping[str, Any]) -> Path:
    """Writes `<home>/reports/<run>/report.md` with its plot; returns its path. facts: manifest;
    retriever, caller: summaries; *_card: of trained models; champions, release, drift; ablations:
    Markdown. None: not done, and said so."""
    folder = home / "reports" / run
    folder.mkdir(parents=True, exist_ok=True)
    cards = {"retriever": facts.get("retriever_card"), "caller (LoRA)": facts.get("caller_card")}
    losses = {
        name: card["losses"]
        for name, card in cards.items()
        if card and len(card.get("losses") or ()) > 1
    }
    if losses:
        write_changed(folder / "loss.png", draw_losses(losses))
    manifest = facts["manifest"]
    parts = [
        fill_markdown("# Training report, {}", run),
        set_part(manifest),
        render_retriever_part(facts.get("retriever_card"), facts.get("retriever"), manifest),
        render_caller_part(facts.get("caller_card"), facts.get("caller")),
        Markdown("![loss](loss.png)" if losses else ""),
        render_champion_part(facts.get("champions") or (), facts.get("release")),
        render_drift_part(facts.get("drift") or ()),
        _render_ablation_part(facts.get("ablations")),
    ]
    path = folder / "report.md"
    write_changed(path, join_markdown("\n\n", filter(None, parts)).encode() + b"\n")
    left_out = ("manifest", "retriever_card", "caller_card")
    figures = {name: fact for name, fact in facts.items() if name not in left_out}
    write_changed(folder / "figures.json", json.dumps(figures, indent=1).encode())
    return path


def inline_plots(path: Path) -> Markdown:
    """A report with its plot as a data URL, so that a page which has no files shows it."""

    def embed_plot(_: re.Match[str]) -> str:
        return embed_image("loss", (path.parent / "loss.png").read_bytes())

    return mark_markdown(_PLACE.sub(embed_plot, path.read_text()))


def _render_ablation_part(ablations: Markdown | None) -> Markdown:
    """`ablations`: what the extension that runs them renders; its headings a level down."""
    text = escape_markdown(ablations or "").strip()
    if not text:
        return Markdown("")
    lower = mark_markdown(re.sub(r"(?m)^(#+ )", r"#\1", text))
    return lower if lower.startswith("## Ablations") else fill_markdown("## Ablations\n{}", lower)


def render_ablations(warehouse: Warehouse) -> Markdown | None:
    render = load_extensions(REPORTS).get("ablations")
    return render(warehouse) if render else None
