"""Which rows are learnt from and which are only ever tested on, by frozen hashes.

    train server + train tool + most pairs      train
    train server + train tool + other pairs     seen_tool       held-out requests of trained tools
    train server + other tool                   unseen_tool     held-out tools of trained servers
    other server                                unseen_server

A place is a pure function of ids: it is the same on every machine and in every run, and a new
server, tool or pair moves no old one. Only a server that the catalogue joins with a test server
(the hosted form of a package) goes over to its side. A tool falls by its name alone, so that copies
of one tool on several servers stand on one side.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from assets.contracts.canonical import tool_text
from assets.vectors.index import read_contract
from training.settings import SplitSettings
from warehouse.json_types import Row

Embed = Callable[[Sequence[str]], np.ndarray]
_BLOCK = 1024  # rows whose cosines are held at once: 40 MB against 10,000 columns
_WORD = re.compile(r"\w+")


def normalise_request(text: str) -> str:
    """The words alone: case, punctuation and white space make no other request."""
    return " ".join(_WORD.findall(text.casefold())) or " ".join(text.casefold().split())


def make_cached_embed(embed: Embed) -> Embed:
    """`embed` that asks for no text twice: building and auditing ask for the same."""
    vectors: dict[str, np.ndarray] = {}

    def asked(texts: Sequence[str]) -> np.ndarray:
        lacking = sorted(set(texts) - vectors.keys())
        if lacking:
            vectors.update(zip(lacking, embed(lacking), strict=True))
        return np.stack([vectors[text] for text in texts]) if len(texts) else np.zeros((0, 1))

    return asked


def iterate_cosine_blocks(left: np.ndarray, right: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(first row, cosines of a block of unit vectors `left` with all of `right`)."""
    if not len(right):
        return
    for start in range(0, len(left), _BLOCK):
        yield start, left[start : start + _BLOCK] @ right.T


def find_nearest_texts(
    left: Sequence[str], right: Sequence[str], embed: Embed, above: float
) -> dict[str, str]:
    """Texts of `left` that are nearly one of `right` (cosine over `above`) -> the nearest."""
    if not left or not right:
        return {}
    rows, columns = sorted(set(left)), sorted(set(right))
    result: dict[str, str] = {}
    for start, cosines in iterate_cosine_blocks(embed(rows), embed(columns)):
        best = cosines.argmax(axis=1)
        for at in np.flatnonzero(cosines[np.arange(len(best)), best] > above):
            result[rows[start + at]] = columns[best[at]]
    return result


def find_near_pairs(
    left: Sequence[str], right: Sequence[str], embed: Embed, above: float
) -> dict[str, list[str]]:
    """Texts of `left` -> every text of `right` that is nearly it, by words or by cosine."""
    rows, columns = sorted(set(left)), sorted(set(right))
    if not rows or not columns:
        return {}
    worded: dict[str, list[str]] = {}
    for text in columns:
        worded.setdefault(normalise_request(text), []).append(text)
    duplicates = {text: set(worded.get(normalise_request(text), ())) for text in rows}
    for start, cosines in iterate_cosine_blocks(embed(rows), embed(columns)):
        for at, other in zip(*np.nonzero(cosines > above), strict=True):
            duplicates[rows[start + at]].add(columns[other])
    return {text: sorted(others) for text, others in duplicates.items() if others}


Cosine = Annotated[float, Field(gt=0, le=1)]


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class SetPolicy(SplitSettings):
    """How a set is made. Shares are of servers, tools of train servers, pairs of train tools."""

    test_share: Annotated[float, Field(ge=0, le=1)] = 0.3
    negatives: Annotated[int, Field(ge=0)] = 12
    twin_cosine: Cosine = 0.97  # a "negative" this close is the same tool under another name
    near_cosine: Cosine = 0.95  # requests this close are one request: as synthesis counts twins


TRAIN, TEST = "train", "test"  # the two sides of a server
SEEN_TOOL, UNSEEN_TOOL = "seen_tool", "unseen_tool"
UNSEEN_SERVER = "unseen_server"
SPLITS = (TRAIN, SEEN_TOOL, UNSEEN_TOOL, UNSEEN_SERVER)
TEST_SPLITS = SPLITS[1:]
TEST_SHARE = 0.3
# Frozen: other salts make every past figure incomparable.
_SALT = "toolmill-split-10"
_TOOL_SALT = "toolmill-split-tool-3"
_PAIR_SALT = "toolmill-split-pair-3"
SALTS = {"server": _SALT, "tool": _TOOL_SALT, "pair": _PAIR_SALT}


