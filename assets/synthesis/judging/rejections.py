"""Why written rows were not accepted, counted over filters and judge together."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from warehouse.audit import Verdict

Json = Any

REJECTED_CEILING = 0.9  # the signature of prompts that evolution has made incoherent


@dataclass(frozen=True)
class Rejections:
    """Why rows were not accepted: flaws that filters found, criteria that the judge scored low."""

    whole: int
    accepted: int
    flaws: Counter[str]
    criteria: Counter[str]
    other: Counter[str]  # twins, a judge without an answer

    @property
    def rate(self) -> float:
        return 1 - self.accepted / self.whole if self.whole else 0.0

    def describe(self, most: int = 4) -> str:
        """`1,204 of 1,300 rejected (93%): ungrounded_value 800, …; judge: realism 210, …`."""
        refused = self.whole - self.accepted
        text = f"{refused:,} of {self.whole:,} rejected ({self.rate:.0%})"
        found = (self.flaws + self.other).most_common(most)
        flaws = ", ".join(f"{kind} {n:,}" for kind, n in found)
        criteria = ", ".join(f"{kind} {n:,}" for kind, n in self.criteria.most_common(most))
        said = [part for part in (flaws, f"judge: {criteria}" if criteria else "") if part]
        return text + (f": {'; '.join(said)}" if said else "")


def count_rejections(
    pairs: Iterable[Mapping[str, Json]], judgements: Iterable[Mapping[str, Json]]
) -> Rejections:
    """Counts why whole rows were not accepted, by filters and judge together.

    A row counts once per flaw kind of a filter that rejected it; of a row that the judge rejected
    every criterion counts that scored below the threshold, or the lowest where none did.
    """
    judged = {row["pair_id"]: row for row in judgements}
    flaws: Counter[str] = Counter()
    criteria: Counter[str] = Counter()
    other: Counter[str] = Counter()
    whole = accepted = 0
    for row in pairs:
        if row["status"] != "ok":
            continue
        whole += 1
        verdict = judged.get(row["pair_id"])
        if row["verdict"] == "reject":
            flaws.update(_list_certain_flaws(row))
        elif row.get("twin_of") is not None:
            other["repeats another"] += 1
        elif verdict is None or verdict["status"] != "ok":
            other["not judged"] += 1
        elif verdict["verdict"] == "accept":
            accepted += 1
        else:
            criteria.update(_list_low_criteria(verdict))
    return Rejections(whole, accepted, flaws, criteria, other)


def _list_certain_flaws(row: Mapping[str, Json]) -> set[str]:
    found = json.loads(row.get("flaws") or "[]")
    certain = {flaw["kind"] for flaw in found if flaw.get("certain", True)}
    return certain or {"no flaw stated"}


def _list_low_criteria(verdict: Mapping[str, Json]) -> list[str]:
    scores = json.loads(verdict.get("scores") or "{}")
    bar = verdict.get("threshold") or 6.0
    low = [name for name, score in scores.items() if score < bar]
    return low or sorted(scores, key=lambda name: scores[name])[:1] or ["no scores"]


def audit_rejections(found: Rejections) -> Verdict:
    """Stops a partition of which more than nine tenths were rejected, with the reasons counted."""
    bar = f"at most {REJECTED_CEILING:.0%} of the written rows rejected"
    return Verdict("accept_rate", found.rate <= REJECTED_CEILING, found.describe(), bar)
