"""Learning while serving: an installed extension teaches the served reranker from the log of calls.

The entry point `toolmill.learners` names a function
`(ServedRouter, Outcomes, ReliabilityPolicy) -> OutcomeLearner`.
"""

from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.to_thread

from assets.outcomes.reliability.policy import ReliabilityPolicy
from assets.servers.calls.log import Outcomes
from warehouse.extensions import LEARNERS, load_extensions

if TYPE_CHECKING:
    from serving.router import ServedRouter


class OutcomeLearner(Protocol):
    """Teaches the served reranker from the log of calls, a little at each step."""

    @property
    def learnt(self) -> int | None:
        """Outcomes learned since the reranker was fitted; None without a reranker."""
        ...

    def step(self) -> bool:
        """Reads and learns for a moment; whether nothing is left to do for now."""
        ...


def open_learner(
    served: "ServedRouter", outcomes: Outcomes, policy: ReliabilityPolicy | None
) -> OutcomeLearner | None:
    """The learner of an installed extension; None without one, or where learning is switched
    off."""
    learners = load_extensions(LEARNERS).values() if policy is not None else ()
    return next((make(served, outcomes, policy) for make in learners), None)


async def follow_log(learner: OutcomeLearner, poll_s: float) -> None:
    """Runs the learner until it is cancelled, in a thread of its own: no request waits for it, and
    it rests for as long as it worked."""
    thread = anyio.CapacityLimiter(1)
    while True:
        began = anyio.current_time()
        idle = await anyio.to_thread.run_sync(learner.step, limiter=thread)
        took = anyio.current_time() - began
        await anyio.sleep(max(poll_s if idle else 0.0, took))
