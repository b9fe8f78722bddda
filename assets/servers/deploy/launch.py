"""Launches on this host: the program of a local command, granted folders and hosts."""

import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import anyio
from anyio.abc import SocketStream

from assets.marketplaces.launch.runners import UV_VALUED, split_options
from assets.servers.deploy.grants import ServerGrant, prepare_folders
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.probe.failure_kinds import PackageError
from assets.servers.probe.probe import ProbeResult, probe
from assets.servers.probe.session import ProbePolicy
from assets.servers.recipes.placeholders import DATA
from assets.servers.recipes.recipe import LaunchRecipe
from assets.servers.recipes.recipe_plan import SCRIPTS, check_command
from assets.servers.sandbox import tool_relay
from assets.servers.sandbox.gateway import (
    GATEWAY,
    EgressGateway,
    Host,
    HostLog,
    build_relayed,
    find_wanted_host,
    make_granted_dial,
    open_gateway,
    parse_host,
)
from assets.servers.sandbox.process import choose_backend
from assets.servers.sandbox.spec import (
    MountRefused,
    SandboxLaunch,
    SandboxMount,
    SandboxPolicy,
    UnusableGrant,
    choose_user,
)
from assets.servers.sandbox.toolchain import HostToolchain, is_python, list_python_files
from assets.servers.secrets import LaunchSecrets

_NO_SECRETS = LaunchSecrets()
_SEARCH = "/usr/local/bin:/usr/bin:/bin"  # the PATH of every sandbox
_PYTHON = re.compile(r"python(3(\.\d+)?)?")


def make_local_launch(
    recipe: LaunchRecipe, toolchain: HostToolchain, secrets: LaunchSecrets = _NO_SECRETS
) -> SandboxLaunch:
    """The launch of a recipe with a directory, which is shown read-only at its own path. Raises
    PackageError naming what is not there, or never shown to a server."""
    folder = str(recipe.directory)
    words = (*recipe.command, *recipe.args)
    check_command(folder, words)
    if os.geteuid() == 0 and os.stat(folder).st_mode & 0o005 != 0o005:
        detail = f"{folder} is closed to others, and a server never runs as root"
        raise PackageError("policy_denied", f"{detail}: open it (chmod -R o+rX {folder})")
    try:
        argv, mounts = _find_program(words, Path(folder), toolchain)
        runtimes = map(SandboxMount.same, toolchain.binds)
        return SandboxLaunch(
            argv=argv,
            env={**dict(recipe.env), **secrets.env},
            mounts=(*runtimes, *mounts, SandboxMount(Path(folder), folder, nofollow=True)),
            cwd=folder,
            dirs=(DATA,),
        )
    except MountRefused as error:
        raise PackageError("policy_denied", str(error)) from None


def _find_program(
    words: tuple[str, ...], folder: Path, toolchain: HostToolchain
) -> tuple[tuple[str, ...], list[SandboxMount]]:
    """(the command line inside, what it needs of this host besides the folder)."""
    if words[0] == "uv":
        words = _replace_uv(words, folder)
    name, args = words[0], words[1:]
    if name == "node" and toolchain.node:
        return (str(toolchain.node), *args), []
    if "/" in name:
        path = Path(os.path.normpath(folder / os.path.expanduser(name)))
    elif (in_environment := _find_in_environment(folder, name)) is not None:
        path = in_environment
    elif _PYTHON.fullmatch(name):
        minor = name.removeprefix("python")
        usual = "." not in minor or toolchain.python_version.startswith(f"{minor}.")
        python = toolchain.python if usual else toolchain.pythons.get(minor)
        if python is None:
            raise PackageError("needs_software", f"no {name} on this host: install it")
        return (str(python), *args), []
    else:
        path = Path(shutil.which(name, path=_SEARCH) or "")
        if not path.is_absolute():
            detail = f"no program {name!r:.120} in {_SEARCH} or an environment of {folder}"
            raise PackageError("needs_software", f"{detail}: install it, or name it by its path")
    if not os.path.isfile(path):
        raise PackageError("needs_software", f"no program {str(path)!r:.200}")
    if not os.access(path, os.X_OK):
        raise PackageError("needs_software", f"{str(path)!r:.200} is not executable: chmod +x")
    return (str(path), *args), _mount_program(path, folder)


