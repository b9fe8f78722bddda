"""What is expected of a tool before its own calls: by its contract, category, server, look-alikes.

    all tools -> contract and launch -> category -> server -> look-alikes -> the tool

Each level is shrunk towards the one before by how many calls it has, and never holds those of the
tool itself, nor those of its server those of the category.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from assets.outcomes.reliability.estimate import Evidence, Prior
from assets.outcomes.reliability.features import fit_rates

STRENGTH = 4.0  # calls that a prior is worth
# Calls of a level that count as much as all levels before it.
_CATEGORY, _SERVER, _ALIKE = 20.0, 5.0, 5.0
_MOST = 20.0  # calls of one tool that count in a level: one busy tool is not its category


@dataclass(frozen=True)
class ToolFacts:
    """What is known of a tool without any call of it. features: as `describe_tool` gives them."""

    tool_id: str
    server_id: str
    category: str  # of its server
    features: Sequence[float]
    alike: Sequence[str] = field(default=())  # tool ids of look-alikes on other servers


def build_priors(
    tools: Sequence[ToolFacts], seen: Mapping[str, Evidence]
) -> tuple[dict[str, Prior], float]:
    """(tool id -> its prior, the rate of all tools). seen: what calls of each tool count."""
    counts = {tool.tool_id: seen.get(tool.tool_id, Evidence()).limit(_MOST) for tool in tools}
    whole = sum(counts.values(), Evidence())
    overall = (whole.worked + 1) / (whole.n + 2)
    if not tools:
        return {}, overall
    features = np.array([tool.features for tool in tools], np.float64)
    worked, failed = (
        np.array([getattr(counts[tool.tool_id], name) for tool in tools])
        for name in ("worked", "failed")
    )
    rates = fit_rates(features, worked, failed)
    servers: dict[str, Evidence] = defaultdict(Evidence)
    categories: dict[str, Evidence] = defaultdict(Evidence)
    for one in tools:
        servers[one.server_id] += counts[one.tool_id]
        categories[one.category] += counts[one.tool_id]
    found = {}
    for one, rate in zip(tools, rates.tolist(), strict=True):
        own = counts[one.tool_id].scale(-1)
        alike = sum((counts.get(name, Evidence()) for name in one.alike), Evidence())
        server = servers[one.server_id]
        mean = _smooth_share(categories[one.category] + server.scale(-1), rate, _CATEGORY)
        mean = _smooth_share(server + own, mean, _SERVER)
        found[one.tool_id] = Prior(_smooth_share(alike, mean, _ALIKE), STRENGTH)
    return found, overall


def _smooth_share(seen: Evidence, towards: float, calls: float) -> float:
    """The share of successes, as if `calls` more had gone as is expected; 0..1 whatever rounding
    left of a difference."""
    worked, n = max(seen.worked, 0.0), max(seen.n, 0.0)
    return min((worked + calls * towards) / (n + calls), 1.0)
