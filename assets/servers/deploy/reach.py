"""A launch with what its user granted: folders, a volume as its home, hosts behind a gateway."""

import json
import os
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import anyio
from anyio.abc import SocketStream

from assets.servers.deploy.grants import ServerGrant, prepare_folders
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.deploy.volume import choose_volume_user, prepare_volume
from assets.servers.egress import tool_relay
from assets.servers.egress.gateway import (
    GATEWAY,
    Dial,
    Gateway,
    HostLog,
    build_relayed,
    open_gateway,
)
from assets.servers.egress.hosts import find_wanted_host, make_granted_dial, parse_host
from assets.servers.egress.proxy_request import Host
from assets.servers.probe.probe import ProbeResult, probe
from assets.servers.probe.session import ProbePolicy
from assets.servers.sandbox.environment import choose_user
from assets.servers.sandbox.process import choose_backend
from assets.servers.sandbox.spec import Launch, Mount, SandboxPolicy

_PROXY = f"http://127.0.0.1:{tool_relay.PORT}"
_HTTP = 80
_FIRST_PORT = tool_relay.PORT + 1
_NODE = Mount(Path(tool_relay.__file__).with_name("connect.js"), "/srv/egress/connect.js")
_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_LOCAL = ("localhost", "127.0.0.1", "::1")  # the sandbox's own, unless the user named the host's
_FIRST_USER, _USERS = 1_200_000_000, 1 << 24
# What a server that was refused a host may fail with, besides saying so.
_MAYBE = ("crashed", "timeout_start", "timeout_list", "no_tools")


def apply_grant(launch: Launch, server_id: str, policy: DeployPolicy) -> Launch:
    """The launch with its folders and its volume, which are ready from here on. While the volume is
    held."""
    grant, volume = policy.grant_of(server_id), policy.volume_of(server_id)
    prepare_folders(grant)
    user = grant.user
    if volume:
        user = user or choose_volume_user(volume)
        prepare_volume(volume, user, grant.folders)
    mounts = (*launch.mounts, *grant.folders)
    return replace(launch, mounts=mounts, uid=user, volume=volume)


@contextmanager
def open_hosts(
    launch: Launch, grant: ServerGrant, sandbox: SandboxPolicy, python: Path
) -> Iterator[tuple[Launch, HostLog]]:
    """(the launch with its granted hosts in reach, its connections and their outcomes, which grow).
    Without isolation there is no gateway: such a server has this host's network."""
    sites = {(site.host, _HTTP): site.socket for site in grant.sites}
    hosts = frozenset([*map(parse_host, grant.hosts), *sites])
    if not hosts or choose_backend(sandbox).name == "none":
        yield launch, HostLog()
        return
    root = os.geteuid() == 0
    # Known before the sandbox is: only this user may connect to the gateway's socket.
    user = launch.uid or (choose_user(_FIRST_USER, _USERS) if root else os.getuid())
    gateway = Gateway(hosts, {}, _make_dial(hosts, sites))
    with open_gateway(gateway, user if root else None) as folder:
        yield (
            replace(
                launch,
                argv=build_relayed(python, launch.argv),
                env={**launch.env, **_build_proxy_settings(hosts, launch.env)},
                mounts=(*launch.mounts, Mount(folder, GATEWAY), _NODE),
                uid=user,
            ),
            gateway.log,
        )


def _make_dial(hosts: Collection[Host], sites: Mapping[Host, Path]) -> Dial:
    """Sites of ours are dialled at their sockets, whatever their name leads to; hosts as ever."""
    dial_granted = make_granted_dial(hosts)

    async def dial(host: str, port: int) -> SocketStream:
        socket = sites.get((host, port))
        return await (anyio.connect_unix(socket) if socket else dial_granted(host, port))

    return dial


def probe_granted(
    launch: Launch,
    server_id: str,
    policy: DeployPolicy,
    python: Path,
    conversation: ProbePolicy | None = None,
) -> ProbeResult:
    """`probe` of a launch with its granted hosts in reach. What it asked for beyond them is in the
    result, and in its hint. python: runs the relay inside."""
    sandbox, grant = policy.sandbox_of(server_id), policy.grant_of(server_id)
    with open_hosts(launch, grant, sandbox, python) as (reaching, log):
        result = probe(reaching, sandbox, conversation or policy.conversation)
        return explain_network(result, server_id, log.refused)


def explain_network(result: ProbeResult, server_id: str, refused: Sequence[str]) -> ProbeResult:
    """The result with what was refused, and with the command that grants it where that may be why
    the server failed."""
    refused = list(dict.fromkeys(refused))
    explained = replace(result, refused=refused)
    if result.error_kind is None or not (refused or result.error_kind == "needs_network"):
        return explained
    kind = "needs_network" if result.error_kind in _MAYBE else result.error_kind
    advice = format_advice(server_id, refused, f"{result.hint}\n{result.stderr_tail}")
    return replace(explained, error_kind=kind, hint=f"{result.hint}; {advice}")


def format_advice(server_id: str, refused: Sequence[str], text: str) -> str:
    """The command that grants a server the host that it wants: as it was refused, else as its own
    words name it."""
    asked = f"it asked for {', '.join(refused[:5])}; " if refused else ""
    if any(one.endswith(")") for one in refused):
        return f"{asked}a name that leads to a private address is not granted by itself"
    server = shlex.quote(server_id)
    wanted = next((one for one in refused if not one.startswith("(")), None)
    wanted = wanted.removesuffix(":443") if wanted else find_wanted_host(text)
    if wanted is None:
        return f"{asked}to grant it the network: `toolmill grant {server} --network full`"
    return f"{asked}to grant it: `toolmill grant {server} --host {wanted}`"


def _build_proxy_settings(hosts: Collection[Host], env: Mapping[str, str]) -> dict[str, str]:
    """What programs find their proxy by. Not SOCKS: httpx ends without a package for it. Node.js
    before 22.21 takes none at all, so it is led to a port of the relay for each host."""
    names = {host for host, _ in hosts}
    local = ",".join(name for name in _LOCAL if name not in names)
    named = {one: _PROXY for name in _NAMES for one in (name, name.lower())}
    ports = {f"{host}:{port}": _FIRST_PORT + n for n, (host, port) in enumerate(sorted(hosts))}
    options = f"{env.get('NODE_OPTIONS', '')} --require={_NODE.inside}".strip()
    node = {"NODE_USE_ENV_PROXY": "1", "NODE_OPTIONS": options, "TOOLMILL_HOSTS": json.dumps(ports)}
    return {**named, "NO_PROXY": local, "no_proxy": local, **node}
