"""Which known requests stand as examples before another: the nearest, no text twice, few of one
tool."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from warehouse.sanitize.words import fold_words

PER_TOOL = 2  # of one tool in a prompt


class Known(Protocol):
    """A request that is known with its right calls. tool: whose example it is."""

    words: tuple[str, ...]
    tool: Any


@dataclass
class KnownCall:
    """An instruction with its right calls, {name, arguments} each."""

    instruction: str
    calls: tuple[dict[str, Any], ...]

    def __post_init__(self) -> None:
        self.words = tuple(fold_words(self.instruction))
        self.tool = str(self.calls[0]["name"])


K = TypeVar("K", bound=Known)


def choose_nearest(
    known: Sequence[K],
    near: np.ndarray,
    n: int,
    *,
    words: tuple[str, ...],
    too_near: float,
    may_show: Callable[[K], bool],
) -> Iterator[K]:
    """Up to n of `known`, the nearest first. near: their cosines to the request, (known,).
    words: the request's words. too_near: a cosine from which on two requests are one."""
    chosen, of_tool, shown = {words}, dict[Any, int](), 0
    for place in np.argsort(-near, kind="stable"):
        one = known[place]
        if shown >= n:
            return
        if float(near[place]) >= too_near or one.words in chosen or not may_show(one):
            continue
        if of_tool.get(one.tool, 0) >= PER_TOOL:
            continue
        chosen.add(one.words)
        of_tool[one.tool] = of_tool.get(one.tool, 0) + 1
        shown += 1
        yield one
