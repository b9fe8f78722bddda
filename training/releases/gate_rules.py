"""The rules of the gates, by role: what is asked of an evaluation's figures."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from training.figures import shorten_model
from training.releases.gate import Gate, Json

# Of candidates that are no better, a percentile bootstrap promoted 13.7% with 2 tools, 7.2% with 5,
# 5.2% with 8, 3.1% with 20 (four items a tool, 2,000 draws; 2.5% is what the interval promises).
MIN_TOOLS = 8
# "Not below zero beyond the interval" alone would pass anything measured on few items. Of 100 items
# with 10 on which two equal models differ, the difference falls below -.05 in about 6 of 100 draws.
TOLERANCE = 0.05
MOST_PHANTOM = 0.05  # one call in twenty


class UnknownRole(ValueError):
    """A role for which no gates are written."""


def check_gates(role: str, summary: Json) -> list[Gate]:
    """The role's gates over a summary of its evaluation. Raises UnknownRole."""
    rule = _RULES.get(role)
    if rule is None:
        raise UnknownRole(f"no gates for role {role!r}; known: {', '.join(_RULES)}")
    return [*_check_different_models(summary), check_enough_tools(summary), *rule(summary)]


def check_evaluation(
    role: str,
    rows: Sequence[Any],
    candidate: str,
    incumbent: str,
    measure: Callable[[Sequence[Any], str, str], Json],
) -> tuple[list[Gate], dict[str, Any]]:
    """(gates, summary) of an evaluation's rows; without the same items nothing is summed up, and
    the gate that says so is the only one."""
    same = check_same_items(rows, candidate, incumbent)
    if not same.passed:
        return [same], {"candidate": candidate, "incumbent": incumbent}
    try:
        summary = dict(measure(rows, candidate, incumbent))
    except ValueError as error:  # as NothingToEvaluate: no item of unseen servers
        found = " ".join(str(error).split())[:300]
        lacking = Gate("measured", False, found, "figures of servers never trained on")
        return [same, lacking], {"candidate": candidate, "incumbent": incumbent}
    return [same, *check_gates(role, summary)], summary


def check_same_items(rows: Iterable[Json], candidate: str, incumbent: str) -> Gate:
    """Whether both models were measured on the same items of one training set's held-out side."""
    held: dict[str, dict[str, str]] = {candidate: {}, incumbent: {}}
    for row in rows:
        if row["model"] in held:
            item = str(row.get("item_id") or row["pair_id"])
            held[row["model"]][item] = str(row.get("training_set") or "")
    ours, theirs = held[candidate], held[incumbent]
    sets = sorted({*ours.values(), *theirs.values()})
    passed = bool(ours) and ours == theirs and len(sets) == 1
    if passed:
        found = f"{len(ours)} items of set {sets[0][:12] or '-'}, both"
    else:
        named = ", ".join(name[:12] or "-" for name in sets) or "none"
        shared = len(ours.keys() & theirs.keys())
        found = (
            f"{shorten_model(candidate)} on {len(ours)} items and"
            f" {shorten_model(incumbent)} on {len(theirs)},"
            f" {shared} of them the same, of the training sets {named}"
        )
    return Gate("same_items", passed, found, "the same items of one training set for both models")


def check_enough_tools(summary: Json) -> Gate:
    tools = summary.get("tools")
    count = tools if isinstance(tools, int) else 0
    found = f"{count} tools of {summary.get('servers', 0)} servers"
    return Gate("enough_tools", count >= MIN_TOOLS, found, f"at least {MIN_TOOLS} tools")


def check_gain(figure: Json | None, name: str = "gain") -> Gate:
    """Better beyond the interval."""
    known = _get_measured_figure(figure)
    passed = known is not None and known["low"] > 0
    return Gate(name, passed, describe_figure(figure), "the whole 95% interval above zero")


def check_no_worse(figure: Json | None, name: str) -> Gate:
    """Not worse beyond the interval, and not by more than the tolerance."""
    known = _get_measured_figure(figure)
    passed = known is not None and known["high"] >= 0 and known["value"] >= -TOLERANCE
    needed = f"an interval not wholly below zero, and at least {-TOLERANCE:+.2f}"
    return Gate(name, passed, describe_figure(figure), needed)


def check_phantom_rate(figure: Json | None) -> Gate:
    passed, found = _check_phantom_figure(figure, lambda known: known["value"] <= MOST_PHANTOM)
    return Gate("phantom_rate", passed, found, f"at most {MOST_PHANTOM:.2f}")


def check_phantom_difference(figure: Json | None) -> Gate:
    passed, found = _check_phantom_figure(figure, lambda known: known["low"] <= 0)
    return Gate("phantom_difference", passed, found, "an interval not wholly above zero")


def describe_figure(figure: Json | None) -> str:
    """A figure in words: value, interval and n; "not measured" where there is none."""
    known = _get_measured_figure(figure)
    if known is None:
        return "not measured"
    return f"{known['value']:+.3f} [{known['low']:+.3f}, {known['high']:+.3f}], n={known['n']}"


def _check_retriever_gates(summary: Json) -> list[Gate]:
    return [
        check_gain(summary.get("gain_at_1"), "gain_at_1"),
        check_no_worse(summary.get("gain_at_5"), "recall_at_5"),
    ]


def _check_caller_gates(summary: Json) -> list[Gate]:
    figures = summary.get("gate") or {}
    return [
        check_gain(figures.get("gain")),
        check_no_worse(figures.get("irrelevance"), "irrelevance"),
        check_phantom_rate(figures.get("phantom_rate")),
        check_phantom_difference(figures.get("phantom")),
    ]


def _check_reranker_gates(summary: Json) -> list[Gate]:
    return [
        check_gain(summary.get("gain")),
        check_no_worse(summary.get("requests"), "requests"),
    ]


def _check_sidecar_gates(summary: Json) -> list[Gate]:
    return [check_gain(summary.get("gain")), check_no_worse(summary.get("kept"), "kept")]


_RULES: dict[str, Callable[[Json], list[Gate]]] = {
    "retriever": _check_retriever_gates,
    "caller": _check_caller_gates,
    "reranker": _check_reranker_gates,
    "sidecar": _check_sidecar_gates,
}


def _check_different_models(summary: Json) -> list[Gate]:
    """A summary that compares a model with itself shows nothing of either."""
    both = summary.get("candidate"), summary.get("incumbent")
    if both[0] is None or both[0] != both[1]:
        return []
    found = f"{shorten_model(str(both[0]))} against itself"
    return [Gate("two_models", False, found, "a candidate and another model")]


def _check_phantom_figure(figure: Json | None, rule: Callable[[Json], bool]) -> tuple[bool, str]:
    if figure is not None and figure.get("n") == 0:
        return True, "nothing gone yet (n=0)"
    known = _get_measured_figure(figure)
    return known is not None and rule(known), describe_figure(figure)


def _get_measured_figure(figure: Json | None) -> Json | None:
    """The figure, or None where it was not measured or is no number."""
    if not figure or not figure.get("n"):
        return None
    names = ("value", "low", "high")
    numbers = [figure.get(name) for name in names]
    fine = all(isinstance(number, (int, float)) and math.isfinite(number) for number in numbers)
    return figure if fine else None
