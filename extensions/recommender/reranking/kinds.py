"""Kinds of requests and of tools: in which directions requests differ for tools, and which tools
say so much the same that what one does tells of the other."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from serving.index.model import compute_products

FAMILY = 0.7  # cosine from which on two tools are of one family
_ROWS = 1_024  # tools that are compared at a time
_LEAST = 1e-9


@dataclass(frozen=True)
class RequestSpace:
    """Requests about their mean in the directions that tell what one tool did from what others did;
    `basis` is float32 [dim, dims], the first directions those that requests differ most in."""

    mean: np.ndarray
    basis: np.ndarray

    def place_request(self, vector: np.ndarray) -> np.ndarray:
        """A unit vector, float64 [dims]; 0 where the request is in none of the directions."""
        found = compute_products(self.basis.T, vector - self.mean).astype(np.float64)
        found = np.nan_to_num(found, nan=0.0, posinf=0.0, neginf=0.0)
        length = float(np.linalg.norm(found))
        return found / length if length > _LEAST else found


@dataclass(frozen=True)
class Families:
    """The tool that each family is called by, and its vector, float32 [families, dim]."""

    names: tuple[str, ...]
    vectors: np.ndarray

    def list_keys(self, tool_ids: Sequence[str], vectors: np.ndarray) -> list[str]:
        """The family of each tool: that of the nearest in `names`, or one of its own."""
        if not self.names:
            return list(tool_ids)
        keys = []
        for start in range(0, len(tool_ids), _ROWS):
            near = vectors[start : start + _ROWS] @ self.vectors.T
            best = np.argmax(near, 1)
            own = tool_ids[start : start + _ROWS]
            keys += [
                self.names[at] if near[row, at] >= FAMILY else name
                for row, (name, at) in enumerate(zip(own, best.tolist(), strict=True))
            ]
        return keys
