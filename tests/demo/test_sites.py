"""The nine shapes over real HTTP: lists to their end, details, keys, validators."""

import json
import re
from html import unescape

import httpx2
import pytest

from demo.server import Replicas, replicas
from demo.sites.files import answer_message
from demo.world.catalogue import MARKETPLACES, make_world
from demo.world.record import KEYS
from tests.demo.conftest import COUNT
from tests.demo.walk import FIRST, WALKS, client, count_differences, locations
from tests.support.cases import cases


@pytest.mark.parametrize("site", MARKETPLACES)
def test_a_list_read_to_its_end_gives_every_record_once_and_the_second_day_its_shares(site, full):
    with client(site, full[site]) as http:
        walked = WALKS[site](http)
        first = {record.slug for record in full.world.list_records(site)}
        assert (len(walked), set(walked)) == (COUNT, first)
        full.switch(day=2)
        second = set(WALKS[site](http))
    assert count_differences(full.world) == {"new": 2, "changed": 2, "gone": 2}  # type: ignore[arg-type]
    assert (len(second - first), len(first - second)) == (2, 2)


@cases("day", 1, 2)
def test_the_standard_world_can_be_read_to_its_end_on_every_site(day, standard):
    standard.switch(day=day)
    for site in MARKETPLACES:
        with client(site, standard[site]) as http:
            found = WALKS[site](http)
        listed = [record.slug for record in standard.world.list_records(site)]
        assert sorted(found) == sorted(listed + ["units"] * (site == "registry"))


@cases("scale", "standard", "large")
def test_the_seven_list_a_few_of_the_same_packages_at_the_same_versions(scale):
    for day in (1, 2):
        here = make_world(day, scale)
        known = {(s.kind, s.identifier, s.find_version(day)) for s in here.servers}
        for site in MARKETPLACES[2:]:
            records = here.list_records(site)
            assert 3 <= len(records) <= 6
            packages = [record.package for record in records if record.package]
            assert {(p.kind, p.identifier, p.version) for p in packages} <= known


def test_only_sites_that_are_asked_for_are_served():
    with replicas(scale="small", sites=["docker", "registry"]) as urls:
        assert list(urls) == ["registry", "docker"]
    with pytest.raises(ValueError, match="'nowhere' does not exist; there are registry"):
        Replicas(sites=["nowhere"])


@cases(
    "site, words",
    ("glama", '"code": "unauthorized"'),
    ("pulsemcp", '"details": {"header": "X-API-Key"}'),
    ("pipedream", "unauthorized"),
)
def test_without_the_key_the_answer_is_401_in_the_words_of_the_site(site, words, full):
    answer = httpx2.get(full[site] + FIRST[site])
    assert answer.status_code == 401
    assert words in answer.text


def test_pulsemcp_wants_both_headers_and_pipedream_gives_a_token_for_client_credentials(full):
    only_key = {"X-API-Key": KEYS["pulsemcp"]["api_key"]}
    answer = httpx2.get(full["pulsemcp"] + FIRST["pulsemcp"], headers=only_key)
    assert (answer.status_code, answer.json()["details"]) == (401, {"header": "X-Tenant-ID"})
    with client("pulsemcp", full["pulsemcp"]) as http:
        meta = http.get(FIRST["pulsemcp"]).json()["servers"][0]["_meta"]
    assert set(meta) == {"com.pulsemcp/server", "com.pulsemcp/server-version"}
    url = f"{full['pipedream']}/v1/oauth/token"
    given = {"grant_type": "client_credentials", **KEYS["pipedream"]}

    token = httpx2.post(url, data=given).json()["access_token"]
    bearer = {"Authorization": f"Bearer {token}"}
    info = httpx2.get(f"{full['pipedream']}/v1/connect/apps?limit=7", headers=bearer).json()
    assert (info["page_info"]["count"], info["page_info"]["total_count"]) == (7, COUNT)
    for wrong, status in ((given | {"client_secret": "x"}, 401), ({"grant_type": "password"}, 400)):
        assert httpx2.post(url, data=wrong).status_code == status


