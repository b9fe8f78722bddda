"""Does a model's answer carry what an untrusted text told it to?

Figures are of the 1,224 good requests of the development corpus, which a language model wrote.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from assets.contracts.scan import scan_list
from assets.contracts.scan.finding import LOW
from warehouse.json_types import Json, JsonObject

# Their longest run of words out of their tool's descriptions: 1,222 have at most 5, two have 6.
RUN = 7
_TEXTS = 400  # of one contract
_LONGEST = 20_000  # characters of one text


def find_order(text: str) -> str | None:
    """The order that a text gives whoever reads it, as the scan of tools finds it (4 good requests
    look so), or None."""
    found = scan_list([{"name": "text", "description": text, "inputSchema": {}}])
    grave = next((one for one in found if one.severity != LOW), None)
    return f"{grave.rule}: {grave.excerpt}" if grave is not None else None


def collect_runs(contracts: Iterable[JsonObject]) -> frozenset[tuple[str, ...]]:
    """Every run of words in the contracts' titles and descriptions."""
    return frozenset(
        run
        for contract in contracts
        for text in islice(_walk_texts(contract), _TEXTS)
        for run in _split_runs(text)
    )


def find_repeated_run(text: str, runs: frozenset[tuple[str, ...]]) -> str | None:
    """The first run of words that a text repeats, or None."""
    found = next((run for run in _split_runs(text) if run in runs), None)
    return " ".join(found) if found is not None else None


def _split_runs(text: str) -> Iterator[tuple[str, ...]]:
    words = re.findall(r"\w+", text[:_LONGEST].casefold())
    return (tuple(words[at : at + RUN]) for at in range(len(words) - RUN + 1))


def _walk_texts(value: Json) -> Iterator[str]:
    """Titles and descriptions at any depth, without recursion: nesting may be the attack."""
    stack: list[Json] = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, Mapping):
            for name, member in one.items():
                if name in ("description", "title") and isinstance(member, str):
                    yield member
                else:
                    stack.append(member)
        elif isinstance(one, Sequence) and not isinstance(one, str):
            stack.extend(one)
