"""The fetch phase's way out: to the registries that the operator named, and nowhere else."""

import socket
import threading
from contextlib import closing, suppress

import pytest

from assets.servers.packages.gateway import Gateway, list_registries, open_gateway
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


def _open(env):
    gateway = Gateway(list_registries(env), env)
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
