"""Finding: what one rule says about one place in one tool, safe to print anywhere.

Excerpts are escaped, so that no terminal, log or page is attacked by what it shows.
"""

import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assets.contracts.scan.text.phrases import Pattern, parse_patterns
from warehouse.sanitize.escape import escape_text

LOW, MEDIUM, HIGH = "low", "medium", "high"
SEVERITIES = (LOW, MEDIUM, HIGH)
EXCERPT_CAP = 160  # characters before escaping
NAME_CAP = 200
_AROUND = 24


@dataclass(frozen=True)
class Rule:
    """One rule; `rules.toml` holds them all and says what each field means."""

    id: str
    severity: str
    family: str
    why: str
    source: str
    patterns: tuple[Pattern, ...] = ()
    mentioned: str = ""
    eased: tuple[str, ...] = ()
    followed: tuple[str, ...] = ()
    followed_within: int = 1
    guarded: tuple[str, ...] = ()
    asks: tuple[Pattern, ...] = ()
    names: tuple[str, ...] = ()
    subject: frozenset[str] = frozenset()
    in_results: str = ""


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


def _read_rules() -> dict[str, Rule]:
    text = Path(__file__).with_name("rules.toml").read_text(encoding="utf-8")
    out = {}
    for name, stated in tomllib.loads(text).items():
        held: dict[str, Any] = {
            key: tuple(one) if isinstance(one, list) else one for key, one in stated.items()
        }
        held |= {key: parse_patterns(*held[key]) for key in ("patterns", "asks") if key in held}
        out[name] = Rule(name, **{**held, "subject": frozenset(held.get("subject", "").split())})
    return out


RULES = _read_rules()


@dataclass(frozen=True)
class Hit:
    """A rule's hit within one text, before it is known whose text it is."""

    rule: Rule
    start: int
    end: int
    severity: str
    why: str = ""


def rank_severity(one: Hit | Finding) -> int:
    """A key that grows with the severity."""
    return SEVERITIES.index(one.severity)


def keep_gravest(hits: Iterable[Hit]) -> list[Hit]:
    """The gravest of the hits of one rule, the first of equals; [] for none."""
    return [best] if (best := max(hits, key=rank_severity, default=None)) else []


def build_hit(rule: str, start: int, end: int, severity: str = "", why: str = "") -> Hit:
    """A hit of the rule of that id, of its usual severity unless another is given."""
    return Hit(RULES[rule], start, end, severity or RULES[rule].severity, why)


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
