"""Exploration: which calls are tried before anything is written, and what their answers teach.

Tools that list and read come first. Their arguments are drawn from the schema, from the world that
the server is shown, and from earlier answers; an answer's values then fill the arguments of others.
"""

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any

from assets.contracts.repair.problems import find_problems
from assets.outcomes.execution import CallExecution, is_read_only
from assets.outcomes.worlds.tree import Node
from assets.servers.deploy.grants import LocalSite
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
from assets.synthesis.offline.values import draw_new_value, fits_schema, make_singular
from assets.synthesis.tables import dump_text
from assets.vectors.lexicon import split_identifier
from warehouse.json_types import Contract, Json, Schema

# Where a value comes from, or the name of the tool that answered with it.
WORLD, SCHEMA, INVENTED = "world", "schema", "invented"
_MAKES = ("create", "make", "open", "new", "start", "begin", "load", "init", "add", "insert")
_READS = ("read", "search", "compute")
_MOST_VALIDATED = 20  # values of one level of likeness that are held against a schema
_LONGEST = 200  # characters of a value that a call passes on
_MOST_OF_ANSWER, _MOST_VALUES = 60, 600  # scalars taken from an answer, and held of a server
_DEEPEST = 6
_NO_NUMBERS = ("nan", "inf", "-inf")
_OWN_KIND, _SAME_NAME, _SAME_SORT, _SHARED_WORD = 4, 3, 2, 1
# Words that join nothing: every second parameter is called so.
_LOOSE = {"name", "text", "value", "type", "content", "data", "query", "message", "title"}
_PASSED_SORTS = ("path", "filename", "folder_path", "date", "url", "email", "uuid")
_PATH_SORTS = ("path", "filename", "folder_path")
# Keys that say nothing alone: {"sheets": [{"name": "Staff"}]} names a sheet.
_BARE = {"name", "id", "title", "key", "uri", "slug"}
_SEARCHES = {"search", "find", "list", "tree", "glob", "grep"}
_GLOBS = {"pattern", "glob"}
_ASKS = {"query", "q", "keyword", "keywords", "search", "term"}
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_SHORTEST = 3  # characters of a value that two places do not share by chance
_WORD = re.compile(r"[^\W\d_]{4,30}")
_PATH_LINE = re.compile(r"/[\w.-][^\s:]{0,199}")


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

    @cached_property
    def sort(self) -> str:
        """What the key says that it is."""
        return find_sort(self.slot)


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

    def add_world(
        self,
        tree: Mapping[str, Node],
        facts: Mapping[str, Any],
        root: str,
        sites: Sequence[LocalSite] = (),
    ) -> None:
        """The files and folders of a world as its server is shown them, or the pages of its sites,
        and the fields of its facts."""
        for site in sites:
            for path in ["", *(key.removeprefix("page/") for key in sorted(facts))]:
                self.add("url", f"http://{site.host}/{path.lstrip('/')}", WORLD)
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
        for key, value in islice(_walk_scalars(answer), _MOST_OF_ANSWER):
            self.add(key, value, source)

    def find_matches(self, slot: ParameterSlot) -> list[ObservedValue]:
        """Values that may fill a parameter, those of the best level of likeness that has any. Few
        are validated: 600 values cost 20 s for 200 parameters with a pattern."""
        sort, levels = find_sort(slot), defaultdict[int, list[ObservedValue]](list)
        for item in self.values:
            levels[_score_match(item, slot, sort)].append(item)
        levels.pop(0, None)
        for score in sorted(levels, reverse=True):
            tried = levels[score][:_MOST_VALIDATED]
            if matches := [item for item in tried if _take_value(item, slot) is not None]:
                return matches
        return []

    def find_sources(self, contract: Contract, arguments: Mapping[str, Json]) -> dict[str, str]:
        """Parameter -> where its value comes from, as far as is known: the weakest of its parts."""
        sources_by_value = {str(item.value): item.source for item in reversed(self.values)}
        sources: dict[str, str] = {}
        for slot in read_slots(contract):
            if (value := arguments.get(slot.name)) is None:
                continue
            parts = [str(part) for _, part in _walk_scalars(value, slot.name)]
            kinds = {sources_by_value.get(part, INVENTED) for part in parts} or {SCHEMA}
            chosen = isinstance(value, bool) or "const" in slot.schema or slot.choices
            weakest = INVENTED if INVENTED in kinds else min(kinds)
            sources[slot.name] = SCHEMA if chosen else weakest
        return sources

    def find_folders(self) -> list[ObservedValue]:
        """The folders of the world, its root first."""
        return [item for item in self.values if (item.key, item.source) == ("folder", WORLD)]

    def find_endings(self) -> list[ObservedValue]:
        """Patterns of names that files of the world have."""
        paths = (item for item in self.values if (item.key, item.source) == ("path", WORLD))
        endings = ((item, str(item.value).rpartition(".")[2]) for item in paths)
        known = {end: replace(item, value=f"**/*.{end}") for item, end in endings if "/" not in end}
        return [known[end] for end in sorted(known)]

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
            yield from _walk_scalars(member, make_singular(key), parent, depth + 1)
    elif key:
        yield key, value
        if key.lower() in _BARE and parent:
            yield parent, value
            yield f"{parent}_{key}", value


