"""The hosts that a user grants: how they are written, named in errors, and dialled."""

import asyncio

import pytest

from assets.servers.sandbox.granted_hosts import (
    find_wanted_host,
    format_host,
    make_granted_dial,
    parse_host,
)
from warehouse.network.egress import PrivateAddress

PRIVATE = ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fe80::1", "64:ff9b::a00:1"]


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("api.example.com", ("api.example.com", 443)),
        ("API.Example.com.:8443", ("api.example.com", 8443)),
        ("localhost:8080", ("localhost", 8080)),
        ("10.0.0.7:443", ("10.0.0.7", 443)),
        ("::1", ("::1", 443)),
        ("[::1]:8080", ("::1", 8080)),
        ("[2001:DB8::1]", ("2001:db8::1", 443)),
    ],
)
def test_a_host_is_a_name_or_an_address_and_a_port(text, host):
    assert parse_host(text) == host
    assert parse_host(format_host(host)) == host


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("https://api.example.com", "an address with its scheme"),
        ("*.example.com", "a wildcard"),
        ("api.example.com/v1", "a path in it"),
        ("api.example.com?x", "a query in it"),
        ("user:pw@api.example.com", "a user in it"),
        ("api.example.com:0", "expected 1 to 65535"),
        ("api.example.com:65536", "expected 1 to 65535"),
        ("api.example.com:", "expected 1 to 65535"),
        ("api.example.com:x", "expected 1 to 65535"),
        ("127.1", "no name of a host, nor an address"),
        ("2130706433", "no name of a host, nor an address"),
        ("0x7f.0x1", "no name of a host, nor an address"),
        ("", "no name of a host, nor an address"),
        ("a b", "no name of a host, nor an address"),
        ("-a.example", "no name of a host, nor an address"),
        ("exämple.com", "no name of a host, nor an address"),
        ("[::1", "expected 1 to 65535|no name of a host"),
    ],
)
def test_anything_more_than_a_host_is_refused_with_what_is_expected(text, problem):
    with pytest.raises(ValueError, match=problem) as refused:
        parse_host(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    ("said", "host"),
    [
        ("getaddrinfo ENOTFOUND api.example.com", "api.example.com"),
        ("getaddrinfo EAI_AGAIN api.example.com", "api.example.com"),
        ("Error: connect ECONNREFUSED db.example.com:5432", "db.example.com:5432"),
        ("HTTPSConnectionPool(host='api.example.com', port=443): Max retries", "api.example.com"),
        ("Failed to resolve 'api.example.com'", "api.example.com"),
        ("could not resolve host: api.example.com", "api.example.com"),
        ("dial tcp: lookup api.example.com on 10.0.0.2:53", "api.example.com"),
        ("GET https://api.example.com:8443/v1 failed", "api.example.com:8443"),
        ("Name or service not known", None),
        ("connect ECONNREFUSED 127.0.0.1:5432", None),
        ("lookup `rm -rf ~`", None),
    ],
)
def test_the_host_that_was_not_reached_is_read_from_the_words(said, host):
    assert find_wanted_host(said) == host


@pytest.mark.parametrize("address", PRIVATE)
def test_a_granted_name_leads_to_no_private_address(address, monkeypatch):
    async def connect(*_: object) -> None:
        raise AssertionError("a private address was dialled")

    async def resolve(*_: object) -> list[str]:
        return ["93.184.216.34", address]

    monkeypatch.setattr("assets.servers.sandbox.granted_hosts.anyio.connect_tcp", connect)
    dial = make_granted_dial([("api.example.com", 443)], resolve)
    with pytest.raises(PrivateAddress, match=f"api.example.com is at {address}"):
        asyncio.run(dial("api.example.com", 443))


@pytest.mark.parametrize("host", ["10.0.0.1", "::1", "localhost"])
def test_an_address_that_the_user_named_himself_is_dialled(host, monkeypatch):
    dialled = []

    async def connect(address: str, port: int) -> None:
        dialled.append((address, port))

    async def resolve(name: str, _: int) -> list[str]:
        return ["127.0.0.1"] if name == "localhost" else [name]

    monkeypatch.setattr("assets.servers.sandbox.granted_hosts.anyio.connect_tcp", connect)
    asyncio.run(make_granted_dial([(host, 8080)], resolve)(host, 8080))
    assert dialled == [("127.0.0.1" if host == "localhost" else host, 8080)]
