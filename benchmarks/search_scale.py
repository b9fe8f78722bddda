"""Candidates from LanceDB against exact search: recall, latency, memory and disk by size.

    python -m benchmarks.search_scale [--home DIR] [--sizes 12600 100000 1000000] [--router 12600]

Real tools, and beyond them copies with noise (cosine about 0.8; every seventh word another). Prints
one JSON object a size.
"""

import argparse
import json
import os
import random
import resource
import shutil
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.encoders.minilm import MiniLM
from assets.vectors.lexical import BM25, stem_words
from assets.vectors.texts import (
    FULL,
    JOINT,
    build_server_field,
    build_tool_fields,
    build_tool_views,
)
from benchmarks.router_latency import SMITHERY, PreparedEmbedder, embed_grown, grow_source, read_rss
from benchmarks.shared_data import SHARED, StoredEmbedder, read_corpus, require_paths, run_alone
from serving.adhoc import read_source
from serving.index.build import build_index
from serving.index.folder import load_index
from serving.index.model import compute_products
from serving.index.search_table import SERVERS, TOOLS, SearchTables, write_table
from serving.ranking.query import ToolQuery
from serving.ranking.signals import CANDIDATES, NEAR_TIMES
from serving.router import Router

_NOISE, _PART, _NEAR, _CHOSE = 0.038, 50_000, CANDIDATES * NEAR_TIMES, 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path("var/router_bench"))
    parser.add_argument("--sizes", type=int, nargs="*", default=[12_600, 100_000, 1_000_000])
    parser.add_argument("--router", type=int, nargs="*", default=[12_600])
    parser.add_argument("--queries", type=int, default=100)
    chosen = parser.parse_args()
    require_paths(SHARED / "corpus", SMITHERY)
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "2")
    for measure, sizes in ((measure_tables, chosen.sizes), (measure_router, chosen.router)):
        for size in sizes:
            row = run_alone(measure, chosen.home, size, chosen.queries)
            about = {"tools": size, "load": round(os.getloadavg()[0], 1)}
            print(json.dumps(about | row, indent=1))


def read_queries(count: int) -> list[str]:
    texts = [row["instruction"] for row in read_corpus()]
    drawn = np.random.default_rng(1).permutation(len(texts))
    # The first hundred chose the settings.
    return [texts[at] for at in drawn[_CHOSE : _CHOSE + count]]


def measure_tables(home: Path, size: int, count: int) -> dict[str, Any]:
    """{vectors, words: {recall@10, lance_ms, exact_ms}, seconds of building, MB}."""
    model, queries = MiniLM(threads=2), read_queries(count)
    asked = model.embed(queries)
    vectors, texts = make_tools(StoredEmbedder(model, home), size)
    del model
    folder = home / "tables" / str(size)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began, busy = time.perf_counter(), time.process_time()
    keys = [f"tool-{at}" for at in range(size)]
    write_table(folder, TOOLS, keys, vectors, {JOINT: texts})
    write_table(folder, SERVERS, keys[:1_000], vectors[:1_000], {})
    built = {"wall_s": time.perf_counter() - began, "cpu_s": time.process_time() - busy}
    place = {key: at for at, key in enumerate(keys)}
    tables, terms = SearchTables(folder), [sorted(set(stem_words(text))) for text in queries]
    scores = build_postings(texts, {term for row in terms for term in row})
    exact = {
        "vectors": lambda at: compute_products(vectors, asked[at]),
        "words": lambda at: scores.sum_scores(terms[at]),
    }
    lance = {
        "vectors": lambda at: tables.find_near_tools(asked[at], _NEAR),
        "words": lambda at: tables.match_words(JOINT, terms[at], CANDIDATES),
    }
    compared = {name: compare(exact[name], lance[name], place, count) for name in exact}
    disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    memory = run_alone(measure_memory, folder, asked, terms)
    mb = {"disk": disk >> 20, "vectors": vectors.nbytes >> 20, "peak": peak >> 10, **memory}
    return {**compared, "build": built, "mb": mb}


def make_tools(encoder: StoredEmbedder, size: int) -> tuple[np.ndarray, list[str]]:
    """Unit vectors [size, dim] and joint texts as terms."""
    source, _ = read_source(SMITHERY)
    contracts = [json.loads(row["contract"]) for row in source.rows]
    servers = [source.servers[row["server_id"]] for row in source.rows]
    base = encoder.embed([build_tool_views(contract)[FULL] for contract in contracts])
    words = [
        stem_words(build_tool_fields(contract, build_server_field(
            of["name"], of["description"], of["summary"], row["server_id"]))[JOINT])
        for row, contract, of in zip(source.rows, contracts, servers, strict=True)
    ]  # fmt: skip
    vocabulary = sorted({word for row in words for word in row})
    chance, rng = random.Random(6), np.random.default_rng(6)
    vectors, texts = np.empty((size, base.shape[1]), np.float32), list[str]()
    for start in range(0, size, _PART):
        at = np.arange(start, min(start + _PART, size))
        rows, copied = base[at % len(base)], at >= len(base)
        noise = rng.standard_normal((int(copied.sum()), base.shape[1])).astype(np.float32)
        rows[copied] += np.float32(_NOISE) * noise
        vectors[at] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        for place in at.tolist():
            row = words[place % len(words)]
            if place >= len(words):
                row = [chance.choice(vocabulary) if n % 7 == 6 else w for n, w in enumerate(row)]
            texts.append(" ".join(row))
    return vectors, texts


