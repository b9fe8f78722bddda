"""What a remote server's refusals amount to; and the guarded transport."""

import gzip
import socket
import ssl
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from unittest.mock import AsyncMock

import httpx2
import pytest

from assets.servers.probe import failure_kinds, remote_outcome, remote_transport
from assets.servers.probe.remote_transport import MESSAGE, GuardedTransport, TransportRefusal
from tests.servers.probe.test_remote_probe import ask, ask_script
from tests.support import http_mcp
from tests.support.cases import cases
from tests.support.http_mcp import (
    Call,
    make_good_script,
    make_sse_script,
    make_welcome,
    serve_script,
)
from tests.support.network import PRIVATE, NoNetwork, connector
from warehouse.network.egress import EgressConnector
from warehouse.network.http import parse_retry_after

STATUSES = {
    **dict.fromkeys((401, 402, 403), "remote_auth"),
    **dict.fromkeys((404, 410), "not_found"),
    **dict.fromkeys((304, 400, 405, 406, 418), "protocol_error"),
    **dict.fromkeys((407, 408, 425, 429, 500, 502, 503, 504), "remote_down"),
}


@cases("transport", "http", "sse", "auto")
@pytest.mark.parametrize("status", STATUSES)
def test_a_status_has_its_kind_whatever_the_transport(status, transport):
    found = ask_script(lambda call: call.say("no", status=status), transport)
    assert (found.error_kind, f"answered {status}" in str(found.hint)) == (STATUSES[status], True)
    assert found.error_kind in failure_kinds.KINDS


@cases("status", 403, 404, 429, 500)
def test_a_refused_message_of_an_sse_server_has_its_kind_too(status):
    """The SDK logs it and leaves the session waiting."""
    behind = make_sse_script()

    def refusing(call: Call) -> None:
        behind(call) if call.method == "GET" else call.say("no", status=status)

    found = ask_script(refusing, "sse")
    assert found.error_kind == STATUSES[status]
    assert f"answered {status} to POST" in str(found.hint)


def test_a_401_says_whether_oauth_is_offered_and_how_to_log_in():
    metadata = "https://acme.example/.well-known/oauth-protected-resource"
    challenge = f'Bearer error="invalid_token", resource_metadata="{metadata}"'
    with serve_script(lambda call: call.say(status=401, WWW_Authenticate=challenge)) as here:
        found = ask(here.url + "?key=private")
    assert (found.error_kind, metadata in str(found.hint)) == ("remote_auth", True)
    assert f"toolmill login {here.url}" in str(found.hint)
    assert "private" not in str(found.hint)
    with serve_script(lambda call: call.json({"error": "API key missing"}, status=401)) as here:
        found = ask(here.url)
    assert (found.error_kind, "names no scheme" in str(found.hint)) == ("remote_auth", True)
    assert "API key missing" in str(found.hint)
    with serve_script(lambda call: call.say(status=403, WWW_Authenticate="Basic realm=x")) as here:
        assert "'Basic'" in str(ask(here.url).hint)
    with serve_script(lambda call: call.say(status=401)) as here:  # a command to be pasted
        assert "login '" in str(ask(here.url + "/$(touch%20x);'`id`").hint)


@cases(
    "value, seconds",
    ("120", 120.0),
    ("0", 0.0),
    ("99999999999999999999", 30 * 86_400.0),
    ("soon", None),
)
def test_a_busy_server_says_when_to_come_back(value, seconds):
    found = ask_script(lambda call: call.say(status=429, Retry_After=value))
    assert (found.error_kind, found.retry_after) == ("remote_down", seconds)


def test_retry_after_may_be_a_date():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    later = format_datetime(now + timedelta(seconds=90), usegmt=True)
    assert parse_retry_after(later, now) == 90.0
    assert parse_retry_after(format_datetime(now - timedelta(days=1), usegmt=True), now) == 0.0
    for junk in ("", "²", "-5", "1e9", "Thu, 99 Foo 2026 00:00:00 GMT", "\x00"):
        assert parse_retry_after(junk, now) is None


@cases(
    "words, kind",
    ("Missing API key: set the X-Api-Key header", "remote_auth"),
    ("the parameter owner: missing required argument", "needs_argument"),
    ("bad request", "protocol_error"),
)
def test_the_words_of_a_400_count(words, kind):
    assert ask_script(lambda call: call.say(words, status=400)).error_kind == kind


@cases("status", 200, 400)
@cases(
    "words, code, kind",
    ("Unauthorized: token missing", -32000, "remote_auth"),
    ("Method not found", -32601, "no_tools"),
    ("internal error", -32603, "protocol_error"),
)
def test_an_error_answer_has_its_kind(words, code, kind, status):

    def fail(call: Call) -> None:
        http_mcp.refuse(call, code, status, words)

    kind = "protocol_error" if (kind, status) == ("no_tools", 400) else kind
    assert ask_script(make_good_script(tools_list=fail)).error_kind == kind


