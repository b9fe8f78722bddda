"""Exploration: which calls are tried before anything is written, and what their answers teach.

Tools that list and read come first. Their arguments are drawn from the schema, from the world that
the server is shown, and from earlier answers; an answer's values then fill the arguments of others.
"""

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from assets.contracts.repair.problems import find_problems
from assets.outcomes.execution import CallExecution, is_read_only
from assets.outcomes.worlds.tree import Node
from assets.synthesis.contract_reading import (
    ParameterSlot,
    get_input_schema,
    guess_json_type,
    read_fields,
    read_purpose,
    read_slots,
    resolve_schema,
)
from assets.synthesis.offline.invented_values import find_sort
from assets.synthesis.offline.values import draw_new_value, fits_schema
from assets.synthesis.tables import dump_text
from assets.vectors.lexicon import split_identifier
from warehouse.json_types import Contract, Json, Schema

# Where a value comes from, or the name of the tool that answered with it.
WORLD, SCHEMA, INVENTED = "world", "schema", "invented"
_READS = ("read", "search", "compute")
_LONGEST = 200  # characters of a value that a call passes on
_MOST_OF_ANSWER, _MOST_VALUES = 60, 600  # scalars taken from an answer, and held of a server
_DEEPEST = 6
_NO_NUMBERS = ("nan", "inf", "-inf")
_OWN_KIND, _SAME_NAME, _SAME_SORT, _SHARED_WORD = 4, 3, 2, 1
# Words that join nothing: every second parameter is called so.
_LOOSE = {"name", "text", "value", "type", "content", "data", "query", "message", "title"}
_PATH_SORTS = ("path", "filename", "folder_path")
# Keys that say nothing alone: {"sheets": [{"name": "Staff"}]} names a sheet.
_BARE = {"name", "id", "title", "key", "uri", "slug"}
_ASKS = {"query", "q", "keyword", "keywords", "search", "term"}
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_WORD = re.compile(r"[^\W\d_]{4,30}")


@dataclass(frozen=True)
class ObservedValue:
    """A scalar that exists where the server is: under which key, and who told it."""

    key: str
    value: str | int | float
    source: str

    @cached_property
    def slot(self) -> ParameterSlot:
        """The key read as a parameter is."""
        return ParameterSlot(self.key, {}, True, split_identifier(self.key), "")


@dataclass(frozen=True)
class ProposedCall:
    """A call to try. sources: parameter -> where its value comes from."""

    tool: str
    arguments: dict[str, Json]
    sources: dict[str, str]

    @property
    def key(self) -> str:
        return dump_text([self.tool, self.arguments])


@dataclass
class ValuePool:
    """What is known to exist, in the order in which it became known."""

    values: list[ObservedValue] = field(default_factory=list)
    _known: set[tuple[str, Any]] = field(default_factory=set)

    def add(self, key: str, value: Any, source: str) -> None:
        """Takes a short, plain scalar that was not known under this key."""
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            return
        text = str(value)
        if not text or len(text) > _LONGEST or not text.isprintable() or text in _NO_NUMBERS:
            return
        if (key, value) not in self._known and len(self.values) < _MOST_VALUES:
            self._known.add((key, value))
            self.values.append(ObservedValue(key, value, source))

    def add_world(self, tree: Mapping[str, Node], facts: Mapping[str, Any], root: str) -> None:
        """The files and folders of a world as its server is shown them, and the fields of its
        facts."""
        self.add("folder", root, WORLD)
        for path in sorted(tree):
            if not any(part.startswith(".") for part in path.split("/")):
                self.add("folder" if tree[path] is None else "path", f"{root}/{path}", WORLD)
        for key in sorted(facts):
            if isinstance(facts[key], Mapping):
                self.add(key.split("/")[0].split(":")[0] or "name", key.split("/")[-1], WORLD)
                self.add_answer(facts[key], WORLD)

    def add_answer(self, answer: Json, source: str) -> None:
        """The scalars of an answer."""
        for at, (key, value) in enumerate(_walk_scalars(answer)):
            if at == _MOST_OF_ANSWER:
                break
            self.add(key, value, source)

    def find_matches(self, slot: ParameterSlot) -> list[ObservedValue]:
        """Values that may fill a parameter, the likeliest first."""
        scored = [(_score_match(item, slot), item) for item in self.values]
        matches = [pair for pair in scored if pair[0] and _take_value(pair[1], slot) is not None]
        best = max((score for score, _ in matches), default=0)
        return [item for score, item in matches if score == best]

    def find_words(self) -> list[ObservedValue]:
        """A word of each text that is there: what a search would find."""
        texts = (item for item in self.values if isinstance(item.value, str))
        words = ((item, _WORD.findall(str(item.value))) for item in texts)
        return [replace(item, value=found[-1]) for item, found in words if found]


def _walk_scalars(
    value: Json, key: str = "", parent: str = "", depth: int = 0
) -> Iterator[tuple[str, Json]]:
    """(key, scalar) of an answer; a bare key also as the thing that its parent lists."""
    if depth > _DEEPEST:
        return
    if isinstance(value, Mapping):
        for name, member in value.items():
            yield from _walk_scalars(member, str(name)[:60], key, depth + 1)
    elif isinstance(value, list):
        for member in value[:20]:
            yield from _walk_scalars(member, _make_singular(key), parent, depth + 1)
    elif key:
        yield key, value
        if key.lower() in _BARE and parent:
            yield parent, value
            yield f"{parent}_{key}", value


