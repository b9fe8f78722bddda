"""What a listing may choose beside its user's secret or network grant: what the user confirmed."""

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from assets.servers.credentials.secrets import Given
from assets.servers.deploy.grants import list_granted_places
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.probe.failure_kinds import Failure
from assets.servers.recipes.placeholders import split_words
from assets.servers.recipes.recipe import Recipe

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


def find_unconfirmed(recipe: Recipe, given: Given, policy: DeployPolicy) -> Failure | None:
    """Why a recipe is not launched with what its user gave it; None where nothing was given, the
    listing chose nothing, or its user confirmed what it chose. A private command is launched only
    once it is confirmed, whatever it is given."""
    if recipe.ecosystem == "private":
        return _find_untrusted(recipe, policy)
    gift = _describe_gift(recipe, given, policy)
    if gift is None:
        return None
    env = {name: value for name, value in recipe.env if name not in given.env}
    sent = {name.lower() for name in given.headers}
    headers = {name: value for name, value in recipe.headers if name.lower() not in sent}
    server = f'[servers."{recipe.server_id}"'
    if taken := sorted(name for name in env if is_redirecting(name)):
        example = f'{server}.env] {taken[0]} = "env:{taken[0]}"'
        return Failure(
            "policy_denied",
            f"{recipe.server_id} has {gift}, and {', '.join(taken)[:300]} of its listing decide"
            f" what code runs or where that goes; give your own value ({example} in toolmill.toml)",
        )
    url = _find_chosen_url(recipe)
    granted = list_granted_places(recipe, policy.grant_of(recipe.server_id))
    args = [word for place, word in enumerate(recipe.args) if f"arg:{place}" not in granted]
    env = {name: value for name, value in env.items() if f"env:{name}" not in granted}
    if not (env or headers or args or url):
        return None
    wanted = digest_confirmed(recipe)
    if wanted in policy.confirmed.get(recipe.server_id, ()):
        return None
    shown = _describe_choice(recipe, env, headers, url)
    if len(shown) > _MOST:
        found = f"{recipe.server_id}: {len(shown)} characters of arguments and variables"
        return Failure("policy_denied", f"{found}, at most {_MOST} can be confirmed")
    return Failure(
        "needs_confirmation",
        f"{recipe.server_id} has {gift}, and its listing chose {shown}; if that is right, write"
        f' {server}] confirmed = ["{wanted}"] in toolmill.toml',
    )


def describe_command(recipe: Recipe) -> str:
    """What a private recipe launches, in a line of ASCII."""
    parts: dict[str, Any] = {"command": [*recipe.command, *recipe.args]}
    parts |= {"folder": recipe.directory} if recipe.directory else {"image": recipe.name}
    parts |= {"variables": [name for name, _ in recipe.env]}
    return ", ".join(f"{name} {json.dumps(part)}" for name, part in parts.items() if part)


def _find_untrusted(recipe: Recipe, policy: DeployPolicy) -> Failure | None:
    trusted = policy.confirmed.get(recipe.server_id, ())
    if digest_confirmed(recipe) in trusted:
        return None
    shown = describe_command(recipe)[:_MOST]
    was = "is another one than you trusted" if trusted else "is not trusted yet"
    fix = f"`toolmill trust {shlex.quote(recipe.server_id)}` shows and trusts it"
    return Failure("needs_confirmation", f"a command of your own {was}: {shown}; {fix}")


def is_redirecting(name: str) -> bool:
    """Whether a variable decides what code runs besides the server's, or where it sends things."""
    return bool(_CODE.fullmatch(name) or _PLACE.search(split_words(name)))


def digest_confirmed(recipe: Recipe) -> str:
    """The recipe's digest without what its user need not look at: which values are made up, those
    of further tries, and the date of its dependencies. Of a private one also without what its
    folder or image holds, which its owner goes on editing, and plain values of variables."""
    fixed: dict[str, Any] = {"placeholders": (), "spare_env": (), "as_of": None}
    if recipe.ecosystem == "private":
        env = tuple((name, value if is_redirecting(name) else "") for name, value in recipe.env)
        name = recipe.name if recipe.is_image else ""
        fixed |= {"integrity": None, "name": name, "env": env}
    return recipe.model_copy(update=fixed).digest


def _describe_gift(recipe: Recipe, given: Given, policy: DeployPolicy) -> str | None:
    """What of the user's the launch is given. A grant is one for this server: `sandbox.network`
    trusts all alike. A folder that toolmill made for the launch is nobody's."""
    remote, accounts = recipe.ecosystem == "remote", policy.accounts
    if given.env or given.headers or (remote and accounts and accounts.known(recipe.server_id)):
        return "your secret"
    grant = policy.grant_of(recipe.server_id)
    if remote:
        return None
    if grant.network == "full":
        return "the network"
    if grant.hosts:
        return "hosts of its own"
    return "your folder" if grant.folders and grant.personal else None


def _find_chosen_url(recipe: Recipe) -> str:
    """The address of a remote server, where it holds more than its server id does: that leaves out
    the query and what stands before an @."""
    if recipe.ecosystem != "remote" or not recipe.url:
        return ""
    parts = urlsplit(recipe.url)
    return recipe.url if parts.query or parts.fragment or "@" in parts.netloc else ""


def _describe_choice(
    recipe: Recipe, env: Mapping[str, str], headers: Mapping[str, str], url: str
) -> str:
    """ASCII: third-party text that a user reads before agreeing to it."""
    parts: dict[str, Any] = {"address": url, "arguments": list(recipe.args)}
    parts |= {"variables": dict(env), "headers": dict(headers)}
    return ", ".join(f"{name} {json.dumps(part)}" for name, part in parts.items() if part)
