"""A small pool of tools and outcomes whose rule is known, for tests of rerankers."""

import numpy as np

from extensions.recommender.rerank_method import OutcomeExample
from extensions.recommender.tool_pool import ToolFacts, ToolPool
from serving.ranking.strategies import RerankQuestion

DIM = 8
TOOLS = 12


def make_pool(tools: int = TOOLS, seed: int = 0) -> ToolPool:
    """Tools on four servers, with vectors drawn at random."""
    rng = np.random.default_rng(seed)
    facts = [
        ToolFacts(
            f"npm:s{at % 4}::tool_{at}",
            f"npm:s{at % 4}",
            {
                "name": f"tool_{at}",
                "description": f"Does job {at}.",
                "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}}},
            },
        )
        for at in range(tools)
    ]
    vectors = rng.normal(size=(tools, DIM))
    return ToolPool(facts, vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def make_question(
    pool: ToolPool, seed: int, at: float = 0.0, client: str | None = None
) -> RerankQuestion:
    """A question about a direction drawn at random, with all tools as candidates by cosine."""
    vector = np.random.default_rng(seed).normal(size=DIM)
    vector = (vector / np.linalg.norm(vector)).astype(np.float32)
    order = np.argsort(-(pool.vectors @ vector))
    return RerankQuestion(f"do job {seed}", vector, order, at, client)


def draw_examples(pool: ToolPool, count: int, seed: int = 0) -> list[OutcomeExample]:
    """Outcomes where the tools at even places work nine times in ten, the others one in ten; two of
    each question."""
    rng = np.random.default_rng(seed)
    results = []
    for row in range(count):
        question = make_question(pool, row // 2, at=float(row))
        place = int(rng.integers(len(pool)))
        success = bool(rng.random() < (0.9 if place % 2 == 0 else 0.1))
        results.append(OutcomeExample(question, place, success, task=f"t{row // 2}"))
    return results
