"""The words of one request: every required value stated, then made harder."""

from collections.abc import Mapping
from typing import Any

from assets.synthesis.common.role_schemas import Draft, Worded
from assets.synthesis.verify.grounding.grounding import ABSENT, Text
from assets.synthesis.verify.verify import grounding_findings, worst_grade
from assets.synthesis.writing.partners import required
from assets.synthesis.writing.profiles import DIRECTIONS, directions, evolves
from assets.synthesis.writing.row_builder import StepFailed, Writing
from assets.synthesis.writing.scenario import World
from assets.synthesis.writing.units import Row

Json = Any
Values = dict[str, Json]
Contract = Mapping[str, Json]
MOST_ADDED = 60  # words a step; what grows more is another request, or talk about it


async def worded(writing: Writing, draft: Draft, world: World) -> tuple[str, Values]:
    """The request with every required value in its words."""
    text = writing.request("generate", draft.instruction)
    return await _stated(writing, text, writing.sound("generate", draft.values), world)


async def _stated(
    writing: Writing, text: str, values: Values, world: World, lost: tuple[str, ...] = ()
) -> tuple[str, Values]:
    """Asks the reviser for the values that the rules do not find, and holds it to that."""
    contract = writing.contract(writing.unit.own)
    names = [*absent(contract, text, values), *lost]
    if not names:
        return text, values
    text, values = await revised(writing, writing.unit.own, text, values, names, world)
    known = {name: values[name] for name in names if name in values}
    if still := unsaid(contract, text, known):
        # A value it did not tell may stand in the text all the same: the caller will see.
        found = f"the text still lacks {', '.join(still)}"
        raise StepFailed("revise", "not_stated", found, "another model or seed may help")
    return text, values


async def revised(
    writing: Writing, row: Row, text: str, values: Values, names: list[str], world: World
) -> tuple[str, Values]:
    """The reviser's text, and the values with those that it told for `names`."""
    contract = writing.contract(row)
    names = list(dict.fromkeys(names))
    reply = await writing.ask(
        "revise",
        "reviser",
        Worded,
        [row],
        {
            "contract": contract,
            "instruction": text,
            "values": values,
            "absent": names,
            "environment": world,
            "language": writing.language,
        },
    )
    said = writing.sound("revise", reply.value.values)
    told = {name: said[name] for name in names if name in said}
    text = writing.request("revise", reply.value.instruction)
    return text, {**values, **told}


async def evolved(writing: Writing, text: str, values: Values, world: World) -> tuple[str, Values]:
    """The request made harder, a step for each direction; what a step lost is stated again."""
    own = writing.unit.own
    draw = own, writing.unit.task, writing.index, writing.policy
    if not evolves(*draw):
        return text, values
    for direction in directions(*draw):
        before = text
        text, values = await _step(writing, direction, before, values, world)
        contract = writing.contract(own)
        missed = set(unsaid(contract, before, values))
        lost = tuple(name for name in unsaid(contract, text, values) if name not in missed)
        text, values = await _stated(writing, text, values, world, lost)
    return text, values


async def _step(
    writing: Writing, direction: str, text: str, values: Values, world: World
) -> tuple[str, Values]:
    contract = writing.contract(writing.unit.own)
    reply = await writing.ask(
        "evolve",
        "evolver",
        Worded,
        [writing.unit.own],
        {
            "contract": contract,
            "instruction": text,
            "values": values,
            "direction": direction,
            "environment": world,
            "language": writing.language,
        },
        direction=DIRECTIONS[direction],
    )
    before, text = text, writing.request("evolve", reply.value.instruction)
    added = len(text.split()) - len(before.split())
    if len(text) <= len(before) or added > MOST_ADDED:
        found = f"{added} words added, expected 10 to 20"
        raise StepFailed("evolve", "not_evolved", found, "another model or seed may help")
    return text, {**values, **writing.sound("evolve", reply.value.values)}


def absent(contract: Contract, text: str, values: Mapping[str, Json]) -> list[str]:
    """The required parameters that have no value, or a value that nothing in the text speaks of.

    What is only doubtful ("next to the Eiffel Tower" for a place) is not absent.
    """
    return [
        name
        for name in required(contract)
        if name not in values or unsaid(contract, text, {name: values[name]})
    ]


def unsaid(contract: Contract, text: str, values: Mapping[str, Json]) -> list[str]:
    """The values, required or not, that nothing in the text speaks of."""
    said = Text(text)
    objected = [
        name for name in values if list(grounding_findings(contract, said, {name: values[name]}))
    ]
    return [name for name in objected if worst_grade(name, values[name], said, contract) == ABSENT]
