"""The audit of a trained adapter: whether its loss fell, at the ends or by halves."""

from pathlib import Path

import pytest

from training.adapter_table import check_adapter_rules

# A sidecar over a small base, of the rows of one marketplace: one epoch, rows of all lengths.
SHORT = [2.091, 1.728, 1.525, 1.745, 2.522, 1.625, 1.369, 1.427, 1.51, 2.271, 1.521, 1.722]


@pytest.mark.parametrize(
    ("losses", "passes"),
    [
        (SHORT, True),
        ([2.0, 1.9, 1.1, 1.2], True),
        ([0.12, 0.2, 0.15, 0.25], True),  # low from the start
        ([1.5, 1.4, 1.6, 4.0, 6.0, 9.0], False),
        ([1.0, 1.1, 1.0, 1.6, 1.7, 1.6], False),
        ([1.5, 1.5, 1.5, 1.5, 1.5, 1.5], False),  # flat
        ([1.0, 2.0], False),
    ],
)
def test_a_loss_falls_by_its_ends_or_by_its_halves(
    tmp_path: Path, losses: list[float], passes: bool
) -> None:
    some = 3 if len(losses) >= 6 else 1
    first, last = sum(losses[:some]) / some, sum(losses[-some:]) / some
    card = {"name": "m", "role": "caller", "loss_first": first, "loss_last": last, "losses": losses}
    [fell] = [rule for rule in check_adapter_rules(tmp_path, card) if rule.rule == "loss_fell"]
    assert fell.passed is passes
