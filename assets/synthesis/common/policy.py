"""How many pairs are written, of what kinds, and how strictly they are filtered and judged."""

from dataclasses import dataclass, field

from assets.synthesis.common.tables import TASKS


@dataclass(frozen=True)
class SynthesisPolicy:
    """Shares are of tools, from 0 to 1; cosines are of the configured embedder's unit vectors."""

    pairs_per_tool: int = 3  # of the task `single`; every other task has one a tool
    seed: int = 7
    evolve_depth: int = 1
    evolve_share: float = 0.34
    languages: tuple[str, ...] = ("en",)
    shares: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TASKS[1:], 0.1))
    checks: bool = True
    distractors: int = 4
    copies_above: float = 0.8
    twins_above: float = 0.95
    threshold: float = 6.0
    votes: int = 1
