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
import sys
from pathlib import Path

from assets.vectors.encoders.minilm import GENERAL_FOLDER, MiniLM
from benchmarks.retriever_fit.card import write_shipped
from benchmarks.retriever_fit.measure import (
    COSINE,
    FUSED,
    Gain,
    compare_encoders,
    measure_set,
    summarise_gains,
    tabulate_gains,
)
from benchmarks.retriever_fit.recipe import FOLDS, Recipe
from benchmarks.retriever_fit.train import collect_data, train_recipe
from benchmarks.router_fit.sets import FIT, HELD, NAMES, QuerySet, read_set, trim_set
from benchmarks.shared_data import SHARED


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
