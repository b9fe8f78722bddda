"""One walk over nested JSON values, without recursion: third-party nesting may be the attack."""

from collections.abc import Callable
from typing import Any


def rebuild(value: Any, copy: Callable[[Any, str], Any]) -> Any:
    """A copy of a nested value. `copy(item, under)` gives each item's own copy, its members as they
    were; `under` is the key that it, or the list that holds it, stands at."""
    root = [value]
    todo: list[tuple[Any, Any, str]] = [(root, 0, "")]
    while todo:
        holder, place, under = todo.pop()
        holder[place] = new = copy(holder[place], under)
        if isinstance(new, dict):
            todo += [(new, key, str(key)) for key in new]
        elif isinstance(new, list):
            todo += [(new, at, under) for at in range(len(new))]
    return root[0]
