"""Says a value as a person would: a scalar, a clause after a request, or a common question."""

import datetime as dt
import json
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from assets.synthesis.contract_reading import ParameterSlot, ToolPurpose
from assets.synthesis.offline.invented_values import find_sort
from assets.synthesis.verify.request_text import RequestText
from assets.synthesis.verify.rules import find_ungrounded
from assets.vectors.lexicon import collect_words, load_lexicon, split_identifier, split_list
from warehouse.json_types import Contract, Json, JsonObject
from warehouse.storage.files import read_data

_WORDS = read_data(__file__, "words.toml")
NUMBER_WORDS = split_list(_WORDS["numbers"])
SUFFIXES = collect_words(_WORDS["suffixes"])
PROPER = collect_words(_WORDS["proper"])
CALLED = collect_words(_WORDS["called"])
ID_LIKE = collect_words(_WORDS["id_like"])


@dataclass(frozen=True)
class FilledSlot:
    """A slot with the value that was drawn for it."""

    slot: ParameterSlot
    value: Json

    @cached_property
    def sort(self) -> str:
        """What the value is, for the choice of words: a pool's name, or its JSON type."""
        if isinstance(self.value, bool):
            return "switch"
        if isinstance(self.value, (int, float)):
            return "number"
        if self.slot.choices:
            return "choice"
        return find_sort(self.slot) if isinstance(self.value, str) else "parts"

    @property
    def label(self) -> str:
        """What a person calls the parameter: `repo_path` -> repo, `issue_key` -> issue."""
        words = [word for word in self.slot.words if word not in SUFFIXES] or [*self.slot.words]
        words = [_WORDS["spelled"].get(word, word) for word in words]
        if len(words) == 1:
            return _WORDS["alone"].get(words[0], words[0])
        return " ".join(words) or "value"


