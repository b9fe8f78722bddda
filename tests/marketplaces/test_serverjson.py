"""The registry's five dated schemas read the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from assets.marketplaces.serverjson import server_listing

CAMEL = ("2025-09-16", "2025-09-29", "2025-10-17", "2025-12-11")
SAMPLES = Path(__file__).parents[3] / "shared" / "data" / "marketplaces" / "official-registry"


def schema(date: str) -> str:
    return f"https://static.modelcontextprotocol.io/schemas/{date}/server.schema.json"


def camel(date: str) -> dict[str, Any]:
    return {
        "$schema": schema(date),
        "name": "io.github.example/files",
        "description": "Files.",
        "repository": {"url": "https://github.com/example/files", "source": "github"},
        "version": "1.2.3",
        "packages": [
            {
                "registryType": "npm",
                "identifier": "@example/files",
                "version": "1.2.3",
                "runtimeHint": "npx",
                "transport": {"type": "stdio"},
                "packageArguments": [
                    {"type": "positional", "valueHint": "root", "format": "filepath",
                     "isRequired": True},
                    {"type": "named", "name": "--mode", "value": "fast"},
                    {"type": "named", "name": "--verbose", "isRequired": False},
                ],
                "environmentVariables": [
                    {"name": "FILES_API_KEY", "isRequired": True, "isSecret": True,
                     "value": "must-not-stay"},
                    {"name": "FILES_COLOR", "default": "blue", "description": "Colour"},
                ],
            }
        ],
    }  # fmt: skip


SNAKE = {
    "$schema": schema("2025-07-09"),
    "name": "io.github.example/files",
    "description": "Files.",
    "repository": {"url": "https://github.com/example/files", "source": "github"},
    "version": "1.2.3",
    "packages": [
        {
            "registry_type": "npm",
            "identifier": "@example/files",
            "version": "1.2.3",
            "runtime_hint": "npx",
            "transport": {"type": "stdio"},
            "package_arguments": [
                {"type": "positional", "value_hint": "root", "format": "filepath",
                 "is_required": True},
                {"type": "named", "name": "--mode", "value": "fast"},
                {"type": "named", "name": "--verbose", "is_required": False},
            ],
            "environment_variables": [
                {"name": "FILES_API_KEY", "is_required": True, "is_secret": True,
                 "value": "must-not-stay"},
                {"name": "FILES_COLOR", "default": "blue", "description": "Colour"},
            ],
        }
    ],
}  # fmt: skip


@pytest.mark.parametrize("record", [SNAKE, *map(camel, CAMEL)], ids=["2025-07-09", *CAMEL])
def test_the_five_dated_schemas_read_the_same(record: dict[str, Any]) -> None:
    listing = server_listing(record, "registry")
    assert listing.runnable
    assert listing.command == "npx"
    assert listing.args == (
        "-y", "@example/files@1.2.3", "{root:filepath}", "--mode", "fast",
    )  # fmt: skip
    assert listing.package is not None
    assert (listing.package.identifier, listing.package.version) == ("@example/files", "1.2.3")
    assert listing.flags == ("needs_account", "placeholder")
    secret, colour = listing.env
    assert (secret.name, secret.required, secret.secret, secret.default) == (
        "FILES_API_KEY", True, True, None,
    )  # fmt: skip
    assert colour.default == "blue"
    assert "must-not-stay" not in listing.model_dump_json()


def test_a_bundle_keeps_its_digest_and_has_no_command() -> None:
    package = {
        "registryType": "mcpb",
        "identifier": "https://example.com/a.mcpb",
        "fileSha256": "AB" * 32,
        "transport": {"type": "stdio"},
    }
    listing = server_listing({"name": "a/b", "packages": [package]}, "registry")
    assert listing.runnable
    assert listing.command is None
    assert listing.package is not None
    assert listing.package.digest == "sha256:" + "ab" * 32


def test_a_remote_fills_in_defaults_and_keeps_secret_names() -> None:
    remote = {
        "type": "streamable-http",
        "url": "https://api.example.com/{region}/{tenant}/mcp",
        "headers": [{"name": "Authorization", "isSecret": True, "isRequired": True}],
        "variables": {"region": {"default": "us", "choices": ["us", "eu"]}},
    }
    listing = server_listing({"name": "a/b", "remotes": [remote]}, "registry")
    assert listing.url == "https://api.example.com/us/{tenant}/mcp"
    assert listing.transport == "streamable-http"
    assert listing.headers[0].name == "Authorization"
    assert listing.flags == ("needs_account", "placeholder")


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"packages": "npx -y x"}, "malformed"),
        ({"packages": [{"identifier": "x"}]}, "malformed"),
        ({"packages": [{"registryType": "npm", "identifier": 7}]}, "malformed"),
        ({"packages": [{"registryType": "nuget", "identifier": "X"}]}, "nuget"),
        ({}, "no package and no remote"),
        (
            {"packages": [{"registryType": "npm", "identifier": "x; rm -rf /", "version": "1"}]},
            "not an npm package name",
        ),
    ],
)
def test_what_cannot_be_run_says_why(facts: dict[str, Any], reason: str) -> None:
    listing = server_listing({"name": "a/b", **facts}, "registry")
    assert not listing.runnable
    assert reason in (listing.reason or "")


@pytest.mark.parametrize("record", [None, [], {}, {"name": 7}])
def test_a_record_without_a_name_is_an_error(record: Any) -> None:
    with pytest.raises(ValueError, match="name"):
        server_listing(record, "registry")


@pytest.mark.shared
def test_stored_samples_of_the_real_registry_parse() -> None:
    if not SAMPLES.exists():
        pytest.skip("needs ../shared/data/marketplaces (development data beside the checkout)")
    page = json.loads((SAMPLES / "list.live-2026-08-13.truncated.json").read_text())
    listing = server_listing(page["servers"][0]["server"], "registry")
    assert listing.url == "https://sh.inference.ac"
    package = json.loads((SAMPLES / "package.example.json").read_text())
    listing = server_listing({"name": "a/b", "packages": [package]}, "registry")
    assert listing.args[1] == "remote-filesystem-mcp-server@0.1.5"
    assert [one.name for one in listing.env if one.secret] == ["GCS_PRIVATE_KEY"]
