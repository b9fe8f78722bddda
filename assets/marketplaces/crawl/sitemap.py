"""Sitemap: the locations of a sitemap or a sitemap index (sitemaps.org 0.9)."""

from xml.etree.ElementTree import Element, ParseError, fromstring

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
