"""Taking down a server, a tool or a late-found secret, and lifting it again."""

import json
import time
from dataclasses import replace
from typing import Any

from extensions.upkeep.takedown.block import block_tools
from extensions.upkeep.takedown.reach import (
    Reach,
    collect_secret_reach,
    collect_server_reach,
    collect_tool_reach,
    find_listings,
    find_tool,
)
from warehouse.errors import UnusableInput
from warehouse.storage.takedowns import (
    LIFTED,
    SECRET,
    SERVER,
    TAKEN,
    TOOL,
    Fingerprint,
    Tombstone,
    UnusableSecret,
    find_active,
    record_tombstone,
)
from warehouse.store import Warehouse


class BadTakedown(UnusableInput):
    """A take-down that cannot be made: the message names the part and the fix."""


def take_down(warehouse: Warehouse, name: str, by: str, why: str) -> dict[str, Any]:
    """Takes down a server or one tool (`server::tool`); the same again reaches what came since.
    Raises BadTakedown, TakedownError."""
    for known in find_active(warehouse.home).values():
        reach = json.loads(known.reach)
        if name in (known.name, *reach.get("servers", ()), *reach.get("listings", ())):
            return _write(warehouse, known)
    tools = find_tool(warehouse, name)
    reach = collect_tool_reach(warehouse, tools) if tools else collect_server_reach(warehouse, name)
    if reach is None:
        raise BadTakedown(
            f"{name[:200]!r}: no server, listing or tool of this id is known here; give an id as"
            " the catalogue, `toolmill quarantine list` or a search prints it"
        )
    return _write(warehouse, _make(name, TOOL if tools else SERVER, by, why, reach))


def take_down_secret(warehouse: Warehouse, secret: str, by: str, why: str) -> dict[str, Any]:
    """Takes down every row, contract and answer that holds a text. Only its fingerprint is kept.
    Raises BadTakedown, TakedownError."""
    if secret and secret in f"{by}\n{why}":
        raise BadTakedown("--by or --why holds the secret itself: say what it is, not what it says")
    for one in find_active(warehouse.home).values():
        known = json.loads(one.reach).get("fingerprint")
        if known and Fingerprint.parse(known).is_of(secret):
            return _write(warehouse, one)
    try:
        mark = Fingerprint.of(secret)
    except UnusableSecret as error:
        raise BadTakedown(str(error)) from None
    reach = {"fingerprint": mark.dump()}
    return _write(warehouse, _make(f"secret-{mark.salt[:8]}", SECRET, by, why, reach))


def renew_takedowns(warehouse: Warehouse) -> list[dict[str, Any]]:
    """Has every tombstone reach what came since it was set, and blocks it in what is served:
    after a kill, a restore, or a new listing of a server that was taken down."""
    return [_write(warehouse, one) for one in find_active(warehouse.home).values()]


def lift_takedown(warehouse: Warehouse, name: str, by: str, why: str) -> dict[str, Any]:
    """Lifts one: what versions and blobs still hold is read again. Raises BadTakedown."""
    active = find_active(warehouse.home)
    if name not in active:
        known = ", ".join(sorted(active)) or "nothing"
        raise BadTakedown(f"{name[:200]!r} is not taken down; what is: {known}")
    lifted = replace(active[name], verdict=LIFTED, by=by, at=_format_now(), why=why)
    record_tombstone(warehouse.home, lifted)
    return describe_tombstone(lifted, block_tools(warehouse))


def describe_tombstone(one: Tombstone, blocked: int | None = None) -> dict[str, Any]:
    """{name, kind, verdict, by, at, why, servers, reach: counts, blocked in what is served}; no
    fingerprint."""
    reach = json.loads(one.reach)
    counts = {part: len(of) for part, of in reach.items() if isinstance(of, list)}
    shown = {name: getattr(one, name) for name in ("name", "kind", "verdict", "by", "at", "why")}
    shown["servers"] = reach.get("servers", [])
    return {**shown, "reach": counts, **({} if blocked is None else {"blocked": blocked})}


def _write(warehouse: Warehouse, one: Tombstone) -> dict[str, Any]:
    """Records a tombstone with all that it reaches now, unless the record has it so, and blocks
    that in what is served: the same again makes up for a kill in between."""
    reach = json.loads(one.reach)
    if one.kind == SERVER:
        reach = _unite(reach, {"listings": sorted(find_listings(warehouse, reach["servers"]))})
    elif one.kind == SECRET:
        mark = Fingerprint.parse(reach["fingerprint"])
        reach = _unite(reach, collect_secret_reach(warehouse, mark))
    made = replace(one, reach=json.dumps(reach, sort_keys=True))
    if find_active(warehouse.home).get(one.name) != made:
        record_tombstone(warehouse.home, made)
    return describe_tombstone(made, block_tools(warehouse))


def _make(name: str, kind: str, by: str, why: str, reach: Reach) -> Tombstone:
    for option, text in (("--by", by), ("--why", why)):
        if not text.strip():
            raise BadTakedown(f"{option} is empty, expected a text")
    return Tombstone(name, kind, TAKEN, by, _format_now(), why, json.dumps(reach, sort_keys=True))


def _unite(one: Reach, other: Reach) -> Reach:
    both = {name: sorted({*one.get(name, ()), *of}) for name, of in other.items()}
    return {**one, **both}


def _format_now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
