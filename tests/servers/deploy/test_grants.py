"""What a user grants one server: where it is seen, what is refused, what really is reachable."""

import os
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from assets.servers.calls.connection import plan_launch
from assets.servers.calls.result import CallFailed
from assets.servers.deploy.deploy import deploy, find_refusal, make_failed
from assets.servers.deploy.deployment_table import DeploymentJob
from assets.servers.deploy.grants import (
    SERVER_UID,
    ServerGrant,
    assign_folder,
    find_folder_problem,
    find_grant_problem,
    list_granted_places,
    mount_folders,
)
from assets.servers.deploy.launch import apply_grant
from assets.servers.deploy.policy import (
    DeployPolicy,
    digest_conditions,
    digest_confirmed,
    find_unconfirmed,
    is_redirecting,
    with_network,
)
from assets.servers.probe.failure_kinds import PackageError, ProbeFailure
from assets.servers.recipes.placeholders import DATA
from assets.servers.recipes.recipe import LaunchRecipe, dump_recipe
from assets.servers.sandbox.spec import SandboxLaunch, SandboxMount
from assets.servers.secrets import LaunchSecrets, SecretSources
from tests.servers.conftest import make_secrets, npm
from tests.serving.calling import NPM
from tests.support.cases import cases
from tests.support.errors import expect_kind
from tests.support.untrusted_server import CONVERSATION, POLICY, install_source, tool_names

RECIPE = NPM.model_copy(update={"args": (DATA,), "placeholders": ("arg:0",)})
NAME = RECIPE.server_id
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root's sandbox runs as another user")
# Tools named after what a server finds in its folders, and after what it could do there.
LOOK = """
def try_write(name):
    try:
        open(name, "w").write("by the server")
        return "wrote_" + os.path.basename(name)
    except OSError as error:
        return "no_" + type(error).__name__ + "_" + os.path.basename(name)
folder = sys.argv[1]
found = sorted(os.listdir(folder)) + [open(folder + "/notes.txt").read()]
serve([tool(one) for one in [*found, try_write(folder + "/new.txt")]])
"""


