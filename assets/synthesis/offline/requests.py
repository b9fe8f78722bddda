"""Requests for one tool without a model: values first, then words that state them."""

import random
from collections.abc import Sequence

from assets.synthesis.common.contract_reading import Slot, get_input_schema, read_slots
from assets.synthesis.common.purpose import read_purpose
from assets.synthesis.offline.choice import choose_tool
from assets.synthesis.offline.language.clauses import append_lost_values, find_absent
from assets.synthesis.offline.language.frames import make_sentence
from assets.synthesis.offline.language.phrasing import Filled
from assets.synthesis.offline.values.from_scenario import draw_in_scenario
from assets.synthesis.verify.checks.description_echo import find_parroting
from assets.synthesis.verify.checks.stated_form import find_stated_form
from assets.vectors.lexicon import split_identifier
from warehouse.json_types import Contract, Json, JsonObject
from warehouse.storage.digest import digest

STYLES = ("direct", "detailed", "implicit")
# The grammar is English. A profile that asks for another language gets English, and the answer
# says so: `language` of every draft is what was really written.
LANGUAGE = "en"


def answer_requests(meta: JsonObject, seed: int) -> Json:
    """The generator's reply: `count` requests, their kinds in the order asked for."""
    contract = meta["contract"]
    kinds = [kind for kind in meta.get("kinds") or () if kind in STYLES] or STYLES
    profiles = list(meta.get("profiles") or [])
    made: list[Json] = []
    root = digest([contract, seed])
    for index in range(int(meta["count"])):
        style = kinds[index % len(kinds)]
        profile = profiles[index % len(profiles)] if profiles else None
        draft = _choose_best(contract, style, f"{root}:{index}", profile, meta)
        made.append({"kind": style, **draft, "language": LANGUAGE})
    return {"requests": made}


def _choose_best(
    contract: Contract, style: str, root: str, profile: JsonObject | None, meta: JsonObject
) -> dict[str, Json]:
    """The first of a few requests that does not hand the contract's words back and that words
    alone tell apart from the look-alikes; else the one that comes nearest to both."""
    rivals = list(meta.get("rivals") or [])
    tried: list[tuple[int, int, dict[str, Json]]] = []
    for attempt in range(_ATTEMPTS):
        rng = random.Random(f"{root}:{attempt}")
        environment = meta.get("environment")
        made = make_request(contract, style, rng, profile, environment, far=attempt > 0)
        text = made["instruction"]
        faults = 2 * bool(find_parroting(contract, text, made["values"]))
        if rivals and choose_tool([contract, *rivals], text)[0] != 1:
            faults += 1
        tried.append((faults, attempt, made))
        if not faults:
            break
    return min(tried, key=lambda one: one[:2])[2]


# Of 420 requests for 140 live tools the judge's rules called 22% echoes after one attempt.
_ATTEMPTS = 5


def make_request(
    contract: Contract,
    style: str,
    rng: random.Random,
    profile: JsonObject | None = None,
    environment: JsonObject | None = None,
    without: Sequence[str] = (),
    far: bool = False,
) -> dict[str, Json]:
    """One request in words, and the arguments it states: {instruction, values}.

    `without` names parameters that it does not speak of; `far` takes it further from the contract's
    own words. A required value that the words lost is added in plain words.
    """
    filled = fill_parameters(contract, style, rng, environment, without)
    text = make_sentence(contract, read_purpose(contract), filled, style, rng, profile, far)
    values = {item.slot.name: item.value for item in filled}
    lost = find_absent(contract, text, values)
    return {"instruction": append_lost_values(text, filled, lost), "values": values}


def fill_parameters(
    contract: Contract,
    style: str,
    rng: random.Random,
    environment: JsonObject | None = None,
    without: Sequence[str] = (),
    taken: Sequence[Json] = (),
) -> list[Filled]:
    """The parameters a request speaks of with a value each, unlike those in `taken`."""
    root = get_input_schema(contract)
    chosen = [
        slot for slot in _choose_slots(read_slots(contract), style, rng) if slot.name not in without
    ]
    filled: list[Filled] = []
    for slot in chosen:
        beside = [*taken, *(item.value for item in filled)]
        filled.append(Filled(slot, draw_in_scenario(slot, root, rng, beside, environment)))
    return filled


_MOST = 60  # required parameters said in one request; the longest real contract has 23
_LEFT_UNSTATED = {"cursor", "token", "callback", "timeout", "headers"}


def _choose_slots(all_slots: list[Slot], style: str, rng: random.Random) -> list[Slot]:
    required = [slot for slot in all_slots if slot.required][:_MOST]
    # An option worth saying is a plain one: nobody says a pagination cursor, a callback or base64.
    plain = [
        slot for slot in all_slots
        if not slot.required and slot.type in ("string", "integer", "number", "boolean", "array")
        and not _LEFT_UNSTATED & {*slot.words, *split_identifier(slot.name)}
        and (slot.type != "string" or find_stated_form(slot.name, slot.hint) is None)
    ]  # fmt: skip
    most = {"direct": 1 if len(required) < 2 else 0, "detailed": 2, "implicit": 0}[style]
    if style == "implicit" and not required and rng.random() < 0.4:
        most = 1
    wanted = min(len(plain), rng.randint(min(most, 1 if not required else 0), most) if most else 0)
    # Authors list what matters first; so do people.
    weights = [1 / (position + 1) for position in range(len(plain))]
    picked: list[Slot] = []
    while len(picked) < wanted:
        slot = rng.choices(plain, weights)[0]
        if slot not in picked:
            picked.append(slot)
    return [*required, *picked]
