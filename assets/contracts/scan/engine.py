"""Engine: all rules over all texts of a tool, and what several findings mean together."""

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any

from assets.contracts.scan.finding import (
    HIGH,
    MEDIUM,
    RULES,
    SEVERITIES,
    Finding,
    Hit,
    finding,
    rule,
)
from assets.contracts.scan.pattern_rules import judge
from assets.contracts.scan.rules import cross_tool_orders, exfiltration, injection, parameters
from assets.contracts.scan.rules.duplicate_names import neighbours
from assets.contracts.scan.rules.encoded import decoded, encoded_hit
from assets.contracts.scan.rules.hidden import hidden
from assets.contracts.scan.rules.links import links
from assets.contracts.scan.text.fields import Read, Text, read
from assets.contracts.scan.text.normalise import word_set, words
from assets.contracts.scan.text.phrases import Ideas, ideas

FINDINGS_CAP = 200  # of one tool

CAPPED = rule(
    "not_read_whole", HIGH, "limits",
    "larger or deeper than is read: what was not read cannot be cleared", "a limit of this scan",
)  # fmt: skip
TOGETHER = rule(
    "several_signs", HIGH, "together",
    "several doubtful signs of different kinds in one tool",
    "Invariant Labs 2025: published attacks join a tag, a condition, concealment and a channel",
)  # fmt: skip

_JUDGED = (*injection.JUDGED, *exfiltration.JUDGED, *cross_tool_orders.JUDGED)
# Families that speak of intent; the others (names, links, credentials) are common in honest tools.
_INTENT = word_set(
    "override conceal address unseen coercion exfiltration conversation shadow preference"
    " encoded hidden link"
)


def scan_list(tools: Sequence[Any], elsewhere: Set[str] = frozenset()) -> list[Finding]:
    """The findings of one server's list, tool by tool in its order, gravest first.

    elsewhere: names of tools on other servers, as far as they are known.
    """
    own = frozenset(name for tool in tools if (name := name_of(tool)))
    out = [scan_tool(tool, own, elsewhere) for tool in tools]
    for index, found in scan_names(tools):
        out[index].append(found)
    return [found for one in out for found in sorted(one, key=gravest)]


def scan_names(tools: Sequence[Any]) -> Iterator[tuple[int, Finding]]:
    """(index, finding) for names of one list that are the same or look the same."""
    names = [name_of(tool) for tool in tools]
    for index, found in neighbours(names):
        yield index, finding(names[index], "/name", names[index], found)


def scan_tool(
    tool: Any, own: Set[str] = frozenset(), elsewhere: Set[str] = frozenset()
) -> list[Finding]:
    """The findings of one tool. own, elsewhere: names of tools on the same and on other servers."""
    return scan_contents(name_of(tool), read(tool), own, elsewhere)


def scan_contents(
    name: str, contents: Read, own: Set[str], elsewhere: Set[str] = frozenset()
) -> list[Finding]:
    """The findings of a tool of that name, or of some of its texts."""
    own = own | {name} | {text.parameter for text in contents.texts}
    about = words(name, name=True).words
    out: list[Finding] = []
    for field, what in contents.capped:
        out.append(finding(name, field, what, Hit(CAPPED, 0, len(what), HIGH)))
    for text in contents.texts:
        hits = islice(_hits(text, own, elsewhere, about), FINDINGS_CAP - len(out))
        out += [finding(name, text.field, text.text, found) for found in hits]
    return [*out, *_together(out)]


def name_of(tool: Any) -> str:
    """The name a tool gives itself, "" for anything else."""
    name = tool.get("name") if isinstance(tool, Mapping) else None
    return name if isinstance(name, str) else ""


def mentioned(tool: Any) -> frozenset[str]:
    """Names of tools and parameters that a tool's texts may hold: all of other tools that its
    findings can depend on, so that they need not be made again while these are the same."""
    return frozenset(
        name for text in read(tool).texts for name in cross_tool_orders.identifiers(text.text)
    )


def _hits(text: Text, own: Set[str], elsewhere: Set[str], about: Sequence[str]) -> Iterator[Hit]:
    if not text.text:
        return
    yield from hidden(text.text, text.role)
    within = ideas_of(text, own, elsewhere)
    yield from _worded(text, within)
    yield from parameters.parameter(text, about, within)
    for run in decoded(text.text):
        inner = Text(text.field, run.text, "data", text.parameter)
        worst = max(
            (found.severity for found in _worded(inner, ideas_of(inner, own, elsewhere))),
            key=SEVERITIES.index,
            default="",
        )
        found = encoded_hit(run, worst)
        if found:
            yield found


def _worded(text: Text, within: Ideas) -> Iterator[Hit]:
    """Hits of what a text says, as opposed to how it is written."""
    if within.found:
        for judged in _JUDGED:
            yield from judge(judged, text.text, within, text.role)
    yield from injection.marks(text.text)
    yield from cross_tool_orders.commands(text.text, within)
    yield from links(text.text)


def ideas_of(text: Text, own: Set[str], elsewhere: Set[str] = frozenset()) -> Ideas:
    """Every idea in one text of a tool, names and addresses included."""
    name = text.role == "name" or not any(char.isspace() for char in text.text[:200])
    within = ideas(words(text.text, name=name))
    cross_tool_orders.foreign(text.text, within, own, elsewhere)
    cross_tool_orders.addresses(text.text, within)
    parameters.own_parameters(text, within, own)
    return within


def _together(found: Sequence[Finding]) -> Iterator[Finding]:
    """One more finding where doubtful signs of two kinds of intent meet."""
    if any(one.severity == HIGH for one in found):
        return
    signs: dict[str, Finding] = {}
    for one in found:
        family = RULES[one.rule].family
        if one.severity == MEDIUM and family in _INTENT:
            signs.setdefault(family, one)
    if len(signs) >= 2:
        first = next(iter(signs.values()))
        rules = ", ".join(sorted(one.rule for one in signs.values()))
        why = f"{TOGETHER.why}: {rules}"
        yield Finding(first.tool, TOGETHER.id, HIGH, first.field, first.span, first.excerpt, why)


def gravest(found: Finding) -> int:
    """A key that sorts the gravest first."""
    return -SEVERITIES.index(found.severity)