@cases(
    "headers, named",
    ({"Content_Type": "text/html; charset=utf-8"}, "a web page"),
    ({"Content_Type": "text/plain"}, "text/plain"),
    ({"Content_Type": "application/octet-stream"}, "application/octet-stream"),
    ({"Content_Type": "x" * 500}, "xxx"),
    ({}, "no content type"),
)
def test_what_is_no_mcp_is_named(headers, named):
    found = ask_script(lambda call: call.say("<html>", **headers), "http")
    assert (found.error_kind, named in str(found.hint)) == ("protocol_error", True)
    assert "instead of MCP" in str(found.hint)


def test_a_session_that_ends_again_and_again_is_down_and_a_hint_speaks_of_no_output():
    def forgetful(call: Call) -> None:
        if call.asks == "initialize":
            call.answer(make_welcome(), Mcp_Session_Id="s")
        else:
            call.say(status=404)

    with serve_script(forgetful) as here:
        found = ask(here.url)
    assert (found.error_kind, here.asked.count("initialize")) == ("remote_down", 2)
    # The taxonomy's own advice on protocol errors is about local servers.
    found = ask_script(make_good_script(tools_list=lambda call: call.answer({"tools": 7})))
    assert found.error_kind == "protocol_error"
    assert "standard output" not in str(found.hint)
    assert "`tools` is int" in str(found.hint)


def test_a_closed_port_no_address_and_a_certificate_that_nobody_signed_are_down(certificate):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert ask(f"http://127.0.0.1:{port}/mcp").error_kind == "remote_down"
    nowhere = AsyncMock(side_effect=socket.gaierror(socket.EAI_NONAME, "Name not known"))
    found = ask("https://nowhere.example/mcp", connector=EgressConnector(resolve=nowhere))
    assert (found.error_kind, "Name not known" in str(found.hint)) == ("remote_down", True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with serve_script(make_good_script(), tls=context) as here:
        found = ask(here.url, headers={"Authorization": "Bearer tok-en-42"})
        assert here.calls == []
    assert (found.error_kind, "certificate" in str(found.hint).lower()) == ("remote_down", True)


def cut(call: Call) -> None:
    call.head(200, Content_Type="application/json", Content_Length="1000")
    call.write(b'{"jsonrpc": ')


@cases(
    "script, kind",
    (lambda call: None, "remote_down"),
    (make_good_script(tools_list=cut), "remote_down"),
    (lambda call: call.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), "protocol_error"),
    (make_good_script([]), "no_tools"),
    ids=["drops the connection", "breaks off its body", "speaks no HTTP", "has no tools"],
)
def test_what_a_connection_comes_to_has_its_kind(script, kind):
    assert ask_script(script).error_kind == kind


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "nobody")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1)
    builder = builder.not_valid_before(now - timedelta(days=1))
    made = builder.not_valid_after(now + timedelta(days=1)).sign(key, hashes.SHA256())
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    secret = key.private_bytes(serialization.Encoding.PEM, *plain)
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path


@cases("url", "ftp://acme.example/mcp", "acme.example", "", "http://", "http://[::1", "file:///etc")
def test_what_is_no_address_gives_no_recipe(url):
    assert ask(url).error_kind == "no_recipe"


def test_an_exception_of_any_sort_is_a_failure_and_a_url_is_shown_without_secrets():
    shown = remote_outcome.show_url("https://me:pass@acme.example:8443/mcp?key=private#private")
    assert shown == "https://acme.example:8443/mcp"
    assert remote_outcome.show_url("http://[::1]:80/x") == "http://[::1]:80/x"
    assert remote_outcome.show_url("http://[::1") == "this address"
    loop = ValueError("a")
    loop.__cause__ = loop
    for error in (loop, ExceptionGroup("g", [ExceptionGroup("h", [KeyError("x")])]), OSError()):
        assert remote_outcome.classify_exception(error, "http://x/").kind == "protocol_error"


@pytest.mark.parametrize("address", PRIVATE)
def test_a_probe_of_a_private_address_is_denied_and_says_which(address):
    inner = NoNetwork()
    found = ask("https://acme.example/mcp", connector=connector(inner, [address]))
    assert (found.error_kind, inner.dialled) == ("policy_denied", [])
    assert address in str(found.hint)
    assert "allow_loopback" in str(found.hint)


SECRETS = {"authorization": "Bearer t", "x-api-key": "k", "cookie": "c=1", "x-slug": "zoom"}


class Site:
    """Answers requests from a table of URL -> (status, location); others are 200."""

    def __init__(self, table: dict[str, tuple[int, str]] | None = None, **more: Any) -> None:
        self.seen: list[httpx2.Request] = []
        self.table, self.more = table or {}, more

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.seen.append(request)
        status, location = self.table.get(str(request.url), (200, ""))
        headers = {"location": location} if location else {}
        return httpx2.Response(status, headers=headers, **({} if location else self.more))


