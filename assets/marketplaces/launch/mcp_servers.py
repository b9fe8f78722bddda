"""Servers: the listings that one `mcpServers` object gives."""

import json
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from assets.marketplaces.fetch.payload import FIX
from assets.marketplaces.launch.mcp_config import add_flags, read_launch_facts
from assets.marketplaces.listing import Listing
from assets.marketplaces.policy import CrawlError, Ref
from warehouse.sanitize.redact import MARK, redact
from warehouse.storage.digest import sha256

THIN = "the list names no launch facts; they stand on the server's own page"
_FORGES = ("github.com", "gitlab.com", "bitbucket.org", "gitee.com", "codeberg.org")
_OWN_GATEWAYS = ("api.mcphub.com", "mcp.pipedream.net")  # each of one marketplace only


def find_config_servers(value: Any) -> dict[str, Any] | None:
    """The members of `mcpServers` of a JSON value that is such a config, else None."""
    servers = value.get("mcpServers") if isinstance(value, Mapping) else None
    if not isinstance(servers, Mapping) or not servers:
        return None
    return {str(key): entry for key, entry in servers.items()}


def make_server_listings(
    identity: Mapping[str, Any], servers: Mapping[str, Any], evidence: str
) -> list[Listing]:
    """One listing of the id `identity` names; where the object names several servers, one each
    with the id `id#key`. `evidence` says where the object stood."""
    several = len(servers) > 1
    made = []
    for key, entry in sorted(servers.items()):
        name = redact(key).replace(MARK, "redacted").strip() or "unnamed"
        facts = dict(identity) | read_launch_facts(entry)
        if several:
            facts = add_flags(facts, ["multi_server"])
            facts["native_id"] = f"{identity['native_id']}#{name}"
        made.append(Listing(**facts, evidence=f"{evidence} mcpServers.{name}"))
    return made


def record_digest(record: Any) -> str:
    """SHA-256 of a third-party JSON value, whatever numbers and texts it holds."""
    text = json.dumps(record, sort_keys=True, default=str)
    return sha256(text.encode("utf-8", "surrogatepass"))


def get_member(raw: Any, name: str) -> Any:
    """A member of a raw record. Raises ValueError where the record is no object or lacks it."""
    if not isinstance(raw, Mapping) or name not in raw:
        raise ValueError(f"the record is {type(raw).__name__} without {name!r}")
    return raw[name]


def is_of_a_forge(url: str) -> bool:
    """Whether a URL is of a host of source code, so that it names a repository."""
    return any(f"://{host}/" in url or f"://www.{host}/" in url for host in _FORGES)


def read_text(value: Any) -> str:
    """A text without secrets; "" for any other JSON value."""
    return redact(value).strip() if isinstance(value, str) else ""


def read_captured(value: Any, file: str, gateway: str | None = None) -> list[Ref]:
    """Refs of a saved config: one `mcpServers` object, or a list of {file, body} with one each.
    Their raw is {"servers", "name", "description"}.

    Raises CrawlError for any other JSON, and for the config of another marketplace: one whose URLs
    are of another's gateway, or not of `gateway` where that is given.
    """
    bodies = value if isinstance(value, list) and value else [value]
    refs = []
    for body in bodies:
        capture: Mapping[str, Any] = body if isinstance(body, Mapping) else {}
        servers = find_config_servers(capture.get("body", capture))
        if servers is None:
            found = f"JSON {type(value).__name__} without `mcpServers`"
            raise CrawlError("missing_key", file, found, "the marketplace's page or config", FIX)
        _refuse_another(servers, file, gateway)
        name = read_text(capture.get("file")) or file
        refs.append(_make_captured_ref(servers, PurePosixPath(name).stem or "config", file))
    return refs


def _make_captured_ref(servers: dict[str, Any], stem: str, file: str) -> Ref:
    entry = next(iter(servers.values()))
    facts = entry if len(servers) == 1 and isinstance(entry, Mapping) else {}
    key = read_text(next(iter(servers))) if len(servers) == 1 else ""
    raw = {
        "servers": servers,
        "name": read_text(facts.get("mcp_list_name")) or key or stem,
        "description": read_text(facts.get("mcp_list_description")),
    }
    return Ref(key or stem, file, None, raw)


def _refuse_another(servers: Mapping[str, Any], file: str, gateway: str | None) -> None:
    entries = [entry for entry in servers.values() if isinstance(entry, Mapping)]
    urls = " ".join(str(entry.get("url")) for entry in entries)
    others = [one for one in _OWN_GATEWAYS if f"{one}/" in urls and one != gateway]
    if others or (gateway and f"{gateway}/" not in urls):
        found = f"a config for {others[0]}" if others else f"a config without {gateway}"
        raise CrawlError("missing_key", file, found, "this marketplace's page or config", FIX)
