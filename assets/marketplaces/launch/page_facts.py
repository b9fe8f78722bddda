"""Markup: the tags and texts of an HTML page, in one pass whatever the page holds.

A page is third-party text: the standard library's parser reads hostile ones in quadratic time (100
kB of `<a b=` took a minute). This one is linear: a tag, comment or value that does not end takes
the rest of the page with it, as in a browser.
"""

import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from assets.marketplaces.launch.js_literal import NotALiteral, read_literal
from warehouse.storage.digest import Sha256, read_sha256

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
class HtmlTag:
    """A start tag (`ends` False) or an end tag; its name in lower case."""

    name: str
    ends: bool = False
    source: str = field(default="", repr=False)

    @property
    def attributes(self) -> dict[str, str]:
        """Names in lower case; the first of equal ones counts. Read on demand."""
        result: dict[str, str] = {}
        for match in _ATTRIBUTE.finditer(self.source[:_LONGEST_TAG]):
            value = match[2] or match[3] or match[4] or ""
            result.setdefault(match[1].lower(), unescape_html(value))
        return result


def read_tokens(source: str) -> Iterator[HtmlTag | str]:
    """Tags and the texts between them, in order; character references are resolved, except in
    scripts and styles."""
    at = 0
    while match := _TOKEN.match(source, at):
        at = match.end()
        if match["name"]:
            tag = HtmlTag(match["name"].lower(), bool(match["ends"]), match["source"])
            yield tag
            if not tag.ends and tag.name in _RAW:
                end = _RAW_END[tag.name].search(source, at)
                raw = source[at : end.start() if end else None]
                yield raw if tag.name in ("script", "style") else unescape_html(raw)
                yield HtmlTag(tag.name, True)
                at = end.end() if end else len(source)
        elif match["text"]:
            yield unescape_html(match["text"])


def unescape_html(text: str) -> str:
    """The text with its character references resolved."""
    if "&" not in text:
        return text
    try:
        return html.unescape(text)
    except ValueError:  # a number of thousands of digits
        return text


_BLOCKS = ("pre", "code", "script", "h1", "h2", "h3", "title", "p")
_DEEPEST = 8  # blocks inside blocks
_STREAMED = re.compile(r"S:\w+")  # a part that React sends after the page, `<div hidden id="S:0">`
_CONFIG = re.compile(r"[\"']?mcpServers[\"']?\s{0,20}:\s{0,20}(?=\{)")
_TRIED = 40  # places of one page at which a config is looked for


@dataclass(frozen=True)
class PageLaunchFacts:
    """A launch fact and the rule that found it."""

    rule: str  # pre, code, script, link
    servers: dict[str, Any]  # the members of `mcpServers`; empty for a link
    bundle: str | None = None  # URL of an .mcpb
    sha256: Sha256 | None = None
    part: str = ""  # the id of the streamed part in which it stood


@dataclass(frozen=True)
class CodeBlock:
    """The text of one element, and the streamed part it stands in."""

    name: str
    text: str
    part: str = ""


class CodeBlockParser:
    """What matters of a page: texts of blocks in order of their ends, links, what `<meta>` says,
    the canonical address and the bundles it links."""

    def __init__(self, source: str) -> None:
        self.blocks: list[CodeBlock] = []
        self.links: list[str] = []
        self.bundles: list[tuple[str, Sha256 | None]] = []
        self.meta: dict[str, str] = {}
        self.canonical = ""
        self._open: list[tuple[str, list[str]]] = []
        self._divs: list[str] = []
        for token in read_tokens(source):
            if isinstance(token, str):
                for _, texts in self._open:
                    texts.append(token)
            elif token.ends:
                self._end_tag(token.name)
            else:
                self._start(token)
        while self._open:  # a page may end inside a block
            self._close()

    def find_first(self, name: str) -> str | None:
        """The text of the first element of this name."""
        return next((block.text.strip() for block in self.blocks if block.name == name), None)

    @property
    def host(self) -> str:
        """The host the page says it is of, "" where it does not."""
        return _find_host(self.canonical) or _find_host(self.meta.get("og:url", ""))

    def _start(self, tag: HtmlTag) -> None:
        if tag.name in _BLOCKS and len(self._open) < _DEEPEST:
            self._open.append((tag.name, []))
        elif tag.name == "div":
            name = tag.attributes.get("id", "") if "S:" in tag.source else ""
            self._divs.append(name if _STREAMED.fullmatch(name) else "")
        elif tag.name == "a":
            href = tag.attributes.get("href", "").strip()
            if href:
                self.links.append(href)
            if re.search(r"\.mcpb(?:[?#]|$)", href):
                self.bundles.append((href, read_sha256(tag.attributes.get("data-sha256"))))
        elif tag.name == "meta":
            attributes = tag.attributes
            self.meta.setdefault(
                attributes.get("name") or attributes.get("property", ""),
                attributes.get("content", ""),
            )
        elif (
            tag.name == "link"
            and (attributes := tag.attributes).get("rel", "").lower() == "canonical"
        ):
            self.canonical = self.canonical or attributes.get("href", "")

    def _end_tag(self, name: str) -> None:
        if name == "div" and self._divs:
            self._divs.pop()
        while any(opened == name for opened, _ in self._open):
            if self._close() == name:
                return

    def _close(self) -> str:
        name, texts = self._open.pop()
        part = next((div for div in reversed(self._divs[-50:]) if div), "")
        self.blocks.append(CodeBlock(name, "".join(texts), part))
        return name


def find_config(source: str) -> PageLaunchFacts | None:
    """The first launch fact of a page: a config in `<pre>` or `<code>`, then one in a script, then
    a link to a bundle. None where the page's source holds none."""
    return next(find_configs(CodeBlockParser(source)), None)


def find_configs(page: CodeBlockParser) -> Iterator[PageLaunchFacts]:
    """Every launch fact of a page, in that order."""
    tried = _TRIED
    for rules in (("pre", "code"), ("script",)):
        for block in page.blocks:
            if block.name not in rules or "mcpServers" not in block.text or tried <= 0:
                continue
            tried -= 1
            servers = find_config_in(block.text)
            if servers:
                yield PageLaunchFacts(block.name, servers, part=block.part)
    for href, sha256 in page.bundles[:1]:
        yield PageLaunchFacts("link", {}, bundle=href, sha256=sha256)


def find_config_in(text: str) -> dict[str, Any] | None:
    """The members of the first readable `mcpServers` object in a text, plain or inside a string."""
    for candidate in (text, text.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")):
        for match in islice(_CONFIG.finditer(candidate), _TRIED):
            servers = _read_json_at(candidate, match.end())
            if isinstance(servers, dict) and servers:
                return servers
    return None


def _read_json_at(text: str, at: int) -> Any:
    try:
        return json.JSONDecoder().raw_decode(text, at)[0]
    except (ValueError, RecursionError):
        try:
            return read_literal(text, at)[0]
        except NotALiteral:
            return None


def _find_host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
