"""The floor under a run's launches."""

from typing import Any

import pytest

from assets.servers.defs import check_launch_rate


def rows(**kinds: int) -> list[dict[str, Any]]:
    return [
        {"recipe_digest": "d", "status": "ok", "error_kind": None}
        if kind == "ok"
        else {"recipe_digest": "d", "status": "failed", "error_kind": kind}
        for kind, count in kinds.items()
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("counts", "passed"),
    [
        ({"crashed": 5}, False),
        ({"crashed": 4}, True),  # too few to speak of a rate
        ({"ok": 1, "crashed": 4}, True),
        ({"ok": 1, "timeout_start": 9}, False),
        ({"policy_denied": 50}, True),  # nothing was tried
        ({"ok": 2, "policy_denied": 50}, True),
        ({"crashed": 5, "policy_denied": 50}, False),
        ({"ok": 2, "needs_confirmation": 50}, True),
        ({"crashed": 5, "needs_confirmation": 50}, False),
    ],
)
def test_mass_failure_is_refused_and_what_was_never_tried_does_not_count(counts, passed):
    assert check_launch_rate(rows(**counts)).passed is passed
