"""AST match: is a called tool call the expected one, read through the tool's schema?

Belongs here: comparing values of every JSON Schema type at any depth, defaults, sets, free text,
and parallel calls by optimal assignment. Pure functions.
Does not belong here: whether a call is valid (`validate.py`), and rates over many calls
(`training/metrics.py`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from assets.contracts.schemas import branches, default_of, json_type, property_schemas

_EXACT_NAMES = re.compile(
    r"(^|_| )(id|ids|uuid|path|paths|file|filename|dir|directory|folder|url|uri|code|key|token|hash"
    r"|sha|ref|branch|sql|regex|pattern|glob|command|cmd|script|selector|xpath|slug|handle|email"
    r"|username|host|port|timezone|locale|lang|language|currency|symbol|ticker|format|version)"
    r"(_| |$)"
)
_EXACT_KEYWORDS = ("enum", "const", "format", "pattern", "contentEncoding", "contentMediaType")
_LOOKS_EXACT = re.compile(r"^\S+$|[/\\][\w.\-]|://|[{}<>=;`$|]|\(\)|^[\d\W]+$")
_MAX_DEPTH = 48


@dataclass(frozen=True)
class MatchResult:
    """How a call compares with the expected one.

    error_kind, the gravest first: wrong_tool, not_an_object, missing_parameter, extra_parameter,
    wrong_type, wrong_value; None when it matches. per_parameter: name -> match, default (one side
    left the schema's default out), missing, extra, wrong_type or wrong_value.
    """

    match: bool
    error_kind: str | None
    per_parameter: dict[str, str] = field(default_factory=dict)
    tool: bool = True

    @property
    def name_f1(self) -> float:
        """F1 of the parameter names that were given, 0..1."""
        shared = self._count("match", "wrong_type", "wrong_value")
        return _f1(shared, self._count("missing"), self._count("extra"), self.tool)

    @property
    def value_f1(self) -> float:
        """F1 of the parameters given with the right value, 0..1."""
        wrong = self._count("wrong_type", "wrong_value")
        right = self._count("match")
        missing, extra = self._count("missing") + wrong, self._count("extra") + wrong
        return _f1(right, missing, extra, self.tool)

    def _count(self, *verdicts: str) -> int:
        return sum(verdict in verdicts for verdict in self.per_parameter.values())


def match_call(
    schema: Mapping[str, Any], expected: Mapping[str, Any], called: Mapping[str, Any]
) -> MatchResult:
    """Compares two calls `{"name", "arguments"}` through the input schema of the expected tool.

    Numbers compare by value (5 = 5.0), true is never 1, omitted means the schema's default,
    arrays are ordered unless `uniqueItems`; only free text is normalised (case, white space, end
    punctuation), never an id, path, code or enum.
    """
    if expected.get("name") != called.get("name"):
        return MatchResult(False, "wrong_tool", tool=False)
    want, have = expected.get("arguments") or {}, called.get("arguments")
    have = {} if have is None else have
    if not isinstance(have, Mapping) or not isinstance(want, Mapping):
        return MatchResult(False, "not_an_object")
    verdicts = _object(schema, schema, want, have, 0)
    order = ("missing", "extra", "wrong_type", "wrong_value")
    worst = next((kind for kind in order if kind in verdicts.values()), None)
    names = {"missing": "missing_parameter", "extra": "extra_parameter"}
    return MatchResult(worst is None, names.get(worst, worst) if worst else None, verdicts)


def match_calls(
    schemas: Mapping[str, Mapping[str, Any]],
    expected: Sequence[Mapping[str, Any]],
    called: Sequence[Mapping[str, Any]],
) -> tuple[bool, list[int | None]]:
    """Compares parallel calls, in any order.

    schemas: tool name -> input schema. Returns (whether every expected call was made and no other,
    for each expected call the position of the call that fulfils it, or None). The assignment
    fulfils as many as any could.
    """
    fits = [
        [
            position
            for position, call in enumerate(called)
            if match_call(schemas.get(str(want.get("name")), {}), want, call).match
        ]
        for want in expected
    ]
    assigned = assign(fits, len(called))
    return None not in assigned and len(expected) == len(called), assigned


def assign(fits: Sequence[Sequence[int]], size: int) -> list[int | None]:
    """A largest matching: for each row one of its positions below `size`, none used twice."""
    owner: list[int | None] = [None] * size

    def place(row: int, tried: set[int]) -> bool:
        for position in fits[row]:
            if position in tried:
                continue
            tried.add(position)
            held = owner[position]
            if held is None or place(held, tried):
                owner[position] = row
                return True
        return False

    for row in range(len(fits)):
        place(row, set())
    found: list[int | None] = [None] * len(fits)
    for position, row in enumerate(owner):
        if row is not None:
            found[row] = position
    return found


def _object(
    schema: Any,
    root: Mapping[str, Any],
    want: Mapping[str, Any],
    have: Mapping[str, Any],
    depth: int,
) -> dict[str, str]:
    """Verdict per name over both sides of one object."""
    known = property_schemas(schema, root)
    verdicts: dict[str, str] = {}
    for name in sorted({*map(str, want), *map(str, have)}):
        about = known.get(name, {})
        if name in want and name in have:
            verdicts[name] = _value(about, root, want[name], have[name], name, depth + 1)
            continue
        given = want[name] if name in want else have[name]
        has_default, default = default_of(about, root)
        if has_default and _value(about, root, default, given, name, depth + 1) == "match":
            verdicts[name] = "default"
        else:
            verdicts[name] = "missing" if name in want else "extra"
    return verdicts


def _value(
    schema: Any, root: Mapping[str, Any], want: Any, have: Any, name: str, depth: int
) -> str:
    """`match`, `wrong_type` or `wrong_value`."""
    if depth > _MAX_DEPTH:
        return "match" if want == have else "wrong_value"
    kinds = {_family(json_type(want)), _family(json_type(have))}
    if len(kinds) > 1:
        return "wrong_type"
    kind = kinds.pop()
    if kind in ("number", "boolean", "null"):
        return "match" if want == have else "wrong_value"
    if kind == "string":
        return "match" if _same_text(schema, root, want, have, name) else "wrong_value"
    if kind == "object":
        verdicts = _object(schema, root, want, have, depth).values()
        return "match" if set(verdicts) <= {"match", "default"} else "wrong_value"
    return "match" if _same_list(schema, root, want, have, name, depth) else "wrong_value"


def _same_list(
    schema: Any, root: Mapping[str, Any], want: list[Any], have: list[Any], name: str, depth: int
) -> bool:
    if len(want) != len(have):
        return False
    item: Any = {}
    prefix: list[Any] = []
    unordered = False
    for branch in branches(schema, root):
        item = branch.get("items", item) if isinstance(branch.get("items"), Mapping) else item
        prefix = branch["prefixItems"] if isinstance(branch.get("prefixItems"), list) else prefix
        unordered = unordered or branch.get("uniqueItems") is True
    if not unordered or prefix:
        return all(
            _value(prefix[i] if i < len(prefix) else item, root, a, b, name, depth + 1) == "match"
            for i, (a, b) in enumerate(zip(want, have, strict=True))
        )
    fits = [
        [i for i, b in enumerate(have) if _value(item, root, a, b, name, depth + 1) == "match"]
        for a in want
    ]
    return None not in assign(fits, len(have))


def _same_text(schema: Any, root: Mapping[str, Any], want: str, have: str, name: str) -> bool:
    if want == have:
        return True
    formats = {str(branch.get("format")) for branch in branches(schema, root)}
    if "date-time" in formats:
        return _instant(want) is not None and _instant(want) == _instant(have)
    exact = any(key in branch for branch in branches(schema, root) for key in _EXACT_KEYWORDS)
    if exact or _EXACT_NAMES.search(_snake(name)):
        return False
    if any(_LOOKS_EXACT.search(text.strip()) for text in (want, have)):
        return False
    return _normal(want) == _normal(have)


def _normal(text: str) -> str:
    """Free text without what nobody means: case, runs of white space, curly quotes, the full stop
    at the end. Signs, decimal points and slashes inside words stay."""
    text = text.translate(str.maketrans("‘’“”", "''\"\""))
    return " ".join(text.casefold().split()).rstrip(".!? ")


def _instant(text: str) -> datetime | None:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed.astimezone(UTC) if parsed.tzinfo else parsed


def _snake(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())


def _family(kind: str) -> str:
    return "number" if kind == "integer" else kind


def _f1(right: int, missing: int, extra: int, tool: bool) -> float:
    if not tool:
        return 0.0
    total = 2 * right + missing + extra
    return 2 * right / total if total else 1.0
