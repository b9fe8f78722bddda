"""A recipe that was launched can be launched again from its facts; recipes of own commands."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.marketplaces.listing import EnvVar, HeaderVar, LaunchFacts, Listing, PackageRef
from assets.servers.calls.connection import plan_launch
from assets.servers.calls.result import CallFailed
from assets.servers.deploy.policy import DeployPolicy, digest_confirmed, find_unconfirmed
from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes import recipe_plan
from assets.servers.recipes.placeholders import DATA
from assets.servers.recipes.recipe import (
    LaunchRecipe,
    RecipeError,
    ResolvedVersion,
    UnlaunchableServer,
    check_identity,
    dump_recipe,
    identify_server,
    load_recipe,
    parse_image,
)
from assets.servers.recipes.recipe_plan import digest_folder, find_script, plan_recipe
from assets.servers.secrets import LaunchSecrets, SecretSources, ServerSecrets
from tests.servers.conftest import npm, pypi
from tests.support.cases import cases
from tests.support.errors import expect_kind


def _resolve(package):
    return ResolvedVersion(package.version or "9.9.9", "sha512-abc")


def _plan(listing) -> LaunchRecipe:
    recipe = plan_recipe(listing, _resolve)
    assert isinstance(recipe, LaunchRecipe), recipe
    return recipe


@cases(
    "listing, identity",
    (npm("@Scope/pkg"), "npm:@Scope/pkg"),
    (pypi("My_Server.x"), "pypi:my-server-x"),
    (npm("x", package=PackageRef(type="mcpb", identifier="https://A.org/b.mcpb?token=1#x")),
     "mcpb:https://a.org/b.mcpb"),
    (npm("x", package=PackageRef(type="mcpb", identifier="http://127.0.0.1:4711/b.mcpb")),
     "mcpb:http://127.0.0.1/b.mcpb"),
    (npm("x", package=None, url="https://u:p@mcp.example.com/sse/?key=1"),
     "remote:https://mcp.example.com/sse"),
    (npm("x", package=PackageRef(type="oci", identifier="docker.io/x:1@sha256:ab")),
     "oci:docker.io/library/x"),
    (npm("x", package=PackageRef(type="oci", identifier="ghcr.io/Owner/x:1.2")),
     "oci:ghcr.io/owner/x"),
    (npm("x", package=PackageRef(type="nuget", identifier="X.Y")), None),
    (npm("x", package=None), None),
)  # fmt: skip
def test_the_identity_of_a_server(listing, identity):
    assert identify_server(listing) == identity


@cases(
    "change, same",
    ({"marketplace": "mcpso", "native_id": "z", "description": "Other."}, True),
    ({"package": PackageRef(type="npm", identifier="pkg", version="1.0.1")}, False),
    ({"args": ("--read-only",)}, False),
    ({"env": [{"name": "KEY", "required": True}]}, False),
)
def test_what_changes_the_launch_changes_the_digest(change, same):
    assert (_plan(npm("pkg", **change)).digest == _plan(npm("pkg")).digest) is same


def test_a_bundle_pinned_by_its_hash_is_the_same_from_anywhere():
    def listing(url):
        package = PackageRef(type="mcpb", identifier=url, version="1", digest="sha256:" + "a" * 64)
        return npm("x", package=package)

    def resolve(package):
        return ResolvedVersion(package.version, package.digest)

    at = "http://127.0.0.1:{}/b.mcpb".format
    one, two = (plan_recipe(listing(at(port)), resolve) for port in (1111, 2222))
    assert one.digest == two.digest


@cases(
    "listing, kind",
    (npm("pkg", runnable=False, reason="shell syntax in the command"), "no_recipe"),
    (npm("--registry=http://evil"), "no_recipe"),
    (npm("../../etc/passwd"), "no_recipe"),
    (pypi("pkg @ https://evil/x.whl"), "no_recipe"),
    (npm("x", package=PackageRef(type="mcpb", identifier="file:///etc/passwd")), "no_recipe"),
    (npm("x", package=PackageRef(type="oci", identifier="--privileged")), "no_recipe"),
    (npm("x", package=PackageRef(type="nuget", identifier="X.Y")), "policy_denied"),
)
def test_a_listing_without_a_safe_launch_says_why(listing, kind):
    refused = plan_recipe(listing, _resolve)
    assert isinstance(refused, UnlaunchableServer)
    assert refused.kind == kind
    assert refused.hint


def test_what_the_registry_refuses_is_a_row_and_another_version_is_named():
    absent = Mock(side_effect=PackageError("not_found", "npm has no pkg"))
    refused = plan_recipe(npm("pkg"), absent)
    assert isinstance(refused, UnlaunchableServer)
    assert (refused.kind, refused.server_id) == ("not_found", "npm:pkg")
    other = ResolvedVersion("2.0.0", "sha512-x", instead_of="1.0.0")
    recipe = plan_recipe(npm("pkg"), lambda _: other)
    assert isinstance(recipe, LaunchRecipe)
    assert (recipe.version, recipe.instead_of) == ("2.0.0", "1.0.0")


def test_servers_behind_one_gateway_are_told_apart_by_the_header_that_names_them():
    def app(slug: str) -> Listing:
        headers = (
            HeaderVar(name="x-pd-app-slug", required=True, default=slug),
            HeaderVar(name="x-pd-project-id", required=True),
        )
        url, flags = "https://remote.mcp.pipedream.net/v3", ("hosted_gateway",)
        return npm(slug, package=None, url=url, headers=headers, flags=flags)

    zoom = app("zoom")
    about = "remote:https://remote.mcp.pipedream.net/v3"
    assert identify_server(zoom) == f"{about}#x-pd-app-slug=zoom"
    assert identify_server(zoom) != identify_server(app("slack"))
    assert identify_server(zoom.model_copy(update={"flags": ()})) == about


def test_facts_that_came_later_change_no_older_digest():
    env = [{"name": "LOG_LEVEL", "default": "info"}]
    plain = npm("pkg", command="npx", args=("-y", "pkg@1.0.0", "--fast"), env=env)
    first = "feea2b22517b6c587418e5ff6cd60431eb1dffbdd448c4fc6398ac0416380ae0"
    assert _plan(plain).digest == first  # as the first version of recipes gave it
    assert _plan(plain).model_copy(update={"released": "2025-05-01T00:00:00Z"}).digest == first
    for later in ({"python": "3.12"}, {"as_of": "2025-05-08"}, {"instead_of": "9"}):
        assert _plan(plain).model_copy(update=later).digest != first


def test_a_remote_keeps_its_transport_headers_and_variables():
    secret = HeaderVar(name="Authorization", required=True, secret=True)
    about = {"package": None, "transport": "sse", "headers": (secret,)}
    listing = npm("x", url="https://{region}.example.com/sse", **about)
    recipe = _plan(listing)
    assert (recipe.ecosystem, recipe.transport) == ("remote", "sse")
    assert recipe.url == "https://us-east-1.example.com/sse"
    assert dict(recipe.headers)["Authorization"].startswith("Bearer placeholder")
    assert recipe.placeholders == ("url:region", "header:Authorization")
    refused = plan_recipe(listing, _resolve, placeholders=False)
    assert isinstance(refused, UnlaunchableServer)
    assert refused.kind == "needs_argument"
    plain = listing.model_copy(update={"url": "https://example.com/mcp", "transport": None})
    bare = plan_recipe(plain, _resolve, placeholders=False)
    assert isinstance(bare, LaunchRecipe)
    assert (bare.transport, bare.headers, bare.placeholders) == ("auto", (), ())


def test_an_image_is_a_recipe_pinned_by_its_digest():
    pinned = f"sha256:{'a' * 64}"
    image = f"ghcr.io/o/x:1.2@{pinned}"
    words = {"command": "docker", "args": ("run", "-i", "--rm", "-e", "API_KEY", image, "--fast")}
    package = PackageRef(type="oci", identifier=image)
    env = [{"name": "API_KEY", "secret": True, "required": True}]
    listing = npm("x", package=package, env=env, **words)

    def resolve(package):
        _, tag, found = parse_image(package)
        return ResolvedVersion(tag, found)

    recipe = plan_recipe(listing, resolve)
    assert isinstance(recipe, LaunchRecipe)
    assert (recipe.ecosystem, recipe.name, recipe.integrity) == ("oci", "ghcr.io/o/x", pinned)
    assert (recipe.version, recipe.args) == ("1.2", ("--fast",))
    assert recipe.placeholders == ("env:API_KEY",)


@cases(
    "identifier, name",
    ("redis", "docker.io/library/redis"),
    ("owner/x:1", "docker.io/owner/x"),
    ("index.docker.io/Owner/X", "docker.io/owner/x"),
    ("localhost:5000/x:2", "localhost:5000/x"),
    ("GHCR.io/o/x", "ghcr.io/o/x"),
)
def test_an_image_has_one_name(identifier, name):
    assert parse_image(PackageRef(type="oci", identifier=identifier))[0] == name


def test_a_python_package_is_started_by_its_program_not_by_a_module():
    listing = pypi("pkg", command="uvx", args=("pkg==1.0.0", "-m", "pkg.cli", "--fast"))
    assert _plan(listing).args == ("--fast",)


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
pairs = st.lists(st.tuples(words, words), max_size=3).map(tuple)
recipes = st.builds(
    LaunchRecipe,
    server_id=words,
    ecosystem=st.sampled_from(["npm", "pypi", "mcpb", "oci", "remote"]),
    name=words,
    version=st.none() | words,
    integrity=st.none() | words,
    args=st.lists(words, max_size=3).map(tuple),
    env=pairs,
    spare_env=pairs,
    placeholders=st.lists(words, max_size=3).map(tuple),
    url=st.none() | words,
    transport=st.none() | st.sampled_from(["http", "sse", "auto"]),
    headers=pairs,
    as_of=st.none() | words,
)


@given(recipes)
def test_a_recipe_survives_json_with_its_digest(recipe):
    facts = json.loads(json.dumps(dump_recipe(recipe)))
    assert (load_recipe(facts), load_recipe(facts).digest) == (recipe, recipe.digest)


@cases("facts", {}, {"server_id": "npm:x", "ecosystem": "gem", "name": "x"}, {"no": "recipe"})
def test_what_is_no_recipe_is_refused_with_the_fix(facts):
    with pytest.raises(RecipeError, match="build the index again"):
        load_recipe(facts)


BUNDLE, REMOTE = "https://files.example/a.mcpb", "https://mcp.example/v1/mcp"


@cases(
    "server_id, name, url",
    ("npm:@a/b", "@a/b", None),
    ("pypi:a-b", "A_b", None),
    ("oci:docker.io/a/redis", "docker.io/a/redis", None),
    (f"mcpb:{BUNDLE}", BUNDLE, f"{BUNDLE}?x=1"),
    (f"remote:{REMOTE}", "x", f"{REMOTE}?k=1"),
    (f"remote:{REMOTE}#x-app=a", "x", REMOTE),
    ("remote:http://localhost/mcp", "x", "http://localhost:4711/mcp"),
    ("remote:https://{tenant}.example/${id}/mcp", "x", "https://acme.example/7/mcp"),
    ("private:mine", "mine", None),
)
def test_a_recipe_of_the_server_that_it_is_listed_as_is_good(server_id, name, url):
    ecosystem = server_id.partition(":")[0]
    check_identity(LaunchRecipe(server_id=server_id, ecosystem=ecosystem, name=name, url=url))


TENANT = "remote:https://{tenant}.example/mcp"
EVIL = "npm:git+https://evil.example/x"


@cases(
    "server_id, ecosystem, name, url",
    ("npm:@a/b", "npm", "evil", None),
    ("npm:@a/b", "pypi", "b", None),
    ("@a/b", "npm", "@a/b", None),
    (EVIL, "npm", EVIL[4:], None),
    ("npm:--registry=x", "npm", "--registry=x", None),
    ("pypi:a", "pypi", "b", None),
    ("oci:docker.io/library/redis", "oci", "evil.example/redis", None),
    (f"mcpb:{BUNDLE}", "mcpb", BUNDLE, "https://evil.example/a.mcpb"),
    (f"mcpb:{BUNDLE}", "mcpb", BUNDLE, None),
    *((f"remote:{REMOTE}", "remote", REMOTE, url) for url in (
        None, "https://evil.example/v1/mcp", "https://mcp.example@evil.example/v1/mcp",
        REMOTE.replace("https", "http"), "https://mcp.example:9/v1/mcp",
        "https://mcp.example:many/v1/mcp",
    )),
    (TENANT, "remote", "x", "https://evil.org/x.example/mcp"),
    (TENANT, "remote", "x", "https://evil.org:443.example/mcp"),
)  # fmt: skip
def test_a_recipe_of_another_server_is_refused(server_id, ecosystem, name, url):
    with pytest.raises(RecipeError, match="recipe of"):
        check_identity(LaunchRecipe(server_id=server_id, ecosystem=ecosystem, name=name, url=url))


def test_a_call_carries_no_secret_to_another_address(tmp_path, monkeypatch):
    """The secret is not even read."""
    monkeypatch.delenv("ABSENT", raising=False)
    name = f"remote:{REMOTE}"
    given = {name: ServerSecrets(headers={"Authorization": "Bearer env:ABSENT"})}
    policy = DeployPolicy(tmp_path, secrets=SecretSources(given, bytes(16)))
    facts = {"server_id": name, "ecosystem": "remote", "name": REMOTE}
    with expect_kind(CallFailed, "no_recipe") as found:
        plan_launch(name, {**facts, "url": "https://evil.example/mcp"}, policy)
    assert "evil.example" in found.value.hint


NAME = "private:mcp.json#notes"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "notes"
    made.mkdir()
    (made / "server.py").write_text("serve()")
    (made / "lib").mkdir()
    (made / "lib" / "more.py").write_text("x = 1")
    return made


def list_command(folder: Path | str, *words: str, **facts: Any) -> Listing:
    command, *args = words or ("python", "server.py")
    launch = LaunchFacts(directory=str(folder))
    about = {"marketplace": "private", "native_id": "mcp.json#notes", "name": "notes"}
    more = {"command": command, "args": tuple(args), "launch": launch, "runnable": True}
    return Listing(**{**about, **more, **facts})


def plan(listing: Listing) -> LaunchRecipe | UnlaunchableServer:
    return plan_recipe(listing, lambda *_, **__: pytest.fail("a registry was asked"))


def plan_right(listing: Listing) -> LaunchRecipe:
    found = plan(listing)
    assert isinstance(found, LaunchRecipe), found
    return found


def test_a_command_is_planned_as_its_owner_wrote_it_but_for_what_lies_outside(folder):
    found = plan_right(list_command(folder, "python", "server.py", f"{folder}/lib", "./lib", "-v"))
    assert (found.server_id, found.ecosystem, found.is_image) == (NAME, "private", False)
    assert (found.command, found.directory) == (("python",), str(folder))
    assert (found.args, found.placeholders) == (("server.py", f"{folder}/lib", "./lib", "-v"), ())
    env = (
        EnvVar(name="API_KEY", required=True, secret=True),
        EnvVar(name="HERE", default=f"{folder}/lib"),
        EnvVar(name="THERE", default="/home/me/elsewhere"),
    )
    words = ("python", "server.py", "/home/me/docs", "--token", "{token}", "../beside")
    found = plan_right(list_command(folder, *words, env=env))
    assert found.args[1:3] == (DATA, "--token")
    assert "{token}" not in found.args
    assert (dict(found.env)["HERE"], dict(found.env)["THERE"]) == (f"{folder}/lib", DATA)
    assert {"arg:1", "arg:3", "env:API_KEY", "env:THERE"} <= set(found.placeholders)


@cases(
    "change",
    lambda folder: (folder / "server.py").write_text("serve(1)"),
    lambda folder: (folder / "lib" / "more.py").unlink(),
    lambda folder: (folder / "lib" / "new.py").write_text(""),
    lambda folder: (folder / "server.py").chmod(0o755),
    lambda folder: (folder / "lib" / "link").symlink_to("more.py"),
    lambda folder: (folder / "lib" / "more.py").rename(folder / "more.py"),
)
def test_changed_content_is_another_recipe_and_is_trusted_as_before(folder, change):
    (folder / "server.py").chmod(0o644)
    before = plan_right(list_command(folder))
    change(folder)
    after = plan_right(list_command(folder))
    assert before.digest != after.digest
    assert digest_confirmed(before) == digest_confirmed(after)


def test_caches_and_times_are_no_content_up_to_the_size_that_is_hashed(folder, monkeypatch):
    before = digest_folder(str(folder))
    for name in (".git", "__pycache__", "lib/__pycache__"):
        (folder / name).mkdir()
        (folder / name / "x").write_text("x")
    os.utime(folder / "server.py", (1, 1))
    assert digest_folder(str(folder)) == before
    monkeypatch.setattr(recipe_plan, "_MOST_READ", 4)
    before = digest_folder(str(folder))
    assert digest_folder(str(folder)) == before
    os.utime(folder / "server.py", (2, 2))
    assert digest_folder(str(folder)) != before


def test_a_tree_without_end_costs_no_more_than_its_bounds(folder):
    deep = folder
    for _ in range(80):
        deep = deep / "d"
        deep.mkdir()
    with expect_kind(PackageError, "oversize", "more than 64 folders"):
        digest_folder(str(folder))


@cases(
    "words, facts, asks",
    (("python", "server.py", "--all"), {}, True),
    (("python3", "server.py"), {}, True),
    ((), {"env": (EnvVar(name="MODE", default="a"), EnvVar(name="B", default="c"))}, True),
    ((), {"env": ()}, True),
    ((), {"env": (EnvVar(name="MODE", default="b"),)}, False),  # a plain value
    ((), {"env": (EnvVar(name="MODE", default="a"), EnvVar(name="X"))}, False),  # not passed
    ((), {"name": "renamed", "description": "more"}, False),
)
def test_a_changed_command_asks_again(folder, words, facts, asks):
    env = {"env": (EnvVar(name="MODE", default="a"),)}
    trusted = plan_right(list_command(folder, **env))
    policy = DeployPolicy(folder.parent)
    failure = find_unconfirmed(trusted, LaunchSecrets(), policy)
    assert (failure.kind, "not trusted yet" in failure.detail) == ("needs_confirmation", True)
    assert "toolmill trust 'private:mcp.json#notes'" in failure.detail
    policy = replace(policy, confirmed={NAME: (digest_confirmed(trusted),)})
    assert find_unconfirmed(trusted, LaunchSecrets(), policy) is None
    changed = plan_right(list_command(folder, *words, **{**env, **facts}))
    failure = find_unconfirmed(changed, LaunchSecrets(), policy)
    assert bool(failure) is asks
    assert not failure or "another one than you trusted" in failure.detail


def test_another_folder_and_a_variable_that_chooses_code_ask_again(folder):
    other = folder.parent / "other"
    other.mkdir()
    (other / "server.py").write_text("serve()")
    options = [(EnvVar(name="NODE_OPTIONS", default=f"--{word}"),) for word in ("trace", "require")]
    recipes = [plan_right(list_command(folder, env=env)) for env in options]
    recipes += [plan_right(list_command(folder)), plan_right(list_command(other))]
    assert len({digest_confirmed(recipe) for recipe in recipes}) == 4


@cases(
    "place, kind, words",
    ("gone", "needs_software", "is not there"),
    ("link", "policy_denied", "is a link"),
    ("way/notes", "policy_denied", "is a link"),
    ("notes/server.py", "needs_software", "is no folder"),
    ("home", "policy_denied", "home folder"),
    (".", "policy_denied", "home folder"),
)
def test_a_folder_no_server_sees_is_named_with_the_fix(folder, monkeypatch, place, kind, words):
    (folder.parent / "link").symlink_to(folder)
    (folder.parent / "way").symlink_to(folder.parent)
    home = folder.parent / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    found = plan(list_command(folder.parent / place))
    assert isinstance(found, UnlaunchableServer)
    assert (found.kind, words in found.reason, "`cwd`" in found.reason) == (kind, True, True)


@cases(
    "script, message",
    ("main.py", "holds no file 'main.py'"),
    ("../out.py", "not in it"),
    ("{}/out.py", "not in it"),
)
def test_a_script_that_is_missing_or_lies_elsewhere_is_named(folder, script, message):
    (folder.parent / "out.py").write_text("")
    found = plan(list_command(folder, "python", script.format(folder.parent)))
    assert isinstance(found, UnlaunchableServer)
    assert message in found.reason


@cases(
    "words, script",
    (("python", "-u", "server.py", "more.py"), "server.py"),
    (("/usr/bin/node", "dist/index.js"), "dist/index.js"),
    (("uv", "run", "server.py"), "server.py"),
    (("python", "-m", "notes", "x.py"), None),
    (("notes-mcp", "x.py"), None),
    ((), None),
)
def test_the_script_of_a_command(words, script):
    assert find_script(words) == script
