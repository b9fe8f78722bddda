"""Tools that say the same: one hit, the others named beside it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from assets.contracts.canonical import iterate_parameters
from serving.index.model import Tool

_SEPARATORS = re.compile(r"[\W_]+")


def find_twin_places(tools: Sequence[Tool], contracts: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """For each tool the place of the first one that says the same (its own where none does).

    Twins have equal contracts, or one name modulo case and separators, one description (not an
    empty one) and parameters of the same names: text that differs in meaning is never collapsed,
    and an unverified tool is no twin of one that was launched.
    """
    first: dict[Any, int] = {}
    out = np.arange(len(tools), dtype=np.int32)
    for place, (tool, contract) in enumerate(zip(tools, contracts, strict=True)):
        signatures = (tool.contract_digest, _describe_contract(contract))
        keys = [(key, tool.unverified) for key in signatures if key]
        known = [first[key] for key in keys if key in first]
        out[place] = min(known, default=place)
        for key in keys:
            first.setdefault(key, int(out[place]))
    return out


def _describe_contract(contract: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]] | None:
    about = " ".join(contract.get("description", "").split())
    name = _SEPARATORS.sub("", contract["name"].lower())
    if not (about and name):
        return None
    return name, about, tuple(name for name, _ in iterate_parameters(contract))