def split_of(server_id: str, *, test_share: float = TEST_SHARE) -> str:
    """ "train" or "test"; about `test_share` of all servers are test servers."""
    return TEST if _hash_to_share(_SALT, server_id) < test_share else TRAIN


def split_of_same(server_ids: Iterable[str], *, test_share: float = TEST_SHARE) -> str:
    """The side of one server by all ids that it has: "test" where any of them falls there."""
    sides = {split_of(name, test_share=test_share) for name in server_ids}
    return TEST if TEST in sides else TRAIN


def choose_tool_place(
    server_id: str, tool: str, policy: SetPolicy, same: Iterable[str] = ()
) -> str:
    """A contract's place: TRAIN, UNSEEN_TOOL or UNSEEN_SERVER. `same`: other ids of its server."""
    if split_of_same((server_id, *same), test_share=policy.test_share) == TEST:
        return UNSEEN_SERVER
    name = "".join(char for char in tool.casefold() if char.isalnum()) or tool
    return UNSEEN_TOOL if _hash_to_share(_TOOL_SALT, name) < policy.unseen_tools else TRAIN


def compute_pair_draw(pair_id: str) -> float:
    """Where a pair stands between 0 and 1: the lowest of a trained tool are held out."""
    return _hash_to_share(_PAIR_SALT, pair_id)


def _hash_to_share(salt: str, name: str) -> float:
    return int.from_bytes(hashlib.sha256(f"{salt}|{name}".encode()).digest()[:8]) / 2**64


Key = tuple[str, str, str]  # server, tool, contract digest
LEAK_TEXT, LEAK_TWIN = "leak_text", "leak_twin"


@dataclass(frozen=True)
class SplitPlace:
    """Where a contract stands. `leak`: why a train tool may not be learnt from after all; then
    `split` is where its copy stands that is tested on, and `copy_of` is that one's digest."""

    key: Key
    row: Row
    contract: Mapping[str, Any]
    text: str
    split: str
    leak: str | None = None
    copy_of: str | None = None


def assign_places(
    clear: Mapping[Key, Row],
    embed: Embed,
    policy: SetPolicy,
    marked: Collection[tuple[str, str]] = (),
    same: Mapping[str, Collection[str]] | None = None,
) -> dict[Key, SplitPlace]:
    """The place of every clear contract. `marked`: digests of one tool. `same`: server's ids."""
    splits = {}
    for key, row in sorted(clear.items()):
        contract = read_contract(row)
        names = (same or {}).get(key[0], (key[0],))
        split = choose_tool_place(key[0], key[1], policy, names)
        splits[key] = SplitPlace(key, row, contract, tool_text(contract), split)
    copies = _find_train_copies(splits, embed, policy, marked)
    return {
        key: SplitPlace(
            key, place.row, place.contract, place.text, splits[other].split, why, other[2]
        )
        if (found := copies.get(key)) and (why := found[0]) and (other := found[1])
        else place
        for key, place in splits.items()
    }


def build_pool(places: Mapping[Key, SplitPlace]) -> dict[str, dict[str, Any]]:
    """Contract digest -> {server_id, tool, contract, split}, of several the tested one."""
    pool: dict[str, dict[str, Any]] = {}
    for key, place in sorted(places.items(), key=lambda item: (item[1].split == TRAIN, item[0])):
        entry = {"server_id": key[0], "tool": key[1], "contract": place.contract}
        pool.setdefault(key[2], {**entry, "split": place.split})
    return dict(sorted(pool.items()))


def _find_train_copies(
    made: Mapping[Key, SplitPlace],
    embed: Embed,
    policy: SetPolicy,
    marked: Collection[tuple[str, str]],
) -> dict[Key, tuple[str, Key]]:
    """Train contracts that are copies of contracts which are only tested on -> (why, of which)."""
    tested: dict[str, Key] = {}
    by_digest: dict[str, Key] = {}
    for key, place in made.items():
        if place.split != TRAIN:
            tested.setdefault(place.text, key)
            by_digest.setdefault(key[2], key)
    twins: dict[str, list[str]] = defaultdict(list)
    for one, other in marked:
        twins[one].append(other)
        twins[other].append(one)
    learnt = [place for place in made.values() if place.split == TRAIN]
    close = find_nearest_texts([p.text for p in learnt], list(tested), embed, policy.twin_cosine)
    result: dict[Key, tuple[str, Key]] = {}
    for place in learnt:
        named = min((name for name in twins[place.key[2]] if name in by_digest), default=None)
        if place.text in tested:
            result[place.key] = (LEAK_TEXT, tested[place.text])
        elif place.text in close:
            result[place.key] = (LEAK_TWIN, tested[close[place.text]])
        elif named is not None:
            result[place.key] = (LEAK_TWIN, by_digest[named])
    return result
