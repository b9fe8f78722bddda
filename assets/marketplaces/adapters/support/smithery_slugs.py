"""Slugs: Smithery's server pages among the locations of its sitemap."""

from collections.abc import Container, Iterable
from urllib.parse import unquote, urlsplit

from assets.marketplaces.crawl.sitemap import Location

_PREFIXES = ("server", "servers")
_TABS = ("api", "capabilities", "prompts", "quality", "releases", "resources", "settings", "tools")
_MANY = 50


def make_server_key(name: str) -> str:
    """Names of 2025 begin with `@`, those of 2026 do not: the same server either way."""
    return name.lstrip("@").lower()


def _find_slug(loc: str) -> str | None:
    """The qualified name in a server page's address, None for any other page."""
    try:
        parts = [unquote(part) for part in urlsplit(loc).path.strip("/").split("/")]
    except ValueError:
        return None
    if parts[0] not in _PREFIXES or len(parts) not in (2, 3) or not all(parts):
        return None
    return "/".join(parts[1:])


def _is_tab(name: str, others: Container[str]) -> bool:
    """Whether a page is a part of another server's, as `exa/tools` is of `exa`."""
    owner, slash, last = name.partition("/")
    return bool(slash) and last in _TABS and owner in others


def find_server_pages(found: Iterable[Location]) -> dict[str, Location]:
    """Server pages among locations. One date on all of many pages is the hour in which the sitemap
    was made, not that of a change, and is left out."""
    dates = {name: when for loc, when in found if (name := _find_slug(loc))}
    named = [(name, when) for name, when in dates.items() if not _is_tab(name, dates)]
    made_at_once = len({when for _, when in named}) == 1 and len(named) >= _MANY
    return {make_server_key(name): (name, None if made_at_once else when) for name, when in named}


def is_shard(loc: str) -> bool:
    return loc.endswith(".xml") and "server" in loc.rpartition("/")[2].lower()
