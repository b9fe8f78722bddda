"""Draws plausible values for parameters: const and enum, examples, default, format, then a pool by
the words of name and description."""

import random
import re
from collections.abc import Iterable

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, UnknownType

from assets.contracts.schema_shapes import spend_steps
from assets.contracts.validate import validate_call
from assets.synthesis.contract_reading import (
    ParameterSlot,
    guess_json_type,
    read_fields,
    resolve_schema,
)
from assets.synthesis.offline.invented_values import find_sort, invent_value, make_from_pattern
from assets.vectors.lexicon import collect_words, list_pool
from warehouse.json_types import Json, Schema
from warehouse.patterns import compile_pattern
from warehouse.storage.files import read_data

_USUAL = [
    (collect_words(names), numbers) for names, numbers in read_data(__file__, "words.toml")["usual"]
]
_ANY_NUMBER = (2, 3, 4, 6, 7, 12, 18, 24, 36, 42, 64, 75, 96, 110, 250)


def draw_number(slot: ParameterSlot, rng: random.Random) -> int | float:
    schema, words = slot.schema, set(slot.words)
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None and isinstance(schema.get("exclusiveMinimum"), (int, float)):
        low = schema["exclusiveMinimum"] + 1
    if words & {"latitude", "lat"}:
        return round(rng.uniform(-45, 60), 4)
    if words & {"longitude", "lng", "lon"}:
        return round(rng.uniform(-120, 150), 4)
    usual = next((numbers for marks, numbers in _USUAL if words & marks), _ANY_NUMBER)
    if words & {"id", "number", "issue", "pr"}:
        usual = tuple(rng.randint(11, 9999) for _ in range(5))
    low = low if isinstance(low, (int, float)) else min(min(usual), high or 0)
    high = high if isinstance(high, (int, float)) else max(max(usual), low)
    fitting = [n for n in usual if low <= n <= high and n != schema.get("default")]
    value = rng.choice(fitting) if fitting else _draw_between(low, high, rng, slot.type)
    step = schema.get("multipleOf")
    if isinstance(step, (int, float)) and step:
        value = round(value / step) * step
    return int(value) if slot.type == "integer" else value


