"""How far the contracts have moved since a training, weighed by use, and calls that it learnt of
tools and parameters that are no more."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assets.contracts.tool_diff import CLASSES
from assets.contracts.tool_id import ToolId
from training.drift.decide import CONTRACTS, PHANTOM_CALLS, DriftSignal, make_unmeasured
from training.prompts.render import read_json_list
from warehouse.json_types import Row
from warehouse.statistics import wilson_interval

# What a change of a class asks of a model that knew the contract before: nothing that it calls
# fails after other words, and every right call stays right after a compatible change. A change of
# which no class is known counts whole.
CLASS_WEIGHTS = {"wording": 0.25, "compatible": 0.5, "breaking": 1.0, "suspicious": 1.0}
_UNKNOWN_ARGUMENT = "unknown_argument"

Contracts = Mapping[str, str]  # "server::tool" -> contract digest


@dataclass(frozen=True)
class ContractMoves:
    """The contracts now against those of the last training. Counts are of tools."""

    changed: int = 0
    new: int = 0
    gone: int = 0
    known: int = 0  # contracts when the last training set was made
    calls: int = 0  # in the log, that weigh
    share: float = 0.0  # of all tools then or now, weighed by class and use
    effective: float = 0.0  # tools of one weight that would say as much
    classes: Mapping[str, int] = field(default_factory=dict)

    def describe(self) -> str:
        """`5 changed, 0 new, 0 gone of 100 contracts (5.0%)`, and what weighed."""
        of = ", ".join(f"{count} {name}" for name, count in sorted(self.classes.items()))
        weighed = "; ".join(filter(None, (of, f"{self.calls:,} calls weighed" * bool(self.calls))))
        return (
            f"{self.changed} changed, {self.new} new, {self.gone} gone of {self.known} contracts"
            f" ({self.share:.1%})" + (f" [{weighed}]" if weighed else "")
        )


def count_moves(
    then: Contracts,
    now: Contracts,
    classes: Mapping[str, str] | None = None,
    calls: Mapping[str, int] | None = None,
) -> ContractMoves:
    """What moved. classes: tool id -> class of its change, where it is known. calls: tool id ->
    calls in the log: a tool weighs one more than its calls, so that none weighs nothing."""
    classes, calls = classes or {}, calls or {}
    both = then.keys() & now.keys()
    changed = {tool for tool in both if then[tool] != now[tool]}
    came, went = now.keys() - then.keys(), then.keys() - now.keys()
    weights = {tool: 1.0 + calls.get(tool, 0) for tool in then.keys() | now.keys()}
    moved = sum(weights[tool] for tool in came | went)
    moved += sum(weights[item] * CLASS_WEIGHTS.get(classes.get(item, ""), 1.0) for item in changed)
    total = sum(weights.values())
    tally: dict[str, int] = {}
    for tool in changed & classes.keys():
        tally[classes[tool]] = tally.get(classes[tool], 0) + 1
    return ContractMoves(
        len(changed),
        len(came),
        len(went),
        len(then),
        int(total - len(weights)),
        moved / total if total else 0.0,
        total**2 / sum(item**2 for item in weights.values()) if total else 0.0,
        tally,
    )


def find_change_classes(changes: Iterable[Row], then: Contracts) -> dict[str, str]:
    """Tool id -> the worst class that any change since the contract of then had, along its chain
    of changes. changes: rows of CHANGES."""
    result: dict[str, str] = {}
    at = dict(then)
    for row in sorted(changes, key=lambda row: str(row["run_date"])):
        tool = str(ToolId.of_row(row))
        if at.get(tool) != row["from_digest"] or not row["to_digest"]:
            continue
        at[tool] = row["to_digest"]
        known = result.get(tool)
        if known is None or CLASSES.index(row["cls"]) > CLASSES.index(known):
            result[tool] = row["cls"]
    return result


def make_contract_signal(moves: ContractMoves, threshold: float) -> DriftSignal:
    """The signal of what moved; everything was counted, so there is an interval and no test."""
    low, high = wilson_interval(moves.share * moves.effective, moves.effective)
    n = moves.known + moves.new
    return DriftSignal(CONTRACTS, moves.share, n, threshold, moves.describe(), low, high)


def measure_phantom_calls(
    rows: Iterable[Row],
    owners: Mapping[str, Collection[str]],
    current: Mapping[str, Mapping[str, Any]],
    threshold: float,
) -> DriftSignal:
    """The share of a model's training calls whose tool or parameter is no more.

    rows: of its training set. owners: contract digest -> ids of the tools that had it then.
    current: tool id -> contract, of every current tool.
    """
    total = lost_tools = lost_parameters = 0
    fine: set[tuple[str, str]] = set()  # (tool, parameter) that a call was found right to name
    for row in rows:
        for call in read_json_list(row["calls"]):
            total += 1
            own = str(ToolId(row["server_id"], call["name"]))
            ids = [
                item for item in (own, *owners.get(call["contract_digest"], ())) if item in current
            ]
            if not ids:
                lost_tools += 1
            elif _has_lost_parameter(ids[0], current[ids[0]], call["arguments"], fine):
                lost_parameters += 1
    if not total:
        return make_unmeasured(PHANTOM_CALLS, threshold, "its training set holds no call")
    lost = lost_tools + lost_parameters
    low, high = wilson_interval(lost, total)
    why = (
        f"of {total:,} calls that it learnt {lost_tools:,} are of tools that are gone,"
        f" {lost_parameters:,} name a parameter that is"
    )
    return DriftSignal(PHANTOM_CALLS, lost / total, total, threshold, why, low, high)


def _has_lost_parameter(
    tool: str,
    contract: Mapping[str, Any],
    arguments: Mapping[str, Any],
    fine: set[tuple[str, str]],
) -> bool:
    """Whether a call names a parameter that the contract does not declare."""
    from assets.contracts.validate import validate_call

    named = {(tool, name) for name in arguments}
    if named <= fine:
        return False
    flaws = validate_call(contract, dict(arguments))
    if any(flaw.kind == _UNKNOWN_ARGUMENT and len(flaw.at) == 1 for flaw in flaws):
        return True
    fine |= named
    return False
