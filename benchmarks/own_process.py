"""Measurements in processes of their own: fresh imports and memory, in no other's time."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
FRESH = get_context("spawn")  # a fork would hold what its parent has imported


def run_alone(measure: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """What `measure` returns, or raises, in a process that does nothing else."""
    with ProcessPoolExecutor(1, mp_context=FRESH) as pool:
        return pool.submit(measure, *args, **named).result()
