"""Where every contract of a run stands: its split, whether it leaks, and the pool of prompts."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from assets.contracts.canonical import tool_text
from assets.vectors.index import read_contract
from training.sets.near import Embed, find_nearest_texts
from training.sets.policy import SetPolicy
from training.sets.split import TRAIN, choose_tool_place
from warehouse.json_types import Row

Key = tuple[str, str, str]  # server, tool, contract digest
LEAK_TEXT, LEAK_TWIN = "leak_text", "leak_twin"


@dataclass(frozen=True)
class Place:
    """Where a contract stands. `leak`: why a train tool may not be learnt from after all; then
    `split` is where its copy stands that is tested on, and `copy_of` is that one's digest."""

    key: Key
    row: Row
    contract: Mapping[str, Any]
    text: str
    split: str
    leak: str | None = None
    copy_of: str | None = None


def find_first_run_dates(rows: Iterable[Row]) -> dict[str, str | None]:
    """Server -> the UTC date of its first run over all its rows; None where a row says none."""
    found: dict[str, str | None] = {}
    for row in rows:
        server, date = row["server_id"], row.get("first_seen")
        known = found.setdefault(server, date)
        found[server] = min(known, date) if known and date else None
    return found


def assign_places(
    clear: Mapping[Key, Row],
    first: Mapping[str, str | None],
    embed: Embed,
    policy: SetPolicy,
    marked: Collection[tuple[str, str]] = (),
    same: Mapping[str, Collection[str]] | None = None,
) -> dict[Key, Place]:
    """The place of every clear contract. `marked`: pairs of digests that are one tool. `same`:
    server -> all ids of that server."""
    made = {}
    for key, row in sorted(clear.items()):
        contract = read_contract(row)
        names = (same or {}).get(key[0], (key[0],))
        split = choose_tool_place(key[0], key[1], _find_oldest(names, first), policy, names)
        made[key] = Place(key, row, contract, tool_text(contract), split)
    copies = _find_train_copies(made, embed, policy, marked)
    return {
        key: Place(key, place.row, place.contract, place.text, made[other].split, why, other[2])
        if (found := copies.get(key)) and (why := found[0]) and (other := found[1])
        else place
        for key, place in made.items()
    }


def build_pool(places: Mapping[Key, Place]) -> dict[str, dict[str, Any]]:
    """Contract digest -> {server_id, tool, contract, split}, for `candidates.py`. One of several
    servers stands where it is tested on, if it is anywhere."""
    pool: dict[str, dict[str, Any]] = {}
    for key, place in sorted(places.items(), key=lambda one: (one[1].split == TRAIN, one[0])):
        entry = {"server_id": key[0], "tool": key[1], "contract": place.contract}
        pool.setdefault(key[2], {**entry, "split": place.split})
    return dict(sorted(pool.items()))


def _find_oldest(names: Iterable[str], first: Mapping[str, str | None]) -> str | None:
    """The first run of any of a server's ids; None where one of them says none."""
    dates = [first[name] for name in names if name in first]
    known = [date for date in dates if date is not None]
    return min(known) if known and len(known) == len(dates) else None


def _find_train_copies(
    made: Mapping[Key, Place],
    embed: Embed,
    policy: SetPolicy,
    marked: Collection[tuple[str, str]],
) -> dict[Key, tuple[str, Key]]:
    """Train contracts that are copies of contracts which are only tested on -> (why, of which)."""
    tested: dict[str, Key] = {}
    by_digest: dict[str, Key] = {}
    for key, place in made.items():
        if place.split != TRAIN:
            tested.setdefault(place.text, key)
            by_digest.setdefault(key[2], key)
    twins: dict[str, list[str]] = defaultdict(list)
    for one, other in marked:
        twins[one].append(other)
        twins[other].append(one)
    learnt = [place for place in made.values() if place.split == TRAIN]
    close = find_nearest_texts([p.text for p in learnt], list(tested), embed, policy.twin_cosine)
    found: dict[Key, tuple[str, Key]] = {}
    for place in learnt:
        named = min((name for name in twins[place.key[2]] if name in by_digest), default=None)
        if place.text in tested:
            found[place.key] = (LEAK_TEXT, tested[place.text])
        elif place.text in close:
            found[place.key] = (LEAK_TWIN, tested[close[place.text]])
        elif named is not None:
            found[place.key] = (LEAK_TWIN, by_digest[named])
    return found
