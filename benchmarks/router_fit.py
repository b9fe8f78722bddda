"""Fits the weights of `serving/index/fusion.json` and says what they are worth where not fitted.

    python -m benchmarks.router_fit --index DIR [--write] [--retriever PATH]

DIR is what `toolmill index ../shared/data/smithery/servers.jsonl --out DIR` makes. Queries: the
good rows of the corpus, written by a language model, three a server. The weights are fitted on the
rows of training servers (`training/sets/split.py`) and reported on those of test servers, and once
more cross-validated over five parts of all servers, so that no row is reported on by weights
that saw its server.

With `--retriever` the weights of a trained encoder are fitted (`fusion_trained.json`): its vectors
deserve more trust than the base's. PATH learnt from training servers, so these weights are fitted
on test servers and reported cross-validated over those.
"""

import argparse
import hashlib
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.embed import MiniLM
from benchmarks.router_data import Query, read_queries, read_smithery
from serving.adhoc import open_routed
from serving.index.fusion import BUILT_IN, TRAINED
from serving.ranking.features import FOREIGN, choose_candidates, weigh_evidence
from serving.ranking.query import Ask
from serving.ranking.query_scores import Signals
from serving.ranking.strategies import BY_NAME
from serving.router import Router

PARTS = 5
_FEW = {f"{FOREIGN}full", f"{FOREIGN}joint words"}
L2 = 1e-3
PEERS = ("dense", "bm25", "rrf", "mcp-zero")
MEASURED = (1, 5, 10)
KEEP = 0.95  # share of answerable questions that the default threshold must not refuse
Array = np.ndarray


class Rows:
    """Features of every candidate of every query, in one block: x [queries, most, features]."""

    def __init__(self, router: Router, asked: list[Query], twins: dict[str, str]) -> None:
        index = router.index
        keys = defaultdict(list)
        for place, tool in enumerate(index.tools):
            keys[twins[tool.tool_id]].append(place)
        self.gold = [np.array(keys[twins[query.tool_id]]) for query in asked]
        vectors = router.encoder.embed([query.text for query in asked])
        self.signals = [
            Signals(index, Ask(query.text), vector, vector)
            for query, vector in zip(asked, vectors, strict=True)
        ]
        found = [choose_candidates(signals, None) for signals in self.signals]
        self.names = sorted({name for one in found for name in one.features})
        most = max(len(one.places) for one in found)
        self.x = np.zeros((len(asked), most, len(self.names)), np.float32)
        self.held = np.zeros((len(asked), most), bool)
        self.right = np.zeros((len(asked), most), bool)
        for row, one in enumerate(found):
            size = len(one.places)
            self.held[row, :size] = True
            self.right[row, :size] = np.isin(one.places, self.gold[row])
            none = np.zeros(size, np.float32)
            self.x[row, :size] = np.stack([one.features.get(n, none) for n in self.names], -1)
        self.index = index

    def drop_features(self, names: set[str]) -> None:
        """Leaves features out."""
        kept = [at for at, name in enumerate(self.names) if name not in names]
        self.names, self.x = [self.names[at] for at in kept], self.x[..., kept]

    def rank_right_tool(self, weights: Array) -> Array:
        """Place of the right tool by these weights; 999 where it is no candidate."""
        scores = np.where(self.held, self.x @ weights.astype(np.float32), -np.inf)
        best = np.where(self.right, scores, -np.inf).max(1)
        return np.where(self.right.any(1), (scores > best[:, None]).sum(1), 999)

    def rank_by_peer(self, name: str) -> Array:
        """The same by another strategy."""
        out = []
        for signals, gold in zip(self.signals, self.gold, strict=True):
            places = BY_NAME[name](signals, None, 60).places
            at = np.flatnonzero(np.isin(places, gold))
            out.append(int(at[0]) if len(at) else 999)
        return np.array(out)


def fit(x: Array, held: Array, right: Array) -> Array:
    """Weights of the softmax over candidates that gives the right ones most: Newton's method with
    halved steps, L2 of 1e-3."""
    use = right.any(1)
    x, held, right = x[use], held[use], right[use]
    count, _, size = x.shape
    flat, weights = x.reshape(-1, size), np.zeros(size)
    loss, share, target = _listwise_loss(x, held, right, weights)
    for _ in range(30):
        slope = (share - target).reshape(-1) @ flat / count + L2 * weights
        mean = np.einsum("ij,ijk->ik", share, x)
        bend = (flat * share.reshape(-1, 1)).T @ flat / count - mean.T @ mean / count
        step, size_of = np.linalg.solve(bend + (L2 + 1e-6) * np.eye(size), slope), 1.0
        while size_of > 1e-3:
            new = _listwise_loss(x, held, right, weights - size_of * step)
            if new[0] <= loss:
                break
            size_of /= 2
        else:
            return weights
        gained, weights = loss - new[0], weights - size_of * step
        loss, share, target = new
        if gained < 1e-6:
            break
    return weights


