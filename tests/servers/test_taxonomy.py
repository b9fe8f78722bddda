import pytest

from assets.servers.last_words import from_last_words
from assets.servers.taxonomy import KINDS, Failure, next_retry

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
    "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory":
        "out_of_memory",
    "OSError: [Errno 28] No space left on device": "disk_full",
    "BlockingIOError: [Errno 11] Resource temporarily unavailable": "too_many_processes",
    "ZeroDivisionError: division by zero": "crashed",
    "": "crashed",
}  # fmt: skip


@pytest.mark.parametrize("said", SAID)
def test_last_words_name_their_kind(said):
    failure = from_last_words(f"starting\n{said}\n", 1, None)
    assert failure.kind == SAID[said]
    assert "exit 1" in failure.detail


def test_a_signal_is_named():
    assert "SIGSEGV" in from_last_words("", None, "SIGSEGV").detail


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_hint_and_a_bounded_retry(kind):
    assert Failure(kind, "x").hint.startswith("x: ")
    first, later = next_retry(kind, 1, 0.0), next_retry(kind, 40, 0.0)
    assert (first is None) == (later is None)
    if first is not None and later is not None:
        assert 0 <= first <= later <= 30 * 86_400


def test_waiting_doubles_with_each_attempt():
    waits = [next_retry("timeout_start", attempt, 0.0) for attempt in (1, 2, 3)]
    assert waits[1] == 2 * waits[0]
    assert waits[2] == 4 * waits[0]
