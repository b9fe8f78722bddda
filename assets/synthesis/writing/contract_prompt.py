"""Contracts and other data as a prompt shows them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from assets.synthesis.common.contract_reading import input_schema, properties_of
from assets.synthesis.common.tables import text_of

Json = Any
LONGEST = 24_000  # characters of one contract in a prompt: the longest real contract has 20,000
LONGEST_BESIDE = 6_000  # of one among several: 99% of real contracts are shorter
_KEPT = ("type", "description", "enum", "default", "format")


def shown(contract: Mapping[str, Json], longest: int = LONGEST) -> str:
    """A contract as text. A longer one loses its inner schemas; names and types stay."""
    text = json.dumps(contract, ensure_ascii=False, indent=1)
    return text if len(text) <= longest else _shortened(contract)[:longest]


def shown_in_order(contracts: Sequence[Mapping[str, Json]]) -> str:
    """Several contracts, counted from 1 in the order shown."""
    parts = (
        f"Tool {number}:\n{shown(contract, LONGEST_BESIDE)}"
        for number, contract in enumerate(contracts, 1)
    )
    return "\n\n".join(parts)


def as_words(name: str, value: Json) -> str:
    """What a prompt says of one member of a request's meta."""
    match name:
        case "contract":
            return shown(value)
        case "contracts" | "rivals":
            return shown_in_order(value) or "(none)"
        case "absent":
            return ", ".join(value)
        case _:
            return value if isinstance(value, str) else text_of(value)


def _shortened(contract: Mapping[str, Json]) -> str:
    schema = input_schema(contract)
    slim = {
        name: {key: value for key, value in member.items() if key in _KEPT}
        for name, member in properties_of(contract).items()
        if isinstance(member, Mapping)
    }
    less = {**contract, "inputSchema": {**schema, "properties": slim}, "outputSchema": None}
    return json.dumps(less, ensure_ascii=False)