def _score_match(item: ObservedValue, slot: ParameterSlot, sort: str = "") -> int:
    """How well a value's key names a parameter; 0: not at all. sort: the slot's, where known."""
    theirs, ours, sort = set(item.slot.words), set(slot.words), sort or find_sort(slot)
    if item.key == "folder" and sort == "folder_path":
        return _OWN_KIND
    if theirs == ours:
        return _SAME_NAME
    is_file = item.key == "path" and sort in ("path", "filename")
    is_folder = item.key == "folder" and (sort in _PATH_SORTS or {"root", "repo"} & ours)
    if is_file or (is_folder and item.source == WORLD):
        return _SAME_SORT
    if sort != "project" and sort == item.sort:
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
        answer: dict[str, Json] = {"line": [line for line in lines if line]}
        paths = [line for line in lines if _PATH_LINE.fullmatch(line)]
        return answer | ({"path": paths} if paths else {})


def seems_to_read(contract: Contract) -> bool:
    """Whether a tool says that it only reads, or its verb does."""
    return is_read_only(contract) or read_purpose(contract).family in _READS


def rank_tool(contract: Contract) -> tuple[int, str]:
    """Tools that list come first, then those that read, then the others."""
    needs = any(slot.required for slot in read_slots(contract))
    return 2 if not seems_to_read(contract) else int(needs), str(contract.get("name"))


def makes_thing(contract: Contract) -> bool:
    """Whether a tool's verb says that it makes or opens what others then work on."""
    return not seems_to_read(contract) and read_purpose(contract).verb in _MAKES


def propose_calls(
    contract: Contract, pool: ValuePool, count: int, rng: random.Random, maker: str = ""
) -> list[ProposedCall]:
    """Up to `count` different calls that fit the contract, whose values exist as far as is known.

    Every required parameter is filled, an optional one only by a value under its own name: always
    where that is an answer of `maker`, else by chance.
    """
    slots = read_slots(contract)
    searches = bool(_SEARCHES & set(split_identifier(str(contract.get("name")))))
    filler = _CallFiller(pool, get_input_schema(contract), rng, searches)
    calls: dict[str, ProposedCall] = {}
    for number in range(2 * count):
        filler.number, filler.taken, sources = number, list[Json](), dict[str, str]()
        arguments: dict[str, Json] = {}
        for slot in slots:
            known = not slot.required and filler.knows_name(slot)
            taken = bool(maker) and known and filler.find_matches(slot)[0].source == maker
            if slot.required or taken or (number and known and rng.random() < 0.5):
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
    """Fills the parameters of one contract. searches: its tool looks for something, in folders.
    number: of the call, which takes another value each time. taken: by its other parameters."""

    pool: ValuePool
    root: Schema
    rng: random.Random
    searches: bool = False
    number: int = 0
    taken: list[Json] = field(default_factory=list)
    _matches: dict[str, list[ObservedValue]] = field(default_factory=dict)

    def find_matches(self, slot: ParameterSlot) -> list[ObservedValue]:
        """Of a parameter of the contract, looked for once."""
        if slot.name not in self._matches:
            self._matches[slot.name] = self.pool.find_matches(slot)
        return self._matches[slot.name]

    def knows_name(self, slot: ParameterSlot) -> bool:
        """Whether a value is known under the very name of a parameter."""
        found = self.find_matches(slot)
        return bool(found) and _score_match(found[0], slot) >= _SAME_NAME

    def fill(self, slot: ParameterSlot, depth: int = 0) -> tuple[Json, str]:
        """(value, its source)."""
        if "const" in slot.schema or slot.schema.get("enum"):
            return draw_new_value(slot, self.root, self.rng, ()), SCHEMA
        found = self.pool.find_matches(slot) if depth else self.find_matches(slot)
        if self.searches and "path" in slot.words:
            found = self.pool.find_folders() or found
        if not found and slot.type == "string" and _ASKS & set(slot.words):
            found = self.pool.find_words()
        if not found and slot.type == "string" and _GLOBS & set(slot.words):
            found = self.pool.find_endings()
        if found := [item for item in found if item.value not in self.taken] or found:
            item = found[self.number % len(found)]
            self.taken.append(item.value)
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
        # Words in a description are choices, too; what exists went before them.
        invented = slot.type in ("string", "array", "object") and not slot.choices
        value = draw_new_value(slot, self.root, self.rng, ())
        return value, INVENTED if invented else SCHEMA

    def _fill_object(self, schema: Schema, depth: int) -> tuple[dict[str, Json], str]:
        """The required members; the source of the whole is the weakest of theirs."""
        members = [slot for slot in read_fields(schema, self.root) if slot.required]
        filled = {slot.name: self.fill(slot, depth + 1) for slot in members}
        sources = {source for _, source in filled.values()}
        kind = INVENTED if INVENTED in sources else min(sources - {SCHEMA}, default=SCHEMA)
        return {name: value for name, (value, _) in filled.items()}, kind


