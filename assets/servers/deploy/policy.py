"""The policy of launches: settings, grants, secrets, and what the user has to confirm."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from assets.servers.deploy.grants import ServerGrant, list_granted_places
from assets.servers.oauth_login import OAuthAccounts
from assets.servers.probe.failure_kinds import ProbeFailure
from assets.servers.probe.probe import PROBE_VERSION
from assets.servers.probe.remote_transport import RemotePolicy
from assets.servers.probe.session import ProbePolicy
from assets.servers.recipes.placeholders import split_words
from assets.servers.recipes.recipe import LaunchRecipe
from assets.servers.sandbox.spec import SandboxPolicy
from assets.servers.secrets import LaunchSecrets, SecretError, SecretSources
from warehouse.fleet import Fleet, LocalFleet
from warehouse.storage.digest import digest

_NOTHING = ServerGrant()


@dataclass(frozen=True)
class DeployPolicy:
    """How servers are run.

    home: where artefacts and caches lie (`<home>/artifacts`, `<home>/cache`). remote: None lists
    remote servers and probes none. accounts: of remote servers. grants: what single servers may
    reach besides. own: toolmill's own files and folders, which no grant may show. confirmed: by
    server, digests of recipes whose arguments and variables its user confirmed. placeholders:
    whether a further try may make up values. outside: whether remote servers beyond this host may
    be asked. twice: whether each
    server is asked a second time, by somebody else. stateless: servers that remember nothing
    between calls, so that all callers may share one that runs. listed: files and folders with
    mcpServers, whose commands can be planned by their server id.
    """

    home: Path
    sandbox: SandboxPolicy = field(default_factory=SandboxPolicy)
    conversation: ProbePolicy = field(default_factory=ProbePolicy)
    remote: RemotePolicy | None = None
    secrets: SecretSources = field(default_factory=lambda: SecretSources({}, bytes(16)))
    accounts: OAuthAccounts | None = None
    grants: Mapping[str, ServerGrant] = field(default_factory=dict)
    own: tuple[Path, ...] = ()
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

    def grant_of(self, server_id: str) -> ServerGrant:
        """What one server may reach besides; nothing where nobody granted it anything."""
        return self.grants.get(server_id, _NOTHING)


@dataclass(frozen=True)
class MarketplaceLauncher:
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
    try:
        fingerprint = policy.secrets.given(server_id).fingerprint()
    except SecretError as error:  # a condition too: once the secret is there, the server is due
        fingerprint = digest(str(error))
    facts = {
        "probe": PROBE_VERSION,
        "network": sandbox.network,
        "memory_mb": sandbox.memory_mb,
        "backend": sandbox.backend,
        "placeholders": policy.placeholders,
        "twice": policy.twice,
        "asked": remote and policy.remote is not None,
        "account": bool(remote and policy.accounts and policy.accounts.known(server_id)),
        "secrets": fingerprint,
    }
    if confirmed := policy.confirmed.get(server_id):
        facts["confirmed"] = sorted(confirmed)
    grant = policy.grant_of(server_id)
    if grant.folders:  # never what they hold
        folders = grant.folders
        facts["folders"] = [[str(each.host), each.inside, each.writable] for each in folders]
    if grant.hosts:
        facts["hosts"] = sorted(grant.hosts)
    return digest(facts)


_MOST = 2000  # characters that a user is asked to read
# What a loader, an interpreter, a shell or a TLS library does before the server's own first line.
_CODE = re.compile(
    r"(?i)(?!NODE_ENV$)((LD|DYLD|NODE|TS_NODE|BUN|DENO|ELECTRON|DOTNET|_?JAVA|JDK|BASH|GIT|NPM|UV|PIP"
    r"|SSL|OPENSSL|MALLOC|GLIBC|GCONV)_\w*|(PYTHON|PERL5|RUBY(OPT|LIB))\w*|PATH|ENV|IFS|SHELLOPTS"
    r"|LOCPATH|NLSPATH|GETCONF_DIR|SSLKEYLOGFILE|(REQUESTS|CURL)_CA_BUNDLE"
    r"|HOME|USERPROFILE|XDG_\w*|TMPDIR|SHELL|PAGER|\w*EDITOR|VISUAL|BROWSER|COMSPEC|PATHEXT"
    r"|HOSTALIASES|LOCALDOMAIN|RES_OPTIONS|KUBECONFIG|DOCKER_CONFIG|PGSERVICE\w*|PGPASSFILE|PGSYS\w*"
    r"|\w*_(CONFIG|CREDENTIALS|RC)_?FILE|\w*_(BINARY|EXECUTABLE|EXEC|BIN|COMMAND|CMD|WRAPPER)(_PATH)?"
    r"|(LUA|R|JULIA|GO|CARGO|RUSTC?|PHP|CMAKE|GEM|BUNDLE|COMPOSER|GRADLE|MAVEN|M2|ERL|ELIXIR|GUILE"
    r"|TCL|EMACS|VIM|PUPPETEER|PLAYWRIGHT|CHROME|ESBUILD)_\w*"
    r"|\w*(_RC|_INIT|PRELOAD|_PLUGINS?)|(INPUT|WGET|CURL|NPM)RC|(VIM|EX)INIT|GOFLAGS|\w*HOSTADDR)"
)
# Where a server sends what it holds, read word by word: GITHUB_API_URL, httpsProxy, DD_SITE.
_PLACE = re.compile(
    r"\b(proxy|ur[il]s?|endpoints?|hosts?|hostname|domains?|base|origin|gateway|webhook|addr(ess)?"
    r"|site|instance|dsn|issuer|authority)\b|(proxy|url|endpoint|host)$"
)


def find_unconfirmed(
    recipe: LaunchRecipe, secrets: LaunchSecrets, policy: DeployPolicy
) -> ProbeFailure | None:
    """Why a recipe is not launched with what its user gave it; None where nothing was given, the
    listing chose nothing, or its user confirmed what it chose. A private command is launched only
    once it is confirmed, whatever it is given."""
    name, confirmed = recipe.server_id, policy.confirmed.get(recipe.server_id, ())
    recipe_digest = digest_confirmed(recipe)
    if recipe.ecosystem == "private":
        if recipe_digest in confirmed:
            return None
        was = "is another one than you trusted" if confirmed else "is not trusted yet"
        detail = f"a command of your own {was}: {describe_command(recipe)[:_MOST]}"
        fix = f"`toolmill trust {shlex.quote(name)}` shows and trusts it"
        return ProbeFailure("needs_confirmation", f"{detail}; {fix}")
    gift = _describe_gift(recipe, secrets, policy)
    if gift is None:
        return None
    env = {key: value for key, value in recipe.env if key not in secrets.env}
    sent = {key.lower() for key in secrets.headers}
    headers = {key: value for key, value in recipe.headers if key.lower() not in sent}
    server = f'[servers."{name}"'
    if redirecting := sorted(filter(is_redirecting, env)):
        example = f'{redirecting[0]} = "env:{redirecting[0]}" below {server}.env]'
        return ProbeFailure(
            "policy_denied",
            f"{name} has {gift}, and {', '.join(redirecting)[:300]} of its listing"
            " decide what code runs or where that goes; give your own value"
            f" ({example} in toolmill.toml)",
        )
    granted = list_granted_places(recipe, policy.grant_of(name))
    args = [word for place, word in enumerate(recipe.args) if f"arg:{place}" not in granted]
    env = {key: value for key, value in env.items() if f"env:{key}" not in granted}
    # An address counts where it holds more than the server id: a query, or what is before an @.
    url = (recipe.url or "") if recipe.ecosystem == "remote" else ""
    address = urlsplit(url)
    if not (address.query or address.fragment or "@" in address.netloc):
        url = ""
    if not (env or headers or args or url) or recipe_digest in confirmed:
        return None
    # In ASCII: third-party text that a user reads before agreeing to it.
    facts = {"address": url, "arguments": list(recipe.args), "variables": env, "headers": headers}
    choice = ", ".join(f"{key} {json.dumps(part)}" for key, part in facts.items() if part)
    if len(choice) > _MOST:
        detail = f"{name}: {len(choice)} characters of arguments and variables"
        return ProbeFailure("policy_denied", f"{detail}, at most {_MOST} can be confirmed")
    return ProbeFailure(
        "needs_confirmation",
        f"{name} has {gift}, and its listing chose {choice}; if that is right, write"
        f' {server}] confirmed = ["{recipe_digest}"] in toolmill.toml',
    )


def describe_command(recipe: LaunchRecipe) -> str:
    """What a private recipe launches, in a line of ASCII."""
    facts: dict[str, Any] = {"command": [*recipe.command, *recipe.args]}
    facts |= {"folder": recipe.directory}
    facts |= {"variables": [name for name, _ in recipe.env]}
    return ", ".join(f"{name} {json.dumps(part)}" for name, part in facts.items() if part)


def is_redirecting(name: str) -> bool:
    """Whether a variable decides what code runs besides the server's, or where it sends things."""
    return bool(_CODE.fullmatch(name) or _PLACE.search(split_words(name)))


