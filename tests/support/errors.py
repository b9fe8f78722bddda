"""Errors that tests expect, by their kind."""

from typing import Any

import pytest


def expect_kind(error: type[BaseException], kind: str, match: str | None = None) -> Any:
    return pytest.raises(
        error, match=match, check=lambda raised: getattr(raised, "kind", None) == kind
    )
