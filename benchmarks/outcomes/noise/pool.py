"""The retriever: which tools of the pool are candidates for a request, by the shipped embedder."""

from collections.abc import Sequence

import numpy as np

from assets.contracts.canonical import tool_text
from assets.vectors.encoders.choose import open_embedder
from assets.vectors.encoders.embedder import embed_queries
from benchmarks.outcomes.noise.endpoints import BEFORE, ToolEndpoint
from benchmarks.outcomes.noise.intents import BenchTask
from benchmarks.outcomes.noise.table import TaskFacts, keep_task

SHOWN = 5  # tools that the actor is shown
EMBEDDER = "general"
CANDIDATES = 20
SPARE = 2  # candidates more, so that the second phase's newcomers push nobody out of the first


def embed_endpoints(endpoints: Sequence[ToolEndpoint], phase: int) -> np.ndarray:
    """Unit vectors of the contracts as they are listed, float32 [endpoints, dim]."""
    return open_embedder(EMBEDDER).embed(
        [tool_text(endpoint.contracts[phase]) for endpoint in endpoints]
    )


def embed_requests(texts: Sequence[str]) -> np.ndarray:
    """Unit vectors, float32 [texts, dim]; each text is embedded once."""
    different = list(dict.fromkeys(texts))
    vectors = embed_queries(open_embedder(EMBEDDER), different)
    places = {text: at for at, text in enumerate(different)}
    return vectors[[places[text] for text in texts]]


def choose_candidates(
    tasks: Sequence[BenchTask],
    endpoints: Sequence[ToolEndpoint],
    queries: np.ndarray,
    vectors: np.ndarray,
) -> list[TaskFacts]:
    """Each task with its candidates by cosine. queries [tasks, dim], vectors [endpoints, dim]."""
    newcomers = sum(endpoint.newcomer for endpoint in endpoints)
    real = np.array([endpoint.direct for endpoint in endpoints])
    most = CANDIDATES + min(SPARE, newcomers)
    scores = queries @ vectors.T
    order = np.argsort(-scores, axis=1, kind="stable")
    ids = [endpoint.id for endpoint in endpoints]
    return [
        keep_task(
            task,
            (ids[at] for at in row[:most]),
            (ids[at] for at in row[real[row]][:SHOWN]),
        )
        for task, row in zip(tasks, order, strict=True)
    ]


def list_candidates(task: TaskFacts, endpoints: dict[str, ToolEndpoint], phase: int) -> list[str]:
    """The retriever's order in a phase: at most CANDIDATES ids."""
    shown = (
        candidate
        for candidate in task.candidates
        if phase != BEFORE or not endpoints[candidate].newcomer
    )
    return list(shown)[:CANDIDATES]
