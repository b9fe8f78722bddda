"""Entries of `mcpServers` become launch facts, whatever their shape."""

from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.launch.mcp_config import read_launch_facts
from assets.marketplaces.listing import Listing
from tests.marketplaces.answers import read_inputs
from tests.support.cases import cases


def test_secrets_and_unfilled_values_become_required_variables_without_a_value():
    env = {"A_TOKEN": "abc123", "B_URL": "<YOUR_URL>", "MODE": "fast"}
    facts = read_launch_facts({"command": "npx", "args": ["-y", "a@1.0.0"], "env": env})
    assert read_inputs(facts["env"]) == {
        "A_TOKEN": (True, True, None),
        "B_URL": (True, False, None),
        "MODE": (False, False, "fast"),
    }
    assert facts["flags"] == {"needs_account", "placeholder"}
    assert "abc123" not in str(facts)


def test_a_remote_entry_keeps_header_names_and_drops_their_values():
    secret = {"Authorization": "Bearer abcdefghijkl"}
    facts = read_launch_facts({"url": "https://api.mcphub.com/mcp/x", "headers": secret})
    assert facts["transport"] == "streamable-http"
    assert read_inputs(facts["headers"]) == {"Authorization": (True, True, None)}
    assert facts["flags"] == {"hosted_gateway", "needs_account"}


@cases(
    "entry, reason",
    ("npx a", "malformed"),
    ({"command": ["npx"]}, "malformed"),
    ({"command": "npx", "args": "a"}, "malformed"),
    ({"url": "ftp://example.com"}, "not http(s)"),
    ({}, "no command"),
)
def test_odd_shapes_are_not_runnable_and_say_why(entry, reason):
    facts = read_launch_facts(entry)
    assert not facts["runnable"]
    assert reason in facts["reason"]


@cases(
    "entry, transport",
    ({"type": "streamableHttp", "url": "https://a.example/x"}, "streamable-http"),
    ({"type": "streamable_http", "serverUrl": "https://a.example/x"}, "streamable-http"),
    ({"transport": "http", "httpUrl": "https://a.example/sse"}, "streamable-http"),
    ({"transport": "sse", "url": "https://a.example/x"}, "sse"),
    ({"transportType": "SSE", "url": "https://a.example/x"}, "sse"),
    ({"transport": {"type": "sse", "url": "https://a.example/x"}}, "sse"),
    ({"url": "https://a.example/sse?x=1"}, "sse"),
    ({"url": "https://a.example/assess"}, "streamable-http"),
)
def test_every_spelling_of_a_transport_is_known(entry, transport):
    facts = read_launch_facts(entry)
    assert (facts["transport"], facts["runnable"]) == (transport, True)


def test_an_entry_that_says_stdio_is_not_taken_for_a_remote():
    stdio = {"type": "stdio", "command": "npx", "args": ["a"], "url": "https://a.example"}
    facts = read_launch_facts(stdio)
    assert (facts["transport"], facts["command"]) == ("stdio", "npx")


def test_values_that_are_no_texts_stand_as_json_has_them():
    env = {"PORT": 8080, "DEBUG": True, "NONE": None, "LIST": [1], "AUTH_ENABLED": "true"}
    entry = {"command": "npx", "args": ["a", 1, True], "env": env, "autoApprove": []}
    facts = read_launch_facts(entry)
    assert {fact.name: fact.default for fact in facts["env"]} == {
        "AUTH_ENABLED": "true",
        "DEBUG": "true",
        "LIST": "[1]",
        "NONE": None,
        "PORT": "8080",
    }
    assert facts["args"] == ("a", "1", "true")


@cases(
    "args, kept",
    (["run", "@x/y", "--key", "0a1b2c3d-1111", "--profile", "me-1"],
     ("run", "@x/y", "--key", "{key}", "--profile", "{profile}")),
    (["--api-key=q1w2e3r4"], ("--api-key={api_key}",)),
    (["--token", "<YOUR_TOKEN>"], ("--token", "<YOUR_TOKEN>")),
    (["postgres://me:q1w2e3r4@db.example/x"], ("postgres://me:{secret}@db.example/x",)),
    (["--config", '{"apiKey": "q1w2e3r4"}'], ("--config", '{"apiKey": "{secret}"}')),
)  # fmt: skip
def test_a_secret_argument_is_a_place_to_fill_in(args, kept):
    facts = read_launch_facts({"command": "npx", "args": ["-y", "@smithery/cli@latest", *args]})
    assert facts["args"][2:] == kept
    assert {"hosted_gateway", "needs_account", "placeholder"} <= set(facts["flags"])


def test_a_container_asks_for_the_variables_it_passes_on():
    passed = ["-e", "A_TOKEN", "-e", "MODE=fast", "--env=B_KEY=q1w2e3r4"]
    args = ["run", "-i", "--rm", *passed, "a/b:1.0"]
    facts = read_launch_facts({"command": "docker", "args": args, "env": {"A_TOKEN": "<A_TOKEN>"}})
    assert facts["args"][-2:] == ("--env=B_KEY", "a/b:1.0")
    assert read_inputs(facts["env"]) == {
        "A_TOKEN": (True, True, None),
        "B_KEY": (True, True, None),
        "MODE": (False, False, "fast"),
    }


def test_a_bridge_keeps_the_names_of_its_headers():
    bridge = ["-y", "mcp-remote", "https://a.example/mcp", "--header"]
    args = [*bridge, "Authorization: Bearer ${AUTH}"]
    facts = read_launch_facts({"command": "npx", "args": args, "env": {"AUTH": "q1w2e3r4"}})
    assert (facts["url"], facts["transport"]) == ("https://a.example/mcp", "streamable-http")
    assert read_inputs(facts["headers"]) == {"Authorization": (True, True, None)}
    assert "needs_account" in facts["flags"]


@cases(
    "url, kept",
    ("https://a.example/mcp?api_key=q1w2e3r4t5", "https://a.example/mcp?api_key={api_key}"),
    ("https://mcp.pipedream.net/0f0f0f0f-1111-4222-8333-123456789abc/x",
     "https://mcp.pipedream.net/{secret}/x"),
)  # fmt: skip
def test_a_secret_in_a_url_is_a_place_to_fill_in(url, kept):
    facts = read_launch_facts({"url": url})
    assert facts["url"] == kept
    assert {"needs_account", "placeholder"} <= set(facts["flags"])


@cases("url", "http://[", "https://", "ws://a.example", "x", "https://[redacted]/x")
def test_an_odd_url_is_no_exception(url):
    facts = read_launch_facts({"url": url})
    assert facts["runnable"] == (url == "https://[redacted]/x")


def test_a_host_that_only_ends_like_a_gateway_is_none():
    assert read_launch_facts({"url": "https://notrun.tools/mcp"})["flags"] == set()
    assert "hosted_gateway" in read_launch_facts({"url": "https://a.run.tools/mcp"})["flags"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["command", "args", "env", "url", "headers", "type", "transport", "name", "x"]
            ),
            inner,
        )
    ),
    max_leaves=8,
)


@given(json_values)
def test_any_json_makes_a_listing_that_runs_or_says_why_not(entry):
    listing = Listing(marketplace="m", native_id="x", name="x", **read_launch_facts(entry))
    assert listing.runnable or listing.reason
