"""Requests for one tool or several: values are drawn first, then words that state them."""

import random
from collections.abc import Iterator, Sequence

from assets.synthesis.contract_reading import (
    ParameterSlot,
    get_input_schema,
    read_purpose,
    read_slots,
)
from assets.synthesis.offline.choice import choose_tool
from assets.synthesis.offline.invented_values import find_sort
from assets.synthesis.offline.replies import make_result
from assets.synthesis.offline.sentences import make_sentence
from assets.synthesis.offline.values import draw_in_scenario, fits_schema
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

STYLES = ("direct", "detailed", "implicit")
# The grammar is English. A profile that asks for another language gets English, and the answer
# says so: `language` of every draft is what was really written.
LANGUAGE = "en"


def answer_requests(meta: JsonObject, seed: int) -> Json:
    """The generator's reply: `count` requests, their kinds in the order asked for."""
    contract = meta["contract"]
    kinds = [kind for kind in meta.get("kinds") or () if kind in STYLES] or STYLES
    profiles = list(meta.get("profiles") or [])
    drafts: list[Json] = []
    root = digest([contract, seed])
    for index in range(int(meta["count"])):
        style = kinds[index % len(kinds)]
        profile = profiles[index % len(profiles)] if profiles else None
        draft = _choose_best(contract, style, f"{root}:{index}", profile, meta)
        drafts.append({"kind": style, **draft, "language": LANGUAGE})
    return {"requests": drafts}


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
        draft = make_request(contract, style, rng, profile, environment, far=attempt > 0)
        text = draft["instruction"]
        faults = 2 * bool(find_parroting(contract, text, draft["values"]))
        if rivals and choose_tool([contract, *rivals], text)[0] != 1:
            faults += 1
        tried.append((faults, attempt, draft))
        if not faults:
            break
    return min(tried, key=lambda attempt_result: attempt_result[:2])[2]


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
) -> list[FilledSlot]:
    """The parameters a request speaks of with a value each, unlike those in `taken`."""
    root = get_input_schema(contract)
    chosen = [
        slot for slot in _choose_slots(read_slots(contract), style, rng) if slot.name not in without
    ]
    filled: list[FilledSlot] = []
    for slot in chosen:
        beside = [*taken, *(item.value for item in filled)]
        filled.append(FilledSlot(slot, draw_in_scenario(slot, root, rng, beside, environment)))
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
    most = {"direct": 1 if len(required) < 2 else 0, "detailed": 2, "implicit": 0}[style]
    if style == "implicit" and not required and rng.random() < 0.4:
        most = 1
    count = min(len(plain), rng.randint(min(most, 1 if not required else 0), most) if most else 0)
    # Authors list what matters first; so do people.
    weights = [1 / (position + 1) for position in range(len(plain))]
    picked: list[ParameterSlot] = []
    while len(picked) < count:
        slot = rng.choices(plain, weights)[0]
        if slot not in picked:
            picked.append(slot)
    return [*required, *picked]


_MOST_CALLS = 4
_THEN = ("After that: {b}", "Then {b}", "Once you have that: {b}", "And then {b}")
_ALSO = ("Also, {b}", "And {b}", "While you're at it, {b}", "At the same time, {b}", "Besides, {b}")
_AGAIN = (
    "And the same once more, {c}.", "Then the same again, this time {c}.",
    "Do that a second time as well, {c}.", "I need it for another one too: {c}.",
)  # fmt: skip


def answer_several(meta: JsonObject, seed: int) -> Json:
    """The generator's reply for the tools shown and the shape wanted."""
    contracts = list(meta["contracts"])[:_MOST_CALLS]
    rng = random.Random(digest(["several", contracts, meta.get("shape"), seed]))
    alike = len({digest(contract) for contract in contracts}) == 1
    if meta.get("shape") == "sequential":
        draft = _call_in_sequence(contracts, meta, rng)
    elif alike:
        draft = _call_twice(contracts[0], meta, rng)
    else:
        draft = _call_beside(contracts, meta, rng)
    return {**draft, "language": LANGUAGE}


def _call_beside(
    contracts: Sequence[JsonObject], meta: JsonObject, rng: random.Random
) -> dict[str, Json]:
    """Several tools, one thing each."""
    text, calls = "", []
    for number, contract in enumerate(contracts, 1):
        part = make_request(contract, "direct", rng, meta.get("profile"), meta.get("environment"))
        sentence = end_sentence(part["instruction"])
        text = _add_sentence(text, sentence, _ALSO, rng)
        calls.append({"tool": number, "arguments": part["values"]})
    return {"instruction": text, "calls": calls}


def _call_twice(contract: Contract, meta: JsonObject, rng: random.Random) -> dict[str, Json]:
    """One tool, two things of the same sort."""
    world = meta.get("environment")
    first = fill_parameters(contract, "direct", rng, world)
    if not first:  # nothing required: an option makes the difference
        first = fill_parameters(contract, "detailed", rng, world)
    values = {item.slot.name: item.value for item in first}
    other = _draw_another(contract, first, rng, world)
    text = end_sentence(
        make_sentence(contract, read_purpose(contract), first, "direct", rng, meta.get("profile"))
    )
    text = append_lost_values(text, first, find_absent(contract, text, values))
    differing = [item for item in other if item.value != values.get(item.slot.name)]
    if differing:
        clauses = ", ".join(make_clause(item, rng, False) for item in differing)
        again = f"{text} {rng.choice(_AGAIN).replace('{c}', clauses)}"
        second = {item.slot.name: item.value for item in other}
        again = append_lost_values(again, other, find_absent(contract, again, second))
    else:
        again, second = f"{text} Do it twice, please.", dict(values)
    calls = [{"tool": 1, "arguments": values}, {"tool": 1, "arguments": second}]
    return {"instruction": again[0].upper() + again[1:], "calls": calls}


