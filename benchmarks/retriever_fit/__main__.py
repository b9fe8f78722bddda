"""Trains the shipped tool retriever and prints what it is worth on sets it never saw.

    python -m benchmarks.retriever_fit [--data DIR] [--home DIR] [--write] [--test]
        [--tools N] [--requests N] [--threads N]

Two adapters learn from half of the set families each (`recipe.FOLDS`), and every set is measured by
the one that did not see its family: cosine alone, and the router with the weights that ship. Then
one learns from all; `--write` puts it into the package with its recipe and card, and names the
command that fits the router's weights for it. `--test` prints that one on the test sides, which
nothing here is chosen by. DIR holds `retrieval/`, `corpus/` and
`smithery/`. A run that was stopped goes on from its last checkpoint.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.encoders.minilm import GENERAL_FOLDER, MiniLM
from assets.vectors.encoders.weights import BASE
from benchmarks.retriever_fit.card import write_shipped
from benchmarks.retriever_fit.recipe import FOLDS, Recipe
from benchmarks.retriever_fit.rows import Row, make_listed_rows, make_rows
from benchmarks.router_fit.rows import (
    FEATURES,
    MEASURES,
    Rows,
    collect_rows,
    open_index,
    read_signals,
)
from benchmarks.router_fit.sets import FIT, HELD, NAMES, QuerySet, check_sides, read_set, trim_set
from benchmarks.shared_data import SHARED, StoredEmbedder
from serving.index.model import load_built_in
from training.evaluation.metrics import MetricFigure, bootstrap_difference, bootstrap_mean
from training.retriever.train import train_retriever
from training.runtime.model_store import TrainingJob, get_model_folder, make_model_name
from warehouse.storage.digest import sha256

ROLE = "retriever"


def collect_data(
    recipe: Recipe, data: Path, left_out: Sequence[str] = ()
) -> tuple[list[Row], dict[str, Row]]:
    """(rows, pool) of every set of the recipe but those left out, and of its lists."""
    rows: list[Row] = []
    pool: dict[str, Row] = {}
    for name in recipe.sets:
        if name not in left_out:
            found = read_set(name, data)
            check_sides(found)
            own, near = make_rows(found, recipe)
            rows += own
            pool |= near
    for name in recipe.listed:
        own, near = make_listed_rows(name, data, recipe)
        rows += own
        pool |= near
    return rows, pool


def digest_data(rows: Sequence[Row], pool: dict[str, Row]) -> str:
    """SHA-256 of everything that is learnt from."""
    body = json.dumps([rows, pool], sort_keys=True, ensure_ascii=False)
    return sha256(body.encode("utf-8", "surrogatepass"))


def train_recipe(
    recipe: Recipe, data: Path, home: Path, threads: int | None, left_out: Sequence[str] = ()
) -> tuple[Path, dict[str, Any]]:
    """(folder of the adapter, its card); a training that was stopped goes on."""
    rows, pool = collect_data(recipe, data, left_out)
    learnt = digest_data(rows, pool)
    settings = asdict(replace(recipe.settings, threads=threads))
    name = make_model_name(ROLE, BASE, learnt, settings)
    job = TrainingJob(ROLE, name, home, learnt, BASE, settings, rows, pool)
    card = train_retriever(job, _report)
    return get_model_folder(home, name), card


def _report(figures: dict[str, Any]) -> None:
    if figures["step"] % 10 == 0 or figures["step"] == figures["steps"]:
        line = f"  step {figures['step']} of {figures['steps']}: loss {figures['loss']}\n"
        sys.stderr.write(line)
        sys.stderr.flush()


COSINE, FUSED = "cosine", "router"


@dataclass(frozen=True)
class Gain:
    """One set: what each encoder finds by cosine and by the router, and the paired differences."""

    name: str
    servers: int
    before: dict[str, list[MetricFigure]]  # way -> a figure each of MEASURES
    after: dict[str, list[MetricFigure]]
    gain: dict[str, list[MetricFigure]]  # paired, servers drawn whole


def measure_set(found: QuerySet, home: Path, encoder: MiniLM) -> dict[str, np.ndarray]:
    """Way -> measures [requests, 4] of the set's requests by one encoder."""
    kept = StoredEmbedder(encoder, home)
    index = open_index(found, home / "index" / kept.id.replace("/", "-"), kept)
    signals = read_signals(index, found.requests, kept)
    rows: Rows = collect_rows(index, found.requests, signals, FEATURES)
    weights = load_built_in(trained=True).weights
    ours = rows.measure(np.array([weights.get(name, 0.0) for name in FEATURES]))
    return {COSINE: rows.peers["dense"], FUSED: ours}


def compare_encoders(
    found: QuerySet, before: dict[str, np.ndarray], after: dict[str, np.ndarray]
) -> Gain:
    """The figures of both with 95% intervals over servers."""
    groups = [request.server for request in found.requests]

    def tell(of: dict[str, np.ndarray], way: str) -> list[MetricFigure]:
        return [bootstrap_mean(column.tolist(), groups) for column in of[way].T]

    gain = {
        way: [
            bootstrap_difference(new.tolist(), old.tolist(), groups)
            for new, old in zip(after[way].T, before[way].T, strict=True)
        ]
        for way in (COSINE, FUSED)
    }
    old, new = ({way: tell(of, way) for way in gain} for of in (before, after))
    return Gain(found.name, len(set(groups)), old, new, gain)


