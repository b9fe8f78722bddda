"""Coverage: which kinds of servers are missing among those that were launched, and its table.

A server is one row of the catalogue. Launched: one of its listings listed its tools. The launched
are a part of the listed, so a gap's interval is a bootstrap over servers (percentiles of 2,000
draws), and the p-value of a distance is by permutation: as many servers drawn at random from the
listed. Both have a fixed seed: the same facts give the same rows.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from assets.catalogue.categories import CATEGORIES, find_category
from assets.catalogue.identity import LEVELS
from assets.marketplaces.listing import Listing
from warehouse.json_types import JsonObject, Record, Row
from warehouse.sanitize.markdown import (
    Markdown,
    fill_markdown,
    join_markdown,
    make_markdown_table,
)
from warehouse.statistics import wilson_interval
from warehouse.storage.tables import TableSpec

COVERAGE = TableSpec(
    name="coverage",
    key=("dimension", "value"),
    columns={
        "dimension": (pl.String, "Dimension: category, ecosystem, transport, credentials or size"),
        "value": (pl.String, "Value of the dimension, such as npm or stdio"),
        "listed": (pl.Int64, "Number of servers"),
        "listed_share": (
            pl.Float64,
            "Share of listed servers; null if no listing states the value",
        ),
        "launched": (pl.Int64, "Number of servers"),
        "launched_share": (pl.Float64, "Share of launched servers; null if none was launched"),
        "rate": (pl.Float64, "Servers launched, of those listed"),
        "rate_low": (pl.Float64, "95% Wilson interval"),
        "rate_high": (pl.Float64, "95% Wilson interval"),
        "gap": (pl.Float64, "launched_share - listed_share"),
        "gap_low": (pl.Float64, "95% bootstrap interval"),
        "gap_high": (pl.Float64, "95% bootstrap interval"),
        "standing": (pl.String, "Verdict: under, over, as listed, unknown"),
        "distance": (pl.Float64, "Total variation distance of the dimension: 0 equal, 1 disjoint"),
        "distance_p": (
            pl.Float64,
            "p-value of a permutation test that launches are a random sample",
        ),
        "of_listed": (pl.Int64, "Servers of the dimension"),
        "of_launched": (pl.Int64, "Servers of the dimension"),
    },
)
DIMENSIONS = {
    "category": CATEGORIES,
    "ecosystem": ("npm", "pypi", "mcpb", "oci", "remote", "other", "none"),
    "transport": ("stdio", "streamable-http", "sse", "unknown"),
    "credentials": ("none asked", "other input", "optional secret", "required secret"),
    "size": ("1-5 tools", "6-15 tools", "16-40 tools", "over 40 tools"),
}
_DRAWS = 2000
_SEED = 20250516


@dataclass(frozen=True)
class CoverageServer:
    """One server of the catalogue: its value in each dimension (none where unknown)."""

    launched: bool
    values: Mapping[str, str] = field(default_factory=dict)


def collect_servers(
    catalogue: Iterable[JsonObject], listings: Mapping[str, Listing], launched: Mapping[str, int]
) -> list[CoverageServer]:
    """The servers that somebody lists now. `catalogue`: rows with `listings` as ids; `launched`:
    tools by server id of those that listed them."""
    results = []
    for row in catalogue:
        items = [listings[name] for name in row["listing_ids"] if name in listings]
        if not items:
            continue
        tools = [launched[name] for name in row["server_ids"] if name in launched]
        text = f"{row['name']} {row['description'] or ''}"
        values = {
            "category": find_category(text, " ".join(item.name for item in items)),
            "ecosystem": _choose_ecosystem(items),
            "transport": _choose_transport(items),
            "credentials": describe_credentials(items),
        }
        if tools:
            values["size"] = choose_size(max(tools))
        results.append(CoverageServer(bool(tools), values))
    return results


def measure_coverage(servers: Sequence[CoverageServer]) -> list[Record]:
    """Rows of COVERAGE. A size is only known of launched servers: no listing states its tools, so
    there the listed share and all that follows from it is null."""
    rows: list[Record] = []
    for dimension, values in DIMENSIONS.items():
        stated = [item for item in servers if dimension in item.values]
        listed = Counter(item.values[dimension] for item in stated)
        launched = Counter(item.values[dimension] for item in stated if item.launched)
        counts = np.array([[launched[v], listed[v] - launched[v]] for v in values])
        if dimension == "size":
            rows += [_build_size_row(value, launched) for value in values]
            continue
        distance, p = _measure_distance(counts)
        gaps = _estimate_gaps(counts)
        for value, (low, high) in zip(values, gaps, strict=True):
            row = _build_row(dimension, value, listed, launched, low, high)
            rows.append({**row, "distance": distance, "distance_p": p})
    return rows


def _build_row(
    dimension: str, value: str, listed: Counter, launched: Counter, low: float, high: float
) -> Record:
    n, m, here = listed.total(), launched.total(), listed[value]
    row: Record = {
        **_build_size_row(value, launched),
        "dimension": dimension,
        "listed": here,
        "listed_share": here / n if n else 0.0,
        "of_listed": n,
    }
    if here:
        below, above = wilson_interval(launched[value], here)
        row |= {"rate": launched[value] / here, "rate_low": below, "rate_high": above}
    if m:
        row["gap"] = launched[value] / m - row["listed_share"]
    if m and here:
        standing = "under" if high < 0 else "over" if low > 0 else "as listed"
        row |= {"gap_low": low, "gap_high": high, "standing": standing}
    return {k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()}


def _build_size_row(value: str, launched: Counter) -> Record:
    """A row with what is known of launched servers alone."""
    m = launched.total()
    return {
        **dict.fromkeys(COVERAGE.columns),
        "dimension": "size",
        "value": value,
        "launched": launched[value],
        "launched_share": round(launched[value] / m, 6) if m else None,
        "standing": "unknown",
        "of_launched": m,
    }


def _estimate_gaps(counts: Any) -> list[tuple[float, float]]:
    """95% bootstrap interval of launched share - listed share of each value."""
    total = int(counts.sum())
    if not total or not counts[:, 0].sum():
        return [(0.0, 0.0)] * len(counts)
    rng = np.random.default_rng(_SEED)
    drawn = rng.multinomial(total, counts.ravel() / total, size=_DRAWS).reshape(_DRAWS, -1, 2)
    shares = drawn[:, :, 0] / np.maximum(drawn[:, :, 0].sum(axis=1, keepdims=True), 1)
    gaps = shares - drawn.sum(axis=2) / total
    low, high = np.percentile(gaps, [2.5, 97.5], axis=0)
    return [(float(a), float(b)) for a, b in zip(low, high, strict=True)]


def _measure_distance(counts: Any) -> tuple[float | None, float | None]:
    """(total variation between launched and listed, its permutation p-value); None where nothing
    was launched, or all was."""
    listed, launched = counts.sum(axis=1), counts[:, 0]
    n, m = int(listed.sum()), int(launched.sum())
    if m == 0 or m == n:
        return (0.0, 1.0) if m else (None, None)
    distance = _measure_variation(launched / m, listed / n)
    rng = np.random.default_rng(_SEED)
    drawn = rng.multivariate_hypergeometric(listed, m, size=_DRAWS) / m
    as_far = int((_measure_variation(drawn, listed / n) >= distance - 1e-12).sum())
    return round(float(distance), 6), round((1 + as_far) / (_DRAWS + 1), 6)


def _measure_variation(shares: Any, other: Any) -> Any:
    return np.abs(shares - other).sum(axis=-1) / 2


def choose_size(tools: int) -> str:
    """The band of a number of tools."""
    sizes = DIMENSIONS["size"]
    return sizes[0 if tools <= 5 else 1 if tools <= 15 else 2 if tools <= 40 else 3]


def describe_credentials(items: Sequence[Listing]) -> str:
    """What a server asks of its user, by the listing that asks for most."""
    inputs = [item for listing in items for item in (*listing.env, *listing.headers)]
    if any(item.secret and item.required for item in inputs):
        return "required secret"
    if any({"needs_account", "hosted_gateway"} & set(listing.flags) for listing in items):
        return "required secret"
    if any(item.secret for item in inputs):
        return "optional secret"
    open_place = any("placeholder" in listing.flags for listing in items)
    return "other input" if open_place or any(item.required for item in inputs) else "none asked"


def _choose_ecosystem(items: Sequence[Listing]) -> str:
    """The way of launching that is tried first: a package before a remote address."""
    kinds = {item.package.type for item in items if item.package}
    first = next((kind for kind in DIMENSIONS["ecosystem"][:4] if kind in kinds), None)
    if first:
        return first
    return "other" if kinds else "remote" if any(item.url for item in items) else "none"


def _choose_transport(items: Sequence[Listing]) -> str:
    transports = {str(item.transport) for item in items if item.transport}
    return next((item for item in DIMENSIONS["transport"] if item in transports), "unknown")


_SHOWN = 15  # rows of an example table
_RUN_RESULTS = {True: "equal contracts", False: "contracts differ", None: "not run twice"}
Rows = Sequence[JsonObject]


def compute_figures(rows: Rows) -> dict[str, int]:
    """Counts that say how far the marketplaces overlap and how much is confirmed."""
    current = [row for row in rows if row["gone"] is None]
    several = [row for row in current if len(row["marketplaces"]) > 1]
    return {
        "servers": len(current),
        "on_several_marketplaces": len(several),
        "confirmed": sum(row["confirmed"] is True for row in several),
        "contradicted": sum(row["confirmed"] is False for row in several),
        "not_run_twice": sum(row["confirmed"] is None for row in several),
        "with_disagreements": sum(row["disagreements"] != "{}" for row in current),
        "likely_same": sum(bool(row["likely_same"]) for row in current),
        "servers_gone": len(rows) - len(current),
        "gone_from_some": sum(row["gone_from"] != "[]" for row in current),
    }


def render_tables(rows: Rows) -> dict[str, Markdown]:
    """Markdown tables by what they show."""
    current = [row for row in rows if row["gone"] is None]
    kinds = Counter(kind for row in current for kind in json.loads(row["disagreements"]))
    joins = Counter(row["joined_by"] for row in current if row["joined_by"])
    sets = Counter(" + ".join(row["marketplaces"]) for row in current if row["marketplaces"])
    several = [row for row in current if len(row["marketplaces"]) > 1]
    several.sort(key=lambda row: (-len(row["marketplaces"]), row["catalogue_id"]))
    lines = [
        [
            row["name"],
            row["joined_by"] or "",
            _RUN_RESULTS[row["confirmed"]],
            ", ".join(json.loads(row["disagreements"])),
            ", ".join(row["marketplaces"]),
        ]
        for row in several[:_SHOWN]
    ]
    header = ["server", "joined by", "live run", "differ in", "marketplaces"]
    return {
        "joined": _render_counts("joined by", [(level, joins[level]) for level in LEVELS]),
        "marketplaces": _render_counts("marketplaces", sets.most_common(_SHOWN)),
        "disagreements": _render_counts("differ in", sorted(kinds.items())),
        "most_listed": make_markdown_table(header, lines),
    }


def _render_counts(what: str, counts: Iterable[tuple[str, int]]) -> Markdown:
    # Counts first: the UI cuts a wide cell at its right.
    lines = [[f"{count:,}", name] for name, count in counts if count]
    return make_markdown_table(["servers", what], lines)


def compute_coverage_figures(rows: Rows) -> dict[str, float]:
    """Counts, and the distance of each dimension where it is known."""
    any_row: Row = next((row for row in rows if row["of_listed"]), {})
    figures: dict[str, float] = {
        "servers_listed": any_row.get("of_listed", 0),
        "servers_launched": any_row.get("of_launched", 0),
        "under_represented": sum(row["standing"] == "under" for row in rows),
    }
    for row in rows:
        if row["distance"] is not None:
            figures[f"distance_{row['dimension']}"] = row["distance"]
    return figures


def render_table(rows: Rows) -> Markdown:
    """Markdown, the widest gaps of each dimension first; empty values are left out."""
    lines: list[list[object]] = []
    for dimension in DIMENSIONS:
        mine = [r for r in rows if r["dimension"] == dimension and (r["listed"] or r["launched"])]
        if not mine:
            continue
        about = "(listings do not state it)" if dimension == "size" else ""
        if mine[0]["distance"] is not None:
            about = f"distance {mine[0]['distance']:.2f}, p = {mine[0]['distance_p']:.3f}"
        lines.append([fill_markdown("**{}** {}", dimension, about), *[""] * 5])
        lines += [_format_line(row) for row in sorted(mine, key=lambda row: row["gap"] or 0.0)]
    notes = Markdown(
        "Shares of all servers of the catalogue against those that listed their tools."
        " Gap: launched minus listed share, 95% bootstrap interval over servers; launch rate:"
        " Wilson. Distance: total variation, with a permutation p-value."
    )
    header = ["", "listed", "launched", "launch rate", "gap in points", ""]
    return join_markdown("\n\n", [make_markdown_table(header, lines), notes])


def _format_line(row: Row) -> list[object]:
    mark = {"under": "▼ under", "over": "▲ over"}.get(row["standing"], "")
    counts: list[object] = []
    for name in ("listed", "launched"):
        count, share = row[name], row[f"{name}_share"]
        if share is None:
            counts.append(Markdown("") if count is None else fill_markdown("{:,}", count))
        else:
            counts.append(fill_markdown("{:,} ({:.0%})", count, share))
    rate = gap = Markdown("")
    if row["rate"] is not None:
        ends = (row[name] for name in ("rate", "rate_low", "rate_high"))
        rate = fill_markdown("{:.0%} [{:.0%}, {:.0%}]", *ends)
    if row["gap_low"] is not None:
        ends = (100 * row[name] for name in ("gap", "gap_low", "gap_high"))
        gap = fill_markdown("{:+.1f} [{:+.1f}, {:+.1f}]", *ends)
    return [row["value"], *counts, rate, gap, mark]
