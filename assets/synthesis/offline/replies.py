"""The caller's arguments and the actor's tool results.

A result depends on contract and arguments, not on the seed: a request that borrows from it
(`requests.py`) knows what it will be.
"""

import json
import random
from collections.abc import Mapping

from assets.contracts.repair.repair import repair_call
from assets.contracts.validate import validate_call
from assets.synthesis.contract_reading import (
    ParameterSlot,
    get_input_schema,
    read_purpose,
    read_slots,
    resolve_schema,
)
from assets.synthesis.offline.invented_values import choose_themed_sort, find_sort, invent_value
from assets.synthesis.offline.values import draw_new_value, draw_value
from assets.vectors.lexicon import find_base_form, split_identifier
from warehouse.json_types import Contract, Json, JsonObject, Schema
from warehouse.storage.digest import digest


def answer_call(meta: JsonObject, seed: int) -> Json:
    """The values; after an error, repaired: what fits stays, what does not is made to."""
    values = dict(meta.get("values") or {})
    if "error" in meta or "wrong" in meta:
        values = repair_arguments(meta["contract"], values, dict(meta.get("wrong") or {}), seed)
    return {"arguments": values}


def repair_arguments(
    contract: Contract, values: dict[str, Json], wrong: dict[str, Json], seed: int
) -> dict[str, Json]:
    """Arguments that the contract takes: what was meant, else the wrong ones turned right; what
    nothing turns right is drawn again, and what nobody declared is left out."""
    if values and not validate_call(contract, values):
        return values
    meant = repair_call(contract, {**wrong, **values}).arguments
    root = get_input_schema(contract)
    rng = random.Random(digest([contract, meant, seed]))
    slots = {slot.name: slot for slot in read_slots(contract)}
    flawed = {flaw.at[0] for flaw in validate_call(contract, meant) if flaw.at}
    out = {name: meant[name] for name in meant if name not in flawed}
    for name, slot in slots.items():
        if name in flawed and (slot.required or name in meant):
            out[name] = draw_new_value(slot, root, rng, out.values())
    return out


_LONGEST = 7000  # characters; an answer may have 8,000
_DONE = {
    "create": "created", "update": "updated", "delete": "deleted", "send": "sent",
    "navigate": "ok", "run": "finished",
}  # fmt: skip


def answer_acted(meta: JsonObject, seed: int) -> Json:
    """The actor's reply: JSON text."""
    result = make_result(meta["contract"], meta.get("arguments") or {})
    text = json.dumps(result, ensure_ascii=False)
    return {"content": text if len(text) <= _LONGEST else json.dumps(_cut_result(result))}


def make_result(contract: Contract, arguments: JsonObject) -> Json:
    """The result of one call as a JSON value."""
    rng = random.Random(digest(["acted", contract, arguments]))
    root = contract.get("outputSchema")
    if isinstance(root, Mapping) and root.get("properties"):
        return _make_by_schema(contract, root, arguments, rng)
    return _make_by_purpose(contract, arguments, rng)


def _make_by_schema(
    contract: Contract, root: Schema, arguments: JsonObject, rng: random.Random
) -> Json:
    theme = f"{contract.get('name')} {str(contract.get('description') or '')[:300]}".lower()
    slot = ParameterSlot("result", resolve_schema(root, root), True, ("result",), "", theme, theme)
    result = draw_value(slot, root, rng)
    if isinstance(result, dict):
        # What was asked about comes back as it was asked.
        for name in result.keys() & arguments.keys():
            if type(result[name]) is type(arguments[name]):
                result[name] = arguments[name]
    return result


def _make_by_purpose(contract: Contract, arguments: JsonObject, rng: random.Random) -> Json:
    aim, noun = read_purpose(contract), _find_noun(contract)
    echoed = {name: value for name, value in arguments.items() if _is_short(value)}
    if aim.family in _DONE:
        return {"status": _DONE[aim.family], **echoed, **_make_thing(contract, noun, rng)}
    if aim.family == "compute":
        return {**echoed, "result": round(rng.uniform(1, 500), 2), "unit_checked": True}
    if aim.family == "search" or aim.verb in ("list", "enumerate", "browse") or noun.endswith("s"):
        things = [_make_thing(contract, noun, rng) for _ in range(rng.randint(2, 4))]
        return {"total": len(things), f"{noun.rstrip('s')}s".replace(" ", "_"): things}
    return {**echoed, **_make_thing(contract, noun, rng), "summary": invent_value("sentence", rng)}


def _find_noun(contract: Contract) -> str:
    """What the tool deals in: the last word of its name that is no verb."""
    words = split_identifier(str(contract.get("name") or ""))
    words = [word for word in words if not find_base_form(word) and len(word) > 2]
    return words[-1] if words and words[-1].isascii() else "result"


def _make_thing(contract: Contract, noun: str, rng: random.Random) -> dict[str, Json]:
    """One of the things a tool deals in, as services describe them."""
    about = f"{contract.get('name')} {str(contract.get('description') or '')[:300]}".lower()
    slot = ParameterSlot(noun, {}, True, (noun,), "", about, about)
    thing: dict[str, Json] = {
        "id": invent_value("id", rng),
        "name": invent_value(choose_themed_sort(slot, "title"), rng, slot),
        "url": invent_value("url", rng),
        "created": invent_value("date", rng),
    }
    if any(mark in about for mark in ("file", "folder", "director", "path", "document")):
        thing["path"] = invent_value("path", rng)
    if any(mark in about for mark in ("mail", "contact", "user", "customer", "member")):
        thing |= {"person": invent_value("person", rng), "email": invent_value("email", rng)}
    if any(mark in about for mark in ("place", "city", "map", "hotel", "weather", "travel")):
        thing |= {"city": invent_value("city", rng), "address": invent_value("address", rng)}
    for word in split_identifier(about)[:40]:
        # What the tool speaks of (a symbol, a branch, a package) is what it returns.
        sort = find_sort(ParameterSlot(word, {}, True, (word,), ""))
        if sort in _SORTS and word not in thing and len(thing) < _MOST:
            thing[word] = invent_value(sort, rng)
    return thing


_MOST = 12  # members of one thing
_SORTS = {
    "symbol", "coin", "pair", "repo", "branch", "package", "username", "table", "database",
    "column", "sheet", "cell", "tag", "status", "airport", "country", "timezone", "currency",
    "language", "company", "project_key", "issue_key", "sha", "tx_hash", "wallet", "team", "doi",
    "movie", "song", "artist", "book", "food", "domain", "phone", "ip", "selector", "session",
}  # fmt: skip


def _is_short(value: Json) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= 80)


def _cut_result(result: Json) -> Json:
    """The first members of a result that grew too long."""
    if isinstance(result, dict):
        short = {str(k)[:60]: v for k, v in list(result.items())[:20] if _is_short(v)}
        return short or {"status": "ok"}
    return {"status": "ok"}
