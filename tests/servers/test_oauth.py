"""OAuth for remote servers: a login by a person, unattended renewal, and `toolmill login`."""

import json
import os
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import pytest
from typer.testing import CliRunner

from assets.servers.oauth_login import OAuthAccounts, OAuthChoice, TokenStore, log_in
from assets.servers.secrets import SecretError
from orchestration.cli.servers import app
from tests.servers.probe.test_remote_probe import ask
from tests.support.cases import cases
from tests.support.http_mcp import Call, make_good_script, make_tool, serve_script
from tests.support.network import guard_loopback
from tests.support.oauth_authority import authority
from tests.support.paths import ROOT
from tests.support.python_process import PythonProcess

SERVER = "remote:https://acme.example/mcp"


def browser(url: str) -> None:
    """A person who consents at once: their browser follows the address to the callback."""
    threading.Thread(target=lambda: httpx2.get(url, follow_redirects=True, timeout=60)).start()


def logged_in(url: str, state, **more):
    return log_in(url, SERVER, state, **{"show": browser, "timeout_s": 5.0, **more})


def ask_unattended(url: str, state):
    return ask(url, auth=OAuthAccounts(state).auth(SERVER, url))


def ends_now(state) -> None:
    """The stored token has ended; the server would still take it."""
    TokenStore(state, SERVER).save(expires_at=time.time() - 1)


def grants(found) -> list[str]:
    return [grant["grant_type"] for grant in found.grants]


@pytest.fixture
def own(monkeypatch):
    """A client that a person has registered, and chooses."""
    monkeypatch.setenv("ACME_SECRET", "own-secret-1")
    return partial(OAuthChoice, client_id="mine", client_secret="env:ACME_SECRET")


OWN = {"redirect_uris": None, "client_secret": "own-secret-1"}


def test_a_login_is_kept_in_a_private_file_and_used_by_unattended_runs(tmp_path):
    with authority() as (server, resource, _):
        report = logged_in(resource.url, tmp_path)
        assert (report["status"], report["logged_in"], report["tools"]) == ("ok", True, 2), report
        assert (report["renewable"], report["scope"]) == (True, "tools")
        found = ask_unattended(resource.url, tmp_path)
        assert (found.status, len(found.tools), grants(server)) == ("ok", 2, ["authorization_code"])
        assert server.grants[0]["resource"] == resource.url
    store = TokenStore(tmp_path, SERVER)
    modes = [path.stat().st_mode & 0o777 for path in (store.path, store.path.parent)]
    assert modes == [0o600, 0o700]
    assert [path.name for path in store.path.parent.iterdir()] == [store.path.name]
    tokens = json.loads(store.path.read_text())["tokens"]
    assert tokens["access_token"] in server.access
    for name in ("access_token", "refresh_token"):
        assert tokens[name] not in json.dumps(report)


def test_a_client_of_ones_own_is_used(tmp_path, own):
    with authority() as (server, resource, _):
        server.clients["mine"] = OWN
        report = logged_in(resource.url, tmp_path, choice=own(issuer=server.issuer))
        assert report["status"] == "ok", report
        assert list(server.clients) == ["mine"]
        ends_now(tmp_path)
        assert ask_unattended(resource.url, tmp_path).status == "ok"
        assert server.grants[-1]["client_secret"] == "own-secret-1"


@cases("ways", ["client_secret_basic"], None)
def test_a_secret_is_shown_the_way_that_the_authority_takes(tmp_path, own, ways):
    with authority() as (server, resource, _):
        server.metadata = {"token_endpoint_auth_methods_supported": ways}
        server.clients["mine"] = OWN
        assert logged_in(resource.url, tmp_path, choice=own())["status"] == "ok"
        ends_now(tmp_path)
        assert ask_unattended(resource.url, tmp_path).status == "ok"
        for grant in server.grants:
            assert grant["basic_secret"] == "own-secret-1"
            assert "client_secret" not in grant


def test_a_client_of_ones_own_is_shown_to_no_other_authority(tmp_path, own):
    with authority() as (server, resource, issuer):
        report = logged_in(resource.url, tmp_path, choice=own(issuer="https://mine.example"))
        assert report["status"] == "remote_auth"
        assert "another authorization server" in report["hint"]
        assert (server.grants, server.clients) == ([], {})
        assert all(b"own-secret-1" not in call.body for call in issuer.calls)