def build_postings(texts: list[str], terms: set[str]) -> BM25:
    """An exact index of these terms: other words only count for the lengths."""
    lengths = np.empty(len(texts), np.float32)
    postings = defaultdict[str, list[tuple[int, int]]](list)
    for at, text in enumerate(texts):
        words = text.split()
        lengths[at] = len(words)
        for term in terms.intersection(words):
            postings[term].append((at, words.count(term)))
    kept = sorted(postings)
    sizes = [len(postings[term]) for term in kept]
    flat = np.concatenate([np.array(postings[term]) for term in kept])
    df = np.repeat(np.array(sizes, np.float32), sizes)
    idf, times = np.log1p((len(texts) - df + 0.5) / (df + 0.5)), flat[:, 1]
    norm = times + 1.2 * (0.25 + 0.75 * lengths[flat[:, 0]] / lengths.mean())
    weights = (idf * times * 2.2 / norm).astype(np.float32)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    places = {term: at for at, term in enumerate(kept)}
    return BM25(places, starts, flat[:, 0].astype(np.int32), weights, len(texts), stemmed=True)


def compare(exact: Any, lance: Any, place: dict[str, int], count: int) -> dict[str, Any]:
    """Recall@10 of the candidates (ties with the tenth count), and milliseconds of both."""
    recall, took = [], {"lance": [], "exact": []}
    for at in range(count):
        began, busy = time.perf_counter(), time.process_time()
        scores = exact(at)
        best = np.argpartition(-scores, 9)[:10]
        took["exact"].append((time.perf_counter() - began, time.process_time() - busy))
        began, busy = time.perf_counter(), time.process_time()
        hits = lance(at)
        took["lance"].append((time.perf_counter() - began, time.process_time() - busy))
        tenth = scores[best].min()
        good = sum(scores[place[key]] >= tenth - 1e-4 for key in hits)
        recall.append(min(good, 10) / 10)
    ms = {
        f"{name} {kind} p{share}": round(
            float(np.percentile([pair[at] for pair in pairs], share)) * 1000, 2
        )
        for name, pairs in took.items()
        for at, kind in enumerate(("wall", "cpu"))
        for share in (50, 95)
    }
    return {"recall@10": round(float(np.mean(recall)), 4), "n": count, "ms": ms}


def measure_memory(folder: Path, asked: np.ndarray, terms: list[list[str]]) -> dict[str, int]:
    """MB that a process gains by opening the tables and asking every question."""
    import lancedb  # its own memory is none of the tables'

    before, tables = int(read_rss()), SearchTables(folder)
    for vector, words in zip(asked, terms, strict=True):
        tables.find_near_tools(vector, _NEAR)
        tables.match_words(JOINT, words, CANDIDATES)
    return {"searching": int(read_rss()) - before} if lancedb else {}


def measure_router(home: Path, size: int, count: int) -> dict[str, Any]:
    """The whole router on both ways: share of the ten hits of memory that LanceDB's answer has."""
    model, queries = MiniLM(threads=2), read_queries(count)
    base, _ = read_source(SMITHERY)
    known = {
        text for row in base.rows for text in build_tool_views(json.loads(row["contract"])).values()
    }
    embed, source = embed_grown(known, StoredEmbedder(model, home).embed), grow_source(base, size)
    encoder, place, row = PreparedEmbedder(model, queries), home / "index", dict[str, Any]()
    versions = {
        name: build_index(place, source, embed, embedder=model.id, search_from=search_from)
        for name, search_from in (("memory", size * 2), ("lance", 1))
    }
    answers = {}
    for name, version in versions.items():
        answers[name], row[name] = run_alone(ask_router, place, version, encoder, queries)
    pairs = list(zip(answers["memory"], answers["lance"], strict=True))
    row["recall@10"] = round(float(np.mean([len({*a} & {*b}) / len(a) for a, b in pairs])), 4)
    row["same first"] = round(float(np.mean([a[0] == b[0] for a, b in pairs])), 4)
    return row


def ask_router(
    place: Path, version: str, encoder: PreparedEmbedder, queries: list[str]
) -> tuple[list[list[str]], dict[str, float]]:
    import lancedb

    before, hits, took = int(read_rss()), [], []
    router = Router(load_index(place, version), encoder)
    router.find(ToolQuery(queries[0]))
    for query in queries:
        began, busy = time.perf_counter(), time.process_time()
        answer = router.find(ToolQuery(query, k=10))
        took.append((time.perf_counter() - began, time.process_time() - busy))
        hits.append([hit.tool_id for hit in answer.hits])
    wall, cpu = np.median(took, axis=0) * 1000
    figures = {"wall p50 ms": round(float(wall), 2), "cpu p50 ms": round(float(cpu), 2)}
    return hits, {**figures, "mb": int(read_rss()) - before} if lancedb else {}


if __name__ == "__main__":
    main()
