from dataclasses import replace

import numpy as np

from extensions.recommender.rerank_method import OutcomeExample
from extensions.recommender.reranker_fit import (
    USUAL,
    VARIANCES,
    FitSettings,
    choose_variance,
    fit_reranker,
)
from serving.ranking.strategies import RerankQuestion
from tests.support.reranking import DIM, draw_examples, make_pool, make_question

POOL = make_pool()
KINDS = 6


def draw_by_kind(count: int) -> list[OutcomeExample]:
    """Outcomes where each of six tools does one kind of request, whatever its description says."""
    rng = np.random.default_rng(0)
    found = []
    for row in range(count):
        kind, place = (int(integer) for integer in rng.integers(KINDS, size=2))
        vector = rng.normal(size=DIM) * 0.2
        vector[kind] += 1.0
        vector = (vector / np.linalg.norm(vector)).astype(np.float32)
        asked = RerankQuestion(f"job {row}", vector, np.arange(KINDS), float(row))
        worked = bool(rng.random() < (0.95 if kind == place else 0.05))
        found.append(OutcomeExample(asked, place, worked, task=f"t{row}"))
    return found


def draw_by_tool(count: int) -> list[OutcomeExample]:
    """Outcomes that hang on the tool alone: seven of ten, or four of ten."""
    rng = np.random.default_rng(0)
    found = []
    for row in range(count):
        place = int(rng.integers(len(POOL)))
        worked = bool(rng.random() < (0.4 if place % 2 else 0.7))
        asked = make_question(POOL, row, at=float(row))
        found.append(OutcomeExample(asked, place, worked, task=f"t{row}"))
    return found


def test_the_log_tells_how_much_tools_differ_by_kind_of_request() -> None:
    settings = FitSettings()
    assert choose_variance(draw_by_tool(300), POOL, settings) == VARIANCES[0]
    assert choose_variance(draw_by_kind(500), POOL, settings) > VARIANCES[0]


def test_a_short_log_tells_nothing_of_it() -> None:
    assert choose_variance(draw_by_kind(40), POOL, FitSettings()) == USUAL


def test_a_setting_without_a_choice_keeps_its_variances() -> None:
    settings = replace(FitSettings(), choose=False)
    assert fit_reranker(draw_examples(POOL, 60), POOL, settings).facts["by_kind"] is None
