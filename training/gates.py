"""The gates: what a candidate must show before it may serve a role.

    same_items    both models answered the same items of one training set
    enough_tools  at least MIN_TOOLS tools, since the interval is drawn over tools
    gain          the whole 95% interval of the paired gain on unseen servers lies above zero; or,
                  of an update of a caller, it is no worse, and on new contracts no fewer calls
                  are right, and right calls likelier, in nats, by an interval above zero
    gain_since_shipped  no worse than the caller that ships, so that nothing is lost by and by
    kept_requests right calls of requests that ship are no less likely than to the caller that
                  ships, by the interval and by KEPT_TOLERANCE
    no worse      the paired difference's interval is not wholly below zero, and its value is not
                  below -TOLERANCE
    phantom       the share of calls to tools that are gone or renamed is at most MOST_PHANTOM, and
                  the paired difference's interval is not wholly above zero

Every rule is monotone: a better figure never fails where a worse one passed. What was not measured
passes nothing, but for phantom calls before any tool is gone.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from training.figures import shorten_model
from warehouse.sanitize.markdown import Markdown, make_markdown_table

Json = Mapping[str, Any]
_MAIN_GATES = ("gain", "gain_at_1", "gain_on_new_contracts", "likelihood_on_new_contracts")
_CELL = 400  # characters: what a library says of a broken file is long


@dataclass(frozen=True)
class PromotionGate:
    """One thing that was asked of a candidate: what was found, and what was needed."""

    name: str
    passed: bool
    found: str
    needed: str


def judge_gates(gates: Sequence[PromotionGate]) -> tuple[bool, str]:
    """Whether every gate was passed, and one sentence why. No gate at all passes nothing."""
    failed = [gate for gate in gates if not gate.passed]
    if failed:
        failures = "; ".join(f"{gate.name}: {gate.found}, needed {gate.needed}" for gate in failed)
        return False, f"the incumbent stays: {failures}"
    if not gates:
        return False, "the incumbent stays: nothing was measured"
    main_gate = next((gate for gate in gates if gate.name in _MAIN_GATES), gates[0])
    return True, f"{main_gate.name} {main_gate.found}: interval above zero, all gates passed"


def as_rows(gates: Iterable[PromotionGate | Json]) -> list[dict[str, Any]]:
    return [asdict(gate) if isinstance(gate, PromotionGate) else dict(gate) for gate in gates]


def render_gates_table(gates: Iterable[PromotionGate | Json]) -> Markdown:
    """The gates as a Markdown table, for Dagster, the report and the card."""
    rows = [
        (row["name"], "yes" if row["passed"] else Markdown("**no**"), row["found"], row["needed"])
        for row in as_rows(gates)
    ]
    header = ["gate", "passed", "found", "needed"]
    return make_markdown_table(header, rows, "No gate was asked.", _CELL)


# Of candidates that are no better, a percentile bootstrap promoted 13.7% with 2 tools, 7.2% with 5,
# 5.2% with 8, 3.1% with 20 (four items a tool, 2,000 draws; 2.5% is what the interval promises).
MIN_TOOLS = 8
# "Not below zero beyond the interval" alone would pass anything measured on few items. Of 100 items
# with 10 on which two equal models differ, the difference falls below -.05 in about 6 of 100 draws.
TOLERANCE = 0.05
MOST_PHANTOM = 0.05  # one call in twenty
MIN_NATS = 0.1  # of likelihood: less changes no answer
# Three of 60 requests at -20 nats have the interval [-2.33, 0]. The update that lost shows -.52.
KEPT_TOLERANCE = 0.25


def check_measured(error: ValueError) -> PromotionGate:
    """The gate of a candidate whose evaluation holds nothing to sum up."""
    problem = " ".join(str(error).split())[:300]
    return PromotionGate("measured", False, problem, "figures of servers never trained on")


def check_same_items(rows: Iterable[Json], candidate: str, incumbent: str) -> PromotionGate:
    """Whether both models were measured on the same items of one training set's held-out side."""
    item_of: dict[str, dict[str, str]] = {candidate: {}, incumbent: {}}
    for row in rows:
        if row["model"] in item_of:
            item = str(row.get("item_id") or row["pair_id"])
            item_of[row["model"]][item] = str(row.get("training_set") or "")
    ours, theirs = item_of[candidate], item_of[incumbent]
    sets = sorted({*ours.values(), *theirs.values()})
    passed = bool(ours) and ours == theirs and len(sets) == 1
    if passed:
        finding = f"{len(ours)} items of set {sets[0][:12] or '-'}, both"
    else:
        set_names = ", ".join(name[:12] or "-" for name in sets) or "none"
        shared = len(ours.keys() & theirs.keys())
        finding = (
            f"{shorten_model(candidate)} on {len(ours)} items and"
            f" {shorten_model(incumbent)} on {len(theirs)},"
            f" {shared} of them the same, of the training sets {set_names}"
        )
    return PromotionGate(
        "same_items", passed, finding, "the same items of one training set for both models"
    )


def check_enough_tools(summary: Json) -> PromotionGate:
    tools = summary.get("tools")
    count = tools if isinstance(tools, int) else 0
    finding = f"{count} tools of {summary.get('servers', 0)} servers"
    return PromotionGate("enough_tools", count >= MIN_TOOLS, finding, f"at least {MIN_TOOLS} tools")


