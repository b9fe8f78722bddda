"""What a contract says of how often its tool works."""

import numpy as np
import pytest

from assets.outcomes.reliability.features import (
    FEATURES,
    describe_tool,
    fit_rates,
    parse_contract,
)
from assets.servers.deploy.deployment_table import DEPLOYMENTS


@pytest.mark.parametrize(
    "contract",
    [
        {},
        {"inputSchema": 3, "description": None, "annotations": []},
        {"inputSchema": {"properties": {"a": True, "b": {}}, "required": "a"}},
        {"inputSchema": {"required": ["a", "b", "c"]}},
    ],
)
def test_any_contract_has_features(contract: dict) -> None:
    found = describe_tool(contract, {"ecosystem": None})
    assert len(found) == len(FEATURES)
    assert np.isfinite(found).all()


def test_what_differs_from_launch_to_launch_is_no_feature() -> None:
    first, again = (
        {**dict.fromkeys(DEPLOYMENTS.volatile, each), "ecosystem": "remote"} for each in (1, 2)
    )
    assert describe_tool({}, first) == describe_tool({}, again) != describe_tool({}, None)


def test_a_contract_that_is_no_json_is_empty() -> None:
    assert parse_contract("{half") == parse_contract("[1]") == {}


def test_a_feature_that_failures_follow_moves_what_is_expected() -> None:
    features = np.array([[1.0], [0.0]] * 50)
    worked, failed = np.array([2.0, 9.0] * 50), np.array([8.0, 1.0] * 50)
    rates = fit_rates(features, worked, failed)
    assert rates[0] == pytest.approx(0.2, abs=0.05)
    assert rates[1] == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize(("worked", "failed"), [(0, 0), (1e6, 0), (0, 1e6), (3, 1)])
def test_rates_are_rates_whatever_was_seen(worked: float, failed: float) -> None:
    features = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    rates = fit_rates(features, np.full(3, worked), np.full(3, failed))
    assert ((rates >= 0) & (rates <= 1)).all()
    assert np.ptp(rates) < 1e-6  # nothing depends on the features