def test_a_refusal_of_the_person_is_told_and_the_old_login_stays(tmp_path):
    with authority() as (server, resource, _):
        assert logged_in(resource.url, tmp_path)["logged_in"]
        before = TokenStore(tmp_path, SERVER).load()
        server.denies = True
        report = logged_in(resource.url, tmp_path)
        assert (report["status"], report["logged_in"]) == ("remote_auth", False)
        assert "access_denied" in report["hint"]
        assert TokenStore(tmp_path, SERVER).load() == before


def test_nobody_comes_back_and_a_server_that_asks_for_no_account_are_told(tmp_path):
    with authority() as (_, resource, _issuer):
        report = logged_in(resource.url, tmp_path, show=lambda url: None, timeout_s=0.2)
    assert (report["status"], "nobody came back" in report["hint"]) == ("remote_auth", True)
    with serve_script(make_good_script()) as here:
        report = logged_in(here.url, tmp_path)
    assert (report["status"], report["logged_in"]) == ("ok", False)
    assert "did not ask" in report["hint"]


def test_a_request_with_another_state_is_ignored(tmp_path):
    """Any page in the person's browser can send one to a port of this machine."""
    pages = []

    def attacked(url: str) -> None:
        back = parse_qs(urlsplit(url).query)["redirect_uri"][0]
        forged = [f"{back}?code=evil&state=wrong", f"{back}?code=evil"]
        forged += [f"{back}?error=access_denied&state="]
        forged += [back.replace("/callback", "/other?code=evil")]

        def visits() -> None:
            pages.extend(httpx2.get(page).status_code for page in [*forged, back])
            pages.append(httpx2.post(back, content=b"x").status_code)
            pages.append(httpx2.get(url, follow_redirects=True).status_code)

        threading.Thread(target=visits).start()

    with authority() as (_, resource, _issuer):
        assert logged_in(resource.url, tmp_path, show=attacked)["logged_in"]
    assert pages[:-1] == [400, 400, 400, 404, 400, 404]


@cases("endpoint", "file:///etc/passwd", "javascript:alert(1)", "ssh://x/")
def test_an_authorization_address_that_is_no_web_page_is_not_shown(tmp_path, endpoint):
    shown = []
    with authority(metadata={"authorization_endpoint": endpoint}) as (_, resource, _issuer):
        report = logged_in(resource.url, tmp_path, show=shown.append)
    assert (report["status"] == "ok", shown) == (False, [])


def test_an_unreadable_file_is_repaired_by_a_login(tmp_path):
    store = TokenStore(tmp_path, SERVER)
    store.save()
    store.path.write_text("{half")
    with authority() as (_, resource, _issuer):
        with pytest.raises(SecretError, match="toolmill login"):
            ask_unattended(resource.url, tmp_path)
        assert logged_in(resource.url, tmp_path)["logged_in"]
        assert ask_unattended(resource.url, tmp_path).status == "ok"


def test_without_a_login_or_a_renewal_a_person_is_needed_and_the_hint_says_how(tmp_path):
    with authority() as (server, resource, _):
        found = ask_unattended(resource.url, tmp_path)
        assert (found.error_kind, server.clients) == ("remote_auth", {})
        assert f"toolmill login {resource.url}" in str(found.hint)
    with authority(refreshable=False) as (server, resource, _):
        assert not logged_in(resource.url, tmp_path)["renewable"]
        server.access.clear()
        found = ask_unattended(resource.url, tmp_path)
        assert (found.error_kind, len(server.clients)) == ("remote_auth", 1)
        assert "toolmill login" in str(found.hint)


@cases("rotates", True, False)
def test_a_token_that_ended_is_renewed_and_kept_each_time(tmp_path, rotates):
    with authority(rotates=rotates) as (server, resource, issuer):
        logged_in(resource.url, tmp_path)
        for _ in range(2):
            server.access.clear()
            ends_now(tmp_path)
            assert ask_unattended(resource.url, tmp_path).status == "ok"
        assert grants(server) == ["authorization_code", "refresh_token", "refresh_token"]
        assert "/authorize" not in [urlsplit(call.path).path for call in issuer.calls[4:]]
        kept = TokenStore(tmp_path, SERVER).load()
        assert kept["tokens"]["refresh_token"] in server.refresh
        assert kept["expires_at"] > time.time() + 3000


@cases("ended", True, False)
def test_probes_at_once_do_not_spend_each_others_renewal(tmp_path, ended):
    """Two marketplaces may list one server. An authority that rotates takes a refresh token that
    is used twice for stolen, and ends the login."""
    with authority() as (server, resource, _):
        logged_in(resource.url, tmp_path)
        server.access.clear()
        if ended:
            ends_now(tmp_path)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: ask_unattended(resource.url, tmp_path), range(4)))
        assert [one.status for one in found] == ["ok"] * 4, found
        if ended:
            assert grants(server) == ["authorization_code", "refresh_token"]
        assert TokenStore(tmp_path, SERVER).load()["tokens"]["refresh_token"] in server.refresh


