"""What was shown before, and so is not news."""

from collections.abc import Collection

import numpy as np

from serving.index.model import Index


def list_barred(
    index: Index, shown: Collection[str], held_back: Collection[str] = ()
) -> frozenset[str]:
    """The tool ids that may not be shown: those held back (they failed, or were refused), and
    those shown before with their twins, unless the one that was shown is held back: then a twin
    may stand in for it."""
    places = [index.place_of(name) for name in shown if name not in held_back]
    groups = index.twins[[place for place in places if place is not None]]
    twins = np.flatnonzero(np.isin(index.twins, groups)).tolist() if len(groups) else []
    return frozenset([*held_back, *shown, *(index.tools[at].tool_id for at in twins)])
