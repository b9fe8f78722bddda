"""What must hold after every day of the month, checked against the truth of its world."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from packaging.utils import canonicalize_name

from assets.contracts.canonical import contract_digest
from assets.contracts.quarantined_tools import CLEAR
from assets.contracts.snapshot import SNAPSHOTS
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.synthesis.tables import PAIRS
from demo.world.month import ListedServer, MonthDay, WorldMonth
from training.sets.training_set import TRAINING_SET
from warehouse.store import Warehouse

# The judge's trial makes some twenty cases of each row it draws; what an outage left unjudged is
# judged on the day after.
MOST_WORK = 1.25
DOLLARS_OFF = 0.1


def find_lost(
    warehouse: Warehouse,
    day: MonthDay,
    markets: Sequence[str],
    before: Mapping[str, int],
    dark: str | None = None,
) -> Iterator[str]:
    """Contracts of the day that are in no table and have no reason stated. before: rows of
    deployments of the day before; a marketplace that is `dark` keeps those."""
    for name in markets:
        rows = {
            row["server_id"]: row for row in warehouse.tables.read(DEPLOYMENTS, name).to_dicts()
        }
        if name == dark:
            if len(rows) < before.get(name, 0):
                yield f"{name}: {len(rows)} deployments of {before[name]} while it is dark"
            continue
        tools = warehouse.tables.read(SNAPSHOTS, name).select(
            "server_id", "tool", "contract_digest"
        )
        have = {(server, tool): digest for server, tool, digest in tools.iter_rows()}
        alive = day.list_alive()
        if len(rows) < len(alive):
            yield f"{name}: {len(rows)} deployments of {len(alive)} servers"
        known = {name_server(one): one for one in list_launched(day)}
        # Where no record states its package, all are listed as hosted, with that as their reason.
        for server, one in known.items() if known.keys() & rows.keys() else ():
            row = rows.get(server)
            if row is None:
                yield f"{name}: {server} is in no deployment"
            elif row["status"] != "ok":
                if not (row["error_kind"] and row["hint"]):
                    yield f"{name}: {server} failed and states no reason"
            else:
                wrong = [t["name"] for t in one.tools
                         if have.get((server, str(t["name"]))) != contract_digest(t)]  # fmt: skip
                if wrong:
                    yield f"{name}: {server} has other contracts than today's: {', '.join(wrong)}"


def find_poisoned(warehouse: Warehouse, month: WorldMonth, until: int) -> Iterator[str]:
    """Poisoned contracts of the days so far that reached what is learnt from."""
    bad = set[str]()
    for day in [one for one in range(1, until + 1) if month.list_poisoned(one)]:
        for one in month.make_day(day).list_alive():
            bad |= {contract_digest(t) for t in one.tools if t["name"] in one.poisoned}
    for spec in (CLEAR, PAIRS, TRAINING_SET):
        digests = warehouse.tables.read(spec).select("contract_digest")
        reached = digests.filter(pl.col("contract_digest").is_in(sorted(bad)))
        if reached.height:
            yield f"{spec.name}: {reached.height} rows of poisoned contracts"


def find_overspent(
    done: Mapping[str, int], first: Mapping[str, int], reached: float, launches: int
) -> Iterator[str]:
    """Kinds of calls that were more than the change allows. reached: share of the first day's model
    calls that a full run takes for the rows the change reaches (`reach.py`); launches: of new and
    revised packages, and of failed ones whose time to be tried again has come."""
    if done["deploy"] > launches:
        yield f"deploy: {done['deploy']} launches where {launches} packages were due"
    if done["llm"] > MOST_WORK * reached * first["llm"]:
        share = done["llm"] / max(first["llm"], 1)
        yield (
            f"llm: {done['llm']} calls, {share:.1%} of the first day's, where the change reaches"
            f" {reached:.1%}"
        )


def count_revised(day: MonthDay) -> int:
    """Packages that are new or revised since the day before."""
    month = day.month
    return sum(
        month.find_birth(one.index) == day.day or day.day in month.list_edits(one.index, day.day)
        for one in day.list_alive()
        if one.record.package
    )


def list_launched(day: MonthDay) -> list[ListedServer]:
    """The servers whose truth is compared: npm and PyPI packages of well-formed listings."""
    return [
        one
        for one in day.list_alive()
        if one.record.package and one.record.package.kind in ("npm", "pypi") and not one.record.odd
    ]


def name_server(one: ListedServer) -> str:
    package: Any = one.record.package
    name = package.identifier
    return f"{package.kind}:{canonicalize_name(name) if package.kind == 'pypi' else name}"


def count_retries(warehouse: Warehouse, markets: Sequence[str], now: float) -> int:
    """Failed launches whose time to be tried again has come by `now` (epoch seconds)."""
    due = set[str]()
    for name in markets:
        rows = warehouse.tables.read(DEPLOYMENTS, name)
        due |= set(rows.filter(pl.col("retry_at") <= now)["server_id"])
    return len(due)


def list_contracts(warehouse: Warehouse, markets: Sequence[str]) -> list[str]:
    """Digests of the contracts that servers list now, each once, sorted."""
    frames = [warehouse.tables.read(SNAPSHOTS, name) for name in markets]
    return sorted({digest for frame in frames for digest in frame["contract_digest"]})


def count_rows(warehouse: Warehouse, markets: Sequence[str]) -> dict[str, int]:
    """Deployments of each marketplace."""
    return {name: warehouse.tables.read(DEPLOYMENTS, name).height for name in markets}
