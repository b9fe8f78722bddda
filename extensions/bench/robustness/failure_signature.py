"""The seed's failure signature: the right tool, and a call that is wrong by its types.

Slot-filling that copies words knows nothing of types: Tool is high, AST is low, and what is wrong
with the right tool's arguments is an array that came as a string, an object, a number. `present`
when Tool is at least MIN_TOOL, AST lies at least MIN_GAP below it beyond the interval, and a
wrong type is among the mistakes of at least MIN_TYPED of the calls that fail with the right tool,
or parameters of another type fail oftener than strings do, their 95% intervals apart.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from training.evaluation.metrics import Figure, bootstrap_difference, bootstrap_mean, measure_share
from warehouse.json_types import Row

MIN_TOOL, MIN_GAP = 0.5, 0.15
MIN_TYPED = 0.25
_LEAST = 5  # parameters of a type before its share says anything
_WRONG = ("missing", "extra", "wrong_type", "wrong_value")


def compute_signature(rows: Sequence[Row]) -> dict[str, Any]:
    """The signature over one model's rows of plain items (a call is right, nothing changed):
    {present, verdict, tool, ast, gap, typed: figures, by_type: declared type -> {n, wrong,
    wrong_type} over the parameters of calls with the right tool}."""
    groups = [str(row["text_digest"]) for row in rows]
    tool = [float(row["tool_ok"]) for row in rows]
    ast = [float(row["ast_ok"]) for row in rows]
    high, low, gap = (
        bootstrap_mean(tool, groups),
        bootstrap_mean(ast, groups),
        bootstrap_difference(tool, ast, groups),
    )
    failing = [row for row in rows if row["tool_ok"] and not row["ast_ok"]]
    typed = measure_share(sum(_has_wrong_type(row) for row in failing), len(failing))
    by_type = _count_by_type(row for row in rows if row["tool_ok"])
    worst = _find_worst_types(by_type)
    at_fault = typed.value >= MIN_TYPED or bool(worst)
    present = high.value >= MIN_TOOL and gap.low >= MIN_GAP and bool(failing) and at_fault
    figures = {"tool": high, "ast": low, "gap": gap, "typed": typed}
    return {
        "present": present,
        "verdict": _describe_signature(present, figures, by_type, worst),
        **{name: figure.as_dict() for name, figure in figures.items()},
        "by_type": by_type,
    }


def _has_wrong_type(row: Row) -> bool:
    return any(each["verdict"] == "wrong_type" for each in _read_parameters(row))


def _read_parameters(row: Row) -> list[dict[str, str]]:
    return json.loads(row.get("parameters") or "[]")


def _count_by_type(rows: Any) -> dict[str, dict[str, int]]:
    """Parameters that one side left to its default are in no count: nobody wrote them."""
    seen, wrong, typed = Counter[str](), Counter[str](), Counter[str]()
    for row in rows:
        for each in _read_parameters(row):
            if each["verdict"] != "default":
                seen[each["type"]] += 1
                wrong[each["type"]] += each["verdict"] in _WRONG
                typed[each["type"]] += each["verdict"] == "wrong_type"
    return {
        kind: {"n": n, "wrong": wrong[kind], "wrong_type": typed[kind]}
        for kind, n in sorted(seen.items())
    }


def _find_worst_types(by_type: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Types other than strings that fail oftener than strings beyond both intervals, the worst
    first."""
    plain = by_type.get("string")
    limit = measure_share(plain["wrong"], plain["n"]).high if plain else MIN_TYPED
    rates = {
        kind: measure_share(held["wrong"], held["n"])
        for kind, held in by_type.items()
        if kind not in ("string", "undeclared") and held["n"] >= _LEAST
    }
    bad = [kind for kind, rate in rates.items() if rate.low > limit]
    return sorted(bad, key=lambda kind: (-rates[kind].value, kind))


def _describe_signature(
    present: bool,
    figures: Mapping[str, Figure],
    by_type: Mapping[str, Mapping[str, int]],
    worst: Sequence[str],
) -> str:
    high, low, gap, typed = (figures[name] for name in ("tool", "ast", "gap", "typed"))
    if not high.n:
        return "not measured: no plain item was answered"
    head = (
        f"Tool {high.value:.3f}, AST {low.value:.3f}, {gap.value:.3f} [{gap.low:.3f},"
        f" {gap.high:.3f}] apart, n={high.n}"
    )
    if typed.n:
        head += (
            f"; {typed.value:.0%} of {typed.n} failing calls with the right tool hold a wrong type"
        )
    shown = [*worst, *(kind for kind in by_type if kind not in worst)]
    kinds = [
        f"{kind} {by_type[kind]['wrong']}/{by_type[kind]['n']}"
        for kind in shown
        if by_type[kind]["wrong"]
    ]
    wrong = f"; wrong by declared type: {', '.join(kinds)}" if kinds else ""
    word = "present" if present else "absent"
    return f"seed's failure signature {word}: {head}{wrong}"
