"""What a server's own words lead to next; the sentences are those of real parsers."""

import os
from pathlib import Path

import pytest

from assets.servers.probe.probe import ProbeResult
from assets.servers.recipes.package_files import find_variables
from assets.servers.recipes.placeholders import DATA
from assets.servers.recipes.recipe import LaunchRecipe
from assets.servers.recipes.relaunch import MAX_TRIES, list_made_up, make_next_guess

RECIPE = LaunchRecipe(
    server_id="npm:tavily-mcp", ecosystem="npm", name="tavily-mcp", version="1.0.0"
)
OLD = LaunchRecipe(
    server_id="pypi:old", ecosystem="pypi", name="old", version="0.1.0",
    released="2025-05-01T10:00:00+00:00",
)  # fmt: skip


def failed(stderr: str, kind: str = "needs_argument") -> ProbeResult:
    return ProbeResult("failed", kind, "exit 1", stderr_tail=stderr)


def guess(
    stderr: str, recipe: LaunchRecipe = RECIPE, kind: str = "needs_argument", **more
) -> LaunchRecipe:
    found = make_next_guess(recipe, failed(stderr, kind), [recipe], **more)
    assert found is not None, stderr
    return found


@pytest.mark.parametrize(
    ("stderr", "args"),
    [
        (
            "x: error: the following arguments are required: --host, --port, --password",
            ("--host", "localhost", "--port", "8080", "--password", "placeholder-Passw0rd!"),
        ),
        ("Error: Missing option '--fibery-host'.", ("--fibery-host", "localhost")),
        ("Missing required argument: region", ("--region", "us-east-1")),
        ("error: required option '--region <name>' not specified", ("--region", "us-east-1")),
        ("error: the following required arguments were not provided:\n  --region <R>\n",
         ("--region", "us-east-1")),
        ("error: missing required argument 'path'", (DATA,)),
        ("x: error: the following arguments are required: config_dir", (DATA,)),
        ("x: error: the following arguments are required: --transport", ("--transport", "stdio")),
        ("Please provide --region or set it", ("--region", "us-east-1")),
        ("Usage: server [command]\n\nCommands:\n  init   set up\n  serve  run it", ("serve",)),
        ("usage: x [-h] {init,stdio,http} ...\nx: error: choose", ("stdio",)),
        ("Usage: mcp-server-filesystem <allowed-directory>", (DATA,)),
    ],
)  # fmt: skip
def test_a_parsers_words_become_arguments(stderr: str, args: tuple[str, ...]) -> None:
    assert guess(stderr).args == args


@pytest.mark.parametrize(
    ("stderr", "name"),
    [
        ("Error: TAVILY_API_KEY environment variable is required", "TAVILY_API_KEY"),
        ("KeyError: 'SERVICE_HOST'", "SERVICE_HOST"),
        ("1 validation error for Settings\napi_key\n  Field required [type=missing]", "API_KEY"),
        ("Please set the `motherduck_token` as an environment variable", "motherduck_token"),
    ],
)
def test_a_variable_that_is_named_is_set(stderr: str, name: str) -> None:
    assert name in dict(guess(stderr, kind="needs_secret").env)


def test_error_codes_are_no_variables() -> None:
    stderr = "Error [ERR_INVALID_ARG]: missing ENOENT NODE_OPTIONS INVALID_PARAMS"
    found = make_next_guess(RECIPE, failed(stderr, "crashed"), [RECIPE])
    assert found is None or not found.env


def test_dependencies_of_the_releases_own_time_come_first() -> None:
    stderr = "AttributeError: 'Server' object has no attribute 'list_tools'\nAPI_KEY is required"
    found = guess(stderr, OLD, "incompatible")
    assert found.as_of == "2025-05-08T10:00:00Z"
    assert found.digest != OLD.digest
    assert list_made_up(OLD, found) == ("as_of:2025-05-08",)
    again = make_next_guess(found, failed(stderr, "incompatible"), [OLD, found])
    assert again is None  # it was no matter of dependencies


def test_a_missing_object_is_no_matter_of_dependencies() -> None:
    stderr = "AttributeError: 'NoneType' object has no attribute 'rstrip'"
    found = make_next_guess(OLD, failed(stderr, "crashed"), [OLD], reads=("SERVICE_URL",))
    assert found is not None
    assert (found.as_of, dict(found.env)) == (
        None,
        {"SERVICE_URL": "https://placeholder.example.com"},
    )


def test_what_the_source_reads_is_the_last_resort() -> None:
    reads = ("SERVICE_TOKEN", "SERVICE_URL")
    found = guess("Error", reads=reads, kind="crashed")
    assert [name for name, _ in found.env] == list(reads)


def test_without_placeholders_nothing_is_made_up() -> None:
    stderr = "error: the following arguments are required: --token\nTOKEN_A is required"
    spare = RECIPE.model_copy(update={"spare_env": (("A_KEY", "x"),)})
    assert make_next_guess(spare, failed(stderr), [spare], placeholders=False, reads=("B",)) is None
    assert guess("usage: x {serve}", placeholders=False).args == ("serve",)


@pytest.mark.parametrize("kind", ["needs_network", "needs_software", "out_of_memory", "oversize"])
def test_what_no_value_repairs_is_not_tried_again(kind: str) -> None:
    assert make_next_guess(RECIPE, failed("API_KEY is required", kind), [RECIPE]) is None


def test_a_server_that_speaks_http_is_asked_for_stdio() -> None:
    found = guess("Uvicorn running on http://127.0.0.1:8000", kind="protocol_error")
    assert dict(found.env)["MCP_TRANSPORT"] == "stdio"
    assert guess("options: --transport {sse,stdio}").args == ("--transport", "stdio")


