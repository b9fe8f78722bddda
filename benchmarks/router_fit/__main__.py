"""Fits the router's weights on many sets and prints what they are worth on sets left out.

    python -m benchmarks.router_fit [--write] [--home DIR] [--tools N] [--requests N]
        [--cases] [--test] [--judge PATH] [--retriever PATH ...]

Reads the query sets of `sets.py`, each trimmed to N tools of whole servers and N requests; fits one
linear sum over the features of `serving/ranking/signals.py` and one logistic over the evidence,
every set with the same say; prints a line for each set by weights that saw neither it nor a set of
its source. `--cases` adds languages and planted attackers, `--test` the table on the test sides,
which nothing here is chosen by, `--judge` the same tables over an adapter's vectors, by the same
weights. `--write` writes `serving/index/fusion.json`, fitted on the fit sides of all sets, and the
same weights as `fusion_trained.json`.

With `--retriever` the vectors are an adapter's; `fusion_trained.json` alone is written. The adapter
must not have learnt from the fit sides: its cosines are better there than anywhere else. So the
shipped retriever has two stand-ins, the adapters of `retriever_fit`'s folds, given in their order:
each set is read by the one that did not learn from its family.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.encoders.minilm import MiniLM
from benchmarks.retriever_fit.recipe import FOLDS
from benchmarks.router_fit import left_out
from benchmarks.router_fit.left_out import Line, compare_sets, fit_apart, fit_without
from benchmarks.router_fit.rows import FEATURES, Rows, collect_rows, open_index, read_signals
from benchmarks.router_fit.sets import (
    FIT,
    HELD,
    NAMES,
    QuerySet,
    check_sides,
    choose_fitted,
    read_set,
    trim_set,
)
from benchmarks.router_fit.weights import (
    EVIDENCE,
    Evidence,
    Suitability,
    collect_evidence,
    fit_suitability,
    measure_suitability,
)
from benchmarks.shared_data import SHARED, StoredEmbedder, require_paths
from serving.index.model import BUILT_IN, TRAINED, FusionWeights
from serving.ranking.signals import FULL

ASKED = 0.37  # of the weight of `full`: no request of a set may stand in its own index
EVIDENCE_EACH = 200  # requests of a set that the suitability is fitted on


@dataclass
class Work:
    """What was read: sets, their rows, and how to read rows of another pool."""

    home: Path
    embedders: list[StoredEmbedder]  # one, or one for each of FOLDS
    found: dict[str, QuerySet]
    rows: dict[str, Rows]

    def choose_embedder(self, name: str) -> StoredEmbedder:
        """The one that did not learn from the set; the first where none did."""
        of = name.partition("/")[0]  # a changed pool's set
        apart = (one for one, left in zip(self.embedders, FOLDS, strict=False) if of in left)
        return next(apart, self.embedders[0])

    def read(self, found: QuerySet) -> Rows:
        """Rows of the requests of the fit side, or of all where it has none."""
        embedder = self.choose_embedder(found.name)
        index = open_index(found, self.home, embedder)
        signals = read_signals(index, found.requests, embedder)
        return collect_rows(index, found.requests, signals, FEATURES)

    def read_evidence(self, name: str, weights: np.ndarray) -> Evidence:
        """The set's evidence by weights that were fitted without it."""
        found, rows = self.found[name], self.rows[name]
        requests = found.requests[:EVIDENCE_EACH]
        embedder = self.choose_embedder(name)
        index = open_index(found, self.home, embedder)
        signals = read_signals(index, requests, embedder)
        fusion = make_fusion(weights)
        x = collect_evidence(index, signals, rows.gold[:EVIDENCE_EACH], fusion)
        sides, servers = zip(*((r.side, r.server) for r in requests), strict=True)
        return Evidence(x, sides, servers)


def main() -> None:
    args = _parse()
    require_paths(SHARED / "retrieval", SHARED / "corpus", SHARED / "smithery")
    work = _read_all(args, args.retriever)
    apart = fit_apart(work.rows)
    print_sets(work.rows, apart, args.test)
    if args.judge:
        print("\n## Over the vectors of the adapter, by the same weights")
        print_sets(_read_all(args, [args.judge]).rows, apart, args.test)
    if args.cases:
        _print_cases(work, apart)
    evidence = {name: work.read_evidence(name, of) for name, of in apart.items()}
    suitability = {
        name: measure_suitability(fit_suitability(evidence, name), held.select(FIT))
        for name, held in evidence.items()
        if FIT in held.sides
    }
    print("\n" + left_out.tabulate_suitability(suitability))
    file = make_file(work, fit_without(work.rows, None), fit_suitability(evidence, None))
    print("\n" + json.dumps(file, indent=1))
    if args.write:
        write_files(file, trained=args.retriever != [None])


