"""One server of a run: whether its last row still holds, or what is to be launched."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from assets.marketplaces.listing import Listing
from assets.servers.deploy.policy import DeployPolicy, digest_conditions
from assets.servers.recipes.names import find_exact_version, identify_server, normalise_address
from assets.servers.recipes.recipe import RECIPE_VERSION, Recipe, Unlaunchable
from warehouse.item_failure import try_item
from warehouse.sanitize.escape import drop_surrogates
from warehouse.storage.digest import digest
from warehouse.storage.takedowns import read_takedowns

_LAUNCH_FACTS = {"transport", "command", "args", "env", "url", "headers", "package", "runnable"}


@dataclass(frozen=True)
class Job:
    """A server that is to have a row. key: its id. previous: its row of the last run."""

    key: str
    listing: Listing
    previous: Mapping[str, Any] | None
    policy: DeployPolicy

    @cached_property
    def launch_digest(self) -> str:
        return launch_digest(self.listing)

    @cached_property
    def conditions(self) -> str:
        """Digest of the settings and secrets that the server is launched under, asked for once."""
        return digest_conditions(self.key, self.policy)

    def stands(self, now: float) -> bool:
        """Whether the last run's row still holds without asking anybody: not where the settings or
        the secrets it was launched under are others now, nor for a remote server that answered, nor
        for a local one, whose folder may have changed."""
        row = self.previous
        if row is None or row["launch_digest"] != self.launch_digest or self.listing.is_local:
            return False
        if row["recipe_digest"] and row["conditions"] != self.conditions:
            return False
        if row["status"] == "failed":
            return not _is_due(row, now)
        package = self.listing.package
        if package is None or package.digest:
            return package is not None
        return package.type != "mcpb" and find_exact_version(package) is not None

    def keep_row(self, recipe: Recipe | Unlaunchable, now: float) -> dict[str, Any] | None:
        """The last run's row where the plan is the same: a failure until it is due, a launch for
        good, and never a remote server that answered, because it may answer otherwise now."""
        row = self._find_same_plan(recipe)
        if row is None:
            return None
        launched = isinstance(recipe, Recipe) and recipe.ecosystem != "remote"
        if _is_due(row, now) if row["status"] == "failed" else not launched:
            return None
        return {
            **row,
            "launch_digest": self.launch_digest,
            "listing_id": self.listing.listing_id,
        }

    def count_attempts(self, recipe: Recipe | Unlaunchable) -> int:
        """How often the same plan has failed so far."""
        row = self._find_same_plan(recipe)
        return int(row["attempts"] or 0) if row is not None and row["status"] == "failed" else 0

    def _find_same_plan(self, recipe: Recipe | Unlaunchable) -> Mapping[str, Any] | None:
        row = self.previous
        if row is None:
            return None
        if isinstance(recipe, Unlaunchable):
            same = row["recipe_digest"] is None and row["error_kind"] == recipe.kind
            # What is wrong with a folder is looked at, not asked for: it costs nothing to say anew.
            same = same and (not self.listing.is_local or row["hint"] == recipe.hint)
        else:
            known = (row["recipe_digest"], row["conditions"])
            same = known == (recipe.digest, self.conditions)
        return row if same else None


def plan_jobs(
    listings: Iterable[Listing], before: Mapping[str, Mapping[str, Any]], policy: DeployPolicy
) -> list[Job]:
    """One job per server that is not taken down: of several listings the first runnable one, by
    listing id."""
    taken = read_takedowns(policy.home).servers
    jobs: dict[str, Job] = {}
    for listing in sorted(listings, key=lambda one: (not one.runnable, one.listing_id)):
        key = drop_surrogates(_identify(listing))
        jobs.setdefault(key, Job(key, listing, before.get(key), policy))
    return [jobs[key] for key in sorted(jobs) if key not in taken]


def _identify(listing: Listing) -> str:
    unnamed = f"listing:{listing.listing_id}"
    return try_item(lambda: identify_server(listing) or unnamed, lambda _: unnamed)


def launch_digest(listing: Listing) -> str:
    """Over what the listing says about launching; an edited description changes nothing here."""
    facts = listing.model_dump(mode="json", include=_LAUNCH_FACTS)
    facts["env"] = [{**variable, "description": None} for variable in facts["env"]]
    if listing.package and listing.package.type == "mcpb":
        facts["package"]["identifier"] = normalise_address(listing.package.identifier)
    facts["recipe_version"] = RECIPE_VERSION
    try:
        return digest(facts)
    except ValueError:  # halves of surrogate pairs have no canonical form; its row still has a name
        return digest(ascii(facts))


def _is_due(row: Mapping[str, Any], now: float) -> bool:
    """Whether a failure's time to be tried again has come."""
    return row["retry_at"] is not None and row["retry_at"] <= now
