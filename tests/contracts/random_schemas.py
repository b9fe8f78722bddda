"""Random schemas, their next versions, and values made to fit them: an oracle for the diff.

All choices come from one `random.Random`, so hypothesis can drive them or a seed can.
"""

import copy
from random import Random
from typing import Any

NAMES = ("a", "b", "c", "d")
WORDS = ("x", "yy", "zzz", "2024-01-02", "a@b.de")
SCALARS: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, 5, 10, 2.5, -3, ""),
    *WORDS,
    "long text here",
)
DEFS = ("one", "two")


def whole(rng: Random) -> dict[str, Any]:
    """An input schema with definitions."""
    schema = {**obj(rng, 0), "type": "object"}
    schema["$defs"] = {name: any_schema(rng, 2) for name in DEFS}
    return schema


def any_schema(rng: Random, depth: int) -> dict[str, Any]:
    if depth > 3:
        return {"type": rng.choice(("string", "integer", "boolean"))}
    makers = (number, string, string, number, obj, array, choice, values, union)
    schema = rng.choice(makers)(rng, depth)
    if rng.random() < 0.15:
        schema["description"] = rng.choice(WORDS)
    if rng.random() < 0.1:
        schema["default"] = rng.choice(SCALARS)
    return schema


def number(rng: Random, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": rng.choice(("integer", "number"))}
    for key in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
        if rng.random() < 0.25:
            schema[key] = rng.choice((-3, 0, 1, 2, 2.5, 5, 10))
    if rng.random() < 0.15:
        schema["multipleOf"] = rng.choice((1, 2, 4, 5))
    return schema


def string(rng: Random, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for key, values_of in (
        ("minLength", (0, 1, 2, 3)), ("maxLength", (1, 3, 5, 20)),
        ("pattern", ("^x", "z", ".*", "^[a-z]+$")), ("format", ("date", "email", "odd")),
    ):  # fmt: skip
        if rng.random() < 0.2:
            schema[key] = rng.choice(values_of)
    return schema


def obj(rng: Random, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    names = [name for name in NAMES if rng.random() < 0.6]
    if names or rng.random() < 0.5:
        schema["properties"] = {name: any_schema(rng, depth + 1) for name in names}
    if names and rng.random() < 0.6:
        schema["required"] = [name for name in names if rng.random() < 0.5]
    if rng.random() < 0.4:
        spare = (True, False, False, {"type": "string"}, {"type": "integer"}, {})
        schema["additionalProperties"] = rng.choice(spare)
    if rng.random() < 0.08:
        schema["patternProperties"] = {rng.choice(("^[ab]$", "c")): any_schema(rng, depth + 1)}
    if rng.random() < 0.08:
        schema[rng.choice(("minProperties", "maxProperties"))] = rng.choice((0, 1, 2))
    if rng.random() < 0.05:
        schema["dependentRequired"] = {"a": [rng.choice(("b", "c"))]}
    if rng.random() < 0.05:
        schema["if"] = {"required": ["a"]}
        schema["then"] = {"required": [rng.choice(("b", "c"))]}
    if rng.random() < 0.06:
        schema["allOf"] = [obj(rng, depth + 2)]
    return schema


def array(rng: Random, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array"}
    if rng.random() < 0.8:
        schema["items"] = any_schema(rng, depth + 1)
    if rng.random() < 0.2:
        schema["prefixItems"] = [any_schema(rng, depth + 1) for _ in range(rng.choice((1, 2)))]
    for key, values_of in (("minItems", (0, 1, 2)), ("maxItems", (1, 2, 3))):
        if rng.random() < 0.2:
            schema[key] = rng.choice(values_of)
    if rng.random() < 0.1:
        schema["uniqueItems"] = rng.choice((True, False))
    if rng.random() < 0.08:
        schema["contains"] = any_schema(rng, depth + 2)
        if rng.random() < 0.3:
            schema[rng.choice(("minContains", "maxContains"))] = rng.choice((0, 1, 2))
    return schema


def choice(rng: Random, depth: int) -> dict[str, Any]:
    pieces = [any_schema(rng, depth + 1) for _ in range(rng.choice((1, 2, 2, 3)))]
    key = rng.choice(("anyOf", "anyOf", "oneOf", "allOf"))
    schema: dict[str, Any] = {key: pieces}
    if rng.random() < 0.2:
        schema["not"] = rng.choice(({"type": "null"}, {"const": 1}, {"enum": ["x", 2]}))
    return schema


def values(rng: Random, depth: int) -> dict[str, Any]:
    if rng.random() < 0.3:
        return {"const": rng.choice(SCALARS)}
    return {"enum": [rng.choice(SCALARS) for _ in range(rng.choice((1, 2, 3, 4)))]}


def union(rng: Random, depth: int) -> dict[str, Any]:
    if rng.random() < 0.4:
        return {"$ref": f"#/$defs/{rng.choice(DEFS)}"}
    kinds = ("string", "null", "integer", "number", "boolean", "object", "array")
    return {"type": [kind for kind in kinds if rng.random() < 0.4] or ["null", "string"]}


def next_version(schema: dict[str, Any], rng: Random) -> dict[str, Any]:
    """The same schema after one to three edits anywhere in it."""
    out = [copy.deepcopy(schema)]
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_schemas(out))
        holder, key = rng.choice(places)
        node = holder[key]
        if isinstance(node, dict):
            holder[key] = _edited(node, rng)
    out[0]["type"] = "object"
    return out[0]


def _edited(node: dict[str, Any], rng: Random) -> dict[str, Any]:
    edit = rng.randrange(8)
    if edit == 0 and node:
        node = {k: v for k, v in node.items() if k != rng.choice(sorted(node))}
    elif edit == 1:
        node = {**node, **any_schema(rng, 2)}
    elif edit == 2:
        node = {"anyOf": [node, {"type": "null"}]}
    elif edit == 3:
        node = any_schema(rng, 2)
    elif edit == 4 and isinstance(node.get("required"), list):
        node["required"] = [n for n in node["required"] if rng.random() < 0.5]
    elif edit == 4 and "enum" in node:
        node["enum"] = [*node["enum"][rng.randrange(2) :], rng.choice(SCALARS)]
    elif edit == 5 and isinstance(node.get("properties"), dict):
        node["properties"] = {**node["properties"], rng.choice(NAMES): any_schema(rng, 2)}
    elif edit == 6:
        numbers = [k for k, v in node.items() if isinstance(v, int) and not isinstance(v, bool)]
        for key in numbers:
            node[key] = max(0, node[key] + rng.choice((-1, 1, 3)))
    elif edit == 7 and rng.random() < 0.5:
        node["additionalProperties"] = rng.choice((True, False, {"type": "string"}))
    return node


def _schemas(box: list[dict[str, Any]]) -> Any:
    """(holder, key) of each schema; `box` is a list of one, the root."""
    stack: list[tuple[Any, Any]] = [(box, 0)]
    while stack:
        holder, key = stack.pop()
        node = holder[key]
        if not isinstance(node, dict):
            continue
        yield holder, key
        for name in ("properties", "$defs", "patternProperties"):
            stack.extend((node[name], k) for k in sorted(node.get(name) or ()))
        for name in ("anyOf", "oneOf", "allOf", "prefixItems"):
            stack.extend((node[name], i) for i in range(len(node.get(name) or ())))
        stack.extend((node, k) for k in ("items", "contains", "not") if k in node)


def value_for(schema: Any, root: dict[str, Any], rng: Random, depth: int = 0) -> Any:
    """A value that often fits, at its edges; the caller checks whether it does."""
    if not isinstance(schema, dict) or depth > 8 or rng.random() < 0.03:
        return rng.choice(SCALARS)
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return value_for(root.get("$defs", {}).get(name), root, rng, depth + 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return rng.choice(schema["enum"])
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key) and (rng.random() < 0.7 or "type" not in schema):
            part = rng.choice(schema[key])
            remainder = {k: v for k, v in schema.items() if k != key}
            joined = (
                {**remainder, **part} if isinstance(part, dict) and "$ref" not in part else part
            )
            return value_for(joined, root, rng, depth + 1)
    kind = schema.get("type")
    kind = rng.choice(kind) if isinstance(kind, list) else kind
    if kind == "object":
        properties = schema.get("properties") or {}
        required = schema.get("required") or ()
        out = {
            name: value_for(about, root, rng, depth + 1)
            for name, about in properties.items()
            if name in required or rng.random() < 0.5
        }
        spare = schema.get("additionalProperties")
        if rng.random() < 0.25:
            out.setdefault(rng.choice((*NAMES, "extra")), value_for(spare, root, rng, depth + 1))
        return out
    if kind == "array":
        places = schema.get("prefixItems") or []
        count = rng.choice((0, 1, 2, 3, schema.get("minItems", 0), schema.get("maxItems", 2)))
        return [
            value_for(places[i] if i < len(places) else schema.get("items"), root, rng, depth + 1)
            for i in range(count)
        ]
    if kind in ("integer", "number"):
        edges = [v for k, v in schema.items() if isinstance(v, int | float) and k != "default"]
        base = rng.choice([*edges, 0, 1, 4, 20])
        return base + rng.choice((0, 0, 1, -1, *((0.5,) if kind == "number" else ())))
    if kind == "string":
        return rng.choice((*WORDS, "", "xxxx", "abcdefgh", "z" * rng.randrange(22)))
    if kind == "boolean":
        return rng.choice((True, False))
    return None if kind == "null" else rng.choice(SCALARS)