def print_sets(rows: dict[str, Rows], apart: dict[str, np.ndarray], test: bool) -> list[Line]:
    """The tables of each side that is asked for; the lines of the fit sides."""
    found = {side: compare_sets(rows, apart, side) for side in ((FIT, HELD) if test else (FIT,))}
    for side, lines in found.items():
        print("\n" + left_out.tabulate_sets(f"Sets left out, {side} sides", lines))
        print("\n" + left_out.tabulate_deep(lines), flush=True)
    return found[FIT]


def _print_cases(work: Work, apart: dict[str, np.ndarray]) -> None:
    fitted = {
        name: QuerySet(name, one.servers, tuple(r for r in one.requests if r.side == FIT))
        for name, one in work.found.items()
    }
    for title, lines in (
        ("By writing", left_out.compare_languages(work.rows, apart)),
        ("Attackers planted", left_out.compare_attacked(fitted, apart, work.read)),
    ):
        print("\n" + left_out.tabulate_sets(title, lines), flush=True)


def make_file(work: Work, weights: np.ndarray, suitable: Suitability) -> dict[str, Any]:
    """What `serving/index/model.py` reads, and what it was fitted on."""
    fitted = choose_fitted(work.rows, None)
    counts = {n: sum(r.side == FIT for r in work.found[n].requests) for n in fitted}
    by_name = dict(zip(FEATURES, np.round(weights, 4).tolist(), strict=True))
    return {
        "fitted_on": {
            "requests": {name: count for name, count in counts.items() if count},
            "tools": {name: work.found[name].tools for name in fitted if counts[name]},
            "sides": "fit (training servers); every set has the same say",
            "embedder": ", ".join(embedder.id for embedder in work.embedders),
            "by": "python -m benchmarks.router_fit",
        },
        "weights": by_name | {"asked": round(ASKED * by_name[FULL], 4)},
        "suitable": {
            "weights": dict(zip(EVIDENCE, np.round(suitable.weights, 4).tolist(), strict=True)),
            "bias": round(suitable.bias, 4),
            "threshold": round(suitable.threshold, 4),
        },
        "not_fitted": {"asked": f"{ASKED} of the weight of full, by hand"},
    }


def write_files(made: dict[str, Any], trained: bool) -> None:
    """The file of this encoder. Those of the base stand in for an adapter's until they are fitted:
    the same features on the same scale."""
    if not trained:
        BUILT_IN.write_text(json.dumps(made, indent=1) + "\n")
        note = {"all": "the base model's weights: no adapter's vectors were fitted over these sets"}
        made = {**made, "not_fitted": note | made["not_fitted"]}
    TRAINED.write_text(json.dumps(made, indent=1) + "\n")


def make_fusion(weights: np.ndarray) -> FusionWeights:
    """The sum alone."""
    return FusionWeights(dict(zip(FEATURES, weights.tolist(), strict=True)), {}, 0.0, 0.0)


def _read_all(args: argparse.Namespace, retrievers: Sequence[Path | None]) -> Work:
    embedders = [
        StoredEmbedder(MiniLM(retriever, threads=2), args.home) for retriever in retrievers
    ]
    work = Work(args.home, embedders, {}, {})
    for name in args.sets:
        found = read_set(name)
        check_sides(found)
        found = trim_set(found, args.tools, args.requests)
        if not args.test and name != "corpus":
            kept = tuple(request for request in found.requests if request.side == FIT)
            found = QuerySet(name, found.servers, kept)
        if found.requests:
            work.found[name] = found
            work.rows[name] = work.read(found)
    return work


def _parse() -> argparse.Namespace:
    asking = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asking.add_argument("--home", type=Path, default=Path("var/router_fit"))
    asking.add_argument("--tools", type=int, default=2_500, help="at most so many a set")
    asking.add_argument("--requests", type=int, default=400, help="at most so many a side")
    asking.add_argument("--sets", nargs="+", default=NAMES, choices=NAMES)
    asking.add_argument("--retriever", type=Path, nargs="+", default=[None], help="adapters")
    asking.add_argument("--judge", type=Path, help="an adapter's folder: judge on its vectors too")
    for name, why in (
        ("write", "write the file of the weights"), ("test", "print the test sides too"),
        ("cases", "languages and planted tools"),
    ):  # fmt: skip
        asking.add_argument(f"--{name}", action="store_true", help=why)
    args = asking.parse_args()
    if len(args.retriever) > len(FOLDS) or (args.cases and len(args.retriever) > 1):
        asking.error(f"--retriever takes one adapter, or {len(FOLDS)} of the folds without --cases")
    return args


if __name__ == "__main__":
    main()
