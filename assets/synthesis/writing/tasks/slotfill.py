"""The words of one request: every required value stated, then made harder."""

from assets.synthesis.common.role_schemas import Draft, Worded
from assets.synthesis.verify.grounding.grounding import ABSENT, Text
from assets.synthesis.verify.verify import find_ungrounded, find_worst_grade
from assets.synthesis.writing.failures import StepFailed, check_values
from assets.synthesis.writing.partners import list_required
from assets.synthesis.writing.profiles import DIRECTIONS, draw_directions, is_evolved
from assets.synthesis.writing.row_builder import Writing
from assets.synthesis.writing.units import Row
from warehouse.json_types import Contract, Json, JsonObject

Values = dict[str, Json]
MOST_ADDED = 60  # words a step; what grows more is another request, or talk about it


async def state_request(writing: Writing, draft: Draft) -> tuple[str, Values]:
    """The request with every required value in its words."""
    text = writing.set_request("generate", draft.instruction)
    return await _state_values(writing, text, check_values("generate", draft.values))


async def _state_values(
    writing: Writing, text: str, values: Values, lost: tuple[str, ...] = ()
) -> tuple[str, Values]:
    """Asks the reviser for the values that the rules do not find, and holds it to that."""
    contract = writing.read_contract(writing.unit.own)
    names = [*find_absent(contract, text, values), *lost]
    if not names:
        return text, values
    text, values = await ask_revision(writing, writing.unit.own, text, values, names)
    known = {name: values[name] for name in names if name in values}
    if still := find_unsaid(contract, text, known):
        # A value it did not tell may stand in the text all the same: the caller will see.
        found = f"the text still lacks {', '.join(still)}"
        raise StepFailed("revise", "not_stated", found, "another model or seed may help")
    return text, values


async def ask_revision(
    writing: Writing, row: Row, text: str, values: Values, names: list[str]
) -> tuple[str, Values]:
    """The reviser's text, and the values with those that it told for `names`."""
    names = list(dict.fromkeys(names))
    meta = _describe_request(writing, text, values, absent=names)
    reply = await writing.ask("revise", Worded, row, meta)
    given = check_values("revise", reply.value.values)
    revised = {name: given[name] for name in names if name in given}
    text = writing.set_request("revise", reply.value.instruction)
    return text, {**values, **revised}


def _describe_request(
    writing: Writing, text: str, values: Values, **asked: Json
) -> dict[str, Json]:
    """What the reviser and the evolver are told, in the order that keys paid answers."""
    about = {"environment": writing.world, "language": writing.language}
    return {"instruction": text, "values": values, **asked, **about}


async def evolve_request(writing: Writing, text: str, values: Values) -> tuple[str, Values]:
    """The request made harder, a step for each direction; what a step lost is stated again."""
    own = writing.unit.own
    draw = own, writing.unit.task, writing.index, writing.policy
    if not is_evolved(*draw):
        return text, values
    for direction in draw_directions(*draw):
        before = text
        text, values = await _evolve_step(writing, direction, before, values)
        contract = writing.read_contract(own)
        missed = set(find_unsaid(contract, before, values))
        lost = tuple(name for name in find_unsaid(contract, text, values) if name not in missed)
        text, values = await _state_values(writing, text, values, lost)
    return text, values


async def _evolve_step(
    writing: Writing, direction: str, text: str, values: Values
) -> tuple[str, Values]:
    meta = _describe_request(writing, text, values, direction=direction)
    own, more = writing.unit.own, DIRECTIONS[direction]
    reply = await writing.ask("evolve", Worded, own, meta, direction=more)
    before, text = text, writing.set_request("evolve", reply.value.instruction)
    added = len(text.split()) - len(before.split())
    if len(text) <= len(before) or added > MOST_ADDED:
        found = f"{added} words added, expected 10 to 20"
        raise StepFailed("evolve", "not_evolved", found, "another model or seed may help")
    return text, {**values, **check_values("evolve", reply.value.values)}


def find_absent(contract: Contract, text: str, values: JsonObject) -> list[str]:
    """The required parameters that have no value, or a value that nothing in the text speaks of.

    What is only doubtful ("next to the Eiffel Tower" for a place) is not absent.
    """
    return [
        name
        for name in list_required(contract)
        if name not in values or find_unsaid(contract, text, {name: values[name]})
    ]


def find_unsaid(contract: Contract, text: str, values: JsonObject) -> list[str]:
    """The values, required or not, that nothing in the text speaks of."""
    request = Text(text)
    objected = [
        name for name in values if list(find_ungrounded(contract, request, {name: values[name]}))
    ]
    return [
        name
        for name in objected
        if find_worst_grade(name, values[name], request, contract) == ABSENT
    ]
