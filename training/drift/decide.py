"""Whether to train again: a pure decision over what was measured, learnt, spent and set."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from training.drift.policy import RetrainPolicy
from training.drift.signal import CONTRACTS, RETRIEVER_DECAY, Signal

_HOUR = 3600.0
# Points of Recall@1 that a training is taken to bring before one was measured: the upper end of
# what the demo's first brought over the shipped retriever, +.029 [-.025, .086], n = 207.
UNMEASURED_GAIN = 0.086
USD, GPU_HOURS = "US dollars", "GPU hours"


@dataclass(frozen=True)
class TrainedOn:
    """The current training set against that of the last training."""

    training_set: str | None = None  # the current one
    trained_on: str | None = None  # that of the last candidate; None before the first
    train_rows: int = 0  # of the current one
    settings: tuple[str, ...] = ()  # of training, that are others than the last candidates'


@dataclass(frozen=True)
class LastRun:
    """The last training. at: epoch seconds, None where it is not known. gain: the upper end of the
    95% interval of what it brought in Recall@1, None where nothing was measured."""

    at: float | None = None
    gain: float | None = None
    failed_attempts: int = 0  # of training on the current set


@dataclass(frozen=True)
class Budget:
    """What trainings cost in the last 30 days, and what the next one is taken to cost: as much as
    the last. hours: times the GPUs of the place of training."""

    hours: float = 0.0
    next_hours: float = 0.0


@dataclass(frozen=True)
class Retrain:
    """Train, with every reason that counted."""

    why: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Skip:
    """Do not train, with the reason."""

    why: list[str] = field(default_factory=list)


Decision = Retrain | Skip


def decide_before_drift(
    trained_on: TrainedOn,
    last_run: LastRun,
    budget: Budget,
    policy: RetrainPolicy,
    now: float | None = None,
) -> Decision | None:
    """What is decided whatever drift there is; None where drift decides. now: epoch seconds."""
    if trained_on.training_set is None:
        return Skip(["no training set yet"])
    if trained_on.train_rows < policy.min_rows:
        return Skip([f"{trained_on.train_rows} training pairs, {policy.min_rows} needed"])
    if trained_on.training_set == trained_on.trained_on and not trained_on.settings:
        return Skip(["the current training set was trained on already"])
    if last_run.failed_attempts >= policy.max_attempts:
        return Skip([f"training on this set failed {last_run.failed_attempts} times; fix it first"])
    if over := find_exceeded_budget(budget, policy):
        return Skip([over])
    if trained_on.trained_on is None:
        return Retrain(["nothing was trained yet"])
    if trained_on.settings:  # a person changed them, and does not wait for the cool-down
        listed = ", ".join(trained_on.settings)
        return Retrain([f"settings changed since the last training: {listed}"])
    cool_down, now = (policy.cool_down_h or 0.0) * _HOUR, time.time() if now is None else now
    # What lies further ahead was noted by a clock that has been set back since.
    if last_run.at is not None and abs(now - last_run.at) < cool_down:
        until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(last_run.at + cool_down))
        return Skip([f"{policy.cool_down_h:g} hours between trainings: none before {until}"])
    return None


def decide_retraining(
    drift: Sequence[Signal],
    accepted_new: int,
    trained_on: TrainedOn,
    last_run: LastRun,
    budget: Budget,
    policy: RetrainPolicy | None = None,
    now: float | None = None,
) -> Decision:
    """Pure: the same facts give the same decision. drift: judged signals. accepted_new: training
    pairs that the last training did not have. now: epoch seconds."""
    policy = policy or RetrainPolicy()
    early = decide_before_drift(trained_on, last_run, budget, policy, now)
    if early is not None:
        return early
    fired = [one for one in drift if one.fired]
    if not fired:
        return Skip(_describe_calm(drift))
    reasons = [describe_signal(one) for one in fired]
    gain = estimate_gain(drift, accepted_new, trained_on.train_rows, last_run)
    if gain < policy.min_gain:
        return Skip(
            [
                *reasons,
                f"a training is expected to bring {gain:.4f} in Recall@1 ({accepted_new} of"
                f" {trained_on.train_rows} training pairs are new), {policy.min_gain:g} needed",
            ]
        )
    return Retrain(reasons)


def find_exceeded_budget(budget: Budget, policy: RetrainPolicy) -> str | None:
    """Which budget the next training would exceed, in one line; None: neither."""
    hours = budget.hours + budget.next_hours
    for name, limit, spent, total in (
        (GPU_HOURS, policy.gpu_hours_month, budget.hours, hours),
        (
            USD,
            policy.usd_month,
            budget.hours * policy.usd_per_gpu_hour,
            hours * policy.usd_per_gpu_hour,
        ),
    ):
        if limit is not None and total > limit:
            return (
                f"trainings took {spent:.2f} {name} in 30 days and the next is taken to need"
                f" {total - spent:.2f} more: the budget is {limit:g}"
            )
    return None


def estimate_gain(
    drift: Sequence[Signal], accepted_new: int, train_rows: int, last_run: LastRun
) -> float:
    """Points of Recall@1 that a training may bring: the share of its pairs that are new times what
    the last one brought (the upper end of its interval: little evidence writes nothing off), and
    what the retriever lost on its frozen items, where that is certain."""
    worth = UNMEASURED_GAIN if last_run.gain is None else max(last_run.gain, 0.0)
    lost = sum(one.value or 0.0 for one in drift if one.name == RETRIEVER_DECAY and one.fired)
    return worth * (accepted_new / train_rows if train_rows else 0.0) + lost


def describe_signal(one: Signal) -> str:
    """A signal and its evidence, in one line."""
    if one.name == CONTRACTS:
        return one.why
    test = f", p={one.p_adjusted:.3g} of all tests" if one.p_adjusted is not None else ""
    return f"{one.name} {one.value:.3f} of {one.threshold:g}{test}: {one.why}"


def _describe_calm(drift: Sequence[Signal]) -> list[str]:
    """Why nothing fired: the contracts always, and how many other signals were looked at."""
    found = []
    for one in drift:
        if one.name == CONTRACTS:
            found.append(f"{one.why}: below {one.threshold:.1%}")
    others = [one for one in drift if one.name != CONTRACTS and one.value is not None]
    if others:
        names = ", ".join(other.name for other in others)
        found.append(f"none of {len(others)} other signals fired ({names})")
    return found or ["no drift was measured"]
