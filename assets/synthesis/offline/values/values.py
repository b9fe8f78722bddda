"""Plausible values for a tool's parameters, drawn from the contract first and from pools second.

Order of trust: `const` and `enum`; examples in the schema or quoted in the description; the
default; the `format`; then a pool chosen by the words of the name and the description.
"""

import random
from collections.abc import Iterable

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, UnknownType

from assets.contracts.schema.step_budget import spend_steps
from assets.contracts.validate import validate_call
from assets.synthesis.common.contract_reading import (
    Slot,
    guess_json_type,
    read_fields,
    resolve_schema,
)
from assets.synthesis.offline.values.invent import invent_value, make_from_pattern
from assets.synthesis.offline.values.kinds import find_sort
from assets.synthesis.offline.values.numbers import draw_number
from assets.synthesis.offline.values.samples import read_samples
from assets.vectors.lexicon import list_pool
from warehouse.json_types import Json, Schema

_STEPS_A_VALUE = 50  # about a millisecond


def draw_value(slot: Slot, root: Schema, rng: random.Random, depth: int = 0) -> Json:
    """A value for one slot. `root` is the input schema (for `$ref`)."""
    spend_steps(_STEPS_A_VALUE)
    schema = slot.schema
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        options = [option for option in schema["enum"] if option not in (None, "")]
        return rng.choice(options or schema["enum"])
    samples = [v for v in read_samples(slot) if fits_schema(v, schema)]
    if samples and slot.type != "boolean" and rng.random() < 0.55:
        return rng.choice(samples)
    match slot.type:
        case "boolean":
            # Said at all, an option is said because it differs from what happens anyway.
            default = schema.get("default")
            return (not default) if isinstance(default, bool) else rng.random() < 0.7
        case "integer" | "number":
            return draw_number(slot, rng)
        case "array":
            return _draw_array(slot, root, rng, depth)
        case "object":
            return _draw_object(slot, root, rng, depth)
        case "null":
            return None
    return _draw_string(slot, rng, samples)


def draw_new_value(
    slot: Slot, root: Schema, rng: random.Random, taken: Iterable[Json], depth: int = 0
) -> Json:
    """A value unlike the ones already drawn beside it, where the schema leaves a choice."""
    value = draw_value(slot, root, rng, depth)
    for _ in range(4):
        if not isinstance(value, str) or value not in taken:
            break
        value = draw_value(slot, root, rng, depth)
    return value


_PLAIN = {
    "type", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minLength", "maxLength", "description", "title", "default", "examples", "example",
}  # fmt: skip


def fits_schema(value: Json, schema: Schema) -> bool:
    """Whether a value meets a schema. Patterns and references go to the guarded validator."""
    if schema.keys() - _PLAIN:
        own = {key: part for key, part in schema.items() if key != "$ref"}
        holder = {"type": "object", "properties": {"v": own}}
        return not validate_call({"inputSchema": holder}, {"v": value})
    try:
        return Draft202012Validator(schema).is_valid(value)
    except (TypeError, ValueError, SchemaError, UnknownType):
        return False  # an invalid schema: no value meets it


def _draw_array(slot: Slot, root: Schema, rng: random.Random, depth: int) -> list[Json]:
    schema = slot.schema
    items = resolve_schema(schema.get("items") or {}, root)
    low, high = _read_bounds(schema)
    wanted = 1 if guess_json_type(items) == "object" else rng.randint(1, 3)
    wanted = min(max(low, wanted), max(high, low))
    singular = tuple(_make_singular(word) for word in slot.words)
    member = Slot(slot.name, items, True, singular, slot.hint)
    found: list[Json] = []
    for _ in range(wanted * 6):
        value = draw_value(member, root, rng, depth + 1)
        if value not in found or not schema.get("uniqueItems", True):
            found.append(value)
        if len(found) == wanted:
            break
    return found


def _read_bounds(schema: Schema) -> tuple[int, int]:
    low, high = schema.get("minItems"), schema.get("maxItems")
    low = low if isinstance(low, int) else 1
    return low, high if isinstance(high, int) else low + 2


def _make_singular(word: str) -> str:
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _draw_object(slot: Slot, root: Schema, rng: random.Random, depth: int) -> dict[str, Json]:
    if depth > 4:
        return {}
    members = read_fields(slot.schema, root)
    chosen = [m for m in members if m.required or (depth < 2 and rng.random() < 0.25)]
    if not chosen and members:
        chosen = [rng.choice(members)]
    # A schema that requires itself ten times over would otherwise grow without end.
    chosen = chosen[: max(3, 40 >> (2 * depth))]
    found: dict[str, Json] = {}
    for member in chosen:
        found[member.name] = draw_new_value(member, root, rng, found.values(), depth + 1)
    extra = slot.schema.get("additionalProperties", True)
    if not members and extra is not False:
        key = rng.choice(list_pool("column"))
        of_map = Slot("status", {"type": "string"}, True, ("status",), "")
        if extra not in (True, {}):
            of_map = Slot(key, resolve_schema(extra, root), True, (key,), "")
        found = {key: draw_value(of_map, root, rng, depth + 1)}
    return found


def _draw_string(slot: Slot, rng: random.Random, samples: list[Json]) -> str:
    schema = slot.schema
    by_format = {
        "date": "date", "date-time": "datetime", "time": "time", "email": "email", "uri": "url",
        "url": "url", "uuid": "uuid", "ipv4": "ip", "hostname": "domain", "iri": "url",
    }.get(str(schema.get("format")))  # fmt: skip
    sort = by_format or find_sort(slot)
    for attempt in range(12):
        value = invent_value(sort if attempt < 8 else "token", rng, slot)
        if fits_schema(value, schema):
            return value
    if samples:
        return str(rng.choice(samples))
    pattern = schema.get("pattern")
    made = make_from_pattern(pattern, rng) if isinstance(pattern, str) else None
    if made and fits_schema(made, schema):
        return made
    shortest, longest = schema.get("minLength") or 0, schema.get("maxLength") or 24
    size = max(shortest, min(longest, 24))
    return "".join(rng.choice("0123456789abcdef") for _ in range(size))
