"""Smithery: its platform API, and its sitemap for what the API does not show.

The list shows a record's name and no way to launch it; that stands in the answer of the record's
own address. `homepage` is the author's page, never an endpoint.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

from assets.marketplaces.adapters.support.records import cut_list, find_saved, list_refs
from assets.marketplaces.adapters.support.smithery_connections import Facts, read_connection_facts
from assets.marketplaces.adapters.support.smithery_slugs import (
    find_server_pages,
    is_shard,
    make_server_key,
)
from assets.marketplaces.crawl.sitemap import Location, parse_locations
from assets.marketplaces.fetch.payload import check_json_list, parse_json, parse_json_object
from assets.marketplaces.launch.mcp_servers import THIN
from assets.marketplaces.listed_tools import dump_tools
from assets.marketplaces.listing import Listing
from assets.marketplaces.policy import (
    Adapter,
    CrawlError,
    Evidence,
    Get,
    Page,
    Post,
    Ref,
    RefPage,
    Render,
)
from assets.marketplaces.result import make_problem
from assets.marketplaces.server_json.inputs import as_object, read_string
from warehouse.sanitize.redact import redact
from warehouse.storage.digest import sha256

_PAGE = 100  # the most the API allows
_STABLE = ("qualifiedName", "displayName", "description", "remote", "isDeployed", "createdAt")
_DETAIL = {"connections", "deploymentUrl", "security", "tools"}
_NAMELESS = "the record has no qualifiedName"


class SmitheryAdapter(Adapter):
    """Reads the sitemap, the API's list and each record's own page."""

    name: ClassVar[str] = "smithery"
    takes: ClassVar[tuple[str, ...]] = ("api_key",)
    scopes: ClassVar[tuple[str, ...]] = ("api", "sitemap")
    robots: ClassVar[bool] = True
    evidence: ClassVar[Mapping[str, Evidence]] = {
        "list": Evidence("documented", "provider's OpenAPI, 2026-08; one live page of 2025"),
        "paging": Evidence("captured", "a crawler's notes of 2026-08-30: 500 results at most"),
        "sitemap": Evidence("documented", "robots.txt names sitemap_index.xml; slugs are guessed"),
        "launch": Evidence("documented", "`connections` of the provider's OpenAPI, 2026-08"),
        "env": Evidence("documented", "configSchema; for a bundle its user_config"),
        "headers": Evidence("documented", "`x-from` of a setting; session-config page, 2026"),
        "secret": Evidence("guessed", "by the setting's name; the schema marks none"),
        "tools": Evidence("documented", "`tools` of a record's answer, OpenAPI of 2026-08"),
    }

    async def headers(self, post: Post) -> dict[str, str]:
        key = self.policy.keys.get("api_key")
        return {"Authorization": f"Bearer {key}"} if key else {}

    async def refs(self, get: Get, since: str | None = None) -> AsyncIterator[RefPage]:
        """The list, then what only the sitemap names. Truncated where the list says that it holds
        more than both showed."""
        scope = self.policy.scope or self.scopes
        mapped: dict[str, Location] = {}
        problems: list[dict[str, Any]] = []
        if "sitemap" in scope and self.policy.site_url:
            try:
                mapped = await self._read_sitemap(get)
            except CrawlError as error:
                if "api" not in scope:
                    raise
                problems.append(make_problem("", error.url, error.kind, str(error)))
        seen: set[str] = set()
        total = 0
        if "api" in scope:
            async for page, stated in self._read_list(get, seen, mapped):
                total = max(total, stated)
                yield page
        rest = [one for key, one in mapped.items() if key not in seen]
        for at in range(0, len(rest), _PAGE):
            yield RefPage([self._make_ref(name, when) for name, when in rest[at : at + _PAGE]])
        came = len(seen) + len(rest)
        if came < total:
            hint = f"the list says {total:,} servers and {came:,} came; the sitemap names the rest"
            problems.append(make_problem("", self._list_url(1), "result_cap", hint))
        yield RefPage([], ended=came >= total, problems=problems, truncated=came < total)

    async def _read_list(
        self, get: Get, seen: set[str], mapped: Mapping[str, Location]
    ) -> AsyncIterator[tuple[RefPage, int]]:
        def make_ref(item: Any, _: str) -> Ref | None:
            name = _read_qualified_name(item)
            if not name:
                return None
            seen.add(make_server_key(name))
            when = mapped.get(make_server_key(name), (name, None))[1]
            return self._make_ref(name, when or _digest_revision(item))

        number = 1
        while True:
            url = self._list_url(number)
            body = await get(url, check_json_list("servers", empty_is_fine=number > 1))
            known = len(seen)
            refs, problems = list_refs(body["servers"], url, make_ref, _NAMELESS)
            page = RefPage(refs, problems=problems)
            repeats = bool(page.refs) and len(seen) == known
            if repeats:
                fault = f"page {number} names only servers of earlier pages"
                page = cut_list(replace(page, refs=[]), url, "cursor_loop", fault)
            pagination = as_object(body.get("pagination"))
            yield page, _read_number(pagination.get("totalCount"))
            last = number >= (_read_number(pagination.get("totalPages")) or number + 1)
            if last or repeats or not body["servers"]:
                return
            number += 1

    async def _read_sitemap(self, get: Get) -> dict[str, Location]:
        """Servers of the sitemap: key -> (name, lastmod)."""
        index = f"{str(self.policy.site_url).rstrip('/')}/sitemap_index.xml"
        found = await get(index, parse_locations)
        made = find_server_pages(found)
        for shard in dict.fromkeys(loc for loc, _ in found if is_shard(loc)):
            made |= find_server_pages(await get(shard, parse_locations))
        return made

    def _make_ref(self, name: str, revision: str | None) -> Ref:
        """Weak: neither a digest of the list nor a sitemap's date shows every change."""
        slug = quote(name, safe="", errors="replace")
        url = f"{self.policy.base_url.rstrip('/')}/servers/{slug}"
        return Ref(name, url, revision or "listed", weak=True)

    def _list_url(self, number: int) -> str:
        # A seed makes the order stable from page to page and from run to run.
        query = urlencode({"page": number, "pageSize": _PAGE, "seed": 1})
        return f"{self.policy.base_url.rstrip('/')}/servers?{query}"

    async def detail(self, ref: Ref, get: Get, render: Render) -> Any:
        return await get(ref.url, lambda page: parse_json_object(page, "qualifiedName"), ref=ref)

    def parse(self, raw: Any, ref: Ref) -> list[Listing]:
        """The listing of a record's own answer; a list's record is too thin to launch."""
        name = _read_qualified_name(raw)
        if not name:
            raise ValueError(_NAMELESS)
        own = not _DETAIL.isdisjoint(raw)
        facts: Facts = read_connection_facts(raw) if own else {"reason": THIN}
        return [
            Listing(
                marketplace=self.name,
                native_id=ref.native_id or name,
                name=redact(read_string(raw.get("displayName")) or name),
                description=redact(read_string(raw.get("description"))),
                tools=dump_tools(raw.get("tools")),
                **facts,
            )
        ]

    def saved(self, page: Page) -> list[Ref]:
        """Records of a list or of one answer, or a JSON list of them."""
        value = parse_json(page)
        found = value if isinstance(value, list) else [value]
        if isinstance(value, dict) and isinstance(value.get("servers"), list):
            found = value["servers"]
            if not found and "pagination" in value:
                return []
        expected = "a list or a record of smithery with qualifiedName"
        named = find_saved(page, value, found, _read_qualified_name, expected)
        return [Ref(_read_qualified_name(one), page.url, raw=one) for one in named]


def _read_qualified_name(item: Any) -> str:
    name = as_object(item).get("qualifiedName")
    return name.strip() if isinstance(name, str) else ""


def _digest_revision(item: Mapping[str, Any]) -> str:
    """A digest of what the list says about the server itself, not of its use."""
    return sha256(repr([read_string(item.get(key)) for key in _STABLE]).encode("utf-8", "replace"))


def _read_number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
