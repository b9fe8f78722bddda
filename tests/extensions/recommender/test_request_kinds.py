import numpy as np

from extensions.recommender.question_features import choose_families, fit_request_space
from extensions.recommender.rerank_method import OutcomeExample
from extensions.recommender.tool_pool import ToolFacts, ToolPool
from serving.ranking.strategies import RerankQuestion

DIM = 8


def make_pool(vectors: np.ndarray) -> ToolPool:
    facts = [ToolFacts(f"s::t{at}", "s", {"name": f"t{at}"}) for at in range(len(vectors))]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return ToolPool(facts, unit.astype(np.float32))


def draw_requests(seed: int, count: int) -> list[OutcomeExample]:
    """Requests of two kinds, each done by a tool of its own, that differ far more in an argument
    than in their kind."""
    rng = np.random.default_rng(seed)
    found = []
    for row in range(count):
        kind, vector = row % 2, np.zeros(DIM)
        vector[kind], vector[2] = 0.4, rng.normal()
        vector /= np.linalg.norm(vector)
        found.append(OutcomeExample(RerankQuestion(f"{row}", vector, np.array([0, 1])), kind, True))
    return found


def test_requests_that_one_tool_did_are_near_each_other() -> None:
    pool, asked = make_pool(np.eye(2, DIM)), draw_requests(0, 200)
    space = fit_request_space(asked, pool, 4)
    new = draw_requests(1, 40)
    known = np.array([space.place_request(one.question.vector) for one in asked])
    kinds = np.array([one.place for one in asked])

    def count_right(near: np.ndarray) -> float:
        return float(np.mean([kinds[at] == one.place for at, one in zip(near, new, strict=True)]))

    learnt = np.array([space.place_request(one.question.vector) for one in new]) @ known.T
    raw = np.array([one.question.vector for one in new])
    raw = raw @ np.array([one.question.vector for one in asked]).T
    same = kinds[None, :] == np.array([one.place for one in new])[:, None]
    assert learnt[same].mean() - learnt[~same].mean() > 0.5
    assert learnt[same].mean() - learnt[~same].mean() > 2 * (raw[same].mean() - raw[~same].mean())
    assert count_right(np.argmax(learnt, 1)) == 1.0


def test_without_outcomes_requests_have_a_place_among_what_tools_say() -> None:
    pool = make_pool(np.random.default_rng(0).normal(size=(6, DIM)))
    space = fit_request_space([], pool, 20)
    placed = space.place_request(pool.vectors[0])
    assert placed.shape == (20,)
    assert np.isclose(np.linalg.norm(placed), 1.0)
    assert not space.place_request(np.full(DIM, np.nan)).any()
    assert np.isfinite(fit_request_space([], make_pool(np.eye(1, DIM)), 3).basis).all()


def test_tools_that_say_much_the_same_are_one_family() -> None:
    vectors = np.eye(4, DIM)
    vectors[1] = vectors[0] + 0.1 * vectors[1]
    pool = make_pool(vectors)
    asked = [
        OutcomeExample(RerankQuestion("a", pool.vectors[0], np.arange(4)), at, True)
        for at in (0, 0, 1, 2)
    ]
    families = choose_families(asked, pool)
    assert families.names == ("s::t0", "s::t2")
    names = [tool.tool_id for tool in pool.tools]
    assert families.list_keys(names, pool.vectors) == ["s::t0", "s::t0", "s::t2", "s::t3"]
    assert choose_families([], pool).list_keys(names, pool.vectors) == names
