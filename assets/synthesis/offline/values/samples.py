"""Values that a contract itself offers: examples, quoted words of its descriptions, defaults."""

import re

from assets.synthesis.common.contract_reading import Slot
from warehouse.json_types import Json

_QUOTED = re.compile(r"""["'`“‘]([^"'`“”‘’\n]{1,80})["'`”’]""")
_EXAMPLE = re.compile(
    r"(?:e\.g\.?,?|for example:?|examples?:?|such as)\s*(.{2,160}?)(?:\)|\.\s|\.$|;|$)",
    re.IGNORECASE,
)


def read_samples(slot: Slot) -> list[Json]:
    """Values that the contract itself offers."""
    schema = slot.schema
    examples = schema.get("examples")
    found: list[Json] = list(examples) if isinstance(examples, list) else []
    if "example" in schema:
        found.append(schema["example"])
    for match in _EXAMPLE.finditer(slot.hint):
        span = match.group(1)
        quoted = _QUOTED.findall(span)
        bare = [] if quoted else re.split(r",\s*(?:or\s+|and\s+)?|\s+or\s+", span)
        found += [_parse_typed(v.strip(" `'\""), slot.type) for v in [*quoted, *bare]]
    default = schema.get("default")
    if default not in (None, "", [], {}) and slot.type in ("string", "integer", "number"):
        found.append(default)
    return [value for value in found if value not in (None, "") and _is_sayable(value)]


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
