"""Makes calls as an assistant gets them wrong, with the error that a server answers."""

import json
import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from assets.contracts.validate import Flaw, validate_call
from assets.vectors.lexicon import split_identifier
from warehouse.json_types import Contract, Json

Arguments = dict[str, Json]
# How the SDKs for Python and TypeScript, and servers of their own, say it. {n} tool, {m} messages.
_FORMS = (
    "Input validation error: {m}",
    "MCP error -32602: Invalid arguments for tool {n}: {m}",
    "Error executing tool {n}: {m}",
    '{{"error": {{"code": "invalid_arguments", "message": {j}}}}}',
)
_MOST_FLAWS = 4
# What a model adds of its own accord because other tools have it.
_INVENTED = (("format", "json"), ("verbose", True), ("limit", 10), ("language", "en"))


@dataclass(frozen=True)
class WrongCall:
    """`kind`: wrong_type, missing_required or unknown_argument; `error`: what the server says."""

    kind: str
    arguments: Arguments
    error: str


def make_wrong_call(
    contract: Contract, right: Arguments, rng: random.Random, kinds: Collection[str] = ()
) -> WrongCall | None:
    """A refused neighbour of the right call, of one of `kinds` (none: of any); None without one."""
    for kind in rng.sample(list(kinds or _WRONG), len(kinds or _WRONG)):
        for arguments in _WRONG[kind](right, rng):
            flaws = validate_call(contract, arguments)
            if any(flaw.kind == kind for flaw in flaws):
                said = "; ".join(_describe_flaw(flaw) for flaw in flaws[:_MOST_FLAWS])
                text = json.dumps(said, ensure_ascii=False)
                error = rng.choice(_FORMS).format(n=contract.get("name"), m=said, j=text)
                return WrongCall(kind, arguments, error)
    return None


def _describe_flaw(flaw: Flaw) -> str:
    is_named = not flaw.path or flaw.path.split(".")[-1] in flaw.message
    return flaw.message if is_named else f"{flaw.path}: {flaw.message}"


def _change_types(right: Arguments, rng: random.Random) -> Iterator[Arguments]:
    for name in _shuffle(right, rng):
        yield {**right, name: _convert_type(right[name])}


def _convert_type(value: Json) -> Json:
    """The value in the type that models most often send instead."""
    match value:
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return str(value)
        case str():
            return [value]
        case list():
            return ", ".join(str(item) for item in value)
        case _:
            return json.dumps(value, ensure_ascii=False)


def _drop_arguments(right: Arguments, rng: random.Random) -> Iterator[Arguments]:
    for name in _shuffle(right, rng):
        yield {other: value for other, value in right.items() if other != name}


def _rename_arguments(right: Arguments, rng: random.Random) -> Iterator[Arguments]:
    for name in _shuffle(right, rng):
        near = _make_near_name(name)
        if near not in right:
            yield {(near if other == name else other): value for other, value in right.items()}
    for name, value in rng.sample(_INVENTED, len(_INVENTED)):
        if name not in right:
            yield {**right, name: value}


def _make_near_name(name: str) -> str:
    """The same name in another convention, or as other tools call it."""
    words = split_identifier(name) or (name,)
    if len(words) == 1:
        return f"{name}_value" if name.isidentifier() else f"{name}_"
    camel = words[0] + "".join(word.title() for word in words[1:])
    return camel if camel != name else "_".join(words)


def _shuffle(right: Arguments, rng: random.Random) -> list[str]:
    return rng.sample(sorted(right), len(right))


_WRONG: dict[str, Callable[[Arguments, random.Random], Iterator[Arguments]]] = {
    "wrong_type": _change_types,
    "missing_required": _drop_arguments,
    "unknown_argument": _rename_arguments,
}
