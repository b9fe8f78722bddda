"""Checks of what ran: certificates of the sandbox, licences of what was learnt from."""

from collections import defaultdict
from collections.abc import Iterable

import polars as pl

from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.servers.sandbox.certificate import digest_preflight
from assets.synthesis.export.selection import normalise_licence
from assets.synthesis.tables import JUDGEMENTS, PAIRS
from extensions.upkeep.doctor.check import NOTICE, Finding, Home, Looked


def check_certificates(at: Home) -> Looked:
    """Whether what ran, ran in a sandbox that held every escape of today's suite."""
    frame = at.tables.read(DEPLOYMENTS).filter(pl.col("status") == "ok")
    ran = frame.select("server_id", "certified", "certificate").unique("server_id")
    held = ran.filter(pl.col("certified").is_not_null())
    open_ = sorted(held.filter(~pl.col("certified"))["server_id"])
    stale = [sha for sha in held["certificate"].drop_nulls().unique() if _is_stale(at, sha)]
    old = sorted(held.filter(pl.col("certificate").is_in(stale))["server_id"])
    found = []
    if open_:
        problem = f"{len(open_)} servers ran in a sandbox that did not hold: {_list_some(open_)}"
        found.append(Finding("deployments", problem, "set sandbox.backend; docs/sandbox.md"))
    if old:
        problem = f"{len(old)} servers were certified by another suite: {_list_some(old)}"
        fix = "a changed limit or grant makes a server due: [sandbox], `toolmill grant`"
        found.append(Finding("deployments", problem, fix, NOTICE))
    return Looked(len(held), found)


def _is_stale(at: Home, sha: str) -> bool:
    try:
        return at.blobs.get_json(sha).get("suite") != digest_preflight()
    except (KeyError, ValueError, RuntimeError):
        return False  # `check_blob_names` tells of it


def check_licences(at: Home) -> Looked:
    """Whether the licence of each server that accepted pairs are of is known."""
    accepted = at.tables.read(JUDGEMENTS).filter(pl.col("verdict") == "accept").select("pair_id")
    pairs = at.tables.read(PAIRS).join(accepted, on="pair_id", how="semi").unique("pair_id")
    stated: dict[str, set[str]] = defaultdict(set)
    for server, licence in pairs.select("server_id", "license").unique().rows():
        if normalise_licence(licence) is None:
            stated[server].add(licence or "none stated")
    if not stated:
        return Looked(len(pairs))
    named = [f"{server} ({'; '.join(sorted(stated[server]))})" for server in sorted(stated)]
    problem = f"accepted pairs of {len(named)} servers have no known licence: {_list_some(named)}"
    fix = "toolmill export --commercial-only leaves them out"
    return Looked(len(pairs), [Finding("pairs", problem, fix, NOTICE)])


def _list_some(names: Iterable[str]) -> str:
    known = list(names)
    more = f" and {len(known) - 3} more" if len(known) > 3 else ""
    return ", ".join(known[:3]) + more
