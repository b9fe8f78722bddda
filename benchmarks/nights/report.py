"""The month as a Markdown table and a plot."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
_HEAD = (
    "day", "incident", "contracts", "changed", "reached", "launches", "model calls", "of day 1",
    "calls", "dollars", "R@1", "home MB", "events MB", "s", "not held",
)  # fmt: skip


def make_table(rows: Sequence[Row]) -> str:
    """A line a day; `launches`, `model calls` and `calls` as made."""
    lines = [f"| {' | '.join(_HEAD)} |", f"|{' --- |' * len(_HEAD)}"]
    first = rows[0]["done"]["llm"] if rows else 0
    for row in rows:
        champion = row["champion"].get("recall_at_1")
        cells = (
            row["day"],
            ", ".join(filter(None, (row["incident"], "resumed" if row.get("resumed") else ""))),
            f"{row['contracts']:,}",
            f"{row['changed']:.1%}",
            f"{row['reached']:.1%}",
            *(f"{row['done'][kind]:,}" for kind in ("deploy", "llm")),
            f"{row['done']['llm'] / max(first, 1):.1%}",
            f"{row['done']['execute']:,}",
            f"{row['made_usd']:.4f}",
            "" if champion is None else f"{champion:.3f}{' (trained)' if row['trained'] else ''}",
            _tell_bytes(row, "home"),
            _tell_bytes(row, "events"),
            f"{row['wall_s']:.0f}",
            len(row["violations"]) or "",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _tell_bytes(row: Row, kind: str) -> str:
    now = f"{row['bytes'][kind] / 1e6:.1f}"
    return f"{now} → {row['gc']['after'][kind] / 1e6:.1f}" if row.get("gc") else now


def describe_ratios(rows: Sequence[Row], quiet: str, small: str) -> str:
    """The days on which nothing and 1% changed against the first one, by calls and seconds."""
    lines = []
    full = rows[0]
    for row in rows:
        if row["incident"] not in (quiet, small):
            continue
        calls = sum(row["done"].values()) / max(sum(full["done"].values()), 1)
        parts = [f"calls {sum(row['done'].values())} of {sum(full['done'].values())} ({calls:.2%})"]
        for name, field in (("all", "wall_s"), ("nightly jobs", "nightly_s"), ("CPU", "cpu_s")):
            share = row[field] / max(full[field], 0.1)
            parts.append(f"{name} {row[field]:.1f} of {full[field]:.1f} s ({share:.1%})")
        lines.append(f"- day {row['day']}, {row['incident']} ({row['changed']:.2%}): "
                     + "; ".join(parts))  # fmt: skip
    return "\n".join(lines)


def draw_month(rows: Sequence[Row], path: Path) -> None:
    """Cost against change, storage and seconds, day by day."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    days, first = [row["day"] for row in rows], rows[0]
    figure, (cost, store, took) = plt.subplots(3, 1, figsize=(9, 9), sharex=True)
    changed = [100 * row["changed"] for row in rows]
    reached = [100 * row["reached"] for row in rows]
    cost.bar(days[1:], reached[1:], color="#e3e7eb", label="calls that the change reaches")
    cost.bar(days[1:], changed[1:], color="#b6bfc8", label="contracts that changed")
    for kind, name, colour in (
        ("llm", "model calls", "#2a6fb0"),
        ("deploy", "launches", "#b0622a"),
    ):
        made = [100 * row["done"][kind] / max(first["done"][kind], 1) for row in rows]
        cost.plot(days[1:], made[1:], "o-", ms=3, color=colour, label=f"{name}, of day 1")
    cost.set_ylabel("%")
    for kind, name, colour in (("home", "home", "#2a6fb0"), ("events", "event log", "#b0622a")):
        at, size = [], []
        for row in rows:
            at += [row["day"]] * (2 if row.get("gc") else 1)
            size.append(row["bytes"][kind] / 1e6)
            size += [row["gc"]["after"][kind] / 1e6] if row.get("gc") else []
        store.plot(at, size, color=colour, label=name)
    store.set_ylabel("MB (drops: gc)")
    took.bar(days, [row["wall_s"] for row in rows], color="#c9d1d9", label="wall")
    took.plot(days, [row["cpu_s"] for row in rows], color="#2a6fb0", label="CPU of the process")
    took.set(ylabel="s", xlabel="day", yscale="log")
    for row in rows:
        if row["incident"]:
            cost.annotate(row["incident"], (row["day"], 0), rotation=90, fontsize=7, va="bottom",
                          ha="center", xytext=(0, 14), textcoords="offset points")  # fmt: skip
    for axes in (cost, store, took):
        axes.legend(fontsize=8, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
