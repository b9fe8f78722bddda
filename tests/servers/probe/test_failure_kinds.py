import math

import pytest

from assets.servers.probe.failure_kinds import (
    KINDS,
    ProbeFailure,
    classify_last_words,
    compute_next_retry,
)
from tests.support.paths import ROOT

SAID = {
    "Error: NOTION_TOKEN environment variable is required": "needs_secret",
    "ValueError: Missing API key. Set OPENAI_API_KEY": "needs_secret",
    "API key required": "needs_secret",
    "No credentials found, please authenticate": "needs_secret",
    "401 Unauthorized": "needs_secret",
    "Usage: mcp-server-filesystem <allowed-directory>": "needs_argument",
    "error: the following arguments are required: transport": "needs_argument",
    "At least one directory must be provided": "needs_argument",
    "Error: connect ECONNREFUSED 127.0.0.1:5432": "needs_network",
    "getaddrinfo EAI_AGAIN api.example.com": "needs_network",
    "Error: Cannot find module 'left-pad'": "needs_software",
    "ModuleNotFoundError: No module named 'x'": "needs_software",
    "Error: spawn docker ENOENT": "needs_software",
    "prlimit: failed to execute /opt/x: No such file or directory": "needs_software",
    "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory":
        "out_of_memory",
    "OSError: [Errno 28] No space left on device": "disk_full",
    "BlockingIOError: [Errno 11] Resource temporarily unavailable": "too_many_processes",
    "ZeroDivisionError: division by zero": "crashed",
    # Said by real servers of the official registry's seed.
    "ModuleNotFoundError: No module named 'mcp.server.fastmcp'. This is mcp 2.x … pin 'mcp<2'":
        "incompatible",
    "AttributeError: 'Server' object has no attribute 'list_resources'": "incompatible",
    "ImportError: cannot import name 'eval_type_backport' from 'pydantic._internal'":
        "incompatible",
    "Error: Apify MCP server requires Node.js 22 or later (you have v20.20.2).": "incompatible",
    "ReferenceError: WebSocket is not defined": "incompatible",
    "TypeError: FastMCP() got unexpected keyword argument(s): 'dependencies'": "incompatible",
    "AttributeError: 'NoneType' object has no attribute 'rstrip'": "crashed",
    "ImportError: libodbc.so.2: cannot open shared object file": "needs_software",
    "error: the following arguments are required: --host, --username, --password":
        "needs_argument",
    "Error: Missing option '--fibery-api-token'.": "needs_argument",
    "KeyError: 'SERVICE_HOST'": "needs_argument",
    "ValueError: Please set the `motherduck_token` as an environment variable": "needs_secret",
    "21st MCP endpoint unreachable (https://x.example): fetch failed": "needs_network",
    "Failed to connect to MongoDB: connect ECONNREFUSED 127.0.0.1:27017": "needs_network",
    "OSError: [Errno 30] Read-only file system: '/srv/server/venv/output'": "read_only",
    "": "crashed",
}  # fmt: skip


@pytest.mark.parametrize("stderr", SAID)
def test_last_words_name_their_kind(stderr):
    failure = classify_last_words(f"starting\n{stderr}\n", 1, None)
    assert failure.kind == SAID[stderr]
    assert "exit 1" in failure.detail


def test_a_signal_is_named():
    assert "SIGSEGV" in classify_last_words("", None, "SIGSEGV").detail


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_hint_and_a_bounded_retry(kind):
    assert ProbeFailure(kind, "x").hint.startswith("x: ")
    first, later = compute_next_retry(kind, 1, 0.0), compute_next_retry(kind, 40, 0.0)
    assert (first is None) == (later is None)
    if first is not None and later is not None:
        assert 0 <= first <= later <= 30 * 86_400


def test_waiting_doubles_with_each_attempt():
    waits = [compute_next_retry("timeout_start", attempt, 0.0) for attempt in (1, 2, 3)]
    assert [math.ceil((wait or 0) / 86_400) for wait in waits] == [2, 4, 8]


@pytest.mark.parametrize("sooner_s", [0.0, 30.0, 3_600.0])
def test_a_nightly_run_that_begins_sooner_still_finds_due_what_waited_for_it(sooner_s):
    for attempt, nights in ((1, 2), (2, 4)):
        due = compute_next_retry("crashed", attempt, 1_000.0)
        assert due is not None
        assert (nights - 1) * 86_400 + 8_000 < due <= nights * 86_400 + 1_000.0 - sooner_s


def test_the_documentation_lists_every_kind_with_its_hint():
    text = (ROOT / "docs" / "servers.md").read_text()
    for kind, about in KINDS.items():
        assert f"| `{kind}` | {about.hint} |" in text


WANTED = {
    *("not_found", "fetch_failed", "build_failed", "needs_secret", "needs_argument"),
    *("needs_network", "needs_software", "timeout_start", "timeout_list", "crashed"),
    *("protocol_error", "oversize", "no_tools", "policy_denied", "remote_auth", "remote_down"),
}


def test_every_kind_that_was_asked_for_is_there():
    assert set(KINDS) >= WANTED


def test_a_stack_trace_ends_in_its_error_not_in_its_brackets():
    stderr = "ReferenceError: no boom here\n    at x (y:1)\n  errno: -2\n}\n\nNode.js v20.20.2\n"
    assert "boom" in classify_last_words(stderr, 1, None).detail
    assert "}" not in classify_last_words("it broke\n}\n", 1, None).detail


def test_the_network_is_missing_where_it_fails_after_the_key_was_taken():
    stderr = (
        "Using API key: provided, token must be valid\nError: getaddrinfo ENOTFOUND api.example.com"
    )
    assert classify_last_words(stderr, 1, None).kind == "needs_network"
    stderr = "telemetry: getaddrinfo ENOTFOUND t.example.com\nError: API key required"
    assert classify_last_words(stderr, 1, None).kind == "needs_secret"
