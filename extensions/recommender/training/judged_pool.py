"""A file's rows as examples over a pool: everything that is named gets a place and a vector."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from assets.contracts.canonical import tool_text
from assets.vectors.encoders.embedder import embed_queries
from extensions.recommender.reranking.features import Question
from extensions.recommender.reranking.pool import Pool, ToolFacts
from extensions.recommender.training.examples import Example
from extensions.recommender.training.feedback_file import JudgedRow

if TYPE_CHECKING:
    from assets.vectors.encoders.embedder import Embedder


@dataclass(frozen=True)
class JudgedPool:
    """Examples in the order of the file, the tools that they name, and those of them that no file
    of tools describes: known by their name only."""

    examples: list[Example]
    pool: Pool
    unknown: list[str]


def embed_judged(
    rows: Sequence[JudgedRow], tools: Sequence[ToolFacts], embedder: "Embedder"
) -> JudgedPool:
    """Each row as an example; its place in time is its place in the file."""
    known = {tool.tool_id for tool in tools}
    named = dict.fromkeys(name for row in rows for name in (row.tool_id, *row.candidates))
    unknown = [name for name in named if name not in known]
    facts = [*tools, *map(_describe_unknown, unknown)]
    vectors = embedder.embed([tool_text(tool.contract) or "-" for tool in facts])
    pool = Pool(facts, vectors)
    asked = list(dict.fromkeys(row.query for row in rows))
    vector_of = dict(zip(asked, embed_queries(embedder, asked), strict=True))
    examples = [
        _make_example(row, float(at), vector_of[row.query], pool) for at, row in enumerate(rows)
    ]
    return JudgedPool(examples, pool, unknown)


def _make_example(row: JudgedRow, at: float, vector: np.ndarray, pool: Pool) -> Example:
    candidates = np.array([pool.places[name] for name in row.candidates], int)
    question = Question(row.query, vector, candidates, at)
    return Example(question, pool.places[row.tool_id], row.success, task=row.task)


def _describe_unknown(tool_id: str) -> ToolFacts:
    server, _, name = tool_id.partition("::")
    contract = {"name": name or tool_id, "inputSchema": {"type": "object"}}
    return ToolFacts(tool_id, server, contract)
