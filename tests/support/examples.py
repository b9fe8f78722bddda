"""How many examples a property test draws."""

import os
from typing import Any

from hypothesis import settings

FULL = os.environ.get("HYPOTHESIS_PROFILE") == "random"  # `make test-all`
FEW = 30


def examples(count: int, **more: Any) -> settings:
    """`count` examples in `make test-all`; `make test` draws the profile's few."""
    return settings(max_examples=count if FULL else min(count, FEW), **more)
