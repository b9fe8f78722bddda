"""A name that stands twice is found in one pass over the names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.sanitize.untrusted_text import find_repeated_name


class Name(str):
    """A name that counts how often one is compared with another."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)


@given(st.lists(st.text(max_size=2), max_size=12))
def test_the_first_name_that_occurs_again_is_found(names: list[str]) -> None:
    again = [name for at, name in enumerate(names) if name in names[:at]]
    assert find_repeated_name((name, 0) for name in names) == (again[0] if again else None)


@pytest.mark.parametrize("count", [1000, 8000])
def test_its_comparisons_grow_with_the_names_not_with_their_square(count: int) -> None:
    names = [Name(f"n{at}") for at in range(count)]
    Name.compared = 0
    assert find_repeated_name([(name, 0) for name in [*names, Name(f"n{count - 1}")]]) is not None
    assert Name.compared <= 4 * count
