"""Smithery: its platform API, and its sitemap for what the API does not show.

The list shows a record's name and no way to launch it; that stands in the answer of the record's
own address. `homepage` is the author's page, never an endpoint.
"""

from collections.abc import AsyncIterator, Container, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import quote, unquote, urlencode, urlsplit

from assets.marketplaces.adapters.records import cut_list, list_refs
from assets.marketplaces.crawl.result import make_problem
from assets.marketplaces.crawl.sitemap import Location, parse_locations
from assets.marketplaces.launch.mcp_config import (
    THIN,
    add_flags,
    make_malformed,
    make_unrunnable,
    read_bundle_facts,
    read_launch_facts,
    read_remote_facts,
)
from assets.marketplaces.launch.shell_words import find_account_flags
from assets.marketplaces.listing import EnvVar, HeaderVar, Listing, dump_tools
from assets.marketplaces.payload import check_json_list, parse_json_object
from assets.marketplaces.policy import (
    CrawlError,
    FetchPage,
    MarketplaceAdapter,
    PostForm,
    RecordPage,
    RecordRef,
    RenderPage,
)
from assets.marketplaces.server_json.inputs import as_object, read_schema_inputs, read_string
from warehouse.sanitize.redact import redact
from warehouse.storage.digest import sha256

Facts = dict[str, Any]

_SCRIPT = "the stdio connection is a JavaScript function, which is never evaluated"


def read_connection_facts(record: Mapping[str, Any]) -> Facts:
    """Launch fields of the first connection that needs no account of ours, else of the first that
    can be launched at all, else why there is none."""
    connections = record.get("connections")
    if connections is not None and not isinstance(connections, list):
        return make_unrunnable("malformed: connections is not a list")
    offers = [
        (f"connections[{at}]", _read(connection)) for at, connection in enumerate(connections or [])
    ]
    if not any(facts["runnable"] for _, facts in offers) and _is_address(record):
        stated = [item for item in connections or [] if isinstance(item, Mapping)]
        # A bundle that cannot be launched asks for the same settings as the hosted server.
        schemas = [item.get("configSchema") for item in sorted(stated, key=_is_http, reverse=True)]
        schema = next((schema for schema in schemas if schema), None)
        whole = {"deploymentUrl": record["deploymentUrl"], "configSchema": schema}
        offers.append(("deploymentUrl", _read(whole | {"type": "http"})))
    if not offers:
        return make_unrunnable("the record names no connection")
    place, facts = min(offers, key=lambda offer: _rank_facts(offer[1]))
    return facts | {"evidence": place}


def _rank_facts(facts: Facts) -> int:
    if not facts["runnable"]:
        return 2
    return 1 if "hosted_gateway" in facts["flags"] else 0


def _read(connection: Any) -> Facts:
    """A malformed connection does not hide the others."""
    if not isinstance(connection, Mapping):
        return make_unrunnable("malformed: the connection is not an object")
    kind = read_string(connection.get("type")) or read_string(connection.get("kind"))
    try:
        if _is_http(connection) or kind == "sse":
            return _read_remote(connection, kind)
        if kind == "stdio":
            env = tuple(
                variable for variable, _ in read_schema_inputs(connection.get("configSchema"))
            )
            bundle = read_string(connection.get("bundleUrl")).strip()
            if bundle.startswith(("http://", "https://")):
                return read_bundle_facts(redact(bundle), None, None, env) | {"reason": None}
            script = connection.get("stdioFunction")
            stated = script if isinstance(script, Mapping) else connection
            if stated.get("command"):
                facts = read_launch_facts(stated)
                names = {variable.name for variable in facts.get("env", ())}
                both = (*facts.get("env", ()), *(item for item in env if item.name not in names))
                return add_flags(facts, find_account_flags(both)) | {"env": both}
            flags = find_account_flags(env)
            reason = _SCRIPT if isinstance(script, str) else "bundleUrl is not an http(s) URL"
            if not bundle and not script:
                reason = "the stdio connection names no bundle"
            return make_unrunnable(reason) | {"transport": "stdio", "env": env, "flags": flags}
    except (ValueError, TypeError, AttributeError) as error:
        return make_malformed(error)
    return make_unrunnable(f"malformed: a connection of type {kind[:40]!r}")


