"""Which tools look most like a tool: hard distractors, and partners of look-alike tasks.

Only the marketplace's own contracts are neighbours: one published elsewhere in between would make
other prompts of an unchanged world, and every run would buy them anew.
"""

from collections.abc import Sequence

import numpy as np

from assets.vectors.embed import Embedder
from assets.vectors.index import embed_texts, read_text
from warehouse.json_types import Row
from warehouse.storage.lance import LanceStore

# Above the first two texts are one tool under two names: nobody could tell them apart. Below the
# second (of MiniLM) tools have nothing in common, and choosing among them proves nothing.
TWIN, ALIKE = 0.97, 0.3
_MOST = 8


class Near:
    """The contracts most like one of `rows`, most alike first; twins are left out.

    `matrix`: unit vectors of the rows' texts, float32 [len(rows), dim].
    """

    def __init__(self, rows: Sequence[Row], matrix: np.ndarray) -> None:
        self._rows, self._matrix = list(rows), matrix
        self._place = {(row["server_id"], row["tool"]): at for at, row in enumerate(rows)}

    def __call__(self, row: Row) -> list[Row]:
        place = self._place[row["server_id"], row["tool"]]
        # Rounded, because the last bits of a product depend on the machine and on its neighbours.
        alike = np.round(self._matrix @ self._matrix[place], 4)
        fits = np.flatnonzero((alike >= ALIKE) & (alike < TWIN)).tolist()
        ranked = sorted(fits, key=lambda at: (-alike[at], self._name(at)))
        return [self._rows[at] for at in ranked if at != place][:_MOST]

    def _name(self, at: int) -> tuple[str, str]:
        return self._rows[at]["server_id"], self._rows[at]["tool"]


def find_near_rows(rows: Sequence[Row], embedder: Embedder, store: LanceStore) -> Near:
    """`Near` over snapshot rows, through the vector store."""
    texts = [read_text(row)[1] for row in rows]
    matrix = embed_texts(texts, embedder, store) if rows else np.zeros((0, embedder.dim))
    return Near(rows, matrix)
