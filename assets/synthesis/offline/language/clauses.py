"""A value as a clause that follows a request (`in /home/x`, `no more than 5`), and in plain words
where the rules do not find it in the request."""

import json
import random
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from assets.synthesis.common.contract_reading import read_slots
from assets.synthesis.offline.language.phrasing import Filled, join_list, quote_text, say_value
from assets.synthesis.verify.grounding.grounding import Text
from assets.synthesis.verify.verify import find_ungrounded
from warehouse.json_types import Contract, Json, JsonObject


def make_clause(filled: Filled, rng: random.Random, free: bool) -> str:
    """A value as a clause that can follow the request: `in /home/x`, `no more than 5`."""
    sort, label, value = filled.sort, filled.label, filled.value
    words = set(filled.slot.words)
    if sort == "parts":
        return _say_parts(filled, rng, free)
    text = say_value(value, rng, free)
    if sort == "switch":
        return _say_switch(label, bool(value), rng)
    form = rng.choice(_choose_forms(sort, words, label))
    return form.replace("{l}", label).replace("{q}", quote_text(text, rng)).replace("{v}", text)


@cache
def _read_rules() -> list[dict[str, Any]]:
    """{sorts, words, label, say} in the order in which they are tried; empty stands for any."""
    return json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def _choose_forms(sort: str, words: set[str], label: str) -> list[str]:
    """How a value of a sort is said, as the words of its parameter want it."""
    return next(
        rule["say"]
        for rule in _read_rules()
        if (not rule["sorts"] or sort in rule["sorts"])
        and (not rule["words"] or words & set(rule["words"]))
        and rule.get("label", label) == label
    )


def _say_switch(label: str, on: bool, rng: random.Random) -> str:
    bare = re.sub(r"^(?:is|include|enable|use|should|with|show|allow|return|has)\s+", "", label)
    if on:
        forms = [f"with {bare}", f"with {label} on", f"{bare} included", f"yes to {label}"]
    else:
        forms = [f"without {bare}", f"no {bare}", f"with {label} off", f"leave {bare} out"]
    return rng.choice(forms)


def _say_parts(filled: Filled, rng: random.Random, free: bool) -> str:
    value, label = filled.value, filled.label
    if isinstance(value, list):
        scalars = [item for item in value if not isinstance(item, (dict, list))]
        if len(scalars) == len(value):
            text = join_list([quote_text(say_value(item, rng, False), rng) for item in value], rng)
            options = [f"{label}: {text}", f"namely {text}", f"for {text}", f"with {label} {text}"]
            return rng.choice(options) if value else f"with no {label}"
        return f"{label}: " + "; ".join(spell_out(item) for item in value)
    return f"{label}: {spell_out(value)}"


def spell_out(value: Json) -> str:
    """Nested values in plain words: `name Maya, type person`."""
    if isinstance(value, dict):
        return ", ".join(f"{_space_out(key)} {spell_out(member)}" for key, member in value.items())
    if isinstance(value, list):
        return " and ".join(spell_out(member) for member in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and " " in value:
        return f"'{value}'"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _space_out(name: str) -> str:
    if name.startswith("$"):
        return name
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").lower()


def find_absent(contract: Contract, text: str, values: JsonObject) -> list[str]:
    """The arguments whose value the rules do not find in the text, in order."""
    paths = {finding.path for finding in find_ungrounded(contract, Text(text), values)}
    return [
        name for name in values
        if any(path == name or path.startswith((f"{name}.", f"{name}[")) for path in paths)
    ]  # fmt: skip


def append_lost_values(text: str, filled: Iterable[Filled], lost: Sequence[str]) -> str:
    """The text with the lost values said after it, each by its label."""
    clauses = [say_plainly(item) for item in filled if item.slot.name in lost]
    if not clauses:
        return text
    listed = "; ".join(clauses)
    return f"{end_sentence(text)} {listed[0].upper()}{listed[1:]}."


def say_plainly(item: Filled) -> str:
    """A value by its label, nothing left out: `the title is 'Spring sale'`."""
    value = item.value
    if isinstance(value, bool):
        return f"{item.label}: {'yes' if value else 'no'}"
    if isinstance(value, (dict, list)):
        return f"{item.label}: {spell_out(value)}"
    text = str(value) if re.fullmatch(r"[\w./:@+-]+", str(value)) else f"'{value}'"
    return f"the {item.label} is {text}"


def end_sentence(text: str) -> str:
    """The text with a full stop, where it has no other end."""
    text = text.rstrip()
    return text if text.endswith((".", "?", "!")) else f"{text}."


def fill_slots(contract: Contract, values: JsonObject) -> list[Filled]:
    """The values with their slots, in the contract's order; names it does not declare are left."""
    return [Filled(slot, values[slot.name]) for slot in read_slots(contract) if slot.name in values]
