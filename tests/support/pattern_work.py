"""How much work Python's `re` may do with a pattern, read off the parsed pattern.

Python's engine backtracks: what it may do at one start grows with the ways in which repeats can
divide a text. `find_growth` bounds that work from above: a pattern passes if the work at each start
is bounded by a constant, or if there is one start and one unbounded repeat that gives back.
"""

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from re import _constants as code  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import regex

from tests.support.paths import ROOT
from warehouse.patterns import Pattern, compile_pattern

_CALLS = {"compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"}
MOST_WORK = 2_100  # steps at one start of many: some .1 s for 64,000 characters
MOST_WORK_ONCE = 60_000  # where there is one start
_REPEATS = (code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT)
_ONE_CHARACTER = (code.LITERAL, code.NOT_LITERAL, code.ANY, code.IN, code.CATEGORY)
_PROBES = [chr(i) for i in range(0x100)] + list("\u0130\u03b1\u4e2d\u200b\u2028\u2014\U0001f600")


class Growth(Exception):
    """Why the work cannot be bounded."""


def find_growth(pattern: str, flags: int, *, anchored: bool) -> str | None:
    """Why `re` may take more than linear time with the pattern, or None.

    `anchored`: it is matched at one start only, by `match` or `fullmatch`.
    """
    tree = parser.parse(pattern, flags)
    anchored = anchored or _begins_at_start(tree, tree.state.flags)
    state = _Bound(tree.state.flags, anchored)
    try:
        work = state.measure(list(tree), None)
    except Growth as reason:
        return str(reason)
    most = MOST_WORK_ONCE if anchored else MOST_WORK
    return f"up to {work:,} steps at one start" if work > most else None


def _begins_at_start(tree: Any, flags: int) -> bool:
    if not len(tree) or tree[0][0] is not code.AT:
        return False
    at = tree[0][1]
    return at is code.AT_BEGINNING_STRING or (at is code.AT_BEGINNING and not flags & re.MULTILINE)