def say_value(value: Json, rng: random.Random, free: bool) -> str:
    """A scalar in words; `free` allows forms that must be read to be matched (dates, numbers)."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and free and 0 <= value <= 20 and rng.random() < 0.5:
        return NUMBER_WORDS[value]
    if isinstance(value, (int, float)):
        return f"{value:.12g}" if abs(value) < 1e6 and isinstance(value, float) else str(value)
    if free and isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        try:
            day = dt.date.fromisoformat(value)
        except ValueError:
            return value
        forms = (f"{day.day} {day:%B} {day.year}", f"{day:%B} {day.day}, {day.year}", value)
        return rng.choice(forms)
    return "nothing" if value is None else str(value)


def join_list(values: list[str], rng: random.Random) -> str:
    """`a, b and c`."""
    if len(values) < 2:
        return "".join(values)
    return ", ".join(values[:-1]) + rng.choice([" and ", " and also ", ", "]) + values[-1]


def quote_text(text: str, rng: random.Random) -> str:
    """The text in quotes when it has several words or says something odd."""
    if re.fullmatch(r"[\w./:@-]+", text) and rng.random() < 0.75:
        return text
    return f"'{text}'" if "'" not in text or rng.random() < 0.3 else f'"{text}"'


_SIDES = {"left", "bottom", "width"}


@cache
def _read_rules() -> list[dict[str, Any]]:
    """{sorts, words, label, say} in the order in which they are tried; empty stands for any."""
    return json.loads(Path(__file__).with_name("clauses.json").read_text(encoding="utf-8"))


def make_clause(filled: FilledSlot, rng: random.Random, free: bool) -> str:
    """A value as a clause that can follow the request: `in /home/x`, `no more than 5`."""
    sort, label, value = filled.sort, filled.label, filled.value
    if isinstance(value, list) and not any(isinstance(item, (dict, list)) for item in value):
        text = join_list([quote_text(say_value(item, rng, False), rng) for item in value], rng)
        options = [f"{label}: {text}", f"namely {text}", f"for {text}", f"with {label} {text}"]
        return rng.choice(options) if value else f"with no {label}"
    if sort == "parts":
        return f"{label}: {spell_out(value)}"
    if sort == "switch":
        bare = re.sub(r"^(?:is|include|enable|use|should|with|show|allow|return|has)\s+", "", label)
        off = [f"without {bare}", f"no {bare}", f"with {label} off", f"leave {bare} out"]
        on = [f"with {bare}", f"with {label} on", f"{bare} included", f"yes to {label}"]
        return rng.choice(on if value else off)
    words, text = set(filled.slot.words), say_value(value, rng, free)
    if _SIDES & set(filled.slot.about.split()):
        words -= {"top"}  # a coordinate, where others stand beside it, and no number of results
    forms = next(
        rule["say"]
        for rule in _read_rules()
        if (not rule["sorts"] or sort in rule["sorts"])
        and (not rule["words"] or words & set(rule["words"]))
        and rule.get("label", label) == label
    )
    form = rng.choice(forms).replace("{l}", label)
    return form.replace("{q}", quote_text(text, rng)).replace("{v}", text)


def spell_out(value: Json) -> str:
    """Nested values in plain words: `name Maya, type person`."""
    if isinstance(value, dict):
        return ", ".join(f"{_space_out(key)} {spell_out(member)}" for key, member in value.items())
    if isinstance(value, list):
        return " and ".join(spell_out(member) for member in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return f"'{value}'" if " " in value else value
    return json.dumps(value, ensure_ascii=False)


def _space_out(name: str) -> str:
    if name.startswith("$"):
        return name
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").lower()


def find_absent(contract: Contract, text: str, values: JsonObject) -> list[str]:
    """The arguments whose value the rules do not find in the text, in order."""
    paths = {finding.path for finding in find_ungrounded(contract, RequestText(text), values)}
    return [
        name for name in values
        if any(path == name or path.startswith((f"{name}.", f"{name}[")) for path in paths)
    ]  # fmt: skip


def append_lost_values(contract: Contract, text: str, filled: Iterable[FilledSlot]) -> str:
    """The text with the values that it lost said after it, each by its label."""
    items = list(filled)
    lost = find_absent(contract, text, {item.slot.name: item.value for item in items})
    added = "; ".join(say_plainly(item) for item in items if item.slot.name in lost)
    return f"{end_sentence(text)} {added[0].upper()}{added[1:]}." if added else text


def say_plainly(item: FilledSlot) -> str:
    """A value by its label, nothing left out: `the title is 'Spring sale'`."""
    value = item.value
    if isinstance(value, (bool, dict, list)):
        return f"{item.label}: {spell_out(value)}"
    text = str(value) if re.fullmatch(r"[\w./:@+-]+", str(value)) else f"'{value}'"
    return f"the {item.label} is {text}"


def end_sentence(text: str) -> str:
    """The text with a full stop, where it has no other end."""
    text = text.rstrip()
    return text if text.endswith((".", "?", "!")) else f"{text}."


def find_idiom(
    contract: Contract, aim: ToolPurpose, filled: list[FilledSlot], rng: random.Random
) -> tuple[str, list[FilledSlot]] | None:
    """A request in the most specific idiom that fits, and the values it does not hold; None without
    one."""
    words = [*split_identifier(aim.rest), *split_identifier(str(contract.get("name")))]
    ranked = [
        ((-len(idiom["when"]), min(words.index(word) for word in idiom["when"])), idiom)
        for idiom in load_lexicon()["idioms"]
        if idiom["family"] in ("", aim.family) and set(idiom["when"]) <= set(words)
    ]
    if not ranked:
        return None
    best = min(rank for rank, _ in ranked)
    idiom = rng.choice([idiom for rank, idiom in ranked if rank == best])
    form = rng.choice(idiom["say"])
    sayable = [item for item in filled if _is_sayable(item, idiom["needs"], aim.family)]
    if form.count("{") > len(sayable):
        return None
    used: list[FilledSlot] = []
    for mark in ("{v}", "{w}"):
        if mark in form:
            item = _choose_main([item for item in sayable if item not in used], aim.family)
            used.append(item)
            form = form.replace(mark, _say_in_idiom(item, rng))
    return form[0].upper() + form[1:], [item for item in filled if item not in used]


_NEEDS = {
    "place": {"city", "country", "address", "airport", "timezone", "number"},
    "path": {"path", "folder_path", "repo_path", "filename", "regex", "image_path", "video_path"},
    "address": {"url", "domain", "path", "image_url", "filename", "video_path", "id"},
    "asset": {"symbol", "coin", "pair", "company", "currency"},
}
# Whole sentences answer "tell them what?", never "what about?".
_SENTENCES = {"sentence", "thought", "prompt", "title"}


def _is_sayable(item: FilledSlot, needs: str, family: str) -> bool:
    if item.sort in ("switch", "parts", "choice") or not 0 < len(str(item.value)) <= 90:
        return False
    if needs:
        return item.sort in _NEEDS[needs]
    return item.sort not in _SENTENCES or family in ("create", "send", "run", "update")


def _choose_main(sayable: list[FilledSlot], family: str) -> FilledSlot:
    """What the request is about: a new thing's name, else the first required text, else the first
    value."""
    names = [i for i in sayable if i.sort in ("title", "project", "person", "sentence")]
    texts = [i for i in sayable if i.slot.required and isinstance(i.value, str)]
    return ((family == "create" and names) or texts or sayable)[0]


def _say_in_idiom(item: FilledSlot, rng: random.Random) -> str:
    text = say_value(item.value, rng, free=False)
    if item.sort in ("id", "account", "uuid", "number") and item.label not in ("a", "b", "x", "y"):
        return f"{item.label} {text}"
    return quote_text(text, rng) if " " in text and item.sort not in ("city", "topic") else text
