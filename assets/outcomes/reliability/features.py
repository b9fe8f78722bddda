"""What a tool's contract and its server's launches say before any call, and how much that is worth.

A logistic regression with a strong ridge: where nothing was seen, or nothing depends on a feature,
it says the rate of all tools.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from warehouse.json_types import Row

FEATURES = (
    *("required", "optional", "described", "words", "output_schema", "read_only"),
    # Seconds and attempts of a launch differ from run to run: a run of an unchanged world moved the
    # table by them.
    "remote",
)
_RIDGE = 10.0  # a feature has to explain some tens of calls before it moves a prior
_STEPS = 12


def describe_tool(contract: Mapping[str, Any], launch: Row | None) -> list[float]:
    """The values of FEATURES. launch: the server's row of DEPLOYMENTS."""
    schema = contract.get("inputSchema")
    schema = schema if isinstance(schema, dict) else {}
    held = schema.get("properties")
    properties = held if isinstance(held, dict) else {}
    required = schema.get("required")
    needed = len(required) if isinstance(required, list) else 0
    described = [one for one in properties.values() if isinstance(one, dict)]
    texts = sum(bool(one.get("description")) for one in described)
    hints = contract.get("annotations")
    launch = launch or {}
    return [
        math.log1p(needed),
        math.log1p(max(len(properties) - needed, 0)),
        texts / len(properties) if properties else 1.0,
        math.log1p(len(str(contract.get("description") or "").split())),
        float(isinstance(contract.get("outputSchema"), dict)),
        float(isinstance(hints, dict) and hints.get("readOnlyHint") is True),
        float(launch.get("ecosystem") == "remote"),
    ]


def fit_rates(features: np.ndarray, worked: np.ndarray, failed: np.ndarray) -> np.ndarray:
    """The expected share of successes of each tool, float64 [tools].

    features [tools, features]; worked, failed: calls of each, float64 [tools], 0 where none was
    seen. Newton's method on the ridge-penalised likelihood, the intercept's penalty that of one
    success and one failure more.
    """
    spread = features.std(0)
    scaled = (features - features.mean(0)) / np.where(spread > 1e-9, spread, 1.0)
    design = np.column_stack([np.ones(len(scaled)), scaled])
    base = (worked.sum() + 1) / (worked.sum() + failed.sum() + 2)
    centre = math.log(base / (1 - base))
    penalty = np.full(design.shape[1], _RIDGE)
    penalty[0] = 1.0
    weights, calls = np.zeros(design.shape[1]), worked + failed
    for _ in range(_STEPS):
        rate = 1 / (1 + np.exp(-np.clip(centre + design @ weights, -30, 30)))
        slope = design.T @ (worked - calls * rate) - penalty * weights
        curve = (design.T * (calls * rate * (1 - rate))) @ design + np.diag(penalty)
        weights = weights + np.linalg.solve(curve, slope)
    return 1 / (1 + np.exp(-np.clip(centre + design @ weights, -30, 30)))


def parse_contract(text: str) -> dict[str, Any]:
    """The contract in a row; {} for what is none."""
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return held if isinstance(held, dict) else {}