def check_gain(figure: Json | None, name: str = "gain") -> PromotionGate:
    """Better beyond the interval."""
    interval = _get_measured_figure(figure)
    passed = interval is not None and interval["low"] > 0
    return PromotionGate(name, passed, describe_figure(figure), "the whole 95% interval above zero")


def check_no_worse(figure: Json | None, name: str) -> PromotionGate:
    """Not worse beyond the interval, and not by more than the tolerance."""
    interval = _get_measured_figure(figure)
    passed = interval is not None and interval["high"] >= 0 and interval["value"] >= -TOLERANCE
    needed = f"an interval not wholly below zero, and at least {-TOLERANCE:+.2f}"
    return PromotionGate(name, passed, describe_figure(figure), needed)


def check_phantom_rate(figure: Json | None) -> PromotionGate:
    passed, finding = _check_phantom_figure(
        figure, lambda figures: figures["value"] <= MOST_PHANTOM
    )
    return PromotionGate("phantom_rate", passed, finding, f"at most {MOST_PHANTOM:.2f}")


def check_phantom_difference(figure: Json | None) -> PromotionGate:
    passed, finding = _check_phantom_figure(figure, lambda figures: figures["low"] <= 0)
    return PromotionGate("phantom_difference", passed, finding, "an interval not wholly above zero")


def describe_figure(figure: Json | None) -> str:
    """A figure in words: value, interval and n; "not measured" where there is none."""
    interval = _get_measured_figure(figure)
    if interval is None:
        return "not measured"
    value, low, high = (interval[name] for name in ("value", "low", "high"))
    shares = (interval.get("before"), interval.get("after"))
    story = f" ({shares[0]:.0%} before, {shares[1]:.0%} after)" if None not in shares else ""
    return f"{value:+.3f} [{low:+.3f}, {high:+.3f}], n={interval['n']}{story}"


def check_retriever_gates(summary: Json) -> list[PromotionGate]:
    return [
        check_gain(summary.get("gain_at_1"), "gain_at_1"),
        check_no_worse(summary.get("gain_at_5"), "recall_at_5"),
    ]


def check_caller_gates(summary: Json) -> list[PromotionGate]:
    figures = summary.get("gate") or {}
    gains = [check_gain(figures.get("gain"))]
    if not gains[0].passed and _get_measured_figure(figures.get("fresh")):
        # An update of a night gains on what it learnt; the frozen items must not lose.
        gains = [*_check_new_contracts(figures), check_no_worse(figures.get("gain"), "gain")]
    if _count(figures, "since_shipped"):
        gains.append(check_no_worse(figures["since_shipped"], "gain_since_shipped"))
    if _count(figures, "kept_nats") or _count(figures, "fresh_nats"):
        gains.append(_check_kept(figures.get("kept_nats")))
    return [
        *gains,
        check_no_worse(figures.get("irrelevance"), "irrelevance"),
        check_phantom_rate(figures.get("phantom_rate")),
        check_phantom_difference(figures.get("phantom")),
    ]


def _check_new_contracts(figures: Json) -> list[PromotionGate]:
    """Of 29 requests an interval of right calls shows no effect below .15; that of likelihood does:
    of one update +2.46 [+1.24, +3.94] nats beside one more right call of 29."""
    right = check_gain(figures["fresh"], "gain_on_new_contracts")
    few = figures["fresh"].get("tools", 0) < MIN_TOOLS  # one tool's interval is a point
    enough = f", of at least {MIN_TOOLS} tools"
    if not _count(figures, "fresh_nats"):
        return [replace(right, passed=right.passed and not few, needed=right.needed + enough)]
    likelier = check_gain(figures["fresh_nats"], "likelihood_on_new_contracts")
    gains = likelier.passed and figures["fresh_nats"]["low"] > MIN_NATS and not few
    needed = f"the whole 95% interval above {MIN_NATS} nats{enough}"
    return [
        replace(likelier, passed=gains, needed=needed),
        replace(right, passed=figures["fresh"]["value"] >= 0, needed="no fewer right calls"),
    ]


def _check_kept(figure: Json | None) -> PromotionGate:
    kept = _get_measured_figure(figure)
    passed = kept is not None and kept["high"] >= 0 and kept["value"] >= -KEPT_TOLERANCE
    needed = f"an interval not wholly below zero, and at least {-KEPT_TOLERANCE} nats"
    return PromotionGate("kept_requests", passed, describe_figure(figure), needed)


def _count(figures: Json, name: str) -> int:
    return int((figures.get(name) or {}).get("n") or 0)


def check_different_models(summary: Json) -> list[PromotionGate]:
    """A summary that compares a model with itself shows nothing of either."""
    both = summary.get("candidate"), summary.get("incumbent")
    if both[0] is None or both[0] != both[1]:
        return []
    finding = f"{shorten_model(str(both[0]))} against itself"
    return [PromotionGate("two_models", False, finding, "a candidate and another model")]


def _check_phantom_figure(figure: Json | None, rule: Callable[[Json], bool]) -> tuple[bool, str]:
    if figure is not None and figure.get("n") == 0:
        return True, "nothing gone yet (n=0)"
    interval = _get_measured_figure(figure)
    return interval is not None and rule(interval), describe_figure(figure)


def _get_measured_figure(figure: Json | None) -> Json | None:
    """The figure, or None where it was not measured or is no number."""
    if not figure or not figure.get("n"):
        return None
    names = ("value", "low", "high")
    numbers = [figure.get(name) for name in names]
    fine = all(isinstance(number, (int, float)) and math.isfinite(number) for number in numbers)
    return figure if fine else None
