"""The reranker as the router loads it (entry point `toolmill.rerankers`)."""

import logging

from assets.vectors.texts import FULL
from extensions.recommender.reranking.file import BadReranker, OldReranker, open_reranker
from extensions.recommender.reranking.model import Reranker
from extensions.recommender.reranking.pool import Pool, ToolFacts
from serving.index.model import RERANKER_FILE, Index, IndexBroken


def open_ranker(index: Index) -> Reranker | None:
    """The reranker in an index's folder over its tools; None if it was deleted or an earlier
    version of this program wrote it. Raises IndexBroken."""
    assert index.folder is not None
    try:
        return open_reranker(index.folder / RERANKER_FILE, open_pool(index), index.embedder)
    except (OldReranker, FileNotFoundError) as error:
        logging.getLogger(__name__).warning("%s; searches keep the router's order", error)
        return None
    except BadReranker as error:
        raise IndexBroken(f"router index {index.version[:12]}: {error}") from error


def open_pool(index: Index) -> Pool:
    """The index's tools as a reranker reads them. Raises IndexBroken."""
    facts = [
        ToolFacts(tool.tool_id, tool.server_id, index.contract(place), tool.contract_digest)
        for place, tool in enumerate(index.tools)
    ]
    pool = Pool(facts, index.views[FULL].vectors)
    _ = pool.features, pool.words  # computed now, so that the first question need not wait
    return pool
