"""A call's arguments under the next version of its contract: the same values, or none at all."""

import re
from collections import Counter
from collections.abc import Mapping

from assets.contracts.schema_shapes import collect_properties, list_kinds, resolve
from assets.contracts.validate import validate_call
from assets.vectors.lexicon import collect_words, split_identifier
from warehouse.json_types import Json, JsonObject

# Parameters that one description may fit and that are two all the same.
_OPPOSITES = collect_words("""
min max minimum maximum start end begin from to before after since until source target src dst
origin destination first last old new exclude include not left right top bottom""")  # fmt: skip


class Unmovable(ValueError):
    """Why a row cannot be carried over, in words for the list of retired rows."""


def rewrite_arguments(old: JsonObject, new: JsonObject, arguments: JsonObject) -> dict[str, Json]:
    """The same values under the names of the new contract, valid. Raises Unmovable."""
    before, after = old["inputSchema"], new["inputSchema"]
    if old is new:
        return dict(arguments)
    names = find_renamed_parameters(before, after)
    declared, now = collect_properties(before, before), collect_properties(after, after)
    for name in arguments:
        target = names.get(name, name)
        if name not in declared and target in now:
            raise Unmovable(f"{name} was free to be anything and is declared now")
        if name in declared and target not in now:
            raise Unmovable(f"parameter {name} is gone")
        if name in declared and _means_another_amount(declared[name], now[target]):
            raise Unmovable(f"parameter {name} may count something else now")
    moved = {names.get(name, name): value for name, value in arguments.items()}
    if flaws := validate_call(new, moved):
        where = flaws[0].path or "the call"
        raise Unmovable(f"{flaws[0].kind} at {where}: {flaws[0].message}"[:200])
    if len(moved) < len(arguments):
        raise Unmovable("two values would stand at one place")
    return moved


def _means_another_amount(old: Json, new: Json) -> bool:
    """A number whose description changed may count seconds where it counted minutes."""
    numeric = list_kinds(resolve(new, {})) & {"integer", "number"}
    return bool(numeric) and _describe(old) != _describe(new)


def find_renamed_parameters(old: JsonObject, new: JsonObject) -> dict[str, str]:
    """Old name -> new name of each parameter that plainly has another name now, one to one.

    Plain is: the same words (`userId`, `user_id`), or the very same description, unless it is a
    number (`seconds`, `ms`), an opposite, or one of several that are described alike.
    """
    before, after = collect_properties(old, old), collect_properties(new, new)
    gone = {name: before[name] for name in before if name not in after}
    come = {name: after[name] for name in after if name not in before}
    pairs = [(a, b) for a in gone for b in come if _is_renamed(a, gone[a], b, come[b])]
    of, to = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    return {a: b for a, b in pairs if of[a] == to[b] == 1}


def _is_renamed(old_name: str, old: Json, new_name: str, new: Json) -> bool:
    kinds = list_kinds(resolve(old, {})), list_kinds(resolve(new, {}))
    if not kinds[0] <= kinds[1]:
        return False
    ours, theirs = split_identifier(old_name), split_identifier(new_name)
    if "".join(ours) == "".join(theirs):
        return True
    if kinds[1] & {"integer", "number"} or {*ours, *theirs} & _OPPOSITES:
        return False
    return len(_describe(old).split()) >= 2 and _describe(old) == _describe(new)


def _describe(schema: Json) -> str:
    description = schema.get("description") if isinstance(schema, Mapping) else None
    return " ".join(re.findall(r"\w+", str(description or "").casefold()))
