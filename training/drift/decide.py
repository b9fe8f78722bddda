"""Whether a role trains again: a pure decision over its own evidence.

A role trains when drift fired and a training is expected to gain on requests of new and changed
contracts. The expectation is the mean of what its past trainings gained on such requests and of
one imagined training that gained UNMEASURED_GAIN. A past training counts for less as days pass
(nothing after `retry_days`) and as contracts move: other tools are new by then. So one bad
candidate delays the next training and none ends it: `retry_days` after the last one the imagined
training alone is left, and any drift trains. A first candidate says nothing of new contracts; its
gates hold it against the model that it starts from. The retriever trains only where its own
signals fire: the shipped one finds new tools as well as others, and a training over a demo's pairs
gained nothing in eight runs (-.02 to -.05). An update of the caller waits until as many held-out
tools are new as its gate asks for: of three real nights one trained for 334 s that could not be
promoted, with a request of one tool.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from training.drift.signals import CONTRACTS, ROLE_SIGNALS, DriftSignal, describe_signal
from training.gates import MIN_TOOLS
from training.settings import RetrainPolicy

NOTHING_TRAINED = "nothing was trained yet; a model that ships serves until a contract is new"
# The upper end of what the demo's first training brought, +.029 [-.025, .086], n = 207.
UNMEASURED_GAIN = 0.086
_HOUR, _DAY = 3600.0, 86_400.0
_MIN_ROWS = 20  # training pairs; fewer train nothing
_MAX_ATTEMPTS = 3  # of training on one set in `retry_days`


@dataclass(frozen=True)
class MeasuredGain:
    """What one training gained on the requests of contracts that were new or changed then."""

    at: float  # epoch seconds
    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class RoleEvidence:
    """What one role decides on. gains: oldest first."""

    role: str
    trained_on: str | None = None  # the set of its last candidate; None before the first
    trained_at: float | None = None  # epoch seconds
    new_rows: int = 0  # training pairs of contracts that are new or changed since
    changed_settings: tuple[str, ...] = ()  # since its last candidate
    gains: tuple[MeasuredGain, ...] = ()
    testable: int | None = None  # held-out tools new to the model in service; None: not asked for


@dataclass(frozen=True)
class HomeFacts:
    """What all roles share. failed_attempts: on the current set, within `retry_days`."""

    training_set: str | None = None
    train_rows: int = 0
    failed_attempts: int = 0


@dataclass(frozen=True)
class RetrainDecision:
    """Train, with every reason that counted."""

    why: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class SkipDecision:
    """Do not train, with the reason and what would change it."""

    why: list[str] = field(default_factory=list)


Decision = RetrainDecision | SkipDecision


def decide_roles(
    home: HomeFacts,
    roles: Iterable[RoleEvidence],
    measure: Callable[[str], Sequence[DriftSignal]],
    policy: RetrainPolicy,
    now: float | None = None,
) -> dict[str, Decision]:
    """Role -> its decision. measure: judged signals since a training set, asked only for a role
    that drift decides on."""
    decisions: dict[str, Decision] = {}
    for evidence in roles:
        decision = decide_before_drift(home, evidence, policy, now)
        if decision is None:
            signals = measure(str(evidence.trained_on))
            decision = decide_retraining(home, evidence, signals, policy, now)
        decisions[evidence.role] = decision
    return decisions


def decide_before_drift(
    home: HomeFacts, evidence: RoleEvidence, policy: RetrainPolicy, now: float | None = None
) -> Decision | None:
    """What is decided whatever drift there is; None where drift decides. now: epoch seconds."""
    now = time.time() if now is None else now
    if home.training_set is None:
        return SkipDecision(["no training set yet"])
    if home.train_rows < _MIN_ROWS:
        return SkipDecision([f"{home.train_rows} training pairs, {_MIN_ROWS} needed"])
    if home.training_set == evidence.trained_on and not evidence.changed_settings:
        return SkipDecision(["the current training set was trained on already"])
    if home.failed_attempts >= _MAX_ATTEMPTS:
        return SkipDecision(
            [
                f"training on this set failed {home.failed_attempts} times in"
                f" {policy.retry_days:g} days; fix it, or wait for the next set"
            ]
        )
    if evidence.trained_on is None:
        return RetrainDecision([NOTHING_TRAINED])
    if evidence.changed_settings:  # a person changed them, and does not wait for the cool-down
        changed = ", ".join(evidence.changed_settings)
        return RetrainDecision([f"settings changed since the last training: {changed}"])
    cool_down, at = (policy.cool_down_h or 0.0) * _HOUR, evidence.trained_at
    # What lies further ahead was noted by a clock that has been set back since.
    if at is not None and abs(now - at) < cool_down:
        until = _format_time(at + cool_down)
        return SkipDecision(
            [f"{policy.cool_down_h:g} hours between trainings: none before {until}"]
        )
    return None


def decide_retraining(
    home: HomeFacts,
    evidence: RoleEvidence,
    drift: Sequence[DriftSignal],
    policy: RetrainPolicy | None = None,
    now: float | None = None,
) -> Decision:
    """Pure: the same facts give the same decision. drift: judged signals since the role's last
    training. now: epoch seconds."""
    policy, now = policy or RetrainPolicy(), time.time() if now is None else now
    early = decide_before_drift(home, evidence, policy, now)
    if early is not None:
        return early
    role = evidence.role
    signals = [signal for signal in drift if ROLE_SIGNALS.get(signal.name, role) == role]
    own = [each for each in signals if each.name in ROLE_SIGNALS and each.value is not None]
    fired = [describe_signal(signal) for signal in own or signals if signal.fired]
    if not fired and own:
        quiet = [describe_signal(signal) for signal in own]
        return SkipDecision([*quiet, "it trains when one of them fires"])
    if not fired:
        return SkipDecision(_describe_calm(signals))
    if not evidence.new_rows:
        nothing = "no training pair is of a new or changed contract; it trains when one is"
        return SkipDecision([*fired, nothing])
    if evidence.testable is not None and evidence.testable < MIN_TOOLS:
        few = f"held-out requests ask for {evidence.testable} tools that are new to the model"
        return SkipDecision([*fired, f"{few} in service; it trains when they are {MIN_TOOLS}"])
    moved = next((signal.value or 0.0 for signal in drift if signal.name == CONTRACTS), 0.0)
    expects = partial(estimate_gain, evidence.gains, moved, policy.retry_days)
    expected = expects(now)
    gained = _describe_gains(evidence, expected, now)
    if expected >= policy.min_gain:
        return RetrainDecision([*fired, gained])
    days = range(1, math.ceil(policy.retry_days) + 1)
    times = (now + day * _DAY for day in days)
    retry = next(at for at in times if expects(at) >= policy.min_gain)
    wait = (
        f"asks again on {_format_time(retry)}, or as soon as enough other contracts change"
        f" ({policy.min_gain:g} expected is enough)"
    )
    return SkipDecision([*fired, gained, wait])


def list_due_roles(decisions: Mapping[str, Decision]) -> list[str]:
    """The roles that train now."""
    return [role for role, each in decisions.items() if isinstance(each, RetrainDecision)]


def describe_decisions(decisions: Mapping[str, Decision]) -> list[str]:
    """`retriever, caller: due (why)`: a sentence for roles of one decision. What was never trained
    is not called due: where a model ships, it serves."""
    roles: dict[str, list[str]] = {}
    for role, decision in decisions.items():
        verb = "due" if isinstance(decision, RetrainDecision) else "wait"
        why = "; ".join(decision.why)
        roles.setdefault(why if why == NOTHING_TRAINED else f"{verb} ({why})", []).append(role)
    return [f"{', '.join(names)}: {what}" for what, names in roles.items()]


def estimate_gain(
    gains: Iterable[MeasuredGain], moved: float, retry_days: float, now: float
) -> float:
    """What a training is expected to gain on requests of new and changed contracts: the mean of
    past gains, weighed by how far they still apply, and of one of UNMEASURED_GAIN.

    moved: share of contracts that moved since the last training.
    """
    total, weights = UNMEASURED_GAIN, 1.0
    for gain in gains:
        age = min(1.0, max(0.0, now - gain.at) / (retry_days * _DAY))
        weight = (1.0 - age) * (1.0 - min(1.0, max(0.0, moved)))
        total += weight * gain.value
        weights += weight
    return total / weights


def read_gains(attempts: Iterable[Mapping[str, Any]]) -> tuple[MeasuredGain, ...]:
    """The gains that lines {at, attempt: {model, new_tools, promoted}} of a role's history hold;
    the first line of a model counts. What was refused without such a request gained nothing."""
    gains: dict[str, MeasuredGain] = {}
    for line in attempts:
        attempt = line.get("attempt") or {}
        figure = attempt.get("new_tools")
        if figure and (figure["n"] or attempt.get("promoted") is False):
            gains.setdefault(str(attempt.get("model")), MeasuredGain(float(line["at"]), **figure))
    return tuple(gains.values())


def _describe_gains(evidence: RoleEvidence, expected: float, now: float) -> str:
    measured = "none was measured yet"
    if evidence.gains:
        last = evidence.gains[-1]
        days = max(0.0, now - last.at) / _DAY
        measured = (
            f"the last of {len(evidence.gains)} measured gained {last.value:+.3f}"
            f" [{last.low:+.3f}, {last.high:+.3f}], n={last.n}, {days:.0f} days ago"
        )
    head = f"a training is expected to gain {expected:+.3f} on requests of new contracts"
    return f"{head}; {measured}"


def _describe_calm(signals: Sequence[DriftSignal]) -> list[str]:
    """Why nothing fired: the contracts always, and how many other signals were read."""
    contracts = [
        f"{signal.why}: below {signal.threshold:.1%}"
        for signal in signals
        if signal.name == CONTRACTS
    ]
    others = [
        signal.name for signal in signals if signal.name != CONTRACTS and signal.value is not None
    ]
    if others:
        contracts.append(f"none of {len(others)} other signals fired ({', '.join(others)})")
    return contracts or ["no drift was measured"]


def _format_time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))
