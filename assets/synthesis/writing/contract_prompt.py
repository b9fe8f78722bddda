"""Contracts and other data as a prompt shows them."""

import json
from collections.abc import Mapping, Sequence

from assets.synthesis.common.contract_reading import get_input_schema, get_properties
from assets.synthesis.common.tables import dump_text
from warehouse.json_types import Contract, Json, JsonObject

LONGEST = 24_000  # characters of one contract in a prompt: the longest real contract has 20,000
LONGEST_BESIDE = 6_000  # of one among several: 99% of real contracts are shorter
_KEPT = ("type", "description", "enum", "default", "format")


def show_contract(contract: Contract, longest: int = LONGEST) -> str:
    """A contract as text. A longer one loses its inner schemas; names and types stay."""
    text = json.dumps(contract, ensure_ascii=False, indent=1)
    return text if len(text) <= longest else _shorten_contract(contract)[:longest]


def show_contracts(contracts: Sequence[JsonObject]) -> str:
    """Several contracts, counted from 1 in the order shown."""
    parts = (
        f"Tool {number}:\n{show_contract(contract, LONGEST_BESIDE)}"
        for number, contract in enumerate(contracts, 1)
    )
    return "\n\n".join(parts)


def format_value(name: str, value: Json) -> str:
    """What a prompt says of one member of a request's meta."""
    match name:
        case "contract":
            return show_contract(value)
        case "contracts" | "rivals":
            return show_contracts(value) or "(none)"
        case "absent":
            return ", ".join(value)
        case _:
            return value if isinstance(value, str) else dump_text(value)


def _shorten_contract(contract: Contract) -> str:
    schema = get_input_schema(contract)
    slim = {
        name: {key: value for key, value in member.items() if key in _KEPT}
        for name, member in get_properties(contract).items()
        if isinstance(member, Mapping)
    }
    less = {**contract, "inputSchema": {**schema, "properties": slim}, "outputSchema": None}
    return json.dumps(less, ensure_ascii=False)
