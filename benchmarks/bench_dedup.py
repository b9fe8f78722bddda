"""Deduplicating 68,733 requests: SemHash over usearch against FAISS flat with k = 100.

    python -m benchmarks.bench_dedup [--texts FILE.jsonl ...] [--n 68733] [--faiss-python PATH]

Vectors: MiniLM of the `instruction`s of the files (as many as they have, at most 4,000). Each base
vector gets random company so that n vectors come to be, all of unit norm:
- strangers: the mean of a base vector with another one plus Gaussian noise, rejected where its
  cosine with its own base is above 0.90;
- planted copies (10% of n): an earlier vector plus noise of a size that makes the cosine 0.965 to
  0.995. They are the truth: a copy found is one that is marked, whatever it points at.
Marks on vectors that were not planted count against precision; some of those are real neighbours
by chance, so precision is a lower bound. Exact search by NumPy on a sample says how many.

FAISS's method is Toucan's as published: IndexFlatIP, search k = 100, in order of rows, a row with
an earlier kept neighbour above the threshold goes. Each method runs in a process of its own; peak
memory is that process's maximum resident set, the vectors (106 MB) included.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.shared_data import SHARED, require
from warehouse.statistics import wilson

ABOVE = 0.95
_OURS = """
import json, resource, sys, time
import numpy as np
from assets.synthesis.verify.checks.near_duplicates import twins
vectors = np.load(sys.argv[1])
began = time.perf_counter()
found = twins([""] * len(vectors), vectors, float(sys.argv[2]))
seconds = time.perf_counter() - began
marked = [place for place, first in enumerate(found) if first is not None]
"""
_FAISS = """
import json, resource, sys, time
import faiss
import numpy as np
faiss.omp_set_num_threads(int(sys.argv[3]))
vectors, above = np.load(sys.argv[1]), float(sys.argv[2])
began = time.perf_counter()
index = faiss.IndexFlatIP(vectors.shape[1])
index.add(vectors)
gone = np.zeros(len(vectors), dtype=bool)
for start in range(0, len(vectors), 1024):
    near, who = index.search(vectors[start : start + 1024], 100)
    for row in range(len(near)):
        place = start + row
        earlier = who[row][(near[row] >= above) & (who[row] < place) & (who[row] >= 0)]
        gone[place] = bool((~gone[earlier]).any())
seconds = time.perf_counter() - began
marked = [int(place) for place in np.flatnonzero(gone)]
"""
_TELL = """
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "peak_mib": peak, "marked": marked}))
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=Path, nargs="+", help="JSON Lines with `instruction`")
    parser.add_argument("--n", type=int, default=68_733)
    parser.add_argument("--faiss-python", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    texts = given.texts or sorted((SHARED / "corpus").glob("pairs_*.jsonl"))
    require(*(texts or [SHARED / "corpus"]))
    vectors, planted = made(texts, given.n)
    truth = set(planted)
    print(f"{len(vectors):,} vectors, {len(truth):,} planted copies, threshold {ABOVE}")
    print("| method | seconds | peak MiB | recall | 95% | precision | 95% |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.npy"
        np.save(path, vectors)
        tell("SemHash, usearch", run(sys.executable, _OURS, path, given.threads), truth)
        if given.faiss_python is None:
            print("| FAISS flat, k = 100 | skipped: no --faiss-python | | | | | |")
        else:
            faiss = run(str(given.faiss_python), _FAISS, path, given.threads)
            tell("FAISS flat, k = 100", faiss, truth)
    by_chance(vectors, truth)


def made(texts: Sequence[Path], n: int) -> tuple[np.ndarray, list[int]]:
    """n unit vectors and the places of those that were planted as copies of earlier ones."""
    from assets.vectors.embed import MiniLM

    lines = [line for path in texts for line in path.read_text(encoding="utf-8").splitlines()]
    said = sorted({json.loads(line)["instruction"] for line in lines if line.strip()})[:4000]
    base = MiniLM().embed(said).astype(np.float32)
    print(f"base: {len(base):,} MiniLM vectors of {len(texts)} files")
    rng = np.random.default_rng(0)
    planted = sorted(rng.choice(np.arange(len(base), n), n // 10, replace=False).tolist())
    is_copy = np.zeros(n, dtype=bool)
    is_copy[planted] = True
    vectors = np.empty((n, base.shape[1]), dtype=np.float32)
    vectors[: len(base)] = base
    originals = list(range(len(base)))
    for place in range(len(base), n):
        if is_copy[place]:
            of = vectors[originals[rng.integers(len(originals))]]
            vectors[place] = apart(of, float(rng.uniform(0.965, 0.995)), rng)
            continue
        own, other = base[rng.integers(len(base))], base[rng.integers(len(base))]
        mixed = unit(own + other * float(rng.uniform(0.5, 1.0)))
        vectors[place] = apart(mixed, float(rng.uniform(0.75, 0.90)), rng)
        originals.append(place)
    return vectors, planted


def apart(vector: np.ndarray, cosine: float, rng: np.random.Generator) -> np.ndarray:
    """A unit vector at exactly this cosine, in a random direction."""
    noise = rng.normal(size=vector.shape).astype(np.float32)
    across = unit(noise - vector * float(noise @ vector))
    return unit(vector * cosine + across * float(np.sqrt(1 - cosine**2)))


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def run(python: str, code: str, path: Path, threads: int) -> dict:
    command = [python, "-c", code + _TELL, str(path), str(ABOVE), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{python}: {done.stderr[-800:]}")
    return json.loads(done.stdout.splitlines()[-1])


def tell(name: str, found: dict, truth: set[int]) -> None:
    marked = set(found["marked"])
    hits = len(marked & truth)
    cells = [f"{found['seconds']:.1f}", f"{found['peak_mib']:.0f}"]
    for n in (len(truth), len(marked)):
        low, high = wilson(hits, n)
        cells += [f"{hits / max(1, n):.4f}", f"{low:.4f}-{high:.4f}"]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def by_chance(vectors: np.ndarray, truth: set[int]) -> None:
    """Of a sample that was not planted, how many have an earlier neighbour all the same."""
    rng = np.random.default_rng(1)
    places = [p for p in rng.choice(len(vectors), 2000, replace=False).tolist() if p not in truth]
    alike = sum(bool((vectors[:p] @ vectors[p] >= ABOVE).any()) for p in places)
    low, high = wilson(alike, len(places))
    print(f"by chance: {alike} of {len(places)} that were not planted ({low:.4f}-{high:.4f})")


if __name__ == "__main__":
    main()
