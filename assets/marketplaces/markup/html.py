"""Markup: the tags and texts of an HTML page, in one pass whatever the page holds.

A page is third-party text: the standard library's parser reads hostile ones in quadratic time (100
kB of `<a b=` took a minute). This one is linear: a tag, comment or value that does not end takes
the rest of the page with it, as in a browser.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_RAW = ("script", "style", "textarea", "title")
_RAW_END = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in _RAW}
_NAME = re.compile(r"[A-Za-z][^\s/>]*")
_NEXT = re.compile(r"[>=]")
_SPACE = re.compile(r"\s*")
_ATTRIBUTE = re.compile(r"([^\s\"'>/=]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>\"'][^\s>]*)))?")
_LONGEST_TAG = 100_000  # characters of which attributes are read


@dataclass(frozen=True)
class Tag:
    """A start tag (`ends` False) or an end tag; its name in lower case."""

    name: str
    ends: bool = False
    source: str = field(default="", repr=False)

    @property
    def attributes(self) -> dict[str, str]:
        """Names in lower case; the first of equal ones counts. Read on demand."""
        found: dict[str, str] = {}
        for match in _ATTRIBUTE.finditer(self.source[:_LONGEST_TAG]):
            value = match[2] or match[3] or match[4] or ""
            found.setdefault(match[1].lower(), unescape_html(value))
        return found


def read_tokens(source: str) -> Iterator[Tag | str]:
    """Tags and the texts between them, in order; character references are resolved, except in
    scripts and styles."""
    at, end = 0, len(source)
    while at < end:
        opened = source.find("<", at)
        if opened < 0:
            yield unescape_html(source[at:])
            return
        if opened > at:
            yield unescape_html(source[at:opened])
        tag, at = _read_markup(source, opened)
        if isinstance(tag, str):
            yield tag
        elif tag is not None:
            yield tag
            if not tag.ends and tag.name in _RAW:
                raw, at = _read_raw(source, at, tag.name)
                yield raw
                yield Tag(tag.name, True)


def unescape_html(text: str) -> str:
    """The text with its character references resolved."""
    if "&" not in text:
        return text
    try:
        return html.unescape(text)
    except ValueError:  # a number of thousands of digits
        return text


def _read_markup(source: str, at: int) -> tuple[Tag | str | None, int]:
    """(what stands at a `<`, where it ends): a tag, a text, or None for a comment."""
    if source.startswith("<!--", at):
        return None, _find_after(source, "-->", at + 4)
    if source.startswith(("<!", "<?"), at):
        return None, _find_after(source, ">", at + 2)
    ends = source.startswith("</", at)
    name = _NAME.match(source, at + (2 if ends else 1))
    if name is None:
        return "<", at + 1
    end = _find_tag_end(source, name.end())
    if end is None:
        return None, len(source)
    return Tag(name[0].lower(), ends, source[name.end() : end]), end + 1


def _find_tag_end(source: str, at: int) -> int | None:
    """Where the `>` of a tag stands; one inside a quoted value is none."""
    while found := _NEXT.search(source, at):
        if found[0] == ">":
            return found.start()
        space = _SPACE.match(source, found.end())
        at = space.end() if space else found.end()
        if source[at : at + 1] in ("'", '"') and at < len(source):
            at = source.find(source[at], at + 1) + 1
            if at == 0:
                return None
    return None


def _read_raw(source: str, at: int, name: str) -> tuple[str, int]:
    """(content of a script or the like, where its end tag ends)."""
    found = _RAW_END[name].search(source, at)
    if found is None:
        return source[at:], len(source)
    text = source[at : found.start()]
    if name in ("textarea", "title"):
        text = unescape_html(text)
    return text, _find_after(source, ">", found.end())


def _find_after(source: str, mark: str, at: int) -> int:
    found = source.find(mark, at)
    return len(source) if found < 0 else found + len(mark)
