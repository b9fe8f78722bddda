"""Rewrites a request: adds the values that it lacks, or makes it richer.

Both only add words, so no stated value is lost.
"""

import json
import random
import re
from functools import cache
from pathlib import Path
from typing import Any

from assets.synthesis.contract_reading import get_input_schema, read_slots
from assets.synthesis.offline.values import draw_in_scenario
from assets.synthesis.offline.wording import (
    FilledSlot,
    append_lost_values,
    end_sentence,
    fill_slots,
    find_absent,
    make_clause,
)
from warehouse.json_types import Json, JsonObject
from warehouse.storage.digest import digest

_LONGEST = 3900  # characters; an answer may have 4,000
_FEWEST, _MOST = 10, 20  # words that one step of evolution adds


@cache
def read_phrases() -> dict[str, Any]:
    """The phrases of asides, evolutions and questions; read once."""
    return json.loads(Path(__file__).with_name("phrases.json").read_text(encoding="utf-8"))


def answer_worded(meta: JsonObject, seed: int) -> Json:
    """The reply of the evolver (meta has a direction) or of the reviser."""
    return evolve_request(meta, seed) if "direction" in meta else revise_request(meta, seed)


def revise_request(meta: JsonObject, seed: int) -> Json:
    """The request with every absent value said in it; a required value nobody has is drawn."""
    contract, text = meta["contract"], str(meta["instruction"])
    rng = random.Random(digest(["revise", contract, text, seed]))
    values = dict(meta.get("values") or {})
    root = get_input_schema(contract)
    for slot in read_slots(contract):
        if slot.required and slot.name not in values:
            values_before = list(values.values())
            values[slot.name] = draw_in_scenario(
                slot, root, rng, values_before, meta.get("environment")
            )
    absent_names = {
        re.split(r"[.\[]", str(path), maxsplit=1)[0] for path in meta.get("absent") or ()
    }
    lacking = absent_names | set(find_absent(contract, text, values))
    filled = fill_slots(contract, values)
    # A drawn or named value that the text does hold needs no second mention.
    revised = _weave_clauses(text, [f for f in filled if f.slot.name in lacking], rng)
    revised = append_lost_values(revised, filled, find_absent(contract, revised, values))
    return {
        "instruction": revised if len(revised) <= _LONGEST else text[:_LONGEST],
        "values": values,
    }


def _weave_clauses(text: str, items: list[FilledSlot], rng: random.Random) -> str:
    """The clauses of the values, put before the mark that ends the first sentence of the request
    where there is one sentence, else after it all."""
    if not items:
        return text
    clauses = [make_clause(item, rng, False) for item in items]
    joined = ("; " if any(":" in c for c in clauses) else ", ").join(clauses)
    end = re.search(r"[.?!]\s*$", text)
    body, mark = (text[: end.start()], text[end.start()]) if end else (text.rstrip(), ".")
    if re.search(r"[.?!]\s", body) or len(joined) > 120:
        return f"{end_sentence(text)} {joined[0].upper()}{joined[1:]}."
    return f"{body}, {joined}{mark}"


def evolve_request(meta: JsonObject, seed: int) -> Json:
    """The request with a constraint, a reason or a situation of 10 to 20 words beside it; the
    values stay what they were, and none of the words is an argument."""
    text, values = str(meta["instruction"]).strip(), dict(meta.get("values") or {})
    rng = random.Random(digest(["evolve", text, meta.get("direction"), seed]))
    kind = _choose_kind(str(meta.get("direction") or ""), rng)
    heads, tails = read_phrases()["evolutions"][kind]
    heads = [head for head in heads if head not in text] or heads
    both = [f"{head} {tail}" for head in heads for tail in tails]
    added = rng.choice([phrase for phrase in both if _FEWEST <= len(phrase.split()) <= _MOST])
    if len(text) + len(added) + 2 > _LONGEST:
        return {"instruction": text, "values": values}
    text = text[:1].upper() + text[1:] if kind == "context" else text
    evolved = f"{added} {text}" if kind == "context" else f"{end_sentence(text)} {added}"
    return {"instruction": evolved, "values": values}


# Looked for in this order: "set it in a situation with a reason" is a situation.
_DIRECTIONS = {
    "context": r"context|situat|concret|persona|background|scenario|breadth",
    "constraint": r"constrain|restrict|condition|limit|require|complicat",
    "reason": r"reason|why|purpose|deep|motiv|goal|step",
}


def _choose_kind(direction: str, rng: random.Random) -> str:
    lowered = direction.lower()
    kinds = [kind for kind, marks in _DIRECTIONS.items() if re.search(marks, lowered)]
    return kinds[0] if kinds else rng.choice(sorted(_DIRECTIONS))
