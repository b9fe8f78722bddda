"""How many examples a property test draws, and JSON values for it."""

import os
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

FULL = os.environ.get("HYPOTHESIS_PROFILE") == "random"  # `make test-all`
FEW = 30
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
NAMES = st.text(max_size=8)


def examples(count: int, **more: Any) -> settings:
    """`count` examples in `make test-all`; `make test` draws the profile's few."""
    return settings(max_examples=count if FULL else min(count, FEW), **more)


def json_values(scalars: Any = SCALARS, names: Any = NAMES, *, leaves: int = 12) -> Any:
    """These scalars, and lists and objects with these names of them."""
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
        max_leaves=leaves,
    )
