"""Wrong calls on purpose: each argument changed alone, so that a check must tell the difference."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from random import Random
from typing import Any

from assets.outcomes.worlds.task import Task, TaskCall


def perturb_task(
    task: Task, facts: Mapping[str, Any], seed: int, root: str
) -> list[list[TaskCall]]:
    """The task's calls with one argument of one of them changed, a variant for each text, number
    and truth value in them. facts: of the first state; their keys are where wrong paths come
    from."""
    rng, found = Random(f"{task.id}/{seed}"), []
    keys = sorted(facts)
    for place, call in enumerate(task.calls):
        for path, value in _walk_leaves(call.arguments, ()):
            changed = _perturb_value(value, keys, rng, root)
            arguments = _replace_leaf(call.arguments, path, changed)
            calls = [*task.calls]
            calls[place] = TaskCall(call.tool, arguments)
            found.append(calls)
    return found


def _walk_leaves(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _walk_leaves(one, (*path, key))
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from _walk_leaves(one, (*path, place))
    elif isinstance(value, str | int | float):
        yield path, value


def _perturb_value(value: Any, keys: list[str], rng: Random, root: str) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + rng.randint(1, 3)
    if value.startswith(f"{root}/"):
        return _find_other_path(value.removeprefix(f"{root}/"), keys, rng, root)
    if value in keys:
        return rng.choice([one for one in keys if one != value] or [f"{value}x"])
    return f"{value}x"


def _find_other_path(path: str, keys: list[str], rng: Random, root: str) -> str:
    """Another path of as many parts; one that is there where the right one is."""
    depth = path.count("/")
    others = (
        [one for one in keys if one != path and one.count("/") == depth] if path in keys else []
    )
    if others:
        return f"{root}/{rng.choice(others)}"
    above, slash, name = path.rpartition("/")
    return f"{root}/{above}{slash}other-{name}"


def _replace_leaf(
    arguments: Mapping[str, Any], path: tuple[Any, ...], value: Any
) -> dict[str, Any]:
    changed = deepcopy(dict(arguments))
    held: Any = changed
    for part in path[:-1]:
        held = held[part]
    held[path[-1]] = value
    return changed
