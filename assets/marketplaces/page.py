"""Page: finds launch facts in the HTML of a server's page, by rules that are named.

What belongs here: every JSON object with `mcpServers` in `<pre>`, `<code>` and script strings, and
links to bundles; which rule matched is kept as evidence.
What does not: what an entry means (`config.py`) and fetching (`http.py`, `browser.py`).
"""

import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

from assets.marketplaces.jsobject import NotALiteral, read_literal

_BLOCKS = ("pre", "code", "script", "h1")


@dataclass(frozen=True)
class Found:
    """A launch fact and the rule that found it."""

    rule: str  # pre, code, script, link
    servers: dict[str, Any]  # the members of `mcpServers`; empty for a link
    bundle: str | None = None  # URL of an .mcpb
    sha256: str | None = None


class Blocks(HTMLParser):
    """Texts of the blocks that matter, by element, in order; and the links to bundles."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[tuple[str, str]] = []
        self.bundles: list[tuple[str, str | None]] = []
        self._open: list[tuple[str, list[str]]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BLOCKS:
            self._open.append((tag, []))
        values = dict(attrs)
        href = values.get("href") or ""
        if tag == "a" and re.search(r"\.mcpb(?:[?#]|$)", href):
            self.bundles.append((href, values.get("data-sha256")))

    def handle_endtag(self, tag: str) -> None:
        while self._open and any(name == tag for name, _ in self._open):
            name, parts = self._open.pop()
            self.texts.append((name, "".join(parts)))
            if name == tag:
                return

    def handle_data(self, data: str) -> None:
        for _, parts in self._open:
            parts.append(data)

    def first(self, tag: str) -> str | None:
        """The text of the first element of this name."""
        return next((text.strip() for name, text in self.texts if name == tag), None)


def find_config(html: str) -> Found | None:
    """The first launch fact of a page: a config in `<pre>` or `<code>`, then one in a script, then
    a link to a bundle. None where the page's source holds none."""
    blocks = Blocks(html)
    for rules in (("pre", "code"), ("script",)):
        for rule, text in blocks.texts:
            if rule in rules and "mcpServers" in text and (servers := _servers(text)):
                return Found(rule, servers)
    if blocks.bundles:
        href, sha256 = blocks.bundles[0]
        return Found("link", {}, bundle=href, sha256=sha256)
    return None


def _servers(text: str) -> dict[str, Any] | None:
    """The members of the first readable `mcpServers` object in a text, plain or inside a string."""
    for candidate in (text, _unescape(text)):
        for found in re.finditer(r"[\"']?mcpServers[\"']?\s*:\s*(?=\{)", candidate):
            servers = _json_at(candidate, found.end())
            if isinstance(servers, dict) and servers:
                return servers
    return None


def _json_at(text: str, at: int) -> Any:
    try:
        return json.JSONDecoder().raw_decode(text, at)[0]
    except ValueError:
        try:
            return read_literal(text, at)[0]
        except NotALiteral:
            return None


def _unescape(text: str) -> str:
    """A script's string literal as the text it stands for, roughly: one level of backslashes."""
    return text.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")