def _draw_between(low: float, high: float, rng: random.Random, kind: str) -> int | float:
    high = min(high, low + 1000)
    if kind == "integer" or high - low >= 4:
        return rng.randint(int(-(-low // 1)), int(max(high, -(-low // 1))))
    return round(rng.uniform(low, high), 2)


_QUOTED = re.compile(r"""["'`“‘]([^"'`“”‘’\n]{1,80})["'`”’]""")
_EXAMPLE = compile_pattern(
    r"(?i)(?:e\.g\.?,?|for example:?|examples?:?|such as)\s*(.{2,160}?)(?:\)|\.\s|\.$|;|$)"
)


def read_samples(slot: ParameterSlot) -> list[Json]:
    """Values that the contract itself offers."""
    schema = slot.schema
    examples = schema.get("examples")
    samples: list[Json] = list(examples) if isinstance(examples, list) else []
    samples += [schema["example"]] if "example" in schema else []
    for match in _EXAMPLE.finditer(slot.hint):
        span = match.group(1)
        texts = _QUOTED.findall(span) or re.split(
            r",\s{0,9}(?:or\s{1,9}|and\s{1,9})?|\s{1,9}or\s{1,9}", span
        )
        samples += [_parse_typed(text.strip(" `'\""), slot.type) for text in texts]
    default = schema.get("default")
    if default not in (None, "", [], {}) and slot.type in ("string", "integer", "number"):
        samples.append(default)
    return [value for value in samples if value not in (None, "") and _is_sayable(value)]


def _is_sayable(value: Json) -> bool:
    if not isinstance(value, str):
        return True
    plain = 0 < len(value) <= 80 and (value[0].isalnum() or value[0] in "/#@.$=*-")
    return plain and not re.search(r"[<>{}\[\]\\]|\.\.\.|xxx|your[_ -]", value)


def _parse_typed(text: str, kind: str) -> Json:
    if kind in ("integer", "number"):
        try:
            return int(text) if kind == "integer" or text.isdigit() else float(text)
        except ValueError:
            return None
    # An unquoted word list in a description is prose more often than values.
    return text if kind == "string" and len(text.split()) <= 6 else None


_STEPS_A_VALUE = 50  # about a millisecond


def draw_value(slot: ParameterSlot, root: Schema, rng: random.Random, depth: int = 0) -> Json:
    """A value for one slot. `root` is the input schema (for `$ref`)."""
    spend_steps(_STEPS_A_VALUE)
    schema = slot.schema
    if "const" in schema:
        return schema["const"]
    if choices := slot.choices:
        return rng.choice([each for each in choices if each not in (None, "")] or choices)
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
    slot: ParameterSlot, root: Schema, rng: random.Random, taken: Iterable[Json], depth: int = 0
) -> Json:
    """A value unlike the ones already drawn beside it, where the schema leaves a choice."""
    used_values = list(taken)
    for _ in range(5):
        value = draw_value(slot, root, rng, depth)
        if not isinstance(value, str) or value not in used_values:
            break
    return value


_PLAIN = {
    "type", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minLength", "maxLength", "description", "title", "default", "examples", "example",
}  # fmt: skip


def fits_schema(value: Json, schema: Schema) -> bool:
    """Whether a value meets a schema. Patterns and references go to the guarded validator."""
    if schema.keys() - _PLAIN:
        local_schema = {key: part for key, part in schema.items() if key != "$ref"}
        holder = {"type": "object", "properties": {"v": local_schema}}
        return not validate_call({"inputSchema": holder}, {"v": value})
    try:
        return Draft202012Validator(schema).is_valid(value)
    except (TypeError, ValueError, SchemaError, UnknownType):
        return False  # an invalid schema: no value meets it


def _draw_array(slot: ParameterSlot, root: Schema, rng: random.Random, depth: int) -> list[Json]:
    schema = slot.schema
    items = resolve_schema(schema.get("items") or {}, root)
    low, high = schema.get("minItems"), schema.get("maxItems")
    low = low if isinstance(low, int) else 1
    high = high if isinstance(high, int) else low + 2
    length = 1 if guess_json_type(items) == "object" else rng.randint(1, 3)
    length = min(max(low, length), max(high, low))
    singular = tuple(make_singular(word) for word in slot.words)
    member = ParameterSlot(slot.name, items, True, singular, slot.hint)
    values: list[Json] = []
    for _ in range(length * 6):
        value = draw_value(member, root, rng, depth + 1)
        if value not in values or not schema.get("uniqueItems", True):
            values.append(value)
        if len(values) == length:
            break
    return values


def make_singular(word: str) -> str:
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _draw_object(
    slot: ParameterSlot, root: Schema, rng: random.Random, depth: int
) -> dict[str, Json]:
    if depth > 4:
        return {}
    members = read_fields(slot.schema, root)
    extra = slot.schema.get("additionalProperties", True)
    if not members and extra is not False:
        key = rng.choice(list_pool("column"))
        of_map = ParameterSlot("status", {"type": "string"}, True, ("status",), "")
        if extra not in (True, {}):
            of_map = ParameterSlot(key, resolve_schema(extra, root), True, (key,), "")
        return {key: draw_value(of_map, root, rng, depth + 1)}
    chosen = [m for m in members if m.required or (depth < 2 and rng.random() < 0.25)]
    if not chosen and members:
        chosen = [rng.choice(members)]
    values: dict[str, Json] = {}
    # A schema that requires itself ten times over would otherwise grow without end.
    for member in chosen[: max(3, 40 >> (2 * depth))]:
        values[member.name] = draw_new_value(member, root, rng, values.values(), depth + 1)
    return values


_BY_FORMAT = {
    "date": "date", "date-time": "datetime", "time": "time", "email": "email", "uri": "url",
    "url": "url", "uuid": "uuid", "ipv4": "ip", "hostname": "domain", "iri": "url",
}  # fmt: skip


def _draw_string(slot: ParameterSlot, rng: random.Random, samples: list[Json]) -> str:
    schema = slot.schema
    sort = _BY_FORMAT.get(str(schema.get("format"))) or find_sort(slot)
    for attempt in range(12):
        value = invent_value(sort if attempt < 8 else "token", rng, slot)
        if fits_schema(value, schema):
            return value
    if samples:
        return str(rng.choice(samples))
    pattern = schema.get("pattern")
    text = make_from_pattern(pattern, rng) if isinstance(pattern, str) else None
    if text and fits_schema(text, schema):
        return text
    lengths = [schema.get("minLength") or 0, schema.get("maxLength") or 24]
    shortest, longest = (each if isinstance(each, int) else 24 for each in lengths)
    size = max(shortest, min(longest, 24))
    return "".join(rng.choice("0123456789abcdef") for _ in range(size))
