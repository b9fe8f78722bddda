"""What nobody foresaw about one item is a line about it; what concerns the run is raised."""

import errno
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.item_failure import describe_failure, try_item
from warehouse.ledger.database import LedgerUnavailable


def _break(text: str) -> str:
    raise RuntimeError(text)


@given(st.text())
def test_one_fault_has_one_digest_and_tells_nothing_of_its_item(text: str) -> None:
    line = try_item(lambda: _break(text), lambda hint: hint)
    assert re.fullmatch(
        r"RuntimeError at tests/warehouse/test_item_failure\.py:\d+ _break, trace [0-9a-f]{12}",
        line,
    )


def test_another_fault_has_another_digest() -> None:
    hints = {try_item(lambda one=one: _break(one), lambda hint: hint) for one in ("a", "b")}
    other = try_item(lambda: {}["a"], lambda hint: hint)
    assert len(hints) == 1
    assert other.startswith("KeyError at tests/")
    assert other[-12:] != next(iter(hints))[-12:]


@pytest.mark.parametrize(
    "error",
    [
        LedgerUnavailable("the ledger is locked"),
        OSError(errno.ENOSPC, "No space left on device"),
        LookupError("of the caller"),
        KeyboardInterrupt(),
    ],
)
def test_what_concerns_the_run_is_raised(error: BaseException) -> None:
    def make() -> None:
        raise error

    with pytest.raises(type(error)):
        try_item(make, lambda _: None, through=(LookupError,))


def test_an_error_that_was_never_raised_is_described() -> None:
    assert describe_failure(ValueError("x")).startswith("ValueError at ?:0 ?, trace ")