def _read_remote(connection: Mapping[str, Any], kind: str) -> Facts:
    """An endpoint with what travels in its query and headers. A setting that does not say how it
    travels stands in `env`, with those of the query: the listing has no other place for them."""
    url = read_string(connection.get("deploymentUrl") or connection.get("url")).strip()
    headers: list[HeaderVar] = []
    env: list[EnvVar] = []
    for variable, schema in read_schema_inputs(connection.get("configSchema")):
        travels = as_object(schema.get("x-from"))
        if name := read_string(travels.get("header")):
            facts: Facts = variable.model_dump() | {"name": redact(name)}
            headers.append(HeaderVar(**facts))
            continue
        env.append(variable)
        if (name := read_string(travels.get("query"))) and (variable.required or variable.default):
            value = _quote_text(variable.default) if variable.default else f"{{{variable.name}}}"
            url = f"{url}{'&' if '?' in url else '?'}{_quote_text(name)}={value}"
    facts = read_remote_facts(url, kind, tuple(headers))
    flags = find_account_flags((*env, *headers))
    return add_flags(facts, flags) | {"env": tuple(env)}


def _quote_text(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _is_http(connection: Any) -> bool:
    kinds = ("http", "streamable-http", "streamable_http", "shttp")
    return isinstance(connection, Mapping) and (
        connection.get("type") in kinds or connection.get("kind") in kinds
    )


def _is_address(record: Mapping[str, Any]) -> bool:
    """Whether the record itself names the endpoint that its connection should."""
    return read_string(record.get("deploymentUrl")).startswith(("http://", "https://"))


_PREFIXES = ("server", "servers")
_TABS = ("api", "capabilities", "prompts", "quality", "releases", "resources", "settings", "tools")
_MANY = 50


def make_server_key(name: str) -> str:
    """Names of 2025 begin with `@`, those of 2026 do not: the same server either way."""
    return name.lstrip("@").lower()


def _find_slug(loc: str) -> str | None:
    """The qualified name in a server page's address, None for any other page."""
    try:
        segments = [unquote(part) for part in urlsplit(loc).path.strip("/").split("/")]
    except ValueError:
        return None
    if segments[0] not in _PREFIXES or len(segments) not in (2, 3) or not all(segments):
        return None
    return "/".join(segments[1:])


def _is_tab(name: str, others: Container[str]) -> bool:
    """Whether a page is a part of another server's, as `exa/tools` is of `exa`."""
    owner, slash, last = name.partition("/")
    return bool(slash) and last in _TABS and owner in others


def find_server_pages(locations: Iterable[Location]) -> dict[str, Location]:
    """Server pages among locations. One date on all of many pages is the hour in which the sitemap
    was made, not that of a change, and is left out."""
    dates = {name: when for loc, when in locations if (name := _find_slug(loc))}
    pages = [(name, when) for name, when in dates.items() if not _is_tab(name, dates)]
    made_at_once = len({when for _, when in pages}) == 1 and len(pages) >= _MANY
    return {make_server_key(name): (name, None if made_at_once else when) for name, when in pages}


_PAGE = 100  # the most the API allows
_STABLE = ("qualifiedName", "displayName", "description", "remote", "isDeployed", "createdAt")
_DETAIL = {"connections", "deploymentUrl", "security", "tools"}
_NAMELESS = "the record has no qualifiedName"


class SmitheryAdapter(MarketplaceAdapter):
    """Reads the sitemap, the API's list and each record's own page."""

    name: ClassVar[str] = "smithery"
    takes: ClassVar[tuple[str, ...]] = ("api_key",)
    scopes: ClassVar[tuple[str, ...]] = ("api", "sitemap")
    robots: ClassVar[bool] = True

    async def headers(self, post: PostForm) -> dict[str, str]:
        key = self.policy.keys.get("api_key")
        return {"Authorization": f"Bearer {key}"} if key else {}

    async def refs(self, get: FetchPage) -> AsyncIterator[RecordPage]:
        """The list, then what only the sitemap names. Truncated where the list says that it holds
        more than both showed."""
        scope = self.policy.scope or self.scopes
        mapped: dict[str, Location] = {}
        problems: list[dict[str, Any]] = []
        if "sitemap" in scope and self.policy.site_url:
            try:
                index = f"{str(self.policy.site_url).rstrip('/')}/sitemap_index.xml"
                locations = await get(index, parse_locations)
                mapped = find_server_pages(locations)
                maps = (loc for loc, _ in locations if loc.endswith(".xml"))
                shards = (loc for loc in maps if "server" in loc.rpartition("/")[2].lower())
                for shard in dict.fromkeys(shards):
                    mapped |= find_server_pages(await get(shard, parse_locations))
            except CrawlError as error:
                if "api" not in scope:
                    raise
                problems.append(make_problem("", error.url, error.kind, str(error)))
        keys: set[str] = set()
        total = 0
        if "api" in scope:
            async for page, stated in self._read_list(get, keys, mapped):
                total = max(total, stated)
                yield page
        unlisted = [location for key, location in mapped.items() if key not in keys]
        for at in range(0, len(unlisted), _PAGE):
            yield RecordPage(
                [self._make_ref(name, when) for name, when in unlisted[at : at + _PAGE]]
            )
        came = len(keys) + len(unlisted)
        if came < total:
            hint = f"the list says {total:,} servers and {came:,} came; the sitemap names the rest"
            problems.append(make_problem("", self._list_url(1), "result_cap", hint))
        yield RecordPage([], ended=came >= total, problems=problems, truncated=came < total)

    async def _read_list(
        self, get: FetchPage, keys: set[str], mapped: Mapping[str, Location]
    ) -> AsyncIterator[tuple[RecordPage, int]]:
        def make_ref(item: Any, _: str) -> RecordRef | None:
            name = _read_qualified_name(item)
            if not name:
                return None
            keys.add(make_server_key(name))
            when = mapped.get(make_server_key(name), (name, None))[1]
            return self._make_ref(name, when or _digest_revision(item))

        number = 1
        while True:
            url = self._list_url(number)
            body = await get(url, check_json_list("servers", empty_is_fine=number > 1))
            count = len(keys)
            refs, problems = list_refs(body["servers"], url, make_ref, _NAMELESS)
            page = RecordPage(refs, problems=problems)
            repeats = bool(page.refs) and len(keys) == count
            if repeats:
                fault = f"page {number} names only servers of earlier pages"
                page = cut_list(replace(page, refs=[]), url, "cursor_loop", fault)
            pagination = as_object(body.get("pagination"))
            yield page, _read_number(pagination.get("totalCount"))
            last = number >= (_read_number(pagination.get("totalPages")) or number + 1)
            if last or repeats or not body["servers"]:
                return
            number += 1

    def _make_ref(self, name: str, revision: str | None) -> RecordRef:
        """Weak: neither a digest of the list nor a sitemap's date shows every change."""
        slug = quote(name, safe="", errors="replace")
        url = f"{self.policy.base_url.rstrip('/')}/servers/{slug}"
        return RecordRef(name, url, revision or "listed", weak=True)

    def _list_url(self, number: int) -> str:
        # A seed makes the order stable from page to page and from run to run.
        query = urlencode({"page": number, "pageSize": _PAGE, "seed": 1})
        return f"{self.policy.base_url.rstrip('/')}/servers?{query}"

    async def detail(self, ref: RecordRef, get: FetchPage, render: RenderPage) -> Any:
        return await get(ref.url, lambda page: parse_json_object(page, "qualifiedName"), ref=ref)

    def parse(self, raw: Any, ref: RecordRef) -> list[Listing]:
        """The listing of a record's own answer; a list's record is too thin to launch."""
        name = _read_qualified_name(raw)
        if not name:
            raise ValueError(_NAMELESS)
        has_detail = not _DETAIL.isdisjoint(raw)
        facts: Facts = read_connection_facts(raw) if has_detail else {"reason": THIN}
        return [
            Listing(
                marketplace=self.name,
                native_id=ref.native_id or name,
                name=read_string(raw.get("displayName")) or name,
                description=read_string(raw.get("description")),
                tools=dump_tools(raw.get("tools")),
                **facts,
            )
        ]


def _read_qualified_name(item: Any) -> str:
    name = as_object(item).get("qualifiedName")
    return name.strip() if isinstance(name, str) else ""


def _digest_revision(item: Mapping[str, Any]) -> str:
    """A digest of what the list says about the server itself, not of its use."""
    return sha256(repr([read_string(item.get(key)) for key in _STABLE]).encode("utf-8", "replace"))


def _read_number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