def tabulate_gains(title: str, way: str, gains: Sequence[Gain]) -> str:
    """A Markdown table: a set a line with recall before and after, and paired differences."""
    head = ["set", "n", "servers", "R@1 before", "after", "difference", "R@5 before", "after"]
    head += ["difference", "R@10 before", "after"]
    lines = [f"### {title}", "", _join(head), _join(["---"] * len(head))]
    for item in gains:
        old, new, gain = item.before[way], item.after[way], item.gain[way]
        cells = [item.name, str(gain[0].n), str(item.servers)]
        cells += [f"{old[0].value:.3f}", f"{new[0]}", f"{gain[0]:+}"]
        cells += [f"{old[1].value:.3f}", f"{new[1].value:.3f}", f"{gain[1]:+}"]
        lines.append(_join([*cells, f"{old[2].value:.3f}", f"{new[2].value:.3f}"]))
    means = [
        f"{name} {_average(gains, 'before', way, at):.3f} to"
        f" {_average(gains, 'after', way, at):.3f}"
        for at, name in enumerate(MEASURES)
    ]
    return "\n".join([*lines, "", f"Mean over {len(gains)} sets: {', '.join(means)}."])


def _average(gains: Sequence[Gain], side: str, way: str, at: int) -> float:
    return float(np.mean([getattr(gain, side)[way][at].value for gain in gains]))


def summarise_gains(gains: Sequence[Gain]) -> dict[str, Any]:
    """What a recipe file keeps: by set and way the number of requests, Recall@1 before and after
    and the paired difference with its interval."""
    return {
        gain.name: {
            "n": gain.gain[COSINE][0].n,
            "servers": gain.servers,
            **{
                way: {
                    "before": round(gain.before[way][0].value, 4),
                    "after": round(gain.after[way][0].value, 4),
                    "low": round(gain.gain[way][0].low, 4),
                    "high": round(gain.gain[way][0].high, 4),
                }
                for way in (COSINE, FUSED)
            },
        }
        for gain in gains
    }


def _join(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    args = _parse()
    lacking = [n for n in ("retrieval", "corpus", "smithery") if not (args.data / n).is_dir()]
    if lacking:
        sys.exit(
            f"retriever: {args.data} has no folder {lacking[0]}; name the folder that holds"
            " retrieval/, corpus/ and smithery/: `make retriever SETS=DIR`"
        )
    recipe, gains, apart = Recipe(), [], []
    for left_out in FOLDS:
        folder, _ = train_recipe(recipe, args.data, args.home, args.threads, left_out)
        apart.append(str(folder))
        gains += _compare_sides(args, folder, left_out, FIT)
    _print_tables("Sets left out, fit sides", gains)
    folder, card = train_recipe(recipe, args.data, args.home, args.threads)
    if args.test:
        _print_tables("Test sides", _compare_sides(args, folder, NAMES, HELD))
    if args.write:
        rows, _ = collect_data(recipe, args.data)
        write_shipped(folder, card, recipe, rows, summarise_gains(gains), GENERAL_FOLDER)
        fit = f"python -m benchmarks.router_fit --write --retriever {' '.join(apart)}"
        print(f"\nThe router's weights for it: {fit} --judge {folder}")


def _compare_sides(
    args: argparse.Namespace, adapter: Path, names: tuple[str, ...], side: str
) -> list[Gain]:
    gains = []
    base, adapted = MiniLM(threads=args.threads), MiniLM(adapter, threads=args.threads)
    for name in names:
        found = trim_set(read_set(name, args.data), args.tools, args.requests)
        asked = tuple(request for request in found.requests if request.side == side)
        if asked:
            part = QuerySet(found.name, found.servers, asked)
            before, after = (measure_set(part, args.home, item) for item in (base, adapted))
            gains.append(compare_encoders(part, before, after))
    return gains


def _print_tables(title: str, gains: list[Gain]) -> None:
    for way in (COSINE, FUSED):
        print("\n" + tabulate_gains(f"{title}: {way}", way, gains), flush=True)


def _parse() -> argparse.Namespace:
    asking = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asking.add_argument("--data", type=Path, default=SHARED, help="the folder of the sets")
    asking.add_argument("--home", type=Path, default=Path("var/retriever_fit"))
    asking.add_argument("--tools", type=int, default=400, help="at most so many a set")
    asking.add_argument("--requests", type=int, default=150, help="at most so many a side")
    asking.add_argument("--threads", type=int, default=2)
    asking.add_argument("--write", action="store_true", help="write the package's adapter")
    asking.add_argument("--test", action="store_true", help="print the test sides too")
    return asking.parse_args()


if __name__ == "__main__":
    main()
