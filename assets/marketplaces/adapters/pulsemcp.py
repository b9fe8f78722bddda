"""Pulsemcp: PulseMCP's subregistry, which speaks the registry's API behind a key and a tenant."""

from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import urlsplit

from assets.marketplaces.adapters.registry import RegistryAdapter
from assets.marketplaces.launch.variables import find_account_flags
from assets.marketplaces.listing import HeaderVar, Listing, dump_tools
from assets.marketplaces.payload import parse_json
from assets.marketplaces.policy import FactEvidence, FetchedPage, PostForm, RecordRef
from assets.marketplaces.server_json.document import make_server_listing
from assets.marketplaces.server_json.inputs import as_object, list_objects, read_string
from warehouse.sanitize.redact import redact

_VERSION = "com.pulsemcp/server-version"
_V0BETA = {"short_description", "source_code_url", "package_registry", "package_name"}


class PulseMcpAdapter(RegistryAdapter):
    """The registry's adapter with two headers and another `_meta` key."""

    name: ClassVar[str] = "pulsemcp"
    needs: ClassVar[tuple[str, ...]] = ("api_key", "tenant_id")
    meta_keys: ClassVar[tuple[str, ...]] = (_VERSION,)
    foreign: ClassVar[str] = "io.modelcontextprotocol.registry/official"
    evidence: ClassVar[Mapping[str, FactEvidence]] = {
        "list": FactEvidence(
            "documented", "first-party client types, 2026-07; no keyed body was seen"
        ),
        "paging": FactEvidence("documented", "API document v0.1, 2026-08: cursor, limit 100"),
        "launch": FactEvidence("documented", "the registry's server.json schemas"),
        "headers": FactEvidence(
            "guessed", "`authOptions` of a remote, as one customer describes them"
        ),
        "updated_at": FactEvidence("documented", "first-party client types, 2026-07"),
        "tools": FactEvidence(
            "guessed", "`tools` of a remote, as two customers' clients read them"
        ),
    }

    async def headers(self, post: PostForm) -> dict[str, str]:
        keys = self.policy.keys
        return {"X-API-Key": keys["api_key"], "X-Tenant-ID": keys["tenant_id"]}

    def parse(self, raw: Any, ref: RecordRef) -> list[Listing]:
        """The listing of one record, of the API or of a v0beta dump."""
        if _is_v0beta(raw):
            return [_read_v0beta_listing(raw, self.name)]
        made = [self._add_auth_headers(listing, raw) for listing in super().parse(raw, ref)]
        return [item.model_copy(update={"tools": self._dump_tools(item, raw)}) for item in made]

    def saved(self, page: FetchedPage) -> list[RecordRef]:
        """Records of a list or of one answer; v0beta's, retired in 2026, are readable too."""
        value = parse_json(page)
        found = value.get("servers") if isinstance(value, dict) else None
        if isinstance(found, list) and any(_is_v0beta(item) for item in found):
            return [
                RecordRef(_find_slug(item), page.url, raw=item)
                for item in found
                if _is_v0beta(item)
            ]
        return super().saved(page)

    def _is_ours(self, record: Any) -> bool:
        """Always an envelope; a bare server.json is the registry's."""
        return isinstance(as_object(record).get("server"), dict) and super()._is_ours(record)

    def _dump_tools(self, listing: Listing, raw: Any) -> str | None:
        """What PulseMCP saw of a remote: the one that is launched, else the first that has any."""
        meta = self.read_registry_meta(raw)
        remotes = sorted(name for name in meta if name.startswith("remotes["))
        each = (as_object(meta.get(name)).get("tools") for name in (listing.evidence, *remotes))
        return next((shown for tools in each if (shown := dump_tools(tools))), None)

    def _add_auth_headers(self, listing: Listing, raw: Any) -> Listing:
        """The listing with the headers that PulseMCP found its remote to ask for, where the
        record's own server.json names none."""
        # The key is the text "remotes[0]".
        auth = as_object(self.read_registry_meta(raw).get(listing.evidence))
        kinds = list_objects(auth.get("authOptions"))
        opened = any(kind.get("type") == "open" for kind in kinds)
        if listing.headers or not listing.url or not kinds or opened:
            return listing
        names = next(
            (header_names for kind in kinds if (header_names := _list_header_names(kind))),
            ["Authorization"],
        )
        headers = tuple(HeaderVar(name=redact(name), required=True, secret=True) for name in names)
        flags = tuple(sorted({*listing.flags, *find_account_flags(headers)}))
        return listing.model_copy(update={"headers": headers, "flags": flags})


def _list_header_names(option: Mapping[str, Any]) -> list[str]:
    """Names of the headers that carry an `api_key`."""
    sources = list_objects(as_object(option.get("detail")).get("sources"))
    found = [source for source in sources if source.get("location") == "header"]
    names = [read_string(item.get("name")).strip() for item in found]
    return list(dict.fromkeys(name for name in names if name))


def _is_v0beta(record: Any) -> bool:
    if not isinstance(record, dict) or "server" in record or not read_string(record.get("name")):
        return False
    return len(_V0BETA & record.keys()) >= 2


def _find_slug(record: Mapping[str, Any]) -> str:
    """The last part of its page's address on pulsemcp.com, else the name."""
    try:
        url_parts = urlsplit(read_string(record.get("url")))
    except ValueError:
        return read_string(record["name"])
    slug = url_parts.path.rstrip("/").rpartition("/")[2]
    ours = (url_parts.hostname or "").endswith("pulsemcp.com")
    return slug if ours and slug else read_string(record["name"])


def _make_auth_headers(method: str) -> list[dict[str, Any]]:
    """The header that an authentication method usually takes; the dumps do not name it."""
    if method in ("", "none", "open", "unknown"):
        return []
    return [{"name": "Authorization", "isRequired": True, "isSecret": True}]


def _read_v0beta_listing(record: Mapping[str, Any], marketplace: str) -> Listing:
    """Read as a server.json of one package without a version, and its remotes."""
    package = {
        "registryType": record.get("package_registry"),
        "identifier": record.get("package_name"),
    }
    about = record.get("short_description") or record.get("EXPERIMENTAL_ai_generated_description")
    listing = make_server_listing(
        {
            "name": read_string(record["name"]),
            "description": about,
            "repository": {"url": record.get("source_code_url")},
            "packages": [package] if any(package.values()) else [],
            "remotes": [
                {
                    "type": item.get("transport"),
                    "url": item.get("url_direct") or item.get("url"),
                    "headers": _make_auth_headers(
                        read_string(item.get("authentication_method")).lower()
                    ),
                }
                for item in list_objects(record.get("remotes"))
                if item.get("url_direct") or item.get("url")
            ],
        },
        marketplace,
    )
    evidence = {"packages[0]": "package_registry, package_name"}
    changes: dict[str, Any] = {
        "native_id": _find_slug(record),
        "evidence": evidence.get(listing.evidence, listing.evidence),
    }
    return listing.model_copy(update=changes)
