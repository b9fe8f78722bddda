"""A request that lacks one value, the question that asks for it, and the answer that states it."""

import random

from assets.synthesis.common.contract_reading import Slot, get_input_schema, read_slots
from assets.synthesis.offline.language.grounding import find_absent, say_plainly
from assets.synthesis.offline.language.phrasing import Filled, join_list, say_value
from assets.synthesis.offline.language.rewrites import read_phrases
from assets.synthesis.offline.requests import LANGUAGE, make_request
from assets.synthesis.offline.values.from_scenario import draw_in_scenario
from warehouse.json_types import Contract, Json, JsonObject
from warehouse.storage.digest import digest

_ATTEMPTS = 8


def answer_vague(meta: JsonObject, seed: int) -> Json:
    """The generator's reply for the parameter that is to be missing."""
    contract, name = meta["contract"], str(meta["parameter"])
    rng = random.Random(digest(["vague", contract, name, seed]))
    root = get_input_schema(contract)
    slot = next((slot for slot in read_slots(contract) if slot.name == name), None)
    slot = slot or Slot(name, {"type": "string"}, True, (name,), "")
    world, profile = meta.get("environment"), meta.get("profile")
    for _ in range(_ATTEMPTS):
        made = make_request(contract, "direct", rng, profile, world, without=(name,))
        item = Filled(slot, draw_in_scenario(slot, root, rng, list(made["values"].values()), world))
        values = {**made["values"], name: item.value}
        # Drawn until the text really lacks it: a city may stand in the tool's own words.
        if name in find_absent(contract, made["instruction"], values):
            break
    return {
        "instruction": made["instruction"],
        "question": _make_question(item, rng),
        "answer": _make_answer(contract, made["instruction"], values, item, rng),
        "values": values,
        "language": LANGUAGE,
    }


def _make_question(item: Filled, rng: random.Random) -> str:
    options = item.slot.schema.get("enum")
    label = item.label
    if isinstance(options, list) and 1 < len(options) <= 6:
        choices = [str(option) for option in options if option not in (None, "")]
        listing = f"{', '.join(choices[:-1])} or {choices[-1]}" if len(choices) > 1 else choices[0]
        form = rng.choice(read_phrases()["choices"])
        return form.replace("{l}", label).replace("{c}", listing)
    return rng.choice(read_phrases()["questions"]).replace("{l}", label)


def _make_answer(
    contract: Contract, asked: str, values: JsonObject, item: Filled, rng: random.Random
) -> str:
    """The value in a few words, in more when the rules would not find it in those."""
    value = item.value
    if isinstance(value, list) and all(not isinstance(v, (dict, list)) for v in value):
        text = join_list([say_value(v, rng, False) for v in value], rng)
    else:
        text = "" if isinstance(value, (bool, dict, list)) else say_value(value, rng, False)
    plain = say_plainly(item)
    if not text:
        return f"{plain[0].upper()}{plain[1:]}."
    answer = rng.choice(read_phrases()["answers"]).replace("{v}", text)
    if item.slot.name in find_absent(contract, f"{asked}\n{answer}", values):
        return f"{plain[0].upper()}{plain[1:]}."
    return answer
