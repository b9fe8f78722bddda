"""Weights that were fitted, and what they are applied to: the order of tools, and how likely it is
that any of them is suitable.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from serving.index.errors import IndexBroken

BUILT_IN = Path(__file__).with_name("fusion.json")
TRAINED = Path(__file__).with_name("fusion_trained.json")
RELIABILITY = 0.6  # what all calls or none working moves a score by: half a word's worth
_PLACES = 6  # decimals kept of a probability


@dataclass(frozen=True)
class Fusion:
    """A linear score over named features, and a logistic one over named evidence."""

    weights: dict[str, float]
    evidence: dict[str, float]
    bias: float
    threshold: float  # of suitability: below it the answer says that there is no tool

    def score(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        """One number a candidate; a feature without a weight counts nothing."""
        shape = next(iter(features.values())).shape
        total = np.zeros(shape, np.float32)
        for name, weight in self.weights.items():
            if name in features:
                total += np.float32(weight) * features[name]
        return total

    def suitable(self, evidence: Mapping[str, float]) -> float:
        """How likely it is that the pool holds a suitable tool, 0..1."""
        parts = (weight * evidence.get(name, 0.0) for name, weight in self.evidence.items())
        margin = min(max(self.bias + sum(parts), -30.0), 30.0)
        return round(1 / (1 + math.exp(-margin)), _PLACES)


def read_fusion(held: Mapping[str, Any], where: str) -> Fusion:
    """Raises IndexBroken where `held` is not {weights, suitable: {weights, bias, threshold}}."""
    try:
        suitable = held["suitable"]
        fusion = Fusion(
            weights={str(name): float(value) for name, value in held["weights"].items()},
            evidence={str(name): float(value) for name, value in suitable["weights"].items()},
            bias=float(suitable["bias"]),
            threshold=float(suitable["threshold"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise IndexBroken(
            f"{where}: {type(error).__name__}: {error}; expected"
            " {weights: {feature: number}, suitable: {weights, bias, threshold}}"
        ) from error
    numbers = [*fusion.weights.values(), *fusion.evidence.values(), fusion.bias, fusion.threshold]
    if not all(map(math.isfinite, numbers)):
        raise IndexBroken(f"{where}: a weight is not a finite number")
    return fusion


@lru_cache(maxsize=4)
def load_built_in(trained: bool = False) -> Fusion:
    """The weights that ship with the program; the files say what they were fitted on. `trained`:
    for the vectors of a trained adapter, which deserve more trust than the base model's."""
    path = TRAINED if trained else BUILT_IN
    return read_fusion(json.loads(path.read_bytes()), str(path))
