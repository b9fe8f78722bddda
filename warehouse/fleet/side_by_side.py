"""Many independent pieces of work at once, in a bounded pool of threads on this machine.

A piece's own limits end it (the sandbox's wall clock, the client's time-out): a thread cannot be
killed from outside.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


def map_side_by_side(
    fn: Callable[[In], Out],
    items: Sequence[In],
    *,
    concurrency: int,
    on_done: Callable[[Future[Out]], object] = lambda _: None,
) -> list[Out]:
    """What `fn` makes of each item, in their order. Raises the first item's error, when all have
    ended."""
    with ThreadPoolExecutor(max_workers=max(1, concurrency)) as pool:
        futures = [pool.submit(fn, item) for item in items]
        try:
            for future in futures:
                future.add_done_callback(on_done)
            wait(futures)
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        return [future.result() for future in futures]
