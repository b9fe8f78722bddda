"""Values that a config leaves to its user, and secrets that only the value shows."""

from typing import Any

import pytest

from assets.marketplaces.launch.mcp_config import read_launch_facts
from assets.marketplaces.launch.shell_words import read_variables
from assets.marketplaces.listing import EnvVar


def variable(name: str, value: str) -> tuple[bool, bool, str | None]:
    made = read_variables({name: value}, EnvVar)[0]
    return made.required, made.secret, made.default


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("QUILL_DB", "QUILL_DB", (True, False, None)),  # its own name
        ("QUILL_PASSWORD", "QUILL_PASSWORD", (True, True, None)),
        ("MODE", "optional, [url|local], url is default", (True, False, None)),
        ("HEADERS", '{"Authorization": "Bearer abc_****", "V": "1"}', (True, True, None)),
        ("BOTS", '[{"name": "your-bot", "accessToken": "your-token"}]', (True, True, None)),
        ("AUTH_HEADER", "Bearer <token>", (True, True, None)),
        ("DB_URL", "postgresql://user:password@host:5432/db", (True, True, None)),
        # what is no secret and keeps its value
        ("LIMITS", '{"max": 3, "token_limit": 5}', (False, False, '{"max": 3, "token_limit": 5}')),
        ("HEADERS", '{"Version": "1"}', (False, False, '{"Version": "1"}')),
        (
            "DB_URL",
            "postgresql://localhost:5432/db",
            (False, False, "postgresql://localhost:5432/db"),
        ),
        ("NAMES", "[broken", (False, False, "[broken")),
        ("SCHEME", "Bearer", (False, False, "Bearer")),
        ("MODE", "optional", (False, False, "optional")),
        ("MODEL", "MODEL-X", (False, False, "MODEL-X")),
    ],
)
def test_one_variable(name: str, value: str, expected: Any) -> None:
    assert variable(name, value) == expected


@pytest.mark.parametrize(
    ("url", "flags"),
    [
        ("https://a.example/sse?key=<YourKey>", ("needs_account", "placeholder")),
        ("https://a.example/mcp?exaApiKey=your-api-key&x=1", ("needs_account", "placeholder")),
        ("https://a.example/mcp?page=<n>", ("placeholder",)),
        ("https://a.example/mcp?sort=key", ()),
    ],
)
def test_a_secret_left_open_in_a_query_needs_an_account(url: str, flags: Any) -> None:
    assert read_launch_facts({"url": url})["flags"] == set(flags)
    bridged = {"command": "npx", "args": ["-y", "mcp-remote", url]}
    assert read_launch_facts(bridged)["flags"] == set(flags)


def test_a_variable_set_before_the_command_is_a_place_too() -> None:
    facts = read_launch_facts({"command": "env", "args": ["A_KEY=fc-YOUR_KEY", "npx", "a@1.0.0"]})
    assert facts["flags"] == {"needs_account", "placeholder"}


def test_a_password_left_open_among_the_arguments_needs_an_account() -> None:
    facts = read_launch_facts(
        {"command": "npx", "args": ["a@1.0.0", "mysql://user:password@host/name"]}
    )
    assert facts["flags"] == {"needs_account", "placeholder"}


@pytest.mark.parametrize("version", ["1", "1.2", "^1.2.3", "1.x", None])
def test_a_range_of_npm_is_unpinned(version: str | None) -> None:
    spec = f"a@{version}" if version else "a"
    assert "unpinned" in read_launch_facts({"command": "npx", "args": [spec]})["flags"]


def test_short_versions_of_images_and_python_are_what_they_say() -> None:
    assert read_launch_facts({"command": "uvx", "args": ["a==1.2"]})["flags"] == set()
    image = {"command": "docker", "args": ["run", "-i", "ghcr.io/a/b:1.2"]}
    assert read_launch_facts(image)["flags"] == set()


def test_the_headers_of_a_proxy_are_two_words() -> None:
    facts = read_launch_facts(
        {
            "command": "uvx",
            "args": ["mcp-proxy", "--headers", "Authorization", "Bearer YOUR_TOKEN",
                     "https://a.example/sse"],
        }
    )  # fmt: skip
    assert facts["url"] == "https://a.example/sse"
    assert [(fact.name, fact.required, fact.secret) for fact in facts["headers"]] == [
        ("Authorization", True, True)
    ]


def test_an_installed_proxy_forwards_to_the_server_that_it_names() -> None:
    facts = read_launch_facts({"command": "mcp-proxy", "args": ["https://a.example/sse"]})
    assert (facts["transport"], facts["url"]) == ("sse", "https://a.example/sse")
    assert not read_launch_facts({"command": "mcp-proxy", "args": ["--port", "1"]})["runnable"]


def test_dnx_takes_its_version_as_an_option() -> None:
    facts = read_launch_facts(
        {"command": "dnx", "args": ["Acme.Quill", "--version", "1.0.0", "--yes"]}
    )
    assert facts["package"].version == "1.0.0"
    assert not facts["runnable"]
