"""Requests without a call: those that no tool serves, and those that first lack a value."""

import random
from collections.abc import Sequence

from assets.synthesis.contract_reading import ParameterSlot, get_input_schema, read_slots
from assets.synthesis.offline.choice import choose_tool, extract_terms
from assets.synthesis.offline.requests import LANGUAGE, make_request
from assets.synthesis.offline.rewrites import read_phrases
from assets.synthesis.offline.values import draw_in_scenario
from assets.synthesis.offline.wording import (
    FilledSlot,
    find_absent,
    join_list,
    say_plainly,
    say_value,
)
from assets.synthesis.verify.words import stem_word
from assets.vectors.lexicon import list_pool, split_identifier
from warehouse.json_types import Contract, Json, JsonObject
from warehouse.storage.digest import digest


def answer_aside(meta: JsonObject, seed: int) -> Json:
    """The generator's reply: small talk, sums in the head, taste, or another line of work."""
    contracts = list(meta["contracts"])
    rng = random.Random(digest(["aside", contracts, meta.get("profile"), seed]))
    terms = _collect_terms(contracts)
    # The fewest words in common first; a set of tools may well speak of everything.
    kinds = sorted(
        read_phrases()["asides"],
        key=lambda k: (len(terms & set(map(stem_word, k["about"]))), rng.random()),
    )
    reply = {"instruction": "", "reply": ""}
    for kind in kinds:
        for ask in rng.sample(kind["ask"], len(kind["ask"])):
            reply = _fill_phrase(kind, ask, rng)
            if (
                not terms & set(extract_terms(reply["instruction"]))
                and not choose_tool(contracts, reply["instruction"])[0]
            ):
                return {**reply, "language": LANGUAGE}
    # Every aside shares a word with some tool: the first kind shares the least with them.
    return {**_fill_phrase(kinds[0], kinds[0]["ask"][0], rng), "language": LANGUAGE}


def _collect_terms(contracts: Sequence[JsonObject]) -> set[str]:
    """The content words that the tools use of themselves."""
    names = [word for c in contracts for word in split_identifier(str(c.get("name") or ""))]
    about = [str(c.get("description") or "")[:600] for c in contracts]
    return set(extract_terms(" ".join([*names, *about])))


def _fill_phrase(kind: JsonObject, ask: str, rng: random.Random) -> dict[str, str]:
    facts = {**_make_sum(str(kind.get("make")), rng), "first": rng.choice(list_pool("first"))}
    reply = kind["reply"][kind["ask"].index(ask) % len(kind["reply"])]
    for name, value in facts.items():
        ask, reply = ask.replace(f"{{{name}}}", value), reply.replace(f"{{{name}}}", value)
    return {"instruction": ask, "reply": reply}


def _make_sum(make: str, rng: random.Random) -> dict[str, str]:
    """Numbers of a sum done in the head, and its result."""
    a, b = rng.randint(11, 49), rng.randint(6, 29)
    match make:
        case "product":
            c = a * b
        case "tenth":
            a *= 10
            c = a // 10
        case "mean":
            b = a + 2 * b
            c = (a + b) // 2
        case _:
            c = a + b
    return {"a": str(a), "b": str(b), "c": str(c)}


_ATTEMPTS = 8


def answer_vague(meta: JsonObject, seed: int) -> Json:
    """The generator's reply for the parameter that is to be missing."""
    contract, name = meta["contract"], str(meta["parameter"])
    rng = random.Random(digest(["vague", contract, name, seed]))
    root = get_input_schema(contract)
    slot = next((slot for slot in read_slots(contract) if slot.name == name), None)
    slot = slot or ParameterSlot(name, {"type": "string"}, True, (name,), "")
    world, profile = meta.get("environment"), meta.get("profile")
    for _ in range(_ATTEMPTS):
        drafted = make_request(contract, "direct", rng, profile, world, without=(name,))
        item = FilledSlot(
            slot, draw_in_scenario(slot, root, rng, list(drafted["values"].values()), world)
        )
        values = {**drafted["values"], name: item.value}
        # Drawn until the text really lacks it: a city may stand in the tool's own words.
        if name in find_absent(contract, drafted["instruction"], values):
            break
    return {
        "instruction": drafted["instruction"],
        "question": _make_question(item, rng),
        "answer": _make_answer(contract, drafted["instruction"], values, item, rng),
        "values": values,
        "language": LANGUAGE,
    }


def _make_question(item: FilledSlot, rng: random.Random) -> str:
    options = item.slot.schema.get("enum")
    label = item.label
    if isinstance(options, list) and 1 < len(options) <= 6:
        choices = [str(option) for option in options if option not in (None, "")]
        listing = f"{', '.join(choices[:-1])} or {choices[-1]}" if len(choices) > 1 else choices[0]
        form = rng.choice(read_phrases()["choices"])
        return form.replace("{l}", label).replace("{c}", listing)
    return rng.choice(read_phrases()["questions"]).replace("{l}", label)


def _make_answer(
    contract: Contract, request: str, values: JsonObject, item: FilledSlot, rng: random.Random
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
    if item.slot.name in find_absent(contract, f"{request}\n{answer}", values):
        return f"{plain[0].upper()}{plain[1:]}."
    return answer
