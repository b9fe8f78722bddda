"""The fleet: where many independent pieces of work run at once, each with its own time limit."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(frozen=True)
class Result(Generic[In, Out]):
    """One item's value, or the error that took its place."""

    item: In
    value: Out | None
    error: BaseException | None


class Fleet(Protocol):
    """Runs `fn` over `items`; results come in the order of the items."""

    def map(
        self,
        fn: Callable[[Any], Any],
        items: Sequence[Any],
        *,
        concurrency: int,
        on_done: Callable[[Result[Any, Any]], None] | None = None,
    ) -> list[Result[Any, Any]]: ...


class LocalFleet:
    """A bounded pool of threads on this machine. An item's own limits end it (the sandbox's wall
    clock, the client's time-out): a thread cannot be killed from outside."""

    def map(
        self,
        fn: Callable[[In], Out],
        items: Sequence[In],
        *,
        concurrency: int,
        on_done: Callable[[Result[In, Out]], None] | None = None,
    ) -> list[Result[In, Out]]:
        def one(item: In) -> Result[In, Out]:
            try:
                result: Result[In, Out] = Result(item, fn(item), None)
            except Exception as error:
                result = Result(item, None, error)
            if on_done:
                on_done(result)
            return result

        with ThreadPoolExecutor(max_workers=max(1, concurrency)) as pool:
            futures = [pool.submit(one, item) for item in items]
            try:
                wait(futures)
            except BaseException:
                for future in futures:
                    future.cancel()
                raise
            return [future.result() for future in futures]
