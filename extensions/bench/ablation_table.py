"""What the ablations say: arms and contrasts with intervals, in Markdown and JSON.

A contrast is drawn over items: of each, the mean over the seeds of both arms' difference; items are
resampled by tool. The first measure of a role is the one that decides, the others are shown.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from training.evaluation.metrics import bootstrap_mean
from training.evaluation.retriever import MEASURES as OF_RANK
from training.figures import format_interval
from training.sets.split import UNSEEN_SERVER
from warehouse.json_types import Row
from warehouse.sanitize.markdown import Markdown, fill_markdown, join_markdown, make_markdown_table

UNTRAINED = "untrained"  # the base, for reference: no arm of its own
# Contrast -> the two arms that it compares; they differ by one thing, and in size where it says so.
CONTRASTS = {
    "filtered - raw": ("filtered", "raw"),
    "filtered - raw, all rows": ("filtered", "raw_all"),
    "hard - random": ("filtered", "random"),
    "evolved and plain - plain": ("mixed", "plain"),
    "evolved and plain - plain, all rows": ("filtered", "plain"),
}
MEASURES: dict[str, dict[str, Callable[[Row], float]]] = {
    "retriever": {
        name: lambda row, of=OF_RANK[name]: of(row["rank"])
        for name in ("recall_at_1", "recall_at_5", "ndcg_at_10", "mrr")
    },
    "caller": {name: lambda row, of=name: float(row[of]) for name in ("tool_ok", "ast_ok")},
}
_LABELS = {
    "recall_at_1": Markdown("Recall@1"), "recall_at_5": Markdown("Recall@5"),
    "ndcg_at_10": Markdown("NDCG@10"), "mrr": "MRR",
    "tool_ok": "Tool", "ast_ok": "AST",
}  # fmt: skip


def summarise_ablations(rows: Sequence[Row]) -> dict[str, Any]:
    """{role: {split, n, servers, tools, seeds, arms {arm: …}, contrasts [...]}} of unseen servers.

    An arm: {pairs, minutes, <measure>: figure}; a contrast: {name, pairs, <measure>: figure,
    verdict}.
    """
    return {
        role: _summarise_role(role, part)
        for role in MEASURES
        if (part := [r for r in rows if r["role"] == role and r["split"] == UNSEEN_SERVER])
    }


def _summarise_role(role: str, rows: Sequence[Row]) -> dict[str, Any]:
    by_arm: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_arm[row["arm"]][row["item_id"]].append(row)
    shared = sorted(set.intersection(*(set(items) for items in by_arm.values())))
    examples = [next(iter(by_arm.values()))[item][0] for item in shared]
    groups = [row["text_digest"] for row in examples]
    means = {
        arm: {
            name: np.array([np.mean([worth(row) for row in items[item]]) for item in shared])
            for name, worth in MEASURES[role].items()
        }
        for arm, items in by_arm.items()
    }
    arms = {}
    for arm, items in by_arm.items():
        trained = [row for of in items.values() for row in of]
        spent = {row["seed"]: row["minutes"] or 0.0 for row in trained}
        arms[arm] = {
            "pairs": round(float(np.mean([row["pairs"] for row in trained]))),
            "minutes": round(float(np.mean(list(spent.values()))), 1),
            **{n: bootstrap_mean(of.tolist(), groups).as_dict() for n, of in means[arm].items()},
        }
    contrasts = []
    for name, (one, other) in CONTRASTS.items():
        if {one, other} <= set(arms):
            figures = {
                measure: bootstrap_mean((means[one][measure] - of).tolist(), groups)
                for measure, of in means[other].items()
            }
            first = next(iter(figures.values()))
            verdict = "better" if first.low > 0 else "worse" if first.high < 0 else ""
            contrasts.append(
                {
                    "name": name,
                    "pairs": [arms[one]["pairs"], arms[other]["pairs"]],
                    **{measure: figure.as_dict() for measure, figure in figures.items()},
                    "verdict": verdict or "no difference shown",
                }
            )
    return {
        "split": UNSEEN_SERVER,
        "n": len(shared),
        "servers": len({row["server_id"] for row in examples}),
        "tools": len(set(groups)),
        "seeds": sorted({row["seed"] for row in rows if row["arm"] != UNTRAINED}),
        "arms": arms,
        "contrasts": contrasts,
    }


def render_ablation_table(summary: Mapping[str, Any]) -> Markdown:
    """The summary in Markdown; a role that was not measured is said to be `not run`."""
    parts = [Markdown("# Ablations")]
    for role in MEASURES:
        if role in summary:
            parts.append(_render_role(role, summary[role]))
        else:
            parts.append(fill_markdown("## {}\n`not run`", role.capitalize()))
    return fill_markdown("{}\n", join_markdown("\n\n", parts))


def _render_role(role: str, of: Mapping[str, Any]) -> Markdown:
    measures = list(MEASURES[role])
    head = [_LABELS[name] for name in measures]
    arms = [
        [arm, one["pairs"], one["minutes"], *(format_interval(one[name]) for name in measures)]
        for arm, one in of["arms"].items()
    ]
    contrasts = [
        [item["name"], " / ".join(map(str, item["pairs"])),
         *(format_interval(item[name], signed=True) for name in measures), item["verdict"]]
        for item in of["contrasts"]
    ]  # fmt: skip
    lines = [
        fill_markdown("## {}", role.capitalize()),
        fill_markdown(
            "{n} items, {tools} tools of {servers} servers that no arm was trained on; seeds"
            " {listed}. 95% intervals by bootstrap over tools; a difference is paired by item, the"
            " mean of its seeds.",
            **{name: of[name] for name in ("n", "tools", "servers")},
            listed=join_markdown(", ", of["seeds"]),
        ),
        "",
        make_markdown_table(["arm", "pairs", "minutes", *head], arms),
        "",
        make_markdown_table(
            ["contrast", "pairs", *head, fill_markdown("by {}", head[0])], contrasts
        ),
        "",
        fill_markdown(
            "The held-out items are themselves filtered and partly evolved. Of contrasts without"
            " any difference one in twenty shows one by chance; here are {}.",
            len(of["contrasts"]),
        ),
    ]
    return join_markdown("\n", lines)
