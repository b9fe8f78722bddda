"""Glama: its MCP directory API, connectors by default and servers where the scope says so."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import urlencode, urlsplit

from assets.marketplaces.adapters.records import cut_list, follow_cursor, list_refs
from assets.marketplaces.launch.mcp_config import (
    add_flags,
    make_malformed,
    make_unrunnable,
    read_remote_facts,
)
from assets.marketplaces.launch.shell_words import find_account_flags
from assets.marketplaces.listing import HeaderVar, Listing, dump_tools
from assets.marketplaces.payload import check_json_list
from assets.marketplaces.policy import (
    FetchPage,
    MarketplaceAdapter,
    PostForm,
    RecordPage,
    RecordRef,
)
from assets.marketplaces.server_json.inputs import as_object, read_schema_inputs, read_string

_FIRST = 100  # the most the API allows
_NAMELESS = "the record has no namespace and slug"
_NO_COMMAND = "Glama names no command and no package; they stand in the server's repository"


class GlamaAdapter(MarketplaceAdapter):
    """The list already holds whole records."""

    name: ClassVar[str] = "glama"
    needs: ClassVar[tuple[str, ...]] = ("api_key",)
    scopes: ClassVar[tuple[str, ...]] = ("connectors", "servers")
    robots: ClassVar[bool] = False  # robots.txt closes /api/ to those without a key

    async def headers(self, post: PostForm) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.policy.keys['api_key']}"}

    async def refs(self, get: FetchPage) -> AsyncIterator[RecordPage]:
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
        own_ref = _make_ref(raw, ref.url)
        if own_ref is None:
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
                native_id=own_ref.native_id,
                name=read_string(raw.get("name")) or own_ref.native_id,
                description=read_string(raw.get("description")),
                repository=read_string(address) or None,
                updated_at=read_string(raw.get("updatedAt")) or None,
                tools=dump_tools(raw.get("tools")),
                **facts,
            )
        ]


def _make_ref(record: Any, url: str) -> RecordRef | None:
    """By namespace/slug, else id; a connector may share both with a server."""
    record = as_object(record)
    names = [read_string(record.get(key)).strip() for key in ("namespace", "slug")]
    name = "/".join(names) if all(names) else read_string(record.get("id")).strip()
    prefix = "connectors/" if _is_connector(record) else ""
    return RecordRef(f"{prefix}{name}", url, raw=record) if name else None


def _is_connector(record: Mapping[str, Any]) -> bool:
    return "connection" in record or "/connectors/" in read_string(record.get("url"))


def _read_connector(record: Mapping[str, Any]) -> dict[str, Any]:
    """A remote endpoint. How a key is sent is not said: `Authorization` is the usual place."""
    connection = record.get("connection")
    if not isinstance(connection, dict):
        return make_unrunnable("the connector names no connection")
    auth = read_string(connection.get("authType")).lower()
    header = HeaderVar(
        name="Authorization", required=True, secret=True, description=f"authType {auth}"
    )
    headers = () if auth in ("", "none") else (header,)
    transport = read_string(connection.get("transport"))
    facts = read_remote_facts(read_string(connection.get("url")).strip(), transport, headers)
    if (urlsplit(facts["url"]).hostname or "").endswith("glama.ai"):
        facts = add_flags(facts, ["hosted_gateway"])
    return facts | {"evidence": "connection"}


def _read_server(record: Mapping[str, Any]) -> dict[str, Any]:
    """Names of variables and no command."""
    schema = record.get("environmentVariablesJsonSchema")
    env = tuple(variable for variable, _ in read_schema_inputs(schema))
    return make_unrunnable(_NO_COMMAND) | {
        "env": env,
        "flags": find_account_flags(env),
        "evidence": "environmentVariablesJsonSchema" if env else "",
    }
