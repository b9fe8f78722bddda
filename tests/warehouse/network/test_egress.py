"""What the egress guard dials and what it refuses, asserted at the connectors."""

import gzip
import socket
from typing import Any

import httpcore2
import httpx2
import pytest

from tests.marketplaces.site import Answer, site
from tests.support.cases import cases
from tests.support.network import PRIVATE, PUBLIC, NoNetwork, NoSyncNetwork, connector
from warehouse.network.egress import EgressConnector, PrivateAddress, SyncConnector
from warehouse.network.http import BodyReader, BodyTooLarge, bound_response, open_client


@pytest.mark.parametrize("address", PRIVATE)
async def test_no_private_address_is_dialled(address, monkeypatch):
    inner, blocking = NoNetwork(), NoSyncNetwork()
    for addresses in ([address], [PUBLIC, address]):
        with pytest.raises(PrivateAddress, match="not a public address"):
            await connector(inner, addresses).connect_tcp("acme.example", 443, 1.0)
        with pytest.raises(PrivateAddress, match="not a public address"):
            sync_connector(monkeypatch, blocking, addresses).connect_tcp("acme.example", 443, 1.0)
    assert inner.dialled == blocking.dialled == []


async def test_loopback_is_dialled_where_the_policy_says_so_and_nothing_else_private():
    inner = NoNetwork()
    for address in ("127.0.0.1", "::1"):
        with pytest.raises(httpcore2.ConnectError, match="no network"):
            await connector(inner, [address], allow_loopback=True).connect_tcp("x", 80, 1.0)
    with pytest.raises(PrivateAddress):
        await connector(inner, ["10.0.0.1"], allow_loopback=True).connect_tcp("x", 80, 1.0)
    assert inner.dialled == ["127.0.0.1", "::1"]


async def test_what_was_judged_is_dialled_without_a_second_look_up(monkeypatch):
    inner, blocking = NoNetwork(), NoSyncNetwork()
    rebinding = connector(inner, [PUBLIC], ["169.254.169.254"])
    sync_rebinding = sync_connector(monkeypatch, blocking, [PUBLIC], ["169.254.169.254"])
    for error in (httpcore2.ConnectError, PrivateAddress):
        with pytest.raises(error):
            await rebinding.connect_tcp("rebinding.example", 443, 1.0)
        with pytest.raises(error):
            sync_rebinding.connect_tcp("rebinding.example", 443, 1.0)
    assert inner.dialled == blocking.dialled == [PUBLIC]


async def test_a_named_host_is_dialled_wherever_it_is_and_the_next_of_at_most_four_addresses():
    inner = NoNetwork()
    many = [f"93.184.216.{n}" for n in range(1, 9)]
    with pytest.raises(httpcore2.ConnectError):
        await connector(inner, many).connect_tcp("acme.example", 443, 1.0)
    assert inner.dialled == many[:4]
    inner = NoNetwork()
    named = connector(inner, ["10.0.0.1"], trusted=["Models.example"])
    with pytest.raises(httpcore2.ConnectError, match="no network"):
        await named.connect_tcp("models.example", 443, 1.0)
    with pytest.raises(PrivateAddress):
        await named.connect_tcp("other.example", 443, 1.0)
    assert inner.dialled == ["10.0.0.1"]


async def test_a_look_up_that_hangs_is_left_behind():
    import anyio

    async def hangs(host: str, port: int) -> list[str]:
        await anyio.sleep_forever()
        return []

    hanging = EgressConnector(resolve=hangs, inner=NoNetwork())
    with pytest.raises(httpcore2.ConnectTimeout):
        await hanging.connect_tcp("acme.example", 443, 0.05)


async def test_no_unix_socket_is_opened():
    with pytest.raises(PrivateAddress):
        await EgressConnector(inner=NoNetwork()).connect_unix_socket("/run/docker.sock")
    with pytest.raises(PrivateAddress):
        SyncConnector().connect_unix_socket("/run/docker.sock")


def sync_connector(
    monkeypatch: pytest.MonkeyPatch, inner: NoSyncNetwork, *answers: list[str], **more: Any
) -> SyncConnector:
    outcome = list(answers)

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        addresses = outcome.pop(0) if len(outcome) > 1 else outcome[0]
        return [(0, 0, 0, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    result = SyncConnector(**more)
    result._inner = inner  # type: ignore[assignment]
    return result


def test_loopback_needs_an_explicit_allowance_and_a_redirect_is_judged_like_the_first_address():
    with site(lambda *_: Answer("secret")) as inside:
        moved = {"Location": inside.url.replace("127.0.0.1", "localhost")}
        with site(lambda *_: Answer(status=302, headers=moved)) as outside:
            with open_client() as client, pytest.raises(PrivateAddress):
                client.get(outside.url)
            # The operator named the first host, not the one that it redirects to.
            trusting = open_client(trusted=["127.0.0.1"], follow_redirects=True)
            with trusting as client, pytest.raises(PrivateAddress):
                client.get(outside.url)
            assert inside.paths == []
            with open_client(allow_loopback=True, follow_redirects=True) as client:
                assert client.get(outside.url).text == "secret"


def test_behind_a_proxy_a_private_address_literal_is_refused(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with open_client() as client, pytest.raises(PrivateAddress):
        client.get("http://10.0.0.1/")


PACKED = gzip.compress(b"noon")


def read(parts: list[bytes], encoding: str = "gzip", most: int = 1_000) -> bytes:
    reader = BodyReader(encoding, most)
    body = b"".join(map(reader.read, parts))
    reader.finish()
    return body


def test_a_body_is_decoded_in_any_parts_and_the_bound_counts_what_is_decoded():
    assert read([PACKED]) == read([PACKED[at : at + 1] for at in range(len(PACKED))]) == b"noon"
    assert read([b"no", b"on"], "") == read([b"noon"], " Identity ") == b"noon"
    assert read([]) == read([b""]) == read([b""], "br") == b""
    assert len(read([gzip.compress(bytes(1_000))])) == 1_000
    with pytest.raises(BodyTooLarge, match="more than 1,000 bytes"):
        read([gzip.compress(bytes(1_001))])


@cases("encoding", "gzip, identity", "gzip,", "gzip, gzip", "deflate", "br")
def test_an_encoding_that_was_not_asked_for_is_refused(encoding):
    with pytest.raises(httpx2.DecodingError, match="content-encoding"):
        read([PACKED], encoding)
    response = httpx2.Response(200, headers={"content-encoding": encoding}, content=b"")
    assert "content-encoding" not in bound_response(response, 10).headers, "nobody decodes it again"


@cases(
    "parts, message",
    ([PACKED, b"x"], "after the end"),
    ([PACKED + b"x"], "after the end"),
    ([PACKED[:-4]], "cut"),
    ([b"noon"], "header"),
)
def test_a_broken_body_is_refused(parts, message):
    with pytest.raises(httpx2.DecodingError, match=message):
        read(parts)