def test_tries_are_bounded_and_none_comes_twice() -> None:
    recipe, tried = RECIPE, [RECIPE]
    for at in range(20):
        stderr = f"error: the following arguments are required: --opt{at}"
        found = make_next_guess(recipe, failed(stderr), tried)
        if found is None:
            break
        recipe = found
    assert len(tried) == MAX_TRIES + 1
    assert len({one.digest for one in tried}) == len(tried)


def test_made_up_variables_are_dropped_where_they_may_be_what_is_wrong() -> None:
    filled = RECIPE.model_copy(
        update={"env": (("A_KEY", "x"), ("LEVEL", "info")), "placeholders": ("env:A_KEY",)}
    )
    assert guess("it broke", filled, "crashed").env == (("LEVEL", "info"),)


def test_the_record_names_all_that_a_guess_added() -> None:
    found = RECIPE.model_copy(update={"args": ("a", "b"), "env": (("K", "v"),)})
    assert list_made_up(RECIPE, found) == ("env:K", "arg:0", "arg:1")
    assert list_made_up(found, RECIPE) == ("args",)


def test_the_packages_own_source_is_read_and_no_others(tmp_path) -> None:
    own = tmp_path / "node_modules" / "tavily-mcp"
    other = own / "node_modules" / "dep"
    other.mkdir(parents=True)
    (own / "index.js").write_text(
        "const k = process.env.TAVILY_API_KEY; process.env['SERVICE_URL'];"
        " if (process.env.NODE_ENV) {} process.env.LOG_LEVEL; process.env.VERBOSE"
    )
    (other / "index.js").write_text("process.env.OTHER_TOKEN")
    assert find_variables(tmp_path, RECIPE) == ("SERVICE_URL", "TAVILY_API_KEY")


def test_a_python_packages_recorded_files_are_read(tmp_path) -> None:
    packages = tmp_path / "venv/lib/python3.11/site-packages"
    (packages / "old").mkdir(parents=True)
    (packages / "old" / "server.py").write_text(
        "import os\nos.getenv('OLD_TOKEN')\nos.environ['OLD_HOST']\nos.environ.get(\"MODE\")\n"
    )
    info = packages / "old-0.1.0.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("old/server.py,,\n../../../bin/evil.py,,\n")
    assert find_variables(tmp_path, OLD) == ("OLD_HOST", "OLD_TOKEN")
    assert find_variables(tmp_path / "nowhere", OLD) == ()


def lay_traps(folder: Path, host: Path) -> None:
    """What an install script may leave beside the sources: none of it is one."""
    (host / "sub").mkdir(parents=True)
    for name in ("a.js", "sub/b.js", "server.py", "RECORD"):
        (host / name).write_text(
            "process.env.STOLEN_TOKEN os.getenv('STOLEN_TOKEN')\nserver.py,,\n"
        )
    (folder / "link.js").symlink_to(host / "a.js")
    (folder / "link.py").symlink_to(host / "server.py")
    (folder / "folder").symlink_to(host)
    os.mkfifo(folder / "pipe.js")
    os.mkfifo(folder / "pipe.py")


def test_no_link_is_followed_and_no_pipe_waited_for_when_sources_are_read(tmp_path: Path) -> None:
    own = tmp_path / "tree/node_modules/tavily-mcp"
    own.mkdir(parents=True)
    lay_traps(own, tmp_path / "host")
    (own / "own.js").write_text("process.env.OWN_TOKEN")
    assert find_variables(tmp_path / "tree", RECIPE) == ("OWN_TOKEN",)
    own.rename(tmp_path / "moved")
    own.symlink_to(tmp_path / "host")
    assert find_variables(tmp_path / "tree", RECIPE) == ()


def test_what_a_record_names_is_read_below_its_folder_only(tmp_path: Path) -> None:
    packages = tmp_path / "tree/venv/lib/python3.11/site-packages"
    info = packages / "old-0.1.0.dist-info"
    info.mkdir(parents=True)
    lay_traps(packages, tmp_path / "host")
    (packages / "own.py").write_text("os.getenv('OWN_TOKEN')")
    named = ["link.py", "folder/server.py", "pipe.py", f"{tmp_path}/host/server.py", "own.py"]
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in named))
    assert find_variables(tmp_path / "tree", OLD) == ("OWN_TOKEN",)
    (info / "RECORD").unlink()
    (info / "RECORD").symlink_to(tmp_path / "host" / "RECORD")
    assert find_variables(tmp_path / "tree", OLD) == ()
    (info / "RECORD").unlink()
    os.mkfifo(info / "RECORD")
    assert find_variables(tmp_path / "tree", OLD) == ()


@pytest.mark.parametrize("part", ["venv", "venv/lib/python3.11/site-packages"])
def test_a_link_in_place_of_the_environment_leads_nowhere(tmp_path: Path, part: str) -> None:
    host = tmp_path / "host"
    (host / "venv/lib/python3.11/site-packages/old-0.1.0.dist-info").mkdir(parents=True)
    record = host / "venv/lib/python3.11/site-packages/old-0.1.0.dist-info/RECORD"
    record.write_text("server.py,,\n")
    (record.parent.parent / "server.py").write_text("os.getenv('STOLEN_TOKEN')")
    assert find_variables(host, OLD) == ("STOLEN_TOKEN",)
    link = tmp_path / "tree" / part
    link.parent.mkdir(parents=True)
    link.symlink_to(host / part)
    assert find_variables(tmp_path / "tree", OLD) == ()
