"""Walk: lists of the replicas read to their end, as plainly as possible."""

import re
from collections.abc import Callable, Iterator, Mapping
from html import unescape
from itertools import count
from typing import Any

import httpx2

from demo.sites.json_sites import TOKEN
from demo.world.full import FullWorld
from demo.world.record import KEYS

HEADERS: Mapping[str, dict[str, str]] = {
    "glama": {"Authorization": f"Bearer {KEYS['glama']['api_key']}"},
    "pulsemcp": {
        "X-API-Key": KEYS["pulsemcp"]["api_key"],
        "X-Tenant-ID": KEYS["pulsemcp"]["tenant_id"],
    },
    "pipedream": {"Authorization": f"Bearer {TOKEN}"},
}


def client(site: str, url: str) -> httpx2.Client:
    return httpx2.Client(base_url=url, headers=HEADERS.get(site), timeout=30)


def _follow(http: httpx2.Client, path: str, key: str, **query: str) -> Iterator[dict[str, Any]]:
    """The records of each page, as long as one names the next."""
    more: dict[str, str] = {}
    while True:
        body = http.get(path, params=query | more).json()
        yield from body[key]
        page = body.get("metadata") or body.get("page_info") or body.get("pageInfo") or {}
        cursor = page.get("nextCursor") or page.get("end_cursor") or page.get("endCursor")
        if not cursor or not body[key]:
            return
        more = {"cursor" if "metadata" in body else "after": cursor}


def envelope(http: httpx2.Client, **query: str) -> Iterator[dict[str, Any]]:
    """Records of the registry and of PulseMCP."""
    return _follow(http, "/v0.1/servers", "servers", limit="100", **query)


def _envelope(http: httpx2.Client) -> list[str]:
    names = [item["server"]["name"] for item in envelope(http, version="latest")]
    return [name.rpartition("/")[2] for name in names]


def locations(http: httpx2.Client, path: str) -> list[str]:
    return [unescape(loc) for loc in re.findall("<loc>(.*?)</loc>", http.get(path).text)]


def _sitemaps(http: httpx2.Client, index: str, page: str) -> list[str]:
    children = [location for location in locations(http, index) if "section=static" not in location]
    found = [loc for child in children for loc in locations(http, child)]
    return [loc.rpartition("/")[2] for loc in found if re.search(page, loc)]


def _glama(http: httpx2.Client) -> list[str]:
    return [
        item["slug"]
        for scope in ("servers", "connectors")
        for item in _follow(http, f"/api/mcp/v1/{scope}", scope, first="100")
    ]


def _deepnlp(http: httpx2.Client) -> list[str]:
    found: list[str] = []
    for number in count():
        query = {"mode": "list", "page_id": str(number), "count_per_page": "100"}
        items = http.get("/api/mcp_marketplace/v1", params=query).json()["items"]
        found += [item["id"].partition("/")[2] for item in items]
        if not items:
            break
    return found


WALKS: Mapping[str, Callable[[httpx2.Client], list[str]]] = {
    "registry": _envelope,
    "pulsemcp": _envelope,
    "smithery": lambda http: _sitemaps(http, "/sitemap_index.xml", "/servers/"),
    "mcpso": lambda http: _sitemaps(http, "/sitemap.xml", "/servers/"),
    "mcphub": lambda http: _sitemaps(http, "/sitemap.xml", "/mcp-servers/."),
    "glama": _glama,
    "deepnlp": _deepnlp,
    "pipedream": lambda http: [
        item["name_slug"] for item in _follow(http, "/v1/connect/apps", "data", limit="100")
    ],
    "docker": lambda http: list(http.get("/mcp/catalog/v3/catalog.json").json()["registry"]),
}

# One address of each site at which its list begins.
FIRST: Mapping[str, str] = {
    "registry": "/v0.1/servers?limit=100",
    "pulsemcp": "/v0.1/servers?limit=100",
    "smithery": "/servers?pageSize=100",
    "mcpso": "/sitemap.xml?section=servers&page=1",
    "mcphub": "/sitemap/0.xml",
    "glama": "/api/mcp/v1/servers?first=100",
    "deepnlp": "/api/mcp_marketplace/v1?count_per_page=100",
    "pipedream": "/v1/connect/apps?limit=100",
    "docker": "/mcp/catalog/v3/catalog.json",
}


def count_differences(world: FullWorld) -> dict[str, int]:
    """How many servers the second day adds, changes and takes down."""
    numbers = range(world.count)
    return {
        "new": len(world.records) - world.count,
        "changed": sum(map(world.is_changed, numbers)),
        "gone": sum(map(world.is_gone, numbers)),
    }
