"""What an effect takes: as measured in this home's ledger, else a documented default."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestration.settings.model import Settings

# Of homes that have measured none: seconds, prompt and completion tokens. On two cores beside much
# other work a launch took 29 s, a page .3, a page in a browser 18, a call in a world .7; requests
# to a model are as an endpoint of a hundred tokens a second answers them.
DEFAULTS: Mapping[str, tuple[float, int, int]] = {
    "page": (0.5, 0, 0),
    "render": (10.0, 0, 0),
    "resolve": (2.0, 0, 0),
    "remote": (2.0, 0, 0),
    "deploy": (15.0, 0, 0),
    "execute": (0.5, 0, 0),
    "train": (300.0, 0, 0),
    "llm": (3.0, 900, 250),
}
MEASURED, DEFAULT = "measured", "default"


@dataclass(frozen=True)
class Rate:
    """What one effect of a stage takes. basis: where that is from."""

    seconds: float
    tokens: float
    usd: float
    basis: str


class Rates:
    """Rates by stage."""

    def __init__(self, costs: Iterable[Mapping[str, Any]], settings: Settings) -> None:
        """costs: rows of `Ledger.costs()`."""
        self._settings = settings
        self._sums: dict[str, list[float]] = {}
        for row in costs:
            if row["status"] == "done":
                sums = self._sums.setdefault(row["stage"], [0.0] * 4)
                tokens = row["prompt_tokens"] + row["completion_tokens"]
                for at, one in enumerate((row["effects"], row["seconds"], tokens, row["usd"])):
                    sums[at] += one

    def find(self, stage: str) -> Rate:
        """The rate of a stage. A model's price follows the settings where nothing was paid yet."""
        n, seconds, tokens, usd = self._sums.get(stage, (0.0, 0.0, 0.0, 0.0))
        if n and (tokens or not self._is_paid(stage)):
            return Rate(seconds / n, tokens / n, usd / n, f"{MEASURED}: {n:,.0f} of this home")
        seconds, prompt, completion = DEFAULTS[stage if stage in DEFAULTS else stage.split(":")[0]]
        if not self._is_paid(stage):
            prompt = completion = 0
        usd = self._price(stage, prompt, completion)
        return Rate(seconds, prompt + completion, usd, f"{DEFAULT}: none was measured")

    def count(self, stage: str) -> int:
        """Effects of a stage that were done in this home."""
        return int(self._sums.get(stage, [0.0])[0])

    def _is_paid(self, stage: str) -> bool:
        """Whether a model answers for the stage now, and not the rules."""
        role = self._find_role(stage)
        return role is not None and role.model != "offline"

    def _price(self, stage: str, prompt: int, completion: int) -> float:
        role = self._find_role(stage)
        return (role.usd_in * prompt + role.usd_out * completion) / 1e6 if role else 0.0

    def _find_role(self, stage: str) -> Any:
        kind, _, name = stage.partition(":")
        return getattr(self._settings.roles, name, None) if kind == "llm" else None
