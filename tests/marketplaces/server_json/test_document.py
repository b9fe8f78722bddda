"""The registry's five dated schemas read the same."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.listing import Listing, PackageRef
from assets.marketplaces.server_json.document import make_server_listing
from tests.marketplaces.answers import read_inputs
from tests.support.cases import cases
from tests.support.examples import examples

CAMEL = ("2025-09-16", "2025-09-29", "2025-10-17", "2025-12-11")


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


# The first schema wrote its keys with underscores.
SNAKE = json.loads(
    re.sub(r'[a-z][A-Z](?=\w*":)', lambda key: f"{key[0][0]}_{key[0][1].lower()}",
           json.dumps(camel("2025-07-09")))
)  # fmt: skip


RECORDS = {"2025-07-09": SNAKE} | {date: camel(date) for date in CAMEL}
NEWER = {"icons": [], "postInstallInstructions": "run me"}  # fields of a schema to come


@cases("record", *RECORDS.values(), camel("2027-01-01") | NEWER, ids=[*RECORDS, "a newer one"])
def test_the_five_dated_schemas_and_a_newer_one_read_the_same(record):
    listing = make_server_listing(record, "registry")
    assert listing.runnable
    assert listing.command == "npx"
    assert listing.args == (
        "-y", "@example/files@1.2.3", "{root:filepath}", "--mode", "fast",
    )  # fmt: skip
    assert (listing.package.identifier, listing.package.version) == ("@example/files", "1.2.3")
    assert listing.flags == ("needs_account", "placeholder")
    secret, colour = listing.env
    assert (secret.name, secret.required, secret.secret, secret.default) == (
        "FILES_API_KEY", True, True, None,
    )  # fmt: skip
    assert colour.default == "blue"
    assert "must-not-stay" not in listing.model_dump_json()


def test_a_file_digest_pins_any_package_and_a_bundle_has_no_command():
    bundle = package("mcpb", "https://a.example/a.mcpb", fileSha256="AB" * 32)
    assert (bundle.runnable, bundle.command) == (True, None)
    listing = package("npm", "b", version="latest", fileSha256="AB" * 32)
    assert listing.package.digest == bundle.package.digest == "sha256:" + "ab" * 32
    assert listing.flags == ()


@cases(
    "facts, reason",
    ({"packages": "npx -y x"}, "malformed"),
    ({"packages": [{"identifier": "x"}]}, "malformed"),
    ({"packages": [{"registryType": "npm", "identifier": 7}]}, "malformed"),
    ({"packages": [{"registryType": "nuget", "identifier": "X"}]}, "nuget"),
    ({}, "no package and no remote"),
    (
        {"packages": [{"registryType": "npm", "identifier": "x; rm -rf /", "version": "1"}]},
        "not an npm package name",
    ),
)
def test_what_cannot_be_run_says_why(facts, reason):
    listing = make_server_listing({"name": "a/b", **facts}, "registry")
    assert not listing.runnable
    assert reason in (listing.reason or "")


@cases("record", None, [], {}, {"name": 7})
def test_a_record_without_a_name_is_an_error(record):
    with pytest.raises(ValueError, match="name"):
        make_server_listing(record, "registry")


def parsed(**server: Any) -> Listing:
    return make_server_listing({"name": "a/b", **server}, "registry")


def package(kind: str, identifier: str, **facts: Any) -> Listing:
    return parsed(packages=[{"registryType": kind, "identifier": identifier, **facts}])


DIGEST = "sha256:" + "0a" * 32


@cases(
    "kind, identifier, version, spec, found",
    ("npm", "@a/b", "1.2.3", "@a/b@1.2.3", ("@a/b", "1.2.3", None, False)),
    ("npm", "@a/b@1.2.3", None, "@a/b@1.2.3", ("@a/b", "1.2.3", None, False)),
    ("npm", "b", "^1.2.3", "b@^1.2.3", ("b", "^1.2.3", None, True)),
    ("npm", "b", "latest", "b@latest", ("b", "latest", None, True)),
    ("npm", "b", "1.x", "b@1.x", ("b", "1.x", None, True)),
    ("npm", "b", None, "b", ("b", None, None, True)),
    ("npm", "b", "", "b", ("b", None, None, True)),
    ("pypi", "b", "1.2", "b==1.2", ("b", "1.2", None, False)),
    ("pypi", "b[cli]", "1.2", "b[cli]==1.2", ("b", "1.2", None, False)),
    ("pypi", "b==1.2", None, "b==1.2", ("b", "1.2", None, False)),
    ("pypi", "b", ">=1.2", "b>=1.2", ("b", ">=1.2", None, True)),
    ("pypi", "b", "latest", "b@latest", ("b", "latest", None, True)),
    ("pypi", "b", "1.*", "b==1.*", ("b", "1.*", None, True)),
    ("pypi", "b", "~1.2", "b", ("b", "~1.2", None, True)),
    ("oci", "ghcr.io/a/b:1.2", None, "ghcr.io/a/b:1.2", ("ghcr.io/a/b", "1.2", None, False)),
    ("oci", "a/b", "1.2", "a/b:1.2", ("a/b", "1.2", None, False)),
    ("oci", "a/b:v1", "1.2", "a/b:v1", ("a/b", "v1", None, False)),
    ("oci", "a/b:latest", None, "a/b:latest", ("a/b", "latest", None, True)),
    ("oci", "host:5000/b", None, "host:5000/b", ("host:5000/b", None, None, True)),
    ("oci", f"ghcr.io/x/y:1.2@{DIGEST}", None, f"ghcr.io/x/y:1.2@{DIGEST}",
     ("ghcr.io/x/y", "1.2", DIGEST, False)),
    ("oci", f"x/y@{DIGEST}", None, f"x/y@{DIGEST}", ("x/y", None, DIGEST, False)),
    ("oci", "x/y", DIGEST, f"x/y@{DIGEST}", ("x/y", None, DIGEST, False)),
    ("docker", "x/y", "1.0", "x/y:1.0", ("x/y", "1.0", None, False)),
)  # fmt: skip
def test_identifier_version_and_digest_are_told_apart(kind, identifier, version, spec, found):
    listing = package(kind, identifier, version=version)
    assert listing.args[-1] == spec
    listed = listing.package
    assert (listed.identifier, listed.version, listed.digest, "unpinned" in listing.flags) == found
    assert listing.runnable


def test_an_image_of_another_host_carries_its_name():
    listing = package("oci", "a/b", version="1.0", registryBaseUrl="https://ghcr.io")
    assert listing.args == ("run", "-i", "--rm", "ghcr.io/a/b:1.0")
    assert package("oci", "a/b", registryBaseUrl="https://docker.io").args[-1] == "a/b"


@cases("kind", "nuget", "cargo")
def test_a_package_without_a_runner_is_kept_with_a_reason(kind):
    listing = package(kind, "Example.Files", version="1.2.3", runtimeHint="dnx")
    assert (listing.runnable, listing.command) == (False, None)
    assert listing.package == PackageRef(type=kind, identifier="Example.Files", version="1.2.3")  # type: ignore[arg-type]
    assert kind in str(listing.reason)


@cases(
    "kind, hint, runtime, words",
    ("npm", "npx", ["--yes"], ("npx", "--yes", "b@1.0.0")),
    ("npm", "bunx", [], ("bunx", "b@1.0.0")),
    ("npm", "node", ["--inspect"], ("npx", "-y", "b@1.0.0")),
    ("npm", "C:\\node\\npx.cmd", [], ("npx", "-y", "b@1.0.0")),
    ("npm", "npx", ["-y", "b@latest"], ("npx", "-y", "b@1.0.0")),
    ("pypi", "uvx", ["--from", "b", "serve"], ("uvx", "--from", "b==1.0.0", "serve")),
    ("pypi", "python", ["-m", "b"], ("uvx", "b==1.0.0")),
    ("oci", "podman", ["run", "--rm"], ("podman", "run", "--rm", "b:1.0.0")),
)
def test_the_runner_runs_the_package_that_is_named(kind, hint, runtime, words):
    inputs = [{"type": "positional", "value": word} for word in runtime]
    listing = package(kind, "b", version="1.0.0", runtimeHint=hint, runtimeArguments=inputs)
    assert (listing.command, *listing.args) == words


def arguments(*inputs: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    listing = package("npm", "b", version="1.0.0", packageArguments=list(inputs))
    return listing.args[2:], listing.flags


@cases(
    "argument, words, flags",
    ({"type": "named", "name": "--port", "value": "80"}, ("--port", "80"), ()),
    ({"type": "named", "name": "--port=", "value": "80"}, ("--port=80",), ()),
    ({"type": "named", "name": "--port", "default": 80}, ("--port", "80"), ()),
    ({"type": "named", "name": "--stdio"}, ("--stdio",), ()),
    ({"type": "named", "name": "--on", "isRequired": False}, (), ()),
    ({"type": "named", "name": "--api-url", "description": "x", "placeholder": "p"}, (), ()),
    ({"type": "positional", "valueHint": "dir"}, (), ()),
    ({"type": "positional", "value": "serve", "isRepeated": True}, ("serve",), ()),
    ({"type": "positional", "valueHint": "a dir", "isRequired": True, "format": "filepath"},
     ("{a_dir:filepath}",), ("placeholder",)),
    ({"type": "positional", "valueHint": "mode", "isRequired": True, "choices": ["a", "b"]},
     ("{mode:string}",), ("placeholder",)),
    ({"type": "positional", "valueHint": "1st", "isRequired": True},
     ("{value_1st:string}",), ("placeholder",)),
    ({"type": "named", "name": "--token", "isSecret": True, "isRequired": True},
     ("--token", "{token:string}"), ("needs_account", "placeholder")),
    ({"type": "named", "name": "--token", "isSecret": True, "isRequired": True, "value": "s3"},
     ("--token", "{token:string}"), ("needs_account", "placeholder")),
    ({"type": "named", "name": "--db-password", "value": "hunter2"},
     ("--db-password", "{db_password:string}"), ("needs_account", "placeholder")),
    ({"type": "named", "name": "--mount", "value": "src={src},dst={dst}", "isRequired": True,
      "variables": {"src": {"isRequired": True, "format": "filepath"},
                    "dst": {"default": "/data"}}},
     ("--mount", "src={src:filepath},dst=/data"), ("placeholder",)),
    ({"type": "named", "name": "--head", "value": "Bearer {key}", "isRequired": True,
      "variables": {"key": {"isRequired": True, "isSecret": True, "default": "d3fault"}}},
     ("--head", "Bearer {key}"), ("needs_account", "placeholder")),
    ({"type": "positional", "value": "{x}", "isRequired": False, "variables": {"x": {}}},
     (), ()),
    ({"type": "positional", "value": "/home/ann/notes"}, ("/home/ann/notes",), ("local_path",)),
)  # fmt: skip
def test_arguments(argument, words, flags):
    assert arguments(argument) == (words, flags)


def test_a_secret_after_its_option_is_a_place_and_a_container_gets_variables_by_name_once():
    words, _ = arguments(
        {"type": "positional", "value": "--api-key"}, {"type": "positional", "value": "abc12"}
    )
    assert words == ("--api-key", "{api_key:string}")
    inputs = [{"type": "named", "name": "-e", "value": "FILES_TOKEN=abc12"}]
    listing = package("oci", "a/b:1", runtimeArguments=inputs)
    assert listing.args[3:] == ("-e", "FILES_TOKEN", "a/b:1")
    assert [(item.name, item.required, item.secret) for item in listing.env] == [
        ("FILES_TOKEN", True, True)
    ]
    env = [{"name": "A", "isRequired": True}, {"name": "B"}]
    inputs = [{"type": "named", "name": "-e", "value": "A"}]
    listing = package("oci", "a/b:1", environmentVariables=env, runtimeArguments=inputs)
    assert listing.args == ("run", "-i", "--rm", "-e", "A", "-e", "B", "a/b:1")


@cases(
    "variable, found",
    ({"isRequired": True, "isSecret": True, "value": "s3cret"}, (True, True, None)),
    ({"isSecret": True, "default": "s3cret"}, (False, True, None)),
    ({"default": "blue"}, (False, False, "blue")),
    ({"default": False}, (False, False, "false")),
    ({"value": "{a}-{b}", "variables": {"a": {"default": "x"}, "b": {"value": "y"}}},
     (False, False, "x-y")),
    ({"value": "{a}", "variables": {"a": {"isRequired": True}}}, (True, False, None)),
    ({"value": "k={a}", "variables": {"a": {"isSecret": True, "default": "s3cret"}}},
     (False, True, None)),
    ({"value": "{undeclared}"}, (False, False, "{undeclared}")),
    ({"isRequired": "yes"}, (False, False, None)),
    ({"required": True}, (True, False, None)),
    ({"required": False}, (False, False, None)),
    ({"required": True, "isRequired": False}, (False, False, None)),
)  # fmt: skip
def test_environment_variables(variable, found):
    listing = package("npm", "b", environmentVariables=[{"name": "COLOUR", **variable}])
    only = listing.env[0]
    assert (only.required, only.secret, only.default) == found
    assert "s3cret" not in listing.model_dump_json()


@cases(
    "name, variable, secret",
    ("FILES_API_KEY", {}, True),
    ("FILES_API_KEY", {"isSecret": False}, False),
    ("FILES_TOKEN", {"format": "boolean"}, False),
    ("FILES_TOKEN", {"default": "true"}, False),
    ("FILES_KEY_PATH", {}, False),
    ("FILES_NOTE", {"isSecret": False, "default": "ghp_" + "a1B2" * 9}, True),
)
def test_a_secret_is_known_by_its_mark_its_name_or_its_value(name, variable, secret):
    listing = package("npm", "b", environmentVariables=[{"name": name, **variable}])
    assert listing.env[0].secret is secret
    assert "ghp_" not in listing.model_dump_json()


def test_a_local_package_may_answer_over_http_and_a_remote_has_variables():
    listing = package(
        "npm",
        "b",
        version="1.0.0",
        packageArguments=[{"type": "named", "name": "--port", "default": "8080"}],
        environmentVariables=[{"name": "ROOT"}],
        transport={
            "type": "streamable-http",
            "url": "http://localhost:{port}/{ROOT}",
            "headers": [{"name": "X-Key", "isRequired": True, "isSecret": True}],
        },
    )
    assert (listing.transport, listing.url) == ("streamable-http", "http://localhost:8080/{ROOT}")
    assert read_inputs(listing.headers) == {"X-Key": (True, True, None)}
    assert listing.flags == ("needs_account", "placeholder")
    remote = {
        "type": "streamable-http",
        "url": "{baseUrl}/mcp?key={key}",
        "headers": [{"name": "Authorization", "value": "Bearer {token}",
                     "variables": {"token": {"isRequired": True, "isSecret": True}}}],
        "variables": {"baseUrl": {"default": "https://x.example"},
                      "key": {"isRequired": True, "isSecret": True, "default": "s3cret"}},
    }  # fmt: skip
    listing = parsed(remotes=[remote])
    assert listing.url == "https://x.example/mcp?key={key}"
    assert listing.flags == ("needs_account", "placeholder")
    only = listing.headers[0]
    assert (only.required, only.secret, only.default) == (True, True, None)
    assert "Bearer {token}" in str(only.description)
    del remote["variables"]
    stuck = parsed(remotes=[remote])
    assert not stuck.runnable
    assert "{baseUrl}" in str(stuck.reason)


def test_the_first_package_that_starts_here_is_taken():
    image = {"registryType": "oci", "identifier": "a/b:1"}
    served = {"registryType": "npm", "identifier": "b", "version": "1.0.0",
              "transport": {"type": "sse", "url": "http://localhost:1/sse"}}  # fmt: skip
    bundle = {"registryType": "mcpb", "identifier": "https://x.example/b.mcpb"}
    remote = {"type": "sse", "url": "https://x.example/sse"}
    broken = {"registryType": "npm"}
    dotnet = {"registryType": "nuget", "identifier": "B"}

    def taken(*packages: Any, remotes: Any = ()) -> str:
        return parsed(packages=list(packages), remotes=list(remotes)).evidence

    assert taken(image, served, bundle, remotes=[remote]) == "packages[2]"
    assert taken(image, served, remotes=[remote]) == "packages[1]"
    assert taken(broken, image, remotes=[remote]) == "packages[1]"
    assert taken(broken, dotnet, remotes=[remote]) == "remotes[0]"
    assert taken(broken, dotnet) == "packages[1]"


@cases(
    "facts, transport",
    ({"type": "sse"}, "sse"),
    *(({"type": kind}, "streamable-http") for kind in ("streamable-http", "http", "")),
    *((facts, "sse") for facts in (
        {"transport": "sse"}, {"transport": {"type": "sse"}}, {"transport_type": "sse"},
    )),
)  # fmt: skip
def test_the_transport_of_a_remote(facts, transport):
    assert parsed(remotes=[{"url": "https://x.example/", **facts}]).transport == transport


@examples(150)
@given(st.text("abcdefghijkmnpqrstuvwxyz23456789", min_size=9, max_size=24))
def test_no_secret_value_reaches_a_listing(secret):
    secret = f"zq{secret}"
    marked = {"isSecret": True, "isRequired": True, "value": secret}
    template = {"value": "x {k}", "variables": {"k": {"isSecret": True, "default": secret}}}
    inputs = [
        {"name": "A", **marked},
        {"name": "B_API_KEY", "default": secret},
        {"name": "C", **template},
    ]
    words = [
        {"type": "named", "name": "--a", **marked},
        {"type": "named", "name": "--api-key", "value": secret},
        {"type": "positional", "value": f"--token={secret}"},
        {"type": "positional", **template},
    ]
    for kind in ("npm", "oci", "mcpb", "nuget"):
        made = package(
            kind,
            "https://x.example/b.mcpb" if kind == "mcpb" else "b",
            environmentVariables=inputs,
            packageArguments=words,
            runtimeArguments=words,
            transport={"type": "sse", "url": "http://localhost/{B_API_KEY}", "headers": inputs},
        )
        assert made.env
        assert secret not in made.model_dump_json()
    variables = {"token": {"default": secret}, "b": {"isSecret": True, "value": secret}}
    remote = {"url": "https://x.example/{token}/{b}", "variables": variables, "headers": inputs}
    assert secret not in parsed(remotes=[remote]).model_dump_json()


def test_folders_extras_snake_case_names_and_addresses_of_bundles_are_kept():
    url = "https://github.com/acme/servers"
    server = {"name": "a/b", "repository": {"url": url, "source": "github", "subfolder": "/src/b/"}}
    listing = make_server_listing(server, "registry")
    assert (listing.repository, listing.subfolder) == (url, "src/b")
    runtime = [{"type": "named", "name": "--from", "value": "quill[mcp]==0.9.0"}]
    words = [{"type": "positional", "value": "quill-mcp"}]
    facts = {"runtimeArguments": runtime, "packageArguments": words}
    listing = package("pypi", "quill", version="1.0.0", **facts)
    assert listing.args == ("--from", "quill[mcp]==1.0.0", "quill-mcp")
    described = {"registry_type": "npm", "identifier": "b", "package_arguments": [
        {"type": "positional", "value": "{my_dir}", "is_required": True,
         "variables": {"my_dir": {"is_required": True, "format": "filepath"}}}]}  # fmt: skip
    record = {"$schema": schema("2025-07-09"), "name": "a/b", "packages": [described]}
    listing = make_server_listing(record, "r")
    assert listing.args[-1] == "{my_dir:filepath}"
    address = "https://github.com/a/b/releases/download/v1/b.mcpb"
    bundle = {"registry_type": "mcpb", "identifier": "b", "download_url": address}
    record = {"$schema": schema("2025-07-09"), "name": "a/b", "packages": [bundle]}
    assert make_server_listing(record, "registry").package.identifier == address


@cases("required", True, None)
def test_a_container_variable_is_as_required_as_it_is_declared(required):
    token = {"format": "string", "isSecret": True, "isRequired": required}
    runtime = [
        {"type": "named", "name": "-e", "value": "A_TOKEN={token}", "variables": {"token": token}},
        {"type": "named", "name": "-e", "value": "PORT=8085"},
    ]
    listing = package("oci", "ghcr.io/a/b", version="1.0.0", runtimeArguments=runtime)
    assert read_inputs(listing.env) == {
        "A_TOKEN": (bool(required), True, None),
        "PORT": (False, False, "8085"),
    }
    assert listing.flags == (("needs_account",) if required else ())
    assert listing.args[-5:] == ("-e", "A_TOKEN", "-e", "PORT=8085", "ghcr.io/a/b:1.0.0")


def test_a_switch_of_the_runner_takes_no_value():
    """As the best known server of all writes it."""
    variables = {"token": {"isRequired": True, "isSecret": True}}
    runtime = [
        {"type": "positional", "value": "run", "isRequired": True},
        *({"type": "named", "name": name, "value": "true", "format": "boolean"}
          for name in ("-i", "--rm")),
        {"type": "named", "name": "-e", "value": "A_TOKEN={token}", "isRequired": True,
         "variables": variables},
        {"type": "positional", "valueHint": "image_name", "value": "ghcr.io/a/b"},
    ]  # fmt: skip
    listing = package("oci", "ghcr.io/a/b:1.0.0", runtimeArguments=runtime)
    assert listing.args == ("run", "-i", "--rm", "-e", "A_TOKEN", "ghcr.io/a/b:1.0.0")
    assert read_inputs(listing.env) == {"A_TOKEN": (True, True, None)}


@cases("version", "{{VERSION}}", "${VERSION}", "$VERSION", "<<Version>>")
def test_a_version_that_a_release_fills_in_is_a_place(version):
    assert package("npm", "a", version=version).flags == ("placeholder", "unpinned")
