"""Registry: the official MCP registry's `/v0.1/servers`, and whoever speaks its API."""

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, ClassVar
from urllib.parse import urlencode

from assets.marketplaces.adapters.records import cut_list, follow_cursor, list_refs
from assets.marketplaces.listing import Listing
from assets.marketplaces.payload import FIX, check_json_list, parse_json
from assets.marketplaces.policy import (
    CrawlError,
    FactEvidence,
    FetchedPage,
    FetchPage,
    MarketplaceAdapter,
    RecordPage,
    RecordRef,
)
from assets.marketplaces.server_json.document import make_camel_name, make_server_listing
from assets.marketplaces.server_json.inputs import as_object, read_string

_LIMIT = 100  # the most the API allows


class RegistryAdapter(MarketplaceAdapter):
    """Lists the latest version of every server; the list already holds whole records."""

    name: ClassVar[str] = "registry"
    robots: ClassVar[bool] = False
    incremental: ClassVar[bool] = True
    meta_keys: ClassVar[tuple[str, ...]] = ("io.modelcontextprotocol.registry/official",)
    foreign: ClassVar[str] = "com.pulsemcp/"  # a `_meta` key that says who else served a record
    evidence: ClassVar[Mapping[str, FactEvidence]] = {
        "list": FactEvidence("captured", "list page of 2026-08-13; OpenAPI of 2025-12-01"),
        "paging": FactEvidence("documented", "OpenAPI of 2025-12-01: opaque cursor, limit 100"),
        "launch": FactEvidence("documented", "server.json schemas 2025-07-09 to 2025-12-11"),
        "updated_at": FactEvidence("captured", "`_meta` of the list page of 2026-08-13"),
        "command": FactEvidence("guessed", "runner by registryType where runtimeHint names none"),
    }

    async def refs(self, get: FetchPage, since: str | None = None) -> AsyncIterator[RecordPage]:
        """Pages of the list. With `since` the registry includes deleted records of its own; it is
        at or before the newest edit known, which is then part of the answer (`crawl/result.py`)."""

        async def read(url: str, first: bool) -> tuple[RecordPage, str | None]:
            # Changes since a time that the newest record has reached are never none.
            body = await get(url, check_json_list("servers", empty_is_fine=not first))
            refs, problems = self._read_page(body["servers"], url)
            cursor, fault = _read_cursor(body)
            page = RecordPage(refs, cursor is None, problems)
            return cut_list(page, url, "malformed", fault) if fault else page, cursor

        async for page in follow_cursor(lambda cursor: self.make_page_url(cursor, since), read):
            yield page

    def make_page_url(self, cursor: str | None, since: str | None) -> str:
        """The URL of one page of the list; the cursor is opaque and goes encoded."""
        query = {"limit": str(_LIMIT), "version": "latest"}
        query |= {"cursor": cursor} if cursor else {}
        query |= {"updated_since": since} if since else {}
        return f"{self.policy.base_url.rstrip('/')}/v0.1/servers?{urlencode(query)}"

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

    def saved(self, page: FetchedPage) -> list[RecordRef]:
        """Records of a list, a `/versions` list, one {server, _meta}, a bare server.json or a list
        of them; the latest version of each name."""
        records = self._list_records(parse_json(page), page.url)
        by_name: dict[str, list[RecordRef]] = {}
        for ref in (made for record in records if (made := self._make_ref(record, page.url))):
            by_name.setdefault(ref.native_id, []).append(ref)
        if records and not by_name:
            raise self._make_refusal(page.url, "records without server.name")
        return [max(many, key=lambda ref: self._make_age_key(ref.raw)) for many in by_name.values()]

    def deleted(self, ref: RecordRef) -> bool:
        """Whether the registry calls the record deleted."""
        return self.read_registry_meta(ref.raw).get("status") == "deleted"

    def read_registry_meta(self, record: Any) -> dict[str, Any]:
        """What the registry itself says about a record: status, isLatest, updatedAt. Records of
        2025 hold it inside server.json, or in snake_case."""
        server = _find_server(record)
        result: dict[str, Any] = {}
        for place in (server, record):
            meta = as_object(as_object(place).get("_meta"))
            for key in self.meta_keys:
                result |= {
                    make_camel_name(name): one for name, one in as_object(meta.get(key)).items()
                }
        old = as_object(as_object(server).get("version_detail"))  # before the first dated schema
        result = {make_camel_name(name): one for name, one in old.items()} | result
        result.setdefault("status", as_object(server).get("status"))
        return result

    def _read_page(
        self, records: list[Any], url: str
    ) -> tuple[list[RecordRef], list[dict[str, Any]]]:
        """Refs of a page's latest records, and a row for each without a name. A registry that
        ignores `version=latest` lists old ones too."""
        refs, problems = list_refs(records, url, self._make_ref, "the record has no server.name")
        marks = [self.read_registry_meta(ref.raw).get("isLatest") for ref in refs]
        latest = [ref for ref, one in zip(refs, marks, strict=True) if one is not False]
        return self._keep_newest(latest), problems

    def _keep_newest(self, refs: Iterable[RecordRef]) -> list[RecordRef]:
        """Several versions of one name may be flagged latest: the newest of them. The same version
        twice is the list's fault and stays for the crawl to report."""
        results: list[RecordRef] = []
        for ref in refs:
            rivals = [item for item in results if item.native_id == ref.native_id]
            rival = next(
                (rival for rival in rivals if _read_version(rival.raw) != _read_version(ref.raw)),
                None,
            )
            if rival is None:
                results.append(ref)
            elif self._make_age_key(ref.raw) > self._make_age_key(rival.raw):
                results[results.index(rival)] = ref
        return results

    def _make_ref(self, record: Any, url: str) -> RecordRef | None:
        name = _read_name(record)
        when = _read_time(self.read_registry_meta(record))
        return RecordRef(name, url, when, record) if name else None

    def _make_age_key(self, record: Any) -> tuple[bool, str, str]:
        """Sorts versions of one name, the latest last."""
        meta = self.read_registry_meta(record)
        published = read_string(meta.get("publishedAt")) or read_string(meta.get("releaseDate"))
        return meta.get("isLatest") is True, published, _read_time(meta) or ""

    def _list_records(self, value: Any, url: str) -> list[Any]:
        """The records of a payload. Raises CrawlError where it is none of the registry's."""
        inner = as_object(value).get("data")
        holder = inner if isinstance(inner, dict) else value
        result = holder.get("servers", [value]) if isinstance(holder, dict) else value
        if not isinstance(result, list):
            raise self._make_refusal(url, type(result).__name__)
        if not result and "metadata" not in as_object(value):
            raise self._make_refusal(url, "no record")
        if result and not any(self._is_ours(record) for record in result):
            keys = sorted(as_object(result[0]))[:6] or type(result[0]).__name__
            raise self._make_refusal(url, f"a record with {keys}")
        return result

    def _is_ours(self, record: Any) -> bool:
        """{server, _meta} that another registry did not sign, or a server.json."""
        keys = as_object(as_object(record).get("_meta")).keys()
        signed = any(key in self.meta_keys for key in keys)
        if not signed and any(key.startswith(self.foreign) for key in keys):
            return False
        if isinstance(as_object(record).get("server"), dict):
            return bool(_read_name(record))
        marks = {"$schema", "packages", "remotes", "version_detail", "_meta"}
        return bool(_read_name(record)) and bool(marks & record.keys())

    def _make_refusal(self, url: str, found: str) -> CrawlError:
        expected = f"a list, a record or a server.json of {self.name}"
        return CrawlError("missing_key", url, found, expected, FIX)


def _read_cursor(body: dict[str, Any]) -> tuple[str | None, str | None]:
    """(the next cursor or None at the end, what is wrong with it)."""
    metadata = body.get("metadata") or {}
    if not isinstance(metadata, dict):
        return None, f"metadata is {type(metadata).__name__}"
    cursor = metadata.get("nextCursor") or metadata.get("next_cursor") or None
    if cursor is not None and not read_string(cursor):
        return None, f"the cursor is {type(cursor).__name__}"
    return read_string(cursor) or None, None


def _find_server(record: Any) -> Any:
    """The server.json of a record, which may be one itself."""
    inner = as_object(record).get("server")
    return inner if isinstance(inner, dict) else record


def _read_name(record: Any) -> str:
    name = as_object(_find_server(record)).get("name")
    return name.strip() if isinstance(name, str) else ""


def _read_version(record: Any) -> str:
    return read_string(as_object(_find_server(record)).get("version"))


def _read_time(meta: Mapping[str, Any]) -> str | None:
    """When the registry last changed the record."""
    for key in ("updatedAt", "publishedAt", "releaseDate"):
        if isinstance(meta.get(key), str) and meta[key]:
            return meta[key]
    return None