@dataclass(frozen=True)
class AnsweredCall:
    """A useful call that changed nothing, and the first value of its answer under each key, those
    aside that the call itself stated."""

    id: str
    tool: str
    arguments: int
    values: tuple[ObservedValue, ...]


def read_answered(
    call_id: str, tool: str, arguments: Mapping[str, Json], answer: Json
) -> AnsweredCall:
    """What only this call tells. Of a list it is the first member, as a person means by "it"."""
    stated = {str(value) for _, value in _walk_scalars(dict(arguments), "argument")}
    first: dict[str, ObservedValue] = {}
    for key, value in islice(_walk_scalars(answer), _MOST_OF_ANSWER):
        if isinstance(value, (str, int)) and not isinstance(value, bool):
            first.setdefault(key, ObservedValue(key, value, tool))
    untold = tuple(item for item in first.values() if str(item.value) not in stated)
    return AnsweredCall(call_id, tool, len(arguments), untold)


def find_origins(
    contract: Contract, arguments: Mapping[str, Json], answered: Sequence[AnsweredCall]
) -> dict[str, tuple[str, str]]:
    """Parameter -> (call, key): whose answer holds the parameter's value under a key that suits
    it, the call with the fewest arguments first; equal values of other tools' answers alone."""
    origins: dict[str, tuple[str, str]] = {}
    ranked = sorted(answered, key=lambda call: call.arguments)
    for slot in read_slots(contract):
        value = _read_passed(slot, arguments.get(slot.name))
        matches = (
            (call.id, item.key)
            for call in ranked
            if value and call.tool != contract.get("name")
            for item in sorted(call.values, key=lambda item: -_score_match(item, slot))
            if str(item.value) == value and _means_same(item, slot)
        )
        if (match := next(matches, None)) is not None:
            origins[slot.name] = match
    return origins


def _means_same(item: ObservedValue, slot: ParameterSlot) -> bool:
    """Whether a value is, by its key, what a parameter asks for: more than of one sort."""
    sort, shared = find_sort(slot), set(item.slot.words) & set(slot.words)
    if sort in _PASSED_SORTS or item.key == "path":
        return bool(_score_match(item, slot))
    return bool(shared - _LOOSE)


def _read_passed(slot: ParameterSlot, value: Json) -> str | None:
    """The text of a value that one call may pass on to another; None of one that says nothing:
    a choice, a switch, a short number."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    plain = isinstance(value, (str, int)) and not isinstance(value, bool)
    chosen = "const" in slot.schema or bool(slot.choices)
    if not plain or chosen or not set(slot.words) - _LOOSE or len(str(value)) < _SHORTEST:
        return None
    return str(value)


def misspell_call(contract: Contract, call: ProposedCall) -> ProposedCall | None:
    """The call with one text that exists misspelt, to which a server should object; None where it
    has none, or the contract itself refuses the other."""
    for slot in read_slots(contract):
        value = call.arguments.get(slot.name)
        real = call.sources.get(slot.name) not in (None, SCHEMA, INVENTED)
        if not real or not isinstance(value, str) or not _read_passed(slot, value):
            continue
        stem, dot, ending = value.rpartition(".")
        wrong = f"{stem}x.{ending}" if dot and stem and "/" not in ending else f"{value}x"
        arguments = {**call.arguments, slot.name: wrong}
        if not find_problems(contract, arguments):
            return ProposedCall(call.tool, arguments, {**call.sources, slot.name: INVENTED})
    return None


def count_edges(calls: Iterable[tuple[str, Mapping[str, str]]]) -> dict[str, int]:
    """How often a value of one tool's answer filled a parameter of another: `from -> to.name`.
    calls: (tool, sources)."""
    edges = (
        f"{source} -> {tool}.{name}"
        for tool, sources in calls
        for name, source in sources.items()
        if source not in (WORLD, SCHEMA, INVENTED)
    )
    return dict(sorted(Counter(edges).items(), key=lambda pair: (-pair[1], pair[0])))
