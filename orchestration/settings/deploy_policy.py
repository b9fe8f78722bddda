"""From settings to how third-party servers are launched, and with which of the user's secrets."""

from pathlib import Path
from secrets import token_bytes

from assets.servers.deploy.grants import ServerGrant, mount_folders
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.oauth_login import OAuthAccounts
from assets.servers.probe.remote_transport import RemotePolicy
from assets.servers.probe.session import ProbePolicy
from assets.servers.sandbox.spec import SandboxPolicy
from assets.servers.secrets import SecretSources
from orchestration.settings.model import Settings, config_path
from orchestration.settings.schema import ServerSection
from orchestration.settings.sections import derive_policy
from warehouse.storage.files import hold_lock, write_atomically


def make_deploy_policy(settings: Settings) -> DeployPolicy:
    limits = settings.sandbox
    sandbox = derive_policy(SandboxPolicy, limits, allow_loopback=settings.source == "demo")
    secrets = SecretSources(settings.servers, lambda: _read_salt(settings.state_path()))
    state = settings.state_path()
    # The demo's own remote server is on this host; a live marketplace's never is
    return DeployPolicy(
        home=settings.home_path(),
        sandbox=sandbox,
        conversation=ProbePolicy(
            start_s=limits.start_s, idle_s=limits.start_s / 3, list_s=limits.start_s
        ),
        remote=None
        if settings.sandbox.remote == "never"
        else RemotePolicy(allow_loopback=settings.source == "demo"),
        secrets=secrets,
        accounts=OAuthAccounts(state),
        grants={name: make_grant(section) for name, section in settings.servers.items()},
        own=(settings.home_path(), settings.state_path(), config_path().absolute()),
        confirmed={name: section.confirmed for name, section in settings.servers.items()},
        outside=settings.source == "live" or limits.remote == "always",
        twice=limits.twice,
        stateless=frozenset(
            name for name, section in settings.servers.items() if section.stateless
        ),
        listed=tuple(path.expanduser() for path in settings.marketplaces.private.paths),
    )


def make_grant(server: ServerSection) -> ServerGrant:
    return ServerGrant(
        network=server.network,
        folders=mount_folders(server.folders),
        hosts=server.hosts,
        personal=True,
    )


def _read_salt(state: Path) -> bytes:
    """What keys the fingerprints of secrets on this machine; made once, its owner's alone."""
    path = state / "salt"
    with hold_lock(path.with_suffix(".lock")):
        if not path.exists():
            write_atomically(path, token_bytes(32))
            path.chmod(0o600)
        return path.read_bytes()
