"""Clusters of look-alike texts: which tools a request cannot tell apart at a glance.

    vectors, names -> sparse likenesses, blockwise -> clusters by complete linkage, <= CAP texts

Complete linkage, because likeness is no chain: over 12,600 real tools single linkage joins 70 that
get, add, create or retrieve comments of Figma, GitHub, Notion, Todoist and Linear. Here every two
texts of a cluster are alike, or bear the same name.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

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
    link = _Linkage(matrix, names, mute)
    edges = dict(_find_near(matrix, mute)) | dict(_name_clusters(matrix, names))
    for (one, other), _ in sorted(edges.items(), key=lambda edge: (-edge[1], edge[0])):
        link.join(one, other)
    found = (sorted(members) for members in link.members.values() if len(members) > 1)
    return sorted(found)


class _Linkage:
    """Clusters while they grow."""

    def __init__(self, matrix: np.ndarray, names: Sequence[str], mute: np.ndarray) -> None:
        self._matrix, self._names, self._mute = matrix, np.asarray(names), mute
        self._of = list(range(len(names)))
        self.members: dict[int, list[int]] = {place: [place] for place in self._of}

    def join(self, one: int, other: int) -> None:
        """Joins the clusters of two texts if every two texts of them are alike."""
        a, b = sorted((self._of[one], self._of[other]))
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


def compute_cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Rounded, because the last bits of a product depend on the machine and on its neighbours."""
    return np.round(one @ other.T, 4)


def _find_near(matrix: np.ndarray, mute: np.ndarray) -> Iterator[tuple[tuple[int, int], float]]:
    """((one, other), cosine) of alike texts, one < other, the nearest of each text."""
    n = len(matrix)
    least = np.where(mute, TWIN, ALIKE).astype(np.float32)
    for top in range(0, n, _ROWS):
        rows, columns, values = [], [], []
        for left in range(top, n, _COLUMNS):
            alike = matrix[top : top + _ROWS] @ matrix[left : left + _COLUMNS].T
            i, j = np.nonzero(alike >= ALIKE - _ROUNDING)
            value = np.round(alike[i, j], 4)
            i, j = i + top, j + left
            fits = (i < j) & (value >= np.maximum(least[i], least[j]))
            rows.append(i[fits])
            columns.append(j[fits])
            values.append(value[fits])
        yield from _find_nearest(*(np.concatenate(part) for part in (rows, columns, values)))


def _find_nearest(
    rows: np.ndarray, columns: np.ndarray, values: np.ndarray
) -> Iterator[tuple[tuple[int, int], float]]:
    """The most alike few of each row."""
    order = np.lexsort((columns, -values, rows))
    rows, columns, values = rows[order], columns[order], values[order]
    starts = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]]) if len(rows) else rows
    rank = np.arange(len(rows)) - np.repeat(starts, np.diff(np.r_[starts, len(rows)]))
    kept = rank < _NEAREST
    for row, column, value in zip(rows[kept], columns[kept], values[kept], strict=True):
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