def _listwise_loss(
    x: Array, held: Array, right: Array, weights: Array
) -> tuple[float, Array, Array]:
    scores = np.where(held, x @ weights.astype(np.float32), -1e9).astype(np.float64)
    scores -= scores.max(1, keepdims=True)
    share = np.exp(scores)
    total = share.sum(1, keepdims=True)
    of_right = np.where(right, share, 0) + np.where(right, 1e-30, 0)
    loss = float((np.log(total[:, 0]) - np.log(of_right.sum(1))).mean())
    penalty = 0.5 * L2 * float(weights @ weights)
    target = of_right / of_right.sum(1, keepdims=True)
    return loss + penalty, (share / total).astype(np.float32), target.astype(np.float32)


def fit_logistic(x: Array, y: Array) -> tuple[Array, float]:
    """Weights and bias of a logistic regression, L2 of 1e-2 on standardised columns."""
    mean, spread = x.mean(0), x.std(0) + 1e-6
    z = np.concatenate([(x - mean) / spread, np.ones((len(x), 1))], 1)
    weights, ridge = np.zeros(z.shape[1]), np.r_[np.full(x.shape[1], 1e-2), 0]
    for _ in range(30):
        p = 1 / (1 + np.exp(-z @ weights))
        slope = z.T @ (p - y) / len(y) + ridge * weights
        bend = (z * (p * (1 - p))[:, None]).T @ z / len(y) + np.diag(ridge + 1e-9)
        weights = weights - np.linalg.solve(bend, slope)
    return weights[:-1] / spread, float(weights[-1] - (weights[:-1] * mean / spread).sum())


def evidence_rows(rows: Rows, asked: list[Query], weights: Array) -> tuple[Array, list[str]]:
    """Evidence with the query's server in the pool, then with it out: [2, queries, names]. A twin
    of the right tool elsewhere still answers, so its queries keep their label."""
    index, out, names = rows.index, [], []
    by_name = dict(zip(rows.names, weights, strict=True))
    servers = np.array([tool.server_id for tool in index.tools])
    for query, signals in zip(asked, rows.signals, strict=True):
        pair = []
        for mask in (None, servers != query.server):
            found = choose_candidates(signals, mask)
            held = [name for name in rows.names if name in found.features]
            scores = sum(by_name[name] * found.features[name] for name in held)
            told = weigh_evidence(found, np.asarray(scores))
            names = sorted(told)
            pair.append([told[name] for name in names])
        out.append(pair)
    return np.array(out).transpose(1, 0, 2), names