def digest_confirmed(recipe: LaunchRecipe) -> str:
    """The recipe's digest without what its user need not look at: which values are made up, those
    of further tries, and the date of its dependencies. Of a private one also without its
    name, what its folder holds, which its owner goes on editing, and plain values of variables."""
    fixed: dict[str, Any] = {"placeholders": (), "spare_env": (), "as_of": None}
    if recipe.ecosystem == "private":
        env = tuple((name, value if is_redirecting(name) else "") for name, value in recipe.env)
        fixed |= {"integrity": None, "name": "", "env": env}
    return recipe.model_copy(update=fixed).digest


def _describe_gift(
    recipe: LaunchRecipe, secrets: LaunchSecrets, policy: DeployPolicy
) -> str | None:
    """What of the user's the launch is given. A grant is one for this server: `sandbox.network`
    trusts all alike. A folder that toolmill made for the launch is nobody's."""
    remote, accounts = recipe.ecosystem == "remote", policy.accounts
    if secrets.env or secrets.headers or (remote and accounts and accounts.known(recipe.server_id)):
        return "your secret"
    grant = policy.grant_of(recipe.server_id)
    if remote:
        return None
    if grant.network == "full":
        return "the network"
    if grant.hosts:
        return "hosts of its own"
    return "your folder" if grant.folders and grant.personal else None
