"""Sitemap: the XML of sitemaps.org as the replicas write it."""

from collections.abc import Iterable
from html import escape

from demo.replicas.reply import XML, ReplicaReply

_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
_SPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
Location = tuple[str, str | None]  # address, last edit


def make_index(locations: Iterable[str]) -> ReplicaReply:
    entries = "".join(
        f"  <sitemap><loc>{escape(location)}</loc></sitemap>\n" for location in locations
    )
    return _make_reply(
        f"{_HEAD}<sitemapindex {_SPACE}>\n{entries}</sitemapindex>\n", None, last=False
    )


def make_urls(
    locations: Iterable[Location], *, last: bool, languages: Iterable[str] = (), tag: str = "loc"
) -> ReplicaReply:
    """A child sitemap; `tag` is what an address stands in."""
    entries_shown = list(locations)
    entries = "".join(_make_entry(loc, edited, languages, tag) for loc, edited in entries_shown)
    space = f'{_SPACE}\n        xmlns:xhtml="http://www.w3.org/1999/xhtml"'
    edited = max((edited for _, edited in entries_shown if edited), default=None)
    return _make_reply(f"{_HEAD}<urlset {space}>\n{entries}</urlset>\n", edited, last)


def _make_entry(loc: str, edited: str | None, languages: Iterable[str], tag: str) -> str:
    path = loc.split("/", 3)[3]
    host = loc.removesuffix(path)
    alternates = "".join(
        f'    <xhtml:link rel="alternate" hreflang="{code}" href="{escape(host + code)}/{path}"/>\n'
        for code in languages
    )
    when = f"    <lastmod>{edited}</lastmod>\n" if edited else ""
    return f"  <url>\n    <{tag}>{escape(loc)}</{tag}>\n{when}{alternates}  </url>\n"


def _make_reply(text: str, edited: str | None, last: bool) -> ReplicaReply:
    return ReplicaReply(text.encode(), XML, last=last, validators=True, edited=edited)
