"""What callers met with while a release was served, out of the log of calls.

A unit is what one token asked for with the same words: of its calls the last one counts, so that
neither a loop of tries nor one busy caller's repeated question counts many times. Only calls that
ran here count; what a token reports of a call is its word alone, and counts for nothing.
"""

from collections.abc import Collection, Iterable
from typing import Any

GOOD = ("ok",)
BAD = ("tool_error", "invalid_arguments", "failed")
# Whose fault no release can be: a missing key, a setting, a service elsewhere.
ELSEWHERE = ("credentials", "policy", "upstream")


def count_units(
    lines: Iterable[dict[str, Any]], versions: Collection[str], since: float
) -> list[bool]:
    """Whether each unit ended well, in the order in which they began.

    versions: the index versions that are counted; since: epoch seconds.
    """
    wanted = set(versions)
    found: dict[tuple[str, str], bool] = {}
    for line in lines:
        status = line.get("status")
        if line.get("index") not in wanted or line["at"] < since:
            continue
        if status not in (*GOOD, *BAD) or line.get("blame") in ELSEWHERE:
            continue
        asked = line.get("query") or line.get("tool_id") or ""
        found[str(line.get("token")), str(asked)] = status in GOOD
    return list(found.values())
