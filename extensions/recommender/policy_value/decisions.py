"""Explored searches of the log of calls: what might have stood first, what did, and the outcome."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_VERDICTS = {"ok": True, "worked": True}  # anything else did not do what was asked for


@dataclass(frozen=True)
class Decision:
    """One search whose first tool was drawn. reward: 1 where a call of a tool that it showed
    worked, by the last report of it where there is one, else 0; 0 also without any call."""

    at: float  # epoch seconds
    search_id: str
    query_key: str  # digest of the words; searches of one query are not independent
    candidates: tuple[str, ...]  # that might have stood first, in the order of the ranking
    chosen: int  # which of them did
    propensity: float  # with which probability it did
    reward: float


def read_decisions(lines: Iterable[Mapping[str, Any]]) -> list[Decision]:
    """The explored searches among lines of the log, in their order. Lines that are not whole, or
    of searches that were not explored, are passed over."""
    searches: dict[str, Mapping[str, Any]] = {}
    verdicts: dict[str, dict[str, bool]] = {}
    for line in lines:
        search_id = line.get("search_id")
        if not isinstance(search_id, str):
            continue
        if line.get("status") == "searched":
            searches.setdefault(search_id, line)
            continue
        of = line.get("call_id") or line.get("tool_id")
        verdict = line.get("reported") or line.get("status")
        verdicts.setdefault(search_id, {})[str(of)] = _VERDICTS.get(str(verdict), False)
    rewards = {search_id: float(any(found.values())) for search_id, found in verdicts.items()}
    read = (_read_decision(line, rewards.get(name, 0.0)) for name, line in searches.items())
    return [decision for decision in read if decision is not None]


def _read_decision(line: Mapping[str, Any], reward: float) -> Decision | None:
    candidates, shown, propensity = map(line.get, ("candidates", "shown", "propensity"))
    if not (isinstance(candidates, list) and isinstance(shown, list) and shown):
        return None
    if not isinstance(propensity, int | float) or not 0 < propensity <= 1:
        return None
    if shown[0] not in candidates:
        return None
    return Decision(
        at=float(line["at"]),
        search_id=str(line["search_id"]),
        query_key=str(line.get("query") or line["search_id"]),
        candidates=tuple(map(str, candidates)),
        chosen=candidates.index(shown[0]),
        propensity=float(propensity),
        reward=reward,
    )
