"""Entries of `mcpServers` become launch facts: packages, remotes, and commands of this host."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.adapters.private import read_files
from assets.marketplaces.launch.mcp_config import read_launch_facts
from assets.marketplaces.listing import Listing, digest_listing, make_row, read_row
from assets.marketplaces.policy import CrawlPolicy
from assets.servers.recipes.recipe import identify_server
from tests.marketplaces.answers import read_inputs
from tests.support.cases import cases
from tests.support.examples import json_values


def test_secrets_become_required_variables_or_header_names_without_a_value():
    env = {"A_TOKEN": "abc123", "B_URL": "<YOUR_URL>", "MODE": "fast"}
    facts = read_launch_facts({"command": "npx", "args": ["-y", "a@1.0.0"], "env": env})
    assert read_inputs(facts["env"]) == {
        "A_TOKEN": (True, True, None),
        "B_URL": (True, False, None),
        "MODE": (False, False, "fast"),
    }
    assert facts["flags"] == {"needs_account", "placeholder"}
    assert "abc123" not in str(facts)
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


def test_an_entry_that_says_stdio_is_no_remote_and_values_stand_as_json_has_them():
    stdio = {"type": "stdio", "command": "npx", "args": ["a"], "url": "https://a.example"}
    facts = read_launch_facts(stdio)
    assert (facts["transport"], facts["command"]) == ("stdio", "npx")
    env = {"PORT": 8080, "DEBUG": True, "NONE": None, "LIST": [1], "AUTH_ENABLED": "true"}
    entry = {"command": "npx", "args": ["a", 1, True], "env": env, "autoApprove": []}
    facts = read_launch_facts(entry)
    assert {fact.name: fact.default for fact in facts["env"]} == {
        "AUTH_ENABLED": "true", "DEBUG": "true", "LIST": "[1]", "NONE": None, "PORT": "8080",
    }  # fmt: skip
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


def test_a_container_asks_for_the_variables_it_passes_on_and_a_bridge_for_its_headers():
    passed = ["-e", "A_TOKEN", "-e", "MODE=fast", "--env=B_KEY=q1w2e3r4"]
    args = ["run", "-i", "--rm", *passed, "a/b:1.0"]
    facts = read_launch_facts({"command": "docker", "args": args, "env": {"A_TOKEN": "<A_TOKEN>"}})
    assert facts["args"][-2:] == ("--env=B_KEY", "a/b:1.0")
    assert read_inputs(facts["env"]) == {
        "A_TOKEN": (True, True, None),
        "B_KEY": (True, True, None),
        "MODE": (False, False, "fast"),
    }
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
    assert read_launch_facts({"url": url})["runnable"] == (url == "https://[redacted]/x")


def test_a_host_that_only_ends_like_a_gateway_is_none():
    assert read_launch_facts({"url": "https://notrun.tools/mcp"})["flags"] == set()
    assert "hosted_gateway" in read_launch_facts({"url": "https://a.run.tools/mcp"})["flags"]


MEMBERS = ("command", "args", "env", "url", "headers", "type", "transport", "name", "x")


@given(json_values(names=st.sampled_from(MEMBERS), leaves=8))
def test_any_json_makes_a_listing_that_runs_or_says_why_not(entry):
    listing = Listing(marketplace="m", native_id="x", name="x", **read_launch_facts(entry))
    assert listing.runnable or listing.reason


# --- which folder or image of this host an entry of the user's own files starts
FAR = "https://a.example/mcp"
PINNED = "notes@sha256:" + "a" * 64
PROJECT = ("notes/pyproject.toml", "notes/src/server.py", "web/package.json", "web/dist/index.js")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    for name in (*PROJECT, "alone/main.py", "notes/.venv/bin/python", "notes/.venv/pyvenv.cfg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


def read(base: Path, entry: dict[str, Any], file: str = "mcp.json") -> Listing:
    path = base / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"mcpServers": {"notes": entry}}).replace("BASE", str(base)))
    [found] = read_files(CrawlPolicy(base_url="", paths=(path,)))
    assert read_row(make_row(found)) == found
    return found


@cases(
    "command, more, folder",
    ("python server.py", {"cwd": "BASE/notes"}, "notes"),
    ("python src/server.py", {"cwd": "notes"}, "notes"),  # from where the file lies
    ("python BASE/notes/src/server.py", {}, "notes"),  # up to what makes it a project
    ("node BASE/web/dist/index.js --port 1", {}, "web"),
    ("python BASE/alone/main.py", {}, "alone"),
    ("uv --directory BASE/notes run server.py", {}, "notes"),
    ("uv run --project BASE/notes notes-mcp", {}, "notes"),
    ("BASE/notes/.venv/bin/python -m notes", {}, "notes"),
    ("python ${workspaceFolder}/notes/src/server.py", {}, "notes"),
    ("python main.py", {}, "."),
    # What is no path that can be looked at is a word: one entry costs the others nothing.
    ("python main.py --since ~nobody-of-that-name", {}, "."),
    (f"python main.py /{'long' * 100}", {}, "."),
    ("python main.py", {"cwd": "~nobody-of-that-name/x"}, "~nobody-of-that-name/x"),
)
def test_a_command_runs_in_the_folder_that_its_entry_names(base, command, more, folder):
    words = command.split()
    found = read(base, {"command": words[0], "args": words[1:], **more})
    assert (found.runnable, found.reason, found.package) == (True, None, None)
    assert found.launch.directory == str((base / folder).resolve())
    assert identify_server(found) == "private:mcp.json#notes"


@cases("folder", ".vscode", ".cursor")
def test_an_editors_file_belongs_to_the_folder_above_it(base, folder):
    entry = {"command": "python", "args": ["notes/src/server.py"]}
    assert read(base, entry, f"{folder}/mcp.json").launch.directory == str(base.resolve())


def test_a_link_stays_one_and_what_leads_to_it_does_not(base):
    (base / "way").symlink_to(base)
    (base / "linked").symlink_to(base / "notes")
    found = read(base, {"command": "python", "args": ["server.py"], "cwd": "BASE/way/linked"})
    assert found.launch.directory == str(base.resolve() / "linked")


@cases(
    "entry, server_id",
    ({"command": "docker", "args": ["run", "mcp/git"]}, "oci:docker.io/mcp/git"),
    ({"command": "docker", "args": ["run", PINNED]}, "oci:docker.io/library/notes"),
    ({"command": "npx", "args": ["-y", "quill@1.0.0"]}, "npm:quill"),
    ({"command": "npx", "args": ["mcp-remote", FAR]}, f"remote:{FAR}"),
    ({"url": FAR, "command": "python"}, f"remote:{FAR}"),
    ({"command": "bash", "args": ["-c", "python server.py"]}, None),
    ({"command": "python server.py && rm x"}, None),
    ({"command": [["python"]], "args": ["server.py"]}, None),
    ({"command": "python", "args": "server.py"}, None),
)
def test_what_is_not_of_this_host_stays_what_it_was(base, entry, server_id):
    found = read(base, entry)
    assert (found.is_local, identify_server(found)) == (False, server_id)


def test_a_folder_that_changed_is_another_listing_and_one_of_another_marketplace_never_local(base):
    entry = {"command": "python", "args": ["server.py"]}
    one, two = (read(base, {**entry, "cwd": name}) for name in ("notes", "web"))
    assert one.listing_id == two.listing_id
    assert digest_listing(one) != digest_listing(two)
    other = read(base, {"command": "npx", "args": ["-y", "quill@1.0.0"]})
    assert "directory" not in str(make_row(other))
    found = read(base, {"command": "python", "args": ["server.py"], "cwd": "BASE/notes"})
    other = found.model_copy(update={"marketplace": "registry"})
    assert (other.is_local, identify_server(other)) == (False, None)
