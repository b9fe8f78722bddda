"""Report: the catalogue in figures and in Markdown, for a reader of the graph."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from assets.catalogue.identity_keys import LEVELS
from warehouse.json_types import JsonObject
from warehouse.sanitize.markdown import Markdown, make_markdown_table

_SHOWN = 15  # rows of an example table


def compute_figures(rows: Iterable[JsonObject]) -> dict[str, int]:
    """Counts that say how far the marketplaces overlap and how much is confirmed."""
    rows = list(rows)
    listed = [row for row in rows if row["gone"] is None]
    several = [row for row in listed if len(row["marketplaces"]) > 1]
    return {
        "servers": len(listed),
        "on_several_marketplaces": len(several),
        "confirmed": sum(row["confirmed"] is True for row in several),
        "contradicted": sum(row["confirmed"] is False for row in several),
        "not_run_twice": sum(row["confirmed"] is None for row in several),
        "with_disagreements": sum(row["disagreements"] != "{}" for row in listed),
        "likely_same": sum(bool(row["likely_same"]) for row in listed),
        "servers_gone": len(rows) - len(listed),
        "gone_from_some": sum(row["gone_from"] != "[]" for row in listed),
    }


def render_tables(rows: Iterable[JsonObject]) -> dict[str, Markdown]:
    """Markdown tables by what they show."""
    rows = list(rows)
    listed = [row for row in rows if row["gone"] is None]
    kinds = Counter(kind for row in listed for kind in json.loads(row["disagreements"]))
    joins = Counter(row["joined_by"] for row in listed if row["joined_by"])
    pairs = Counter(" + ".join(row["marketplaces"]) for row in listed if row["marketplaces"])
    return {
        "joined": _render_counts("joined by", [(level, joins[level]) for level in LEVELS]),
        "marketplaces": _render_counts("marketplaces", pairs.most_common(_SHOWN)),
        "disagreements": _render_counts("differ in", sorted(kinds.items())),
        "most_listed": _render_most_listed(listed),
        "likely_same": _render_likely_same(listed),
        "gone": _render_gone([row for row in rows if row["gone"] is not None]),
    }


def _render_counts(what: str, counts: Sequence[tuple[str, int]]) -> Markdown:
    # Counts first: the UI cuts a wide cell at its right.
    return make_markdown_table(
        ["servers", what], [[f"{count:,}", name] for name, count in counts if count]
    )


def _render_most_listed(listed: list[JsonObject]) -> Markdown:
    several = [row for row in listed if len(row["marketplaces"]) > 1]
    several.sort(key=lambda row: (-len(row["marketplaces"]), row["catalogue_id"]))
    results = {True: "equal contracts", False: "contracts differ", None: "not run twice"}
    lines = [
        [
            row["name"],
            row["joined_by"] or "",
            results[row["confirmed"]],
            ", ".join(json.loads(row["disagreements"])),
            ", ".join(row["marketplaces"]),
        ]
        for row in several[:_SHOWN]
    ]
    return make_markdown_table(
        ["server", "joined by", "live run", "differ in", "marketplaces"], lines
    )


def _render_likely_same(listed: list[JsonObject]) -> Markdown:
    names = {row["catalogue_id"]: row["name"] for row in listed}
    groups = {
        tuple(sorted((row["catalogue_id"], *row["likely_same"])))
        for row in listed
        if row["likely_same"]
    }
    lines = [[", ".join(names.get(one, one) for one in group)] for group in sorted(groups)]
    return make_markdown_table(["servers with equal contracts"], lines[:_SHOWN])


def _render_gone(gone: list[JsonObject]) -> Markdown:
    latest = sorted(gone, key=lambda row: (row["gone"], row["catalogue_id"]), reverse=True)
    lines = [
        [row["name"], row["gone"], ", ".join(o["listing_id"] for o in json.loads(row["gone_from"]))]
        for row in latest[:_SHOWN]
    ]
    return make_markdown_table(["server", "gone since", "was listed as"], lines)
