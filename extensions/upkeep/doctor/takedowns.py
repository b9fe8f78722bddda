"""Checks of what was taken down: that nothing of it is still reached."""

from functools import partial
from pathlib import Path

from assets.marketplaces.listing import read_rows
from assets.marketplaces.listing_table import LISTINGS
from assets.servers.recipes.recipe import identify_server
from extensions.upkeep.doctor.check import NOTICE, Finding, Home, Looked
from extensions.upkeep.takedown.purge import list_taken
from serving.index.model import IndexBroken
from serving.ranking.overlays import find_taken_tools, read_blocked
from warehouse.item_failure import try_item
from warehouse.storage.takedowns import find_active, read_takedowns

_RENEW = "toolmill takedown renew"


def check_takedowns(at: Home) -> Looked:
    """Whether what is served answers nothing that was taken down, and no new listing brings it
    back. Tables are read without it, whatever they hold; which bytes are left is looked at where
    everything is."""
    active = find_active(at.home)
    if not active:
        return Looked(0)
    left = _list_left(at) if at.everything else []
    return Looked(len(active), [*_list_served(at.home), *_list_returned(at), *left])


def _list_served(home: Path) -> list[Finding]:
    try:
        shown = find_taken_tools(home) - read_blocked(home).tools
    except IndexBroken as error:  # `check_release` says what to do
        return [Finding("router", f"cannot be looked at: {error}", "see `release`")]
    if not shown:
        return []
    problem = f"{len(shown)} tools that are taken down are answered, first {min(shown)[:120]}"
    return [Finding("router/BLOCKED.json", problem, _RENEW)]


def _list_returned(at: Home) -> list[Finding]:
    """Listings under a new id of servers that are taken down: nothing launches them, and they are
    listed."""
    servers = read_takedowns(at.home).servers
    found = [
        row.listing_id
        for row in read_rows(at.tables.read(LISTINGS).to_dicts())
        if try_item(partial(identify_server, row), lambda _: None) in servers
    ]
    if not found:
        return []
    problem = f"{len(found)} new listings of servers that are taken down, first {found[0][:120]}"
    return [Finding("tables/listings", problem, _RENEW)]


def _list_left(at: Home) -> list[Finding]:
    """What nothing reads any more, and still lies there."""
    held = list(list_taken(at.home, at.state, at.now, None))
    if not held:
        return []
    problem = f"{len(held)} files still hold what was taken down, first {held[0].name[:120]}"
    return [Finding("takedowns", problem, "toolmill gc --yes", NOTICE)]
