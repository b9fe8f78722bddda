"""Confusables: near-identical tools of different servers.

    snapshot rows + base vectors -> distinct texts -> clusters -> pairs

Clusters use complete linkage: single linkage joins 70 tools of five products that get, add, create
or retrieve comments. A twin is one tool under two server ids and never a negative of the other.
Tools of one text are one entry of their cluster and are paired with the first of them, so that 70
copies make 69 rows and not 2,415.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from assets.columns import read_table_spec
from assets.contracts.canonical import tool_text
from assets.vectors.index import read_contract
from warehouse.json_types import Contract, Row
from warehouse.storage.digest import digest

# Chosen by reading pairs of other names: of those at 0.75 to 0.80 most do another thing to the
# same thing (`project_list`, `project_delete`), at 0.85 and above most do the same thing.
ALIKE = 0.85
TWIN = 0.97
CAP = 20  # texts of one cluster: 190 pairs; 36 servers have a `search` of their own words
_NEAREST = 32  # likenesses kept for one text: more than a cluster holds
_ROUNDING = 1e-4
_ROWS, _COLUMNS = 1024, 8192  # of one product: 32 MB, whatever the number of texts


def build_clusters(
    matrix: np.ndarray, names: Sequence[str], silent: Sequence[bool] | None = None
) -> list[list[int]]:
    """Places of look-alike texts, two or more together, the largest likeness first joined.

    `matrix`: unit vectors [texts, dim]; `names`: the tools' names, equal where they read the same.
    A `silent` text has no description of its own: its vector is that of its name and of words
    which many share, so it is like another only from TWIN on, or by name. The order of the texts
    decides nothing but ties.
    """
    mute = np.asarray(silent if silent is not None else [False] * len(names), bool)
    link = _ClusterLinkage(matrix, names, mute)
    edges = dict(_find_near(matrix, mute)) | dict(_name_clusters(matrix, names))
    for (first, other), _ in sorted(edges.items(), key=lambda edge: (-edge[1], edge[0])):
        link.join(first, other)
    clusters = (sorted(members) for members in link.members.values() if len(members) > 1)
    return sorted(clusters)


class _ClusterLinkage:
    def __init__(self, matrix: np.ndarray, names: Sequence[str], mute: np.ndarray) -> None:
        self._matrix, self._names, self._mute = matrix, np.asarray(names), mute
        self._of = list(range(len(names)))
        self.members: dict[int, list[int]] = {place: [place] for place in self._of}

    def join(self, first: int, other: int) -> None:
        """Joins the clusters of two texts if every two texts of them are alike."""
        a, b = sorted((self._of[first], self._of[other]))
        if a == b or len(self.members[a]) + len(self.members[b]) > CAP:
            return
        if not self._are_all_alike(self.members[a], self.members[b]):
            return
        for place in self.members.pop(b):
            self._of[place] = a
            self.members[a].append(place)

    def _are_all_alike(self, a: list[int], b: list[int]) -> bool:
        same = self._names[a][:, None] == self._names[b][None, :]
        least = np.where(self._mute[a][:, None] | self._mute[b][None, :], TWIN, ALIKE)
        return bool(np.all(same | (compute_cosines(self._matrix[a], self._matrix[b]) >= least)))


def compute_cosines(first: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Rounded, because the last bits of a product depend on the machine and on its neighbours."""
    return np.round(first @ other.T, 4)


def _find_near(matrix: np.ndarray, mute: np.ndarray) -> Iterator[tuple[tuple[int, int], float]]:
    """((one, other), cosine) of alike texts, one < other, the nearest of each text."""
    n = len(matrix)
    least = np.where(mute, TWIN, ALIKE).astype(np.float32)
    for top in range(0, n, _ROWS):
        blocks = []
        for left in range(top, n, _COLUMNS):
            alike = matrix[top : top + _ROWS] @ matrix[left : left + _COLUMNS].T
            i, j = np.nonzero(alike >= ALIKE - _ROUNDING)
            value = np.round(alike[i, j], 4)
            i, j = i + top, j + left
            fits = (i < j) & (value >= np.maximum(least[i], least[j]))
            blocks.append((i[fits], j[fits], value[fits]))
        yield from _find_nearest(*map(np.concatenate, zip(*blocks, strict=True)))