def test_smithery_shows_500_results_and_glama_tells_no_command_for_servers(full):
    full.switch(servers=730)
    with client("smithery", full["smithery"]) as http:
        pages = [http.get(f"/servers?page={n}&pageSize=100").json() for n in range(1, 8)]
        assert [len(page["servers"]) for page in pages] == [100] * 5 + [0, 0]
        assert pages[5]["pagination"] == {
            "currentPage": 6, "pageSize": 100, "totalPages": 8, "totalCount": 730,
        }  # fmt: skip
        assert http.get("/servers?pageSize=101").status_code == 400
        item = pages[0]["servers"][3]
        name = item["qualifiedName"].replace("/", "%2F")
        assert http.get(f"/servers/{name}").json()["displayName"] == item["displayName"]
        assert http.get(f"/servers/{item['qualifiedName']}").status_code == 404
        assert http.get("/servers/nobody%2Fnothing").json() == {"error": "Server not found"}
        shards = locations(http, "/sitemap_index.xml")
        assert [len(locations(http, shard)) for shard in shards] == [365, 365]
    with client("glama", full["glama"]) as http:
        for prefix in ("/api/mcp", ""):
            server = http.get(f"{prefix}/v1/servers?first=1").json()["servers"][0]
            assert "environmentVariablesJsonSchema" in server
        connector = http.get("/v1/connectors?first=1").json()["connectors"][0]
        assert set(connector["connection"]) == {"authType", "transport", "url"}
        assert http.get("/v1/servers?first=101").status_code == 400
        assert http.get("/v1/servers?after=nonsense").status_code == 400
        created = http.get("/v1/servers?first=100").json()["servers"]
    numbers = [int(item["slug"].rpartition("-")[2]) for item in created]
    assert numbers == sorted(numbers, reverse=True)  # the newest first


def test_mcphub_streams_its_config_deepnlp_sometimes_has_none_and_docker_names_digests(full):
    records = full.world.list_records("mcphub")
    record = next(record for record in records if record.package and record.odd is None)
    page = httpx2.get(f"{full['mcphub']}/mcp-servers/{record.namespace}/{record.slug}").text
    assert page.index('<template id="B:0">') < page.index('<div hidden id="S:0">')
    streamed = page.partition('<div hidden id="S:0"><pre>')[2].partition("</pre>")[0]
    entry = json.loads(unescape(streamed))["mcpServers"][record.slug]
    assert entry["url"].startswith("https://api.mcphub.com/mcp/")
    assert re.fullmatch(r"Bearer \S+\.\S+\.\S+", entry["headers"]["Authorization"])
    path = "/api/mcp_marketplace/v1"
    with client("deepnlp", full["deepnlp"]) as http:
        body = http.get(f"{path}?count_per_page=100&page_id=1").json()
        details = [http.get(f"{path}/server/{item['id']}").json() for item in body["items"][:40]]
        assert http.get(f"{path}/server/no/body").json()["items"] == []
    assert body["total_hits"] == str(COUNT)
    assert isinstance(body["items"][0]["rating"], str)
    assert {len(detail["items"][0]["config"]) for detail in details} == {0, 1}
    found = httpx2.get(f"{full['docker']}/mcp/catalog/v3/catalog.json").json()
    images = [item["image"] for item in found["registry"].values() if "image" in item]
    assert all(re.search("@sha256:[0-9a-f]{64}$", image) for image in images)
    assert {item["type"] for item in found["registry"].values()} == {"server", "remote"}


@cases("site", "registry", "pulsemcp", "mcpso", "mcphub", "docker")
def test_what_is_unchanged_is_304_and_only_where_validators_are_on(site, full):
    with client(site, full[site]) as http:
        first = http.get(FIRST[site])
        asked = {"if-none-match": first.headers["etag"]}
        again = http.get(FIRST[site], headers=asked)
        assert (again.status_code, again.content) == (304, b"")
        if edited := first.headers.get("last-modified"):
            since = {"if-modified-since": edited}
            assert http.get(FIRST[site], headers=since).status_code == 304
        full.switch(day=2)
        assert http.get(FIRST[site], headers=asked).status_code == 200
        full.switch(day=1, faults={site: "no_validators"})
        bare = http.get(FIRST[site], headers=asked)
        assert (bare.status_code, bare.headers.get("etag")) == (200, None)


async def test_the_sdks_client_lists_and_calls_its_tools():
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    with replicas(scale="small", sites=["files"]) as running:
        async with (
            streamable_http_client(f"{running['files']}/mcp") as (read, write, *_),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            tools = await session.list_tools()
            assert [tool.name for tool in tools.tools] == ["define_term", "find_terms"]
            result = await session.call_tool("define_term", {"term": "drift"})
            assert "one run and the next" in result.content[0].text


@cases("body", b"", b"[1]", b'{"id": 1}')
def test_what_is_no_request_is_an_error_in_the_protocols_terms(body):
    with replicas(scale="small", sites=["files"]) as running:
        answer = httpx2.post(f"{running['files']}/mcp", content=body, timeout=60)
        assert answer.json()["error"]["code"] == -32600
        assert answer_message({"jsonrpc": "2.0", "method": "notifications/initialized"}) is None
        assert httpx2.get(f"{running['files']}/mcp", timeout=60).status_code == 405
