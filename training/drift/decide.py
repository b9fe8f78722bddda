"""Whether to train again: how far the contracts moved since the last training, and the decision."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass


@dataclass(frozen=True)
class DriftState:
    """The contracts now against those of the last training. Counts are of tools."""

    changed: int = 0
    new: int = 0
    gone: int = 0
    known: int = 0  # contracts when the last training set was made
    ever_trained: bool = False
    training_set: str | None = None  # the current one
    trained_on: str | None = None  # the one of the last candidate
    train_rows: int = 0
    failed_attempts: int = 0  # of training on the current set
    settings: tuple[str, ...] = ()  # of training, that are others than the last candidates'

    @property
    def share(self) -> float:
        """Changed, new and gone contracts over those known then; 1.0 when none were."""
        moved = self.changed + self.new + self.gone
        return moved / self.known if self.known else float(bool(moved))


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class RetrainPolicy:
    """When drift is enough, and when not to try."""

    min_share: Annotated[
        float, Field(ge=0, le=1, description="of changed tools, that asks for retraining")
    ] = 0.01
    min_rows: Annotated[int, Field(ge=1, description="training pairs, fewer train nothing")] = 20
    max_attempts: Annotated[int, Field(ge=1, description="of training on one set")] = 3


@dataclass(frozen=True)
class Decision:
    """Train or not, with every reason that counted."""

    retrain: bool
    reasons: list[str] = field(default_factory=list)


def decide_retraining(state: DriftState, policy: RetrainPolicy | None = None) -> Decision:
    """Pure: the same state gives the same decision."""
    policy, listed = policy or RetrainPolicy(), ", ".join(state.settings)
    if state.training_set is None:
        return Decision(False, ["no training set yet"])
    if state.train_rows < policy.min_rows:
        return Decision(False, [f"{state.train_rows} training pairs, {policy.min_rows} needed"])
    if state.training_set == state.trained_on and not state.settings:
        return Decision(False, ["the current training set was trained on already"])
    if state.failed_attempts >= policy.max_attempts:
        return Decision(
            False, [f"training on this set failed {state.failed_attempts} times; fix it first"]
        )
    if not state.ever_trained:
        return Decision(True, ["nothing was trained yet"])
    if state.settings:
        return Decision(True, [f"settings changed since the last training: {listed}"])
    changes = (
        f"{state.changed} changed, {state.new} new, {state.gone} gone of {state.known} contracts"
        f" ({state.share:.1%})"
    )
    if state.share < policy.min_share:
        return Decision(False, [f"{changes}: below {policy.min_share:.1%}"])
    return Decision(True, [changes])


def compute_drift(
    then: Mapping[str, str] | None, now: Mapping[str, str], **facts: Any
) -> DriftState:
    """The state from two maps of "server::tool" -> contract digest.

    `then` is the manifest of the last *trained* set (None before the first training); `facts` are
    the remaining fields of DriftState.
    """
    known = then or {}
    both = known.keys() & now.keys()
    return DriftState(
        changed=sum(known[key] != now[key] for key in both),
        new=len(now.keys() - known.keys()),
        gone=len(known.keys() - now.keys()),
        known=len(known),
        ever_trained=then is not None,
        **facts,
    )
