"""Which folder or image of this host an entry of the user's own files starts."""

import json
from pathlib import Path
from typing import Any

import pytest

from assets.marketplaces.adapters.private import read_files
from assets.marketplaces.listing import Listing, digest_listing, make_row, read_row
from assets.marketplaces.policy import CrawlPolicy
from assets.servers.recipes.recipe import identify_server
from tests.support.cases import cases

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
    assert found.launch
    assert found.launch.directory == str((base / folder).resolve())
    assert identify_server(found) == "private:mcp.json#notes"


@cases("folder", ".vscode", ".cursor")
def test_an_editors_file_belongs_to_the_folder_above_it(base, folder):
    entry = {"command": "python", "args": ["notes/src/server.py"]}
    found = read(base, entry, f"{folder}/mcp.json")
    assert found.launch
    assert found.launch.directory == str(base.resolve())


def test_a_link_stays_one_and_what_leads_to_it_does_not(base):
    (base / "way").symlink_to(base)
    (base / "linked").symlink_to(base / "notes")
    found = read(base, {"command": "python", "args": ["server.py"], "cwd": "BASE/way/linked"})
    assert found.launch
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


def test_a_folder_that_changed_is_another_listing_and_others_keep_their_digest(base):
    entry = {"command": "python", "args": ["server.py"]}
    one, two = (read(base, {**entry, "cwd": name}) for name in ("notes", "web"))
    assert one.listing_id == two.listing_id
    assert digest_listing(one) != digest_listing(two)
    other = read(base, {"command": "npx", "args": ["-y", "quill@1.0.0"]})
    assert "directory" not in str(make_row(other))


def test_a_listing_of_another_marketplace_is_never_local(base):
    found = read(base, {"command": "python", "args": ["server.py"], "cwd": "BASE/notes"})
    other = found.model_copy(update={"marketplace": "registry"})
    assert (other.is_local, identify_server(other)) == (False, None)


def test_secrets_of_a_command_are_kept_out(base):
    key = "sk-" + "a1b2" * 8
    entry = {"command": "python", "args": ["server.py", "--token", key], "env": {"API_KEY": key}}
    found = read(base, {**entry, "cwd": "BASE/notes"})
    assert key not in str(make_row(found))
    assert found.args == ("server.py", "--token", "{token}")
    assert (found.env[0].secret, found.env[0].default) == (True, None)
