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
from assets.contracts.scan.link_and_name_rules import find_hosts
from assets.contracts.scan.rule_table import (
    LOW,
    MEDIUM,
    RULES,
    SEVERITIES,
    RuleHit,
    ScanFinding,
    build_finding,
    build_hit,
    judge_text,
)
from assets.contracts.scan.tool_texts import ToolText, ToolTexts, read_fields
from assets.contracts.schema_diff import compare_annotations
from assets.contracts.tool_renames import find_renames
from warehouse.json_types import Contract, JsonObject

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
    """What became alarming in tools that both lists hold, renamed ones included."""
    old, new = _index_by_name(before), _index_by_name(after)
    origins = _find_origins(old, new)
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

    own, elsewhere: names of tools on the same server and on others; own_before: if it differed.
    """
    was, now = read_fields(old or {}), read_fields(new)
    names_before = own_names if own_before is None else own_before
    gone, fresh = _drop_known(was, now), _drop_known(now, was)
    findings: list[ScanFinding] = []
    if scan_contents(
        read_name(new), fresh, own_names, elsewhere
    ):  # else no text can have become worse
        before = scan_tool(old, names_before, elsewhere) if old is not None else []
        findings = list(_find_worse(before, scan_tool(new, own_names, elsewhere), old is None))
    return [
        *findings,
        *_find_hidden(read_name(new), gone, fresh),
        *_find_signs(read_name(new), gone, fresh, names_before, own_names),
        *(_find_asked_parameters(read_name(new), was, now) if old is not None else ()),
        *(_find_promises(old, new) if old is not None else ()),
        *(_find_new_hosts(read_name(new), was, now) if old is not None else ()),
    ]


def _drop_known(contents: ToolTexts, others: ToolTexts) -> ToolTexts:
    """The texts that stand in one version only: most stand in both."""
    known_texts = {(text.text, text.role, text.parameter) for text in others.texts}
    left = [
        text for text in contents.texts if (text.text, text.role, text.parameter) not in known_texts
    ]
    return ToolTexts(left, contents.capped)


def _find_worse(
    known_findings: Sequence[ScanFinding], now: Sequence[ScanFinding], is_new: bool
) -> Iterator[ScanFinding]:
    """One finding for each rule above low that did not fire, or was milder, before."""
    worst: dict[str, int] = {}
    for finding in known_findings:
        worst[finding.rule] = max(worst.get(finding.rule, -1), SEVERITIES.index(finding.severity))
    for finding in now:
        rank = SEVERITIES.index(finding.severity)
        if rank > max(worst.get(finding.rule, -1), 0):
            worst[finding.rule] = rank
            if not is_new:
                why = f"{RULES['rug_pull'].why}: {finding.rule} ({finding.why})"
                finding = replace(finding, rule="rug_pull", why=why)
            yield finding


def _find_hidden(tool: str, was: ToolTexts, now: ToolTexts) -> Iterator[ScanFinding]:
    """The first text that holds more of some hidden character than the earlier version did."""
    spent = Counter(hit[0] for text in was.texts for hit in _find_unseen(text.text))
    for text in now.texts:
        for hit in _find_unseen(text.text):
            spent[hit[0]] -= 1
            if spent[hit[0]] < 0:
                unseen_hit = build_hit("hidden_added", *hit.span())
                yield build_finding(tool, text.field, text.text, unseen_hit)
                return


def _find_unseen(text: str) -> Iterator[re.Match[str]]:
    if not text.isascii() or "\x1b" in text:
        yield from _UNSEEN.finditer(text)


def _find_signs(
    tool: str, was: ToolTexts, now: ToolTexts, own_before: Set[str], own_names: Set[str]
) -> Iterator[ScanFinding]:
    """Signs that the earlier version did not hold in the same words."""
    before = {
        _make_sign_key(text, sign)
        for text in was.texts
        for sign in _find_new_signs(text, own_before)
    }
    for text in now.texts:
        for new_sign in _find_new_signs(text, own_names):
            if _make_sign_key(text, new_sign) not in before:
                before.add(_make_sign_key(text, new_sign))
                yield build_finding(tool, text.field, text.text, new_sign)


def _find_new_signs(text: ToolText, own_names: Set[str]) -> Iterator[RuleHit]:
    within = read_ideas(text, own_names)
    for rule in _NEW_SIGNS if within.found else ():
        yield from judge_text(rule, text.text, within)


def _make_sign_key(text: ToolText, hit: RuleHit) -> tuple[str, str]:
    return hit.rule.id, text.text[hit.start : hit.end].casefold()


def _find_asked_parameters(tool: str, was: ToolTexts, now: ToolTexts) -> Iterator[ScanFinding]:
    """Parameters that ask by their name for what a tool need not know."""
    known_names = {text.text for text in was.texts if text.role == "name"}
    for text in now.texts:
        is_parameter = text.role == "name" and text.field.startswith("/inputSchema")
        spelled = _CAMEL.sub("_", text.text[:200]) if is_parameter else ""
        if text.text not in known_names and _ASKED_NAME.search(spelled):
            hit = build_hit("asks_anew", 0, len(text.text))
            yield build_finding(tool, text.field, text.text, hit)


def _find_promises(old: JsonObject, new: JsonObject) -> Iterator[ScanFinding]:
    for change in compare_annotations(_read_annotations(old), _read_annotations(new)):
        if change.cls == "suspicious":
            field = f"/annotations/{change.path.removeprefix('annotations.')}"
            why = f"{RULES['broken_promise'].why}: {change.why}"
            hit = build_hit("broken_promise", 0, len(change.why), why=why)
            yield build_finding(read_name(new), field, change.why, hit)


def _find_new_hosts(tool: str, was: ToolTexts, now: ToolTexts) -> Iterator[ScanFinding]:
    known_hosts = {host for text in was.texts for host in find_hosts(text.text)}
    for text in now.texts:
        fresh = sorted(find_hosts(text.text) - known_hosts)
        if fresh:
            at = max(0, text.text.casefold().find(fresh[0]))
            hit = build_hit("new_host", at, at + len(fresh[0]), MEDIUM if known_hosts else LOW)
            yield build_finding(tool, text.field, text.text, hit)
            known_hosts.update(fresh)


def _read_annotations(tool: Contract) -> JsonObject:
    annotations = tool.get("annotations")
    return annotations if isinstance(annotations, Mapping) else {}


def _index_by_name(tools: Sequence[Any]) -> dict[str, JsonObject]:
    tools_by_name: dict[str, JsonObject] = {}
    for tool in tools:
        if read_name(tool):
            tools_by_name.setdefault(read_name(tool), tool)
    return tools_by_name


def _find_origins(old: JsonObject, new: JsonObject) -> dict[str, str]:
    """New name -> old name of renamed tools; none where there are too many to compare."""
    gone = {name: tool for name, tool in old.items() if name not in new and _is_comparable(tool)}
    come = {name: tool for name, tool in new.items() if name not in old and _is_comparable(tool)}
    if not gone or not come or len(gone) * len(come) > _RENAMES_CAP:
        return {}
    return find_renames(gone, come)


def _is_comparable(tool: Contract) -> bool:
    """Whether a tool has what a comparison reads, of the right kinds."""
    about = tool.get("description", "")
    return isinstance(tool.get("inputSchema"), Mapping) and isinstance(about, str)