def test_a_token_and_its_end_are_of_one_reading(tmp_path, monkeypatch):
    """Another probe renews between any two readings of the file."""
    with authority() as (_, resource, _):
        logged_in(resource.url, tmp_path)
    read = TokenStore.load

    def renewed_after(store):
        facts = read(store)
        number = int(facts["expires_at"]) + 10_000
        tokens = {**facts["tokens"], "access_token": f"of {number}"}
        store_facts = {**facts, "tokens": tokens, "expires_at": number}
        store.path.write_text(json.dumps(store_facts))
        return facts

    provider = OAuthAccounts(tmp_path).auth(SERVER, resource.url)
    monkeypatch.setattr(TokenStore, "load", renewed_after)
    anyio.run(provider._initialize)
    context = provider.context
    assert context.current_tokens.access_token == f"of {context.token_expiry_time}"


@cases("ended", True, False)
def test_a_refused_renewal_needs_a_person(tmp_path, ended):
    with authority() as (server, resource, _):
        logged_in(resource.url, tmp_path)
        token = TokenStore(tmp_path, SERVER).load()["tokens"]["refresh_token"]
        server.access.clear()
        server.refuses_refresh = True
        if ended:
            ends_now(tmp_path)
        found = ask_unattended(resource.url, tmp_path)
        assert found.error_kind == "remote_auth"
        assert f"toolmill login {resource.url}" in str(found.hint)
        assert token not in str(found.hint)  # the authority's answer quotes it
        assert (len(server.clients), grants(server)[1:]) == (1, ["refresh_token"])


def test_credentials_that_moved_to_another_authority_are_not_shown_to_it(tmp_path):
    with authority() as (one, resource, _), authority() as (two, _r, other):
        logged_in(resource.url, tmp_path)
        one.access.clear()
        one.issuer = two.issuer  # the MCP server names another authority from now on
        found = ask_unattended(resource.url, tmp_path)
        assert found.error_kind == "remote_auth"
        assert "another authorization server" in str(found.hint)
        assert (two.grants, two.clients, other.calls) == ([], {}, [])


PRIVATE = "http://metadata.example"


@cases(
    "facts",
    {"challenge": f'Bearer resource_metadata="{PRIVATE}/latest"'},
    {"resource_metadata": {"authorization_servers": [PRIVATE]}},
    {"metadata": {"token_endpoint": f"{PRIVATE}/token"}},
    {"metadata": {"registration_endpoint": f"{PRIVATE}/register"}},
    ids=["resource_metadata", "issuer", "token", "register"],
)
def test_metadata_that_points_at_a_private_address_is_refused(tmp_path, facts):
    connector, inner = guard_loopback("169.254.169.254")
    with authority(**facts) as (_, resource, _issuer):
        report = logged_in(resource.url, tmp_path, connector=connector)
    assert (report["status"], inner.dialled) == ("policy_denied", [])
    assert "169.254.169.254" in report["hint"]


@cases(
    "facts",
    {"resource_metadata": {"resource": "https://elsewhere.example/mcp"}},
    {"resource_metadata": {"authorization_servers": "x"}},
    {"metadata": {"issuer": "https://elsewhere.example"}},
    {"metadata": {"token_endpoint": 7}},
)
def test_metadata_of_somebody_else_or_of_another_shape_is_refused(tmp_path, facts):
    with authority(**facts) as (server, resource, _):
        report = logged_in(resource.url, tmp_path)
        assert (report["logged_in"], server.grants) == (False, [])
    assert report["status"] != "ok"


def test_a_file_that_others_can_read_is_refused(tmp_path):
    store = TokenStore(tmp_path, SERVER)
    store.save(tokens={"access_token": "tok-en-4242", "token_type": "Bearer"})
    store.path.chmod(0o640)
    with pytest.raises(SecretError, match="chmod 600") as caught:
        OAuthAccounts(tmp_path).auth(SERVER, "https://acme.example/mcp")
    assert "tok-en-4242" not in str(caught.value)


HALF = f'{{"server_id": "{SERVER}", "tokens": {{"access_token": ["tok-en-4242"]}}}}'


@cases("text", "", "[]", '{"server_id": "another"}', HALF)
async def test_a_file_that_holds_no_login_is_refused_and_not_quoted(tmp_path, text):
    store = TokenStore(tmp_path, SERVER)
    store.save()
    store.path.write_text(text)
    with pytest.raises(SecretError, match="toolmill login") as caught:
        await store.get_tokens()
    assert "tok-en-4242" not in "".join(traceback.format_exception(caught.value))