def _find_nearest(
    rows: np.ndarray, columns: np.ndarray, values: np.ndarray
) -> Iterator[tuple[tuple[int, int], float]]:
    """The most alike few of each row."""
    order = np.lexsort((columns, -values, rows))
    rows, columns, values = rows[order], columns[order], values[order]
    starts = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]]) if len(rows) else rows
    rank = np.arange(len(rows)) - np.repeat(starts, np.diff(np.r_[starts, len(rows)]))
    nearest = rank < _NEAREST
    for row, column, value in zip(rows[nearest], columns[nearest], values[nearest], strict=True):
        yield (int(row), int(column)), float(value)


def _name_clusters(
    matrix: np.ndarray, names: Sequence[str]
) -> Iterator[tuple[tuple[int, int], float]]:
    """((one, other), cosine) of texts of one name, the nearest of each text."""
    groups: dict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(names):
        groups[name].append(place)
    for places in groups.values():
        at = np.array(places)
        for top in range(0, len(at), _ROWS):
            alike = compute_cosines(matrix[at[top : top + _ROWS]], matrix[at])
            i, j = np.nonzero(np.arange(top, top + len(alike))[:, None] < np.arange(len(at)))
            yield from _find_nearest(at[i + top], at[j], alike[i, j])


TWINS, CONFUSABLE = "twin", "confusable"
_SILENT_FROM = 20  # servers that share a description word for word: "Description not available"

CONFUSABLES = read_table_spec(__file__, "confusables")


@dataclass(frozen=True)
class _DistinctText:
    """One distinct text and the tools that have it, in the order of their ids."""

    tools: tuple[Row, ...]
    contract: Contract
    name: str
    silent: bool
    description: str


def find_confusables(rows: Sequence[Row], matrix: np.ndarray) -> list[dict[str, Any]]:
    """Rows of CONFUSABLES. rows: clear snapshot rows; matrix: vectors of their `tool_text` [rows,
    dim]."""
    if len(matrix) != len(rows):
        raise ValueError(f"confusables: {len(rows)} rows but {len(matrix)} vectors")
    texts, vectors = _build_texts(rows, matrix)
    names, silent = [text.name for text in texts], [text.silent for text in texts]
    clusters = build_clusters(vectors, names, silent)
    grouped = {place for places in clusters for place in places}
    clusters += [[at] for at, text in enumerate(texts) if len(text.tools) > 1 and at not in grouped]
    out = []
    for places in clusters:
        pairs = list(_find_pairs(places, texts, vectors))
        tools = {_key_tool(row) for pair in pairs for row in pair[:2]}
        name = digest(min(tools))[:16] if tools else ""
        for left, other, cosine, kind in pairs:
            out.append(
                {
                    **{key: left[key] for key in ("server_id", "tool", "contract_digest")},
                    "other_server_id": other["server_id"],
                    "other_tool": other["tool"],
                    "other_digest": other["contract_digest"],
                    "cosine": cosine,
                    "same_name": _fold_name(left["tool"]) == _fold_name(other["tool"]),
                    "cluster": name,
                    "cluster_tools": len(tools),
                    "kind": kind,
                }
            )
    return sorted(out, key=lambda row: tuple(row[name] for name in CONFUSABLES.key))


def list_hard_negatives(rows: Sequence[Row], most: int = 8) -> dict[str, list[str]]:
    """Contract digest -> digests of other tools that look like it, most alike first; no twins."""
    twins = _group_twins(rows)
    near: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        tool_digest, other = row["contract_digest"], row["other_digest"]
        if row["kind"] == CONFUSABLE and other not in twins.get(tool_digest, (tool_digest,)):
            for here, there in ((tool_digest, other), (other, tool_digest)):
                for twin in twins.get(here, (here,)):
                    near[twin][there] = max(row["cosine"], near[twin].get(there, -1.0))
    return {
        name: sorted(cosines, key=lambda tool_digest: (-cosines[tool_digest], tool_digest))[:most]
        for name, cosines in sorted(near.items())
    }


