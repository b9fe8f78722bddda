"""Glama: two lists under one cursor, connectors and servers; and the apps of Pipedream."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from assets.marketplaces.adapters.glama import GlamaAdapter
from assets.marketplaces.adapters.pipedream import PipedreamAdapter
from assets.marketplaces.policy import CrawlError, CrawlPolicy, FetchedPage
from tests.marketplaces.answers import POLICY, Answers, read, read_inputs
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


def test_the_key_is_a_bearer_and_the_scope_chooses_between_connectors_and_servers():
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


def test_a_connector_is_a_remote_and_flagged_where_it_is_deprecated_or_hosted():
    listing = read(ADAPTER, connector("a"))[0]
    assert (listing.transport, listing.url) == ("streamable-http", "https://a.example/mcp")
    assert (listing.runnable, listing.headers, listing.flags) == (True, (), ())
    assert listing.repository == "https://github.com/ann/notes"
    assert read(ADAPTER, connector("a", transport="sse"))[0].transport == "sse"
    made = connector("a", url="https://glama.ai/mcp/instances/x/sse")
    listing = read(ADAPTER, made | {"deprecatedAt": "2026-10-01T00:00:00Z"})[0]
    assert listing.flags == ("deprecated", "hosted_gateway")
    bare = {"id": "x1", "namespace": "ann", "slug": "a", "url": "https://glama.ai/mcp/servers/a"}
    (found,) = read(ADAPTER, bare)
    assert (found.native_id, found.runnable) == ("ann/a", False)


@cases("auth", "api_key", "oauth2", "basic", "something new")
def test_a_connector_behind_a_key_needs_an_account(auth):
    listing = read(ADAPTER, connector("a", auth))[0]
    assert read_inputs(listing.headers) == {"Authorization": (True, True, None)}
    assert listing.flags == ("needs_account",)


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


# --- Pipedream's apps: one remote server each, and the forms of 2025
PIPEDREAM = PipedreamAdapter(POLICY)
APPS = f"{POLICY.base_url}/v1/connect/apps?limit=100"
APP = {"id": "app_1", "name_slug": "quill", "name": "Quill", "description": "Writes."}


def apps(*slugs: str, cursor: str | None = None, total: int = 1) -> dict[str, Any]:
    info = {"count": len(slugs), "total_count": total, "end_cursor": cursor}
    return {"data": [APP | {"name_slug": slug} for slug in slugs], "page_info": info}


def test_an_app_is_a_remote_server_whose_headers_the_user_fills_in_and_the_list_ends():
    (found,) = read(PIPEDREAM, APP, "quill")
    assert (found.native_id, found.name, found.description) == ("quill", "Quill", "Writes.")
    assert found.transport == "streamable-http"
    assert found.url == "https://remote.mcp.pipedream.net/v3"
    assert read_inputs(found.headers) == {
        "Authorization": (True, True, None),
        "x-pd-app-slug": (True, False, "quill"),
        "x-pd-environment": (True, False, None),
        "x-pd-external-user-id": (True, False, None),
        "x-pd-project-id": (True, False, None),
    }
    assert found.flags == ("hosted_gateway", "needs_account")
    pages = {APPS: apps("a", "b", cursor="x="), f"{APPS}&after=x%3D": apps("c")}
    one, two = Answers(pages).listed(PIPEDREAM)
    assert [ref.native_id for ref in (*one.refs, *two.refs)] == ["a", "b", "c"]
    assert (one.ended, two.ended) == (False, True)


@cases("total, ended", (1, True), (9, False))
def test_an_empty_page_behind_a_cursor_is_the_end_of_a_list_of_that_total(total, ended):
    pages = {
        APPS: apps("a", cursor="x", total=total),
        f"{APPS}&after=x": apps(cursor="x", total=total),
    }
    last = Answers(pages).listed(PIPEDREAM)[-1]
    assert (last.ended, last.truncated) == (ended, not ended)


def test_a_token_is_bought_with_the_users_oauth_client():
    keys = {"client_id": "me", "client_secret": "made-up"}
    adapter = PipedreamAdapter(CrawlPolicy(POLICY.base_url, keys=keys))
    sent: list[tuple[str, Mapping[str, str]]] = []

    async def post(url: str, form: Mapping[str, str]) -> dict[str, Any]:
        sent.append((url, form))
        return {"access_token": "t0k3n"}

    assert asyncio.run(adapter.headers(post)) == {"Authorization": "Bearer t0k3n"}
    form = {"grant_type": "client_credentials", **keys}
    assert sent == [(f"{POLICY.base_url}/v1/oauth/token", form)]

    async def refused(url: str, form: Mapping[str, str]) -> dict[str, Any]:
        return {"error": "invalid_client", "echo": dict(form)}

    with pytest.raises(CrawlError) as caught:
        asyncio.run(adapter.headers(refused))
    assert "made-up" not in str(caught.value)
