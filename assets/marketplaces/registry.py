"""Registry: the official MCP registry's `/v0.1/servers`, and whoever speaks its API.

What belongs here: cursor paging and the envelope. What does not: `server.json` (`serverjson.py`).

Evidence: documented (OpenAPI of 2025-12-01, five dated schemas), captured (list page, 2026-08-13).
"""

import json
from collections.abc import Iterator
from typing import Any, ClassVar
from urllib.parse import urlencode

from assets.marketplaces.http import Page
from assets.marketplaces.listing import Listing
from assets.marketplaces.policy import CrawlError, CrawlPolicy, Get, Ref, RefPage, Render, problem
from assets.marketplaces.redact import redact_json
from assets.marketplaces.serverjson import server_listing
from warehouse.digest import digest

_OFFICIAL = "io.modelcontextprotocol.registry/official"
_LIMIT = 100  # the most the API allows


class RegistryAdapter:
    """Lists the latest version of every server; the list already holds whole records."""

    name: ClassVar[str] = "registry"

    def __init__(self, policy: CrawlPolicy) -> None:
        self.policy = policy

    def refs(self, get: Get, since: str | None = None) -> Iterator[RefPage]:
        cursor: str | None = None
        seen: set[str] = set()
        while True:
            url = self.page_url(cursor, since)
            empty_is_fine = cursor is not None or since is not None
            body = json.loads(get(url, lambda page, ok=empty_is_fine: check_list(page, ok)))
            refs, problems = _refs(body["servers"], url)
            cursor = (body.get("metadata") or {}).get("nextCursor") or None
            if cursor in seen:
                hint = f"the cursor {cursor!r} came twice; the list was cut there"
                yield RefPage(refs, False, [*problems, problem("", url, "cursor_loop", hint)])
                return
            yield RefPage(refs, cursor is None, problems)
            if cursor is None:
                return
            seen.add(cursor)

    def page_url(self, cursor: str | None, since: str | None) -> str:
        """The URL of one page of the list; the cursor is opaque and goes encoded."""
        query = {"limit": str(_LIMIT), "version": "latest"}
        query |= {"cursor": cursor} if cursor else {}
        query |= {"updated_since": since} if since else {}
        return f"{self.policy.base_url.rstrip('/')}/v0.1/servers?{urlencode(query)}"

    def detail(self, ref: Ref, get: Get, render: Render) -> Any:
        return ref.raw

    def parse(self, raw: Any, ref: Ref) -> list[Listing]:
        """The listing of one record {server, _meta}. Raises ValueError where it has no name."""
        meta = _official(raw)
        listing = server_listing(raw.get("server"), self.name)
        updated = meta.get("updatedAt") or meta.get("publishedAt")
        changes: dict[str, Any] = {"updated_at": updated}
        if meta.get("status") == "deprecated":
            changes["flags"] = tuple(sorted({*listing.flags, "deprecated"}))
        return [listing.model_copy(update=changes)]

    def deleted(self, ref: Ref) -> bool:
        """Whether the registry calls the record deleted."""
        return _official(ref.raw).get("status") == "deleted"


def check_list(page: Page, empty_is_fine: bool) -> bytes:
    """The redacted JSON of one list page. Raises CrawlError where the response is not one, so that
    the effect is not recorded as done."""
    expected = "JSON with a list `servers`"
    mend = "yesterday's listings stay; look at the URL, then run again"
    if "json" not in page.content_type:
        start = page.text()[:60].replace("\n", " ")
        found = f"{page.content_type or 'no content type'} starting {start!r}"
        raise CrawlError("wrong_type", page.url, found, expected, mend)
    try:
        body = json.loads(page.body)
    except ValueError as error:
        found = f"JSON broken off after {len(page.body):,} bytes ({error})"
        raise CrawlError("truncated", page.url, found, expected, mend) from error
    servers = body.get("servers") if isinstance(body, dict) else None
    if not isinstance(servers, list):
        found = f"keys {sorted(body)[:6]}" if isinstance(body, dict) else type(body).__name__
        raise CrawlError("missing_key", page.url, found, expected, mend)
    if not servers and not empty_is_fine:
        found = "an empty list with status 200"
        raise CrawlError("empty", page.url, found, "at least one server", mend)
    return json.dumps(redact_json(body), ensure_ascii=False).encode()


def _refs(records: list[Any], url: str) -> tuple[list[Ref], list[dict[str, Any]]]:
    refs, problems = [], []
    for record in records:
        server = record.get("server") if isinstance(record, dict) else None
        name = server.get("name") if isinstance(server, dict) else None
        if not isinstance(name, str) or not name.strip():
            made_up = f"malformed-{digest(record)[:12]}"
            problems.append(problem(made_up, url, "malformed", "the record has no server.name"))
            continue
        meta = _official(record)
        if meta.get("isLatest") is False:
            continue  # a registry that ignores `version=latest`
        refs.append(Ref(name.strip(), url, meta.get("updatedAt"), record))
    return refs, problems


def _official(record: Any) -> dict[str, Any]:
    meta = record.get("_meta") if isinstance(record, dict) else None
    official = meta.get(_OFFICIAL) if isinstance(meta, dict) else None
    return official if isinstance(official, dict) else {}