def _replace_uv(words: tuple[str, ...], folder: Path) -> tuple[str, ...]:
    """What `uv run` would start, in the environment that it has made: inside there is no network to
    make one. Raises PackageError."""
    _, before = split_options(list(words[1:]), UV_VALUED)
    if before[:1] != ["run"]:
        raise PackageError("needs_software", f"`uv {' '.join(before[:1])[:40]}` is not `uv run`")
    options, command = split_options(before[1:], UV_VALUED - {"-m"})
    command = command[1:] if command[:1] == ["--"] else command
    if any(option in ("-m", "--module") for option, _ in options):
        command = ["python", "-m", *command]
    elif command and command[0].endswith(SCRIPTS):
        command = ["python", *command]
    if not command:
        raise PackageError("no_recipe", "`uv run` names nothing to run")
    if _find_in_environment(folder, "python") is None:
        detail = f"`uv run` needs the environment of {folder}, and inside is no network to make it"
        raise PackageError("needs_software", f"{detail}: run `uv sync` there")
    return tuple(command)


def _find_in_environment(folder: Path, name: str) -> Path | None:
    """A program of the folder's own Python environment."""
    places = [folder / environment / "bin" / name for environment in (".venv", "venv")]
    return next((place for place in places if os.path.lexists(place)), None)


def _mount_program(path: Path, folder: Path) -> list[SandboxMount]:
    """What a program at a path needs: its own file, or the environment and interpreter it is of."""
    within = path.is_relative_to(folder)
    if path.is_relative_to("/usr"):
        return []
    environment = path.parent.parent
    if not os.path.exists(environment / "pyvenv.cfg"):
        return [] if within else [SandboxMount(path.resolve(), str(path))]
    program = (path.parent / "python").resolve()  # what the environment links to
    if not is_python(program, environment):
        detail = f"{str(path.parent / 'python')!r:.200} leads to {str(program)!r:.200}"
        why = "which is not a Python: recreate the environment"
        raise PackageError("needs_software", f"{detail}, {why}")
    needed = list_python_files(program, program.parent.parent)
    mounts = [
        SandboxMount.same(path)
        for path in needed
        if path.exists() and not path.is_relative_to("/usr")
    ]
    # A version manager puts a link in between: `cpython-3.12` for `cpython-3.12.9`.
    link = Path(os.path.realpath(environment / "bin")) / "python"
    if link.is_symlink() and (first := Path(os.path.join(link.parent, os.readlink(link)))):
        prefix = first.parent.parent
        if prefix.is_symlink() and prefix.resolve() == program.parent.parent:
            mounts.append(SandboxMount(prefix.resolve(), str(prefix)))
    return mounts if within else [SandboxMount.same(environment), *mounts]


_PROXY = f"http://127.0.0.1:{tool_relay.PORT}"
_HTTP = 80
_FIRST_PORT = tool_relay.PORT + 1
_NODE = SandboxMount(Path(tool_relay.__file__).with_name("connect.js"), "/srv/egress/connect.js")
_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_LOCAL = ("localhost", "127.0.0.1", "::1")  # the sandbox's own, unless the user named the host's
# What a server that was refused a host may fail with, besides saying so.
_MAYBE = ("crashed", "timeout_start", "timeout_list", "no_tools")


def apply_grant(launch: SandboxLaunch, server_id: str, policy: DeployPolicy) -> SandboxLaunch:
    """The launch with its folders, which are ready from here on. Raises PackageError."""
    grant = policy.grant_of(server_id)
    prepare_folders(grant)
    try:
        folders = [replace(mount, nofollow=grant.personal) for mount in grant.folders]
        return replace(launch, mounts=(*launch.mounts, *folders), uid=grant.user)
    except (UnusableGrant, OSError) as error:  # it changes while it is looked at
        raise PackageError(UnusableGrant.kind, str(error)) from None


