"""Counts and figures as lists and tables: what a model card is written with."""

from collections.abc import Iterator, Mapping
from typing import Any

from training.figures import format_interval
from warehouse.sanitize.markdown import Markdown, fill_markdown, join_markdown, quote_text

Json = Mapping[str, Any]
_NONE = Markdown("-")


def format_counts_inline(counts: Mapping[Any, int], most: int = 20) -> Markdown:
    """Counts as a list in one line, the most frequent first."""
    ordered = sorted(counts.items(), key=lambda one: (-one[1], str(one[0])))
    shown = [fill_markdown("{} {}", quote_text(name), count) for name, count in ordered[:most]]
    if len(ordered) > most:
        shown.append(fill_markdown("{} more", len(ordered) - most))
    return join_markdown(", ", shown or ["none"])


def list_figure_rows(summary: Json) -> Iterator[list[object]]:
    """[split, candidates, distractors, n, measure, this model, the other, paired gain] of every
    comparison in a retriever's or a caller's summary."""
    cells = list(summary.get("cells") or ())
    parts = [(str(cell.get("split")), cell) for cell in cells]
    parts += list((summary.get("splits") or {}).items())
    if not parts and "n" in summary:
        parts = [(str(summary.get("split") or "unseen_server"), summary)]
    for split, part in parts:
        for name, both in part.items():
            if not isinstance(both, Mapping) or "candidate" not in both:
                continue
            gain = both.get("gain") or part.get(f"gain_{name.removeprefix('recall_')}")
            figures = [format_interval(both.get(who)) for who in ("candidate", "incumbent")]
            offered = part.get("candidates") or part.get("pool") or _NONE
            n = (both["candidate"] or {}).get("n", 0)
            yield [split, offered, part.get("distractors") or _NONE, n, name, *figures,
                   format_interval(gain, signed=True)]  # fmt: skip