@pytest.fixture
def notes(tmp_path):
    """A user's folder with one closed file in it."""
    folder = tmp_path / "notes"
    folder.mkdir(mode=0o700)
    (folder / "notes.txt").write_text("mine")
    (folder / "notes.txt").chmod(0o600)
    if os.geteuid() == 0:
        for path in (folder, folder / "notes.txt"):
            os.chown(path, 4242, 4242)
    return folder


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A policy under which `deploy` finds a server that looks into its folder."""
    install_source(tmp_path, monkeypatch, LOOK)
    return DeployPolicy(tmp_path / "home", POLICY, CONVERSATION, twice=False)


def grant(*folders: str, **more) -> dict[str, ServerGrant]:
    return {NAME: ServerGrant(folders=mount_folders(folders), personal=True, **more)}


def test_the_first_folder_is_what_recipes_name_and_others_lie_beside_it():
    mounts = mount_folders(["/srv/notes", "/srv/work/:rw", "/srv/read:ro"])
    assert [(str(mount.host), mount.inside, mount.writable) for mount in mounts] == [
        ("/srv/notes", DATA, False),
        ("/srv/work", "/home/user/work", True),
        ("/srv/read", "/home/user/read", False),
    ]


@cases(
    "folders, problem",
    (["notes"], "expected a full path"),
    (["~nobody-of-that-name/x"], "no home folder of that name"),
    (["/srv/a/notes", "/srv/b/x", "/srv/c/x"], "/srv/b/x and /srv/c/x: both are /home/user/x"),
    (["/srv/notes", "/srv/data"], "both are /home/user/data"),
    (["/"], "is a home folder"),
    (["/home"], "is a home folder"),
    (["~"], "is a home folder"),
)
def test_folders_that_cannot_be_shown_are_refused_before_the_disk_is_asked(folders, problem):
    with pytest.raises(ValueError, match=problem):
        mount_folders(folders)


def test_a_folder_is_granted_as_what_it_is_and_with_nothing_that_toolmill_keeps(tmp_path, notes):
    (tmp_path / "link").symlink_to(notes)
    (notes / "in").mkdir()
    assert find_folder_problem(notes) is None
    assert "no such folder" in str(find_folder_problem(tmp_path / "none"))
    assert "no such folder" in str(find_folder_problem(tmp_path / ("long" * 100)))
    assert f"that leads to {notes}:" in str(find_folder_problem(tmp_path / "link"))
    assert f"that leads to {notes / 'in'}:" in str(find_folder_problem(tmp_path / "link" / "in"))
    assert f"the folder that holds it, {notes}" in str(find_folder_problem(notes / "notes.txt"))
    state, config = notes / "var" / "state", notes / "toolmill.toml"
    state.mkdir(parents=True)
    config.touch()

    def problem(folder: str, *own) -> str:
        return str(find_grant_problem(grant(folder)[NAME], own))

    assert f"toolmill keeps its own files in {state}" in problem(f"{notes}", state)
    assert f"toolmill keeps its own files in {state}" in problem(f"{state}", state)
    assert "could grant itself more: grant it read-only" in problem(f"{notes}:rw", config)
    assert problem(f"{notes}", config) == "None"
    config.unlink()
    config.symlink_to(tmp_path / "elsewhere.toml")  # which the server could lead elsewhere still
    assert "could grant itself more: grant it read-only" in problem(f"{notes}:rw", config)


@cases("folder", "/tmp", "/run", "/proc/self", "/dev/shm")
def test_where_other_programs_keep_their_sockets_is_no_grant(folder):
    assert "keep sockets there" in str(find_folder_problem(Path(folder).resolve()))
    assert "no such folder" in str(find_folder_problem(Path("/run/media/me/no-such-disk")))


def test_a_folder_in_what_another_server_may_write_is_not_granted(tmp_path, notes):
    inner = notes / "in"
    inner.mkdir()
    for about, other, problem in (
        (f"{inner}", f"{notes}:rw", f"folder {inner}: it lies in {notes}, which npm:y may write"),
        (f"{inner}", f"{notes}", "None"),
        (f"{notes}", f"{inner}:rw", "None"),
        (f"{notes}", f"{notes}:rw", "None"),  # a folder itself is swapped by nobody inside
    ):
        others = {"npm:y": grant(other)[NAME]}
        found = str(find_grant_problem(grant(about)[NAME], (), others))
        assert found.startswith(problem)
        policy = DeployPolicy(tmp_path, grants={**grant(about), **others})
        assert (find_refusal(RECIPE, policy) is None) == (found == "None")


@AS_ROOT
def test_a_folder_behind_a_link_is_no_grant_at_the_launch(tmp_path, notes):
    (tmp_path / "link").symlink_to(notes)
    policy = DeployPolicy(tmp_path, grants=grant(f"{tmp_path / 'link'}"))
    with expect_kind(PackageError, "bad_grant", "behind a link"):
        apply_grant(SandboxLaunch(("true",)), NAME, policy)


def test_a_server_reads_what_it_was_granted_and_writes_only_where_it_may(installed, notes):
    results = {}
    for folder in (f"{notes}", f"{notes}:rw"):
        deployed = deploy(RECIPE, replace(installed, grants=grant(folder)))
        assert deployed.probe.status == "ok", deployed.probe.hint
        assert deployed.placeholders == ()
        results[folder.endswith(":rw")] = tool_names(deployed.probe)
    assert results[False] == ["notes.txt", "mine", "no_OSError_new.txt"]
    assert results[True] == ["notes.txt", "mine", "wrote_new.txt"]
    assert (notes / "new.txt").read_text() == "by the server"
    assert (notes / "new.txt").stat().st_uid == notes.stat().st_uid
    assert [path.stat().st_mode & 0o777 for path in (notes, notes / "notes.txt")] == [0o700, 0o600]


def test_without_a_grant_the_path_is_made_up_and_a_folder_that_is_gone_is_one_row(installed, notes):
    deployed = deploy(RECIPE, installed)
    assert (deployed.probe.status, deployed.placeholders) == ("failed", ("arg:0",))
    gone = replace(installed, grants=grant(f"{notes}/none"))
    result = deploy(RECIPE, gone).probe
    assert result.error_kind == "bad_grant"
    assert f"folder {notes}/none: no such folder" in str(result.hint)
    with pytest.raises(CallFailed, match="no such folder") as refused:
        plan_launch(NAME, dump_recipe(RECIPE), gone)
    assert (refused.value.kind, refused.value.sent) == ("bad_grant", False)


@AS_ROOT
def test_a_folder_of_root_is_written_only_where_toolmill_made_it_for_a_launch(installed, notes):
    os.chown(notes, 0, 0)
    result = deploy(RECIPE, replace(installed, grants=grant(f"{notes}:rw"))).probe
    assert result.error_kind == "bad_grant"
    fix = "never runs as root: give the folder to a user (chown -R USER FOLDER)"
    assert fix in str(result.hint)
    assert list(notes.iterdir()) == [notes / "notes.txt"]
    for path in (notes, notes / "notes.txt"):
        os.chown(path, 0, 0)
    (notes / "out").symlink_to("/etc/hostname")
    grants = {NAME: ServerGrant(folders=(SandboxMount(notes, DATA, writable=True),))}
    deployed = deploy(RECIPE, replace(installed, grants=grants))
    assert "wrote_new.txt" in tool_names(deployed.probe)
    assert {path.lstat().st_uid for path in notes.iterdir()} == {SERVER_UID}
    assert os.stat("/etc/hostname").st_uid == 0


@AS_ROOT
def test_a_folder_swapped_for_a_link_meanwhile_changes_no_owner(tmp_path, notes, monkeypatch):
    """A server that still runs in a folder of toolmill's own leads a path elsewhere."""
    outside, inner = tmp_path / "outside", notes / "in"
    for folder in (outside, inner):
        folder.mkdir()
        (folder / "file").write_text("root's")
    stat_path, swapped = os.stat, []

    def stat_and_swap(path, *rest, **more):
        if not swapped and os.path.basename(str(path)) == "file":
            swapped.append(path)
            inner.rename(tmp_path / "aside")
            inner.symlink_to(outside)
        return stat_path(path, *rest, **more)

    monkeypatch.setattr(os, "stat", stat_and_swap)
    monkeypatch.setattr(os, "lstat", lambda path: stat_and_swap(path, follow_symlinks=False))
    assign_folder(notes)
    monkeypatch.undo()
    assert swapped
    assert (outside / "file").stat().st_uid == 0