def test_no_query_is_in_a_grant_and_no_token_that_comes_back_in_a_result(tmp_path):
    with authority() as (server, resource, _):
        logged_in(resource.url + "?api_key=private-key-1", tmp_path)
        assert all("private-key-1" not in str(grant) for grant in server.grants)

    def echo(call: Call) -> None:
        call.answer({"tools": [make_tool("a", description=call.headers["authorization"])]})

    with authority() as (_, resource, _issuer):
        logged_in(resource.url, tmp_path)
    with serve_script(make_good_script(tools_list=echo)) as echoing:
        found = ask(echoing.url, auth=OAuthAccounts(tmp_path).auth(SERVER, echoing.url))
    token = TokenStore(tmp_path, SERVER).load()["tokens"]["access_token"]
    assert (found.status, found.tools[0]["description"]) == ("ok", "Bearer [secret token 0]")
    assert token not in repr(found)


COMMAND = """
from orchestration.cli.app import one_line_errors
from orchestration.cli.servers import app
with one_line_errors():
    app()
"""


def begin(home: Path, *args: str, **env: str) -> subprocess.Popen[str]:
    env = {**os.environ, "TOOLMILL_HOME": str(home), **env}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return PythonProcess([sys.executable, "-c", COMMAND, *args], cwd=ROOT, env=env, **pipes)


def run(home: Path, *args: str, **env: str) -> tuple[int, str, str]:
    process = begin(home, *args, **env)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def consent_to_login(home: Path, url: str) -> tuple[httpx2.Response, int, str, str]:
    """(The last page of a person, then what the command came to.)"""
    process = begin(home, "login", url, BROWSER="true")
    assert "open in a browser" in process.stderr.readline()
    page = httpx2.get(process.stderr.readline().strip(), follow_redirects=True)
    out, err = process.communicate(timeout=60)
    return page, process.returncode, out, err


def test_a_person_logs_in_a_probe_uses_it_and_a_logout_forgets_it(tmp_path):
    with authority() as (server, resource, _):
        page, code, out, err = consent_to_login(tmp_path, resource.url)
        report = json.loads(out)
        assert (page.status_code, code, err) == (200, 0, "")
        assert (report["status"], report["logged_in"], report["tools"]) == ("ok", True, 2)
        assert "go back to the terminal" in page.text
        state, server_id = tmp_path / "state", report["server_id"]
        store = TokenStore(state, server_id)
        tokens = store.load()["tokens"]
        assert not any(one in out for one in (tokens["access_token"], tokens["refresh_token"]))
        server.access.clear()
        accounts = OAuthAccounts(state)
        assert ask(resource.url, auth=accounts.auth(server_id, resource.url)).status == "ok"
        assert grants(server)[1:] == ["refresh_token"]

        code, out, _err = run(tmp_path, "login", resource.url, "--forget")
        assert (code, json.loads(out)["forgotten"]) == (0, True)
        assert not store.path.exists()


@cases(
    "args, words",
    (["login", "acme.example/mcp"], "expected the http(s) address"),
    (["login", "http://[::1"], "expected the http(s) address"),
    (["login", "file:///etc/passwd", "--forget"], "expected the http(s) address"),
    (["login", "http://127.0.0.1:9/x", "--client-secret-from", "env:X"], "--client-id"),
)
def test_what_cannot_be_done_is_one_line_and_exit_2(args, words):
    found = CliRunner().invoke(app, args)
    assert (found.exit_code, found.stdout, words in found.stderr) == (2, "", True)
    assert len(found.stderr.strip().splitlines()) == 1


def test_a_login_that_fails_says_why_exits_1_and_shows_no_secret(tmp_path):
    with authority(denies=True) as (_, resource, _issuer):
        _, code, out, _err = consent_to_login(tmp_path, resource.url)
    report = json.loads(out)
    assert (code, report["status"], report["logged_in"]) == (1, "remote_auth", False)
    assert "access_denied" in report["hint"]
    code, out, _ = run(tmp_path, "login", resource.url, "--forget")
    forgotten = {"server_id": report["server_id"], "forgotten": False}
    assert (code, json.loads(out)) == (0, forgotten)
    options = ("--client-id", "a", "--client-secret-from", "s3cret!")
    code, out, err = run(tmp_path, "login", "http://127.0.0.1:9/x", *options)
    assert (code, out, len(err.strip().splitlines())) == (1, "", 1)
    assert "write env:NAME or file:PATH" in err
    assert "s3cret!" not in err
