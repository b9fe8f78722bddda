"""The protocol's own conformance suite, run against `serve --http`, `login`, `probe` and calls."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.serving.meta_server import over_http
from tests.support.cases import cases
from tests.support.paths import ROOT

SUITE, NODE = "@modelcontextprotocol/conformance@0.2.0-alpha.12", "node@22"
# Why it does not apply -> checks. One that passes leaves the list; any other that fails is ours.
NOT_OURS = {
    "asks for a tool, prompt or resource of the suite's example server": """
        tools-call-simple-text tools-call-image tools-call-audio tools-call-error
        tools-call-embedded-resource tools-call-mixed-content tools-call-with-progress
        tools-call-sampling tools-call-elicitation json-schema-2020-12-tool-found
        incoming-sse-event elicitation-sep1034-general elicitation-sep1330-general
        resources-read-text resources-read-binary resources-templates-read prompts-get-simple
        prompts-get-with-args prompts-get-embedded-resource prompts-get-with-image
        sep-2322-elicitation-incomplete sep-2322-list-roots-incomplete
        sep-2322-sampling-incomplete sep-2322-multi-round-r1 sep-2322-multiple-inputs-incomplete
        sep-2322-non-tool-incomplete sep-2322-request-state-incomplete
        sep-2322-result-type-included sep-2322-reject-tampered-state
        sep-2322-respect-client-capabilities sep-2575-missing-capability-http-400
        sep-2575-server-rejects-undeclared-capability sep-2575-server-no-log-without-loglevel
        sep-2575-http-server-no-independent-requests-on-stream""",
    "of a capability that we do not announce": """
        completion-complete logging-set-level tools-call-with-logging resources-subscribe
        resources-unsubscribe""",
    "asks for a tool whose parameters are repeated in headers: none of the four has one": """
        sep-2243-server-no-xmcp-tool sep-2243-server-decode-base64
        sep-2243-server-validate-param-match sep-2243-server-reject-param-mismatch
        sep-2243-server-reject-invalid-param-chars""",
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the suite, which needs a newer Node than Toolmill does."""
    npm, folder = shutil.which("npm"), tmp_path_factory.mktemp("conformance")
    if npm is None:
        pytest.skip("npm is not installed")
    options = ["--prefix", str(folder), "--no-audit", "--no-fund", "--no-save"]
    anyio.run(anyio.run_process, [npm, "install", *options, SUITE, NODE])
    modules = folder / "node_modules"
    package = SUITE.rpartition("@")[0]
    return [str(modules / "node" / "bin" / "node"), str(modules / package / "dist" / "index.js")]


# The same of client scenarios: of `login`, `probe` and calls (tests/servers/conformance_client.py).
CLIENT_NOT_OURS = {
    "asks the user in the middle of a call: nobody is there": """
        client-elicitation-sep1034-general client-elicitation-sep1034-string-default
        client-elicitation-sep1034-integer-default client-elicitation-sep1034-number-default
        client-elicitation-sep1034-enum-default client-elicitation-sep1034-boolean-default
        sep-2322-client-request-state-echoed sep-2322-client-jsonrpc-id-different
        sep-2322-client-no-state-omitted""",
    "wants 2026-07-28 alone: `initialize` comes first, `server/discover` after it": """
        sep-2575-http-client-sends-version-header sep-2575-client-populates-meta
        sep-2243-client-includes-standard-headers""",
    "wants the tool left out: `probe` reports it, and it is called without these headers": """
        sep-2243-x-mcp-header-not-empty sep-2243-x-mcp-header-primitive-only
        sep-2243-x-mcp-header-unique sep-2243-x-mcp-header-charset""",
    "wants a login at another authority without a person": "sep-2352-reregister-on-as-change",
    "sends null where the tool's own schema takes none": "sep-2243-client-omit-null",
    "wants more rights in the middle of a call: `login --scope` asks": """
        scope-step-up-escalation sep-2350-scope-union-on-reauth""",
}


@pytest.mark.slow
@pytest.mark.registry
@cases("version", "2025-11-25", "2026-07-28")
async def test_what_applies_of_the_protocols_own_suite_passes(meta, suite, tmp_path, version):
    async with over_http(meta) as url:
        options = ["--url", url, "--suite", "all", "--spec-version", version]
        command = [*suite, "server", *options, "--output-dir", str(tmp_path / "out")]
        with anyio.fail_after(300):
            result = await anyio.run_process(command, check=False, cwd=tmp_path)
    assert len(require_only_foreseen(tmp_path / "out", NOT_OURS)) > 60, result.stderr[-2_000:]


@pytest.mark.slow
@pytest.mark.registry
@cases("version", "2025-11-25", "2026-07-28")
async def test_what_applies_of_it_passes_for_what_we_call(suite, tmp_path, version):
    listing = [*suite, "list", "--client", "--spec-version", version]
    listed = (await anyio.run_process(listing)).stdout.decode()
    names = [line.split()[1] for line in listed.splitlines() if line.startswith("  - ")]
    program = f"{sys.executable} -m tests.servers.conformance_client"
    for name in names:
        options = ["--command", program, "--scenario", name, "--spec-version", version]
        places = ["--timeout", "60000", "--output-dir", str(tmp_path / "out")]
        await anyio.run_process([*suite, "client", *options, *places], check=False, cwd=ROOT)
    assert len([*(tmp_path / "out").rglob("checks.json")]) == len(names)
    assert len(require_only_foreseen(tmp_path / "out", CLIENT_NOT_OURS)) > 60


def require_only_foreseen(folder: Path, not_ours: dict[str, str]) -> list[dict[str, Any]]:
    checks = [item for path in folder.rglob("checks.json") for item in json.loads(path.read_text())]
    foreseen = set(" ".join(not_ours.values()).split())
    fails = [item for item in checks if item["status"] == "FAILURE"]
    failed = {item["id"]: item.get("errorMessage") for item in fails}
    assert {name: why for name, why in failed.items() if name not in foreseen} == {}
    passed = {item["id"] for item in checks if item["status"] == "SUCCESS"}
    assert passed & foreseen - set(failed) == set()
    return checks
