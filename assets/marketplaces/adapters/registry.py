"""Registry: the official MCP registry's `/v0.1/servers`, and whoever speaks its API."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar
from urllib.parse import urlencode

from assets.marketplaces.adapters.records import cut_list, follow_cursor, list_refs
from assets.marketplaces.listing import Listing
from assets.marketplaces.payload import check_json_list
from assets.marketplaces.policy import FetchPage, MarketplaceAdapter, RecordPage, RecordRef
from assets.marketplaces.server_json.document import make_camel_name, make_server_listing
from assets.marketplaces.server_json.inputs import as_object, read_string

_LIMIT = 100  # the most the API allows


class RegistryAdapter(MarketplaceAdapter):
    """Lists the latest version of every server; the list already holds whole records."""

    name: ClassVar[str] = "registry"
    robots: ClassVar[bool] = False
    meta_key: ClassVar[str] = "io.modelcontextprotocol.registry/official"

    async def refs(self, get: FetchPage) -> AsyncIterator[RecordPage]:
        def make_url(cursor: str | None) -> str:
            query = {"limit": str(_LIMIT), "version": "latest"}
            query |= {"cursor": cursor} if cursor else {}
            return f"{self.policy.base_url.rstrip('/')}/v0.1/servers?{urlencode(query)}"

        async def read(url: str, first: bool) -> tuple[RecordPage, str | None]:
            body = await get(url, check_json_list("servers", empty_is_fine=not first))
            fault = "the record has no server.name"
            refs, problems = list_refs(body["servers"], url, self._make_ref, fault)
            metadata = body.get("metadata") or {}
            cursor = as_object(metadata).get("nextCursor") or None
            page = RecordPage(self._keep_latest(refs), cursor is None, problems)
            if not isinstance(metadata, dict) or not isinstance(cursor, str | None):
                broken = "the metadata" if not isinstance(metadata, dict) else "the cursor"
                return cut_list(page, url, "malformed", f"{broken} cannot be read"), None
            return page, cursor

        async for page in follow_cursor(make_url, read):
            yield page

    def parse(self, raw: Any, ref: RecordRef) -> list[Listing]:
        """The listing of one record {server, _meta} or bare server.json. Raises ValueError where
        it has no name."""
        listing = make_server_listing(_find_server(raw), self.name)
        meta = self.read_registry_meta(raw)
        changes: dict[str, Any] = {"updated_at": _read_time(meta)}
        if meta.get("status") == "deprecated":
            changes["flags"] = tuple(sorted({*listing.flags, "deprecated"}))
        if meta.get("status") == "deleted":
            changes |= {"runnable": False, "reason": "the registry calls the record deleted"}
        return [listing.model_copy(update=changes)]

    def read_registry_meta(self, record: Any) -> dict[str, Any]:
        """What the registry itself says about a record: status, isLatest, updatedAt. Records of
        2025 hold it inside server.json, or in snake_case."""
        server = as_object(_find_server(record))
        result: dict[str, Any] = {"status": server.get("status")}
        for place in (server, as_object(record)):
            meta = as_object(as_object(place.get("_meta")).get(self.meta_key))
            result |= {make_camel_name(name): value for name, value in meta.items()}
        return result

    def _keep_latest(self, refs: list[RecordRef]) -> list[RecordRef]:
        """A registry that ignores `version=latest` lists old versions too, and several of one name
        may be flagged latest: the newest of them. The same version twice is the list's fault and
        stays for the crawl to report."""
        results: list[RecordRef] = []
        for ref in refs:
            if self.read_registry_meta(ref.raw).get("isLatest") is False:
                continue
            version = _read_version(ref)
            rivals = [item for item in results if item.native_id == ref.native_id]
            rival = next((item for item in rivals if _read_version(item) != version), None)
            if rival is None:
                results.append(ref)
            elif self._read_published(ref) > self._read_published(rival):
                results[results.index(rival)] = ref
        return results

    def _read_published(self, ref: RecordRef) -> tuple[str, str]:
        meta = self.read_registry_meta(ref.raw)
        return read_string(meta.get("publishedAt")), _read_time(meta) or ""

    def _make_ref(self, record: Any, url: str) -> RecordRef | None:
        name = as_object(_find_server(record)).get("name")
        when = _read_time(self.read_registry_meta(record))
        is_named = isinstance(name, str) and bool(name.strip())
        return RecordRef(str(name).strip(), url, when, record) if is_named else None


def _find_server(record: Any) -> Any:
    """The server.json of a record, which may be one itself."""
    inner = as_object(record).get("server")
    return inner if isinstance(inner, dict) else record


def _read_version(ref: RecordRef) -> str:
    return read_string(as_object(_find_server(ref.raw)).get("version"))


def _read_time(meta: Mapping[str, Any]) -> str | None:
    """When the registry last changed the record."""
    stamps = (meta.get(key) for key in ("updatedAt", "publishedAt"))
    return next((stamp for stamp in stamps if isinstance(stamp, str) and stamp), None)
