"""The replicas over real HTTP: paging, ports, and each fault on every site where it can be."""

import hashlib
import json
import queue
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from demo.ports import PortTaken, find_running, list_ports
from demo.replicas.faults import KINDS, SITES, check_faults
from demo.server import Replicas, replicas, serve
from demo.world.catalogue import MARKETPLACES
from tests.demo.walk import FIRST, WALKS, client, envelope, locations
from tests.support.cases import cases


@pytest.fixture(scope="module")
def running() -> Iterator[Replicas]:
    with replicas(scale="standard") as urls:
        yield urls


@pytest.fixture
def urls(running: Replicas) -> Iterator[Replicas]:
    yield running
    running.switch(day=1, scale="standard", faults={})


def test_sites_serve_five_schemas_pages_whose_config_a_script_writes_and_true_digests(urls):
    with client("registry", urls["registry"]) as http:
        assert len({record["server"]["$schema"].split("/")[-2] for record in envelope(http)}) == 5
        assert http.get("/v0.1/servers", params={"limit": "101"}).status_code == 422
    page = httpx2.get(f"{urls['mcpso']}/servers/notion").text
    assert "mcpServers" not in page
    assert "notion-mcp-server@" not in page
    assert "mcpServers" in httpx2.get(f"{urls['mcpso']}/servers/mcp-server-time").text
    for server in urls.world.servers:
        if server.kind == "mcpb":
            data = httpx2.get(urls.world.make_bundle_url(server)).content
            assert hashlib.sha256(data).hexdigest() == urls.world.find_bundle(server).sha256


def test_requests_are_counted_per_site(urls):
    before = sum(urls.count_by_kind("mcpso").values()), sum(urls.count_by_kind("registry").values())
    httpx2.get(f"{urls['mcpso']}/robots.txt")
    stats = httpx2.get(f"{urls['mcpso']}/_stats").json()
    assert stats["total"] == before[0] + 1
    assert stats["by_kind"]["robots.txt"] >= 1
    assert sum(urls.count_by_kind("registry").values()) == before[1]


def test_a_site_that_is_down_or_answers_badly_comes_back_at_its_address(urls):
    listing = f"{urls['registry']}/v0.1/servers"
    urls.switch(faults={"registry": "empty", "mcpso": "html"})
    assert httpx2.get(listing).json()["servers"] == []
    page = httpx2.get(f"{urls['mcpso']}/sitemap.xml")
    assert (page.status_code, page.headers["content-type"][:9]) == (200, "text/html")
    urls.switch(faults={"registry": "down"})
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{urls['registry']}/v0.1/servers")
    assert httpx2.get(f"{urls['mcpso']}/robots.txt").status_code == 200
    urls.switch(faults={})
    assert httpx2.get(f"{urls['registry']}/v0.1/servers").status_code == 200


def test_serve_says_where_once_everything_answers():
    until, ready = threading.Event(), queue.Queue[dict[str, str]]()
    options = {"ports": list_ports(0), "scale": "small", "until": until, "ready": ready.put}
    thread = threading.Thread(target=serve, kwargs=options)
    thread.start()
    try:
        urls = ready.get(timeout=60)
        assert httpx2.get(f"{urls['registry']}/_stats").json()["site"] == "registry"
        assert set(urls) == set(list_ports())
    finally:
        until.set()
        thread.join()


def test_a_taken_port_is_named_with_the_fix_and_only_replicas_that_are_up_are_found():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} .* is taken.*DEMO__BASE_PORT"):
            Replicas(ports={"registry": port})
    with replicas(scale="small") as urls:
        ports = {site: int(urls[site].rsplit(":", 1)[1]) for site in urls}
        assert find_running(ports) == ports
        swapped = {"registry": ports["mcpso"], "mcpso": ports["registry"]}
        assert find_running(swapped) == {}
    assert find_running(ports) == {}


def first(full: Replicas, site: str, path: str | None = None, **options: str) -> httpx2.Response:
    with client(site, full[site]) as http:
        return http.get(path or FIRST[site], headers=options)


@cases(
    "site, fault, problem",
    *(("glama", text, "expected a .*number") for text in ("latency:soon", "storm429:-1")),
    ("glama", "error500:x", "expected a .*number"),
    *((*item, "does not exist") for item in (("registry", "odd"), ("nowhere", "down"))),
    ("docker", "rude", "".join(f"(?=.*{name})" for name in (*SITES, *KINDS))),
)
def test_what_is_no_fault_is_refused(site, fault, problem):
    with pytest.raises(ValueError, match=problem):
        check_faults({site: fault})


@pytest.mark.parametrize("site", sorted({*MARKETPLACES} - {"docker"}))  # its list is an object
def test_duplicates_come_again_at_the_end(site, full):
    full.switch(faults={site: "duplicates"})
    with client(site, full[site]) as http:
        walked = WALKS[site](http)
    assert (len(walked), len(set(walked))) == (253, 230)


