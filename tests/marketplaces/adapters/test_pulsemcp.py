"""PulseMCP: its keys, its `_meta`, and the dumps of its retired API."""

import asyncio
from typing import Any

from assets.marketplaces.adapters.pulsemcp import PulseMcpAdapter
from assets.marketplaces.listing import load_tools
from assets.marketplaces.policy import CrawlPolicy
from tests.marketplaces.answers import POLICY, Answers, read
from tests.support.cases import cases

ADAPTER = PulseMcpAdapter(POLICY)


def record(name: str, *, version: dict[str, Any] | None = None, **server: Any) -> dict[str, Any]:
    meta = {"source": "x", "status": "active", "isLatest": True}
    meta["updatedAt"] = "2026-11-01T00:00:00Z"
    return {
        "server": {"name": name, "version": "1.0.0", **server},
        "_meta": {
            "com.pulsemcp/server": {"isOfficial": False},
            "com.pulsemcp/server-version": meta | (version or {}),
        },
    }


KEYED = {"type": "api_key", "detail": {"sources": [{"name": "X-Key", "location": "header"}]}}
REMOTES = [{"type": "sse", "url": "https://x.example/sse"}]


def test_tools_are_of_the_remote_that_is_launched_else_of_the_first_that_has_any():
    def find_tools(**version: Any) -> list[dict[str, Any]]:
        (found,) = read(ADAPTER, record("a/b", remotes=REMOTES, version=version))
        return load_tools(found.tools or "[]")

    one, other = ([{"name": name, "annotations": {"readOnlyHint": True}}] for name in "ab")
    assert find_tools(**{"remotes[1]": {"tools": other}, "remotes[0]": {"tools": one}}) == one
    assert find_tools(**{"remotes[0]": {"tools": []}, "remotes[1]": {"tools": other}}) == other
    assert find_tools(**{"remotes[0]": ["tools"], "remotes[1]": {"tools": "b"}}) == []


def test_key_and_tenant_go_as_headers():
    policy = CrawlPolicy("https://market.example", keys={"api_key": "k", "tenant_id": "t"})

    async def unused(url: str, form: Any) -> dict[str, Any]:
        raise AssertionError(url)

    found = asyncio.run(PulseMcpAdapter(policy).headers(unused))
    assert found == {"X-API-Key": "k", "X-Tenant-ID": "t"}
    assert PulseMcpAdapter.needs == ("api_key", "tenant_id")


def test_its_own_meta_says_what_is_latest_deleted_and_when():
    url = "https://market.example/v0.1/servers?limit=100&version=latest"
    records = [
        record("a/b", remotes=REMOTES),
        record("a/b", version={"isLatest": False}),
        record("a/c", version={"status": "deleted"}),
    ]
    refs = Answers({url: {"servers": records, "metadata": {"count": 3}}}).listed(ADAPTER)[0].refs
    runnable = [ADAPTER.parse(ref.raw, ref)[0].runnable for ref in refs]
    assert [ref.native_id for ref in refs] == ["a/b", "a/c"]
    assert runnable == [True, False]
    listing = ADAPTER.parse(refs[0].raw, refs[0])[0]
    assert (listing.marketplace, listing.updated_at) == ("pulsemcp", "2026-11-01T00:00:00Z")


@cases(
    "options, headers",
    ([{"type": "open"}], []),
    ([{"type": "oauth", "detail": {}}], ["Authorization"]),
    ([{"type": "oauth"}, KEYED], ["X-Key"]),
    ([], []),
    (None, []),
)
def test_how_a_remote_is_signed_in_to(options, headers):
    made = record("a/b", remotes=REMOTES, version={"remotes[0]": {"authOptions": options}})
    listing = read(ADAPTER, made)[0]
    assert [header.name for header in listing.headers] == headers
    assert all(header.required and header.secret for header in listing.headers)
    assert listing.flags == (("needs_account",) if headers else ())


def test_headers_of_the_record_itself_come_first():
    remotes = [REMOTES[0] | {"headers": [{"name": "X-Own", "isSecret": True}]}]
    meta = {"remotes[0]": {"authOptions": [{"type": "oauth"}]}}
    listing = read(ADAPTER, record("a/b", remotes=remotes, version=meta))[0]
    assert [header.name for header in listing.headers] == ["X-Own"]
