"""A model asks for a tool: `<tool_assistant>` blocks in any text, and the prompt that teaches them.

    <tool_assistant>
    server: the platform or field it belongs to
    tool: what it should do, and to what
    </tool_assistant>

The text is a model's: tags are misspelt, escaped, quoted, left open, cut off at the token limit.
Nothing here raises, and the work is linear in the text (1 MB of opening tags takes no more than
1 MB of prose).
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from serving.discovery.request_fields import LONGEST_BODY, parse_fields
from warehouse.llm.reasoning import drop_thinking

MOST = 20  # requests of one text: more is a loop, not a question
_LOOKED_AT = 5 * MOST  # blocks looked at, doubles and empty ones included

_LT, _GT = r"(?:<|＜|&lt;|&#60;|&amp;lt;)", r"(?:>|＞|&gt;|&#62;|&amp;gt;)"
_WORD = (
    r"tool[\s_-]{0,2}as+i\w{0,12}"  # tool_assistant, tool-assistant, ToolAssitant, tool_asistant
)
_OPEN = re.compile(rf"{_LT}\s{{0,4}}{_WORD}", re.IGNORECASE)
_REST = re.compile(rf"([^<>＜＞\n]{{0,600}}?)(/?)\s{{0,4}}{_GT}", re.IGNORECASE)
_CLOSE = re.compile(rf"{_LT}\s{{0,4}}[/\\]\s{{0,4}}{_WORD}\s{{0,4}}{_GT}?", re.IGNORECASE)
# `</tool>` and `</assistant>` close a block too, but only where nothing closes it by its name: a
# field may be written `<tool>…</tool>`.
_CLOSE_LIKE = re.compile(
    rf"{_LT}\s{{0,4}}[/\\]\s{{0,4}}(?:tool|assist|toll)[\w\s-]{{0,16}}{_GT}", re.IGNORECASE
)
_TOOL_TAG = re.compile(rf"{_LT}\s{{0,4}}(?:tool|task)\s{{0,4}}{_GT}", re.IGNORECASE)
_CUT_TAG = re.compile(rf"{_LT}\s{{0,4}}[/\\]?[\s\w-]{{0,16}}$")
_PARAGRAPH = re.compile(r"\n[ \t>]*\n|\n[ \t>]*(?:```|~~~)")
_WORD_CHARACTER = re.compile(r"\w")
_ATTRIBUTE = re.compile(r"(server|tool|task)\s{0,4}=\s{0,4}(\"[^\"]*\"|'[^']*')", re.IGNORECASE)
_FIELD = re.compile(r"\W{0,24}(?:mcp|server|tool|task|platform)", re.IGNORECASE)
_QUOTES = "`'\"”’»"


@dataclass(frozen=True)
class Wanted:
    """One request. `server` or `tool` is None where the model left it out; both are None in a block
    that asks for nothing. `problems` says what had to be supposed."""

    server: str | None
    tool: str | None
    raw: str = ""
    problems: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether there is anything to search for."""
        return bool(self.server or self.tool)


def parse(text: str) -> list[Wanted]:
    """The requests in a model's text, in order, each once; [] where there is no block.

    Never raises. At most MOST requests; the last one says so when there were more. What stands
    between `<think>` and `</think>` is no request.
    """
    if not isinstance(text, str):
        return []
    found: dict[tuple[str | None, ...], Wanted] = {}
    for request in _iter_requests(drop_thinking(text)):
        key = (
            _fold_text(request.server),
            _fold_text(request.tool),
            *(() if request.usable else (request.raw,)),
        )
        if key not in found and len(found) == MOST:
            last, kept = found.popitem()
            note = f"the text holds more than {MOST} requests; the first {MOST} count"
            found[last] = Wanted(kept.server, kept.tool, kept.raw, (*kept.problems, note))
            break
        found.setdefault(key, request)
    return list(found.values())


def write_block(server: str | None, tool: str | None) -> str:
    """The block that asks for this, as the prompt shows it."""
    lines = [f"server: {server}"] * bool(server) + [f"tool: {tool}"] * bool(tool)
    return "\n".join(["<tool_assistant>", *lines, "</tool_assistant>"])


