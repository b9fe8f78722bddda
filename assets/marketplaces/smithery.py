"""Smithery: its platform API, and its sitemap for what the API does not show.

What belongs here: the list with its cap of 500 results, the sitemap's slugs, the page of a record.
What does not: what a record's connections say (`connections.py`).

The list shows a record's name and no way to launch it; that stands in the answer of the record's
own address. `homepage` is the author's page, never an endpoint.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar
from urllib.parse import quote, unquote, urlencode, urlsplit

from assets.marketplaces.connections import Facts, connection_facts
from assets.marketplaces.inputs import text
from assets.marketplaces.listing import Listing
from assets.marketplaces.payload import MEND, json_list, json_object, json_value
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
    problem,
)
from assets.marketplaces.redact import redact
from assets.marketplaces.sitemap import Location, locations
from warehouse.digest import sha256

_PAGE = 100  # the most the API allows
_STABLE = ("qualifiedName", "displayName", "description", "remote", "isDeployed", "createdAt")
_PREFIXES = ("server", "servers")
_TABS = ("api", "capabilities", "prompts", "quality", "releases", "resources", "settings", "tools")
_DETAIL = {"connections", "deploymentUrl", "security", "tools"}
_THIN = "the list names no launch facts; they stand on the server's own page"


class SmitheryAdapter(Adapter):
    """Reads the API's list, then the sitemap's slugs that it lacks, then each record's page."""

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
    }

    async def headers(self, post: Post) -> dict[str, str]:
        key = self.policy.keys.get("api_key")
        return {"Authorization": f"Bearer {key}"} if key else {}

    async def refs(self, get: Get, since: str | None = None) -> AsyncIterator[RefPage]:
        """The list, then what the sitemap adds. Truncated where the list says that it holds more
        than both showed."""
        scope = self.policy.scope or self.scopes
        seen: set[str] = set()
        total = 0
        if "api" in scope:
            async for page, said in self._listed(get, seen):
                total = max(total, said)
                yield page
        problems: list[dict[str, Any]] = []
        if "sitemap" in scope and self.policy.site_url:
            try:
                async for page in self._mapped(get, seen):
                    yield page
            except CrawlError as error:
                if "api" not in scope:
                    raise
                problems.append(problem("", error.url, error.kind, str(error)))
        short = len(seen) < total
        if short:
            hint = f"the list says {total:,} servers and {len(seen):,} came; set scope to `sitemap`"
            problems.append(problem("", self._list_url(1), "result_cap", hint))
        yield RefPage([], ended=not short, problems=problems, truncated=short)

    async def _listed(self, get: Get, seen: set[str]) -> AsyncIterator[tuple[RefPage, int]]:
        number = 1
        while True:
            url = self._list_url(number)
            body = await get(url, json_list("servers", empty_is_fine=number > 1))
            refs, problems = [], []
            fresh = 0
            for at, item in enumerate(body["servers"]):
                name = _qualified(item)
                if not name:
                    made_up = f"malformed-{sha256(f'{url}#{at}'.encode())[:12]}"
                    hint = "the record has no qualifiedName"
                    problems.append(problem(made_up, url, "malformed", hint))
                    continue
                fresh += _key(name) not in seen
                seen.add(_key(name))
                refs.append(Ref(name, self._detail_url(name), _revision(item), weak=True))
            said = body.get("pagination")
            said = said if isinstance(said, dict) else {}
            yield RefPage(refs, problems=problems), _number(said.get("totalCount"))
            if not fresh or number >= (_number(said.get("totalPages")) or number + 1):
                return
            number += 1

    async def _mapped(self, get: Get, seen: set[str]) -> AsyncIterator[RefPage]:
        """Servers of the sitemap that the list did not name."""
        index = f"{str(self.policy.site_url).rstrip('/')}/sitemap_index.xml"
        found = await get(index, locations)
        shards = [loc for loc, _ in found if _is_shard(loc)]
        pages = [entry for entry in found if not entry[0].endswith(".xml")]
        if pages:
            yield self._slugs(pages, seen)
        for shard in shards:
            yield self._slugs(await get(shard, locations), seen)

    def _slugs(self, found: list[Location], seen: set[str]) -> RefPage:
        refs = []
        for loc, lastmod in found:
            name = _slug(loc)
            if name and _key(name) not in seen:
                seen.add(_key(name))
                refs.append(Ref(name, self._detail_url(name), lastmod or "listed", weak=True))
        return RefPage(refs)

    def _list_url(self, number: int) -> str:
        # A seed makes the order stable from page to page and from night to night.
        query = urlencode({"page": number, "pageSize": _PAGE, "seed": 1})
        return f"{self.policy.base_url.rstrip('/')}/servers?{query}"

    def _detail_url(self, name: str) -> str:
        return f"{self.policy.base_url.rstrip('/')}/servers/{quote(name, safe='')}"

    async def detail(self, ref: Ref, get: Get, render: Render) -> Any:
        return await get(ref.url, _detail, ref=ref)

    def parse(self, raw: Any, ref: Ref) -> list[Listing]:
        """The listing of a record's own answer; a list's record is too thin to launch."""
        name = _qualified(raw)
        if not name:
            raise ValueError("the record has no qualifiedName")
        own = not _DETAIL.isdisjoint(raw)
        facts: Facts = connection_facts(raw) if own else {"reason": _THIN}
        return [
            Listing(
                marketplace=self.name,
                native_id=ref.native_id or name,
                name=redact(text(raw.get("displayName")) or name),
                description=redact(text(raw.get("description"))),
                **facts,
            )
        ]

    def saved(self, page: Page) -> list[Ref]:
        """Records of a list or of one answer, or a JSON list of them."""
        value = json_value(page)
        found = value if isinstance(value, list) else [value]
        if isinstance(value, dict) and isinstance(value.get("servers"), list):
            found = value["servers"]
            if not found and "pagination" in value:
                return []
        named = [one for one in found if _qualified(one)]
        if not named:
            keys = sorted(value)[:6] if isinstance(value, dict) else type(value).__name__
            expected = "a list or a record of smithery with qualifiedName"
            raise CrawlError("missing_key", page.url, f"{keys}", expected, MEND)
        return [Ref(_qualified(one), page.url, raw=one) for one in named]


def _detail(page: Page) -> dict[str, Any]:
    return json_object(page, "qualifiedName")


def _qualified(item: Any) -> str:
    name = item.get("qualifiedName") if isinstance(item, dict) else None
    return name.strip() if isinstance(name, str) else ""


def _key(name: str) -> str:
    """Names of 2025 begin with `@`, those of 2026 do not: the same server either way."""
    return name.lstrip("@").lower()


def _revision(item: Mapping[str, Any]) -> str:
    """A digest of what the list says about the server itself, not of its use."""
    return sha256(repr([text(item.get(key)) for key in _STABLE]).encode("utf-8", "replace"))


def _slug(loc: str) -> str | None:
    """The qualified name in a server page's address, None for any other page."""
    try:
        parts = [unquote(part) for part in urlsplit(loc).path.strip("/").split("/")]
    except ValueError:
        return None
    if parts[0] not in _PREFIXES or len(parts) not in (2, 3) or not all(parts):
        return None
    tab = len(parts) == 3 and not parts[1].startswith("@") and parts[2] in _TABS
    return None if tab else "/".join(parts[1:])


def _is_shard(loc: str) -> bool:
    return loc.endswith(".xml") and "server" in loc.rpartition("/")[2].lower()


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
