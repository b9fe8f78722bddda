"""What a report says of a model: how it was trained; the retriever's figures; champions, gates."""

from collections.abc import Sequence
from typing import Any

from training.releases.gate import gates_table
from training.reporting.format import Json, by_split, interval, short, split_name, table

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


def card_line(card: Json) -> str:
    """One sentence of how a model was trained."""
    return (
        f"`{card['name'][:16]}` on {card['pairs']} pairs: loss {card['loss_first']} to"
        f" {card['loss_last']} in {card['steps']} steps, {card['seconds']} s on {card['device']}"
        f" ({card['tokens_per_s']} tokens/s, {card['step_ms']} ms a step, peak {card['peak_mb']}"
        " MB)."
    )


def retriever_part(card: Json | None, summary: Json | None, manifest: Json) -> str:
    lines = ["## Retriever (LoRA of MiniLM)"]
    lines.append(card_line(card) if card else "Not trained in this run.")
    if not summary:
        return "\n".join([*lines, "", "Not evaluated in this run."])
    lines += [
        "",
        f"{summary['n']} instructions for {summary['tools']} tools of {summary['servers']} servers"
        f" that were not trained on, ranked among {summary['pool']} tools."
        " 95% intervals by bootstrap over tools.",
        "",
        *table(
            ["", short(summary["incumbent"]), short(summary["candidate"]), "paired gain"],
            [
                [
                    name,
                    interval(summary[key]["incumbent"]),
                    interval(summary[key]["candidate"]),
                    interval(summary[gain], signed=True),
                ]
                for name, key, gain in _RECALL
                if key in summary
            ],
        ),
        *_by_split(summary),
    ]
    lines += ["", *plots("recall", "recall_splits")]
    if "offline" in manifest.get("providers", {}):
        lines += ["", OFFLINE_NOTE]
    return "\n".join(lines)


def champion_part(champions: Sequence[Json], release: Json | None, drift: Json | None) -> str:
    lines = ["## Champions and release"]
    for each in champions:
        attempt = each.get("last_candidate") or {}
        told = f"- {each['role']}: `{short(each['model'])}`"
        if attempt:
            verdict = "promoted" if attempt["promoted"] else "not promoted"
            told += f"; last candidate `{short(attempt['model'])}` {verdict} ({attempt['why']})"
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
            lines += ["", head, "", gates_table(gates)]
    return "\n".join(lines)


def plots(*names: str) -> list[str]:
    """Places for plots; `report.py` takes out those that were not drawn."""
    return [f"![{name.replace('_', ' ')}]({name}.png)" for name in names]


def _by_split(summary: Json) -> list[str]:
    splits: dict[str, Any] = summary.get("splits") or {}
    if len(splits) < 2:
        return []
    rows = [
        [split_name(name), held["n"], interval(held["recall_at_1"]["incumbent"]),
         interval(held["recall_at_1"]["candidate"]), interval(held["gain_at_1"], signed=True)]
        for name, held in by_split(splits)
    ]  # fmt: skip
    head = ["Recall@1 by split", "n", short(summary["incumbent"]), short(summary["candidate"])]
    return ["", *table([*head, "paired gain"], rows)]