def _draw_another(
    contract: Contract, first: Sequence[FilledSlot], rng: random.Random, world: JsonObject | None
) -> list[FilledSlot]:
    """The same parameters; what the request is about has another value, choices may stay."""
    values_before = [item.value for item in first]
    drawn = fill_parameters(contract, "direct", rng, world, taken=values_before)
    fresh = {item.slot.name: item for item in drawn}
    names = [item.slot.name for item in first]
    items = {item.slot.name: item for item in first}
    # Usually one thing changes and the rest stays as it was said.
    free = [n for n in names if n in fresh and fresh[n].value != items[n].value]
    texts = [n for n in free if isinstance(items[n].value, str) and items[n].sort != "choice"]
    changed = set((texts or free)[:1])
    return [fresh[name] if name in changed else items[name] for name in names]


def _call_in_sequence(
    contracts: Sequence[JsonObject], meta: JsonObject, rng: random.Random
) -> dict[str, Json]:
    """One call of each tool in order; each after the first takes a value out of an earlier result,
    where some result holds what it can take."""
    world = meta.get("environment")
    tools = list(contracts) if len(contracts) > 1 else [contracts[0]] * 2
    text, calls, results = "", [], []
    for number, contract in enumerate(tools, 1):
        borrowable = _find_borrowable(contract, results[::-1])
        without = [borrowable[0]] if borrowable else []
        profile = meta.get("profile") if number == 1 else None
        part = make_request(contract, "direct", rng, profile, world, without)
        sentence = end_sentence(part["instruction"])
        text = _add_sentence(text, sentence, _THEN, rng)
        arguments = dict(part["values"])
        if borrowable:
            name, value, where = borrowable
            slots = {slot.name: slot for slot in read_slots(contract)}
            label = FilledSlot(slots[name], value).label
            clause = rng.choice(_TAKEN).replace("{l}", label).replace("{w}", where)
            text, arguments[name] = f"{text} {clause}", value
        tool = min(number, len(contracts))
        calls.append({"tool": tool, "arguments": arguments, "borrowed": without})
        results.append(make_result(contract, arguments))
    return {"instruction": text, "calls": calls}


_TAKEN = (
    "For the {l}, go by the {w} that the step before gives you.",
    "The {l} is the {w} you get from the part before.",
    "Use the {w} you found there as the {l}.",
)


_WHERE = {
    "id": ("id", "issue_key", "account", "session", "order_id", "token", "uuid", "slug_key"),
    "url": ("url", "image_url"),
    "path": ("path", "filename", "folder_path"),
    "email": ("email",),
    "person": ("person", "username"),
    "city": ("city", "address"),
    "created": ("date",),
    "name": ("project", "title", "topic", "thing", "company", "movie", "book", "song", "artist"),
}
_LABELS = {"id": "ID", "url": "link", "created": "date"}


def _find_borrowable(contract: Contract, result: Json) -> tuple[str, Json, str] | None:
    """(parameter, value, what the value is called) that the second call can take, or None."""
    scalars = list(_walk_scalars(result))
    for slot in sorted(read_slots(contract), key=lambda slot: not slot.required)[:20]:
        if slot.schema.get("enum") or "const" in slot.schema or slot.type not in _TYPES:
            continue
        sort = find_sort(slot)
        keys = {key for key, sorts in _WHERE.items() if sort in sorts}
        for key, value in scalars:
            key_sort = find_sort(ParameterSlot(key, {}, True, split_identifier(key), ""))
            alike = key_sort == sort != "project"
            names_it = key in (slot.name, *slot.words) or key in keys or alike
            turned = int(value) if slot.type == "integer" and str(value).isdecimal() else value
            if (
                names_it
                and isinstance(turned, _TYPES[slot.type])
                and fits_schema(turned, slot.schema)
            ):
                return slot.name, turned, _LABELS.get(key, key.replace("_", " "))
    return None


_TYPES: dict[str, type] = {"string": str, "integer": int}


def _walk_scalars(value: Json, key: str = "") -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _walk_scalars(member, str(name))
    elif isinstance(value, list):
        for member in value[:1]:  # what is listed first is what a person means by "it"
            yield from _walk_scalars(member, key)
    elif isinstance(value, (str, int)) and not isinstance(value, bool) and str(value):
        yield key, value


def _add_sentence(text: str, sentence: str, forms: Sequence[str], rng: random.Random) -> str:
    """The text and its next part, joined on by a word where that may lose its capital."""
    first = sentence.split()[0].strip(",':").lower()
    if not text or (find_base_form(first) is None and first not in _COMMON):
        return f"{text} {sentence[0].upper()}{sentence[1:]}".lstrip()
    return f"{text} {rng.choice(forms).replace('{b}', sentence[0].lower() + sentence[1:])}"


_COMMON = collect_words(
    "can could would will please what which how where who when why is are do does there any "
    "the my our we just go help let's show give tell time any it anything"
)
