"""The scan: all rules over all texts of a tool, of a server's other texts, and of results."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from assets.contracts.scan import word_rules
from assets.contracts.scan.hidden_text import (
    build_encoded_hit,
    decode_text,
    find_hidden,
    find_marks,
)
from assets.contracts.scan.rule_table import (
    EXCERPT_CAP,
    HIGH,
    MEDIUM,
    RULES,
    SEVERITIES,
    IdeaSpans,
    RuleHit,
    ScanFinding,
    build_finding,
    build_hit,
    find_ideas,
    judge_text,
    rank_severity,
)
from assets.contracts.scan.tool_texts import (
    TOTAL_CAP,
    ToolText,
    ToolTexts,
    collect_words,
    read_fields,
    read_pieces,
    split_words,
)
from assets.contracts.scan.word_rules import (
    find_links,
    find_neighbours,
    find_secret_keys,
    judge_tool_name,
)
from warehouse.json_types import JsonObject
from warehouse.sanitize.untrusted_text import escape_text, find_seen
from warehouse.storage.digest import digest_sources

_ROOT = Path(__file__).resolve().parents[3]
KEPT_CAP = 50  # findings of one rule and severity that are kept of one tool; all are looked for


# What says nothing of one version alone is left to the comparison of two.
_WORDED = tuple(rule for rule in RULES.values() if rule.patterns and rule.family != "change")
# Families that speak of intent; the others (names, links, credentials) are common in honest tools.
_INTENT = collect_words(
    "override conceal address unseen coercion exfiltration conversation shadow preference"
    " encoded hidden link"
)


def scan_list(tools: Sequence[Any], elsewhere: Set[str] = frozenset()) -> list[ScanFinding]:
    """The findings of one server's list, tool by tool in its order, gravest first.

    elsewhere: names of tools on other servers, as far as they are known.
    """
    return [finding for tool_findings in scan_each(tools, elsewhere) for finding in tool_findings]


def scan_each(tools: Sequence[Any], elsewhere: Set[str] = frozenset()) -> list[list[ScanFinding]]:
    """The same, a list a tool: a finding's `tool` is made printable and short, and two names can
    come to the same."""
    own_names = frozenset(name for tool in tools if (name := read_name(tool)))
    out = [scan_tool(tool, own_names, elsewhere) for tool in tools]
    for index, finding in scan_names([read_name(tool) for tool in tools]):
        out[index].append(finding)
    return [sorted(tool_findings, key=rank_severity, reverse=True) for tool_findings in out]


def scan_names(names: Sequence[str]) -> Iterator[tuple[int, ScanFinding]]:
    """(index, finding) for names of one list that are the same or look the same."""
    for index, hit in find_neighbours(names):
        yield index, build_finding(names[index], "/name", names[index], hit)


def scan_tool(
    tool: Any, own_names: Set[str] = frozenset(), elsewhere: Set[str] = frozenset()
) -> list[ScanFinding]:
    """The findings of one tool. own_names, elsewhere: names of tools on the same server and on
    others."""
    name = read_name(tool)
    odd = [build_finding(name, "/name", name, hit) for hit in judge_tool_name(name)]
    return [*odd, *scan_contents(name, read_fields(tool), own_names, elsewhere)]


def scan_contents(
    name: str, contents: ToolTexts, own_names: Set[str], elsewhere: Set[str] = frozenset()
) -> list[ScanFinding]:
    """The findings of a tool of that name, or of some of its texts. Where doubtful signs of two
    kinds of intent meet, one more finding says so."""
    own_names = own_names | {name} | {text.parameter for text in contents.texts}
    out = keep_findings(_find_all(name, contents, own_names, elsewhere))
    signs: dict[str, ScanFinding] = {}
    for finding in out:
        family = RULES[finding.rule].family
        if finding.severity == MEDIUM and family in _INTENT:
            signs.setdefault(family, finding)
    if len(signs) >= 2 and not any(finding.severity == HIGH for finding in out):
        first = next(iter(signs.values()))
        rules = ", ".join(sorted(finding.rule for finding in signs.values()))
        why = f"{RULES['several_signs'].why}: {rules}"
        out.append(replace(first, rule="several_signs", severity=HIGH, why=why))
    return out


def keep_findings(findings: Iterable[ScanFinding]) -> list[ScanFinding]:
    """KEPT_CAP findings of each rule and severity, and one finding that says how many were left
    out: many of one kind cannot crowd out another."""
    out: list[ScanFinding] = []
    counts: Counter[tuple[str, str]] = Counter()
    more: Counter[tuple[str, str]] = Counter()
    last: ScanFinding | None = None
    for finding in findings:
        kind = finding.rule, finding.severity
        counts[kind] += 1
        if counts[kind] <= KEPT_CAP:
            out.append(finding)
        else:
            more[kind], last = more[kind] + 1, finding
    if last is not None:
        left_out = [f"{count} of {rule} ({grade})" for (rule, grade), count in more.items()]
        rule = RULES["more_findings"]
        why = f"{rule.why}: {', '.join(left_out)}"
        out.append(replace(last, rule=rule.id, severity=rule.severity, why=why))
    return out


def _find_all(
    name: str, contents: ToolTexts, own_names: Set[str], elsewhere: Set[str]
) -> Iterator[ScanFinding]:
    about = split_words(name, name=True).words
    for pointer, what in contents.capped:
        yield build_finding(name, pointer, what, build_hit("not_read_whole", 0, len(what)))
    for text in contents.texts:
        for hit in find_hits(text, own_names, elsewhere, about):
            yield build_finding(name, text.field, text.text, hit)
        for span in islice(find_secret_keys(text.text), 1):
            key = build_finding(name, text.field, text.text, build_hit("issued_key", *span, HIGH))
            yield replace(key, excerpt="")  # a finding is shown


def read_name(tool: Any) -> str:
    """The name a tool gives itself, "" for anything else."""
    name = tool.get("name") if isinstance(tool, Mapping) else None
    return name if isinstance(name, str) else ""


def find_mentioned(tool: Any) -> frozenset[str]:
    """Names of tools and parameters that a tool's texts may hold: all of other tools that its
    findings can depend on, so that they need not be made again while these are the same."""
    return frozenset(
        name for text in read_fields(tool).texts for name in word_rules.find_identifiers(text.text)
    )


def find_hits(
    text: ToolText, own_names: Set[str], elsewhere: Set[str], about: Sequence[str]
) -> Iterator[RuleHit]:
    """All hits in one text of a tool, as it was sent and as it is shown. about: words of the tool's
    own name."""
    if not text.text:
        return
    yield from find_hidden(text.text, text.role)
    yielded = set[RuleHit]()
    for hit in _find_read(text, own_names, elsewhere, about):
        yielded.add(hit)
        yield hit
    visible, places = find_seen(text.text)
    if places:
        for hit in _find_read(replace(text, text=visible), own_names, elsewhere, about):
            end = places[max(hit.start, hit.end - 1)] + 1
            hit = replace(hit, start=places[hit.start], end=end)
            if hit not in yielded:
                yield hit


def _find_read(
    text: ToolText, own_names: Set[str], elsewhere: Set[str], about: Sequence[str]
) -> Iterator[RuleHit]:
    """Hits of what a text says, plainly or encoded."""
    within = read_ideas(text, own_names, elsewhere)
    yield from _find_worded(text, within)
    yield from word_rules.judge_parameter(text, about, within)
    for run in decode_text(text.text):
        inner = ToolText(text.field, run.text, "data", text.parameter)
        hits = _find_worded(inner, read_ideas(inner, own_names, elsewhere))
        worst = max((hit.severity for hit in hits), key=SEVERITIES.index, default="")
        if not run.text:
            yield build_hit("not_read_whole", run.start, run.end)
        elif hit := build_encoded_hit(run, worst):
            yield hit


def _find_worded(text: ToolText, within: IdeaSpans) -> Iterator[RuleHit]:
    """Hits of what a text says, as opposed to how it is written."""
    if within.found:
        for rule in _WORDED:
            yield from judge_text(rule, text.text, within)
    yield from find_marks(text.text)
    yield from word_rules.find_commands(text.text, within)
    yield from find_links(text.text)


def read_ideas(text: ToolText, own_names: Set[str], elsewhere: Set[str] = frozenset()) -> IdeaSpans:
    """Every idea in one text of a tool, names and addresses included."""
    name = text.role == "name" or not any(char.isspace() for char in text.text[:200])
    within = find_ideas(split_words(text.text, name=name))
    word_rules.mark_foreign(text.text, within, own_names, elsewhere)
    word_rules.mark_addresses(text.text, within)
    word_rules.mark_own_parameters(text, within, own_names)
    return within


@cache
def digest_rules() -> str:
    """Digest of every module of the scan, of its rules, of its lexicon, and of the forms of secrets
    and unseen characters; 12 hex digits."""
    return digest_sources(_ROOT, "assets/contracts/scan", "warehouse/sanitize")


def scan_extras(extras: JsonObject, own_names: Set[str] = frozenset()) -> list[ScanFinding]:
    """The findings of a server's instructions and of each entry of its lists of prompts, resources
    and templates; TOTAL_CAP characters in all. own: the names of its tools."""
    return keep_findings(_scan_entries(extras, own_names))


def _scan_entries(extras: JsonObject, own_names: Set[str]) -> Iterator[ScanFinding]:
    entry_lists = {
        name: value if isinstance(value, list) else None for name, value in extras.items()
    }
    entries = [
        (f"/{name}" if values is None else f"/{name}/{place}", entry)
        for name, values in entry_lists.items()
        for place, entry in enumerate([extras[name]] if values is None else values)
    ]
    read = 0
    for at, entry in entries:
        if read > TOTAL_CAP:
            what = "more text than is read of one server"
            yield build_finding("", at, what, build_hit("not_read_whole", 0, len(what)))
            break
        texts = read_fields(entry)
        read += sum(len(text.text) for text in texts.texts)
        for content in scan_contents("", texts, own_names):
            yield replace(content, field=at + content.field)


MOST = 250_000  # characters read of each part of a result; a client is handed 200,000 of it


@dataclass
class ResultScan:
    """What a result showed. found: each finding with the very words; unread: something of it lies
    beyond what is read."""

    found: list[tuple[ScanFinding, str]] = field(default_factory=list)
    unread: bool = False


def scan_result(tool: str, result_parts: JsonObject, most: int = MOST) -> ResultScan:
    """What a tool answered, part by part (content, structured, …), each any JSON value.

    Of each rule and part the gravest hit counts. A finding's `field` points into the parts, its
    excerpt holds the words alone. Linear in the text, which is bounded by `most` for each part.
    """
    out = ResultScan()
    for part, value in result_parts.items():
        read = read_pieces(value, most)
        out.unread = out.unread or bool(read.capped)
        gravest: dict[str, tuple[ScanFinding, str]] = {}
        for text in read.texts:
            for hit in map(_limit_hit, find_hits(text, frozenset(), frozenset(), ())):
                out.unread = out.unread or hit.rule.id == "not_read_whole"
                before = gravest.get(hit.rule.id)
                if before is None or rank_severity(hit) > rank_severity(before[0]):
                    words = text.text[hit.start : hit.end]
                    finding = build_finding(tool, f"/{part}{text.field}", text.text, hit)
                    finding = replace(finding, excerpt=escape_text(words[:EXCERPT_CAP]))
                    gravest[hit.rule.id] = finding, words
        out.found += gravest.values()
    return out


def _limit_hit(hit: RuleHit) -> RuleHit:
    most = hit.rule.in_results
    graver = most and rank_severity(hit) > SEVERITIES.index(most)
    return replace(hit, severity=most) if graver else hit
