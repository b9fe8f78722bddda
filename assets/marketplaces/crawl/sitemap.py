"""Sitemap: the locations of a sitemap or a sitemap index (sitemaps.org 0.9)."""

import re
from collections import deque
from collections.abc import Iterable
from urllib.parse import urljoin, urlsplit
from xml.etree.ElementTree import Element, ParseError, fromstring

from assets.marketplaces.launch.page_facts import CodeBlockParser
from assets.marketplaces.payload import FIX
from assets.marketplaces.policy import CrawlError, FetchedPage

Location = tuple[str, str | None]  # (loc, lastmod)
_EXPECTED = "a sitemap (XML)"


def parse_locations(page: FetchedPage) -> list[Location]:
    """(loc, lastmod) of every entry, at least one; entities are unescaped, hreflang alternates,
    which repeat a page, are not looked at. Raises CrawlError where the response is no sitemap."""
    if "html" in page.content_type:
        problem = f"{page.content_type} starting {page.decode_text()[:60]!r}"
        raise CrawlError("wrong_type", page.url, problem, _EXPECTED, FIX)
    text = page.decode_text()
    if "<!DOCTYPE" in text or "<!ENTITY" in text:  # entity bombs
        raise CrawlError("wrong_type", page.url, "XML with a DOCTYPE", _EXPECTED, FIX)
    try:
        root = fromstring(text)
    except ParseError as error:
        problem = f"XML broken off after {len(page.body):,} bytes ({error})"
        raise CrawlError("truncated", page.url, problem, _EXPECTED, FIX) from error
    if _strip_namespace(root) not in ("urlset", "sitemapindex"):
        raise CrawlError("missing_key", page.url, f"<{_strip_namespace(root)}>", "<urlset>", FIX)
    entries = [entry for element in root if (entry := _read_entry(element))[0]]
    if not entries:
        problem = "an empty sitemap with status 200"
        raise CrawlError("empty", page.url, problem, "at least one <loc>", FIX)
    return entries


def _read_entry(element: Element) -> Location:
    texts = {_strip_namespace(child): (child.text or "").strip() for child in element}
    return texts.get("loc", ""), texts.get("lastmod") or None


def _strip_namespace(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


_MOST = 200_000  # pages a walk remembers
# {"href":"/tags/x"} in a script, and the same inside a script's string
_STREAMED = re.compile(r"\\?\"href\\?\"\s{0,5}:\s{0,5}\\?\"(/[^\"\\\s]{1,300})")


class SiteWalk:
    """Pages still to read; `start` is the first."""

    def __init__(self, start: str) -> None:
        self.start = start
        self._due = deque([start])
        self._seen = {start}

    def next(self) -> str | None:
        """The page to read now, None at the end."""
        return self._due.popleft() if self._due else None

    def add(self, html: str, url: str, paths: Iterable[re.Pattern[str]]) -> list[str]:
        """Remembers the pages a page links whose path matches one of `paths`; those that are new,
        in order."""
        page = CodeBlockParser(html)
        streamed = [
            match[1]
            for block in page.blocks
            if block.name == "script"
            for match in _STREAMED.finditer(block.text)
        ]
        new = []
        for href in (*page.links, *streamed):
            linked = _resolve_same_site(url, href)
            if linked is None or linked in self._seen or len(self._seen) >= _MOST:
                continue
            if any(path.fullmatch(urlsplit(linked).path) for path in paths):
                self._seen.add(linked)
                self._due.append(linked)
                new.append(linked)
        return new


def _resolve_same_site(url: str, href: str) -> str | None:
    """The address of a link without query and fragment; None where it leaves the site."""
    try:
        linked, here = urlsplit(urljoin(url, href)), urlsplit(url)
    except ValueError:
        return None
    if (linked.scheme, linked.netloc) != (here.scheme, here.netloc):
        return None
    return f"{linked.scheme}://{linked.netloc}{linked.path.rstrip('/')}"
