"""The fetch phase's way out: to the registries that the operator named, and nowhere else."""

import os
import socket
import threading
from contextlib import ExitStack, closing, suppress

import pytest

from assets.servers.sandbox.gateway import EgressGateway, _parse_http, list_registries, open_gateway
from tests.marketplaces.site import Answer, site


def _connect(folder, host, port):
    """(a connection, the gateway's answer), as a SOCKS client of the sandbox asks."""
    way = socket.socket(socket.AF_UNIX)
    way.settimeout(10)
    way.connect(str(folder / "socket"))
    name = host.encode()
    request = bytes([5, 1, 0, 3, len(name)]) + name + int(port).to_bytes(2, "big")
    way.sendall(b"\5\1\0")
    assert way.recv(2) == b"\5\0"
    way.sendall(b"\5" + request[1:])
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
    way = socket.socket(socket.AF_UNIX)
    way.settimeout(10)
    with closing(way):
        way.connect(str(folder / "socket"))
        way.sendall(head.encode())
        return b"".join(iter(lambda: way.recv(4096), b"")).decode()


def _open(env):
    gateway = EgressGateway(list_registries(env), env)
    return gateway, open_gateway(gateway, None)


def test_a_registry_answers_and_another_port_of_the_same_host_is_refused():
    with site(lambda *_: Answer("index")) as index, site(lambda *_: Answer("secret")) as other:
        gateway, opened = _open({"UV_DEFAULT_INDEX": f"{index.url}/simple"})
        with opened as folder:
            assert _ask(folder, index.url) == b"index"
            assert _ask(folder, other.url) == 2
            assert _ask(folder, other.url.replace("127.0.0.1", "localhost")) == 2
        assert other.paths == []
        assert gateway.refused[0] == other.url.removeprefix("http://")


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\5\1\0\5\2\0\1" + bytes(6)])
def test_what_is_no_request_to_connect_ends_that_connection_alone(sent):
    with site(lambda *_: Answer("index")) as index:
        _, opened = _open({"npm_config_registry": index.url})
        with opened as folder, socket.socket(socket.AF_UNIX) as way:
            way.settimeout(10)
            way.connect(str(folder / "socket"))
            way.sendall(sent)
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
        assert (index.paths, other.paths) == (["/x?y=1", "/z"], [])
        assert gateway.refused == [far, far]


def test_what_only_the_proxy_is_told_goes_no_further():
    head = b"GET http://API.Example.com./a HTTP/1.1\r\nHost: api\r\nProxy-Authorization: x\r\n"
    request = _parse_http(head + b"Connection: keep-alive\r\nAccept: */*\r\n\r\n")
    assert (request.host, request.port) == ("api.example.com", 80)
    assert request.head == (
        b"GET /a HTTP/1.1\r\nHost: api\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    )


def test_no_words_of_a_server_stand_where_hosts_are_noted():
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