def _make_singular(word: str) -> str:
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _score_match(item: ObservedValue, slot: ParameterSlot) -> int:
    """How well a value's key names a parameter; 0: not at all."""
    theirs, ours, sort = set(item.slot.words), set(slot.words), find_sort(slot)
    if item.key == "folder" and sort == "folder_path":
        return _OWN_KIND
    if theirs == ours:
        return _SAME_NAME
    is_file = item.key == "path" and sort in ("path", "filename")
    is_folder = item.key == "folder" and (sort in _PATH_SORTS or {"root", "repo"} & ours)
    if is_file or (is_folder and item.source == WORLD):
        return _SAME_SORT
    if sort != "project" and sort == find_sort(item.slot):
        return _SAME_SORT
    return _SHARED_WORD if (theirs & ours) - _LOOSE else 0


def _take_value(item: ObservedValue, slot: ParameterSlot) -> Json:
    """The value as the parameter takes it; None where it does not."""
    value: Json = item.value
    if slot.type == "integer" and _NUMBER.fullmatch(str(value)):
        value = int(value)
    elif slot.type == "string":
        value = str(value)
    elif slot.type == "array":
        value = [str(value)]
    return value if fits_schema(value, slot.schema) else None


def read_answer(execution: CallExecution) -> Json:
    """What a call's answer holds as JSON; its lines, where it is text, as `line`."""
    if execution.structured is not None:
        return execution.structured
    try:
        return json.loads(execution.text)
    except (ValueError, RecursionError):
        lines = [line.strip() for line in execution.text.splitlines()]
        return {"line": [line for line in lines if line]}


def seems_to_read(contract: Contract) -> bool:
    """Whether a tool says that it only reads, or its verb does."""
    return is_read_only(contract) or read_purpose(contract).family in _READS


def rank_tool(contract: Contract) -> tuple[int, str]:
    """Tools that list come first, then those that read, then the others."""
    needs = any(slot.required for slot in read_slots(contract))
    return 2 if not seems_to_read(contract) else int(needs), str(contract.get("name"))


def propose_calls(
    contract: Contract, pool: ValuePool, count: int, rng: random.Random
) -> list[ProposedCall]:
    """Up to `count` different calls that fit the contract, whose values exist as far as is known.

    Every required parameter is filled, an optional one only by a value under its own name.
    """
    slots = read_slots(contract)
    filler = _CallFiller(pool, get_input_schema(contract), rng)
    calls: dict[str, ProposedCall] = {}
    for number in range(2 * count):
        filler.number, sources = number, dict[str, str]()
        arguments: dict[str, Json] = {}
        for slot in slots:
            if slot.required or (number and filler.knows_name(slot) and rng.random() < 0.5):
                arguments[slot.name], sources[slot.name] = filler.fill(slot)
        call = ProposedCall(str(contract.get("name")), arguments, sources)
        problems = find_problems(contract, arguments)
        if all(problem["kind"] == "bad_schema" for problem in problems):
            calls.setdefault(call.key, call)
        if len(calls) == count:
            break
    return list(calls.values())


@dataclass
class _CallFiller:
    """Fills the parameters of one contract. number: of the call, which takes another value each
    time."""

    pool: ValuePool
    root: Schema
    rng: random.Random
    number: int = 0

    def knows_name(self, slot: ParameterSlot) -> bool:
        """Whether a value is known under the very name of a parameter."""
        found = self.pool.find_matches(slot)
        return bool(found) and _score_match(found[0], slot) >= _SAME_NAME

    def fill(self, slot: ParameterSlot, depth: int = 0) -> tuple[Json, str]:
        """(value, its source)."""
        if "const" in slot.schema or slot.schema.get("enum"):
            return draw_new_value(slot, self.root, self.rng, ()), SCHEMA
        found = self.pool.find_matches(slot)
        if not found and slot.type == "string" and _ASKS & set(slot.words):
            found = self.pool.find_words()
        if found:
            item = found[self.number % len(found)]
            return _take_value(item, slot), item.source
        items = resolve_schema(slot.schema.get("items") or {}, self.root)
        if slot.type == "array" and guess_json_type(items) == "object" and depth < _DEEPEST:
            member, source = self._fill_object(items, depth)
            if member:
                return [member], source
        if slot.type == "object" and depth < _DEEPEST:
            filled, source = self._fill_object(slot.schema, depth)
            if filled:
                return filled, source
        value = draw_new_value(slot, self.root, self.rng, ())
        return value, INVENTED if slot.type in ("string", "array", "object") else SCHEMA

    def _fill_object(self, schema: Schema, depth: int) -> tuple[dict[str, Json], str]:
        """The required members; the source of the whole is the weakest of theirs."""
        members = [slot for slot in read_fields(schema, self.root) if slot.required]
        filled = {slot.name: self.fill(slot, depth + 1) for slot in members}
        sources = {source for _, source in filled.values()}
        kind = INVENTED if INVENTED in sources else min(sources - {SCHEMA}, default=SCHEMA)
        return {name: value for name, (value, _) in filled.items()}, kind


def count_edges(calls: Sequence[ProposedCall]) -> dict[str, int]:
    """How often a value of one tool's answer filled a parameter of another: `from -> to.name`."""
    counts: dict[str, int] = {}
    for call in calls:
        for name, source in call.sources.items():
            if source not in (WORLD, SCHEMA, INVENTED):
                edge = f"{source} -> {call.tool}.{name}"
                counts[edge] = counts.get(edge, 0) + 1
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))
