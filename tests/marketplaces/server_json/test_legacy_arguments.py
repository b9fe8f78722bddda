"""Records older than the first dated schema, whose arguments are often a README's runner's."""

from typing import Any

import pytest

from assets.marketplaces.listing import Listing
from assets.marketplaces.server_json.arguments import make_option_words
from assets.marketplaces.server_json.document import make_server_listing


def old(kind: str, name: str, version: str, arguments: list[str | tuple[str, str]]) -> Listing:
    """A record of early 2025: a named argument repeats the whole option as its name and value."""
    inputs: list[dict[str, Any]] = []
    for argument in arguments:
        if isinstance(argument, tuple):
            inputs.append(
                {"type": "named", "name": argument[0], "value": argument[1], "default": argument[1]}
            )
        else:
            inputs.append(
                {
                    "type": "positional",
                    "value": argument,
                    "default": argument,
                    "value_hint": argument,
                }
            )
    package = {
        "registry_name": kind,
        "name": name,
        "version": version,
        "package_arguments": inputs,
    }
    return make_server_listing({"name": "io.github.acme/quill", "packages": [package]}, "registry")


def whole(text: str) -> tuple[str, str]:
    return text, text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--dir <full path to the folder>", ["--dir", "<full path to the folder>"]),
        ("-e NAME=value", ["-e", "NAME=value"]),
        ("--a one two --b", ["--a", "one two", "--b"]),
        ("--label 'it''s'", ["--label", "it''s"]),
        ("--say 'never closed", ["--say", "'never closed"]),
        ("plain", ["plain"]),
    ],
)
def test_a_value_goes_on_to_the_next_option(text: str, words: list[str]) -> None:
    assert make_option_words(text) == words


def test_options_of_docker_run_stand_before_the_image_that_they_name() -> None:
    listing = old(
        "docker",
        "quill-server",
        "0.1.3",
        [whole("-i"), whole("--rm"), whole("-e QUILL_TOKEN"), "acme/quill:2", "--debug"],
    )
    assert listing.command == "docker"
    assert listing.args == ("run", "-i", "--rm", "-e", "QUILL_TOKEN", "acme/quill:2", "--debug")
    assert listing.package is not None
    assert (listing.package.identifier, listing.package.version) == ("acme/quill", "2")
    assert [one.name for one in listing.env] == ["QUILL_TOKEN"]


def test_a_name_of_npm_is_no_image_and_the_image_among_the_arguments_is() -> None:
    listing = old("docker", "@acme/quill", "1.0.0", ["acme/quill", "redis://host:6379"])
    assert listing.args == ("run", "-i", "--rm", "acme/quill", "redis://host:6379")
    assert listing.runnable


def test_options_of_docker_run_without_an_image_keep_the_one_stated() -> None:
    listing = old("docker", "acme/quill", "1.0.0", [whole("--rm"), whole("-p 80:80")])
    assert listing.args == ("run", "-i", "--rm", "-p", "80:80", "acme/quill:1.0.0")


def test_a_plain_argument_of_an_image_is_no_image() -> None:
    listing = old("docker", "acme/quill", "1.0.0", ["serve"])
    assert listing.args == ("run", "-i", "--rm", "acme/quill:1.0.0", "serve")


def test_a_variable_named_after_a_bare_option_is_a_name_and_no_secret() -> None:
    listing = old("docker", "x/quill", "1", [whole("-e"), "QUILL_TOKEN", "acme/quill"])
    assert listing.args == ("run", "-i", "--rm", "-e", "QUILL_TOKEN", "acme/quill")


def test_options_of_uv_stand_before_the_package_and_its_own_entry_is_dropped() -> None:
    listing = old(
        "pypi",
        "quill-mcp",
        "0.2.0",
        [whole("--with quill-mcp"), whole("--python 3.13"), "quill_mcp"],
    )
    assert listing.args == ("--python", "3.13", "quill-mcp==0.2.0")
    assert listing.runnable


@pytest.mark.parametrize(
    "arguments",
    [
        [whole("--directory /path/to/quill"), "quill-mcp"],
        ["server.py"],
        ["run src/main.py"],
        ["python", "-m", "quill"],
        [whole("--with mcp"), "mcp", "quill.py"],
    ],
)
def test_arguments_that_start_a_copy_of_the_source_start_no_package(
    arguments: list[str | tuple[str, str]],
) -> None:
    listing = old("pypi", "quill-mcp", "0.2.0", arguments)
    assert not listing.runnable
    assert "copy of the source" in str(listing.reason)
    assert listing.package is not None


def test_dated_records_keep_their_arguments_as_they_are() -> None:
    package = {
        "registryType": "oci",
        "identifier": "acme/quill:1.0.0",
        "packageArguments": [{"type": "positional", "value": "acme/other"}],
        "transport": {"type": "stdio"},
    }
    listing = make_server_listing({"name": "a/b", "packages": [package]}, "registry")
    assert listing.args[-2:] == ("acme/quill:1.0.0", "acme/other")
