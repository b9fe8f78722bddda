"""How servers are run: everything besides a recipe that decides what comes of a launch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from assets.servers.credentials.oauth import Accounts
from assets.servers.credentials.secrets import SecretError, Secrets
from assets.servers.deploy.grants import ServerGrant
from assets.servers.probe.probe import PROBE_VERSION
from assets.servers.probe.session import ProbePolicy
from assets.servers.remote.transport import RemotePolicy
from assets.servers.sandbox.spec import SandboxPolicy
from warehouse.fleet.fleet import Fleet, LocalFleet
from warehouse.storage.digest import digest

_NOTHING = ServerGrant()


@dataclass(frozen=True)
class DeployPolicy:
    """How servers are run.

    home: where artefacts and caches lie (`<home>/artifacts`, `<home>/cache`). remote: None lists
    remote servers and probes none. accounts: of remote servers. grants: what single servers may
    reach besides. own: toolmill's own files and folders, which no grant may show. volumes:
    where those of servers lie; None for `<home>/volumes`. confirmed: by server, digests of recipes
    whose arguments and variables its user confirmed. placeholders: whether a further try may make
    up values. outside: whether remote servers beyond this host may be asked. twice: whether each
    server is asked a second time, by somebody else. stateless: servers that remember nothing
    between calls, so that all callers may share one that runs. listed: files and folders with
    mcpServers, whose commands can be planned by their server id.
    """

    home: Path
    sandbox: SandboxPolicy = field(default_factory=SandboxPolicy)
    conversation: ProbePolicy = field(default_factory=ProbePolicy)
    remote: RemotePolicy | None = None
    secrets: Secrets = field(default_factory=lambda: Secrets({}, bytes(16)))
    accounts: Accounts | None = None
    grants: Mapping[str, ServerGrant] = field(default_factory=dict)
    own: tuple[Path, ...] = ()
    volumes: Path | None = None
    confirmed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    placeholders: bool = True
    outside: bool = True
    twice: bool = True
    stateless: frozenset[str] = frozenset()
    listed: tuple[Path, ...] = ()

    def sandbox_of(self, server_id: str) -> SandboxPolicy:
        """The limits of one server."""
        grant = self.grant_of(server_id)
        network = grant.network or ("none" if grant.reached else self.sandbox.network)
        return replace(self.sandbox, network=network)

    def volume_of(self, server_id: str) -> Path | None:
        """The folder that one server's home is kept in; None where its user granted it none."""
        if not self.grant_of(server_id).volume:
            return None
        return (self.volumes or self.home / "volumes") / digest(server_id)

    def grant_of(self, server_id: str) -> ServerGrant:
        """What one server may reach besides; nothing where nobody granted it anything."""
        return self.grants.get(server_id, _NOTHING)


@dataclass(frozen=True)
class Launcher:
    """How the servers of one marketplace are run."""

    policy: DeployPolicy
    concurrency: int = 3
    fleet: Fleet = field(default_factory=LocalFleet)


def with_network(policy: DeployPolicy, network: str) -> DeployPolicy:
    """The policy with another network grant (`none` or `full`)."""
    if network not in ("none", "full"):
        raise ValueError(f"network {network!r}: expected 'none' or 'full'")
    return replace(policy, sandbox=replace(policy.sandbox, network=network))


def digest_conditions(server_id: str, policy: DeployPolicy) -> str:
    """Digest of what may change a result besides the recipe: limits, grants, secrets, the probe.

    Time-outs are not among it: a slow machine is no other server.
    """
    sandbox, remote = policy.sandbox_of(server_id), server_id.startswith("remote:")
    facts = {
        "probe": PROBE_VERSION,
        "network": sandbox.network,
        "memory_mb": sandbox.memory_mb,
        "backend": sandbox.backend,
        "scripts": sandbox.scripts,
        "placeholders": policy.placeholders,
        "twice": policy.twice,
        "asked": remote and policy.remote is not None,
        "account": bool(remote and policy.accounts and policy.accounts.known(server_id)),
        "secrets": _read_fingerprint(server_id, policy),
    }
    if confirmed := policy.confirmed.get(server_id):
        facts["confirmed"] = sorted(confirmed)
    grant = policy.grant_of(server_id)
    if grant.folders:  # never what they hold
        facts["folders"] = [
            [str(folder.host), folder.inside, folder.writable] for folder in grant.folders
        ]
    if grant.hosts:
        facts["hosts"] = sorted(grant.hosts)
    if grant.volume:
        facts["volume"] = True
    return digest(facts)


def _read_fingerprint(server_id: str, policy: DeployPolicy) -> str | None:
    """A secret that cannot be had is a condition too: once it can, the server is due."""
    try:
        return policy.secrets.given(server_id).fingerprint()
    except SecretError as error:
        return digest(str(error))
