"""Report: the catalogue in figures and in Markdown, for a reader of the graph."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assets.catalogue.identity_keys import LEVELS
from warehouse.sanitize.escape import markdown_table

_SHOWN = 15  # rows of an example table


def figures(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Counts that say how far the marketplaces overlap and how much is confirmed."""
    listed, gone = _split(rows)
    several = [row for row in listed if len(row["marketplaces"]) > 1]
    return {
        "servers": len(listed),
        "on_several_marketplaces": len(several),
        "confirmed": sum(row["confirmed"] is True for row in several),
        "contradicted": sum(row["confirmed"] is False for row in several),
        "not_run_twice": sum(row["confirmed"] is None for row in several),
        "with_disagreements": sum(row["disagreements"] != "{}" for row in listed),
        "likely_same": sum(bool(row["likely_same"]) for row in listed),
        "servers_gone": len(gone),
        "gone_from_some": sum(row["gone_from"] != "[]" for row in listed),
    }


def tables(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Markdown tables by what they show."""
    rows = list(rows)
    listed, gone = _split(rows)
    kinds = Counter(kind for row in listed for kind in json.loads(row["disagreements"]))
    joins = Counter(row["joined_by"] for row in listed if row["joined_by"])
    pairs = Counter(" + ".join(row["marketplaces"]) for row in listed if row["marketplaces"])
    return {
        "joined": _counted("joined by", [(level, joins[level]) for level in LEVELS]),
        "marketplaces": _counted("marketplaces", pairs.most_common(_SHOWN)),
        "disagreements": _counted("differ in", sorted(kinds.items())),
        "most_listed": _most_listed(listed),
        "likely_same": _likely_same(listed),
        "gone": _gone(gone),
    }


def _split(
    rows: Iterable[Mapping[str, Any]],
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    rows = list(rows)
    listed = [row for row in rows if row["gone"] is None]
    return listed, [row for row in rows if row["gone"] is not None]


def _counted(what: str, counts: Sequence[tuple[str, int]]) -> str:
    # Counts first: the UI cuts a wide cell at its right.
    return markdown_table(
        ["servers", what], [[f"{count:,}", name] for name, count in counts if count]
    )


def _most_listed(listed: list[Mapping[str, Any]]) -> str:
    several = [row for row in listed if len(row["marketplaces"]) > 1]
    several.sort(key=lambda row: (-len(row["marketplaces"]), row["catalogue_id"]))
    said = {True: "equal contracts", False: "contracts differ", None: "not run twice"}
    lines = [
        [
            row["name"],
            row["joined_by"] or "",
            said[row["confirmed"]],
            ", ".join(json.loads(row["disagreements"])),
            ", ".join(row["marketplaces"]),
        ]
        for row in several[:_SHOWN]
    ]
    return markdown_table(["server", "joined by", "live run", "differ in", "marketplaces"], lines)


def _likely_same(listed: list[Mapping[str, Any]]) -> str:
    names = {row["catalogue_id"]: row["name"] for row in listed}
    groups = {
        tuple(sorted((row["catalogue_id"], *row["likely_same"])))
        for row in listed
        if row["likely_same"]
    }
    lines = [[", ".join(names.get(one, one) for one in group)] for group in sorted(groups)]
    return markdown_table(["servers with equal contracts"], lines[:_SHOWN])


def _gone(gone: list[Mapping[str, Any]]) -> str:
    latest = sorted(gone, key=lambda row: (row["gone"], row["catalogue_id"]), reverse=True)
    lines = [
        [row["name"], row["gone"], ", ".join(o["listing_id"] for o in json.loads(row["gone_from"]))]
        for row in latest[:_SHOWN]
    ]
    return markdown_table(["server", "gone since", "was listed as"], lines)
