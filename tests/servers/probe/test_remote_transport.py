"""The guarded transport: which addresses, how many bytes, which redirects."""

import gzip
from typing import Any

import httpx2
import pytest

from assets.servers.probe.remote_transport import (
    MESSAGE,
    GuardedTransport,
    RemotePolicy,
    TransportRefusal,
)
from tests.servers.probe.test_remote_probe import ask
from tests.support.cases import cases
from tests.support.network import PRIVATE, NoNetwork, connector
from warehouse.network.egress import EgressConnector


@pytest.mark.parametrize("address", PRIVATE)
def test_a_probe_of_a_private_address_is_denied_and_says_which(address):
    inner = NoNetwork()
    found = ask("https://acme.example/mcp", connector=connector(inner, [address]))
    assert (found.error_kind, inner.dialled) == ("policy_denied", [])
    assert address in str(found.hint)
    assert "allow_loopback" in str(found.hint)


# --- redirects, over a transport that opens no connection
SECRETS = {"authorization": "Bearer t", "x-api-key": "k", "cookie": "c=1", "x-slug": "zoom"}


class Site:
    """Answers requests from a table of URL -> (status, location); others are 200."""

    def __init__(self, **more: Any) -> None:
        self.seen: list[httpx2.Request] = []
        self.table: dict[str, tuple[int, str]] = {}
        self.more = more

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.seen.append(request)
        status, location = self.table.get(str(request.url), (200, ""))
        headers = {"location": location} if location else {}
        return httpx2.Response(status, headers=headers, **({} if location else self.more))


async def send(site: Site, url: str, method: str = "GET", message: bool = True, **more: Any):
    wire = GuardedTransport(RemotePolicy(max_mb=2), inner=httpx2.MockTransport(site))
    extensions = {MESSAGE: True} if message else {}
    request = httpx2.Request(method, url, headers=SECRETS, extensions=extensions, **more)
    return await wire.handle_async_request(request)


async def kind_of(site: Site, url: str, method: str = "GET", message: bool = True) -> str:
    with pytest.raises(TransportRefusal) as caught:
        await send(site, url, method, message, content=b"{}" if method == "POST" else None)
    return caught.value.failure.kind


async def test_a_redirect_within_the_origin_keeps_what_was_sent():
    site = Site()
    site.table["https://a.example/x"] = (307, "/y")
    assert (await send(site, "https://a.example/x", "POST", content=b"{}")).status_code == 200
    last = site.seen[-1]
    assert (str(last.url), last.method) == ("https://a.example/y", "POST")
    assert {name: last.headers[name] for name in SECRETS} == SECRETS
    assert b"".join([part async for part in last.stream]) == b"{}"  # type: ignore[union-attr]


@cases("there", "https://b.example/y", "https://a.example:8443/y", "https://sub.a.example/y")
async def test_another_origin_is_told_no_secret_not_even_on_the_way_back(there):
    site = Site()
    site.table["https://a.example/x"] = (308, there)
    site.table[there] = (308, "https://a.example/back")
    await send(site, "https://a.example/x", "POST", content=b"{}")
    assert [str(one.url) for one in site.seen[1:]] == [there, "https://a.example/back"]
    for one in site.seen[1:]:
        assert not set(SECRETS) & set(one.headers)
        assert one.headers["host"] == one.url.netloc.decode()


async def test_http_to_https_on_one_host_is_the_same_origin():
    site = Site()
    site.table["http://a.example/x"] = (301, "https://a.example/x")
    await send(site, "http://a.example/x", "POST", content=b"{}")
    assert site.seen[-1].headers["authorization"] == "Bearer t"
    assert site.seen[-1].method == "POST"


@cases(
    "location",
    *("http://a.example/y", "file:///etc/passwd", "gopher://a.example/", "unix:/x"),
    *("https://me:pass@a.example/", "javascript:alert(1)"),
)
async def test_a_redirect_to_what_is_weaker_or_no_web_address_is_denied(location):
    site = Site()
    site.table["https://a.example/x"] = (302, location)
    assert await kind_of(site, "https://a.example/x") == "policy_denied"
    assert len(site.seen) == 1


async def test_a_redirect_to_no_address_is_a_protocol_error():
    site = Site()
    site.table["https://a.example/x"] = (302, "https://a.example:port/")
    assert await kind_of(site, "https://a.example/x") == "protocol_error"


async def test_three_redirects_are_followed_and_a_fourth_is_not():
    site = Site()
    for n in range(4):
        site.table[f"https://a.example/{n}"] = (307, f"/{n + 1}")
    assert (await send(site, "https://a.example/1")).status_code == 200
    assert await kind_of(site, "https://a.example/0") == "protocol_error"
    assert len(site.seen) == 4 + 4


@cases("status", 302, 303)
async def test_a_redirect_that_would_drop_the_message_is_not_followed(status):
    site = Site()
    site.table["https://a.example/x"] = (status, "/login")
    assert await kind_of(site, "https://a.example/x", "POST") == "protocol_error"
    assert len(site.seen) == 1


async def test_what_oauth_posts_is_sent_to_no_other_origin():
    site = Site()
    site.table["https://a.example/token"] = (307, "https://b.example/token")
    assert await kind_of(site, "https://a.example/token", "POST", message=False) == "protocol_error"
    assert len(site.seen) == 1


# --- bytes
async def read(response: httpx2.Response) -> int:
    return len(await response.aread())


async def test_a_bomb_is_counted_decompressed():
    bomb = gzip.compress(b"\0" * (30 << 20))
    headers = {"content-encoding": "gzip"}

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers=headers, stream=httpx2.ByteStream(bomb))

    wire = GuardedTransport(RemotePolicy(max_mb=2), inner=httpx2.MockTransport(answer))
    request = httpx2.Request("GET", "https://a.example/", extensions={MESSAGE: True})
    response = await wire.handle_async_request(request)
    with pytest.raises(TransportRefusal) as caught:
        await read(response)
    assert caught.value.failure.kind == "oversize"
    assert wire.meter.decoded <= (3 << 20)  # of 30


async def test_what_is_no_message_has_a_smaller_bound():
    site = Site(content=b"x" * ((1 << 20) + 1))
    assert await read(await send(site, "https://a.example/")) > (1 << 20)
    with pytest.raises(TransportRefusal, match="1 MB"):
        await read(await send(site, "https://a.example/", message=False))


@cases("encoding", "br", "zstd", "gzip, gzip", "gzip, " * 50 + "gzip", "x\u00e9")
async def test_other_encodings_are_refused(encoding):
    def answer(request: httpx2.Request) -> httpx2.Response:
        raw = [(b"content-encoding", encoding.encode("latin-1"))]
        return httpx2.Response(200, headers=raw, stream=httpx2.ByteStream(b"x"))

    wire = GuardedTransport(RemotePolicy(), inner=httpx2.MockTransport(answer))
    with pytest.raises(TransportRefusal, match="content encoding"):
        await wire.handle_async_request(httpx2.Request("GET", "https://a.example/"))


def test_the_environments_proxy_is_used_and_literal_addresses_are_judged(monkeypatch):
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    found = ask("http://10.0.0.1/mcp", connector=EgressConnector(inner=NoNetwork()))
    assert (found.error_kind, "10.0.0.1" in str(found.hint)) == ("policy_denied", True)
    inner = NoNetwork()
    # Port 9 of loopback answers nobody: the request went to the proxy, not to the connector.
    assert ask("http://acme.example/mcp", connector=EgressConnector(inner=inner)).status == "failed"
    assert inner.dialled == []
