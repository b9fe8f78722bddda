"""Why written rows were not accepted, counted over filters and judge together."""

import json
from collections import Counter
from collections.abc import Iterable

from warehouse.audit import Verdict
from warehouse.json_types import JsonObject, Row

REJECTED_CEILING = 0.9  # the signature of prompts that evolution has made incoherent
_TOLD = 4  # reasons of each sort


def audit_rejections(pairs: Iterable[JsonObject], judgements: Iterable[JsonObject]) -> Verdict:
    """Stops a partition of which more than nine tenths of the whole rows were rejected.

    It says why: a row counts once per flaw kind of a filter that rejected it; of a row that the
    judge rejected every criterion counts that scored below the threshold, or the lowest.
    """
    judged = {row["pair_id"]: row for row in judgements}
    whole = [row for row in pairs if row["status"] == "ok"]
    flaws, criteria = Counter[str](), Counter[str]()
    accepted = 0
    for row in whole:
        verdict = judged.get(row["pair_id"])
        if row["verdict"] == "reject":
            flaws.update(_list_certain_flaws(row))
        elif row.get("twin_of") is not None:
            flaws["repeats another"] += 1
        elif verdict is None or verdict["status"] != "ok":
            flaws["not judged"] += 1
        elif verdict["verdict"] == "accept":
            accepted += 1
        else:
            criteria.update(_list_low_criteria(verdict))
    refused = len(whole) - accepted
    rate = refused / len(whole) if whole else 0.0
    by_filter, by_judge = (
        ", ".join(f"{kind} {n:,}" for kind, n in found.most_common(_TOLD))
        for found in (flaws, criteria)
    )
    why = "; ".join(filter(None, (by_filter, by_judge and f"judge: {by_judge}")))
    observed = f"{refused:,} of {len(whole):,} rejected ({rate:.0%})" + (f": {why}" if why else "")
    bar = f"at most {REJECTED_CEILING:.0%} of the written rows rejected"
    return Verdict("accept_rate", rate <= REJECTED_CEILING, observed, bar)


def _list_certain_flaws(row: Row) -> set[str]:
    found = json.loads(row.get("flaws") or "[]")
    certain = {flaw["kind"] for flaw in found if flaw.get("certain", True)}
    return certain or {"no flaw stated"}


def _list_low_criteria(verdict: Row) -> list[str]:
    scores = json.loads(verdict.get("scores") or "{}")
    bar = verdict.get("threshold") or 6.0
    low = [name for name, score in scores.items() if score < bar]
    return low or sorted(scores, key=lambda name: scores[name])[:1] or ["no scores"]
