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
_RAW_END = {name: re.compile(rf"</{name}(?=[\s/>])[^>]*+>?", re.IGNORECASE) for name in _RAW}
# A comment or declaration, a tag (a `>` inside a quoted value does not end it), one without an end.
_TOKEN = re.compile(
    r"<!--.*?(?:-->|\Z)|<[!?].*?(?:>|\Z)|<(?P<ends>/?)(?P<name>[A-Za-z][^\s/>]*+)"
    r"(?P<source>(?:[^=>]++|=\s*+(?:\"[^\"]*+\"|'[^']*+'|(?![\"'])))*+)>"
    r"|</?[A-Za-z].*|(?P<text><|[^<]++)",
    re.DOTALL,
)
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
    at = 0
    while found := _TOKEN.match(source, at):
        at = found.end()
        if found["name"]:
            tag = Tag(found["name"].lower(), bool(found["ends"]), found["source"])
            yield tag
            if not tag.ends and tag.name in _RAW:
                end = _RAW_END[tag.name].search(source, at)
                raw = source[at : end.start() if end else None]
                yield raw if tag.name in ("script", "style") else unescape_html(raw)
                yield Tag(tag.name, True)
                at = end.end() if end else len(source)
        elif found["text"]:
            yield unescape_html(found["text"])


def unescape_html(text: str) -> str:
    """The text with its character references resolved."""
    if "&" not in text:
        return text
    try:
        return html.unescape(text)
    except ValueError:  # a number of thousands of digits
        return text
