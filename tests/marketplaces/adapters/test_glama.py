"""Glama: two lists under one cursor, connectors that run and servers that do not say how."""

import asyncio
from typing import Any

import pytest

from assets.marketplaces.adapters.glama import GlamaAdapter
from assets.marketplaces.policy import CrawlError, CrawlPolicy, FetchedPage
from tests.marketplaces.answers import Answers, read, read_inputs
from tests.support.cases import cases

BASE = "https://market.example/api/mcp"
ADAPTER = GlamaAdapter(CrawlPolicy(BASE, keys={"api_key": "k"}))


def first(scope: str, after: str = "") -> str:
    return f"{BASE}/v1/{scope}?first=100" + (f"&after={after}" if after else "")


def record(slug: str, **facts: Any) -> dict[str, Any]:
    return {
        "id": f"id-{slug}", "name": slug.title(), "namespace": "ann", "slug": slug,
        "description": "D.", "url": f"https://glama.ai/mcp/x/ann/{slug}", "attributes": None,
        "repository": {"url": "https://github.com/ann/notes"}, **facts,
    }  # fmt: skip


def connector(slug: str, auth: str = "none", **facts: Any) -> dict[str, Any]:
    url = f"https://{slug}.example/mcp"
    connection = {"authType": auth, "transport": "streamable_http", "url": url}
    return record(slug, connection=connection | facts)


def server(slug: str, **schema: Any) -> dict[str, Any]:
    return record(slug, environmentVariablesJsonSchema={"type": "object", **schema})


def page(scope: str, *records: Any, cursor: Any = None, more: Any = False) -> dict[str, Any]:
    return {scope: list(records), "pageInfo": {"endCursor": cursor, "hasNextPage": more}}


def test_the_key_is_a_bearer_and_connectors_are_the_default():
    async def unused(url: str, form: Any) -> dict[str, Any]:
        raise AssertionError(url)

    assert asyncio.run(ADAPTER.headers(unused)) == {"Authorization": "Bearer k"}
    answers = Answers({
        first("connectors"): page("connectors", connector("a"), cursor="YWI=", more=True),
        first("connectors", "YWI%3D"): page("connectors", connector("b")),
    })  # fmt: skip
    pages = answers.listed(ADAPTER)
    assert [ref.native_id for item in pages for ref in item.refs] == [
        "connectors/ann/a", "connectors/ann/b",
    ]  # fmt: skip
    assert [item.ended for item in pages] == [False, True]
    assert all(ref.raw for item in pages for ref in item.refs)


def test_both_lists_are_read_where_the_scope_says_so():
    both = GlamaAdapter(CrawlPolicy(BASE, scope=("servers", "connectors")))
    answers = Answers({
        first("connectors"): page("connectors", connector("a")),
        first("servers"): page("servers", server("a")),
    })  # fmt: skip
    pages = answers.listed(both)
    assert [ref.native_id for item in pages for ref in item.refs] == ["connectors/ann/a", "ann/a"]
    assert [item.ended for item in pages] == [False, True]


@cases("cursor, kind", ("x", "cursor_loop"), (None, "malformed"))
def test_a_list_that_cannot_go_on_is_not_at_its_end(cursor, kind):
    body = page("connectors", connector("a"), cursor=cursor, more=True)
    pages = Answers({first("connectors"): body, first("connectors", "x"): body}).listed(ADAPTER)
    assert not pages[-1].ended
    assert [row["error_kind"] for row in pages[-1].problems] == [kind]


def test_a_cut_list_spoils_the_end_of_the_next_one():
    both = GlamaAdapter(CrawlPolicy(BASE, scope=("servers", "connectors")))
    pages = Answers({
        first("connectors"): page("connectors", connector("a"), more=True),
        first("servers"): page("servers", server("a")),
    }).listed(both)  # fmt: skip
    assert not any(item.ended for item in pages)


@cases(
    "answer, kind",
    (FetchedPage("x", "text/html", b"<html>busy</html>"), "wrong_type"),
    (FetchedPage("x", "application/json", b'{"connectors": ['), "truncated"),
    (FetchedPage("x", "application/json", b""), "empty"),
    ({"connectors": [], "pageInfo": {}}, "empty"),
    ({"connectors": {}, "pageInfo": {}}, "missing_key"),
    ({"connectors": [connector("a")]}, "missing_key"),
    ({"connectors": [connector("a")], "pageInfo": None}, "missing_key"),
    ({"error": {"code": "unauthorized"}}, "missing_key"),
)
def test_another_answer_with_status_200_is_an_error(answer, kind):
    with pytest.raises(CrawlError, match=rf"\({kind}\)"):
        Answers({first("connectors"): answer}).listed(ADAPTER)


def test_a_connector_is_a_remote():
    listing = read(ADAPTER, connector("a"))[0]
    assert (listing.transport, listing.url) == ("streamable-http", "https://a.example/mcp")
    assert (listing.runnable, listing.headers, listing.flags) == (True, (), ())
    assert listing.repository == "https://github.com/ann/notes"
    assert read(ADAPTER, connector("a", transport="sse"))[0].transport == "sse"


@cases("auth", "api_key", "oauth2", "basic", "something new")
def test_a_connector_behind_a_key_needs_an_account(auth):
    listing = read(ADAPTER, connector("a", auth))[0]
    assert read_inputs(listing.headers) == {"Authorization": (True, True, None)}
    assert listing.flags == ("needs_account",)


def test_a_connector_that_is_deprecated_or_hosted_by_glama_is_flagged():
    made = connector("a", url="https://glama.ai/mcp/instances/x/sse")
    listing = read(ADAPTER, made | {"deprecatedAt": "2026-10-01T00:00:00Z"})[0]
    assert listing.flags == ("deprecated", "hosted_gateway")


def test_a_server_names_its_variables_and_no_command():
    properties = {"NOTES_API_KEY": {"type": "string", "description": "Key."},
                  "NOTES_COLOUR": {"type": "string", "default": "blue"},
                  "NOTES_TOKEN": {"type": "string", "default": "s3cret"}}  # fmt: skip
    one = server("a", properties=properties, required=["NOTES_API_KEY"])
    listing = read(ADAPTER, one)[0]
    assert not listing.runnable
    assert "no command" in str(listing.reason)
    assert read_inputs(listing.env) == {
        "NOTES_API_KEY": (True, True, None),
        "NOTES_COLOUR": (False, False, "blue"),
        "NOTES_TOKEN": (False, True, None),
    }
    assert listing.flags == ("needs_account",)


def test_a_record_of_neither_kind_is_a_server():
    bare = {"id": "x1", "namespace": "ann", "slug": "a", "url": "https://glama.ai/mcp/servers/a"}
    (found,) = read(ADAPTER, bare)
    assert (found.native_id, found.runnable) == ("ann/a", False)
