"""Following the log: the served reranker learns from outcomes while requests are answered."""

import anyio
import anyio.to_thread

from extensions.recommender.learning.online_learner import OnlineLearner
from serving.meta.context import Desk


async def follow_log(desk: Desk, learner: OnlineLearner) -> None:
    """Lets the learner work until it is cancelled, in a thread of its own: no request waits for it,
    and it rests as long as it works."""
    thread = anyio.CapacityLimiter(1)
    while True:
        began = anyio.current_time()
        idle = await anyio.to_thread.run_sync(learner.step, limiter=thread)
        took = anyio.current_time() - began
        await anyio.sleep(max(desk.policy.poll_s if idle else 0.0, took))