@cases(
    "site, key, parameter, following",
    ("registry", "servers", "cursor", lambda body: body["metadata"]["nextCursor"]),
    ("pulsemcp", "servers", "cursor", lambda body: body["metadata"]["nextCursor"]),
    ("glama", "servers", "after", lambda body: body["pageInfo"]["endCursor"]),
    ("pipedream", "data", "after", lambda body: body["page_info"]["end_cursor"]),
    ("smithery", "servers", "page", lambda body: body["pagination"]["currentPage"] + 1),
    ("deepnlp", "items", "page_id", lambda _: 7),
)
def test_the_next_page_is_the_same_for_ever(site, key, parameter, following, full):
    full.switch(faults={site: "cursor_loop"})
    with client(site, full[site]) as http:
        body, seen = http.get(FIRST[site]).json(), []
        for _ in range(4):
            joint = "&" if "?" in FIRST[site] else "?"
            body = http.get(f"{FIRST[site]}{joint}{parameter}={following(body)}").json()
            seen.append(json.dumps(body[key]))
    assert len(set(seen)) == 1


@cases("path", "mcpso/sitemap", "mcphub/sitemap", "smithery/sitemap_index")
def test_a_sitemap_may_list_itself_and_hide_its_addresses(path, full):
    site, _, name = path.partition("/")
    full.switch(faults={site: "cursor_loop"})
    with client(site, full[site]) as http:
        assert f"{full[site]}/{name}.xml" in locations(http, f"/{name}.xml")
        full.switch(faults={site: "missing_key"})
        child = next(
            location for location in locations(http, f"/{name}.xml") if "static" not in location
        )
        assert locations(http, child) == []


@pytest.mark.parametrize("site", MARKETPLACES)
def test_a_wrong_key_is_401_everywhere(site, full):
    full.switch(faults={site: "wrong_key"})
    if site == "pipedream":
        url = f"{full[site]}/v1/oauth/token"
        assert httpx2.post(url, data={"grant_type": "client_credentials"}).status_code == 401
    else:
        assert first(full, site).status_code == 401


@cases(
    "fault, statuses",
    ("storm429:3", [429, 429, 429, 200]),
    ("error500:2", [500, 500, 200, 200]),
    ("error500", [500] * 4),
)
def test_errors_are_all_or_so_many(fault, statuses, full):
    full.switch(faults={"docker": fault})
    assert [first(full, "docker").status_code for _ in range(4)] == statuses


@cases(
    "site, fault, path, text",
    ("mcpso", "skew", FIRST["mcpso"], "<lastmod>205"),
    ("registry", "skew:30", FIRST["registry"], '"updatedAt": "205'),
    ("mcpso", "robots_disallow:/servers/", "/robots.txt", "Disallow: /servers/\nDisallow: /api/"),
    ("docker", "crawl_delay", "/robots.txt", "User-agent: *\nCrawl-delay: 1\n"),
    ("docker", "huge_description", FIRST["docker"], "All work and no play. " * 450_000),
)
def test_a_fault_is_in_an_answer(site, fault, path, text, full):
    full.switch(faults={site: fault})
    assert text in first(full, site, path).text


def test_a_rate_recovers(full):
    full.switch(faults={"smithery": "rate_limit:4"})
    assert [first(full, "smithery").status_code for _ in range(4)] == [200] * 4
    # All at once: on a busy machine eight in a row took longer than the rate they should pass.
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda _: first(full, "smithery"), range(64)))
    [refused, *_] = [answer for answer in answers if answer.status_code == 429]
    assert refused.headers["retry-after"] == "1"
    time.sleep(0.6)
    assert first(full, "smithery").status_code == 200


@pytest.mark.parametrize("site", MARKETPLACES)
def test_records_show_their_faults_in_every_shape(site, full):
    pages = {"mcpso": "/servers/{0.slug}", "mcphub": "/mcp-servers/{0.namespace}/{0.slug}"}
    path = pages.get(site, FIRST[site]).format(full.world.list_records(site)[0])
    full.switch(faults={site: "hidden_text"})
    text = first(full, site, path).content.decode()
    assert "\u202e" in text
    assert "\u200b" in text
    full.switch(faults={site: "bad_utf8"})
    with pytest.raises(UnicodeDecodeError):
        first(full, site, path).content.decode()
    full.switch(faults={site: "huge_description:1"})
    damaged = first(full, site, path if site != "glama" else "/v1/servers?first=100")
    if site != "glama":  # its list begins with the last record
        assert len(damaged.content) > 900_000


def test_a_layout_without_configs_still_has_its_pages(full):
    full.switch(faults=dict.fromkeys(MARKETPLACES, "layout"))
    with client("registry", full["registry"]) as http:
        assert all(not {"packages", "remotes"} & set(item["server"]) for item in envelope(http))
    for record in full.world.list_records("mcphub")[:20]:
        path = f"/mcp-servers/{record.namespace}/{record.slug}"
        page = first(full, "mcphub", path)
        assert page.status_code == 200
        assert "mcpServers" not in page.text


def test_latency_does_not_hold_up_other_requests(full):
    full.switch(faults={"deepnlp": "latency:3000"})
    done = list[str]()

    def ask(name: str) -> None:
        assert first(full, name).status_code == 200
        done.append(name)

    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(ask, "deepnlp")
        pool.submit(ask, "docker").result()
        slow.result()
    assert done == ["docker", "deepnlp"]
