"""ToolFlix's network, from its write-up: a trunk over question and endpoint, and its heads."""

from typing import TYPE_CHECKING, Any

import numpy as np

from extensions.recommender.training.wide import WIDE

if TYPE_CHECKING:
    import torch

ENDPOINT = 64  # dimensions of an endpoint's learnt vector
_TRUNK = (96, 48)


def build_net(vectors: np.ndarray, seed: int, heads: int) -> Any:
    """A torch module: (question vectors, places, wide features) -> scores [rows, heads].

    The first of two heads (relevance) reads the trunk only, the last one (quality) the wide
    features too. Endpoint vectors start as the descriptions' leading directions. About 68,000
    parameters at 163 endpoints of 384 dimensions.
    """
    import torch

    torch.manual_seed(seed)
    dim = vectors.shape[1]

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.endpoint = torch.nn.Embedding(len(vectors), ENDPOINT)
            self.endpoint.weight.data.copy_(torch.from_numpy(_shorten_vectors(vectors)))
            self.asked = torch.nn.Linear(dim, ENDPOINT)
            self.asked.weight.data.copy_(torch.from_numpy(_find_directions(vectors)))
            self.trunk = torch.nn.Sequential(
                torch.nn.Linear(3 * ENDPOINT, _TRUNK[0]), torch.nn.ReLU(), torch.nn.Dropout(0.1),
                torch.nn.Linear(_TRUNK[0], _TRUNK[1]), torch.nn.ReLU(),
            )  # fmt: skip
            self.relevance = torch.nn.Linear(_TRUNK[1], 1)
            self.quality = torch.nn.Sequential(
                torch.nn.Linear(_TRUNK[1] + WIDE, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
            )

        def forward(
            self, asked: "torch.Tensor", places: "torch.Tensor", wide: "torch.Tensor"
        ) -> "torch.Tensor":
            query, endpoint = self.asked(asked), self.endpoint(places)
            deep = self.trunk(torch.cat([query, endpoint, query * endpoint], 1))
            found = [self.quality(torch.cat([deep, wide], 1))]
            if heads == 2:
                found.insert(0, self.relevance(deep))
            return torch.cat(found, 1)

    return Net()


def _find_directions(vectors: np.ndarray) -> np.ndarray:
    """float32 [ENDPOINT, dim]: the leading directions of descriptions, nothing beyond them. What
    reads a question starts with the same, so that both agree where their texts do."""
    _, _, directions = np.linalg.svd(vectors - vectors.mean(0), full_matrices=False)
    out = np.zeros((ENDPOINT, vectors.shape[1]), np.float32)
    out[: len(directions[:ENDPOINT])] = directions[:ENDPOINT]
    return out


def _shorten_vectors(vectors: np.ndarray) -> np.ndarray:
    """float32 [endpoints, ENDPOINT]: descriptions along their leading directions."""
    return ((vectors - vectors.mean(0)) @ _find_directions(vectors).T).astype(np.float32)
