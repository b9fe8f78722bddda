"""The fetch phase's way out: to the registries that the operator named, and nowhere else."""

import asyncio
import os
import socket
import threading
from contextlib import ExitStack, closing, suppress
from unittest.mock import AsyncMock

import pytest

from assets.servers.sandbox.gateway import (
    EgressGateway,
    _parse_http,
    find_wanted_host,
    format_host,
    list_registries,
    make_granted_dial,
    open_gateway,
    parse_host,
)
from tests.marketplaces.site import Answer, site
from tests.support.cases import cases
from warehouse.network.egress import PrivateAddress


def _dial(folder, *sent):
    way = socket.socket(socket.AF_UNIX)
    way.settimeout(10)
    way.connect(str(folder / "socket"))
    for data in sent:
        way.sendall(data)
    return way


def _connect(folder, host, port):
    """(a connection, the gateway's answer), as a SOCKS client of the sandbox asks."""
    way, name = _dial(folder, b"\5\1\0"), host.encode()
    assert way.recv(2) == b"\5\0"
    way.sendall(bytes([5, 1, 0, 3, len(name)]) + name + int(port).to_bytes(2, "big"))
    return way, way.recv(10)[1]


def _ask(folder, url):
    host, _, port = url.removeprefix("http://").rpartition(":")
    way, code = _connect(folder, host, port)
    with closing(way):
        if code:
            return code
        way.sendall(b"GET /x HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: way.recv(4096), b"")).rpartition(b"\r\n\r\n")[2]


def _send(folder, head):
    """All that comes back for a head that is sent as to an HTTP proxy, and the connection's end."""
    with closing(_dial(folder, head.encode())) as way:
        return b"".join(iter(lambda: way.recv(4096), b"")).decode()


def _open(env):
    gateway = EgressGateway(list_registries(env), env)
    return gateway, open_gateway(gateway, None)


def test_a_registry_answers_and_another_port_of_the_same_host_is_refused():
    with site(lambda *_: Answer("index")) as index, site(lambda *_: Answer("secret")) as other:
        gateway, opened = _open({"UV_DEFAULT_INDEX": f"{index.url}/simple"})
        with opened as folder:
            assert (_ask(folder, index.url), _ask(folder, other.url)) == (b"index", 2)
            assert _ask(folder, other.url.replace("127.0.0.1", "localhost")) == 2
        assert (other.paths, gateway.refused[0]) == ([], other.url.removeprefix("http://"))


@cases("sent", b"", b"GET / HTTP/1.1\r\n\r\n", b"\5\1\0\5\2\0\1" + bytes(6))
def test_what_is_no_request_to_connect_ends_that_connection_alone(sent):
    with site(lambda *_: Answer("index")) as index:
        _, opened = _open({"npm_config_registry": index.url})
        with opened as folder, closing(_dial(folder, sent)) as way:
            way.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                assert way.recv(100) in (b"", b"\5\0")
            assert _ask(folder, index.url) == b"index"


def test_an_http_client_is_led_to_the_same_hosts_and_no_other():
    with site(lambda *_: Answer("index")) as index, site(lambda *_: Answer("secret")) as other:
        gateway, opened = _open({"UV_DEFAULT_INDEX": index.url})
        here, far = (one.url.removeprefix("http://") for one in (index, other))
        with opened as folder:
            got = _send(folder, f"GET http://{here}/x?y=1 HTTP/1.1\r\nHost: {here}\r\n\r\n")
            assert got.endswith("\r\n\r\nindex")
            tunnel = f"CONNECT {here} HTTP/1.1\r\nHost: {here}\r\n\r\nGET /z HTTP/1.0\r\n\r\n"
            got = _send(folder, tunnel)
            assert got.startswith("HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.")
            for head in (f"GET http://{far}/ HTTP/1.1\r\n\r\n", f"CONNECT {far} HTTP/1.1\r\n\r\n"):
                assert _send(folder, head).startswith("HTTP/1.1 421 Not granted\r\n")
        assert (index.paths, other.paths, gateway.refused) == (["/x?y=1", "/z"], [], [far, far])


def test_what_only_the_proxy_is_told_goes_no_further_and_no_servers_words_are_noted():
    head = b"GET http://API.Example.com./a HTTP/1.1\r\nHost: api\r\nProxy-Authorization: x\r\n"
    request = _parse_http(head + b"Connection: keep-alive\r\nAccept: */*\r\n\r\n")
    assert (request.host, request.port) == ("api.example.com", 80)
    kept = b"Host: api\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    assert request.head == b"GET /a HTTP/1.1\r\n" + kept
    gateway, opened = _open({})
    with opened as folder:
        assert _connect(folder, "`rm -rf ~`", 443)[1] == 2
        assert _connect(folder, "2130706433", 443)[1] == 2
    assert set(gateway.refused) == {"(no name of a host):443"}


def test_what_a_sandbox_opens_beyond_the_most_is_no_open_file_of_ours(monkeypatch):
    monkeypatch.setattr("assets.servers.sandbox.gateway._MOST", 3)
    with site(lambda *_: Answer("index")) as index, ExitStack() as held:
        _, opened = _open({"npm_config_registry": index.url})
        folder = held.enter_context(opened)
        host, _, port = index.url.removeprefix("http://").rpartition(":")
        for _ in range(3):
            way, code = _connect(folder, host, port)
            held.enter_context(closing(way))
            assert code == 0
        waiting = [held.enter_context(closing(socket.socket(socket.AF_UNIX))) for _ in range(20)]
        before = len(os.listdir("/proc/self/fd"))
        for way in waiting:
            way.connect(str(folder / "socket"))
            way.sendall(b"\5\1\0")
        waiting[0].settimeout(0.3)
        with pytest.raises(TimeoutError):
            waiting[0].recv(2)
        # Not 20 more; the site may have taken its three only now.
        assert len(os.listdir("/proc/self/fd")) <= before + 3


def test_it_goes_through_the_proxy_that_the_operator_named():
    heads = []
    with site(lambda *_: Answer("index")) as index, socket.create_server(("127.0.0.1", 0)) as proxy:

        def serve():
            client, _ = proxy.accept()
            with client:
                heads.append(client.recv(4096))
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                client.recv(4096)
                client.sendall(b"HTTP/1.0 200 OK\r\n\r\nby proxy")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        named = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        env = {"npm_config_registry": index.url, "http_proxy": named, "https_proxy": named}
        with _open(env)[1] as folder:
            assert _ask(folder, index.url) == b"by proxy"
        thread.join()
        with _open({**env, "no_proxy": "example.com,127.0.0.1"})[1] as folder:
            assert _ask(folder, index.url) == b"index"
    assert heads[0].startswith(b"CONNECT 127.0.0.1:")


def test_registries_are_read_from_the_settings_of_the_tools():
    env = {
        "npm_config_registry": "https://npm.example/mirror/",
        "UV_INDEX": "one=https://one.example:8443/simple https://two.example/simple",
        "UV_FIND_LINKS": "/opt/wheels,http://links.example/",
        "UV_EXTRA_INDEX_URL": "file:///opt/index http://[broken",
        "HTTPS_PROXY": "http://proxy.example:3128",
    }
    named = {("npm.example", 443), ("one.example", 8443), ("two.example", 443)}
    named |= {("links.example", 80), ("files.example", 443), ("git.example", 8080)}
    more = ("files.example", "git.example:8080")
    assert list_registries(env, more) - list_registries({}) == named


@cases(
    "text, host",
    ("api.example.com", ("api.example.com", 443)),
    ("API.Example.com.:8443", ("api.example.com", 8443)),
    ("localhost:8080", ("localhost", 8080)),
    ("10.0.0.7:443", ("10.0.0.7", 443)),
    ("::1", ("::1", 443)),
    ("[::1]:8080", ("::1", 8080)),
    ("[2001:DB8::1]", ("2001:db8::1", 443)),
)
def test_a_host_is_a_name_or_an_address_and_a_port(text, host):
    assert (parse_host(text), parse_host(format_host(host))) == (host, host)


@cases(
    "text, problem",
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
)
def test_anything_more_than_a_host_is_refused_with_what_is_expected(text, problem):
    with pytest.raises(ValueError, match=problem) as refused:
        parse_host(text)
    assert repr(text) in str(refused.value)


@cases(
    "said, host",
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
)
def test_the_host_that_was_not_reached_is_read_from_the_words(said, host):
    assert find_wanted_host(said) == host


@cases("address", "127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fe80::1", "64:ff9b::a00:1")
def test_a_granted_name_leads_to_no_private_address(address, monkeypatch):
    connect = AsyncMock(side_effect=AssertionError("a private address was dialled"))
    monkeypatch.setattr("assets.servers.sandbox.gateway.anyio.connect_tcp", connect)
    resolve = AsyncMock(return_value=["93.184.216.34", address])
    dial = make_granted_dial([("api.example.com", 443)], resolve)
    with pytest.raises(PrivateAddress, match=f"api.example.com is at {address}"):
        asyncio.run(dial("api.example.com", 443))


@cases("host", "10.0.0.1", "::1", "localhost")
def test_an_address_that_the_user_named_himself_is_dialled(host, monkeypatch):
    address, connect = ("127.0.0.1" if host == "localhost" else host), AsyncMock()
    monkeypatch.setattr("assets.servers.sandbox.gateway.anyio.connect_tcp", connect)
    dial = make_granted_dial([(host, 8080)], AsyncMock(return_value=[address]))
    asyncio.run(dial(host, 8080))
    connect.assert_awaited_once_with(address, 8080)
