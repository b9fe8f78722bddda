"""Bounds on cosines hold for encoders that put all texts close together."""

from collections.abc import Sequence

import numpy as np
import pytest

from assets.vectors.encoders.embedder import embed_queries
from assets.vectors.encoders.minilm import MiniLM
from assets.vectors.scale import REFERENCE, UNRELATED, ScaledEmbedder, get_plain, measure_unrelated
from tests.vectors.test_embed import TEXTS


class Narrow:
    """MiniLM with all cosines pressed into the upper part of the scale, as E5's are."""

    def __init__(self, model: MiniLM, floor: float) -> None:
        self._model, self._floor = model, floor
        self.id, self.dim = f"narrow-{floor}", model.dim + 1

    def embed(self, texts: Sequence[str], **_: object) -> np.ndarray:
        rows = self._model.embed(texts) * np.float32((1 - self._floor) ** 0.5)
        last = np.full((len(rows), 1), self._floor**0.5, np.float32)
        return np.concatenate([rows, last], 1)


@pytest.fixture(scope="module")
def model() -> MiniLM:
    return MiniLM(threads=1)


def test_unrelated_is_where_minilm_has_it(model: MiniLM) -> None:
    assert measure_unrelated(model.embed(REFERENCE)) == pytest.approx(UNRELATED, abs=0.002)


@pytest.mark.parametrize("floor", [0.0, 0.5, 0.8])
def test_cosines_of_a_narrow_encoder_come_back_to_minilms(model: MiniLM, floor: float) -> None:
    narrow = Narrow(model, floor)
    scaled_embedder = ScaledEmbedder(narrow)
    texts = [*TEXTS, *REFERENCE, TEXTS[0].upper(), f"{TEXTS[0]} now"]
    plain, found = model.embed(texts), scaled_embedder.embed(texts)
    assert found.shape == (len(texts), scaled_embedder.dim)
    assert np.abs(np.linalg.norm(found, axis=1) - 1).max() < 1e-5
    before, after = plain @ plain.T, found @ found.T
    assert np.abs(before - after).mean() < 0.05
    for bound in (0.3, 0.85, 0.97):
        assert ((before >= bound) == (after >= bound)).mean() > 0.98
    assert scaled_embedder.id != narrow.id
    assert get_plain(scaled_embedder) is narrow
    assert get_plain(model) is model


def test_questions_are_read_as_the_inner_encoder_reads_them(model: MiniLM) -> None:
    scaled_embedder = ScaledEmbedder(Narrow(model, 0.5))
    assert (
        np.abs(embed_queries(scaled_embedder, TEXTS[:2]) - scaled_embedder.embed(TEXTS[:2])).max()
        < 1e-6
    )
