"""The gates: what a candidate must show before it may serve a role.

    same_items    both models answered the same items of one training set
    enough_tools  at least MIN_TOOLS tools, since the interval is drawn over tools
    gain          the whole 95% interval of the paired gain on unseen servers lies above zero
    no worse      the paired difference's interval is not wholly below zero, and its value is not
                  below -TOLERANCE
    phantom       the share of calls to tools that are gone or renamed is at most MOST_PHANTOM, and
                  the paired difference's interval is not wholly above zero

Every rule is monotone: a better figure never fails where a worse one passed. What was not measured
passes nothing, but for phantom calls before any tool is gone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from warehouse.sanitize.markdown import Markdown, make_markdown_table

Json = Mapping[str, Any]
_CELL = 400  # characters: what a library says of a broken file is long


@dataclass(frozen=True)
class Gate:
    """One thing that was asked of a candidate: what was found, and what was needed."""

    name: str
    passed: bool
    found: str
    needed: str


def judge_gates(gates: Sequence[Gate]) -> tuple[bool, str]:
    """Whether every gate was passed, and one sentence why. No gate at all passes nothing."""
    failed = [gate for gate in gates if not gate.passed]
    if failed:
        listed = "; ".join(f"{gate.name}: {gate.found}, needed {gate.needed}" for gate in failed)
        return False, f"the incumbent stays: {listed}"
    if not gates:
        return False, "the incumbent stays: nothing was measured"
    shown = next((gate for gate in gates if gate.name in ("gain", "gain_at_1")), gates[0])
    return True, f"{shown.name} {shown.found}: better beyond its interval, all gates passed"


def as_rows(gates: Iterable[Gate | Json]) -> list[dict[str, Any]]:
    return [asdict(gate) if isinstance(gate, Gate) else dict(gate) for gate in gates]


def render_gates_table(gates: Iterable[Gate | Json]) -> Markdown:
    """The gates as a Markdown table, for Dagster, the report and the card."""
    rows = [
        (row["name"], "yes" if row["passed"] else Markdown("**no**"), row["found"], row["needed"])
        for row in as_rows(gates)
    ]
    header = ["gate", "passed", "found", "needed"]
    return make_markdown_table(header, rows, "No gate was asked.", _CELL)
