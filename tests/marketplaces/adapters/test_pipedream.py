"""Pipedream's apps: one remote server each, and the forms of 2025."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given

from assets.marketplaces.adapters.pipedream import PipedreamAdapter
from assets.marketplaces.policy import CrawlError, CrawlPolicy, FetchedPage
from tests.marketplaces.answers import POLICY, Answers, check_reading, mutations, read, saved_page
from tests.support.paths import SHARED

ADAPTER = PipedreamAdapter(POLICY)
APPS = f"{POLICY.base_url}/v1/connect/apps?limit=100"
APP = {"id": "app_1", "name_slug": "quill", "name": "Quill", "description": "Writes."}
USER = "1b2c3d4e-0000-4000-8000-123456789abc"


def apps(*slugs: str, cursor: str | None = None, total: int = 1) -> dict[str, Any]:
    info = {"count": len(slugs), "total_count": total, "end_cursor": cursor}
    return {"data": [APP | {"name_slug": slug} for slug in slugs], "page_info": info}


def test_an_app_is_a_remote_server_whose_headers_the_user_fills_in() -> None:
    (found,) = read(ADAPTER, apps("quill"))
    assert (found.native_id, found.name, found.description) == ("quill", "Quill", "Writes.")
    assert (found.transport, found.url) == (
        "streamable-http",
        "https://remote.mcp.pipedream.net/v3",
    )
    assert [
        (header.name, header.required, header.secret, header.default) for header in found.headers
    ] == [
        ("Authorization", True, True, None),
        ("x-pd-app-slug", True, False, "quill"),
        ("x-pd-environment", True, False, None),
        ("x-pd-external-user-id", True, False, None),
        ("x-pd-project-id", True, False, None),
    ]
    assert found.flags == ("hosted_gateway", "needs_account")


@pytest.mark.parametrize("user", [USER, "<external-user-uuid>"])
def test_the_user_in_the_path_of_2025_is_a_place_to_fill_in(user: str) -> None:
    entry = {"url": f"https://mcp.pipedream.net/{user}/zoom", "transport": "sse"}
    (found,) = read(ADAPTER, {"mcpServers": {"zoom": entry}})
    assert (found.native_id, found.transport) == ("zoom", "sse")
    assert found.url == "https://mcp.pipedream.net/{external_user_id}/zoom"
    assert set(found.flags) == {"hosted_gateway", "needs_account", "placeholder"}
    assert USER not in str(found)


def test_a_card_of_2025_is_an_app() -> None:
    html = """<html><a class="block" href="https://mcp.pipedream.com/app/quill"><h2>Quill</h2>
      <div><p class="text-sm">Writes &amp; reads.</p></div></a><a href="/about">x</a></html>"""
    (ref,) = ADAPTER.saved(FetchedPage("x.html", "text/html", html.encode()))
    (found,) = ADAPTER.parse(ref.raw, ref)
    assert (found.native_id, found.name, found.description) == ("quill", "Quill", "Writes & reads.")


@pytest.mark.parametrize(
    "payload",
    [
        saved_page({"data": []}),
        saved_page({"data": [{"id": "x"}]}),
        saved_page({"servers": []}),
        saved_page({"mcpServers": {"a": {"command": "npx", "args": ["a"]}}}),
        FetchedPage("x.html", "text/html", b"<html><h1>x</h1></html>"),
    ],
)
def test_what_pipedream_does_not_serve_is_refused(payload: FetchedPage) -> None:
    with pytest.raises(CrawlError):
        ADAPTER.saved(payload)


def test_the_list_follows_its_cursor_to_the_end() -> None:
    pages = {APPS: apps("a", "b", cursor="x="), f"{APPS}&after=x%3D": apps("c")}
    one, two = Answers(pages).listed(ADAPTER)
    assert [ref.native_id for ref in (*one.refs, *two.refs)] == ["a", "b", "c"]
    assert (one.ended, two.ended) == (False, True)


def test_an_empty_page_behind_a_cursor_is_the_end() -> None:
    pages = {APPS: apps("a", cursor="x"), f"{APPS}&after=x": apps(cursor="x")}
    assert Answers(pages).listed(ADAPTER)[-1].ended


def test_a_list_that_ends_before_its_total_is_truncated() -> None:
    (page,) = Answers({APPS: apps("a", total=9)}).listed(ADAPTER)
    assert (page.ended, page.truncated) == (False, True)


def test_a_cursor_that_comes_again_stops_the_crawl() -> None:
    pages = {APPS: apps("a", cursor="x"), f"{APPS}&after=x": apps("b", cursor="x")}
    last = Answers(pages).listed(ADAPTER)[-1]
    assert not last.ended
    assert last.problems[-1]["error_kind"] == "cursor_loop"


def test_an_app_without_a_slug_is_a_row() -> None:
    body = apps("a")
    body["data"].append({"name": "x"})
    (page,) = Answers({APPS: body}).listed(ADAPTER)
    assert [row["error_kind"] for row in page.problems] == ["malformed"]


def test_a_token_is_bought_with_the_users_oauth_client() -> None:
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


@given(mutations(apps("a", "b")))
def test_a_mutated_list_is_read_or_refused(value: Any) -> None:
    check_reading(ADAPTER, value)


SAMPLES = SHARED / "marketplaces"


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "content_type"),
    [
        ("connect.list-apps.shape.json", "application/json"),
        ("config.sample.redacted.json", "application/json"),
        ("listing.card.2025.html", "text/html"),
    ],
)
def test_the_documented_samples_are_read(name: str, content_type: str) -> None:
    file = SAMPLES / "pipedream" / name
    if not file.exists():
        pytest.skip("../shared/data is not here")
    (ref,) = ADAPTER.saved(FetchedPage(name, content_type, file.read_bytes()))
    assert "needs_account" in ADAPTER.parse(ref.raw, ref)[0].flags
