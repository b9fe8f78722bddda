"""Entries of `mcpServers` become launch facts, whatever their shape."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.config import launch_facts
from assets.marketplaces.listing import Listing


def test_secrets_and_unfilled_values_become_required_variables_without_a_value() -> None:
    facts = launch_facts(
        {
            "command": "npx",
            "args": ["-y", "a@1.0.0"],
            "env": {"A_TOKEN": "abc123", "B_URL": "<YOUR_URL>", "MODE": "fast"},
        }
    )
    env = {one.name: (one.required, one.secret, one.default) for one in facts["env"]}
    assert env == {
        "A_TOKEN": (True, True, None),
        "B_URL": (True, False, None),
        "MODE": (False, False, "fast"),
    }
    assert facts["flags"] == ("needs_account",)
    assert "abc123" not in str(facts)


def test_a_remote_entry_keeps_header_names_and_drops_their_values() -> None:
    facts = launch_facts(
        {"url": "https://api.mcphub.com/mcp/x", "headers": {"Authorization": "Bearer abcdefghijkl"}}
    )
    assert facts["transport"] == "streamable-http"
    assert [(one.name, one.secret, one.default) for one in facts["headers"]] == [
        ("Authorization", True, None)
    ]
    assert facts["flags"] == ("hosted_gateway", "needs_account")


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("npx a", "malformed"),
        ({"command": ["npx"]}, "malformed"),
        ({"command": "npx", "args": "a"}, "malformed"),
        ({"url": "ftp://example.com"}, "not http(s)"),
        ({}, "no command"),
    ],
)
def test_odd_shapes_are_not_runnable_and_say_why(entry: Any, reason: str) -> None:
    facts = launch_facts(entry)
    assert not facts["runnable"]
    assert reason in facts["reason"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["command", "args", "env", "url", "headers", "type", "x"]), inner
        )
    ),
    max_leaves=8,
)


@given(json_values)
def test_any_json_makes_a_listing_that_runs_or_says_why_not(entry: Any) -> None:
    listing = Listing(marketplace="m", native_id="x", name="x", **launch_facts(entry))
    assert listing.runnable or listing.reason
