"""One of two look-alike tools as their comparison reads it, and how rare its words are."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from assets.contracts.canonical import iterate_parameters, tool_text
from assets.contracts.tool_id import ToolId
from assets.vectors.lexicon import find_base_form, find_family, stem_plural
from warehouse.json_types import Contract, JsonObject
from warehouse.sanitize.escape import shorten_text

_COMMON = 0.01  # share of tools above which a word says nothing of one of them
_LONGEST_TEXT = (
    12_000  # characters whose words are named; the longest of 12,600 real texts has 10,487
)
_READS = {"read", "search", "compute"}
_WRITES = {"create", "update", "delete", "send"}
STOP = frozenset(
    """
    a an the and or of to in on for from with by at as is are be has have this that it its if when
    which will can not no into using use used uses useful via you your all any each one two new
    given specific also about before after only additional especially various detailed details etc
    other more most such than then them their what where while within without following existing
    mcp server servers tool tools api apis client service services app integration interface sdk
    protocol model context npm pypi http https com org io ai dev www js ts py go main test demo my
    first reference references fork forked copy clone official simple ext extended enhanced private
    custom claim deploy playground try description available args returns return example
    examples optional required default string number boolean integer object list array true false
    none null value values
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Side:
    """One of the two tools. `about`: the server's name and what is said of it, if anything."""

    server_id: str
    contract: Contract
    about: str = ""

    @cached_property
    def label(self) -> str:
        return join_lines(str(ToolId(self.server_id, self.contract["name"])), 90)

    @cached_property
    def text(self) -> str:
        return tool_text(self.contract)[:_LONGEST_TEXT]

    @cached_property
    def server_words(self) -> list[str]:
        """The words of the server's own name, its owner left out: a fork's owner says nothing."""
        last = re.split(r"[/:]", self.server_id.rstrip("/"))[-1]
        parted = re.sub(r"mcp|\d+", " ", " ".join(find_names(last)))  # geminimcptest, atlassian12
        return [word for word in split_words(parted) if len(word) > 1 and word not in STOP]

    @cached_property
    def name_words(self) -> list[str]:
        return [word for word in find_names(self.contract["name"]) if word not in STOP]

    @cached_property
    def words(self) -> list[str]:
        """The words of the contract, in order, but for those of its server's id."""
        ids = {*find_names(self.server_id), *split_words(self.server_id)}
        words = split_words(self.text)
        return [word for word in words if word not in STOP and word not in ids]

    @cached_property
    def all_words(self) -> frozenset[str]:
        """All that it may be said to have; of the whole text, so that nothing is denied it."""
        texts = (tool_text(self.contract), self.server_id)
        held = [word for text in texts for word in (*split_words(text), *find_names(text))]
        return frozenset(map(stem_plural, [*held, *self.server_words, *split_words(self.about)]))

    @cached_property
    def taken(self) -> dict[str, tuple[str, JsonObject]]:
        """Parameter as it reads -> (as it is written, its schema)."""
        found = iterate_parameters(self.contract)
        return {
            flatten_name(name): (name, schema if isinstance(schema, Mapping) else {})
            for name, schema in found
        }

    @cached_property
    def needed(self) -> set[str]:
        required = (self.contract.get("inputSchema") or {}).get("required")
        listed = required if isinstance(required, list) else []
        return {flatten_name(name) for name in listed if isinstance(name, str)} & self.taken.keys()

    @cached_property
    def effect(self) -> str | None:
        """reads, writes, or None where neither its hints nor its verb say."""
        hint = (self.contract.get("annotations") or {}).get("readOnlyHint")
        if isinstance(hint, bool):
            return "only reads" if hint else "changes data"
        bases = (find_base_form(word) for word in find_names(self.contract["name"]))
        verb = next((base for base in bases if base), None)
        family = find_family(verb) if verb else None
        if family in _READS:
            return "only reads"
        return "changes data" if family in _WRITES else None


class Rarity:
    """In how large a share of all tools' texts a word stands."""

    def __init__(self, texts: Iterable[str]) -> None:
        listed = list(texts)
        self._held = Counter(
            word for text in listed for word in {*map(stem_plural, split_words(text))}
        )
        self._total = max(len(listed), 1)

    def compute_share(self, word: str) -> float:
        return self._held[stem_plural(word)] / self._total

    def pick_telling(self, words: Iterable[str], most: int, field: Collection[str]) -> list[str]:
        """The words that say most of a tool, in their own order: rare enough, words of its `field`
        before others, and of those the better known. The rarest are slips and adverbs."""
        rare = [
            word for word in dict.fromkeys(words)
            if len(word) > 2 and not word.isdigit() and self.compute_share(word) <= _COMMON
        ]  # fmt: skip
        ranked = sorted(rare, key=lambda word: (word not in field, -self.compute_share(word), word))
        chosen = set(ranked[:most])
        return [word for word in rare if word in chosen]


def split_words(text: str) -> list[str]:
    """Lower-case words of prose."""
    return [word for word in re.findall(r"[^\W_]+", text.casefold()) if len(word) < 30]


def find_names(text: str) -> list[str]:
    """Lower-case words of identifiers, parted at their joints."""
    return split_words(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text))


def flatten_name(name: str) -> str:
    """A name modulo case and separators."""
    return "".join(char for char in str(name).casefold() if char.isalnum())


def join_lines(text: str, most: int) -> str:
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return shorten_text(text, most)
