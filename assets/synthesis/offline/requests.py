"""Requests for one tool or several: values are drawn first, then words that state them. And the
caller's arguments."""

import json
import random
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from assets.contracts.repair.repair import repair_call
from assets.contracts.validate import validate_call
from assets.synthesis.contract_reading import (
    ParameterSlot,
    get_input_schema,
    read_purpose,
    read_slots,
)
from assets.synthesis.offline.choice import choose_tool
from assets.synthesis.offline.sentences import make_sentence
from assets.synthesis.offline.values import draw_new_value
from assets.synthesis.offline.wording import (
    FilledSlot,
    append_lost_values,
    end_sentence,
    find_absent,
    make_clause,
)
from assets.synthesis.verify.pair_checks import find_parroting, find_stated_form
from assets.vectors.lexicon import collect_words, find_base_form, split_identifier
from warehouse.json_types import Contract, Json, JsonObject
from warehouse.storage.digest import digest
from warehouse.storage.files import read_data

_WORDS = read_data(__file__, "words.toml")
STYLES = ("direct", "detailed", "implicit")
# The grammar is English. A profile that asks for another language gets English, and the answer
# says so: `language` of every draft is what was really written.
LANGUAGE = "en"
# Of 420 requests for 140 live tools the judge's rules called 22% echoes after one attempt.
_ATTEMPTS = 5


@cache
def read_phrases() -> dict[str, Any]:
    """The phrases of asides, evolutions, questions and several calls; read once."""
    return json.loads(Path(__file__).with_name("phrases.json").read_text(encoding="utf-8"))


def answer_requests(meta: JsonObject, seed: int) -> Json:
    """The generator's reply: `count` requests, their kinds in the order asked for."""
    contract = meta["contract"]
    kinds = [kind for kind in meta.get("kinds") or () if kind in STYLES] or STYLES
    profiles = list(meta.get("profiles") or [None])
    rivals = list(meta.get("rivals") or [])
    explored = list(meta.get("explored") or [])
    root = digest([contract, seed])
    drafts: list[Json] = []
    for index in range(int(meta["count"])):
        style, profile = kinds[index % len(kinds)], profiles[index % len(profiles)]
        given = explored[index % len(explored)] if explored else None
        draft = _choose_best(contract, style, f"{root}:{index}", profile, rivals, given)
        drafts.append({"kind": style, **draft, "language": LANGUAGE})
    return {"requests": drafts}


def _choose_best(
    contract: Contract,
    style: str,
    root: str,
    profile: JsonObject | None,
    rivals: list[JsonObject],
    given: JsonObject | None = None,
) -> dict[str, Json]:
    """The first of a few requests that neither parrots its contract nor fits a look-alike."""
    tried: list[tuple[int, dict[str, Json]]] = []
    for attempt in range(_ATTEMPTS):
        rng = random.Random(f"{root}:{attempt}")
        draft = make_request(contract, style, rng, profile, far=attempt > 0, given=given)
        text = draft["instruction"]
        faults = 2 * bool(find_parroting(contract, text, draft["values"]))
        faults += bool(rivals) and choose_tool([contract, *rivals], text)[0] != 1
        tried.append((faults, draft))
        if not faults:
            break
    return min(tried, key=lambda faults_and_draft: faults_and_draft[0])[1]


def make_request(
    contract: Contract,
    style: str,
    rng: random.Random,
    profile: JsonObject | None = None,
    without: Sequence[str] = (),
    far: bool = False,
    given: JsonObject | None = None,
) -> dict[str, Json]:
    """One request and its arguments: {instruction, values}. without: parameters left unsaid; far:
    further from the contract's words; given: arguments to state instead of invented ones."""
    if given is None:
        filled = fill_parameters(contract, style, rng, without)
    else:
        slots = [slot for slot in read_slots(contract) if slot.name in given]
        filled = [FilledSlot(slot, given[slot.name]) for slot in slots]
    text = make_sentence(contract, read_purpose(contract), filled, style, rng, profile, far)
    values = {item.slot.name: item.value for item in filled}
    return {"instruction": append_lost_values(contract, text, filled), "values": values}


def fill_parameters(
    contract: Contract,
    style: str,
    rng: random.Random,
    without: Sequence[str] = (),
    taken: Sequence[Json] = (),
) -> list[FilledSlot]:
    """The parameters a request speaks of with a value each, unlike those in `taken`."""
    root = get_input_schema(contract)
    filled: list[FilledSlot] = []
    for slot in _choose_slots(read_slots(contract), style, rng):
        if slot.name not in without:
            beside = [*taken, *(item.value for item in filled)]
            filled.append(FilledSlot(slot, draw_new_value(slot, root, rng, beside)))
    return filled


