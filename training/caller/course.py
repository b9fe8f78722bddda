"""What one training of a caller learns, in which order, and where its checkpoints lie."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.caller.batches import Lesson
from training.caller.packing import Plan, plan_passes
from training.caller.settings import CallerSettings
from training.runtime.device import (
    count_processes,
)
from warehouse.storage.digest import digest, sha256

Report = Callable[[dict[str, Any]], None]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Course:
    """What is learned and where its checkpoints lie. `plan` names it: rows, order, settings."""

    lessons: Sequence[Lesson]
    settings: CallerSettings
    device: str  # cpu | cuda
    pad: int
    root: Path
    packs: bool

    def plan_passes(self) -> Plan:
        chosen = self.settings
        return plan_passes(
            [len(each.ids) for each in self.lessons],
            per_update=chosen.batch * chosen.accumulate,
            epochs=chosen.epochs,
            seed=chosen.seed,
            pass_tokens=(chosen.pass_tokens or chosen.context) if self.packs else None,
            pass_rows=chosen.batch,
            processes=count_processes(),
        )

    def digest_plan(self) -> str:
        """The digest of all that a checkpoint must agree with. Passes are no part of it: an update
        takes the same rows however they are packed."""
        held = self.settings
        kept = {n: getattr(held, n) for n in ("epochs", "batch", "accumulate", "seed", "rank")}
        kept |= {n: getattr(held, n) for n in ("alpha", "learning_rate", "warmup", "weight_decay")}
        held_ids = json.dumps([[each.start, *each.ids, *each.gaps] for each in self.lessons])
        return digest({**kept, "lessons": sha256(held_ids.encode())})
