"""PulseMCP: its keys, its `_meta`, and the dumps of its retired API."""

import asyncio
from typing import Any

import pytest
from hypothesis import given

from assets.marketplaces.adapters.pulsemcp import PulseMcpAdapter
from assets.marketplaces.listing import load_tools
from assets.marketplaces.policy import CrawlError, CrawlPolicy
from tests.marketplaces.answers import POLICY, Answers, check_reading, mutations, read, saved_page
from tests.support.examples import examples

ADAPTER = PulseMcpAdapter(POLICY)


def record(name: str, *, version: dict[str, Any] | None = None, **server: Any) -> dict[str, Any]:
    meta = {
        "source": "x",
        "status": "active",
        "isLatest": True,
        "updatedAt": "2026-11-01T00:00:00Z",
    }
    return {
        "server": {"name": name, "version": "1.0.0", **server},
        "_meta": {
            "com.pulsemcp/server": {"isOfficial": False},
            "com.pulsemcp/server-version": meta | (version or {}),
        },
    }


KEYED = {"type": "api_key", "detail": {"sources": [{"name": "X-Key", "location": "header"}]}}
REMOTES = [{"type": "sse", "url": "https://x.example/sse"}]


def test_tools_are_of_the_remote_that_is_launched_else_of_the_first_that_has_any() -> None:
    def find_tools(**version: Any) -> list[dict[str, Any]]:
        (found,) = read(ADAPTER, record("a/b", remotes=REMOTES, version=version))
        return load_tools(found.tools or "[]")

    one, other = ([{"name": name, "annotations": {"readOnlyHint": True}}] for name in "ab")
    assert find_tools(**{"remotes[1]": {"tools": other}, "remotes[0]": {"tools": one}}) == one
    assert find_tools(**{"remotes[0]": {"tools": []}, "remotes[1]": {"tools": other}}) == other
    assert find_tools(**{"remotes[0]": ["tools"], "remotes[1]": {"tools": "b"}}) == []


def test_key_and_tenant_go_as_headers() -> None:
    policy = CrawlPolicy("https://market.example", keys={"api_key": "k", "tenant_id": "t"})

    async def unused(url: str, form: Any) -> dict[str, Any]:
        raise AssertionError(url)

    found = asyncio.run(PulseMcpAdapter(policy).headers(unused))
    assert found == {"X-API-Key": "k", "X-Tenant-ID": "t"}
    assert PulseMcpAdapter.needs == ("api_key", "tenant_id")


def test_its_own_meta_says_what_is_latest_deleted_and_when() -> None:
    url = "https://market.example/v0.1/servers?limit=100&version=latest"
    records = [
        record("a/b", remotes=REMOTES),
        record("a/b", version={"isLatest": False}),
        record("a/c", version={"status": "deleted"}),
    ]
    refs = Answers({url: {"servers": records, "metadata": {"count": 3}}}).listed(ADAPTER)[0].refs
    assert [(ref.native_id, ADAPTER.deleted(ref)) for ref in refs] == [
        ("a/b", False),
        ("a/c", True),
    ]
    listing = ADAPTER.parse(refs[0].raw, refs[0])[0]
    assert (listing.marketplace, listing.updated_at) == ("pulsemcp", "2026-11-01T00:00:00Z")


@pytest.mark.parametrize(
    ("options", "headers"),
    [
        ([{"type": "open"}], []),
        ([{"type": "oauth", "detail": {}}], ["Authorization"]),
        ([{"type": "oauth"}, KEYED], ["X-Key"]),
        ([], []),
        (None, []),
    ],
)
def test_how_a_remote_is_signed_in_to(options: Any, headers: list[str]) -> None:
    made = record("a/b", remotes=REMOTES, version={"remotes[0]": {"authOptions": options}})
    listing = read(ADAPTER, made)[0]
    assert [header.name for header in listing.headers] == headers
    assert all(header.required and header.secret for header in listing.headers)
    assert listing.flags == (("needs_account",) if headers else ())


def test_headers_of_the_record_itself_come_first() -> None:
    remotes = [REMOTES[0] | {"headers": [{"name": "X-Own", "isSecret": True}]}]
    meta = {"remotes[0]": {"authOptions": [{"type": "oauth"}]}}
    listing = read(ADAPTER, record("a/b", remotes=remotes, version=meta))[0]
    assert [header.name for header in listing.headers] == ["X-Own"]


DUMP = {
    "servers": [
        {
            "name": "Files", "url": "https://www.pulsemcp.com/servers/example-files",
            "external_url": None, "short_description": "Files.",
            "source_code_url": "https://github.com/example/files", "github_stars": 3,
            "package_registry": "npm", "package_name": "@example/files",
            "package_download_count": 10, "EXPERIMENTAL_ai_generated_description": "More.",
        },
        {
            "name": "Remote", "url": "https://other.example/servers/x", "short_description": "R.",
            "source_code_url": None, "package_registry": None, "package_name": None,
            "remotes": [{"transport": "streamable_http", "url_direct": "https://x.example/mcp"}],
        },
        {"name": "Thin", "short_description": "T.", "source_code_url": None},
    ],
    "total_count": 3, "next": None,
}  # fmt: skip


def test_a_dump_of_the_retired_api_is_readable() -> None:
    files, remote, thin = read(ADAPTER, DUMP)
    assert (files.native_id, files.args) == ("example-files", ("-y", "@example/files"))
    assert files.flags == ("unpinned",)
    assert files.evidence == "package_registry, package_name"
    assert (remote.native_id, remote.transport) == ("Remote", "streamable-http")
    assert not thin.runnable
    assert thin.reason


@pytest.mark.parametrize(
    "payload",
    [
        {"error": "Invalid or missing API key", "code": "unauthorized", "details": {}},
        {"servers": [{"server": {"name": "a/b"},
                      "_meta": {"io.modelcontextprotocol.registry/official": {}}}]},
        {"$schema": "https://x", "name": "a/b", "packages": []},
        {"servers": [{"qualifiedName": "a/b"}], "pagination": {}},
    ],
)  # fmt: skip
def test_what_pulsemcp_does_not_serve_is_refused(payload: Any) -> None:
    with pytest.raises(CrawlError, match="pulsemcp"):
        ADAPTER.saved(saved_page(payload))


SIGNED = {"remotes[0]": {"authOptions": [KEYED]}}


@examples(200)
@given(mutations({"servers": [record("a/b", remotes=REMOTES, version=SIGNED)], "metadata": {}}))
def test_no_mutation_of_a_record_is_a_crash(value: Any) -> None:
    check_reading(ADAPTER, value)


@examples(150)
@given(mutations(DUMP))
def test_no_mutation_of_a_dump_is_a_crash(value: Any) -> None:
    check_reading(ADAPTER, value)


@pytest.mark.parametrize(
    ("method", "headers"),
    [("api_key", ["Authorization"]), ("oauth2", ["Authorization"]), ("none", []), (None, [])],
)
def test_a_dump_says_whether_a_remote_wants_an_account(method: Any, headers: list[str]) -> None:
    remote = {"url_direct": "https://a.example/mcp", "transport": "streamable_http"}
    one = {
        "name": "Quill",
        "short_description": "Writes.",
        "package_name": None,
        "remotes": [remote | {"authentication_method": method}],
    }
    (listing,) = read(ADAPTER, {"servers": [one]})
    assert [
        header.name for header in listing.headers if header.required and header.secret
    ] == headers
    assert ("needs_account" in listing.flags) is bool(headers)
