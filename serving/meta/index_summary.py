"""What an index is about, in words of our own, for whoever must know when to ask it.

A model does not call a tool that only says "find tools" (toolhive, issue 4357): it must read what
can be found. Words of third parties are no way to tell it, for every session reads them: so
categories are a closed list, and an example request is a tool's name of nothing but known words.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assets.catalogue.categories import WORDS, find_category

if TYPE_CHECKING:
    from serving.index.model import Index

_CATEGORIES, _EXAMPLES = 6, 5
# Of a server: characters of what is said of it, and of the names of its tools. All of 1,500 servers
# are read before the first list is shown.
_TEXT, _TOOLS = 500, 50
_OTHER = "other"
_words = str.split
_VERBS = frozenset(
    _words(
        "add analyze append archive book browse calculate check close compare compress convert copy"
        " count create delete describe download edit extract fetch find format generate get insert"
        " list merge move open parse post query read rename render replace run save schedule search"
        " send set show sort split start stop summarize transcribe translate update upload validate"
        " write"
    )
)
_SMALL = frozenset(_words("a all an by for from in of on the to with"))
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True)
class IndexSummary:
    """categories: (name, servers), most first. examples: requests that name a tool here."""

    categories: tuple[tuple[str, int], ...]
    examples: tuple[str, ...]


def summarise_index(index: "Index", servers: Mapping[int, Sequence[int]]) -> IndexSummary:
    """servers: place of a server -> places of its tools, those that may be seen."""
    of: dict[str, list[int]] = {}
    for at in servers:
        known = index.servers[at]
        tools = " ".join(index.tools[place].tool for place in servers[at][:_TOOLS])
        words = f"{known.description} {known.summary}"[:_TEXT] + f" {tools}"[:_TEXT]
        of.setdefault(find_category(words, f"{known.name} {known.server_id}"[:200]), []).append(at)
    counted = Counter({name: len(found) for name, found in of.items() if name != _OTHER})
    largest = sorted(counted.items(), key=lambda one: (-one[1], one[0]))[:_CATEGORIES]
    return IndexSummary(
        tuple(largest), _choose_examples(index, servers, [n for n, _ in largest], of)
    )


def write_summary(made: IndexSummary) -> str:
    """One or two sentences, each with a blank before it; "" where nothing is known."""
    text = ""
    if made.categories:
        text += f" They are for {', '.join(f'{name} ({n:,})' for name, n in made.categories)}."
    if made.examples:
        text += f" Requests could be: {'; '.join(made.examples)}."
    return text


def reword_name(name: str) -> str | None:
    """A tool's name as a request, `read_text_file` -> `read text file`; None where a word of it is
    not one of ours: names are third-party text too."""
    words = re.split(r"[^a-z]+", _CAMEL.sub(" ", name[:80]).lower())
    words = [word for word in words if word]
    if not 2 <= len(words) <= 4 or words[0] not in _VERBS or not re.fullmatch(r"[\w.-]+", name):
        return None
    rest = words[1:]
    known = all(word in WORDS or word in _SMALL for word in rest)
    return " ".join(words) if known and rest[-1] in WORDS else None


def _choose_examples(
    index: "Index",
    servers: Mapping[int, Sequence[int]],
    categories: Sequence[str],
    of: Mapping[str, Sequence[int]],
) -> tuple[str, ...]:
    """One of each category, then more of the largest: three words say most in least."""
    found: list[list[str]] = []
    for name in categories:
        tools = (index.tools[at] for server in of[name] for at in servers[server])
        phrases = {reword_name(tool.tool) for tool in tools if not tool.flags} - {None}
        found.append(sorted(map(str, phrases), key=_rank_example))
    ranked = [(rank, at, text) for at, texts in enumerate(found) for rank, text in enumerate(texts)]
    return tuple(dict.fromkeys(text for _, _, text in sorted(ranked)))[:_EXAMPLES]


def _rank_example(text: str) -> tuple[int, int, str]:
    return abs(len(text.split()) - 3), len(text), text
