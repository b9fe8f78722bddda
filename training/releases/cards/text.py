"""Third-party text in Markdown, and figures as tables: what a model card is written with."""

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from training.figures import format_interval

Json = Mapping[str, Any]
_MOST = 100  # characters of one name


def quote_text(text: object) -> str:
    """A third-party text as a code span, in which Markdown, HTML and links mean nothing.

    Line breaks, control and invisible characters go, a backtick and a bar become look-alikes, so
    that neither the span nor a table's cell can be left.
    """
    kept = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in str(text))
    shown = " ".join(kept.split()).replace("`", "ˋ").replace("|", "¦")
    return f"`{shown[: _MOST - 1]}…`" if len(shown) > _MOST else f"`{shown or '-'}`"


def format_counts_inline(counts: Mapping[Any, int], most: int = 20) -> str:
    """Counts as a list in one line, the most frequent first."""
    ordered = sorted(counts.items(), key=lambda one: (-one[1], str(one[0])))
    shown = [f"{quote_text(name)} {count}" for name, count in ordered[:most]]
    more = [f"{len(ordered) - most} more"] if len(ordered) > most else []
    return ", ".join([*shown, *more]) or "none"


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
            offered = part.get("candidates") or part.get("pool") or "-"
            n = (both["candidate"] or {}).get("n", 0)
            yield [split, offered, part.get("distractors") or "-", n, name, *figures,
                   format_interval(gain, signed=True)]  # fmt: skip
