"""Weights that would pay more for something else than for the right answer are refused."""

import pytest
from pydantic import ValidationError

from extensions.sidecar.settings import PARTS, WEIGHTS, RewardWeights


def test_the_parts_make_up_1() -> None:
    assert sum(getattr(WEIGHTS, name) for name in PARTS) == pytest.approx(1.0)
    assert PARTS == ("parsed", "tool", "schema", "values", "grounded", "kept", "executed")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"wrong": 0.9}, "wrong"),
        ({"copy": 0.3}, "asked_in_vain"),
        ({"harmful": 0.2}, "asked_in_vain"),
        ({"called_in_vain": 0.5, "asked": 0.4}, "called_in_vain"),
        ({"values": -0.1}, "values"),
        ({"beauty": 0.1}, "beauty"),
    ],
)
def test_an_order_that_pays_for_the_wrong_answer_is_refused(
    changed: dict[str, float], named: str
) -> None:
    with pytest.raises(ValidationError, match=named):
        RewardWeights(**changed)