def test_a_granted_server_is_due_again_and_what_the_folder_holds_is_no_condition(tmp_path, notes):
    policy = DeployPolicy(tmp_path)
    granted = replace(policy, grants=grant(f"{notes}"))
    listing = npm("x", "1.0.0")
    row = {
        "recipe_digest": "r",
        "status": "ok",
        "conditions": digest_conditions(NAME, policy),
        "launch_digest": DeploymentJob(NAME, listing, None, policy).launch_digest,
    }
    assert DeploymentJob(NAME, listing, row, policy).stands(0.0)
    assert not DeploymentJob(NAME, listing, row, granted).stands(0.0)
    before = digest_conditions(NAME, granted)
    (notes / "more.txt").write_text("x")
    assert digest_conditions(NAME, granted) == before
    assert digest_conditions("npm:y", granted) == digest_conditions("npm:y", policy)
    written = replace(policy, grants=grant(f"{notes}:rw"))
    assert digest_conditions(NAME, written) not in (before, digest_conditions(NAME, policy))


def test_a_granted_folder_makes_paths_real_and_one_of_toolmills_keeps_hosts_alone(tmp_path, notes):
    given = grant(f"{notes}")[NAME]
    about = {
        "args": (DATA, "--in", f"{DATA}/placeholder.txt"),
        "env": (("ROOT", DATA), ("URL", "https://placeholder.example.com")),
        "placeholders": ("arg:0", "arg:2", "env:ROOT", "env:URL"),
    }
    recipe = RECIPE.model_copy(update=about)
    assert list_granted_places(recipe, given) == {"arg:0", "env:ROOT"}
    assert list_granted_places(recipe, ServerGrant("full")) == set()
    policy = DeployPolicy(tmp_path, grants={NAME: replace(given, personal=False)})
    assert plan_launch(NAME, dump_recipe(recipe), policy).made_up == ("arg:2", "env:URL")
    own = ServerGrant(folders=mount_folders([f"{notes}:rw"]), hosts=("a.example",))
    ours = ServerGrant(folders=(SandboxMount(notes, DATA),))
    made = ours.with_network_of(replace(own, personal=True))
    assert made == replace(ours, hosts=("a.example",))
    granted = [grant.has_network for grant in (made, own, ServerGrant("full"), ServerGrant())]
    assert granted == [True, True, True, False]
    assert not made.reaches_own


