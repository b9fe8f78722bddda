"""The caller's answer: the values a request was written around, repaired where they do not fit."""

import random

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
    """Arguments that the contract takes: what was meant, else the wrong ones turned right."""
    meant = {**wrong, **values} if values else dict(wrong)
    if values and not validate_call(contract, values):
        return values
    root = get_input_schema(contract)
    rng = random.Random(digest([contract, meant, seed]))
    known = {slot.name: slot for slot in read_slots(contract)}
    out: dict[str, Json] = {}
    for name, slot in known.items():
        if name not in meant and not slot.required:
            continue
        options = [meant[name], *_convert(meant[name], slot.type)] if name in meant else []
        fitting = [option for option in options if not _is_flawed(contract, name, option)]
        out[name] = fitting[0] if fitting else draw_new_value(slot, root, rng, out.values())
    if root.get("additionalProperties") not in (False, None):
        out.update({name: value for name, value in values.items() if name not in known})
    return out


def _is_flawed(contract: Contract, name: str, value: Json) -> bool:
    """Whether one argument alone is what the contract objects to."""
    flaws = validate_call(contract, {name: value})
    return any(
        flaw.path == name or flaw.path.startswith((f"{name}.", f"{name}[")) for flaw in flaws
    )


def _convert(value: Json, kind: str) -> list[Json]:
    """The same value in the type that is wanted, where it has one."""
    text = str(value).strip()
    match kind:
        case "integer" | "number":
            try:
                number = float(text)
            except ValueError:
                return []
            return [int(number), number] if number == number and abs(number) < 1e15 else []
        case "boolean":
            told = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
            return [told[text.lower()]] if text.lower() in told else []
        case "array":
            return [[value], [part.strip() for part in text.split(",")]]
        case "string":
            if isinstance(value, list) and len(value) == 1:
                return [str(value[0])]
            return [text] if not isinstance(value, (dict, list)) and value is not None else []
    return []
