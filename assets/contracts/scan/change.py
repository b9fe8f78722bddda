"""Change: a tool that was harmless when it was approved and is not any more (a rug pull).

What belongs here: what became alarming between two lists of one server.
What does not: changes that break callers (`assets/contracts/diff.py`).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assets.contracts.diff import diff
from assets.contracts.scan.engine import name_of, scan_tool
from assets.contracts.scan.finding import HIGH, LOW, MEDIUM, Finding, Hit, finding, rule
from assets.contracts.scan.links import hosts
from assets.contracts.scan.texts import read

_RENAMES_CAP = 400  # pairs of a gone and a new tool that are compared for a rename

RUG_PULL = rule(
    "rug_pull", HIGH, "change",
    "was harmless in the earlier list and is not any more",
    "Invariant Labs 2025, MCP rug pulls",
)  # fmt: skip
PROMISE = rule(
    "broken_promise", MEDIUM, "change",
    "no longer promises to change nothing", "Model Context Protocol, tool annotations",
)  # fmt: skip
NEW_HOST = rule(
    "new_host", MEDIUM, "change",
    "names a host that the earlier version did not", "Invariant Labs 2025, MCP rug pulls",
)  # fmt: skip


def rug_pull(before: Sequence[Any], after: Sequence[Any]) -> list[Finding]:
    """What became alarming in tools that both lists hold, renamed ones included."""
    old = _by_name(before)
    origins = _origins(old, _by_name(after))
    own_before, own_after = frozenset(old), frozenset(map(name_of, after))
    out: list[Finding] = []
    for tool in after:
        origin = old.get(origins.get(name_of(tool), name_of(tool)))
        if origin is not None and origin != tool:
            known = scan_tool(origin, own_before)
            out += _became(known, scan_tool(tool, own_after))
            out += _promises(origin, tool)
            out += _hosts(origin, tool)
    return out


def _became(known: Sequence[Finding], now: Sequence[Finding]) -> Iterator[Finding]:
    """One finding for each rule above low that did not fire, or was milder, before."""
    ranks = {LOW: 0, MEDIUM: 1, HIGH: 2}
    worst: dict[str, int] = {}
    for one in known:
        worst[one.rule] = max(worst.get(one.rule, -1), ranks[one.severity])
    for one in now:
        if ranks[one.severity] > max(worst.get(one.rule, -1), 0):
            worst[one.rule] = ranks[one.severity]
            why = f"{RUG_PULL.why}: {one.rule} ({one.why})"
            yield Finding(
                one.tool, RUG_PULL.id, one.severity, one.field, one.span, one.excerpt, why
            )


def _promises(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Finding]:
    for hint, harmless in (("readOnlyHint", True), ("destructiveHint", False)):
        if _hint(old, hint) is harmless and _hint(new, hint) is not harmless:
            field = f"/annotations/{hint}"
            text = f"{hint}: {harmless} became {_hint(new, hint)!r}"[:200]
            yield finding(name_of(new), field, text, Hit(PROMISE, 0, len(text), MEDIUM))


def _hosts(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Finding]:
    known = {host for text in read(old).texts for host in hosts(text.text)}
    for text in read(new).texts:
        fresh = sorted(hosts(text.text) - known)
        if fresh:
            at = max(0, text.text.casefold().find(fresh[0]))
            found = Hit(NEW_HOST, at, at + len(fresh[0]), MEDIUM if known else LOW)
            yield finding(name_of(new), text.field, text.text, found)
            known.update(fresh)


def _hint(tool: Mapping[str, Any], hint: str) -> Any:
    annotations = tool.get("annotations")
    return annotations.get(hint) if isinstance(annotations, Mapping) else None


def _by_name(tools: Sequence[Any]) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for tool in tools:
        if name_of(tool):
            found.setdefault(name_of(tool), tool)
    return found


def _origins(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """New name -> old name of renamed tools; none where there are too many to compare."""
    gone = [tool for name, tool in old.items() if name not in new]
    come = [tool for name, tool in new.items() if name not in old]
    if not gone or not come or len(gone) * len(come) > _RENAMES_CAP:
        return {}
    return {one.tool: one.renamed_from for one in diff(gone, come) if one.renamed_from}
