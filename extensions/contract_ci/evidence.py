"""Evidence: a call that fitted the contract before and does not fit it now."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from assets.contracts.schema.step_budget import TooMuchWork, limit_steps
from assets.contracts.validate import validate_call
from assets.synthesis.contract_reading import Slot, get_input_schema, read_slots
from assets.synthesis.offline.values import draw_value
from warehouse.json_types import Contract

_DRAWS = 8  # values of each parameter besides its choices and limits
_STEPS = 200_000  # some 4 s of one tool
_SHOWN = 50  # choices of one parameter that are tried


@dataclass(frozen=True)
class BrokenCall:
    """arguments: right before. why: what is wrong with them now, in one line."""

    arguments: dict[str, Any]
    why: str


def find_broken_call(old: Contract, new: Contract) -> BrokenCall | None:
    """The first of the calls tried that was right by the old contract and is wrong by the new one:
    what is required, and each parameter beside it with its choices, its limits and drawn values.
    The same contracts give the same call. None where none of them is one."""
    try:
        with limit_steps(_STEPS):
            for arguments in _draw_calls(old):
                if validate_call(old, arguments):
                    continue
                if flaws := validate_call(new, arguments):
                    return BrokenCall(arguments, f"{flaws[0].path}: {flaws[0].message}"[:300])
    except (TooMuchWork, RecursionError):
        return None
    return None


def _draw_calls(contract: Contract) -> Iterator[dict[str, Any]]:
    root, slots = get_input_schema(contract), read_slots(contract)
    draw = random.Random(contract["name"])
    needed = {slot.name: draw_value(slot, root, draw) for slot in slots if slot.required}
    yield dict(needed)
    for slot in slots:
        values = [*_list_limits(slot), *(draw_value(slot, root, draw) for _ in range(_DRAWS))]
        yield from ({**needed, slot.name: value} for value in values)


def _list_limits(slot: Slot) -> Iterator[Any]:
    """The values that a narrower schema loses first."""
    schema = slot.schema
    choices = schema.get("enum")
    yield from choices[:_SHOWN] if isinstance(choices, list) else ()
    yield from (schema[key] for key in ("minimum", "maximum", "default") if key in schema)
    longest = schema.get("maxLength")
    if isinstance(longest, int) and 0 < longest <= 10_000:
        yield "x" * longest
    if slot.type == "string" and not choices:
        yield from ("", "x", "x" * 300)
