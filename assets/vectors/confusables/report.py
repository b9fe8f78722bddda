"""Confusables report: the rows of CONFUSABLES as figures and Markdown."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from assets.vectors.confusables.table import CONFUSABLE, TWINS
from warehouse.json_types import Row
from warehouse.sanitize.markdown import Markdown, fill_markdown, join_markdown, make_markdown_table

_WORST = 15
_SENTENCE = 420
_HEAD = (
    "names",
    "tools",
    "servers",
    "twin / confusable pairs",
    "what tells the nearest pair apart",
)
_LED = ("clusters", "with_a_twin", "tools", "with_a_confusable", "names_shared_across_servers")

Tool = tuple[str, str]


def compute_figures(rows: Sequence[Row], tools: Iterable[Row]) -> dict[str, float]:
    """Counts over all marketplaces. `tools`: snapshot rows, all of them."""
    known = {(row["server_id"], row["tool"]) for row in tools}
    twins, look = _select_kind(rows, TWINS), _select_kind(rows, CONFUSABLE)
    named = [row for row in rows if row["kind"] == CONFUSABLE]
    return {
        "tools": len(known),
        "clusters": len({row["cluster"] for row in rows}),
        "largest_cluster": max((row["cluster_tools"] for row in rows), default=0),
        "pairs": len(rows),
        "with_a_twin": len(twins & known),
        "with_a_confusable": len(look & known),
        "names_shared_across_servers": _count_sharing(known),
        "confusable_pairs_told_apart": sum(row["apart_by"] != "[]" for row in named),
        "confusable_pairs_not_told_apart": sum(row["apart_by"] == "[]" for row in named),
    }


def render_markdown(rows: Sequence[Row], tools: Sequence[Row]) -> Markdown:
    """The report: what was found, by which differences, and the worst clusters."""
    figures = compute_figures(rows, tools)
    total = figures["tools"] or 1
    lead = fill_markdown(
        "{clusters:,} clusters of look-alike tools across servers; {with_a_twin:,} of {tools:,}"
        " tools ({twin_share:.0%}) have a twin on another server, {with_a_confusable:,}"
        " ({confusable_share:.0%}) a tool that looks like them and is another,"
        " {names_shared_across_servers:,} ({name_share:.0%}) a name that another server uses too.",
        **{name: figures[name] for name in _LED},
        twin_share=figures["with_a_twin"] / total,
        confusable_share=figures["with_a_confusable"] / total,
        name_share=figures["names_shared_across_servers"] / total,
    )
    if not rows:
        return fill_markdown(
            "No tool of one server looks like a tool of another, of {:,}.", figures["tools"]
        )
    kinds = Counter(
        kind for row in rows if row["kind"] == CONFUSABLE
        for kind in json.loads(row["apart_by"]) or ["nothing"]
    )  # fmt: skip
    pairs = sum(row["kind"] == CONFUSABLE for row in rows)
    by_kind = make_markdown_table(
        ["told apart by", "confusable pairs"],
        ([kind, _compute_share(count, pairs)] for kind, count in kinds.most_common()),
    )
    worst = make_markdown_table(_HEAD, map(_describe_worst, _list_largest(rows)), cap=_SENTENCE)
    parts = [lead, by_kind, Markdown("### Largest clusters"), worst]
    return join_markdown("\n\n", parts)


def _select_kind(rows: Sequence[Row], kind: str) -> set[Tool]:
    mine = [row for row in rows if row["kind"] == kind]
    own = {(row["server_id"], row["tool"]) for row in mine}
    return own | {(row["other_server_id"], row["other_tool"]) for row in mine}


def _count_sharing(tools: Iterable[Tool]) -> int:
    """How many tools have a name, modulo case and separators, that another server uses too."""
    listed = [(server, "".join(filter(str.isalnum, tool.casefold()))) for server, tool in tools]
    servers: dict[str, set[str]] = defaultdict(set)
    for server, name in listed:
        servers[name].add(server)
    return sum(len(servers[name]) > 1 for _, name in listed)


def _list_largest(rows: Sequence[Row]) -> list[list[Row]]:
    grouped: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row["cluster"]].append(row)
    ranked = sorted(grouped.items(), key=lambda item: (-item[1][0]["cluster_tools"], item[0]))
    return [members for _, members in ranked[:_WORST]]


def _describe_worst(members: Sequence[Row]) -> list[str]:
    """One line of the table: the nearest pair that is not one tool twice, and its sentence."""
    names = Counter(row["tool"] for row in members) + Counter(row["other_tool"] for row in members)
    servers = {row["server_id"] for row in members} | {row["other_server_id"] for row in members}
    kinds = Counter(row["kind"] for row in members)
    nearest = min(members, key=lambda row: (row["kind"] == TWINS, -row["cosine"], row["server_id"],
                                            row["other_server_id"]))  # fmt: skip
    return [
        ", ".join(name for name, _ in names.most_common(2)),
        f"{members[0]['cluster_tools']:,}",
        f"{len(servers):,}",
        f"{kinds[TWINS]:,} / {kinds[CONFUSABLE]:,}",
        nearest["tells_apart"],
    ]


def _compute_share(part: int, whole: int) -> Markdown:
    return fill_markdown("{:,} ({:.0%})", part, part / whole) if whole else Markdown("0")
