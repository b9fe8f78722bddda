"""What the ablations learn from and are asked, out of the tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assets.contracts.canonical import tool_text
from assets.synthesis.tables import ONE_CALL
from assets.vectors.encoders.embedder import Embedder
from training.sets.build import make_set
from training.sets.policy import SetPolicy
from warehouse.json_types import Row
from warehouse.store import Warehouse


@dataclass(frozen=True)
class Sets:
    """Rows of two training sets over the same contracts, and the contracts."""

    name: str  # of the accepted set
    accepted: list[dict[str, Any]]
    raw: list[dict[str, Any]]
    pool: dict[str, dict[str, Any]]

    @property
    def texts(self) -> list[str]:
        """All tool texts, what a retriever's answer is ranked among."""
        return sorted({tool_text(entry["contract"]) for entry in self.pool.values()})


def build_ablation_sets(
    warehouse: Warehouse, embedder: Embedder, policy: SetPolicy | None = None
) -> Sets:
    """Both sets of the current tables; the firewall and the leak rules hold for raw pairs too."""
    chosen = make_set(warehouse, embedder, policy)
    raw = make_set(warehouse, embedder, policy, choose=select_complete_pairs)
    return Sets(chosen.name, chosen.made.rows, raw.made.rows, chosen.made.pool)


def select_complete_pairs(pairs: Sequence[Row], _: Sequence[Row]) -> list[dict[str, Any]]:
    """Pairs that were written to their end, whatever a filter or the judge says of them."""
    kept = {
        row["pair_id"]: dict(row)
        for row in reversed(pairs)
        if row["status"] == "ok" and row["task"] in ONE_CALL
    }
    return [kept[name] for name in sorted(kept)]
