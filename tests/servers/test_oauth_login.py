"""`toolmill login` as a person meets it, with a browser that consents at once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx2
from typer.testing import CliRunner

from assets.servers.oauth_login import OAuthAccounts, TokenStore
from orchestration.cli.servers import app
from tests.servers.probe.test_remote_probe import ask
from tests.support.cases import cases
from tests.support.oauth_authority import authority
from tests.support.paths import ROOT
from tests.support.python_process import PythonProcess

COMMAND = """
from orchestration.cli.app import one_line_errors
from orchestration.cli.servers import app
with one_line_errors():
    app()
"""


def begin(home: Path, *args: str, **env: str) -> subprocess.Popen[str]:
    return PythonProcess(
        [sys.executable, "-c", COMMAND, *args],
        cwd=ROOT,
        env={**os.environ, "TOOLMILL_HOME": str(home), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(home: Path, *args: str, **env: str) -> tuple[int, str, str]:
    process = begin(home, *args, **env)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_a_person_logs_in_a_probe_uses_it_and_a_logout_forgets_it(tmp_path):
    with authority() as (server, resource, _):
        process = begin(tmp_path, "login", resource.url, "--no-browser", "--timeout", "20")
        assert process.stderr is not None
        assert "open in a browser" in process.stderr.readline()
        page = httpx2.get(process.stderr.readline().strip(), follow_redirects=True)
        out, err = process.communicate(timeout=60)
        report = json.loads(out)
        assert (page.status_code, process.returncode, err) == (200, 0, "")
        assert (report["status"], report["logged_in"], report["tools"]) == ("ok", True, 2)
        assert "go back to the terminal" in page.text
        state, server_id = tmp_path / "state", report["server_id"]
        store = TokenStore(state, server_id)
        tokens = store.load()["tokens"]
        assert not any(one in out for one in (tokens["access_token"], tokens["refresh_token"]))

        server.access.clear()
        assert (
            ask(resource.url, auth=OAuthAccounts(state).auth(server_id, resource.url)).status
            == "ok"
        )
        assert [grant["grant_type"] for grant in server.grants][1:] == ["refresh_token"]

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
    assert (found.exit_code, found.stdout) == (2, "")
    assert words in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1


def test_a_secret_in_the_place_of_its_source_is_not_shown(tmp_path):
    options = ("--client-id", "a", "--client-secret-from", "s3cret!")
    code, out, err = run(tmp_path, "login", "http://127.0.0.1:9/x", *options)
    assert (code, out, len(err.strip().splitlines())) == (1, "", 1)
    assert "write env:NAME or file:PATH" in err
    assert "s3cret!" not in err


def test_a_login_that_fails_says_why_in_json_and_exits_1(tmp_path):
    with authority(denies=True) as (_, resource, _issuer):
        process = begin(tmp_path, "login", resource.url, "--no-browser", "--timeout", "20")
        assert process.stderr is not None
        process.stderr.readline()
        httpx2.get(process.stderr.readline().strip(), follow_redirects=True)
        out, _err = process.communicate(timeout=60)
    report = json.loads(out)
    assert (process.returncode, report["status"], report["logged_in"]) == (1, "remote_auth", False)
    assert "access_denied" in report["hint"]
    assert run(tmp_path, "login", resource.url, "--forget")[:2] == (
        0,
        json.dumps({"server_id": report["server_id"], "forgotten": False}) + "\n",
    )
