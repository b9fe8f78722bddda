"""The same rules over what is no contract: what a server says of itself besides its tools, and what
a tool answered."""

from collections.abc import Iterator, Set
from dataclasses import dataclass, field, replace
from typing import Any

from assets.contracts.scan.engine import find_hits, keep_findings, scan_contents
from assets.contracts.scan.finding import (
    EXCERPT_CAP,
    SEVERITIES,
    Finding,
    Hit,
    build_finding,
    build_hit,
    rank_severity,
)
from assets.contracts.scan.text.fields import TOTAL_CAP, read_fields, read_pieces
from warehouse.json_types import JsonObject
from warehouse.sanitize.escape import escape_text


def scan_extras(extras: JsonObject, own: Set[str] = frozenset()) -> list[Finding]:
    """The findings of a server's instructions and of each entry of its lists of prompts, resources
    and templates; TOTAL_CAP characters in all. own: the names of its tools."""
    return keep_findings(_scan_entries(extras, own))


def _scan_entries(extras: JsonObject, own: Set[str]) -> Iterator[Finding]:
    read = 0
    for at, entry in _list_entries(extras):
        if read > TOTAL_CAP:
            what = "more text than is read of one server"
            yield build_finding("", at, what, build_hit("not_read_whole", 0, len(what)))
            break
        texts = read_fields(entry)
        read += sum(len(text.text) for text in texts.texts)
        for content in scan_contents("", texts, own):
            yield replace(content, field=at + content.field)


def _list_entries(extras: JsonObject) -> Iterator[tuple[str, Any]]:
    for name, value in extras.items():
        if isinstance(value, list):
            yield from ((f"/{name}/{place}", entry) for place, entry in enumerate(value))
        else:
            yield f"/{name}", value


MOST = 250_000  # characters read of each part of a result; a client is handed 200,000 of it


@dataclass
class ResultScan:
    """What a result showed. found: each finding with the very words; unread: something of it lies
    beyond what is read."""

    found: list[tuple[Finding, str]] = field(default_factory=list)
    unread: bool = False


def scan_result(tool: str, parts: JsonObject, most: int = MOST) -> ResultScan:
    """What a tool answered, part by part (content, structured, …), each any JSON value.

    Of each rule and part the gravest hit counts. A finding's `field` points into the parts, its
    excerpt holds the words alone. Linear in the text, which is bounded by `most` for each part.
    """
    out = ResultScan()
    for part, value in parts.items():
        read = read_pieces(value, most)
        out.unread = out.unread or bool(read.capped)
        gravest: dict[str, tuple[Finding, str]] = {}
        for text in read.texts:
            for hit in map(_limit_hit, find_hits(text, frozenset(), frozenset(), ())):
                out.unread = out.unread or hit.rule.id == "not_read_whole"
                before = gravest.get(hit.rule.id)
                if before is None or rank_severity(hit) > rank_severity(before[0]):
                    words = text.text[hit.start : hit.end]
                    made = build_finding(tool, f"/{part}{text.field}", text.text, hit)
                    made = replace(made, excerpt=escape_text(words[:EXCERPT_CAP]))
                    gravest[hit.rule.id] = made, words
        out.found += gravest.values()
    return out


def _limit_hit(hit: Hit) -> Hit:
    most = hit.rule.in_results
    graver = most and rank_severity(hit) > SEVERITIES.index(most)
    return replace(hit, severity=most) if graver else hit
