"""What a report says of calls that really ran: outcomes, blame, and what they say of the pairs."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from assets.outcomes.outcome import OUTCOMES, USEFUL
from assets.outcomes.table import (
    EXECUTIONS,
    PROVED,
    REFUTED,
    PairEvidence,
    group_by_pair,
    has_run,
)
from assets.synthesis.tables import JUDGEMENTS
from training.evaluation.metrics import measure_share
from training.evaluation.retriever import RETRIEVER_EVALUATION
from training.figures import Json, format_table, with_n
from warehouse.json_types import Row
from warehouse.sanitize.markdown import Markdown, fill_markdown, join_markdown
from warehouse.store import Warehouse

_ALL = "all pairs"


def summarise_executions(warehouse: Warehouse, candidate: str | None = None) -> Json | None:
    """Shares of calls and of accepted pairs; None where nothing was executed. candidate: the
    retriever whose Recall@1 on proved test pairs stands beside that on all of them."""
    tables = warehouse.tables
    made = tables.read(EXECUTIONS)  # one call of two marketplaces has a row in each
    rows = made.unique("execution_id", keep="first", maintain_order=True).to_dicts()
    if not rows:
        return None
    judged = tables.read(JUDGEMENTS).unique("pair_id")
    pairs = set(judged.filter(verdict="accept")["pair_id"])
    tried = {name: one for name, one in group_by_pair(made.to_dicts()).items() if name in pairs}
    ranked = tables.read(RETRIEVER_EVALUATION).filter(model=candidate).to_dicts()
    return {
        "outcomes": dict(Counter(str(row["outcome"]) for row in rows)),
        "blame": dict(Counter(str(row["blame"]) for row in rows if row["blame"])),
        "calls": _measure_hits(row["outcome"] == USEFUL for row in rows if has_run(row)),
        "pairs": count_pairs(tried, len(pairs)),
        "recall_at_1": measure_recall(ranked, tried),
    }


def count_pairs(tried: Mapping[str, PairEvidence], accepted: int) -> dict[str, Any]:
    """Of the accepted pairs those whose calls ran; of these the useful, invalid, proved and
    refuted ones, each share with its interval and n."""
    every = list(tried.values())
    ran = measure_share(len(every), accepted).as_dict()
    return {
        "executed": ran,
        "useful": _measure_hits(item.useful for item in every),
        "invalid": _measure_hits(item.invalid for item in every),
        "proved": _measure_hits(item.proof == PROVED for item in every),
        "refuted": _measure_hits(item.proof == REFUTED for item in every),
    }


def measure_recall(ranked: Iterable[Row], tried: Mapping[str, PairEvidence]) -> dict[str, Any]:
    """Recall@1 by what execution says of a test pair. ranked: rows of RETRIEVER_EVALUATION."""
    rows = list(ranked)
    groups: dict[str, Collection[str]] = {
        _ALL: {row["pair_id"] for row in rows},
        "useful when executed": {name for name, one in tried.items() if one.useful},
        "proved by execution": {name for name, one in tried.items() if one.proof == PROVED},
    }
    return {
        name: _measure_hits(row["rank"] == 1 for row in rows if row["pair_id"] in held)
        for name, held in groups.items()
    }


def render_executions_part(facts: Json | None) -> Markdown:
    """The section of the report, "" where nothing was executed."""
    if facts is None:
        return Markdown("")
    pairs, outcomes = facts["pairs"], facts["outcomes"]
    parts = [
        ["accepted pairs whose calls ran", with_n(pairs["executed"])],
        ["… each of them useful", with_n(pairs["useful"])],
        ["… one really invalid", with_n(pairs["invalid"])],
        ["… proved by their effect", with_n(pairs["proved"])],
        ["… accepted by the judge and refuted by execution", with_n(pairs["refuted"])],
        ["calls that were answered usefully", with_n(facts["calls"])],
    ]
    recall = [[f"Recall@1, {name}", with_n(one)] for name, one in facts["recall_at_1"].items()]
    listed = ", ".join(f"{name} {outcomes[name]}" for name in OUTCOMES if name in outcomes)
    blamed = ", ".join(f"{name} {n}" for name, n in sorted(facts["blame"].items())) or "nobody"
    return join_markdown(
        "\n",
        [
            Markdown("## Calls that really ran"),
            *format_table(["share", "value"], [*parts, *recall]),
            Markdown(""),
            fill_markdown("Outcomes: {}. Laid to: {}.", listed, blamed),
        ],
    )


def _measure_hits(hits: Iterable[bool]) -> dict[str, float | int]:
    found = list(hits)
    return measure_share(sum(found), len(found)).as_dict()
