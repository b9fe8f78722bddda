"""Docker: Docker's MCP catalogue, one file, and the `server.yaml` files it is made of."""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

from assets.marketplaces.adapters.support.docker_entry import make_entry, read_entry_facts
from assets.marketplaces.fetch.payload import FIX, parse_json
from assets.marketplaces.launch.mcp_servers import read_text
from assets.marketplaces.listed_tools import dump_tools
from assets.marketplaces.listing import Listing
from assets.marketplaces.markup.yaml import parse_yaml
from assets.marketplaces.policy import Adapter, CrawlError, Evidence, Get, Page, Ref, RefPage
from assets.marketplaces.result import make_problem

_FILE = "/mcp/catalog/v3/catalog.json"
_TREE = re.compile(r"(https://github\.com/[^/]+/[^/]+)/tree/[^/]+/?(.*)")


class DockerAdapter(Adapter):
    """The whole catalogue in one request."""

    name: ClassVar[str] = "docker"
    robots: ClassVar[bool] = False
    evidence: ClassVar[Mapping[str, Evidence]] = {
        "list": Evidence("documented", "catalog/v3/catalog.json, read from outside, 2026-08-13"),
        "paging": Evidence("documented", "one file holds the whole catalogue"),
        "launch": Evidence("captured", "server.yaml of docker/mcp-registry, 2026-07-08"),
        "package": Evidence("documented", "image@sha256 of the catalogue; its types of 2026-07"),
        "env": Evidence("captured", "secrets and env of server.yaml, 2026-07-08"),
        "headers": Evidence("documented", "remote.headers, the catalogue's types of 2026-07"),
        "tools": Evidence("documented", "names alone, in `tools` of the catalogue, 2026-07"),
    }

    async def refs(self, get: Get, since: str | None = None) -> AsyncIterator[RefPage]:
        base = self.policy.base_url.rstrip("/")
        named = base.endswith((".json", ".yaml", ".yml"))
        url = base if named else base.removesuffix("/mcp/catalog/v3") + _FILE
        catalogue = await get(url, _read_catalogue)
        refs, problems = _list_refs(catalogue["registry"], url)
        yield RefPage(refs, ended=True, problems=problems)

    def parse(self, raw: Any, ref: Ref) -> list[Listing]:
        """The listing of one entry of the catalogue or of one server.yaml."""
        if not isinstance(raw, Mapping):
            raise ValueError(f"the record is {type(raw).__name__}, not an object")
        entry = make_entry(raw)
        links = [read_text(entry.get(key)) for key in ("upstream", "source")]
        tree = _TREE.fullmatch(links[1])  # the catalogue says the folder only so
        links = [tree[1] if tree and link == tree[0] else link for link in links]
        folder = read_text(entry.get("directory")) or (tree[2] if tree else "")
        identity = {
            "marketplace": self.name,
            "native_id": ref.native_id,
            "name": read_text(entry.get("title")) or read_text(entry.get("name")) or ref.native_id,
            "description": read_text(entry.get("description")),
            "repository": next((link for link in links if "://" in link), None),
            "subfolder": folder.strip("/") or None,
        }
        tools = dump_tools(raw.get("tools"))
        return [Listing(**identity, tools=tools, **read_entry_facts(entry))]

    def saved(self, page: Page) -> list[Ref]:
        """The catalogue, as JSON or YAML, or one server.yaml."""
        body = parse_json(page) if "json" in page.content_type else _read_yaml(page)
        if isinstance(body, Mapping) and isinstance(body.get("registry"), Mapping):
            refs, _ = _list_refs(body["registry"], page.url)
            if refs:
                return refs
        name = read_text(body.get("name")) if isinstance(body, Mapping) else ""
        if not name or not (_is_server_entry(body) and ("about" in body or "type" in body)):
            keys = sorted(map(str, body))[:6] if isinstance(body, Mapping) else type(body).__name__
            raise CrawlError("missing_key", page.url, f"{keys}", "`registry` or a server.yaml", FIX)
        return [Ref(name, page.url, None, dict(body))]


def _read_catalogue(page: Page) -> dict[str, Any]:
    """The catalogue of a response. Raises CrawlError where it has none or an empty one."""
    body = parse_json(page) if "json" in page.content_type else _read_yaml(page)
    registry = body.get("registry") if isinstance(body, Mapping) else None
    if not isinstance(registry, Mapping):
        found = f"{type(body).__name__} without an object `registry`"
        raise CrawlError("missing_key", page.url, found, "an object `registry`", FIX)
    if not registry:
        raise CrawlError("empty", page.url, "an empty `registry`", "at least one server", FIX)
    return {"registry": registry}


def _read_yaml(page: Page) -> Any:
    if not page.body.strip():
        raise CrawlError("empty", page.url, "an empty body with status 200", "YAML or JSON", FIX)
    if page.body.lstrip()[:1] == b"<" or "html" in page.content_type:
        raise CrawlError("wrong_type", page.url, page.content_type, "YAML or JSON", FIX)
    try:
        return parse_yaml(page.decode_text())
    except ValueError as error:
        raise CrawlError("truncated", page.url, str(error)[:200], "YAML or JSON", FIX) from error


def _list_refs(registry: Mapping[str, Any], url: str) -> tuple[list[Ref], list[dict[str, Any]]]:
    refs, problems = [], []
    for slug, entry in registry.items():
        if isinstance(entry, Mapping) and str(slug).strip():
            refs.append(Ref(str(slug).strip(), url, None, dict(entry)))
        else:
            hint = f"the entry is {type(entry).__name__}, not an object"
            problems.append(make_problem(str(slug), url, "malformed", hint))
    return refs, problems


def _is_server_entry(body: Mapping[str, Any]) -> bool:
    return any(isinstance(body.get(key), str | Mapping) for key in ("image", "remote", "about"))
