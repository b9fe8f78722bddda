"""Pipedream: the apps of Pipedream Connect, each a remote server behind its gateway.

Every run needs an account of the user with Pipedream; so each listing is a template of headers.
"""

from collections.abc import AsyncIterator
from typing import Any, ClassVar
from urllib.parse import urlencode

from assets.marketplaces.adapters.records import follow_cursor, list_refs
from assets.marketplaces.launch.mcp_config import read_remote_facts, read_text
from assets.marketplaces.listing import HeaderVar, Listing
from assets.marketplaces.payload import check_json_list
from assets.marketplaces.policy import (
    CrawlError,
    FetchPage,
    MarketplaceAdapter,
    PostForm,
    RecordPage,
    RecordRef,
)
from assets.marketplaces.server_json.inputs import as_object

_REMOTE = "https://remote.mcp.pipedream.net/v3"
_LIMIT = 100
_NAMELESS = "the app has no `name_slug`"


class PipedreamAdapter(MarketplaceAdapter):
    """Pipedream's apps through its documented API."""

    name: ClassVar[str] = "pipedream"
    needs: ClassVar[tuple[str, ...]] = ("client_id", "client_secret")
    robots: ClassVar[bool] = False

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

    async def refs(self, get: FetchPage) -> AsyncIterator[RecordPage]:
        count = 0

        def make_url(after: str | None) -> str:
            query = {"limit": str(_LIMIT)} | ({"after": after} if after else {})
            return f"{self._make_root()}/v1/connect/apps?{urlencode(query)}"

        async def read(url: str, first: bool) -> tuple[RecordPage, str | None]:
            nonlocal count
            body = await get(url, check_json_list("data", empty_is_fine=not first))
            refs, problems = list_refs(body["data"], url, _make_ref, _NAMELESS)
            count += len(body["data"])
            info = as_object(body.get("page_info"))
            after = info.get("end_cursor") if body["data"] else None
            after = after if isinstance(after, str) and after else None
            total = info.get("total_count")
            short = after is None and isinstance(total, int) and count < total
            page = RecordPage(refs, after is None and not short, problems, truncated=short)
            return page, after

        async for page in follow_cursor(make_url, read):
            yield page

    def parse(self, raw: Any, ref: RecordRef) -> list[Listing]:
        """The remote server of one app: only the app is known of the headers that it wants."""
        slug = read_text(as_object(raw).get("name_slug"))
        if not slug:
            raise ValueError(_NAMELESS)
        headers = (
            HeaderVar(name="Authorization", required=True, secret=True),
            HeaderVar(name="x-pd-app-slug", required=True, default=slug),
            HeaderVar(name="x-pd-environment", required=True),
            HeaderVar(name="x-pd-external-user-id", required=True),
            HeaderVar(name="x-pd-project-id", required=True),
        )
        return [
            Listing(
                marketplace=self.name,
                native_id=ref.native_id,
                name=read_text(raw.get("name")) or ref.native_id,
                description=read_text(raw.get("description")),
                evidence="name_slug",
                **read_remote_facts(_REMOTE, "streamable-http", headers),
            )
        ]

    def _make_root(self) -> str:
        return self.policy.base_url.rstrip("/").removesuffix("/v1")


def _make_ref(app: Any, url: str) -> RecordRef | None:
    slug = read_text(as_object(app).get("name_slug"))
    return RecordRef(slug, url, None, app) if slug else None
