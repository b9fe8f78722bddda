"""The guarded transport: which addresses, how many bytes, which redirects."""

import gzip
from typing import Any

import httpcore2
import httpx2
import pytest

from assets.servers.remote.connector import Connector, Meter, Refused
from assets.servers.remote.transport import MESSAGE, RemotePolicy, Wire
from tests.servers.remote.test_probe import ask
from warehouse.network.egress import PrivateAddress

PRIVATE = [
    *("10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "0.0.0.0", "127.0.0.1"),
    *("169.254.169.254", "fe80::1", "fd00::1", "fec0::1", "::1", "::"),
    *("224.0.0.1", "ff02::1", "255.255.255.255", "198.18.0.1", "192.0.2.1"),
    *("::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:127.0.0.1"),
    *("64:ff9b::a00:1", "64:ff9b:1::a00:1", "2002:a00:1::1", "::a00:1", "2001:0:a00:1::1"),
]
PUBLIC = "93.184.216.34"


class NoNetwork(httpcore2.AsyncNetworkBackend):
    """The connector's far side: notes where a connection would have gone and opens none."""

    def __init__(self) -> None:
        self.dialled: list[str] = []

    async def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> Any:
        self.dialled.append(host)
        raise httpcore2.ConnectError("no network in this test")


def connector(inner: NoNetwork, *answers: list[str], **more: Any) -> Connector:
    told = list(answers)

    async def looked_up(host: str, port: int) -> list[str]:
        return told.pop(0) if len(told) > 1 else told[0]

    return Connector(resolve=looked_up, inner=inner, **more)


@pytest.mark.parametrize("address", PRIVATE)
async def test_no_private_address_is_dialled(address):
    inner = NoNetwork()
    for addresses in ([address], [PUBLIC, address]):
        with pytest.raises(PrivateAddress, match="not a public address"):
            await connector(inner, addresses).connect_tcp("acme.example", 443, 1.0)
    assert inner.dialled == []


@pytest.mark.parametrize("address", PRIVATE)
def test_a_probe_of_a_private_address_is_denied_and_says_which(address):
    inner = NoNetwork()
    found = ask("https://acme.example/mcp", connector=connector(inner, [address]))
    assert (found.error_kind, inner.dialled) == ("policy_denied", [])
    assert address in str(found.hint)
    assert "allow_loopback" in str(found.hint)


async def test_loopback_is_dialled_where_the_policy_says_so_and_nothing_else_private():
    inner = NoNetwork()
    for address in ("127.0.0.1", "::1"):
        with pytest.raises(httpcore2.ConnectError, match="no network"):
            await connector(inner, [address], allow_loopback=True).connect_tcp("x", 80, 1.0)
    with pytest.raises(PrivateAddress):
        await connector(inner, ["10.0.0.1"], allow_loopback=True).connect_tcp("x", 80, 1.0)
    assert inner.dialled == ["127.0.0.1", "::1"]


async def test_what_was_judged_is_dialled_without_a_second_look_up():
    inner = NoNetwork()
    rebinding = connector(inner, [PUBLIC], ["169.254.169.254"])
    with pytest.raises(httpcore2.ConnectError, match="no network"):
        await rebinding.connect_tcp("rebinding.example", 443, 1.0)
    with pytest.raises(PrivateAddress):
        await rebinding.connect_tcp("rebinding.example", 443, 1.0)
    assert inner.dialled == [PUBLIC]


async def test_the_next_address_is_tried_and_no_more_than_four():
    inner = NoNetwork()
    many = [f"93.184.216.{n}" for n in range(1, 9)]
    with pytest.raises(httpcore2.ConnectError):
        await connector(inner, many).connect_tcp("acme.example", 443, 1.0)
    assert inner.dialled == many[:4]


async def test_a_look_up_that_hangs_is_left_behind():
    import anyio

    async def hangs(host: str, port: int) -> list[str]:
        await anyio.sleep_forever()
        return []

    with pytest.raises(httpcore2.ConnectTimeout):
        await Connector(resolve=hangs, inner=NoNetwork()).connect_tcp("acme.example", 443, 0.05)


async def test_no_unix_socket_is_opened():
    with pytest.raises(PrivateAddress):
        await Connector(inner=NoNetwork()).connect_unix_socket("/run/docker.sock")


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
    wire = Wire(RemotePolicy(max_mb=2), inner=httpx2.MockTransport(site))
    extensions = {MESSAGE: True} if message else {}
    request = httpx2.Request(method, url, headers=SECRETS, extensions=extensions, **more)
    return await wire.handle_async_request(request)


async def kind_of(site: Site, url: str, method: str = "GET", message: bool = True) -> str:
    with pytest.raises(Refused) as caught:
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


@pytest.mark.parametrize(
    "there", ["https://b.example/y", "https://a.example:8443/y", "https://sub.a.example/y"]
)
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


@pytest.mark.parametrize(
    "location",
    [
        "http://a.example/y",
        "file:///etc/passwd",
        "ftp://a.example/",
        "https://me:pass@a.example/",
        "javascript:alert(1)",
    ],
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


@pytest.mark.parametrize("status", [302, 303])
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

    wire = Wire(RemotePolicy(max_mb=2), inner=httpx2.MockTransport(answer))
    request = httpx2.Request("GET", "https://a.example/", extensions={MESSAGE: True})
    response = await wire.handle_async_request(request)
    with pytest.raises(Refused) as caught:
        await read(response)
    assert caught.value.failure.kind == "oversize"
    assert wire.meter.decoded <= (3 << 20)  # of 30


async def test_what_is_no_message_has_a_smaller_bound():
    site = Site(content=b"x" * ((1 << 20) + 1))
    assert await read(await send(site, "https://a.example/")) > (1 << 20)
    with pytest.raises(Refused, match="1 MB"):
        await read(await send(site, "https://a.example/", message=False))


@pytest.mark.parametrize(
    "encoding", ["br", "zstd", "gzip, gzip", "gzip, " * 50 + "gzip", "x\u00e9"]
)
async def test_other_encodings_are_refused(encoding):
    def answer(request: httpx2.Request) -> httpx2.Response:
        raw = [(b"content-encoding", encoding.encode("latin-1"))]
        return httpx2.Response(200, headers=raw, stream=httpx2.ByteStream(b"x"))

    wire = Wire(RemotePolicy(), inner=httpx2.MockTransport(answer))
    with pytest.raises(Refused, match="content encoding"):
        await wire.handle_async_request(httpx2.Request("GET", "https://a.example/"))


def test_a_meter_counts_both_ways():
    meter = Meter(10)
    meter.add(wire=10)
    meter.add(decoded=10)
    for more in ({"wire": 1}, {"decoded": 1}):
        with pytest.raises(Refused):
            Meter(10, 10, 10).add(**more)


def test_the_environments_proxy_is_used_and_literal_addresses_are_judged(monkeypatch):
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    found = ask("http://10.0.0.1/mcp", connector=Connector(inner=NoNetwork()))
    assert (found.error_kind, "10.0.0.1" in str(found.hint)) == ("policy_denied", True)
    inner = NoNetwork()
    # Port 9 of loopback answers nobody: the request went to the proxy, not to the connector.
    assert ask("http://acme.example/mcp", connector=Connector(inner=inner)).status == "failed"
    assert inner.dialled == []
