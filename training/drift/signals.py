"""Signals of drift: how far contracts moved since a training, and what the retriever in service
loses by it."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import comb, sqrt
from typing import Any

from assets.contracts.tool_diff import CLASSES
from assets.contracts.tool_id import ToolId
from training.role import RETRIEVER
from warehouse.json_types import Row
from warehouse.statistics import difference_interval, wilson_interval
from warehouse.storage.digest import sha256

_Z = 1.959964  # 95%
SHOWN = 5  # results of `find_tools`

# In the order in which they are shown.
CONTRACTS, RETRIEVER_DECAY, NEW_TOOLS = "contracts", "retriever_decay", "new_tools"
SIGNALS = (CONTRACTS, RETRIEVER_DECAY, NEW_TOOLS)
# A role with signals of its own decides on them once they are measured; the others count for all.
ROLE_SIGNALS = {RETRIEVER_DECAY: RETRIEVER, NEW_TOOLS: RETRIEVER}


@dataclass(frozen=True)
class DriftSignal:
    """What one signal came to.

    value: the figure that is held against `threshold`, None where it was not measured. n: units
    that it is of. low, high: its 95% interval. p_value: of a test that nothing changed, None where
    everything was counted and nothing is a sample. why: what was found, or why nothing was
    measured.
    """

    name: str
    value: float | None
    n: int
    threshold: float
    why: str
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    fired: bool = False

    def as_row(self) -> dict[str, Any]:
        """Figures rounded: a last bit that differs between machines makes no new version."""
        return {
            name: round(value, 6) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


def make_unmeasured(name: str, threshold: float, why: str) -> DriftSignal:
    """A signal that there is nothing to measure of."""
    return DriftSignal(name, None, 0, threshold, why)


def judge_signal(signal: DriftSignal, alpha: float) -> DriftSignal:
    """The signal, and whether it fires: its value reaches its threshold and, where it is a test,
    its p-value is at most `alpha`."""
    reached = signal.value is not None and 0 < signal.value >= signal.threshold
    return replace(signal, fired=reached and (signal.p_value is None or signal.p_value <= alpha))


def describe_signal(signal: DriftSignal) -> str:
    """A signal and its evidence, in one line."""
    if signal.name == CONTRACTS:
        return signal.why
    test = f", p={signal.p_value:.3g}" if signal.p_value is not None else ""
    return f"{signal.name} {signal.value:.3f} of {signal.threshold:g}{test}: {signal.why}"


# What a change of a class asks of a model that knew the contract before: nothing that it calls
# fails after other words, and every right call stays right after a compatible change. A change of
# which no class is known counts whole.
CLASS_WEIGHTS = {"wording": 0.25, "compatible": 0.5, "breaking": 1.0, "suspicious": 1.0}

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
        classes = ", ".join(f"{count} {name}" for name, count in sorted(self.classes.items()))
        calls = f"{self.calls:,} calls weighed" if self.calls else ""
        weighed = "; ".join(filter(None, (classes, calls)))
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
    changed = {tool for tool in then.keys() & now.keys() if then[tool] != now[tool]}
    added, removed = now.keys() - then.keys(), then.keys() - now.keys()
    weights = {tool: 1.0 + calls.get(tool, 0) for tool in then.keys() | now.keys()}
    moved = sum(weights[tool] for tool in added | removed)
    moved += sum(weights[tool] * CLASS_WEIGHTS.get(classes.get(tool, ""), 1.0) for tool in changed)
    total = sum(weights.values())
    return ContractMoves(
        len(changed),
        len(added),
        len(removed),
        len(then),
        int(total - len(weights)),
        moved / total if total else 0.0,
        total**2 / sum(weight**2 for weight in weights.values()) if total else 0.0,
        dict(Counter(classes[tool] for tool in changed & classes.keys())),
    )


def find_change_classes(changes: Iterable[Row], then: Contracts) -> dict[str, str]:
    """Tool id -> the worst class that any change since the contract of then had, along its chain
    of changes. changes: rows of CHANGES."""
    worst: dict[str, str] = {}
    at = dict(then)
    for row in sorted(changes, key=lambda row: str(row["run_date"])):
        tool = str(ToolId.of_row(row))
        if at.get(tool) == row["from_digest"] and row["to_digest"]:
            at[tool] = row["to_digest"]
            worst[tool] = max(worst.get(tool, CLASSES[0]), row["cls"], key=CLASSES.index)
    return worst


def make_contract_signal(moves: ContractMoves, threshold: float) -> DriftSignal:
    """The signal of what moved; everything was counted, so there is an interval and no test."""
    low, high = wilson_interval(moves.share * moves.effective, moves.effective)
    n = moves.known + moves.new
    return DriftSignal(CONTRACTS, moves.share, n, threshold, moves.describe(), low, high)


def measure_retriever_decay(
    frozen: Iterable[Row],
    rank: Callable[[Sequence[Row]], Mapping[str, int]],
    current: Mapping[tuple[str, str], str],
    threshold: float,
    most: int = 200,
) -> DriftSignal:
    """The share of frozen items whose right tool was among the first five and is not now, less
    those that came in; p by exact McNemar, one-sided. An item whose tool is gone is in no share:
    no training brings it back.

    frozen: rows of RETRIEVER_EVALUATION of one model, with their `instruction`. rank: the rank now
    of each item's `positive` among all current tools, by pair. current: (server, tool) -> its text.
    """
    chosen = sorted(frozen, key=lambda row: sha256(row["pair_id"].encode()))[:most]
    items = [
        {**row, "positive": current[key]}
        for row in chosen
        if (key := (row["server_id"], row["tool"])) in current
    ]
    if not items:
        gone = "none of the items that it was measured on has a tool that is still there"
        why = gone if chosen else "it was never measured"
        return make_unmeasured(RETRIEVER_DECAY, threshold, why)
    ranks = rank(items)
    before = [row["rank"] <= SHOWN for row in items]
    after = [ranks[row["pair_id"]] <= SHOWN for row in items]
    lost = sum(was and not now for was, now in zip(before, after, strict=True))
    won = sum(now and not was for was, now in zip(before, after, strict=True))
    n, moved = len(items), lost + won
    value = (lost - won) / n
    p = sum(comb(moved, k) for k in range(lost, moved + 1)) / 2**moved if moved else 1.0
    spread = _Z * sqrt(max(moved / n - value * value, 0.0) / n)
    why = (
        f"of {len(chosen)} frozen items {len(chosen) - len(items)} lost their tool;"
        f" {sum(before)} of the others were among the first {SHOWN}, {sum(after)} are now"
    )
    low, high = max(-1.0, value - spread), min(1.0, value + spread)
    return DriftSignal(RETRIEVER_DECAY, value, n, threshold, why, low, high, p)


def measure_new_tool_gap(new: Sequence[int], old: Sequence[int], threshold: float) -> DriftSignal:
    """How much less often the right tool is first for requests of new and changed contracts than
    for others; p by Fisher's exact test, one-sided. new, old: the ranks of the right tools."""
    if not new or not old:
        return make_unmeasured(NEW_TOOLS, threshold, "no requests of new contracts and of others")
    n, hits, all_hits = len(new), new.count(1), new.count(1) + old.count(1)
    total, least = n + len(old), max(0, all_hits - len(old))
    p = sum(comb(n, k) * comb(len(old), all_hits - k) for k in range(least, hits + 1))
    low, high = difference_interval(all_hits - hits, len(old), hits, n)
    why = (
        f"the right tool is first for {hits} of {n} requests of new and changed contracts and for"
        f" {all_hits - hits} of {len(old)} others"
    )
    value = (all_hits - hits) / len(old) - hits / n
    return DriftSignal(NEW_TOOLS, value, n, threshold, why, low, high, p / comb(total, all_hits))
