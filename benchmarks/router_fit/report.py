"""The tables of a fit, in Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.router_fit.left_out import ALLOWED, Line, average_gain, list_behind
from benchmarks.router_fit.rows import MEASURES


def tabulate_sets(title: str, lines: Sequence[Line]) -> str:
    """Recall@1 of every strategy, ours' other measures and its gain, a set a line."""
    head = (
        "set",
        "n",
        "servers",
        *lines[0].means,
        "R@5",
        "R@10",
        "MRR@10",
        "ours less the best simple",
    )
    rows = [_tell_line(line) for line in lines]
    behind = list_behind(lines)
    end = (
        f"Mean over {len(lines)} sets: ours less the best of dense, BM25 and RRF"
        f" {average_gain(lines):+.3f}. Lower bound below {ALLOWED}: {', '.join(behind) or 'none'}."
    )
    return "\n".join([f"### {title}", "", *_make_table(head, rows), "", end])


def _tell_line(line: Line) -> list[str]:
    best = f"{line.gain:+} ({line.best})"
    firsts = [f"{of[MEASURES[0]]:.3f}" for name, of in line.means.items() if name != "ours"]
    rest = [f"{line.means['ours'][measure]:.3f}" for measure in MEASURES[1:]]
    n = str(line.gain.n)
    return [line.name, n, str(line.servers), *firsts, f"{line.first}", *rest, best]


def tabulate_deep(lines: Sequence[Line]) -> str:
    """Means over sets of every measure and strategy: each set counts the same."""
    rows = [
        [name, *(f"{_average(lines, name, measure):.3f}" for measure in MEASURES)]
        for name in lines[0].means
    ]
    return "\n".join(_make_table(("mean over sets", *MEASURES), rows))


def tabulate_suitability(found: Mapping[str, Mapping[str, Any]]) -> str:
    """One line a set that was left out."""
    keys = list(next(iter(found.values())))
    rows = [[name, *(str(of[key]) for key in keys)] for name, of in found.items()]
    return "\n".join(["### No suitable tool", "", *_make_table(("set", *keys), rows)])


def _average(lines: Sequence[Line], strategy: str, measure: str) -> float:
    return sum(line.means[strategy][measure] for line in lines) / max(len(lines), 1)


def _make_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
