"""The caller's answer: the values a request was written around, repaired where they do not fit."""

import random

from assets.contracts.repair.repair import repair_call
from assets.contracts.validate import validate_call
from assets.synthesis.common.contract_reading import get_input_schema, read_slots
from assets.synthesis.offline.values.values import draw_new_value
from warehouse.json_types import Contract, Json, JsonObject
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
    nothing turns right is drawn anew, and what nobody declared is left out."""
    if values and not validate_call(contract, values):
        return values
    meant = repair_call(contract, {**wrong, **values}).arguments
    root = get_input_schema(contract)
    rng = random.Random(digest([contract, meant, seed]))
    known = {slot.name: slot for slot in read_slots(contract)}
    flawed = {flaw.at[0] for flaw in validate_call(contract, meant) if flaw.at}
    out = {name: meant[name] for name in meant if name not in flawed}
    for name, slot in known.items():
        if name in flawed and (slot.required or name in meant):
            out[name] = draw_new_value(slot, root, rng, out.values())
    return out