class _Bound:
    """The bound for one pattern. `rest` is what follows: items, linked to what follows them."""

    def __init__(self, flags: int, anchored: bool) -> None:
        self.flags, self.anchored, self.unbounded = flags, anchored, 0

    def measure(self, items: list[Any], rest: Any) -> int:
        """Steps at most from here to the end of the pattern."""
        if not items:
            return 1 if rest is None else self.measure(*rest)
        (kind, value), after = items[0], items[1:]
        if kind in _REPEATS:
            return self._measure_repeat(kind, value, after, rest)
        if kind is code.SUBPATTERN:
            return self.measure(list(value[3]), (after, rest))
        if kind is code.ATOMIC_GROUP:
            return self.measure(list(value), None) + self.measure(after, rest)
        if kind is code.BRANCH:
            before, work, unbounded = self.unbounded, 0, []
            for branch in value[1]:
                self.unbounded = before
                work += self.measure(list(branch), (after, rest))
                unbounded.append(self.unbounded)
            self.unbounded = max(unbounded)
            return work
        if kind in (code.ASSERT, code.ASSERT_NOT):
            inside, self.anchored = self.anchored, False
            work = self.measure(list(value[1]), ([], None) if value[0] < 0 else None)
            self.anchored = inside
            return work + self.measure(after, rest)
        if kind in (code.GROUPREF, code.GROUPREF_EXISTS):
            raise Growth("a back-reference")
        return 1 + self.measure(after, rest)

    def _measure_repeat(self, kind: Any, value: Any, after: list[Any], rest: Any) -> int:
        least, most, body = value
        following = self.measure(after, rest)
        simple = len(body) == 1 and body[0][0] in _ONE_CHARACTER
        gives_back = kind is not code.POSSESSIVE_REPEAT and self._may_share(body, after, rest)
        if most is not code.MAXREPEAT:
            if simple:
                return most + following * (most - least + 1 if gives_back else 1)
            work = following
            for _ in range(most):
                # Each round runs the body, then another round or what follows.
                inner = self.measure(list(body), None)
                work = inner * (work if gives_back or inner > 40 else 1) + work + following
                if work > 1_000_000:
                    raise Growth("nested repeats")
            return work
        if not simple:
            raise Growth("an unbounded repeat of more than one character")
        if following == 1 and not after and self._is_end(rest) and not self.anchored:
            return 1  # what it takes is taken once: the next start is behind it
        if not self.anchored:
            raise Growth("an unbounded repeat with something behind it, at every start")
        self.unbounded += bool(gives_back and following > 1)
        if self.unbounded > 1:
            raise Growth("two unbounded repeats that share characters")
        return 1 + following

    def _is_end(self, rest: Any) -> bool:
        return rest is None or (not rest[0] and self._is_end(rest[1]))

    def _may_share(self, body: Any, after: list[Any], rest: Any) -> bool:
        """Whether a character of the repeat can begin what follows."""
        first = self._find_first(after, rest)
        if first is None:
            return True
        mine = filter(self._compile(body).fullmatch, _PROBES)
        return any(pattern.fullmatch(char) for char in mine for pattern in first)

    def _compile(self, body: Any) -> re.Pattern[str]:
        state = parser.State()
        state.flags = self.flags
        tree = parser.SubPattern(state, list(body))
        return re._compiler.compile(tree, self.flags & ~re.DEBUG)  # type: ignore[attr-defined]

    def _find_first(self, items: list[Any], rest: Any) -> list[re.Pattern[str]] | None:
        """Patterns of the characters that can come next; None: any, or the end."""
        if not items:
            return None if rest is None else self._find_first(*rest)
        (kind, value), after = items[0], items[1:]
        if kind in _ONE_CHARACTER:
            return [self._compile([items[0]])]
        if kind is code.SUBPATTERN:
            return self._find_first(list(value[3]), (after, rest))
        if kind is code.BRANCH:
            firsts = [self._find_first(list(branch), (after, rest)) for branch in value[1]]
            return None if None in firsts else [p for first in firsts for p in first or ()]
        if kind in _REPEATS:
            first = self._find_first(list(value[2]), None)
            if first is None or value[0]:
                return first
            behind = self._find_first(after, rest)
            return None if behind is None else first + behind
        return None


@dataclass(frozen=True)
class SourcePattern:
    """A pattern of a module: a constant, or a call of `re`, `regex` or `compile_pattern`. pattern:
    None where it is made of values. method: match (at one start), search or finditer."""

    place: str
    pattern: re.Pattern[Any] | Pattern | None
    method: str = "finditer"

    @property
    def unbounded(self) -> bool:
        """Whether Python's engine may take more than linear time with it, as far as it shows."""
        if isinstance(self.pattern, Pattern):
            return False
        if not isinstance(self.pattern, re.Pattern):
            return True
        text, flags = self.pattern.pattern, self.pattern.flags & ~(re.UNICODE | re.DEBUG)
        try:
            text = text if isinstance(text, str) else text.decode()
            return find_growth(text, flags, anchored=self.method == "match") is not None
        except (re.error, RuntimeError):
            return True


