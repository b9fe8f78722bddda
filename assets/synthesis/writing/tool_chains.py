"""Which of two tools may use what the other returns."""

from collections.abc import Mapping
from dataclasses import dataclass

from assets.synthesis.common.contract_reading import (
    get_input_schema,
    get_properties,
    get_required,
    guess_json_type,
    resolve_schema,
)
from assets.vectors.lexicon import collect_words, split_identifier
from warehouse.json_types import Contract

# Every tool's parameters hold the first; they join nothing. The second join a little.
_EMPTY = collect_words("the and for with from get set of to in a an")
_LOOSE = collect_words("query text name content message input value data body")
_FINDS = collect_words("search find list get lookup create add resolve fetch query read")
# Half of a parameter's words, or all of them where they are loose. Below it one tool has nothing to
# say to the other, and only nonsense joins them.
JOINED = 0.5
_MOST = 12  # parameters that are looked at, required ones first


@dataclass(frozen=True)
class Link:
    """What of a tool joins it to others: `takes`, the words of each parameter that one plain value
    fills; `makes`, the words of what it returns; whether it `finds` things."""

    name: str
    takes: tuple[frozenset[str], ...]
    makes: frozenset[str]
    finds: bool


def make_link(contract: Contract) -> Link:
    name = str(contract.get("name") or "")
    takes = tuple(
        frozenset(split_identifier(taker)) - _EMPTY for taker in list_takers(contract)[:_MOST]
    )
    return Link(
        name,
        takes,
        frozenset(_collect_made_words(contract)),
        bool(_FINDS & set(split_identifier(name)[:2])),
    )


def chain_links(one: Link, other: Link) -> tuple[bool, float]:
    """(whether `one` goes first, how well the two join): the better of both orders."""
    forth, back = _score_joint(one, other), _score_joint(other, one)
    if forth == back:
        # Neither order is better: the name decides, so that both tools agree on it.
        return one.name <= other.name, forth
    return forth > back, max(forth, back)


def list_takers(contract: Contract) -> list[str]:
    """Parameters that one plain value fills and that offer no choice, required ones first."""
    schema, needed = get_input_schema(contract), get_required(contract)
    properties = get_properties(contract)
    plain = [name for name, of in properties.items() if _is_plain(resolve_schema(of, schema))]
    return sorted(plain, key=lambda name: name not in needed)


def _is_plain(schema: Contract) -> bool:
    if schema.get("enum") or "const" in schema:
        return False
    return guess_json_type(schema) in ("string", "integer", "number")


def _score_joint(first: Link, second: Link) -> float:
    """How well a parameter of `second` is filled out of the result of `first`; -1: not at all."""
    if not second.takes:
        return -1.0
    return max(_count_overlap(words, first.makes) for words in second.takes) + 0.25 * first.finds


def _count_overlap(wanted: frozenset[str], made: frozenset[str]) -> float:
    """Share of a parameter's words that the first tool speaks of; loose words count half."""
    shared = wanted & made
    loose = len(shared & _LOOSE)
    return (len(shared) - 0.5 * loose) / max(1, len(wanted))


def _collect_made_words(contract: Contract) -> set[str]:
    about = f"{contract.get('name') or ''} {str(contract.get('description') or '')[:600]}"
    output = contract.get("outputSchema")
    fields = output.get("properties") if isinstance(output, Mapping) else None
    names = " ".join(str(name) for name in list(fields)[:60]) if isinstance(fields, Mapping) else ""
    words = {word for part in f"{about} {names}".split() for word in split_identifier(part)}
    return (words | {word.removesuffix("s") for word in words}) - _EMPTY
