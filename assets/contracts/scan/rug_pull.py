"""Change: a tool that was harmless when it was approved and is not any more (a rug pull).

Some signs are too common to say anything of one version, yet tell when they are new: hidden
characters, a first mention of secrets or of an address to send to, a new host, a hint withdrawn.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from assets.contracts.scan.engine import read_ideas, read_name, scan_contents, scan_tool
from assets.contracts.scan.rule_table import (
    LOW,
    MEDIUM,
    RULES,
    RuleHit,
    ScanFinding,
    build_finding,
    build_hit,
    judge_text,
    rank_severity,
)
from assets.contracts.scan.tool_texts import ToolText, ToolTexts, read_fields
from assets.contracts.scan.word_rules import find_hosts
from assets.contracts.schema_diff import compare_annotations
from assets.contracts.schema_shapes import read_mapping
from assets.contracts.tool_renames import find_renames
from warehouse.json_types import Contract, JsonObject

TextHit = tuple[ToolText, RuleHit]
_RENAMES_CAP = 400  # pairs of a gone and a new tool that are compared for a rename


_NEW_SIGNS = tuple(rule for rule in RULES.values() if rule.patterns and rule.family == "change")
_ASKED_NAME = re.compile(
    r"(?:^|_)(?:api_?key|access_?key|access_?token|auth_?token|password|passwd|secret|credentials?"
    r"|private_?key|ssh_?key|seed_?phrase|system_?prompt|conversation(?:_?history)?|chat_?history"
    r"|all_?messages|environment_?variables?)(?:$|_)",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-. ]")
# Zero-width, bidirectional, tag and filler characters; joiners only after Latin text, because
# emoji and Indic, Arabic and Persian scripts need them.
_UNSEEN = re.compile(
    "[\u00ad\u115f\u1160\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\u3164\ufeff\uffa0"
    "\U000e0000-\U000e0fff\x1b]|(?<![^\x00-\u024f])[\u200c\u200d]"
)


def find_rug_pulls(before: Sequence[Any], after: Sequence[Any]) -> list[ScanFinding]:
    """What became alarming in tools that both lists hold, renamed ones included; renames are left
    out where there are too many to compare."""
    old, new = (  # of two tools with one name the first counts
        {name: tool for tool in reversed(tools) if (name := read_name(tool))}
        for tools in (before, after)
    )
    gone = {name: tool for name, tool in old.items() if name not in new and _is_comparable(tool)}
    come = {name: tool for name, tool in new.items() if name not in old and _is_comparable(tool)}
    few = 0 < len(gone) * len(come) <= _RENAMES_CAP
    origins = find_renames(gone, come) if few else {}
    out: list[ScanFinding] = []
    for tool in after:
        origin = old.get(origins.get(read_name(tool), read_name(tool)))
        if origin is not None and origin != tool:
            out += find_alarms(origin, tool, frozenset(new), own_before=frozenset(old))
    return out


def find_alarms(
    old: JsonObject | None,
    new: JsonObject,
    own_names: Set[str] = frozenset(),
    elsewhere: Set[str] = frozenset(),
    own_before: Set[str] | None = None,
) -> list[ScanFinding]:
    """What is alarming in `new` and was not in `old` (None: there was no such tool).

    own_names, elsewhere: names of tools on the same server and on others; own_before: own_names of
    the old list, where it differed.
    """
    name, was, now = read_name(new), read_fields(old or {}), read_fields(new)
    names_before = own_names if own_before is None else own_before
    gone, fresh = _drop_known(was, now), _drop_known(now, was)
    findings: list[ScanFinding] = []
    # Without a finding in a new text no text can have become worse.
    if scan_contents(name, fresh, own_names, elsewhere):
        before = scan_tool(old, names_before, elsewhere) if old is not None else []
        findings = list(_find_worse(before, scan_tool(new, own_names, elsewhere), old is None))
    hits = [*_find_hidden(gone, fresh), *_find_signs(gone, fresh, names_before, own_names)]
    findings += (build_finding(name, text.field, text.text, hit) for text, hit in hits)
    if old is None:
        return findings
    hits = [
        *_find_asked_parameters(was, now),
        *_find_promises(old, new),
        *_find_new_hosts(was, now),
    ]
    findings += (build_finding(name, text.field, text.text, hit) for text, hit in hits)
    return findings


def _drop_known(contents: ToolTexts, others: ToolTexts) -> ToolTexts:
    """The texts that only one version has: most are in both."""
    other_texts = {(text.text, text.role, text.parameter) for text in others.texts}
    left = [t for t in contents.texts if (t.text, t.role, t.parameter) not in other_texts]
    return ToolTexts(left, contents.capped)


def _find_worse(
    before: Sequence[ScanFinding], now: Sequence[ScanFinding], is_new: bool
) -> Iterator[ScanFinding]:
    """One finding for each rule above low that did not fire, or was milder, before."""
    worst: dict[str, int] = {}
    for finding in before:
        worst[finding.rule] = max(worst.get(finding.rule, -1), rank_severity(finding))
    for finding in now:
        rank = rank_severity(finding)
        if rank > max(worst.get(finding.rule, -1), 0):
            worst[finding.rule] = rank
            if not is_new:
                why = f"{RULES['rug_pull'].why}: {finding.rule} ({finding.why})"
                finding = replace(finding, rule="rug_pull", why=why)
            yield finding


def _find_hidden(was: ToolTexts, now: ToolTexts) -> Iterator[TextHit]:
    """The first text that holds more of some hidden character than the earlier version did."""
    spent = Counter(match[0] for text in was.texts for match in _find_unseen(text.text))
    for text in now.texts:
        for match in _find_unseen(text.text):
            spent[match[0]] -= 1
            if spent[match[0]] < 0:
                yield text, build_hit("hidden_added", *match.span())
                return


def _find_unseen(text: str) -> Iterator[re.Match[str]]:
    if not text.isascii() or "\x1b" in text:
        yield from _UNSEEN.finditer(text)


def _find_signs(
    was: ToolTexts, now: ToolTexts, own_before: Set[str], own_names: Set[str]
) -> Iterator[TextHit]:
    """Signs that the earlier version did not hold in the same words."""
    earlier_signs = {key for _, _, key in _find_new_signs(was, own_before)}
    for text, hit, key in _find_new_signs(now, own_names):
        if key not in earlier_signs:
            earlier_signs.add(key)
            yield text, hit


def _find_new_signs(
    contents: ToolTexts, own_names: Set[str]
) -> Iterator[tuple[ToolText, RuleHit, tuple[str, str]]]:
    for text in contents.texts:
        within = read_ideas(text, own_names)
        for rule in _NEW_SIGNS if within.found else ():
            for hit in judge_text(rule, text.text, within):
                yield text, hit, (hit.rule.id, text.text[hit.start : hit.end].casefold())


def _find_asked_parameters(was: ToolTexts, now: ToolTexts) -> Iterator[TextHit]:
    """Parameters that ask by their name for what a tool need not know."""
    known_names = {text.text for text in was.texts if text.role == "name"}
    for text in now.texts:
        is_parameter = text.role == "name" and text.field.startswith("/inputSchema")
        spelled = _CAMEL.sub("_", text.text[:200]) if is_parameter else ""
        if text.text not in known_names and _ASKED_NAME.search(spelled):
            yield text, build_hit("asks_anew", 0, len(text.text))


def _find_promises(old: JsonObject, new: JsonObject) -> Iterator[TextHit]:
    for change in compare_annotations(*(read_mapping(t.get("annotations")) for t in (old, new))):
        if change.cls == "suspicious":
            field = f"/annotations/{change.path.removeprefix('annotations.')}"
            why = f"{RULES['broken_promise'].why}: {change.why}"
            hit = build_hit("broken_promise", 0, len(change.why), why=why)
            yield ToolText(field, change.why, "data"), hit


def _find_new_hosts(was: ToolTexts, now: ToolTexts) -> Iterator[TextHit]:
    known_hosts = {host for text in was.texts for host in find_hosts(text.text)}
    for text in now.texts:
        fresh = sorted(find_hosts(text.text) - known_hosts)
        if fresh:
            at = max(0, text.text.casefold().find(fresh[0]))
            severity = MEDIUM if known_hosts else LOW
            yield text, build_hit("new_host", at, at + len(fresh[0]), severity)
            known_hosts.update(fresh)


def _is_comparable(tool: Contract) -> bool:
    """Whether a tool has what a comparison reads, of the right kinds."""
    about = tool.get("description", "")
    return isinstance(tool.get("inputSchema"), Mapping) and isinstance(about, str)
