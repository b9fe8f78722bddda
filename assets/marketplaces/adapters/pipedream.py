"""Pipedream: the apps of Pipedream Connect, each a remote server behind its gateway.

Every run needs an account of the user with Pipedream; so each listing is a template of headers. The
form of 2025 held the user's id, a credential, in the path of its URL: it stands as a place to fill
in.
"""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar
from urllib.parse import urlencode

from assets.marketplaces.adapters.records import follow_cursor, list_refs
from assets.marketplaces.launch.mcp_config import (
    make_server_listings,
    read_captured,
    read_remote_facts,
    read_text,
)
from assets.marketplaces.launch.page_facts import HtmlTag, read_tokens
from assets.marketplaces.listing import HeaderVar, Listing
from assets.marketplaces.payload import FIX, check_json_list, parse_json, read_html
from assets.marketplaces.policy import (
    CrawlError,
    FactEvidence,
    FetchedPage,
    FetchPage,
    MarketplaceAdapter,
    PostForm,
    RecordPage,
    RecordRef,
)
from assets.marketplaces.server_json.inputs import as_object

_REMOTE = "https://remote.mcp.pipedream.net/v3"
_OLD_GATEWAY = "mcp.pipedream.net"
_LIMIT = 100
_NAMELESS = "the app has no `name_slug`"
_APP = re.compile(r"https://mcp\.pipedream\.com/app/([\w\-.~%]{1,200})")
_PLACE = re.compile(r"(//mcp\.pipedream\.net/)(?:\{secret\}|<[^<>/]{1,100}>)(?=/|$)")


class PipedreamAdapter(MarketplaceAdapter):
    """Pipedream's apps through its documented API."""

    name: ClassVar[str] = "pipedream"
    needs: ClassVar[tuple[str, ...]] = ("client_id", "client_secret")
    robots: ClassVar[bool] = False
    evidence: ClassVar[Mapping[str, FactEvidence]] = {
        "list": FactEvidence("documented", "GET /v1/connect/apps, API reference, read 2026-11"),
        "paging": FactEvidence("documented", "`after` and page_info.end_cursor, API reference"),
        "launch": FactEvidence("documented", "remote MCP server v3 and its x-pd- headers, 2026"),
        "headers": FactEvidence("documented", "x-pd- headers and a bearer token, 2026"),
        "url": FactEvidence("documented", "one URL for every app; the app is a header"),
    }

    async def headers(self, post: PostForm) -> dict[str, str]:
        """A bearer token of the user's OAuth client."""
        keys = self.policy.keys
        url = f"{self._make_root()}/v1/oauth/token"
        form = {"grant_type": "client_credentials"} | {key: keys[key] for key in self.needs}
        token = (await post(url, form)).get("access_token")
        if not isinstance(token, str) or not token:
            fix = "look at the OAuth client in Pipedream's settings"
            raise CrawlError("missing_key", url, "no token in the answer", "`access_token`", fix)
        return {"Authorization": f"Bearer {token}"}

    async def refs(self, get: FetchPage, since: str | None = None) -> AsyncIterator[RecordPage]:
        shown = 0

        def make_url(after: str | None) -> str:
            query = {"limit": str(_LIMIT)} | ({"after": after} if after else {})
            return f"{self._make_root()}/v1/connect/apps?{urlencode(query)}"

        async def read(url: str, first: bool) -> tuple[RecordPage, str | None]:
            nonlocal shown
            body = await get(url, check_json_list("data", empty_is_fine=not first))
            refs, problems = list_refs(body["data"], url, _make_ref, _NAMELESS)
            shown += len(body["data"])
            info = as_object(body.get("page_info"))
            after = info.get("end_cursor") if body["data"] else None
            after = after if isinstance(after, str) and after else None
            total = info.get("total_count")
            short = after is None and isinstance(total, int) and shown < total
            page = RecordPage(refs, after is None and not short, problems, truncated=short)
            return page, after

        async for page in follow_cursor(make_url, read):
            yield page

    def parse(self, raw: Any, ref: RecordRef) -> list[Listing]:
        """The remote server of one app, or the servers of a config of 2025."""
        if not isinstance(raw, Mapping):
            raise ValueError(f"the record is {type(raw).__name__}, not an object")
        identity = {
            "marketplace": self.name,
            "native_id": ref.native_id,
            "name": read_text(raw.get("name")) or ref.native_id,
            "description": read_text(raw.get("description")),
        }
        if isinstance(raw.get("servers"), Mapping):
            server_listings = make_server_listings(identity, raw["servers"], "config")
            urls = [
                item.url and _PLACE.sub(r"\1{external_user_id}", item.url)
                for item in server_listings
            ]
            return [
                one.model_copy(update={"url": url})
                for one, url in zip(server_listings, urls, strict=True)
            ]
        slug = read_text(raw.get("name_slug"))
        if not slug:
            raise ValueError(_NAMELESS)
        facts = read_remote_facts(_REMOTE, "streamable-http", _list_headers(slug))
        return [Listing(**identity, **facts, evidence="name_slug")]

    def saved(self, page: FetchedPage) -> list[RecordRef]:
        """The list of apps, the cards of the site of 2025, or one of its configs."""
        if "html" in page.content_type:
            return _read_cards(read_html(page), page.url)
        body = parse_json(page)
        if not isinstance(body, Mapping) or "data" not in body:
            return read_captured(body, page.url, _OLD_GATEWAY)
        data = body["data"] if isinstance(body["data"], list) else [body["data"]]
        refs, problems = list_refs(data, page.url, _make_ref, _NAMELESS)
        if not refs or problems:
            found = f"`data` of {len(data)} records, not all with `name_slug`"
            raise CrawlError("missing_key", page.url, found, "apps of Pipedream", FIX)
        return refs

    def _make_root(self) -> str:
        return self.policy.base_url.rstrip("/").removesuffix("/v1")


def _make_ref(app: Any, url: str) -> RecordRef | None:
    slug = read_text(as_object(app).get("name_slug"))
    return RecordRef(slug, url, None, app) if slug else None


def _list_headers(slug: str) -> tuple[HeaderVar, ...]:
    """What each request to the remote server must carry; only the app is known."""
    return (
        HeaderVar(name="Authorization", required=True, secret=True),
        HeaderVar(name="x-pd-app-slug", required=True, default=slug),
        HeaderVar(name="x-pd-environment", required=True),
        HeaderVar(name="x-pd-external-user-id", required=True),
        HeaderVar(name="x-pd-project-id", required=True),
    )


def _read_cards(html: str, file: str) -> list[RecordRef]:
    """The apps on the cards of mcp.pipedream.com; a card is a link to the app's page."""
    apps: list[dict[str, str]] = []
    field = ""
    for token in read_tokens(html):
        if isinstance(token, HtmlTag):
            field = {"h2": "name", "p": "description"}.get(token.name, "") if not token.ends else ""
            linked = _APP.fullmatch(token.attributes.get("href", "")) if token.name == "a" else None
            if linked:
                apps.append({"name_slug": linked[1], "name": "", "description": ""})
        elif field and apps and not apps[-1][field]:
            apps[-1][field] = token.strip()
    if not apps:
        found = "a page without a link to mcp.pipedream.com/app/…"
        raise CrawlError("missing_key", file, found, "cards of Pipedream's apps", FIX)
    return [RecordRef(app["name_slug"], file, None, app) for app in apps]
