"""Commands of the user's own files as they stand now: which are trusted, and what is launched."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from assets.marketplaces.adapters.private import list_file_problems, read_files
from assets.marketplaces.listing import PRIVATE, Listing, Package
from assets.marketplaces.policy import CrawlPolicy
from assets.servers.deploy.confirm import describe_command, digest_confirmed
from assets.servers.deploy.image import find_local_image
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.recipes.names import identify_server
from assets.servers.recipes.recipe import Recipe, Resolved, Unlaunchable
from assets.servers.recipes.recipe_plan import plan_recipe
from warehouse.errors import UnusableInput

State = Literal["trusted", "changed", "new", "unusable"]


class NotLocal(UnusableInput):
    """A name that no command of the user's own files has, or several have."""


@dataclass(frozen=True)
class LocalServer:
    """One command. shown: what is launched, or why nothing can be. digest: what trusting it writes,
    None where it is unusable."""

    server_id: str
    state: State
    shown: str
    network: str
    digest: str | None


def list_local_servers(files: CrawlPolicy, policy: DeployPolicy) -> list[LocalServer]:
    """What the user's files start that is no package and no address, by server id. A file that
    cannot be read, and an entry that starts nothing, are unusable."""
    made = {}
    for problem in list_file_problems(files):
        name = f"{PRIVATE}:{problem['native_id']}"
        made[name] = LocalServer(name, "unusable", problem["hint"], "none", None)
    for listing in read_files(files):
        if listing.is_local or not (listing.package or listing.url):
            found = _describe(listing, policy)
            made[found.server_id] = found
    return [made[name] for name in sorted(made)]


def find_local_server(servers: Sequence[LocalServer], name: str) -> LocalServer:
    """The one of a server id, of `FILE#KEY`, or of the only entry with that key. Raises
    NotLocal."""
    matches = [
        server
        for server in servers
        if name in (server.server_id, server.server_id[len("private:") :])
    ]
    matches = matches or [
        server for server in servers if server.server_id.rpartition("#")[2] == name
    ]
    if len(matches) == 1:
        return matches[0]
    known = ", ".join(one.server_id for one in matches or servers) or "none"
    what = "several commands" if matches else "no command"
    raise NotLocal(
        f"{name[:200]!r} names {what} of your own files (`marketplaces.private.paths`): {known}"
    )


def plan_local_server(server_id: str, policy: DeployPolicy) -> Recipe | Unlaunchable:
    """The recipe of a command of the files that the policy lists, as they stand now; whether it is
    trusted is asked when it is launched. Raises NotLocal."""
    listings = read_files(CrawlPolicy(base_url="", paths=policy.listed))
    own = {str(identify_server(listing)): listing for listing in listings if listing.is_local}
    if server_id not in own:
        known = ", ".join(sorted(own)) or "none"
        raise NotLocal(
            f"{server_id[:200]!r} is no command of your own files"
            f" (`marketplaces.private.paths`): {known}"
        )
    return _plan_listing(own[server_id], policy)


def allow_bound(policy: DeployPolicy, listed: Recipe, bound: Recipe) -> DeployPolicy:
    """The policy under which a trusted command may be launched with the arguments and variables
    that a world file gives it: whoever named that file in the settings chose them. With a network
    of its own only what was trusted word by word is launched."""
    trusted, grant = policy.confirmed.get(listed.server_id, ()), policy.grant_of(listed.server_id)
    networked = policy.sandbox_of(listed.server_id).network != "none" or grant.hosts
    if listed.ecosystem != PRIVATE or networked or digest_confirmed(listed) not in trusted:
        return policy
    more = (*trusted, digest_confirmed(bound))
    return replace(policy, confirmed={**policy.confirmed, listed.server_id: more})


def _plan_listing(listing: Listing, policy: DeployPolicy) -> Recipe | Unlaunchable:
    find_image = partial(find_local_image, sandbox=policy.sandbox)
    return plan_recipe(listing, _refuse_registry, find_image=find_image)


def _describe(listing: Listing, policy: DeployPolicy) -> LocalServer:
    recipe = _plan_listing(listing, policy)
    if isinstance(recipe, Unlaunchable):
        return LocalServer(listing.listing_id, "unusable", recipe.hint, "none", None)
    return LocalServer(
        recipe.server_id,
        _find_state(recipe, policy),
        describe_command(recipe),
        policy.sandbox_of(recipe.server_id).network,
        digest_confirmed(recipe),
    )


def _find_state(recipe: Recipe, policy: DeployPolicy) -> State:
    trusted = policy.confirmed.get(recipe.server_id, ())
    if digest_confirmed(recipe) in trusted:
        return "trusted"
    return "changed" if trusted else "new"


def _refuse_registry(package: Package) -> Resolved:
    raise AssertionError(f"{package.identifier}: a local server is in no registry")
