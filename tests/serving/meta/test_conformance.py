"""The protocol's own conformance suite, run against `serve --http`, `login`, `probe` and calls."""

import json
import shutil
import sys
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from tests.serving.meta_server import over_http
from tests.support.cases import cases
from tests.support.paths import ROOT

SUITE, NODE = "@modelcontextprotocol/conformance@0.2.0-alpha.12", "node@22"
_FIXTURES = "asks for a tool, prompt or resource of the suite's example server"
_OFFERS = "of a capability that we do not announce"
# Check -> why it does not apply. One that passes leaves the list, one that fails otherwise is ours.
NOT_OURS = {
    **dict.fromkeys(
        [
            *(f"tools-call-{kind}" for kind in ("simple-text", "image", "audio", "error")),
            *("tools-call-embedded-resource", "tools-call-mixed-content"),
            *("tools-call-with-progress", "tools-call-sampling", "tools-call-elicitation"),
            *("json-schema-2020-12-tool-found", "incoming-sse-event"),
            *("elicitation-sep1034-general", "elicitation-sep1330-general"),
            *(f"resources-read-{kind}" for kind in ("text", "binary")),
            *("resources-templates-read", "prompts-get-simple", "prompts-get-with-args"),
            *("prompts-get-embedded-resource", "prompts-get-with-image"),
            *(f"sep-2322-{kind}-incomplete" for kind in ("elicitation", "list-roots", "sampling")),
            *("sep-2322-multi-round-r1", "sep-2322-multiple-inputs-incomplete"),
            *("sep-2322-non-tool-incomplete", "sep-2322-request-state-incomplete"),
            *("sep-2322-result-type-included", "sep-2322-reject-tampered-state"),
            *("sep-2322-respect-client-capabilities", "sep-2575-missing-capability-http-400"),
            "sep-2575-server-rejects-undeclared-capability",
            "sep-2575-http-server-no-independent-requests-on-stream",
            "sep-2575-server-no-log-without-loglevel",
        ],
        _FIXTURES,
    ),
    **dict.fromkeys(
        [
            *("completion-complete", "logging-set-level", "tools-call-with-logging"),
            *("resources-subscribe", "resources-unsubscribe"),
        ],
        _OFFERS,
    ),
    **dict.fromkeys(
        [
            *("sep-2243-server-no-xmcp-tool", "sep-2243-server-decode-base64"),
            *("sep-2243-server-validate-param-match", "sep-2243-server-reject-param-mismatch"),
            "sep-2243-server-reject-invalid-param-chars",
        ],
        "asks for a tool whose parameters are repeated in headers: none of the four has one",
    ),
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
_NOBODY = "asks the user in the middle of a call: nobody is there"
_OLDER = "wants 2026-07-28 alone: `initialize` comes first, `server/discover` after it"
CLIENT_NOT_OURS = {
    "client-elicitation-sep1034-general": _NOBODY,
    **dict.fromkeys(
        [
            *(
                f"client-elicitation-sep1034-{kind}-default"
                for kind in ("string", "integer", "number", "enum", "boolean")
            ),
            *("sep-2322-client-request-state-echoed", "sep-2322-client-jsonrpc-id-different"),
            "sep-2322-client-no-state-omitted",
        ],
        _NOBODY,
    ),
    **dict.fromkeys(
        [
            *("sep-2575-http-client-sends-version-header", "sep-2575-client-populates-meta"),
            "sep-2243-client-includes-standard-headers",
        ],
        _OLDER,
    ),
    **dict.fromkeys(
        [
            *("sep-2243-x-mcp-header-not-empty", "sep-2243-x-mcp-header-primitive-only"),
            *("sep-2243-x-mcp-header-unique", "sep-2243-x-mcp-header-charset"),
        ],
        "wants the tool left out: `probe` reports it, and it is called without these headers",
    ),
    "sep-2352-reregister-on-as-change": "wants a login at another authority without a person",
    "sep-2243-client-omit-null": "sends null where the tool's own schema takes none",
    **dict.fromkeys(
        ["scope-step-up-escalation", "sep-2350-scope-union-on-reauth"],
        "wants more rights in the middle of a call: `login --scope` asks",
    ),
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
    files = [*(tmp_path / "out").rglob("checks.json")]
    checks = [check for path in files for check in json.loads(path.read_text())]
    assert len(checks) > 60, result.stderr.decode()[-2_000:]
    require_only_foreseen(checks, NOT_OURS)


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
    files = [*(tmp_path / "out").rglob("checks.json")]
    checks = [check for path in files for check in json.loads(path.read_text())]
    assert (len(files), len(checks) > 60) == (len(names), True)
    require_only_foreseen(checks, CLIENT_NOT_OURS)


def require_only_foreseen(checks: list[dict[str, Any]], not_ours: Mapping[str, str]) -> None:
    failed = {
        item["id"]: item.get("errorMessage") for item in checks if item["status"] == "FAILURE"
    }
    unforeseen = [f"{name}: {why}" for name, why in failed.items() if name not in not_ours]
    assert unforeseen == []
    passed = {item["id"] for item in checks if item["status"] == "SUCCESS"}
    assert passed & set(not_ours) - set(failed) == set()
