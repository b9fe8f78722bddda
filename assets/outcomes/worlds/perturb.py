"""Wrong calls on purpose: each argument changed alone, so that a check must tell the difference."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from random import Random
from typing import Any

from assets.contracts.repair.problems import find_problems
from assets.outcomes.worlds.task import Task, TaskCall

Leaf = tuple[Any, ...]  # where a value stands in arguments: keys of objects, places in lists
_SHIFT = str.maketrans(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
    "nopqrstuvwxyzabcdefghijklmNOPQRSTUVWXYZABCDEFGHIJKLM1234567890",
)


def perturb_task(
    task: Task, facts: Mapping[str, Any], seed: int, root: str
) -> list[list[TaskCall]]:
    """The task's calls with one argument of one of them changed, a variant for each text, number
    and truth value in them. facts: of the first state; their keys are where wrong paths come
    from."""
    rng, found = Random(f"{task.id}/{seed}"), []
    keys = sorted(facts)
    for place, call in enumerate(task.calls):
        for path, value in walk_leaves(call.arguments):
            changed = _perturb_value(value, keys, rng, root)
            arguments = replace_leaf(call.arguments, path, changed)
            calls = [*task.calls]
            calls[place] = TaskCall(call.tool, arguments)
            found.append(calls)
    return found


def perturb_argument(
    contract: Mapping[str, Any], arguments: Mapping[str, Any], name: str
) -> dict[str, Any] | None:
    """The arguments with another value of one of them that the contract takes; None where it takes
    no other."""
    for value in _list_others(arguments[name], read_schema(contract, name)):
        other = {**arguments, name: value}
        if value != arguments[name] and not find_problems(contract, other):
            return other
    return None


def has_choice(contract: Mapping[str, Any], name: str) -> bool:
    """Whether the contract takes more than one value of an argument."""
    schema = read_schema(contract, name)
    choices = schema.get("enum")
    return "const" not in schema and not (isinstance(choices, list) and len(choices) < 2)


def walk_leaves(value: Any, path: Leaf = ()) -> Iterator[tuple[Leaf, Any]]:
    """(place, value) of each text, number and truth value."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from walk_leaves(one, (*path, key))
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from walk_leaves(one, (*path, place))
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
        return rng.choice([key for key in keys if key != value] or [f"{value}x"])
    return f"{value}x"


def _find_other_path(path: str, keys: list[str], rng: Random, root: str) -> str:
    """Another path of as many parts; one that is there where the right one is."""
    depth = path.count("/")
    others = (
        [key for key in keys if key != path and key.count("/") == depth] if path in keys else []
    )
    if others:
        return f"{root}/{rng.choice(others)}"
    above, slash, name = path.rpartition("/")
    return f"{root}/{above}{slash}other-{name}"


def replace_leaf(arguments: Mapping[str, Any], path: Leaf, value: Any) -> dict[str, Any]:
    """The arguments with another value at one place."""
    changed = deepcopy(dict(arguments))
    held: Any = changed
    for part in path[:-1]:
        held = held[part]
    held[path[-1]] = value
    return changed


def _list_others(value: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    choices = schema.get("enum")
    if isinstance(choices, list):
        yield from choices
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, value * 2)
    elif isinstance(value, float):
        yield from (value + 0.5, value * 2)
    elif isinstance(value, str):
        folder, slash, last = value.rpartition("/")
        stem, dot, ending = last.rpartition(".")
        if dot and stem and len(ending) <= 5:
            yield f"{folder}{slash}{stem.translate(_SHIFT)}{dot}{ending}"
        yield f"{folder}{slash}{last.translate(_SHIFT)}"
        yield f"{value}2"
    elif isinstance(value, list) and value:
        items = schema.get("items")
        inner = items if isinstance(items, Mapping) else {}
        yield from ([other, *value[1:]] for other in _list_others(value[0], inner))
    elif isinstance(value, Mapping):
        for key, member in value.items():
            yield from ({**value, key: other} for other in _list_others(member, {}))


def read_schema(contract: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """What a contract says of one argument; {} where it says nothing."""
    properties = (contract.get("inputSchema") or {}).get("properties")
    found = properties.get(name) if isinstance(properties, Mapping) else None
    return found if isinstance(found, Mapping) else {}
