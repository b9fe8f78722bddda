"""Requests that nearly repeat each other, by the vectors of the configured embedder.

SemHash selects greedily in the order given: the first of its kind stays and every copy points at
it. Below `EXACT` texts neighbours are exact; above, usearch's graph finds them.
"""

from collections.abc import Sequence

import numpy as np

# Exact search of so many 384-dimensional vectors takes seconds; four times as many take a minute.
EXACT = 10_000


class _NoEncoder:
    """SemHash wants an encoder for texts that come later; none do."""

    def encode(self, inputs: object, **_: object) -> np.ndarray:
        raise NotImplementedError("vectors are given")


def find_twins(texts: Sequence[str], vectors: np.ndarray, above: float) -> list[int | None]:
    """For each text the index of the earlier, kept text that it nearly repeats, or None.

    `vectors`: one unit vector a text. A text repeats another when their cosine is `above` or more.
    """
    from semhash import SemHash

    if len(texts) < 2:
        return [None] * len(texts)
    backend = "basic" if len(texts) <= EXACT else "usearch"
    records = [{"place": str(place)} for place in range(len(texts))]
    index = SemHash.from_embeddings(
        np.asarray(vectors, dtype=np.float32), records, _NoEncoder(), ["place"], backend
    )
    first: list[int | None] = [None] * len(texts)
    for copy in index.self_deduplicate(threshold=above).filtered:
        first[int(copy.record["place"])] = int(copy.duplicate_of["place"])
    return first
