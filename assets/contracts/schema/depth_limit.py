"""Depth: how far a validator may recurse into an untrusted schema.

Python's recursion limit is no guard here. Reached inside the Rust map in which `referencing` looks
up a `$ref`, it surfaces as a panic, a BaseException that `except Exception` lets through, and where
it is reached depends on how deep the caller stands: definitions that only refer to each other ended
one process and not another. A nested check takes at most five frames of the 1,000.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any


class _Depth(threading.local):
    nested = 0


_DEPTH = _Depth()


def limit_depth(check: Callable[..., Any], levels: int) -> Callable[..., Iterator[Any]]:
    """The check of a keyword (`jsonschema` calls it with validator, value, instance and schema),
    refusing to nest in more than `levels` others of this thread. Raises RecursionError."""

    def limited(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if _DEPTH.nested >= levels:
            raise RecursionError(f"nested deeper than {levels} checks")
        _DEPTH.nested += 1
        try:
            yield from check(validator, value, instance, schema) or ()
        finally:
            _DEPTH.nested -= 1

    return limited
