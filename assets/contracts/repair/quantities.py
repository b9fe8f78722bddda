"""Numbers as people write them: with separators, a currency, a percent sign, or a unit that the
parameter counts in another."""

import re
from collections.abc import Mapping
from typing import Any

from assets.contracts.repair.names import split_identifier
from assets.contracts.schema.reading import collect_properties, iterate_branches
from warehouse.json_types import Schema

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)\s*(?P<currency>[$€£¥]?)\s*(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d{1,12})?|\d{1,15}(?:\.\d{1,12})?)"
    r"\s*(?P<unit>[A-Za-zµ%]{1,14})?\.?"
)
_TIME = {
    0.001: "ms msec msecs millis millisecond milliseconds", 1.0: "s sec secs second seconds",
    60.0: "min mins minute minutes", 3600.0: "h hr hrs hour hours", 86_400.0: "d day days",
    604_800.0: "w wk week weeks",
}  # fmt: skip
_LENGTH = {
    0.001: "mm millimeter millimeters millimetre millimetres",
    0.01: "cm centimeter centimeters centimetre centimetres",
    1.0: "m meter meters metre metres", 1000.0: "km kms kilometer kilometers kilometre kilometres",
    0.0254: "in inch inches", 0.3048: "ft foot feet", 1609.344: "mi mile miles",
}  # fmt: skip
_MASS = {
    0.001: "mg milligram milligrams", 1.0: "g gram grams", 1000.0: "kg kgs kilogram kilograms",
    453.59237: "lb lbs pound pounds",
}  # fmt: skip
_DATA = {
    1.0: "byte bytes", 1024.0: "kib kibibyte kibibytes", 1024.0**2: "mib mebibyte mebibytes",
    1024.0**3: "gib gibibyte gibibytes",
}  # fmt: skip
_BYTES_UNSURE = {  # of 1000 or of 1024
    *("b", "kb", "mb", "gb", "tb", "kilobyte", "megabyte", "gigabyte"),
    *("kilobytes", "megabytes", "gigabytes"),
}
_UNITS: dict[str, tuple[str, float]] = {
    word: (kind, factor)
    for kind, table in (("time", _TIME), ("length", _LENGTH), ("mass", _MASS), ("data", _DATA))
    for factor, words in table.items()
    for word in words.split()
}
_CURRENCIES = {
    "$": {"usd", "dollar", "cad", "aud", "nzd", "sgd", "hkd", "mxn"}, "€": {"eur", "euro"},
    "£": {"gbp", "pound", "sterling"}, "¥": {"jpy", "yen", "cny", "yuan", "rmb"},
}  # fmt: skip
# What anything that is counted may be called.
_THINGS = {
    *("result", "item", "entry", "entrie", "row", "record", "page", "hit", "match", "matche"),
    *("element", "object", "piece", "line", "document", "file", "post", "message", "comment"),
    *("user", "people", "person", "word", "character", "char", "token", "step", "time"),
}
# A parameter's description says its unit: "in seconds", "(ms)", "number of days".
_SAID = re.compile(r"\b(?:in|as|of)\s+(?:whole\s+)?([A-Za-z]{1,14})\b|\(([A-Za-z]{1,14})\)")
_SHORT = {"m", "d", "h", "s", "w", "g", "in", "min", "of"}  # other words in a description


def read_quantity(text: str, name: str, schema: Any, root: Schema) -> float | None:
    """The number that a text means for a parameter, in the unit that its name or description says;
    None where the unit of either is unknown and they may differ."""
    found = _QUANTITY.fullmatch(text.strip()) if len(text) <= 60 else None
    if found is None:
        return None
    value = float(found["number"].replace(",", "")) * (-1 if found["sign"] == "-" else 1)
    unit = (found["unit"] or "").lower()
    if found["currency"] and not _is_in_currency(found["currency"], name, schema, root):
        return None
    if not unit:
        return value
    if unit == "%":
        return _read_percent(value, name, schema, root)
    wanted = find_unit(name, schema, root)
    if unit in _BYTES_UNSURE:
        return value if wanted == unit else None
    if unit not in _UNITS:
        known = _list_words(name, schema, root) | (_THINGS if wanted is None else set())
        return value if len(unit) > 2 and _stem(unit) in known else None
    if wanted is None:
        return None
    kind, factor = _UNITS[unit]
    if wanted not in _UNITS or _UNITS[wanted][0] != kind:
        return None
    return float(f"{value * factor / _UNITS[wanted][1]:.12g}")


def find_unit(name: str, schema: Any, root: Schema) -> str | None:
    """The unit that a parameter counts in, by the last words of its name, else by the one unit its
    description says."""
    words = split_identifier(name)
    known = [word for word in words[-2:] if word in _UNITS or word in _BYTES_UNSURE]
    named = [word for word in known if len(word) > 1 or (word == words[-1] and len(words) > 1)]
    if named:
        return named[-1]
    units = set()
    for branch in iterate_branches(schema, root):
        text = branch.get("description") if isinstance(branch, Mapping) else None
        for found in _SAID.finditer(str(text or "")[:2000].lower()):
            word, bracketed = found[1], found[2]
            if word in _UNITS and word not in _SHORT:
                units.add(word)
            elif bracketed in _UNITS and bracketed not in ("in", "of"):
                units.add(bracketed)
    return units.pop() if len({_UNITS[word] for word in units}) == 1 else None


def _is_in_currency(sign: str, name: str, schema: Any, root: Schema) -> bool:
    """Whether a sign of money can be left out: nothing says that the parameter is in another
    currency, nor that a parameter beside it names one."""
    words = _list_words(name, schema, root)
    said = {one for one, names in _CURRENCIES.items() if names & words}
    beside = any("currency" in split_identifier(one) for one in collect_properties(root, root))
    return sign in said or not (said or beside)


def _list_words(name: str, schema: Any, root: Schema) -> set[str]:
    """The words of a parameter's name and description, in the singular."""
    words = [*split_identifier(name)]
    for branch in iterate_branches(schema, root):
        words += re.findall(r"[a-z]+", str(branch.get("description") or "")[:2000].lower())
    return {_stem(word) for word in words}


def _stem(word: str) -> str:
    return word.removesuffix("s")


def _read_percent(value: float, name: str, schema: Any, root: Schema) -> float | None:
    """A share of 1 or of 100, by what the parameter may be at most."""
    tops = [b["maximum"] for b in iterate_branches(schema, root) if _is_number(b.get("maximum"))]
    if tops and max(tops) <= 1:
        return value / 100
    named = {"percent", "percentage", "pct"} & set(split_identifier(name))
    return value if named or (tops and max(tops) == 100) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
