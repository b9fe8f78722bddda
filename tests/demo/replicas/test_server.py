"""The replicas over real HTTP: paging, faults, counting, ports."""

import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from demo.ports import PortTaken, find_running, list_ports
from demo.replicas.faults import parse_faults
from demo.server import Replicas, replicas, serve


@pytest.fixture(scope="module")
def running() -> Iterator[Replicas]:
    with replicas(scale="standard") as urls:
        yield urls


@pytest.fixture
def urls(running: Replicas) -> Iterator[Replicas]:
    yield running
    running.switch(day=1, scale="standard", faults={})


def test_the_registry_pages_by_an_opaque_cursor_and_refuses_a_limit_over_100(
    urls: Replicas,
) -> None:
    listing = f"{urls['registry']}/v0.1/servers"
    names, cursor = [], None
    while True:
        query = {"limit": "100", "version": "latest"} | ({"cursor": cursor} if cursor else {})
        body = httpx2.get(listing, params=query).json()
        names += [record["server"]["name"] for record in body["servers"]]
        cursor = body["metadata"].get("nextCursor")
        if not cursor:
            break
    assert set(names) == {server.registry_name for server in urls.world.list_records("registry")}
    assert httpx2.get(listing, params={"limit": "101"}).status_code == 422


def test_five_dated_schemas_are_served(urls: Replicas) -> None:
    seen, cursor = set(), None
    while cursor != "":
        query = {"cursor": cursor} if cursor else {}
        body = httpx2.get(f"{urls['registry']}/v0.1/servers", params=query).json()
        seen |= {record["server"]["$schema"].split("/")[-2] for record in body["servers"]}
        cursor = body["metadata"].get("nextCursor", "")
    assert len(seen) == 5


def test_pages_of_the_website_hold_no_config_until_their_script_ran(urls: Replicas) -> None:
    page = httpx2.get(f"{urls['mcpso']}/servers/notion").text
    assert "mcpServers" not in page
    assert "notion-mcp-server@" not in page
    assert "mcpServers" in httpx2.get(f"{urls['mcpso']}/servers/mcp-server-time").text


def test_listed_digests_are_those_of_the_bundles_served(urls: Replicas) -> None:
    for server in urls.world.servers:
        if server.kind == "mcpb":
            data = httpx2.get(urls.world.make_bundle_url(server)).content
            assert hashlib.sha256(data).hexdigest() == urls.world.find_bundle(server).sha256


def test_requests_are_counted_per_site(urls: Replicas) -> None:
    before = sum(urls.count_by_kind("mcpso").values()), sum(urls.count_by_kind("registry").values())
    httpx2.get(f"{urls['mcpso']}/robots.txt")
    stats = httpx2.get(f"{urls['mcpso']}/_stats").json()
    assert stats["total"] == before[0] + 1
    assert stats["by_kind"]["robots.txt"] >= 1
    assert sum(urls.count_by_kind("registry").values()) == before[1]


def test_a_site_that_is_down_refuses_connections_and_comes_back_at_its_address(
    urls: Replicas,
) -> None:
    urls.switch(faults={"registry": "down"})
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{urls['registry']}/v0.1/servers")
    assert httpx2.get(f"{urls['mcpso']}/robots.txt").status_code == 200
    urls.switch(faults={})
    assert httpx2.get(f"{urls['registry']}/v0.1/servers").status_code == 200


def test_bad_answers_come_with_status_200(urls: Replicas) -> None:
    listing = f"{urls['registry']}/v0.1/servers"
    urls.switch(faults={"registry": "empty", "mcpso": "html"})
    assert httpx2.get(listing).json()["servers"] == []
    page = httpx2.get(f"{urls['mcpso']}/sitemap.xml")
    assert (page.status_code, page.headers["content-type"][:9]) == (200, "text/html")


def test_faults_are_read_from_text_and_unknown_ones_refused() -> None:
    assert parse_faults("registry=truncated, mcpso=down") == {
        "registry": "truncated",
        "mcpso": "down",
    }
    assert parse_faults("") == {}
    for text in ("registry=odd", "nowhere=down", "registry"):
        with pytest.raises(ValueError, match="does not exist"):
            parse_faults(text)


def test_serve_writes_the_port_file_once_everything_answers(tmp_path: Path) -> None:
    port_file, until, ready = tmp_path / "ports.json", threading.Event(), threading.Event()
    options = {"ports": list_ports(0), "port_file": port_file, "scale": "small"}
    thread = threading.Thread(
        target=serve, kwargs=options | {"until": until, "ready": lambda _: ready.set()}
    )
    thread.start()
    try:
        assert ready.wait(60)
        urls = json.loads(port_file.read_text())
        assert httpx2.get(f"{urls['registry']}/_stats").json()["site"] == "registry"
        assert set(urls) == set(list_ports())
    finally:
        until.set()
        thread.join()


def test_a_taken_port_is_named_with_the_fix() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} .* is taken.*DEMO__BASE_PORT"):
            Replicas(ports={"registry": port})


def test_replicas_that_are_up_are_found_and_others_are_not() -> None:
    with replicas(scale="small") as urls:
        ports = {site: int(urls[site].rsplit(":", 1)[1]) for site in urls}
        assert find_running(ports) == ports
        swapped = {"registry": ports["mcpso"], "mcpso": ports["registry"]}
        assert find_running(swapped) == {}
    assert find_running(ports) == {}
