"""The registry's list, its envelopes and its versions, without HTTP; and PulseMCP's."""

import asyncio
from typing import Any

from assets.marketplaces.adapters.pulsemcp import PulseMcpAdapter
from assets.marketplaces.adapters.registry import RegistryAdapter
from assets.marketplaces.listing import load_tools
from assets.marketplaces.policy import CrawlPolicy, RecordRef
from tests.marketplaces.answers import POLICY, Answers, read
from tests.support.cases import cases

OFFICIAL = "io.modelcontextprotocol.registry/official"
ADAPTER = RegistryAdapter(POLICY)
FIRST = "https://market.example/v0.1/servers?limit=100&version=latest"


def record(name: str, *, meta: dict[str, Any] | None = None, **server: Any) -> dict[str, Any]:
    official = {"status": "active", "isLatest": True, "updatedAt": "2026-11-20T10:00:00Z"}
    return {
        "server": {"name": name, "description": "x", "version": "1.0.0", **server},
        "_meta": {OFFICIAL: official | (meta or {})},
    }


def page(*records: Any, cursor: Any = None) -> dict[str, Any]:
    return {"servers": list(records), "metadata": {"nextCursor": cursor, "count": len(records)}}


def test_a_cursor_is_encoded_and_followed_to_the_end():
    second = f"{FIRST}&cursor=a%2Fb%3A1.0.0"
    answers = Answers({FIRST: page(record("a/b"), cursor="a/b:1.0.0"), second: page(record("a/c"))})
    pages = answers.listed(ADAPTER)
    assert [[ref.native_id for ref in item.refs] for item in pages] == [["a/b"], ["a/c"]]
    assert [item.ended for item in pages] == [False, True]
    assert pages[0].refs[0].revision == "2026-11-20T10:00:00Z"


@cases(
    "metadata, kind",
    ({"nextCursor": "again"}, "cursor_loop"),
    ({"nextCursor": {"a": 1}}, "malformed"),
    ([1], "malformed"),
)
def test_a_list_that_cannot_go_on_is_not_at_its_end(metadata, kind):
    body = {"servers": [record("a/b")], "metadata": metadata}
    pages = Answers({FIRST: body, f"{FIRST}&cursor=again": body}).listed(ADAPTER)
    assert not pages[-1].ended
    assert [row["error_kind"] for row in pages[-1].problems] == [kind]


def test_only_the_latest_version_of_a_name_is_listed_and_a_record_without_one_is_a_row():
    versions = [
        record("a/b", version="1.0.0", meta={"isLatest": False, "publishedAt": "2026-01-01"}),
        record("a/b", version="weird", meta={"publishedAt": "2026-03-01"}),
        record("a/b", version="2.0.0", meta={"publishedAt": "2026-05-01"}),
        record("a/c", version="1.0.0"),
        record("a/c", version="1.0.0"),
    ]
    refs = Answers({FIRST: page(*versions)}).listed(ADAPTER)[0].refs
    # The same version twice is left for the crawl to report.
    assert [(ref.native_id, ref.raw["server"]["version"]) for ref in refs] == [
        ("a/b", "2.0.0"), ("a/c", "1.0.0"), ("a/c", "1.0.0"),
    ]  # fmt: skip
    answers = Answers({FIRST: page(None, 7, {"server": {"name": " "}}, record("a/b"))})
    only = answers.listed(ADAPTER)[0]
    assert [ref.native_id for ref in only.refs] == ["a/b"]
    assert len({row["native_id"] for row in only.problems}) == 3


def test_every_envelope_is_readable_and_a_deeply_nested_record_is_malformed():
    one = record("a/b", remotes=[{"type": "sse", "url": "https://x.example/sse"}])
    bare = one["server"] | {"$schema": "https://schemas.example/2027-03-01/server.schema.json"}
    inside = bare | {"_meta": {OFFICIAL: {"is_latest": True, "updated_at": "2025-09-01T00:00:00Z"}}}
    for payload in (one, bare, inside):
        listing = read(ADAPTER, payload)[0]
        assert (listing.native_id, listing.transport) == ("a/b", "sse")
    assert read(ADAPTER, inside)[0].updated_at == "2025-09-01T00:00:00Z"
    deep: Any = "x"
    for _ in range(400):
        deep = {"registry_type": deep}
    old = {"name": "a/b", "packages": [deep, {"registry_type": "npm", "identifier": "x"}]}
    listing = ADAPTER.parse(old, RecordRef("a/b", "https://x"))[0]
    assert listing.runnable or "malformed" in str(listing.reason)


def test_its_own_meta_says_what_is_latest_and_when_and_a_deleted_record_is_not_run():
    remote = [{"type": "sse", "url": "https://x.example/sse"}]
    (old,) = read(ADAPTER, record("a/b", remotes=remote, meta={"status": "deprecated"}))
    (gone,) = read(ADAPTER, record("a/c", remotes=remote, meta={"status": "deleted"}))
    assert (old.runnable, old.flags) == (True, ("deprecated",))
    assert not gone.runnable
    assert "deleted" in str(gone.reason)
    url = "https://market.example/v0.1/servers?limit=100&version=latest"
    records = [
        pulse_record("a/b", remotes=REMOTES),
        pulse_record("a/b", version={"isLatest": False}),
        pulse_record("a/c", version={"status": "deleted"}),
    ]
    refs = Answers({url: {"servers": records, "metadata": {"count": 3}}}).listed(PULSEMCP)[0].refs
    runnable = [PULSEMCP.parse(ref.raw, ref)[0].runnable for ref in refs]
    assert [ref.native_id for ref in refs] == ["a/b", "a/c"]
    assert runnable == [True, False]
    listing = PULSEMCP.parse(refs[0].raw, refs[0])[0]
    assert (listing.marketplace, listing.updated_at) == ("pulsemcp", "2026-11-01T00:00:00Z")


# --- PulseMCP: its keys, its `_meta`, and the dumps of its retired API
PULSEMCP = PulseMcpAdapter(POLICY)


def pulse_record(
    name: str, *, version: dict[str, Any] | None = None, **server: Any
) -> dict[str, Any]:
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
        (found,) = read(PULSEMCP, pulse_record("a/b", remotes=REMOTES, version=version))
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


@cases(
    "options, headers",
    ([{"type": "open"}], []),
    ([{"type": "oauth", "detail": {}}], ["Authorization"]),
    ([{"type": "oauth"}, KEYED], ["X-Key"]),
    ([], []),
    (None, []),
)
def test_how_a_remote_is_signed_in_to(options, headers):
    made = pulse_record("a/b", remotes=REMOTES, version={"remotes[0]": {"authOptions": options}})
    listing = read(PULSEMCP, made)[0]
    assert [header.name for header in listing.headers] == headers
    assert all(header.required and header.secret for header in listing.headers)
    assert listing.flags == (("needs_account",) if headers else ())


def test_headers_of_the_record_itself_come_first():
    remotes = [REMOTES[0] | {"headers": [{"name": "X-Own", "isSecret": True}]}]
    meta = {"remotes[0]": {"authOptions": [{"type": "oauth"}]}}
    listing = read(PULSEMCP, pulse_record("a/b", remotes=remotes, version=meta))[0]
    assert [header.name for header in listing.headers] == ["X-Own"]