@cache
def write_system_prompt(example: bool = False) -> str:
    """What a model is told that does not know the tools; with one worked example or without."""
    folder = Path(__file__).with_name("prompts")
    names = ("active", "active_example") if example else ("active",)
    return "\n\n".join(
        (folder / f"{name}.md").read_text(encoding="utf-8").strip() for name in names
    )


def _iter_requests(text: str) -> Iterator[Wanted]:
    for raw, body, note in _iter_blocks(text):
        if "&" in raw[:6]:
            body = html.unescape(body)
        for field in parse_fields(body):
            problems = (note, *field.problems) if note else field.problems
            # A block that asks for nothing has one problem: the one that explains it best.
            problems = problems if field.server or field.tool else problems[:1]
            yield Wanted(field.server, field.tool, raw, problems)


def _iter_blocks(text: str) -> Iterator[tuple[str, str, str | None]]:
    """(raw, body, problem) of each block."""
    at, looked = 0, 0
    while looked < _LOOKED_AT and (start := _OPEN.search(text, at)):
        looked += 1
        rest = _REST.match(text, start.end())
        inner = _find_tag_end(text, start)
        attributes = "\n".join(
            f"{m[1]}: {m[2]}" for m in _ATTRIBUTE.finditer(rest[1] if rest else "")
        )
        if rest and rest[2] and attributes:
            at = inner
            yield text[start.start() : inner], attributes, None
            continue
        end, at, note = _find_end(text, inner)
        body = text[inner:end]
        if _is_mention(text, start.start(), inner):
            at = inner
            continue
        yield text[start.start() : at], f"{attributes}\n{body}" if attributes else body, note


def _find_end(text: str, inner: int) -> tuple[int, int, str | None]:
    """Where a block's body ends, where the text goes on, and what is wrong with its end."""
    following = _OPEN.search(text, inner, inner + LONGEST_BODY)
    most = following.start() if following else min(len(text), inner + LONGEST_BODY)
    if close := _CLOSE.search(text, inner, most):
        return close.start(), close.end(), None
    tags = 0 if not _TOOL_TAG.search(text, inner, most) else 1
    for close in _CLOSE_LIKE.finditer(text, inner, most):
        if tags:
            tags -= 1  # it closes the field
            continue
        return close.start(), close.end(), f"closed by {close[0][:30]!r}, not `</tool_assistant>`"
    if following is None and most == len(text):
        cut = _CUT_TAG.search(text, max(inner, most - 40), most)
        end = cut.start() if cut else most
        if not (gap := _find_paragraph_end(text, inner, end)):
            return end, most, "cut off before `</tool_assistant>`"
        return gap, gap, "no `</tool_assistant>`; it counts up to the next empty line"
    end = _find_paragraph_end(text, inner, most) or most
    if (
        following
        and end == most
        and not _FIELD.match(text, (tag := _find_tag_end(text, following)), tag + 300)
    ):
        return end, tag, "closed by another `<tool_assistant>`, not `</tool_assistant>`"
    return end, end, "no `</tool_assistant>`; it counts up to the next empty line or block"


def _find_tag_end(text: str, tag: re.Match[str]) -> int:
    """Where an opening tag ends."""
    rest = _REST.match(text, tag.end())
    return rest.end() if rest else tag.end()


def _find_paragraph_end(text: str, inner: int, most: int) -> int | None:
    """The end of the first paragraph that says something."""
    found = _WORD_CHARACTER.search(text, inner, most)
    gap = _PARAGRAPH.search(text, found.end(), most) if found else None
    return gap.start() if gap else None


def _is_mention(text: str, start: int, inner: int) -> bool:
    """A tag that is spoken of (`<tool_assistant>`), not used."""
    return text[inner : inner + 1] in tuple(_QUOTES) and text[start - 1 : start] in tuple(_QUOTES)


def _fold_text(value: str | None) -> str | None:
    return " ".join(value.casefold().split()) if value else None
