"""What questions each tool did and failed at, as sums of their vectors: no question is kept."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

MEMORY_FEATURES = ("like what it did", "like what it failed at", "drawn to what it did", "tried")
_PRIOR = 2.0  # outcomes' worth of nothing in each mean
_STEP = 0.3  # of the way from a tool's own vector to what it did (OATS)


@dataclass(frozen=True)
class Recalled:
    """Of one tool: sums of the vectors [dim] of what it did and failed at, and their weights."""

    won: np.ndarray
    lost: np.ndarray
    wins: float
    losses: float


def add_outcome(
    memory: dict[str, Recalled], tool_id: str, vector: np.ndarray, success: bool, weight: float
) -> None:
    """Remembers one outcome; what was recalled before is replaced, never written into."""
    old = memory.get(tool_id)
    if old is None:
        old = Recalled(np.zeros(len(vector)), np.zeros(len(vector)), 0.0, 0.0)
    own = weight * np.nan_to_num(np.asarray(vector, float), posinf=0.0, neginf=0.0)
    if success:
        memory[tool_id] = Recalled(old.won + own, old.lost, old.wins + weight, old.losses)
    else:
        memory[tool_id] = Recalled(old.won, old.lost + own, old.wins, old.losses + weight)


def measure_memory(
    memory: Mapping[str, Recalled], tool_ids: list[str], vectors: np.ndarray, question: np.ndarray
) -> np.ndarray:
    """MEMORY_FEATURES of each tool for a question, [tools, features]; 0 for tools never tried.
    vectors: the tools' own, [tools, dim]."""
    out = np.zeros((len(tool_ids), len(MEMORY_FEATURES)))
    for row, name in enumerate(tool_ids):
        if (held := memory.get(name)) is None:
            continue
        own = float(vectors[row] @ question)
        out[row, 0] = float(held.won @ question) / (held.wins + _PRIOR)
        out[row, 1] = float(held.lost @ question) / (held.losses + _PRIOR)
        if held.wins:
            moved = vectors[row] * (1 - _STEP) + held.won * (_STEP / held.wins)
            length = max(float(np.linalg.norm(moved)), 1e-6)
            out[row, 2] = float(moved @ question) / length - own
        out[row, 3] = np.log1p(held.wins + held.losses)
    return out