_MOST = 60  # required parameters said in one request; the longest real contract has 23
_LEFT_UNSTATED = {"cursor", "token", "callback", "timeout", "headers"}


def _choose_slots(
    all_slots: list[ParameterSlot], style: str, rng: random.Random
) -> list[ParameterSlot]:
    required = [slot for slot in all_slots if slot.required][:_MOST]
    # An option worth saying is a plain one: nobody says a pagination cursor, a callback or base64.
    plain = [
        slot for slot in all_slots
        if not slot.required and slot.type in ("string", "integer", "number", "boolean", "array")
        and not _LEFT_UNSTATED & {*slot.words, *split_identifier(slot.name)}
        and (slot.type != "string" or find_stated_form(slot.name, slot.hint) is None)
    ]  # fmt: skip
    most = {"direct": int(len(required) < 2), "detailed": 2, "implicit": 0}[style]
    if style == "implicit" and not required and rng.random() < 0.4:
        most = 1
    count = min(len(plain), rng.randint(0 if required else min(most, 1), most))
    # Authors list what matters first; so do people.
    weights = [1 / (position + 1) for position in range(len(plain))]
    picked: list[ParameterSlot] = []
    while len(picked) < count:
        slot = rng.choices(plain, weights)[0]
        if slot not in picked:
            picked.append(slot)
    return [*required, *picked]


_MOST_CALLS = 5


def answer_several(meta: JsonObject, seed: int) -> Json:
    """The generator's reply for the tools shown and the shape wanted."""
    contracts = list(meta["contracts"])[:_MOST_CALLS]
    rng = random.Random(digest(["several", contracts, meta.get("shape"), seed]))
    if meta.get("explored"):
        draft = _word_steps(contracts, meta, rng)
    elif len({digest(contract) for contract in contracts}) == 1:
        draft = _call_twice(contracts[0], meta, rng)
    else:
        text, calls = "", []
        for number, contract in enumerate(contracts, 1):
            request = make_request(contract, "direct", rng, meta.get("profile"))
            text = _add_sentence(text, request["instruction"], _WORDS["also"], rng)
            calls.append({"tool": number, "arguments": request["values"]})
        draft = {"instruction": text, "calls": calls}
    return {**draft, "language": LANGUAGE}


def _word_steps(
    contracts: Sequence[JsonObject], meta: JsonObject, rng: random.Random
) -> dict[str, Json]:
    """Calls that worked, in words: what a call takes of an earlier answer is not said."""
    text, steps = "", list(meta["explored"])
    forms = _WORDS["then" if meta.get("shape") == "sequential" else "also"]
    for number, step in enumerate(steps, 1):
        contract, borrowed = contracts[step["tool"] - 1], step["borrowed"]
        stated = {name: v for name, v in step["arguments"].items() if name not in borrowed}
        profile = meta.get("profile") if number == 1 else None
        request = make_request(contract, "direct", rng, profile, given=stated)
        text = _add_sentence(text, request["instruction"], forms, rng)
        for slot in read_slots(contract):
            if slot.name in borrowed:
                label, key = (
                    FilledSlot(slot, step["arguments"][slot.name]).label,
                    borrowed[slot.name],
                )
                spoken = _LABELS.get(key, " ".join(split_identifier(key)) or key)
                taken = rng.choice(_WORDS["taken"]).replace("{l}", label)
                text = f"{text} {taken.replace('{w}', spoken)}"
    calls = [{**step, "borrowed": [*step["borrowed"]]} for step in steps]
    return {"instruction": text, "calls": calls}


def _call_twice(contract: Contract, meta: JsonObject, rng: random.Random) -> dict[str, Json]:
    """One tool, two things of the same sort: usually one value differs."""
    # With nothing required an option makes the difference.
    first = fill_parameters(contract, "direct", rng) or fill_parameters(contract, "detailed", rng)
    values = {item.slot.name: item.value for item in first}
    text = make_sentence(
        contract, read_purpose(contract), first, "direct", rng, meta.get("profile")
    )
    text = append_lost_values(contract, end_sentence(text), first)
    drawn = fill_parameters(contract, "direct", rng, taken=list(values.values()))
    others = [item for item in drawn if values.get(item.slot.name, item.value) != item.value]
    texts = [item for item in others if isinstance(item.value, str) and item.sort != "choice"]
    second = dict(values)
    for item in (texts or others)[:1]:
        second[item.slot.name] = item.value
        text = f"{text} {rng.choice(_WORDS['again']).replace('{c}', make_clause(item, rng, False))}"
        text = append_lost_values(contract, text, [item])
    if second == values:
        text = f"{text} Do it twice, please."
    calls = [{"tool": 1, "arguments": values}, {"tool": 1, "arguments": second}]
    return {"instruction": text[0].upper() + text[1:], "calls": calls}


