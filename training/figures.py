"""Figures with their intervals, names and tables, as reports and cards show them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from warehouse.sanitize.markdown import (
    Markdown,
    fill_markdown,
    join_markdown,
    make_markdown_table,
    mark_markdown,
)

Json = Mapping[str, Any]
NONE = Markdown("–")  # nothing was measured: no zero stands for that
SPLITS = {
    "train": "train",
    "seen_tool": "seen tool",
    "unseen_tool": "unseen tool",
    "unseen_server": "unseen server",
}


def describe_offline(providers: Mapping[str, int]) -> Markdown:
    """What pairs without a language model's words say, of those counted by who wrote them."""
    return fill_markdown(
        "{} of {} pairs were written by the offline provider (a grammar over the contracts), not by"
        " a language model or by people, on both sides of the split: the figures say how well"
        " requests of that kind are served.",
        providers["offline"],
        sum(providers.values()),
    )


def format_interval(figure: Json | None, *, signed: bool = False, digits: int = 3) -> Markdown:
    """`0.412 [0.330, 0.500]`; a dash where nothing was measured."""
    if not figure or not figure.get("n"):
        return NONE
    sign = "+" if signed else ""
    ends = (f"{float(figure[name]):{sign},.{digits}f}" for name in ("value", "low", "high"))
    return fill_markdown("{} [{}, {}]", *ends)


def with_n(figure: Json | None, *, signed: bool = False) -> Markdown:
    """An interval with its n."""
    if not figure or not figure.get("n"):
        return Markdown("not measured (n=0)")
    return fill_markdown("{}, n={}", format_interval(figure, signed=signed), figure["n"])


def format_points(figure: Json | None) -> Markdown:
    """A difference of shares in points."""
    if not figure or not figure.get("n"):
        return NONE
    scaled = {name: 100 * figure[name] for name in ("value", "low", "high")}
    return format_interval({**scaled, "n": figure["n"]}, signed=True, digits=1)


def shorten_model(model: str) -> str:
    """A model's name; of a digest its beginning."""
    return model[:12] if len(model) == 64 else model[:40]


def split_name(split: str) -> str:
    return SPLITS.get(split, split)


def split_order(split: str) -> int:
    """From what models know best to what they know least."""
    return list(SPLITS).index(split) if split in SPLITS else len(SPLITS)


def sort_by_split(held: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(held.items(), key=lambda item: split_order(item[0]))


def format_table(head: Sequence[object], rows: Iterable[Sequence[Any]]) -> list[Markdown]:
    """The lines of a Markdown table; [] without rows. No text breaks a cell."""
    return [mark_markdown(line) for line in make_markdown_table(head, rows, "").splitlines()]


def format_counts(counts: Mapping[str, Any]) -> Markdown:
    """`a 3, b 1`."""
    return join_markdown(", ", (fill_markdown("{} {}", *item) for item in counts.items()))