@contextmanager
def open_hosts(
    launch: SandboxLaunch, grant: ServerGrant, sandbox: SandboxPolicy, python: Path
) -> Iterator[tuple[SandboxLaunch, HostLog]]:
    """(the launch with its granted hosts in reach, its connections and their outcomes, which grow).
    Without isolation there is no gateway: such a server has this host's network."""
    sites = {(site.host, _HTTP): site.socket for site in grant.sites}
    hosts = frozenset([*map(parse_host, grant.hosts), *sites])
    if not hosts or choose_backend(sandbox).name == "none":
        yield launch, HostLog()
        return
    dial_granted = make_granted_dial(hosts)

    async def dial(host: str, port: int) -> SocketStream:
        """Sites of ours are dialled at their sockets, whatever their name leads to."""
        socket = sites.get((host, port))
        return await (anyio.connect_unix(socket) if socket else dial_granted(host, port))

    root = os.geteuid() == 0
    # Known before the sandbox is: only this user may connect to the gateway's socket.
    user = launch.uid or (choose_user() if root else os.getuid())
    gateway = EgressGateway(hosts, {}, dial)
    with open_gateway(gateway, user if root else None) as folder:
        reaching = replace(
            launch,
            argv=build_relayed(python, launch.argv),
            env={**launch.env, **_build_proxy_settings(hosts, launch.env)},
            mounts=(*launch.mounts, SandboxMount(folder, GATEWAY), _NODE),
            uid=user,
        )
        yield reaching, gateway.log


def probe_granted(
    launch: SandboxLaunch,
    server_id: str,
    policy: DeployPolicy,
    python: Path,
    conversation: ProbePolicy,
) -> ProbeResult:
    """`probe` of a launch with its granted hosts in reach. What it asked for beyond them is in the
    result, and in its hint. python: runs the relay inside."""
    sandbox, grant = policy.sandbox_of(server_id), policy.grant_of(server_id)
    with open_hosts(launch, grant, sandbox, python) as (reaching, log):
        result = probe(reaching, sandbox, conversation)
        return explain_network(result, server_id, log.refused)


def explain_network(result: ProbeResult, server_id: str, refused: Sequence[str]) -> ProbeResult:
    """The result with what was refused, and with the setting that grants it where that may be why
    the server failed."""
    refused = list(dict.fromkeys(refused))
    explained = replace(result, refused=refused)
    if result.error_kind is None or not (refused or result.error_kind == "needs_network"):
        return explained
    kind = "needs_network" if result.error_kind in _MAYBE else result.error_kind
    advice = format_advice(server_id, refused, f"{result.hint}\n{result.stderr_tail}")
    return replace(explained, error_kind=kind, hint=f"{result.hint}; {advice}")


def format_advice(server_id: str, refused: Sequence[str], text: str) -> str:
    """The setting that grants a server the host that it wants: as it was refused, else as its own
    words name it."""
    attempts = f"it asked for {', '.join(refused[:5])}; " if refused else ""
    if any(host.endswith(")") for host in refused):
        return f"{attempts}a name that leads to a private address is not granted by itself"
    block = f"under `[servers.{json.dumps(server_id)}]` of toolmill.toml"
    host = next((host for host in refused if not host.startswith("(")), None)
    host = host.removesuffix(":443") if host else find_wanted_host(text)
    if host is None:
        return f'{attempts}to grant it the network: `network = "full"` {block}'
    return f"{attempts}to grant it: `hosts = {json.dumps([host])}` {block}"


def _build_proxy_settings(hosts: Collection[Host], env: Mapping[str, str]) -> dict[str, str]:
    """What programs find their proxy by. Not SOCKS: httpx ends without a package for it. Node.js
    before 22.21 takes none at all, so it is led to a port of the relay for each host."""
    names = {host for host, _ in hosts}
    local = ",".join(name for name in _LOCAL if name not in names)
    proxies = {variable: _PROXY for name in _NAMES for variable in (name, name.lower())}
    ports = {f"{host}:{port}": _FIRST_PORT + n for n, (host, port) in enumerate(sorted(hosts))}
    options = f"{env.get('NODE_OPTIONS', '')} --require={_NODE.inside}".strip()
    node = {"NODE_USE_ENV_PROXY": "1", "NODE_OPTIONS": options, "TOOLMILL_HOSTS": json.dumps(ports)}
    return {**proxies, "NO_PROXY": local, "no_proxy": local, **node}
