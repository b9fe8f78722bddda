"""The caller's arguments and the actor's tool results, which depend on no seed."""

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
from assets.synthesis.offline.invented_values import find_sort, find_theme, invent_value
from assets.synthesis.offline.values import draw_new_value, draw_value
from assets.vectors.lexicon import collect_words, find_base_form, split_identifier
from warehouse.json_types import Contract, Json, JsonObject
from warehouse.storage.digest import digest


def answer_call(meta: JsonObject, seed: int) -> Json:
    """The values; after an error repaired, drawn again, or left out where nobody declares them."""
    contract, values = meta["contract"], dict(meta.get("values") or {})
    was_refused = "error" in meta or "wrong" in meta
    if not was_refused or (values and not validate_call(contract, values)):
        return {"arguments": values}
    meant = repair_call(contract, {**(meta.get("wrong") or {}), **values}).arguments
    root = get_input_schema(contract)
    rng = random.Random(digest([contract, meant, seed]))
    flawed = {flaw.at[0] for flaw in validate_call(contract, meant) if flaw.at}
    arguments = {name: meant[name] for name in meant if name not in flawed}
    for slot in read_slots(contract):
        if slot.name in flawed and (slot.required or slot.name in meant):
            arguments[slot.name] = draw_new_value(slot, root, rng, arguments.values())
    return {"arguments": arguments}


_LONGEST = 7000  # characters; an answer may have 8,000


def answer_acted(meta: JsonObject, seed: int) -> Json:
    """The actor's reply: JSON text; of a result that grew too long, its first short members."""
    result = make_result(meta["contract"], meta.get("arguments") or {})
    text = json.dumps(result, ensure_ascii=False)
    if len(text) > _LONGEST:
        members = list(result.items())[:20] if isinstance(result, dict) else []
        short = {str(name)[:60]: value for name, value in members if _is_short(value)}
        text = json.dumps(short or {"status": "ok"})
    return {"content": text}


def make_result(contract: Contract, arguments: JsonObject) -> Json:
    """The result of one call as a JSON value."""
    rng = random.Random(digest(["acted", contract, arguments]))
    about = f"{contract.get('name')} {str(contract.get('description') or '')[:300]}".lower()
    root = contract.get("outputSchema")
    if not isinstance(root, Mapping) or not root.get("properties"):
        return _make_by_purpose(contract, arguments, about, rng)
    slot = ParameterSlot("result", resolve_schema(root, root), True, ("result",), "", about, about)
    result = draw_value(slot, root, rng)
    if isinstance(result, dict):
        # What was asked about comes back as it was asked.
        for name in result.keys() & arguments.keys():
            if type(result[name]) is type(arguments[name]):
                result[name] = arguments[name]
    return result


_DONE = {
    "create": "created", "update": "updated", "delete": "deleted", "send": "sent",
    "navigate": "ok", "run": "finished",
}  # fmt: skip


def _make_by_purpose(
    contract: Contract, arguments: JsonObject, about: str, rng: random.Random
) -> Json:
    aim = read_purpose(contract)
    # What the tool deals in: the last word of its name that is no verb.
    words = split_identifier(str(contract.get("name") or ""))
    nouns = [word for word in words if not find_base_form(word) and len(word) > 2]
    noun = nouns[-1] if nouns and nouns[-1].isascii() else "result"
    echoed = {name: value for name, value in arguments.items() if _is_short(value)}
    if aim.family in _DONE:
        return {"status": _DONE[aim.family], **echoed, **_make_thing(about, noun, rng)}
    if aim.family == "compute":
        return {**echoed, "result": round(rng.uniform(1, 500), 2), "unit_checked": True}
    if aim.family == "search" or aim.verb in ("list", "enumerate", "browse") or noun.endswith("s"):
        things = [_make_thing(about, noun, rng) for _ in range(rng.randint(2, 4))]
        return {"total": len(things), f"{noun.rstrip('s')}s".replace(" ", "_"): things}
    return {**echoed, **_make_thing(about, noun, rng), "summary": invent_value("sentence", rng)}


_MOST = 12  # members of one thing
# What a tool speaks of -> what a thing of its kind has.
_MEMBERS = (
    (("file", "folder", "director", "path", "document"), ("path",)),
    (("mail", "contact", "user", "customer", "member"), ("person", "email")),
    (("place", "city", "map", "hotel", "weather", "travel"), ("city", "address")),
)
_SORTS = collect_words(
    "symbol coin pair repo branch package username table database column sheet cell tag status "
    "airport country timezone currency language company project_key issue_key sha tx_hash wallet "
    "team doi movie song artist book food domain phone ip selector session"
)


def _make_thing(about: str, noun: str, rng: random.Random) -> dict[str, Json]:
    """One of the things a tool deals in, as services describe them."""
    slot = ParameterSlot(noun, {}, True, (noun,), "", about, about)
    thing: dict[str, Json] = {
        "id": invent_value("id", rng),
        "name": invent_value(find_theme(about) or "title", rng, slot),
        "url": invent_value("url", rng),
        "created": invent_value("date", rng),
    }
    for marks, sorts in _MEMBERS:
        if any(mark in about for mark in marks):
            thing |= {sort: invent_value(sort, rng) for sort in sorts}
    for word in split_identifier(about)[:40]:
        # What the tool speaks of (a symbol, a branch, a package) is what it returns.
        sort = find_sort(ParameterSlot(word, {}, True, (word,), ""))
        if sort in _SORTS and word not in thing and len(thing) < _MOST:
            thing[word] = invent_value(sort, rng)
    return thing


def _is_short(value: Json) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= 80)
