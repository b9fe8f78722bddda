"""Bundles over HTTP: what is kept, what is refused, and for how long a host may hold us."""

import socket
import threading
from contextlib import contextmanager, suppress

import pytest

from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes.fetch_phase import download
from tests.marketplaces.site import Answer, site
from tests.support.cases import cases
from tests.support.errors import expect_kind
from warehouse.network.egress import EgressConnector


@contextmanager
def _drip(head):
    """A host that sends a head, then a byte every few milliseconds, for as long as one listens."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(head)
                for _ in range(3000):
                    connection.sendall(b"x")
                    if done.wait(0.02):
                        return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        done.set()
        thread.join()


def test_a_download_is_kept_by_its_hash_and_not_repeated(tmp_path, host):
    host.files["/a"] = b"data"
    path, sha = download(f"{host.url}/a", tmp_path, allow_loopback=True)
    assert path.read_bytes() == b"data"
    download(f"{host.url}/a", tmp_path, sha256=sha, allow_loopback=True)
    assert host.requests == ["/a"]
    assert [p.name for p in tmp_path.iterdir()] == [sha]


@cases(
    "path, limits, kind",
    ("/none", {}, "not_found"),
    ("/a", {"sha256": "0" * 64}, "integrity"),
    ("/big", {"max_mb": 1}, "oversize"),
)
def test_a_download_that_fails_has_its_kind_and_leaves_nothing(tmp_path, host, path, limits, kind):
    host.files |= {"/a": b"data", "/big": b"x" * (2 << 20)}
    with expect_kind(PackageError, kind):
        download(host.url + path, tmp_path, allow_loopback=True, **limits)
    assert list(tmp_path.iterdir()) == []


def test_a_host_that_is_down_is_a_failed_fetch(tmp_path):
    with expect_kind(PackageError, "fetch_failed"):
        download("http://127.0.0.1:9/x", tmp_path, allow_loopback=True)


def test_a_bundle_at_a_private_address_is_not_asked_for(tmp_path, host):
    for url in (f"{host.url}/a", host.url.replace("127.0.0.1", "localhost"), "http://10.0.0.1/a"):
        with expect_kind(PackageError, "fetch_failed", "not a public address"):
            download(url, tmp_path)
    assert host.requests == []


def test_nothing_but_the_bundle_as_it_is_is_asked_for_or_taken(tmp_path):
    packed = Answer(b"small", headers={"Content-Encoding": "zstd"})
    with site(lambda *_: packed) as host:
        with pytest.raises(PackageError, match="in the encoding 'zstd'") as caught:
            download(host.url, tmp_path, allow_loopback=True)
        assert host.headers[0]["Accept-Encoding"] == "identity"
    assert caught.value.kind == "fetch_failed"
    assert list(tmp_path.iterdir()) == []


def test_the_body_of_a_redirect_is_not_read_let_alone_decompressed(tmp_path):
    """The client decodes what it reads: this one would be no gzip."""

    def answer(path, _):
        moved = {"Location": "/there", "Content-Encoding": "gzip"}
        return Answer("there") if path == "/there" else Answer("no gzip", 302, headers=moved)

    with site(answer) as host:
        path, _ = download(host.url, tmp_path, allow_loopback=True)
    assert path.read_bytes() == b"there"


def test_redirects_without_end_are_left(tmp_path):
    with site(lambda *_: Answer(status=302, headers={"Location": "/again"})) as host:
        with pytest.raises(PackageError, match="more than 5 redirects"):
            download(host.url, tmp_path, allow_loopback=True)
        assert len(host.paths) == 6


async def _find_addresses(connector, host, _):
    return ["127.0.0.1"] if host == "public.example" else connector.judge(host, [host])


def test_a_redirect_is_judged_like_the_first_address(tmp_path, monkeypatch):
    with site(lambda *_: Answer("secret")) as inside:
        moved = {"Location": inside.url}
        with site(lambda *_: Answer(status=302, headers=moved)) as outside:
            # A public host, played by this machine: the allowance is for URLs on loopback only.
            monkeypatch.setattr(EgressConnector, "find_addresses", _find_addresses)
            port = outside.url.rpartition(":")[2]
            with pytest.raises(PackageError, match=r"127\.0\.0\.1, which is not a public address"):
                download(f"http://public.example:{port}/", tmp_path, allow_loopback=True)
            assert len(outside.paths) == 1
        assert inside.paths == []


def test_one_deadline_holds_over_headers_and_body(tmp_path):
    """A byte a second held it past 75 s: each read was in time."""
    for sent in (b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n"):
        with _drip(sent) as url, expect_kind(PackageError, "fetch_failed", "not done in"):
            download(url, tmp_path, allow_loopback=True, deadline_s=0.3)
    assert list(tmp_path.iterdir()) == []