def list_patterns(path: Path) -> list[SourcePattern]:
    """The patterns of a module: its constants, in containers too, and those of its functions."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    nodes = [node for node in ast.walk(tree) if isinstance(node, functions)]
    inside = {call for node in nodes for call in ast.walk(node) if _is_call(call)}
    calls = [_read_call(call) for call in sorted(inside, key=lambda call: call.lineno)]
    result = [call for call in calls if call is not None]
    if not re.search(r"\b(?:re|regex)\.|compile_pattern", source):
        return result
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    for name, value in vars(module).items():
        if not re.search(rf"(?m)^(?:class )?{name}\b", source):
            continue  # imported
        uses = set(re.findall(rf"\b{name}\.(\w+)", source))
        result += [SourcePattern(name, each, _name_method(uses)) for each in _walk_patterns(value)]
    return result


def _name_method(uses: set[str]) -> str:
    if not uses or uses & {"finditer", "findall", "sub", "subn", "split"}:
        return "finditer"
    return "search" if "search" in uses else "match"


def _walk_patterns(value: Any, depth: int = 0) -> Iterator[re.Pattern[Any] | Pattern | None]:
    if isinstance(value, (re.Pattern, Pattern)):
        yield value
    elif isinstance(value, regex.Pattern):
        yield None
    elif isinstance(value, (tuple, list, set, frozenset, dict)) and depth < 4:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _walk_patterns(item, depth + 1)
    elif depth < 4 and (isinstance(value, type) or is_dataclass(value)):
        for item in list(vars(value).values()) if hasattr(value, "__dict__") else ():
            yield from _walk_patterns(item, depth + 1)


def _is_call(node: Any) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id == "compile_pattern"
    module = getattr(getattr(node.func, "value", None), "id", None)
    return module in ("re", "regex") and getattr(node.func, "attr", None) in _CALLS


def _read_call(call: Any) -> SourcePattern | None:
    """None: it is made of values, and RE2's."""
    place, ours = f"line {call.lineno}", isinstance(call.func, ast.Name)
    try:
        text = ast.literal_eval(call.args[0])
    except ValueError:
        return None if ours else SourcePattern(place, None)
    if ours:
        beside = {item.arg: ast.literal_eval(item.value) for item in call.keywords}
        return SourcePattern(place, compile_pattern(text, **beside))
    if call.func.value.id == "regex":
        return SourcePattern(place, None)
    names = [n.attr for arg in (*call.args[1:], *call.keywords) for n in ast.walk(arg)
             if isinstance(n, ast.Attribute) and hasattr(re.RegexFlag, n.attr)]  # fmt: skip
    flags = re.RegexFlag(0)
    for name in names:
        flags |= getattr(re, name)
    return SourcePattern(place, re.compile(text, flags), _name_method({call.func.attr}))


_PIECES = (*"aA _0\n-./\u00e9\u4e2d", "aA", "a ", *'({"\\')


def make_pumps(pattern: str) -> list[tuple[str, str, str]]:
    """Texts that a pattern may grow with: what its repeats take, many times, behind what opens
    them, and such openings themselves."""
    pumps = [("", piece, "\0") for piece in _PIECES]
    try:
        tree = parser.parse(pattern)
    except (re.error, RecursionError, OverflowError):
        return pumps
    for before, body in _walk_repeats(list(tree), ""):
        pumps += [(before, body, "\0"), ("", before + body, "\0"), ("", before or body, "\0")]
    return list(dict.fromkeys(pumps))[:60]


def _walk_repeats(items: list[Any], before: str) -> Iterator[tuple[str, str]]:
    """(an opening, what is repeated) for each repeat that takes ten or more."""
    for kind, value in items:
        if kind in _REPEATS:
            body = _make_sample(list(value[2]))
            if body and (value[1] is code.MAXREPEAT or value[1] >= 10):
                yield before, body
            yield from _walk_repeats(list(value[2]), before)
        elif kind in (code.SUBPATTERN, code.ATOMIC_GROUP):
            yield from _walk_repeats(list(value[3] if kind is code.SUBPATTERN else value), before)
        elif kind is code.BRANCH:
            for branch in value[1]:
                yield from _walk_repeats(list(branch), before)
        before += _make_sample([(kind, value)])


def _make_sample(items: list[Any]) -> str:
    """A short text that the items match, but for what they say of the text around it."""
    result = ""
    for kind, value in items:
        if kind in _ONE_CHARACTER:
            state = parser.State()
            one = re._compiler.compile(parser.SubPattern(state, [(kind, value)]), 0)  # type: ignore[attr-defined]
            result += next((char for char in "a_0 " + "".join(_PROBES) if one.fullmatch(char)), "")
        elif kind in _REPEATS:
            result += _make_sample(list(value[2])) * max(value[0], 0)
        elif kind in (code.SUBPATTERN, code.ATOMIC_GROUP):
            result += _make_sample(list(value[3] if kind is code.SUBPATTERN else value))
        elif kind is code.BRANCH:
            result += _make_sample(list(value[1][0]))
    return result[:2_000]
