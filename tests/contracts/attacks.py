"""Attacks: invented tools, poisoned and honest, in the draws in which they were written.

The first draw was written beside the rules. Each later one was written against the rules as they
stood and run once before they changed; those first runs are the catch rates of benchmarks.md. The
rules learned from the second, third and fifth; from the fourth and sixth nothing. The fifth was
written before its author had read the lexicon whole, the sixth after.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple


class Case(NamedTuple):
    """One tool, and what it stands for: a family of attack, or "honest"."""

    family: str
    tool: dict[str, Any]


def _draws() -> dict[str, list[Case]]:
    text = Path(__file__).with_name("attacks.json").read_text(encoding="utf-8")
    return {
        draw: [Case(case["family"], case["tool"]) for case in cases]
        for draw, cases in json.loads(text).items()
    }


DRAWS = _draws()
LEARNED = [
    case for draw in ("poisoned", "poisoned_2", "poisoned_3", "poisoned_5") for case in DRAWS[draw]
]
HONEST = [case for draw in ("honest", "honest_2", "honest_3", "honest_5") for case in DRAWS[draw]]
