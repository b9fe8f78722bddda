"""How much work Python's `re` may do with a pattern, read off the parsed pattern.

Python's engine backtracks: what it may do at one start grows with the ways in which repeats can
divide a text. `find_growth` bounds that work from above: a pattern passes if the work at each start
is bounded by a constant, or if there is one start and one unbounded repeat that gives back.
"""

import ast
import importlib
import re
from pathlib import Path
from re import _constants as code  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from tests.support.paths import ROOT

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
    return _is_start(tree[0][1], flags)


def _is_start(at: Any, flags: int) -> bool:
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
        mine = self._compile(body)
        return any(
            mine.fullmatch(char) and any(f.fullmatch(char) for f in first) for char in _PROBES
        )

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


def list_unbounded_patterns(path: Path) -> list[str]:
    """The calls of `re` and `regex` in a module whose work is not bounded by what they show."""
    source = path.read_text(encoding="utf-8")
    calls = [node for node in ast.walk(ast.parse(source)) if _is_call(node)]
    if not calls:
        return []
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    compiled = {
        name: value for name, value in vars(module).items() if isinstance(value, re.Pattern)
    }
    result = []
    for name, pattern in compiled.items():
        uses = set(re.findall(rf"\b{name}\.(\w+)", source))
        anchored = bool(uses) and uses <= {"match", "fullmatch", "pattern"}
        text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode()
        if re.search(rf"(?m)^{name}\b", source) and _find_growth(text, pattern.flags, anchored):
            result.append(name)
    for call in calls:
        method = call.func.attr
        if method == "compile" and call.func.value.id == "re" and call.col_offset < 40:
            continue  # a constant, above
        try:
            text = ast.literal_eval(call.args[0])
        except ValueError:
            text = None
        anchored = method in ("match", "fullmatch")
        if text is None or call.func.value.id == "regex" or _find_growth(text, 0, anchored):
            result.append(f"line {call.lineno}")
    return result


def _is_call(node: Any) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in ("re", "regex")
        and node.func.attr in _CALLS
    )


def _find_growth(text: str, flags: int, anchored: bool) -> bool:
    try:
        return find_growth(text, flags & ~re.UNICODE, anchored=anchored) is not None
    except (re.error, RuntimeError):
        return True
