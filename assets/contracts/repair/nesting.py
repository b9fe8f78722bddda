"""Arguments on the wrong level: given flat where the contract nests them, and the reverse."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from assets.contracts.repair.json_paths import find_types
from assets.contracts.repair.names import fold_name, is_guard, split_identifier
from assets.contracts.schema.reading import collect_properties, name_json_type
from warehouse.json_types import Schema

# Words that tell one of two ends, or of two that are easily confused.
_ENDS = {
    *("from", "to", "source", "src", "origin", "target", "destination", "dest", "dst", "start"),
    *("begin", "end", "first", "last", "min", "max", "minimum", "maximum", "before", "after"),
    *("since", "until", "older", "newer", "old", "new", "in", "out", "input", "output"),
    *("inbound", "outbound", "left", "right", "top", "bottom", "upper", "lower", "up", "down"),
    *("previous", "prev", "next", "parent", "child", "sender", "recipient", "receiver", "public"),
    *("private", "secret", "include", "exclude", "not", "no", "cc", "bcc", "buy", "sell", "debit"),
    *("credit", "latitude", "longitude", "lat", "lng", "lon", "width", "height", "row", "column"),
}
# Words that say nothing of which thing is meant.
_PLAIN = {"name", "id", "value", "text", "string", "str", "param", "number", "time", "date", "list"}


def propose_nesting(schema: Schema, arguments: Mapping[str, Any]) -> Iterator[tuple[Any, str]]:
    """(arguments with every undeclared name where the contract has it, what was moved)."""
    declared = collect_properties(schema, schema)
    unknown = [name for name in arguments if name not in declared]
    if not unknown:
        return
    inner = {
        name: collect_properties(of, schema)
        for name, of in declared.items()
        if "object" in find_types(of, schema)
    }
    moves: dict[str, tuple[str, str]] = {}
    for name in unknown:
        head, dot, tail = str(name).partition(".")
        if dot and tail in inner.get(head, ()):
            moves[name] = (head, tail)
            continue
        homes = [home for home, names in inner.items() if name in names]
        if len(homes) == 1:
            moves[name] = (homes[0], str(name))
    made = _move_names(arguments, moves)
    if moves and made is not None:
        homes = ", ".join(dict.fromkeys(home for home, _ in moves.values()))
        yield made, f"$: moved {', '.join(moves)[:100]} into {homes[:100]}"
    for name in unknown:
        held = arguments[name]
        if isinstance(held, Mapping) and held and not is_guard(str(name)) and all(
            one in declared and one not in arguments for one in held
        ):  # fmt: skip
            rest = {key: one for key, one in arguments.items() if key != name}
            yield {**rest, **held}, f"$: took the arguments out of {str(name)[:80]!r}"


def _move_names(arguments: Mapping[str, Any], moves: Mapping[str, tuple[str, str]]) -> Any:
    """None where something is at the place already."""
    made = {name: value for name, value in arguments.items() if name not in moves}
    for name, (home, inner) in moves.items():
        around = made.get(home, {})
        if not isinstance(around, Mapping) or inner in around:
            return None
        made[home] = {**around, inner: arguments[name]}
    return made


def propose_pairing(
    schema: Schema, arguments: Mapping[str, Any], tool: str
) -> Iterator[tuple[Any, str]]:
    """The only undeclared argument under the name of the only required one that is missing, where
    its type fits and the names have to do with each other."""
    declared = collect_properties(schema, schema)
    unknown = [name for name in arguments if name not in declared]
    required = schema.get("required") or ()
    missing = [name for name in required if name in declared and name not in arguments]
    if len(unknown) != 1 or len(missing) != 1:
        return
    [name], [meant] = unknown, missing
    types = find_types(declared[meant], schema)
    fits = name_json_type(arguments[name]) in types | ({"integer"} if "number" in types else set())
    if fits and _is_related(str(name), str(meant), declared[meant], tool):
        made = {meant if key == name else key: one for key, one in arguments.items()}
        yield made, f"$: {str(name)[:80]!r} became {meant!r}, the only one that is missing"


def _is_related(name: str, meant: str, schema: Any, tool: str) -> bool:
    """Whether one name is the other with words that say nothing new, or begins it, or stands in its
    description. Not where one of two ends is named in one of them, or each has a word of its own:
    `from_account` is never `to_account`, nor `user_id` `group_id`."""
    ours, theirs = ({w.removesuffix("s") for w in split_identifier(one)} for one in (name, meant))
    own, besides = ours - theirs, theirs - ours
    if (own | besides) & _ENDS or re.findall(r"\d+", name) != re.findall(r"\d+", meant):
        return False
    if ours & theirs:
        said = _PLAIN | {word.removesuffix("s") for word in split_identifier(tool)}
        return not (own and besides) and own | besides <= said
    if len(short := fold_name(name)) > 2 and fold_name(meant).startswith(short):
        return True
    description = schema.get("description") if isinstance(schema, Mapping) else None
    words = {
        w.strip(".,;:()'\"`").removesuffix("s")
        for w in str(description or "").lower().split()[:200]
    }
    return bool(ours and ours <= words)
