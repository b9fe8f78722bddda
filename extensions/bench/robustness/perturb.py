"""Schemas that say the same in another way: does a caller read them, or remember them?

    renamed_tool          get_file -> file_get: the words of its name in another order and style
    renamed_parameters    path -> path_value: all its words stay, so that what a value is compared
                          by (an id exactly, free text loosely) stays too
    reordered_parameters  the properties in another order, at every depth
    paraphrased           descriptions by rules

A changed schema accepts a changed call exactly where the old one accepts the old call. What cannot
be changed without doubt is left as it is: a tool whose root schema matches parameters by pattern
or refers into its own properties.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from extensions.bench.robustness.paraphrase import paraphrase_text
from extensions.bench.robustness.schema_walk import (
    has_pattern_names,
    map_schemas,
    rename_level_properties,
)
from training.evaluation.renaming import (
    IDENTIFIER,
    ChangedTools,
    hash_to_number,
    make_name_replacer,
    make_new_names,
    rename_tools,
)
from warehouse.json_types import Contract

Call = Mapping[str, Any]
_PARAMETER_MARKS = ("value", "input", "given")


def perturb_tools(
    kind: str, tools: Sequence[Contract], expected: Sequence[Call], seed: int = 0
) -> ChangedTools:
    """The same question with its schemas changed. A function of its arguments."""
    if kind == "renamed_tool":
        return rename_tools(
            tools, expected, make_new_names([str(tool["name"]) for tool in tools], seed)
        )
    made = {str(tool["name"]): _CHANGES[kind](tool, seed) for tool in tools}
    names = {tool: renames for tool, (_, renames) in made.items()}
    calls = [
        {**call, "arguments": _rename_arguments(call, names.get(str(call["name"]), {}))}
        for call in expected
    ]
    changed = frozenset(
        str(tool["name"])
        for tool in tools
        if not is_same_json_text(tool, made[str(tool["name"])][0])
    )
    return ChangedTools([contract for contract, _ in made.values()], calls, changed)


def is_same_json_text(one: Any, other: Any) -> bool:
    """Whether two JSON values are written alike, the order of their keys included."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return list(one) == list(other) and all(
            is_same_json_text(one[key], other[key]) for key in one
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same_json_text, one, other))
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _rename_parameters(tool: Contract, seed: int) -> tuple[dict[str, Any], dict[str, str]]:
    schema = tool.get("inputSchema", {})
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties or has_pattern_names(schema):
        return dict(tool), {}
    held = {str(name) for name in properties}
    names: dict[str, str] = {}
    for name in properties:
        mark = _PARAMETER_MARKS[
            hash_to_number(f"{seed}|{tool['name']}|{name}") % len(_PARAMETER_MARKS)
        ]
        fresh = f"{name}{mark.capitalize()}" if re.search("[a-z][A-Z]", name) else f"{name}_{mark}"
        while fresh in held:
            fresh += "_"
        held.add(fresh)
        names[name] = fresh
    replace_names = make_name_replacer(
        {old: new for old, new in names.items() if IDENTIFIER.search(old)}, names
    )
    renamed = map_schemas(
        rename_level_properties(schema, names),
        lambda held: _change_description(held, replace_names),
    )
    made = {**_change_description(tool, replace_names), "inputSchema": renamed}
    return made, names


def _reorder_schema(tool: Contract, seed: int) -> tuple[dict[str, Any], dict[str, str]]:
    def shuffled(schema: Mapping[str, Any]) -> dict[str, Any]:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or len(properties) < 2:
            return dict(schema)
        names = list(properties)
        order = random.Random(hash_to_number(f"{seed}|{names}")).sample(names, len(names))
        order = order if order != names else names[::-1]
        return {**schema, "properties": {name: properties[name] for name in order}}

    return {**tool, "inputSchema": map_schemas(tool.get("inputSchema", {}), shuffled)}, {}


def _paraphrase_tool(tool: Contract, seed: int) -> tuple[dict[str, Any], dict[str, str]]:
    def change_text(text: str) -> str:
        return paraphrase_text(text, seed)

    schema = map_schemas(
        tool.get("inputSchema", {}), lambda held: _change_description(held, change_text)
    )
    return {**_change_description(tool, change_text), "inputSchema": schema}, {}


_CHANGES: dict[str, Callable[[Contract, int], tuple[dict[str, Any], dict[str, str]]]] = {
    "renamed_parameters": _rename_parameters,
    "reordered_parameters": _reorder_schema,
    "paraphrased": _paraphrase_tool,
}


def _change_description(
    held: Mapping[str, Any], change_text: Callable[[str], str]
) -> dict[str, Any]:
    text = held.get("description")
    return {**held, "description": change_text(text)} if isinstance(text, str) else dict(held)


def _rename_arguments(call: Call, names: Mapping[str, str]) -> Any:
    result = call.get("arguments")
    if not isinstance(result, Mapping):
        return result
    return {names.get(name, name): value for name, value in result.items()}
