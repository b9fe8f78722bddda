"""Written and judged pairs for the tests of reviewing: the rows by hand, some of them mutants."""

from typing import Any

from assets.synthesis.judging.mutants import GOOD, make_cases
from assets.synthesis.tables import dump_text

Row = dict[str, Any]
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def judged_pairs() -> tuple[list[Row], list[Row], dict[str, Row]]:
    """Pairs, their judgements, and the contracts by digest: good rows accepted, and of each third
    a nonsense one that the judge rejected; the first tool's text tries to be a page."""
    result, contracts = make_cases([], {}, seed=1, good=0)
    pairs, judgements = [], []
    for place, case in enumerate(c for c in result if c.kind in (GOOD, "unrealistic")):
        if case.kind != GOOD and place % 3:
            continue
        row = {**case.row, "pair_id": f"p1:{place:040d}", "marketplace": "registry"}
        accepted = case.kind == GOOD
        pairs.append(row)
        judgements.append(
            {
                "pair_id": row["pair_id"],
                "judge": "offline:rules",
                "status": "ok",
                "verdict": "accept" if accepted else "reject",
                "score": 9.0 if accepted else 3.0,
                "scores": dump_text({"realism": 9 if accepted else 3}),
                "threshold": 6.0,
                "reasons": "SECRET-REASON",
            }
        )
    hostile = {name: dict(item) for name, item in contracts.items()}
    for item in hostile.values():
        item["description"] = f"{item['description']} {HOSTILE}"
    pairs[0]["instruction"] += f" {HOSTILE}"
    return pairs, judgements, hostile
