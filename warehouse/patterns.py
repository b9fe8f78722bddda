r"""Patterns over third-party text, matched by RE2: its time is linear in the text.

The syntax is RE2's with these of Python: `\w \d \s` are Unicode's, `\uXXXX` and `\Z` are
understood. `\b` knows ASCII letters only. There are no back-references and no possessive repeats.
Of look-arounds there is one kind: characters that may not be right before or behind a match. A
pattern that looks there matches no empty text, and no place by `^`.

RE2 costs some 3 us a match, `re` .3: a pattern whose work at every start is
bounded stays with `re` (a law in `tests/orchestration/test_laws.py` computes which).
"""

import re
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from typing import Any

import re2

_WORD, _SPACE = r"\p{L}\p{N}_", r"\t-\r\x1c-\x20\x{85}\p{Z}"
_OUTSIDE = {
    "w": f"[{_WORD}]", "W": f"[^{_WORD}]", "s": f"[{_SPACE}]", "S": f"[^{_SPACE}]",
    "d": r"\p{Nd}", "D": r"\P{Nd}", "Z": r"\z",
}  # fmt: skip
_INSIDE = {"w": _WORD, "s": _SPACE, "d": r"\p{Nd}", "D": r"\P{Nd}"}
_MEMORY = 64 << 20  # bytes of one pattern's automaton at most; beyond, RE2 works without it, slower
_BEGINNING = "\0"  # what is before the text, for a pattern that looks at the character before


class Match:
    """As `re.Match`."""

    __slots__ = ("_names", "_spans", "string")

    def __init__(self, text: str, spans: list[tuple[int, int]], names: dict[str, int]) -> None:
        self.string, self._spans, self._names = text, spans, names

    def span(self, group: int | str = 0) -> tuple[int, int]:
        return self._spans[self._names[group] if isinstance(group, str) else group]

    def start(self, group: int | str = 0) -> int:
        return self.span(group)[0]

    def end(self, group: int | str = 0) -> int:
        return self.span(group)[1]

    def __getitem__(self, group: int | str) -> Any:
        start, end = self.span(group)
        return None if start < 0 else self.string[start:end]

    def group(self, group: int | str = 0) -> Any:
        return self[group]

    def groups(self, default: Any = None) -> tuple[Any, ...]:
        values = [self[group] for group in range(1, len(self._spans))]
        return tuple(default if value is None else value for value in values)

    def groupdict(self) -> dict[str, Any]:
        return {name: self[name] for name in self._names}

    @property
    def lastindex(self) -> int | None:
        """The last group that matched."""
        last = len(self._spans) - 1
        return next((group for group in range(last, 0, -1) if self.start(group) >= 0), None)


