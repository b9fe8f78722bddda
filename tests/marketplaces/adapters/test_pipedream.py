"""Pipedream's apps: one remote server each, and the forms of 2025."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from assets.marketplaces.adapters.pipedream import PipedreamAdapter
from assets.marketplaces.policy import CrawlError, CrawlPolicy
from tests.marketplaces.answers import POLICY, Answers, read, read_inputs
from tests.support.cases import cases

ADAPTER = PipedreamAdapter(POLICY)
APPS = f"{POLICY.base_url}/v1/connect/apps?limit=100"
APP = {"id": "app_1", "name_slug": "quill", "name": "Quill", "description": "Writes."}


def apps(*slugs: str, cursor: str | None = None, total: int = 1) -> dict[str, Any]:
    info = {"count": len(slugs), "total_count": total, "end_cursor": cursor}
    return {"data": [APP | {"name_slug": slug} for slug in slugs], "page_info": info}


def test_an_app_is_a_remote_server_whose_headers_the_user_fills_in():
    (found,) = read(ADAPTER, APP, "quill")
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


def test_the_list_follows_its_cursor_to_the_end():
    pages = {APPS: apps("a", "b", cursor="x="), f"{APPS}&after=x%3D": apps("c")}
    one, two = Answers(pages).listed(ADAPTER)
    assert [ref.native_id for ref in (*one.refs, *two.refs)] == ["a", "b", "c"]
    assert (one.ended, two.ended) == (False, True)


@cases("total, ended", (1, True), (9, False))
def test_an_empty_page_behind_a_cursor_is_the_end_of_a_list_of_that_total(total, ended):
    pages = {
        APPS: apps("a", cursor="x", total=total),
        f"{APPS}&after=x": apps(cursor="x", total=total),
    }
    last = Answers(pages).listed(ADAPTER)[-1]
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