def _group_twins(rows: Iterable[Row]) -> dict[str, set[str]]:
    """Contract digest -> the digests of all that are one tool with it, itself included."""
    groups: dict[str, set[str]] = {}
    for row in rows:
        if row["kind"] == TWINS:
            names = row["contract_digest"], row["other_digest"]
            first, other = (groups.setdefault(name, {name}) for name in names)
            if first is not other:
                first |= other
                groups |= dict.fromkeys(other, first)
    return groups


def _build_texts(rows: Sequence[Row], matrix: np.ndarray) -> tuple[list[_DistinctText], np.ndarray]:
    """Distinct texts and their vectors; a tool of several marketplaces counts once."""
    first_of: dict[tuple[str, str], int] = {}
    order = [(*_key_tool(row), row["marketplace"], at) for at, row in enumerate(rows)]
    for server_id, tool, _, at in sorted(order):
        first_of.setdefault((server_id, tool), at)
    contracts = {at: read_contract(rows[at]) for at in first_of.values()}
    tools: dict[str, list[int]] = defaultdict(list)
    for at, contract in contracts.items():
        tools[tool_text(contract)].append(at)
    owners: dict[str, set[str]] = defaultdict(set)
    for at, contract in contracts.items():
        owners[_render_plain(contract)].add(rows[at]["server_id"])
    distinct = [
        _DistinctText(
            tools=tuple(rows[at] for at in places),
            contract=contracts[places[0]],
            name=_fold_name(contracts[places[0]]["name"]),
            silent=(plain := _render_plain(contracts[places[0]])) == ""
            or len(owners[plain]) >= _SILENT_FROM,
            description=plain,
        )
        for places in tools.values()
    ]
    return distinct, np.asarray(matrix)[[places[0] for places in tools.values()]]


def _find_pairs(
    places: Sequence[int], texts: Sequence[_DistinctText], vectors: np.ndarray
) -> Iterator[tuple[Row, Row, float, str]]:
    """(one, other, cosine, kind) of a cluster; tools of one server are no pair."""
    for at in places:
        first, *copies = texts[at].tools
        for other in copies:
            if first["server_id"] != other["server_id"]:
                yield (*_order_pair(first, other), 1.0, TWINS)
    alike = compute_cosines(vectors[list(places)], vectors[list(places)])
    for (i, a), (j, b) in combinations(enumerate(places), 2):
        left, other = texts[a], texts[b]
        pair = next(((x, y) for x in left.tools for y in other.tools
                     if x["server_id"] != y["server_id"]), None)  # fmt: skip
        if pair is not None:
            cosine = round(float(alike[i, j]), 4)
            kind = TWINS if _are_twins(left, other, cosine) else CONFUSABLE
            yield (*_order_pair(*pair), cosine, kind)


def _are_twins(first: _DistinctText, other: _DistinctText, cosine: float) -> bool:
    """One tool under two names: near vectors, and the same names or all that is said."""
    same_text = first.description == other.description and not first.silent
    if first.name == other.name and same_text:
        return True
    a, b = (_split_name(text.contract["name"]) for text in (first, other))
    return cosine >= TWIN and (same_text or 2 * len(a & b) >= len(a | b))


def _order_pair(left: Row, other: Row) -> tuple[Row, Row]:
    return (left, other) if _key_tool(left) <= _key_tool(other) else (other, left)


def _key_tool(row: Row) -> tuple[str, str]:
    return row["server_id"], row["tool"]


def _render_plain(contract: Contract) -> str:
    return " ".join(str(contract.get("description") or "").casefold().split())


def _split_name(name: str) -> set[str]:
    """The words of an identifier, parted at its joints, as singulars in lower case."""
    words = re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).casefold())
    return {word.rstrip("s") for word in words if len(word) < 30}


def _fold_name(name: str) -> str:
    """A name modulo case and separators."""
    return "".join(filter(str.isalnum, name.casefold())) or name