@cases(
    "chosen, kind",
    ({"args": (DATA,)}, None),
    ({"env": (("ROOT", DATA),)}, None),
    ({"args": ("--delete", DATA)}, "needs_confirmation"),
    ({"env": (("MODE", "x"),)}, "needs_confirmation"),
    ({"env": (("NODE_OPTIONS", "--import=data:x"),)}, "policy_denied"),
    ({"env": (("PATH", DATA),)}, "policy_denied"),
)
def test_what_a_listing_chose_is_confirmed_beside_a_users_folder(tmp_path, notes, chosen, kind):
    recipe = RECIPE.model_copy(update={"args": (), "placeholders": (), **chosen})
    policy = DeployPolicy(tmp_path, grants=grant(f"{notes}"))
    found = find_unconfirmed(recipe, policy.secrets.given(NAME), policy)
    assert (found and found.kind) == kind
    policy = replace(policy, grants={NAME: replace(policy.grant_of(NAME), personal=False)})
    assert find_unconfirmed(recipe, policy.secrets.given(NAME), policy) is None


GITHUB = "npm:github-mcp"
TOKEN = LaunchSecrets({"GITHUB_TOKEN": "a-real-token"})


@pytest.fixture
def policy(tmp_path, monkeypatch):
    """A user with a real token for one server; nothing is fetched or launched."""
    monkeypatch.setenv("MY_TOKEN", "a-real-token")
    launched = make_failed(ProbeFailure("crashed", "it was launched"))
    monkeypatch.setattr("assets.servers.deploy.deploy.RecipeLauncher.run", lambda _: launched)
    return DeployPolicy(tmp_path, secrets=make_secrets(GITHUB, GITHUB_TOKEN="env:MY_TOKEN"))


def chosen(**facts):
    return NPM.model_copy(update={"server_id": GITHUB, "name": "github-mcp", **facts})


@cases(
    "name",
    *("NODE_OPTIONS", "NODE_EXTRA_CA_CERTS", "LD_PRELOAD", "PYTHONPATH", "PYTHONSTARTUP"),
    *("HTTPS_PROXY", "all_proxy", "GLOBAL_AGENT_HTTP_PROXY", "GITHUB_API_URL", "httpsProxy"),
    *("OPENAI_BASE_URL", "GITHUB_HOST", "DD_SITE", "BASH_ENV", "PATH", "SSL_CERT_FILE"),
    *("GIT_SSH_COMMAND", "BASE_URI", "SENTRY_DSN", "JAVA_TOOL_OPTIONS", "apiEndpoint"),
    *("HOSTALIASES", "LOCALDOMAIN", "KUBECONFIG", "AWS_CONFIG_FILE", "HOME", "SHELL"),
    *("XDG_CONFIG_HOME", "EDITOR", "ESBUILD_BINARY_PATH", "PUPPETEER_EXECUTABLE_PATH"),
    *("LUA_INIT", "RUSTC_WRAPPER", "PGHOSTADDR", "AWS_SHARED_CREDENTIALS_FILE", "INPUTRC"),
)
@cases("grant", "secret", "network")
def test_what_redirects_a_secret_is_refused_always(policy, name, grant):
    recipe = chosen(env=((name, "x"),))
    policy = replace(policy, confirmed={GITHUB: (digest_confirmed(recipe),)})
    if grant == "network":
        full, nothing = {GITHUB: ServerGrant("full")}, SecretSources({}, bytes(16))
        policy = replace(policy, secrets=nothing, grants=full)
    result = deploy(recipe, policy).probe
    assert (result.error_kind, name in str(result.hint)) == ("policy_denied", True)
    assert f'{name} = "env:{name}" below [servers."{GITHUB}".env]' in str(result.hint)
    with expect_kind(CallFailed, "policy_denied"):
        plan_launch(GITHUB, dump_recipe(recipe), policy)


@cases(
    "name",
    *("LOG_LEVEL", "MCP_MODE", "TEAM_ID", "WORKSPACE", "GITHUB_TOOLSETS", "NODE_ENV"),
    *("PIPELINE", "LANG", "TZ", "DEBUG", "PORT", "GITHUB_TOKEN", "SOURCE", "SRC", "MAX_RESULTS"),
)
def test_an_ordinary_variable_redirects_nothing(name):
    assert not is_redirecting(name)


