"""Hints: what a changed annotation of a tool means to a client that trusts it."""

import json
from typing import Any

from assets.contracts.schema.diff import Finding, format_step
from warehouse.json_types import JsonObject

_HARMLESS = {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False}
_PRESUMED = {  # what the protocol says a client must assume
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}


def compare_annotations(old: JsonObject, new: JsonObject) -> list[Finding]:
    """The class of each hint that differs.

    A promise of harmlessness that is withdrawn is suspicious, as clients let such tools run
    unasked; so is one made against the tool's own word. Repeating a call may do harm once
    `idempotentHint` is withdrawn: breaking. A first promise, or a default spelt out, is compatible.
    """
    found = []
    for key in sorted(old.keys() | new.keys()):
        was, now = old.get(key), new.get(key)
        if key in old and key in new and was is now:
            continue
        if json.dumps(was, sort_keys=True) != json.dumps(now, sort_keys=True):
            cls, why = _classify_hint(key, was, now)
            found.append(Finding(f"annotations{format_step(key)}", cls, why))
    return found


def _classify_hint(key: str, was: Any, now: Any) -> tuple[str, str]:
    change = f"{json.dumps(was)} became {json.dumps(now)}"[:200].replace("null", "nothing")
    if key not in _PRESUMED:
        return "wording", change
    before = was if isinstance(was, bool) else _PRESUMED[key]
    after = now if isinstance(now, bool) else _PRESUMED[key]
    if before == after:
        return "compatible", f"{change}: the same, spelt out or left to the default"
    if key == "idempotentHint":
        return ("breaking", f"{change}: a call may no longer be repeated") if before else (
            "compatible", change)  # fmt: skip
    if before == _HARMLESS[key]:
        return "suspicious", f"{change}: it no longer promises to be harmless"
    if isinstance(was, bool) and key != "openWorldHint":
        return "suspicious", f"{change}: it calls itself harmless against its own word"
    return "compatible", change
