"""Finding: what one rule says about one place in one tool, safe to print anywhere.

Excerpts are escaped, so that no terminal, log or page is attacked by what it shows.
"""

from dataclasses import asdict, dataclass
from typing import Any

from warehouse.sanitize.escape import escape_text

LOW, MEDIUM, HIGH = "low", "medium", "high"
SEVERITIES = (LOW, MEDIUM, HIGH)
EXCERPT_CAP = 160  # characters before escaping
NAME_CAP = 200
_AROUND = 24


@dataclass(frozen=True)
class Rule:
    """One rule. `severity` is its usual one: context may lower a single finding.

    source: where the attack is described or shown. family: rules of one idea; findings of several
    families in one tool weigh more than their sum.
    """

    id: str
    severity: str
    why: str
    source: str
    family: str


@dataclass(frozen=True)
class Finding:
    """One hit. `field` is a JSON pointer into the tool; one that ends in `#` means the name of the
    member itself. `span` counts characters of that text, end exclusive."""

    tool: str
    rule: str
    severity: str
    field: str
    span: tuple[int, int]
    excerpt: str
    why: str

    def as_row(self) -> dict[str, Any]:
        return {**asdict(self), "span": list(self.span)}


RULES: dict[str, Rule] = {}


def define_rule(id: str, severity: str, family: str, why: str, source: str) -> Rule:
    """Makes a rule and enters it in the register."""
    made = Rule(id, severity, why, source, family)
    RULES[id] = made
    return made


@dataclass(frozen=True)
class Hit:
    """A rule's hit within one text, before it is known whose text it is."""

    rule: Rule
    start: int
    end: int
    severity: str
    why: str = ""


def build_hit(by: Rule, start: int, end: int, severity: str = "", why: str = "") -> Hit:
    return Hit(by, start, end, severity or by.severity, why)


def build_finding(tool: str, field: str, text: str, found: Hit) -> Finding:
    """The finding of a hit, with an excerpt of the text around it."""
    head = max(0, found.start - _AROUND)
    tail = min(len(text), found.end + _AROUND, head + EXCERPT_CAP)
    excerpt = (
        ("…" if head else "") + escape_text(text[head:tail]) + ("…" if tail < len(text) else "")
    )
    return Finding(
        tool=escape_text(tool[:NAME_CAP]),
        rule=found.rule.id,
        severity=found.severity,
        field=escape_text(field),
        span=(found.start, found.end),
        excerpt=excerpt,
        why=found.why or found.rule.why,
    )