class Pattern:
    """Compiled when it is first used; the methods are those of `re.Pattern`."""

    def __init__(self, pattern: str, unless_after: str = "", unless_before: str = "") -> None:
        self.pattern, self._after, self._before = pattern, unless_after, unless_before

    def __repr__(self) -> str:
        return f"Pattern({self.pattern!r})"

    @cached_property
    def _regexp(self) -> Any:
        """The characters beside a match are matched with it: the engine has no look-arounds."""
        source = _translate(self.pattern)
        if self._after or self._before:
            source = f"({source})"
        if self._after:
            source = rf"(?:\x00|{_negate(self._after)}){source}"
        if self._before:
            source = rf"{source}(?:{_negate(self._before)}|\z)"
        options = re2.Options()
        options.log_errors, options.max_mem = False, _MEMORY
        try:
            return re2.compile(source, options)
        except re2.error as error:
            raise ValueError(f"{self.pattern!r} is not a pattern of RE2: {error}") from None

    @cached_property
    def _groups(self) -> tuple[range, dict[str, int]]:
        """(the engine's groups that are ours, the names of ours)."""
        first = 1 if self._after or self._before else 0
        named = sorted(self._regexp.groupindex.items(), key=lambda item: item[1])
        return range(first, self._regexp.groups + 1), {name: at - first for name, at in named}

    def _iterate(self, method: str, text: str, start: int = 0) -> Iterator[Match]:
        before = _BEGINNING if self._after else ""
        data = _encode(before + text)
        plain = len(data) == len(before) + len(text)  # then bytes are characters
        groups, names = self._groups
        find = getattr(self._regexp, method)
        at = start if plain or not start else len(_encode((before + text)[:start]))
        counted, characters = 0, -len(before)
        while (match := find(data, at)) is not None:
            spans = [match.span(group) for group in groups]
            begin, end = spans[0]
            if plain:
                if before:
                    spans = [(a - 1, b - 1) if a >= 0 else (a, b) for a, b in spans]
            else:
                places = {-1: -1}
                for place in sorted({place for span in spans for place in span if place >= 0}):
                    characters += len(data[counted:place].decode())
                    counted, places[place] = place, characters
                spans = [(places[a], places[b]) for a, b in spans]
            yield Match(text, spans, names)
            # The next match may need the last character as the one before it.
            at = _find_character(data, end - 1) if self._after else end
            if begin == end:
                if end >= len(data):
                    return
                at = end + len(_find_first(data[end : end + 4]))

    def search(self, text: str, start: int = 0) -> Match | None:
        return next(self._iterate("search", text, start), None)

    def match(self, text: str, start: int = 0) -> Match | None:
        return next(self._iterate("match", text, start), None)

    def fullmatch(self, text: str) -> Match | None:
        if self._after or self._before:  # nothing is beside it
            return compile_pattern(self.pattern).fullmatch(text)
        return next(self._iterate("fullmatch", text), None)

    def finditer(self, text: str) -> Iterator[Match]:
        return self._iterate("search", text)

    def findall(self, text: str) -> list[Any]:
        """The matches, or their group where the pattern has one, or tuples of its groups."""
        result: list[Any] = []
        for match in self.finditer(text):
            groups = match.groups("")
            result.append(groups if len(groups) > 1 else groups[0] if groups else match[0])
        return result

    def sub(self, new: str | Callable[[Match], str], text: str) -> str:
        r"""Each match replaced by a text as it is (`\1` too), or by what `new` makes of it."""
        pieces, end = [], 0
        for match in self.finditer(text):
            pieces += [text[end : match.start()], new if isinstance(new, str) else new(match)]
            end = match.end()
        return "".join([*pieces, text[end:]]) if pieces else text

    def split(self, text: str) -> list[str]:
        pieces, end = [], 0
        for match in self.finditer(text):
            pieces.append(text[end : match.start()])
            end = match.end()
        return [*pieces, text[end:]]


@lru_cache(maxsize=4_096)
def compile_pattern(pattern: str, *, unless_after: str = "", unless_before: str = "") -> Pattern:
    """The pattern, with its flags as `(?i)`. unless_after, unless_before: characters, as in
    brackets, that may not be next to a match (`\\w`; `^\\s`: all but blanks)."""
    return Pattern(pattern, unless_after, unless_before)


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return re.sub("[\ud800-\udfff]", "\ufffd", text).encode()


def _find_first(data: bytes) -> bytes:
    return data.decode("utf-8", "ignore")[0].encode()


def _find_character(data: bytes, at: int) -> int:
    """Where the character begins that the byte at a place belongs to."""
    while data[at] & 0xC0 == 0x80:
        at -= 1
    return at


def _negate(characters: str) -> str:
    inside = characters.removeprefix("^")
    return _translate(f"[{'' if inside != characters else '^'}{inside}]")


def _translate(pattern: str) -> str:
    """Python's escapes in RE2's syntax."""
    out: list[str] = []
    at, inside = 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\" and at + 1 < len(pattern):
            letter = pattern[at + 1]
            if letter in "uU":
                width = 4 if letter == "u" else 8
                out.append(rf"\x{{{pattern[at + 2 : at + 2 + width]}}}")
                at += 2 + width
                continue
            if inside and letter in "WS":
                raise ValueError(f"{pattern!r}: \\{letter} within brackets; list what it means")
            out.append((_INSIDE if inside else _OUTSIDE).get(letter, f"\\{letter}"))
            at += 2
            continue
        if char == "[" and not inside:
            inside = True
            width = 2 if pattern[at + 1 : at + 2] == "^" else 1
            if pattern[at + width : at + width + 1] == "]":  # the first one is a character
                out.append(pattern[at : at + width] + r"\]")
                at += width + 1
                continue
            out.append(pattern[at : at + width])
            at += width
            continue
        if char == "]":
            inside = False
        out.append(char)
        at += 1
    return "".join(out)
