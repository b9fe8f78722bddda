"""Injected failures: what a proxy makes of the answer of the real tool, or does in place of it."""

import re
from collections.abc import Mapping
from random import Random
from typing import Any

from assets.outcomes.worlds.task import replace_leaf, walk_leaves

RANDOM, TRUNCATED, STALE = "random", "truncated", "stale"
SLOW, UNIT, EMPTY = "slow", "wrong unit", "silent empty"
# Share of the calls that each hits. The first three are ToolFlix's; the others are ours.
RATES = {RANDOM: 0.35, TRUNCATED: 1.0, STALE: 0.6, SLOW: 0.5, UNIT: 1.0, EMPTY: 0.5}
FAULTS = tuple(RATES)
NOT_CARRIED_OUT = (RANDOM, STALE, SLOW, EMPTY)  # a call that is hit does not reach the real tool
CUT = 80  # characters that are left of a truncated answer
LIMIT_S, DELAY_S = 0.25, 0.3  # of a call of a slow tool; they stand for seconds
_FACTORS = (10, 100, 1000)
_NUMBER = re.compile(r"(?<![\w.\-/])\d+(?:\.\d+)?(?![\w.\-/])")


def is_hit(fault: str | None, rng: Random) -> bool:
    """Whether the fault strikes at one call."""
    return fault is not None and rng.random() < RATES[fault]


def change_answer(fault: str, text: str, rng: Random) -> str:
    """What of a real answer the caller gets to see."""
    if fault == TRUNCATED:
        return text[:CUT]
    if fault == UNIT:
        factor = rng.choice(_FACTORS)
        return _NUMBER.sub(lambda match: scale_number(match[0], factor), text)
    return text


def change_arguments(fault: str, arguments: Mapping[str, Any], rng: Random) -> dict[str, Any]:
    """What the real tool is asked; by a tool of the wrong unit, other numbers."""
    changed = dict(arguments)
    if fault == UNIT:
        factor = rng.choice(_FACTORS)
        for path, value in walk_leaves(arguments):
            if isinstance(value, int | float) and not isinstance(value, bool):
                changed = replace_leaf(changed, path, value * factor)
    return changed


def scale_number(number: str, factor: int) -> str:
    """A decimal number in another unit, as text."""
    if "." in number:
        return f"{float(number) * factor:g}"
    return str(int(number) * factor)
