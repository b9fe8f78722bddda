"""Tables of cases: `@cases("text, value", ("1", 1), ("2", 2))` runs a test once for each row."""

from collections.abc import Sequence
from typing import Any

import pytest


def cases(names: str, *rows: Any, ids: Sequence[str] | None = None) -> pytest.MarkDecorator:
    """`pytest.mark.parametrize` with its rows as arguments, so that a table is one level deep."""
    return pytest.mark.parametrize(names, rows, ids=ids)
