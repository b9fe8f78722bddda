"""`toolmill search`: one query against the served index, as plain data for the command line.

What belongs here: the command's answer. What does not: printing it (`orchestration/cli.py`).
"""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from serving.router import open_router


def search_command(home: Path, query: str, k: int = 5) -> dict[str, Any]:
    """{query, index, release, tools, ms, hits[{tool_id, score, description, why}]}.

    `ms` is the search with the query's embedding, without loading the index.
    Raises IndexMissing, IndexBroken or BadQuery, each one clear line.
    """
    router = open_router(home)
    began = time.perf_counter()
    hits = router.search(query, k)
    took = (time.perf_counter() - began) * 1000
    return {
        "query": query,
        "index": router.index.version,
        "release": router.index.release,
        "tools": len(router.index.entries),
        "ms": round(took, 1),
        "hits": [asdict(hit) for hit in hits],
    }