@cases(
    "facts",
    {"args": ("--toolsets", "all")},
    {"env": (("MODE", "full"),)},
    {"env": (("MODE", "placeholder"),), "placeholders": ("env:MODE",)},
)
def test_what_a_listing_chose_asks_once_and_a_changed_recipe_asks_again(policy, facts):
    recipe = chosen(**facts)
    result = deploy(recipe, policy).probe
    assert result.error_kind == "needs_confirmation"
    line = f'[servers."{GITHUB}"] confirmed = ["{digest_confirmed(recipe)}"]'
    assert line in str(result.hint)
    assert all(word in str(result.hint) for word in recipe.args)
    with expect_kind(CallFailed, "needs_confirmation"):
        plan_launch(GITHUB, dump_recipe(recipe), policy)
    agreed = replace(policy, confirmed={GITHUB: (digest_confirmed(recipe),)})
    assert deploy(recipe, agreed).probe.error_kind == "crashed"
    assert digest_conditions(GITHUB, agreed) != digest_conditions(GITHUB, policy)  # so it is due
    for change in ({"version": "1.0.1"}, {"args": ("--evil",)}, {"integrity": "sha512-y"}):
        changed = recipe.model_copy(update=change)
        assert deploy(changed, agreed).probe.error_kind == "needs_confirmation"
    older = recipe.model_copy(update={"as_of": "2026-01-01T00:00:00Z", "placeholders": ()})
    assert find_unconfirmed(older, TOKEN, agreed) is None  # the launch that counted may be that


def test_nothing_is_asked_without_a_secret_or_grant_nor_of_what_the_user_gave(policy):
    recipe = chosen(args=("--all",), env=(("NODE_OPTIONS", "--x"),))
    free = replace(policy, secrets=SecretSources({}, bytes(16)))
    assert deploy(recipe, free).probe.error_kind == "crashed"
    assert deploy(recipe, with_network(free, "full")).probe.error_kind == "crashed"
    recipe = chosen(env=(("GITHUB_TOKEN", "placeholder"),), placeholders=("env:GITHUB_TOKEN",))
    assert deploy(recipe, policy).probe.error_kind == "crashed"
    own = LaunchSecrets({**TOKEN.env, "GITHUB_API_URL": "https://mine.example"})
    asked = chosen(env=(("GITHUB_API_URL", "https://evil.example"),))
    assert find_unconfirmed(asked, own, policy) is None


def test_headers_beside_an_account_are_asked_for_and_nothing_that_nobody_could_read(policy):
    about = {"server_id": "remote:https://x", "ecosystem": "remote", "name": "https://x"}
    recipe = LaunchRecipe(**about, headers=(("X-Tenant", "evil"),))
    real = LaunchSecrets(headers={"Authorization": "Bearer real"})
    found = find_unconfirmed(recipe, real, policy)
    assert (found.kind, '"X-Tenant": "evil"' in found.detail) == ("needs_confirmation", True)
    assert find_unconfirmed(recipe, LaunchSecrets(headers={"x-tenant": "mine"}), policy) is None
    found = find_unconfirmed(chosen(args=("a" * 3000, "--evil")), TOKEN, policy)
    assert (found.kind, "at most 2000" in found.detail) == ("policy_denied", True)
    found = find_unconfirmed(chosen(args=("a\u202eb\x1b[2J",)), TOKEN, policy)
    assert found.detail.isascii()
    assert found.detail.isprintable()


@cases("more", "?upstream=https://evil.example/", "#a", "@")
def test_an_address_with_more_than_its_server_id_is_asked_for(policy, more):
    about = {"server_id": "remote:https://x/mcp", "ecosystem": "remote", "name": "https://x/mcp"}
    url = "https://evil:pw@x/mcp" if more == "@" else f"https://x/mcp{more}"
    recipe = LaunchRecipe(**about, url=url)
    real = LaunchSecrets(headers={"Authorization": "Bearer real"})
    found = find_unconfirmed(recipe, real, policy)
    assert (found.kind, f'address "{url}"' in found.detail) == ("needs_confirmation", True)
    agreed = replace(policy, confirmed={recipe.server_id: (digest_confirmed(recipe),)})
    assert find_unconfirmed(recipe, real, agreed) is None
    changed = recipe.model_copy(update={"url": "https://x/mcp?other=1"})
    assert find_unconfirmed(changed, real, agreed)
    assert find_unconfirmed(LaunchRecipe(**about, url="https://x/mcp"), real, policy) is None


def test_a_folder_that_changes_meanwhile_is_one_clear_refusal(tmp_path, notes, monkeypatch):
    """`realpath` fails where a link that it met is a folder when it is read."""
    policy = DeployPolicy(tmp_path, grants=grant(f"{notes}"))
    swapped = Mock(side_effect=OSError(22, "Invalid argument", str(notes)))
    monkeypatch.setattr(os.path, "realpath", swapped)
    refused = find_refusal(RECIPE, policy)
    assert (refused.kind, str(notes) in refused.detail) == ("bad_grant", True)
    with expect_kind(PackageError, "bad_grant", "Invalid argument"):
        apply_grant(SandboxLaunch(("true",)), NAME, policy)
