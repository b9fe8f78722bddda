"""What the rollouts of a training were worth: by update and part, and the groups that failed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from extensions.sidecar.rewards.score import ASKED, COPIED, HARMFUL, RIGHT, UNREAD, RevisionScore
from extensions.sidecar.rewards.weights import PARTS
from warehouse.statistics import wilson_interval

_VERDICTS = (RIGHT, COPIED, HARMFUL, ASKED, UNREAD)


@dataclass
class Tally:
    """curve: a point for each update. groups: all that were written; failed: those whose
    completions were all worth the same and none right, as they were written first; replaced: those
    of them written again with a worked example; differing: those that then are worth different."""

    curve: list[dict[str, Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add_update(self, scores: Sequence[RevisionScore]) -> None:
        self.curve.append({"update": len(self.curve) + 1, **summarise_scores(scores)})

    def get_figures(self) -> dict[str, Any]:
        """As the card holds them."""
        groups, failed = self.counts["groups"], self.counts["failed"]
        known = {name: self.counts[name] for name in ("groups", "failed", "replaced", "differing")}
        return {**known, "failed_share": make_rate(failed, groups), "curve": self.curve}


def is_failed(scores: Sequence[RevisionScore]) -> bool:
    """Whether a group teaches nothing: all are worth the same, and none of them is right."""
    return len({score.total for score in scores}) == 1 and scores[0].verdict != RIGHT


def summarise_scores(scores: Sequence[RevisionScore]) -> dict[str, Any]:
    """{reward, a mean for each part that was measured, a share for each verdict}; n 0: {}."""
    if not scores:
        return {}
    parts = {
        name: fmean(held) for name in (*PARTS, "asked")
        if (held := [score.parts[name] for score in scores if name in score.parts])
    }  # fmt: skip
    shares = {f"is_{name}": fmean(score.verdict == name for score in scores) for name in _VERDICTS}
    found = {"reward": fmean(score.total for score in scores), **parts, **shares}
    return {name: round(value, 4) for name, value in found.items()}


def make_rate(k: int, n: int) -> dict[str, float | int]:
    """{value, low, high, n}: a share with Wilson's 95% interval."""
    low, high = wilson_interval(k, n) if n else (0.0, 1.0)
    return {"value": round(k / n, 4) if n else 0.0, "low": round(low, 4), "high": round(high, 4),
            "n": n}  # fmt: skip
