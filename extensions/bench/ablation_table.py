"""What the ablations say: arms and contrasts with intervals, in Markdown, JSON and a plot.

A contrast is drawn over items: of each, the mean over the seeds of both arms' difference; items are
resampled by tool. The first measure of a role is the one that decides, the others are shown.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from extensions.bench.ablation_arms import UNTRAINED, list_contrasts
from training.evaluation.metrics import MetricFigure, bootstrap_mean
from training.evaluation.retriever import MEASURES as OF_RANK
from training.figures import format_interval
from training.sets.split import UNSEEN_SERVER
from warehouse.json_types import Row
from warehouse.sanitize.markdown import (
    Markdown,
    fill_markdown,
    join_markdown,
    make_markdown_table,
)

Worth = Callable[[Row], float]
MEASURES: dict[str, dict[str, Worth]] = {
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
BETTER, WORSE, OPEN = "better", "worse", "no difference shown"


def summarise_ablations(rows: Sequence[Row]) -> dict[str, Any]:
    """{role: {split, n, servers, tools, seeds, arms {arm: …}, contrasts [...]}} of unseen servers.

    An arm: {pairs, minutes, <measure>: figure}; a contrast: {name, question, same_n, pairs,
    <measure>: figure, verdict}.
    """
    out: dict[str, Any] = {}
    for role in MEASURES:
        part = [row for row in rows if row["role"] == role and row["split"] == UNSEEN_SERVER]
        if part:
            out[role] = _summarise_role(role, part)
    return out


def render_ablation_table(summary: Mapping[str, Any]) -> Markdown:
    """The summary in Markdown; a role that was not measured is said to be `not run`."""
    parts = [Markdown("# Ablations")]
    for role in MEASURES:
        held = summary.get(role)
        not_run = fill_markdown("## {}\n`not run`", role.capitalize())
        parts.append(_render_role(role, held) if held else not_run)
    return fill_markdown("{}\n", join_markdown("\n\n", parts))


def _summarise_role(role: str, rows: Sequence[Row]) -> dict[str, Any]:
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    by_item = {arm: _group_by_item([row for row in rows if row["arm"] == arm]) for arm in arms}
    shared = sorted(set.intersection(*(set(each) for each in by_item.values())))
    groups = [by_item[arms[0]][item][0]["text_digest"] for item in shared]
    seeds = sorted({row["seed"] for row in rows if row["arm"] != UNTRAINED})
    means = {
        arm: {
            name: [_compute_mean([worth(row) for row in by_item[arm][item]]) for item in shared]
            for name, worth in MEASURES[role].items()
        }
        for arm in arms
    }
    summaries = {arm: _summarise_arm(arm, rows, means[arm], groups) for arm in arms}
    return {
        "split": UNSEEN_SERVER,
        "n": len(shared),
        "servers": len({by_item[arms[0]][item][0]["server_id"] for item in shared}),
        "tools": len(set(groups)),
        "seeds": seeds,
        "arms": summaries,
        "contrasts": [
            {
                "name": contrast.name,
                "question": contrast.question,
                "same_n": contrast.same_n,
                "pairs": [summaries[contrast.one]["pairs"], summaries[contrast.other]["pairs"]],
                **_compare_arms(role, means[contrast.one], means[contrast.other], groups),
            }
            for contrast in list_contrasts(arms)
        ],
    }


def _summarise_arm(
    arm: str, rows: Sequence[Row], means: Mapping[str, list[float]], groups: list[str]
) -> dict[str, Any]:
    own = [row for row in rows if row["arm"] == arm]
    spent = {row["seed"]: row["minutes"] or 0.0 for row in own}
    return {
        "pairs": round(_compute_mean([row["pairs"] for row in own])),
        "minutes": round(_compute_mean(list(spent.values())), 1),
        **{name: bootstrap_mean(values, groups).as_dict() for name, values in means.items()},
    }


def _compare_arms(
    role: str,
    one: Mapping[str, list[float]],
    other: Mapping[str, list[float]],
    groups: list[str],
) -> dict[str, Any]:
    figures: dict[str, MetricFigure] = {
        name: bootstrap_mean([a - b for a, b in zip(one[name], other[name], strict=True)], groups)
        for name in MEASURES[role]
    }
    first = next(iter(figures.values()))
    verdict = BETTER if first.low > 0 else WORSE if first.high < 0 else OPEN
    return {**{name: figure.as_dict() for name, figure in figures.items()}, "verdict": verdict}


def _group_by_item(rows: Sequence[Row]) -> dict[str, list[Row]]:
    out: dict[str, list[Row]] = {}
    for row in rows:
        out.setdefault(row["item_id"], []).append(row)
    return out


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
    deciding = fill_markdown("by {}", head[0])
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
        make_markdown_table(["contrast", "pairs", *head, deciding], contrasts),
    ]
    lines += ["", *(_render_contrast(item, measures[0]) for item in of["contrasts"])]
    note = fill_markdown(
        "The held-out items are themselves filtered and partly evolved. Of contrasts without any"
        " difference one in twenty shows one by chance; here are {}.",
        len(of["contrasts"]),
    )
    lines += ["", note]
    return join_markdown("\n", lines)


def _render_contrast(contrast: Mapping[str, Any], measure: str) -> Markdown:
    figure = contrast[measure]
    size = Markdown("" if contrast["same_n"] else " (the arms differ in size too)")
    verdicts = {
        BETTER: "significantly better",
        WORSE: "significantly worse",
        OPEN: "not significant",
    }
    return fill_markdown(
        "- {} {}: {} {}, n={}{}.",
        contrast["question"].capitalize(),
        verdicts[contrast["verdict"]].capitalize(),
        _LABELS[measure],
        format_interval(figure, signed=True),
        figure["n"],
        size,
    )


def _compute_mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
