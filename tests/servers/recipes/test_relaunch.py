"""What a server's own words lead to next; the sentences are those of real parsers."""

from assets.servers.probe.probe import ProbeResult
from assets.servers.recipes.placeholders import DATA
from assets.servers.recipes.recipe import LaunchRecipe
from assets.servers.recipes.relaunch import MAX_TRIES, list_made_up, make_next_guess
from tests.support.cases import cases

RECIPE = LaunchRecipe(server_id="npm:tavily-mcp", ecosystem="npm", name="tavily-mcp", version="1")
OLD = LaunchRecipe(
    server_id="pypi:old", ecosystem="pypi", name="old", version="0.1.0",
    released="2025-05-01T10:00:00+00:00",
)  # fmt: skip


def failed(stderr: str, kind: str = "needs_argument") -> ProbeResult:
    return ProbeResult("failed", kind, "exit 1", stderr_tail=stderr)


def guess(stderr, recipe=RECIPE, kind="needs_argument", **more) -> LaunchRecipe:
    found = make_next_guess(recipe, failed(stderr, kind), [recipe], **more)
    assert found is not None, stderr
    return found


@cases(
    "stderr, args",
    ("x: error: the following arguments are required: --host, --port, --password",
     ("--host", "localhost", "--port", "8080", "--password", "placeholder-Passw0rd!")),
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
    ("Usage:\n  azmcp [command] [options]\n\nExamples:\n  azmcp storage list --all\n"
     "  azmcp server start\n", ("server", "start")),
    ("Usage:\n  azmcp [command]\n\nMCP:\n  server      Serves.\n  store       Stores.\n",
     ("server",)),
)  # fmt: skip
def test_a_parsers_words_become_arguments(stderr, args):
    assert guess(stderr).args == args


@cases(
    "stderr, name",
    ("Error: TAVILY_API_KEY environment variable is required", "TAVILY_API_KEY"),
    ("KeyError: 'SERVICE_HOST'", "SERVICE_HOST"),
    ("1 validation error for Settings\napi_key\n  Field required [type=missing]", "API_KEY"),
    ("Please set the `motherduck_token` as an environment variable", "motherduck_token"),
)
def test_a_variable_that_is_named_is_set(stderr, name):
    assert name in dict(guess(stderr, kind="needs_secret").env)


def test_nothing_is_made_up_of_error_codes_or_without_placeholders():
    stderr = "Error [ERR_INVALID_ARG]: missing ENOENT NODE_OPTIONS INVALID_PARAMS"
    found = make_next_guess(RECIPE, failed(stderr, "crashed"), [RECIPE])
    assert found is None or not found.env
    stderr = "error: the following arguments are required: --token\nTOKEN_A is required"
    spare = RECIPE.model_copy(update={"spare_env": (("A_KEY", "x"),)})
    assert make_next_guess(spare, failed(stderr), [spare], placeholders=False) is None
    assert guess("usage: x {serve}", placeholders=False).args == ("serve",)


def test_dependencies_of_the_releases_time_come_first_and_no_try_comes_twice():
    stderr = "AttributeError: 'Server' object has no attribute 'list_tools'\nAPI_KEY is required"
    found = guess(stderr, OLD, "incompatible")
    assert found.as_of == "2025-05-08T10:00:00Z"
    assert found.digest != OLD.digest
    assert list_made_up(OLD, found) == ("as_of:2025-05-08",)
    again = make_next_guess(found, failed(stderr, "incompatible"), [OLD, found])
    assert again is None  # it was no matter of dependencies
    recipe, tried = RECIPE, [RECIPE]
    for at in range(20):
        stderr = f"error: the following arguments are required: --opt{at}"
        found = make_next_guess(recipe, failed(stderr), tried)
        if found is None:
            break
        recipe = found
    assert (len(tried), len({one.digest for one in tried})) == (MAX_TRIES + 1, len(tried))


@cases("kind", "needs_network", "needs_software", "out_of_memory", "oversize")
def test_what_no_value_repairs_is_not_tried_again(kind):
    assert make_next_guess(RECIPE, failed("API_KEY is required", kind), [RECIPE]) is None
    stderr = "AttributeError: 'NoneType' object has no attribute 'rstrip'"
    assert make_next_guess(OLD, failed(stderr, "crashed"), [OLD]) is None


def test_standard_output_names_the_transport_or_the_subcommand_and_no_option():
    found = guess("Uvicorn running on http://127.0.0.1:8000", kind="protocol_error")
    assert dict(found.env)["MCP_TRANSPORT"] == "stdio"
    assert guess("options: --transport {sse,stdio}").args == ("--transport", "stdio")
    usage = "Usage:\n  x [command]\n\nCommands:\n  start  Starts.\n  --url  you must provide it\n"
    result = ProbeResult("failed", "needs_argument", "exit 1", stdout_text=usage)
    found = make_next_guess(RECIPE, result, [RECIPE])
    assert found.args == ("start",)


def test_made_up_variables_are_on_record_and_dropped_where_they_may_be_what_is_wrong():
    env = (("A_KEY", "x"), ("LEVEL", "info"))
    filled = RECIPE.model_copy(update={"env": env, "placeholders": ("env:A_KEY",)})
    assert guess("it broke", filled, "crashed").env == (("LEVEL", "info"),)
    found = RECIPE.model_copy(update={"args": ("a", "b"), "env": (("K", "v"),)})
    assert list_made_up(RECIPE, found) == ("env:K", "arg:0", "arg:1")
    assert list_made_up(found, RECIPE) == ("args",)


SDK = {"mcp": "2.3.0", "fastmcp": "3.0.1", "langchain": "1.2.0", "anyio": "4.0", "old": "2.0"}


@cases(
    "words, kind, cap",
    ("ModuleNotFoundError: No module named 'mcp.server.fastmcp'. pin 'mcp<2'", "incompatible",
     "mcp<2"),
    ("ImportError: cannot import name 'Context' from 'fastmcp.server' (/x/y.py)",
     "incompatible", "fastmcp<3"),
    ("AttributeError: module 'langchain.chains' has no attribute 'X'", "incompatible",
     "langchain<1"),
    ("TypeError: FastMCP.__init__() got an unexpected keyword argument 'port'",
     "incompatible", "mcp<2"),
    ("run: pip install mcp", "crashed", "mcp<2"),
    ("The mcp package is not installed", "needs_software", "mcp<2"),
    ("it broke", "crashed", "mcp<2"),
    ("'Server' object has no attribute 'list_resources'", "incompatible", "mcp<2"),
)  # fmt: skip
def test_a_release_that_broke_on_a_major_version_is_tried_below_it(words, kind, cap):
    tried = [OLD]
    found = make_next_guess(OLD, failed(words, kind), tried, installed=SDK)
    assert (found.requirements, list_made_up(OLD, found)) == ((cap,), (f"with:{cap}",))
    assert found.digest != OLD.digest


@cases(
    "words, kind, installed",
    ("it broke", "crashed", {"mcp": "1.30.0"}),
    ("it broke", "crashed", {}),
    ("API_KEY is required", "needs_secret", SDK),
    ("No module named 'old.tools'", "incompatible", {"old": "2.0"}),
)
def test_nothing_is_held_back_where_no_major_version_explains_it(words, kind, installed):
    found = make_next_guess(OLD, failed(words, kind), [OLD], installed=installed)
    assert found is None or not found.requirements