def interval(values: Array) -> str:
    """Mean and a 95% interval by 2,000 resamples of rows."""
    rng, size = np.random.default_rng(0), len(values)
    drawn = [values[rng.integers(0, size, size)].mean() for _ in range(2_000)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return f"{values.mean():.3f} [{low:.3f}, {high:.3f}]"


def auroc(score: Array, y: Array) -> float:
    """How often a positive scores above a negative."""
    order = np.argsort(np.argsort(score)) + 1
    high = y.sum()
    return float((order[y > 0].sum() - high * (high + 1) / 2) / (high * (len(y) - high)))


def calibration(p: Array, y: Array, bins: int = 10) -> float:
    """Expected calibration error over bins of equal size."""
    parts = np.array_split(np.argsort(p), bins)
    return float(sum(len(at) / len(p) * abs(p[at].mean() - y[at].mean()) for at in parts))


def part_of(server: str) -> int:
    return hashlib.sha256(f"router-fit|{server}".encode()).digest()[0] % PARTS


def cross_validate(rows: Rows, parts: Array) -> Array:
    """Ranks of every row by weights that were fitted on the other parts."""
    out = np.zeros(len(parts), int)
    for part in range(PARTS):
        away = parts != part
        weights = fit(rows.x[away], rows.held[away], rows.right[away])
        out[~away] = rows.rank_right_tool(weights)[~away]
    return out


def tabulate_recall(asked: list[Query], ranks: dict[str, Array]) -> dict[str, Any]:
    """Recall at 1, 5 and 10 of each strategy, by part."""
    slices = {
        "all": np.ones(len(asked), bool),
        "test servers": np.array([query.tested for query in asked]),
        **{k: np.array([q.kind == k for q in asked]) for k in ("direct", "detailed", "implicit")},
        "non-English": np.array([query.non_english for query in asked]),
    }
    return {
        f"{part} (n={use.sum()})": {
            name: {f"R@{k}": interval(found[use] < k) for k in MEASURED}
            for name, found in ranks.items()
        }
        for part, use in slices.items()
    }


def measure_suitability(told: Array, labels: Array, groups: Array, p_of: Any) -> dict[str, Any]:
    """The logistic's worth by weights that saw none of a row's server."""
    p = p_of(told, labels, groups)
    flat_p, flat_y = p.reshape(-1), labels.reshape(-1)
    cut = float(np.quantile(p[0][labels[0] > 0], 1 - KEEP))
    lost, caught = p[0][labels[0] > 0] < cut, p[1][labels[1] == 0] < cut
    return {
        "n": f"{int(flat_y.sum())} with a suitable tool, {int((1 - flat_y).sum())} without",
        "auroc": round(auroc(flat_p, flat_y), 3),
        "calibration_error": round(calibration(flat_p, flat_y), 3),
        "threshold": round(cut, 4),
        "answerable_refused": f"{interval(lost)} of {len(lost)}",
        "unanswerable_refused": f"{interval(caught)} of {len(caught)}",
    }


def predict_held_out(told: Array, labels: Array, parts: Array) -> Array:
    """Probabilities [2, queries] by logistic weights fitted on the other parts."""
    out = np.zeros(labels.shape)
    for part in range(PARTS):
        away = parts != part
        x = told[:, away].reshape(-1, told.shape[-1])
        weights, bias = fit_logistic(x, labels[:, away].reshape(-1))
        out[:, ~away] = 1 / (1 + np.exp(-(told[:, ~away] @ weights + bias)))
    return out


def labels_of(rows: Rows, asked: list[Query]) -> Array:
    """[2, queries]: 1 where the pool holds the right tool or a twin of it."""
    servers = np.array([tool.server_id for tool in rows.index.tools])
    elsewhere = [
        bool((servers[gold] != query.server).any())
        for gold, query in zip(rows.gold, asked, strict=True)
    ]
    return np.array([np.ones(len(asked)), elsewhere], float)


def main() -> None:
    asking = argparse.ArgumentParser()
    asking.add_argument("--index", type=Path, required=True)
    asking.add_argument("--write", action="store_true", help="write the file of the weights")
    asking.add_argument("--retriever", type=Path, help="an adapter that knows no test server")
    said = asking.parse_args()
    trained = said.retriever is not None
    router, pool = (
        open_routed(said.index, MiniLM(said.retriever) if trained else None),
        read_smithery(),
    )
    asked = [query for query in read_queries(pool) if query.tested or not trained]
    rows = Rows(router, asked, pool.twins)
    if trained:  # 30 rows in other languages are too few for a weight a signal
        rows.drop_features({n for n in rows.names if n.startswith(FOREIGN)} - _FEW)
    learnt = np.array([trained or not query.tested for query in asked])
    parts = np.array([part_of(query.server) for query in asked])
    weights = fit(rows.x[learnt], rows.held[learnt], rows.right[learnt])
    ranks = {name: rows.rank_by_peer(name) for name in PEERS}
    ranks["ours, cross-validated"] = cross_validate(rows, parts)
    if trained:
        base = json.loads(BUILT_IN.read_bytes())["weights"]
        known = np.array([base.get(name, 0.0) for name in rows.names])
        ranks["ours, the base's weights"] = rows.rank_right_tool(known)
    else:
        ranks["ours, fitted on training servers"] = rows.rank_right_tool(weights)
    without = [at for at, name in enumerate(rows.names) if name != "crowd"]
    whole, rows.x = rows.x, rows.x[..., without]
    ranks["ours without crowd, cross-validated"] = cross_validate(rows, parts)
    rows.x = whole
    report: dict[str, Any] = tabulate_recall(asked, ranks)
    told, names = evidence_rows(rows, asked, weights)
    labels = labels_of(rows, asked)
    report["suitable, cross-validated"] = measure_suitability(told, labels, parts, predict_held_out)
    x = told[:, learnt].reshape(-1, told.shape[-1])
    slopes, bias = fit_logistic(x, labels[:, learnt].reshape(-1))
    chances = 1 / (1 + np.exp(-(told[0, learnt] @ slopes + bias)))
    made = {
        "fitted_on": {
            "rows": f"{int(learnt.sum())} good rows of the corpus (model-written), of the"
            f" {len({q.server for q in asked if trained or not q.tested})} servers that"
            f" training/sets/split.py calls {'test' if trained else 'training'} servers",
            "pool": f"{len(router.index.tools)} tools of data/smithery",
            "embedder": router.index.embedder,
            "by": "benchmarks/router_fit.py",
        },
        "weights": _round_weights(rows.names, weights) | {"asked": 0.3},
        "suitable": {
            "weights": _round_weights(names, slopes),
            "bias": round(bias, 4),
            "threshold": round(float(np.quantile(chances, 1 - KEEP)), 4),
        },
        "not_fitted": {"asked": "no request of the corpus may stand in its own index: set by hand"},
    }
    print(json.dumps(report, indent=1))
    print(json.dumps(made, indent=1))
    if said.write:
        (TRAINED if trained else BUILT_IN).write_text(json.dumps(made, indent=1) + "\n")


def _round_weights(names: list[str], values: Array) -> dict[str, float]:
    return {name: round(float(value), 4) for name, value in zip(names, values, strict=True)}


if __name__ == "__main__":
    main()