_LABELS = {"id": "ID", "url": "link", "created": "date"}


def _add_sentence(text: str, request: str, forms: Sequence[str], rng: random.Random) -> str:
    sentence = end_sentence(request)
    first = sentence.split()[0].strip(",':").lower()
    if not text or (find_base_form(first) is None and first not in _COMMON):
        return f"{text} {sentence[0].upper()}{sentence[1:]}".lstrip()
    return f"{text} {rng.choice(forms).replace('{b}', sentence[0].lower() + sentence[1:])}"


_COMMON = collect_words(_WORDS["common"])

_LONGEST = 3900  # characters; an answer may have 4,000
_FEWEST_ADDED, _MOST_ADDED = 10, 20  # words of one step of evolution


def answer_worded(meta: JsonObject, seed: int) -> Json:
    """The reply of the evolver (meta has a direction) or of the reviser."""
    return evolve_request(meta, seed) if "direction" in meta else revise_request(meta, seed)


def revise_request(meta: JsonObject, seed: int) -> Json:
    """The request with every absent value said in it; a required value nobody has is drawn."""
    contract, text = meta["contract"], str(meta["instruction"])
    rng = random.Random(digest(["revise", contract, text, seed]))
    values, root, slots = dict(meta.get("values") or {}), get_input_schema(contract), []
    for slot in read_slots(contract):
        if slot.required and slot.name not in values:
            values[slot.name] = draw_new_value(slot, root, rng, values.values())
        if slot.name in values:
            slots.append(FilledSlot(slot, values[slot.name]))
    absent = {re.split(r"[.\[]", str(path), maxsplit=1)[0] for path in meta.get("absent") or ()}
    lacking = absent | set(find_absent(contract, text, values))
    clauses = [make_clause(item, rng, False) for item in slots if item.slot.name in lacking]
    revised = append_lost_values(contract, _weave_clauses(text, clauses), slots)
    revised = revised if len(revised) <= _LONGEST else text[:_LONGEST]
    return {"instruction": revised, "values": values}


def _weave_clauses(text: str, clauses: list[str]) -> str:
    """The clauses, put before the mark that ends a request of one sentence, else after it all."""
    if not clauses:
        return text
    joined = ("; " if any(":" in clause for clause in clauses) else ", ").join(clauses)
    body, mark = text.rstrip(), end_sentence(text)[-1]
    body = body[:-1].rstrip() if body.endswith((".", "?", "!")) else body
    if re.search(r"[.?!]\s", body) or len(joined) > 120:
        return f"{end_sentence(text)} {joined[0].upper()}{joined[1:]}."
    return f"{body}, {joined}{mark}"


# Looked for in this order: "set it in a situation with a reason" is a situation.
_DIRECTIONS = {
    "context": r"context|situat|concret|persona|background|scenario|breadth",
    "constraint": r"constrain|restrict|condition|limit|require|complicat",
    "reason": r"reason|why|purpose|deep|motiv|goal|step",
}


def evolve_request(meta: JsonObject, seed: int) -> Json:
    """The request with a constraint, reason or situation of 10 to 20 words beside it."""
    text, values = str(meta["instruction"]).strip(), dict(meta.get("values") or {})
    direction = str(meta.get("direction") or "").lower()
    rng = random.Random(digest(["evolve", text, direction, seed]))
    kinds = [
        kind
        for kind, marks in _DIRECTIONS.items()
        if any(mark in direction for mark in marks.split("|"))
    ]
    kind = kinds[0] if kinds else rng.choice(sorted(_DIRECTIONS))
    heads, tails = read_phrases()["evolutions"][kind]
    heads = [head for head in heads if head not in text] or heads
    both = [f"{head} {tail}" for head in heads for tail in tails]
    added = rng.choice([p for p in both if _FEWEST_ADDED <= len(p.split()) <= _MOST_ADDED])
    if len(text) + len(added) + 2 > _LONGEST:
        return {"instruction": text, "values": values}
    if kind == "context":
        return {"instruction": f"{added} {text[:1].upper()}{text[1:]}", "values": values}
    return {"instruction": f"{end_sentence(text)} {added}", "values": values}


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