POLICY = remote_transport.RemotePolicy(max_mb=2)


async def send(site: Site, url: str, method: str = "GET", message: bool = True, **more: Any):
    wire = GuardedTransport(POLICY, inner=httpx2.MockTransport(site))
    extensions = {MESSAGE: True} if message else {}
    request = httpx2.Request(method, url, headers=SECRETS, extensions=extensions, **more)
    return await wire.handle_async_request(request)


async def kind_of(site: Site, url: str, method: str = "GET", message: bool = True) -> str:
    with pytest.raises(TransportRefusal) as caught:
        await send(site, url, method, message, content=b"{}" if method == "POST" else None)
    return caught.value.failure.kind


async def test_a_redirect_within_the_origin_or_to_its_https_keeps_what_was_sent():
    site = Site({"https://a.example/x": (307, "/y")})
    assert (await send(site, "https://a.example/x", "POST", content=b"{}")).status_code == 200
    last = site.seen[-1]
    assert (str(last.url), last.method) == ("https://a.example/y", "POST")
    assert {name: last.headers[name] for name in SECRETS} == SECRETS
    assert b"".join([part async for part in last.stream]) == b"{}"  # type: ignore[union-attr]
    site = Site({"http://a.example/x": (301, "https://a.example/x")})
    await send(site, "http://a.example/x", "POST", content=b"{}")
    assert (site.seen[-1].headers["authorization"], site.seen[-1].method) == ("Bearer t", "POST")


@cases("there", "https://b.example/y", "https://a.example:8443/y", "https://sub.a.example/y")
async def test_another_origin_is_told_no_secret_not_even_on_the_way_back(there):
    site = Site({"https://a.example/x": (308, there), there: (308, "https://a.example/back")})
    await send(site, "https://a.example/x", "POST", content=b"{}")
    assert [str(one.url) for one in site.seen[1:]] == [there, "https://a.example/back"]
    for one in site.seen[1:]:
        assert not set(SECRETS) & set(one.headers)
        assert one.headers["host"] == one.url.netloc.decode()


@cases(
    "location",
    *("http://a.example/y", "file:///etc/passwd", "gopher://a.example/", "unix:/x"),
    *("https://me:pass@a.example/", "javascript:alert(1)"),
)
async def test_a_redirect_to_what_is_weaker_or_no_web_address_is_denied(location):
    site = Site({"https://a.example/x": (302, location)})
    assert (await kind_of(site, "https://a.example/x"), len(site.seen)) == ("policy_denied", 1)


async def test_three_redirects_are_followed_but_none_to_no_address_or_with_a_token_elsewhere():
    site = Site({"https://a.example/x": (302, "https://a.example:port/")})
    assert await kind_of(site, "https://a.example/x") == "protocol_error"
    site = Site({f"https://a.example/{n}": (307, f"/{n + 1}") for n in range(4)})
    assert (await send(site, "https://a.example/1")).status_code == 200
    assert (await kind_of(site, "https://a.example/0"), len(site.seen)) == ("protocol_error", 4 + 4)
    site = Site({"https://a.example/token": (307, "https://b.example/token")})
    assert await kind_of(site, "https://a.example/token", "POST", message=False) == "protocol_error"
    assert len(site.seen) == 1


@cases("status", 302, 303)
async def test_a_redirect_that_would_drop_the_message_is_not_followed(status):
    site = Site({"https://a.example/x": (status, "/login")})
    assert await kind_of(site, "https://a.example/x", "POST") == "protocol_error"
    assert len(site.seen) == 1


async def read(response: httpx2.Response) -> int:
    return len(await response.aread())


def answering(encoding: bytes, body: bytes) -> GuardedTransport:
    def answer(_: httpx2.Request) -> httpx2.Response:
        headers = [(b"content-encoding", encoding)]
        return httpx2.Response(200, headers=headers, stream=httpx2.ByteStream(body))

    return GuardedTransport(POLICY, inner=httpx2.MockTransport(answer))


async def test_a_bomb_is_counted_decompressed_and_what_is_no_message_has_a_smaller_bound():
    wire = answering(b"gzip", gzip.compress(b"\0" * (30 << 20)))
    request = httpx2.Request("GET", "https://a.example/", extensions={MESSAGE: True})
    response = await wire.handle_async_request(request)
    with pytest.raises(TransportRefusal) as caught:
        await read(response)
    assert caught.value.failure.kind == "oversize"
    assert wire.meter.decoded <= (3 << 20)  # of 30
    site = Site(content=b"x" * ((1 << 20) + 1))
    assert await read(await send(site, "https://a.example/")) > (1 << 20)
    with pytest.raises(TransportRefusal, match="1 MB"):
        await read(await send(site, "https://a.example/", message=False))


@cases("encoding", "br", "zstd", "gzip, gzip", "gzip, " * 50 + "gzip", "x\u00e9")
async def test_other_encodings_are_refused(encoding):
    wire = answering(encoding.encode("latin-1"), b"x")
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
