"""Glama: its MCP directory API, connectors by default and servers where the scope says so."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import urlencode, urlsplit

from assets.marketplaces.adapters.records import (
    cut_list,
    find_saved,
    follow_cursor,
    list_refs,
)
from assets.marketplaces.launch.mcp_config import (
    add_flags,
    make_malformed,
    make_unrunnable,
    read_remote_facts,
)
from assets.marketplaces.launch.variables import find_account_flags
from assets.marketplaces.listing import HeaderVar, Listing, dump_tools
from assets.marketplaces.payload import check_json_list, parse_json
from assets.marketplaces.policy import (
    FactEvidence,
    FetchedPage,
    FetchPage,
    MarketplaceAdapter,
    PostForm,
    RecordPage,
    RecordRef,
)
from assets.marketplaces.server_json.inputs import read_schema_inputs, read_string
from warehouse.sanitize.redact import redact

_FIRST = 100  # the most the API allows
_MARKS = {"connection", "environmentVariablesJsonSchema", "repository", "attributes"}
_NAMELESS = "the record has no namespace and slug"
_NO_COMMAND = "Glama names no command and no package; they stand in the server's repository"


class GlamaAdapter(MarketplaceAdapter):
    """The list already holds whole records."""

    name: ClassVar[str] = "glama"
    needs: ClassVar[tuple[str, ...]] = ("api_key",)
    scopes: ClassVar[tuple[str, ...]] = ("connectors", "servers")
    robots: ClassVar[bool] = False  # robots.txt closes /api/ to those without a key
    evidence: ClassVar[Mapping[str, FactEvidence]] = {
        "list": FactEvidence("captured", "a client's fixtures of live records, 2026-09"),
        "paging": FactEvidence("documented", "provider's OpenAPI of 2025: first, after, pageInfo"),
        "launch": FactEvidence("captured", "`connection` of a connector, 2026-09"),
        "headers": FactEvidence("guessed", "authType other than none is taken as `Authorization`"),
        "env": FactEvidence("documented", "environmentVariablesJsonSchema, OpenAPI of 2025"),
        "secret": FactEvidence("guessed", "by the variable's name; the schema marks none"),
        "tools": FactEvidence("documented", "`tools` of a record; often empty in the list"),
    }

    async def headers(self, post: PostForm) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.policy.keys['api_key']}"}

    async def refs(self, get: FetchPage, since: str | None = None) -> AsyncIterator[RecordPage]:
        scopes = [scope for scope in self.scopes if scope in self.policy.scope] or [self.scopes[0]]
        whole = True
        for scope in scopes:
            ended = False
            async for page in self._read_list(get, scope):
                ended = page.ended
                yield replace(page, ended=ended and whole and scope == scopes[-1])
            whole = whole and ended

    async def _read_list(self, get: FetchPage, scope: str) -> AsyncIterator[RecordPage]:
        def make_url(after: str | None) -> str:
            query = {"first": str(_FIRST)} | ({"after": after} if after else {})
            return f"{self.policy.base_url.rstrip('/')}/v1/{scope}?{urlencode(query)}"

        async def read(url: str, first: bool) -> tuple[RecordPage, str | None]:
            check = check_json_list(scope, empty_is_fine=not first, beside="pageInfo")
            body = await get(url, check)
            refs, problems = list_refs(body[scope], url, _make_ref, _NAMELESS)
            page = RecordPage(refs, problems=problems)
            after = read_string(body["pageInfo"].get("endCursor")) or None
            if body["pageInfo"].get("hasNextPage") is not True:
                return replace(page, ended=True), None
            if after is None:
                page = cut_list(page, url, "malformed", "the cursor is missing")
            return page, after

        async for page in follow_cursor(make_url, read):
            yield page

    def parse(self, raw: Any, ref: RecordRef) -> list[Listing]:
        """The listing of one connector or server."""
        native_id = _read_native_id(raw)
        if native_id is None:
            raise ValueError(_NAMELESS)
        repository = raw.get("repository")
        address = repository.get("url") if isinstance(repository, dict) else repository
        try:
            facts = _read_connector(raw) if _is_connector(raw) else _read_server(raw)
        except (ValueError, TypeError, AttributeError) as error:
            facts = make_malformed(error)
        if raw.get("deprecatedAt"):
            facts = add_flags(facts, ["deprecated"])
        return [
            Listing(
                marketplace=self.name,
                native_id=native_id,
                name=redact(read_string(raw.get("name")) or native_id),
                description=redact(read_string(raw.get("description"))),
                repository=redact(read_string(address)) or None,
                updated_at=read_string(raw.get("updatedAt")) or None,
                tools=dump_tools(raw.get("tools")),
                **facts,
            )
        ]

    def saved(self, page: FetchedPage) -> list[RecordRef]:
        """Records of a page of either list, of one answer, or of a JSON list."""
        value = parse_json(page)
        found = value if isinstance(value, list) else [value]
        if isinstance(value, dict):
            lists = [value[scope] for scope in self.scopes if isinstance(value.get(scope), list)]
            found = lists[0] if lists else found
            if lists and not found and "pageInfo" in value:
                return []
        expected = "a page, a server or a connector of glama"
        named = find_saved(page, value, found, _is_ours, expected)
        return [RecordRef(str(_read_native_id(item)), page.url, raw=item) for item in named]


def _make_ref(record: Any, url: str) -> RecordRef | None:
    native_id = _read_native_id(record)
    return RecordRef(native_id, url, raw=record) if native_id else None


def _read_native_id(record: Any) -> str | None:
    """namespace/slug; a connector, which may share both with a server, is told apart."""
    if not isinstance(record, dict):
        return None
    parts = [read_string(record.get(key)).strip() for key in ("namespace", "slug")]
    named = "/".join(parts) if all(parts) else read_string(record.get("id")).strip()
    if not named:
        return None
    return f"connectors/{named}" if _is_connector(record) else named


def _is_connector(record: Mapping[str, Any]) -> bool:
    return "connection" in record or "/connectors/" in read_string(record.get("url"))


def _is_ours(record: Any) -> bool:
    if _read_native_id(record) is None or "qualifiedName" in record:
        return False
    parts = all(read_string(record.get(key)) for key in ("namespace", "slug"))
    home = read_string(record.get("url")).startswith("https://glama.ai/")
    return home or (parts and bool(_MARKS & record.keys()))


def _read_connector(record: Mapping[str, Any]) -> dict[str, Any]:
    """A remote endpoint. How a key is sent is not said: `Authorization` is the usual place."""
    connection = record.get("connection")
    if not isinstance(connection, dict):
        return make_unrunnable("the connector names no connection")
    auth = read_string(connection.get("authType")).lower()
    headers: tuple[HeaderVar, ...] = ()
    if auth not in ("", "none"):
        description = f"authType {auth}"
        headers = (
            HeaderVar(name="Authorization", required=True, secret=True, description=description),
        )
    transport = read_string(connection.get("transport"))
    facts = read_remote_facts(read_string(connection.get("url")).strip(), transport, headers)
    if (urlsplit(facts["url"]).hostname or "").endswith("glama.ai"):
        facts = add_flags(facts, ["hosted_gateway"])
    return facts | {"evidence": "connection"}


def _read_server(record: Mapping[str, Any]) -> dict[str, Any]:
    """Names of variables and no command."""
    schema = record.get("environmentVariablesJsonSchema")
    env = tuple(variable for variable, _ in read_schema_inputs(schema))
    return {
        "env": env,
        "flags": find_account_flags(env),
        "evidence": "environmentVariablesJsonSchema" if env else "",
        "runnable": False,
        "reason": _NO_COMMAND,
    }
