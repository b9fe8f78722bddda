"""Whose fault a tool's error is, by its words, its code and the arguments of the call."""

import pytest

from assets.servers.calls.attribution import find_fault
from assets.servers.calls.result import find_kind
from tests.support.cases import cases

ARGUMENTS = {"path": "/home/user/data/q3-report.md", "sheetName": "Revenue", "row": 4100}
SAID = {
    "Error: ENOENT: no such file or directory, open '/home/user/data/q3-report.md'": "caller",
    "q3-report.md could not be found": "caller",
    "FileNotFoundError: [Errno 2] No such file or directory: 'q3-report.md'": "caller",
    "No time zone found with key Revenue": "caller",
    "Sheet 'Revenue' not found in workbook": "caller",
    "row must be at most 1000, got 4100": "caller",
    "Access denied - path outside allowed directories: /home/user/data/q3-report.md": "caller",
    "1 validation error for open\npath\n  Field required": "caller",
    "Sheet 'Income' is broken": "tool",
    "Traceback (most recent call last):\nKeyError: 'Revenue' not found": "tool",
    "TypeError: Cannot read properties of undefined (reading 'Revenue')": "tool",
    "disk on fire": "tool",
    "": "tool",
    "EROFS: read-only file system, mkdir '/opt/cache'": "policy",
    "OSError: [Errno 28] No space left on device": "policy",
    "RuntimeError: can't start new thread": "policy",
    "browserType.launch: Chromium distribution 'chrome' is not found at /opt/google": "policy",
    "getaddrinfo ENOTFOUND api.example.com": "policy",
    "ConnectionRefusedError: [Errno 111] Connection refused": "policy",
    "FileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'": "policy",
    "Failed to fetch the page: 503 Service Unavailable": "upstream",
    "JWT expired": "credentials",
    "Permission denied (publickey).": "credentials",
    "HTTP 401 from the API": "credentials",
    "Bad credentials": "credentials",
    "Request failed with status code 503": "upstream",
    "429 Too Many Requests": "upstream",
    "GitHub API rate limit exceeded": "upstream",
    "Failed to fetch q3-report.md - status code 404": "caller",
    "HTTP error: 404 for Revenue": "caller",
    "GET /v1/reports: 404 Not Found": "upstream",
    "row 404 is broken": "tool",
    "The sites robots.txt (http://a.example/robots.txt), specifies that autonomous fetching of"
    " this page is not allowed": "upstream",
    "Unknown tool: open": "server",
    "Error executing tool open: Sheet 'Revenue' not found": "caller",
    "Error calling tool 'open': File not found: q3-report.md": "caller",
    "MCP error -32602: Tool open not found": "server",
    "MCP error -32601: Tool open requires task augmentation (taskSupport: 'required')": "us",
    "Task augmentation required for tools/call requests": "us",
    "a task is required to have an owner": "tool",
}


@pytest.mark.parametrize("text", SAID)
def test_an_error_is_laid_to_whoever_it_names(text):
    found = find_fault(text, offline=True, arguments=ARGUMENTS)
    assert find_kind(found.kind).blame == SAID[text], found


def test_a_method_that_is_missing_is_the_servers_unless_it_wants_a_task():
    assert find_fault("Method not found", -32601).kind == "tool_gone"
    wanted = find_fault("This tool requires task-augmented invocation", -32601)
    assert wanted.kind == "needs_task"
    assert wanted.evidence == "This tool requires task-augmented invocation"


def test_the_line_that_decides_is_the_evidence():
    text = "could not finish\nSheet   'Revenue' not found\nsee the manual"
    assert find_fault(text, arguments=ARGUMENTS).evidence == "Sheet   'Revenue' not found"
    assert find_fault("first\nHTTP 503\nlast").evidence == "HTTP 503"
    assert find_fault("disk on fire").evidence == ""


def test_no_limit_of_ours_holds_a_server_elsewhere():
    text = "OSError: [Errno 28] No space left on device"
    assert find_fault(text, local=False).kind == "tool_error"


def test_a_service_that_cannot_be_reached_is_upstream_where_we_grant_the_network():
    text = "connect ECONNREFUSED 10.1.2.3:443"
    assert find_fault(text, offline=False).kind == "upstream_error"
    assert find_fault(text, offline=True).kind == "needs_network"


@cases(
    "text, arguments, kind",
    ("connect ECONNREFUSED API.example.com:443", {}, "upstream_error"),
    ("TypeError: fetch failed", {"url": "https://api.example.com/v1"}, "upstream_error"),
    ("getaddrinfo ENOTFOUND other.example", {"url": "https://other.example"}, "needs_network"),
    ("TypeError: fetch failed", {}, "needs_network"),
)
def test_a_granted_host_that_fails_is_upstream_and_any_other_is_not_granted(text, arguments, kind):
    reached = ("api.example.com",)
    found = find_fault(text, offline=True, reached=reached, arguments=arguments)
    assert found.kind == kind


def test_a_value_within_another_word_is_not_named():
    assert find_fault("Revenues are invalid", arguments={"a": "Revenue"}).kind == "tool_error"
    assert find_fault("41000 is invalid", arguments={"a": 4100}).kind == "tool_error"


def test_arguments_of_any_size_are_looked_through_in_bounds():
    deep: dict = {}
    for _ in range(5000):
        deep = {"a": deep, "b": ["x" * 50] * 3}
    assert find_fault("x is invalid " * 2000, arguments=deep).kind == "tool_error"
