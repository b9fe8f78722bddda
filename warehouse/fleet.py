"""One piece of work, run here or elsewhere: a function of an importable module, and plain data in
and out, no ledger, no secret. The asking process has the ledger, so a piece run twice is one
effect."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, TypeVar

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from warehouse.extensions import FLEETS, load_extensions

LOCAL = "local"


class FleetUnavailable(RuntimeError):
    """No worker can be had; the message says why and what to do."""


class TaskLost(RuntimeError):
    """A piece of work ended without a result: its worker died each time, or the time was up."""


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class FleetSettings:
    """Where servers are launched, and what one launch is given there."""

    runs_on: Literal["local", "ray"] = LOCAL
    address: Annotated[
        str, Field(description="of the Ray cluster; `local` starts one on this machine")
    ] = "auto"
    cpus: Annotated[float, Field(gt=0, description="of a worker, for one launch")] = 1.0
    memory_mb: Annotated[int, Field(ge=64, description="of a worker, for one launch")] = 1024


class Fleet(Protocol):
    """Runs pieces of work. Safe to use from several threads, each of which waits for its piece."""

    def call(self, fn: Callable[..., bytes], *args: Any) -> bytes:
        """What `fn(*args)` returns. Raises what `fn` raises, TaskLost, or FleetUnavailable."""
        ...


@dataclass(frozen=True)
class LocalFleet:
    """This process: the thread that asks does the work itself. A thread cannot be ended from
    outside: a piece's own limits end it (the sandbox's wall clock, the client's time-out)."""

    def call(self, fn: Callable[..., bytes], *args: Any) -> bytes:
        return fn(*args)


In = TypeVar("In")
Out = TypeVar("Out")


def map_side_by_side(
    fn: Callable[[In], Out],
    items: Sequence[In],
    *,
    concurrency: int,
    on_done: Callable[[Future[Out]], object] = lambda _: None,
) -> list[Out]:
    """`fn` of each item, in order. Raises the first item's error, when all have ended."""
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


def open_fleet(settings: FleetSettings) -> Fleet:
    """The fleet that the settings name; a cluster is looked for with the first piece of work.
    Raises FleetUnavailable where its extension is not installed."""
    if settings.runs_on == LOCAL:
        return LocalFleet()
    try:
        return load_extensions(FLEETS)[settings.runs_on](settings)
    except KeyError:
        needed = f'fleet.runs_on = "{settings.runs_on}" needs the extension `scale`'
        raise FleetUnavailable(f"{needed}: install it, or set it to local") from None
