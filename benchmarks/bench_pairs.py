"""Does training on offline pairs help on servers never trained on, and which filter matters?

    nice -n 5 python benchmarks/bench_pairs.py --pairs 1000 --epochs 2 --arms all template

For each arm: a LoRA adapter of MiniLM trained on `pairs` offline pairs of training servers, then
Recall@1 and @5 on the corpus's queries of other servers, on MetaTool and on API-Bank, before and
after, with 95% intervals (bootstrap over tools; the gain is paired by query). Needs the shared data
(`TOOLMILL_SHARED`). Vectors and adapters are kept under --home, named by what they were made from.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.embed import BASE, MiniLM
from assets.vectors.near import Near
from benchmarks.pairs_arms import ARMS, arm_rows, candidates, dropped
from benchmarks.pairs_data import Suite, api_bank, corpus, metatool, snapshot, train_rows
from benchmarks.shared_data import SHARED, require
from training.evaluation.metrics import Figure, bootstrap, paired
from training.retriever.train import train_retriever
from training.runtime.model_store import Job, model_folder, model_name
from warehouse.storage.digest import digest

Row = dict[str, Any]
Embed = Callable[[Sequence[str]], np.ndarray]


def main() -> None:
    asked = _arguments()
    require(SHARED / "corpus")
    started = time.perf_counter()
    rows = snapshot()
    suites = [corpus(rows), metatool(asked.queries), api_bank()]
    base = cached(MiniLM(), asked.home)
    made = candidates(train_rows(rows), asked.pairs, base)
    print(f"{len(made)} candidates, objected to by: {json.dumps(dropped(made))}")
    before = {suite.name: ranks(suite, base) for suite in suites}
    print(f"{'arm':14}{'pairs':>6}{'tools':>6}  {'suite':9} Recall@1 [95%]; gain; Recall@5 gain; s")
    for suite in suites:
        told = f"n={len(suite.queries)}, tools {len(set(suite.gold))}, pool {len(suite.pool)}"
        print(f"{'base':26}  {suite.name:9} {_at(before[suite.name], suite, 1)}  ({told})")
    for arm in asked.arms:
        began = time.perf_counter()
        kept = arm_rows(arm, made, asked.pairs)
        encode = cached(MiniLM(trained(kept, base, asked)), asked.home)
        tools = len({row["positive"] for row in kept})
        for suite in suites:
            after = ranks(suite, encode)
            gains = [_gain(after, before[suite.name], suite, k) for k in (1, 5)]
            print(
                f"{arm:14}{len(kept):6}{tools:6}  {suite.name:9} {_at(after, suite, 1)}; "
                f"{_signed(gains[0])}; {_signed(gains[1])}; {time.perf_counter() - began:.0f}",
                flush=True,
            )
    print(f"{time.perf_counter() - started:.0f} s in all")


def trained(kept: Sequence[Row], base: Embed, asked: argparse.Namespace) -> Path:
    """The adapter of these pairs; trained once."""
    tools = list({row["positive"]: row for row in kept}.values())
    near = Near(tools, base([tool["positive"] for tool in tools]))
    alike = {
        tool["positive"]: json.dumps([other["contract_digest"] for other in near(tool)[:_HARD]])
        for tool in tools
    }
    rows = [
        {**{name: row[name] for name in _LEARNT}, "negatives": alike[row["positive"]]}
        for row in kept
    ]
    settings = {"epochs": asked.epochs, "threads": asked.threads, "device": "cpu"}
    of = digest([[row["contract_digest"], row["instruction"], row["negatives"]] for row in rows])
    name = model_name("retriever", BASE, of, settings)
    began = time.perf_counter()

    def report(at: Row) -> None:
        if at["step"] % 10 == 0:
            spent = time.perf_counter() - began
            print(f"  {at['step']}/{at['steps']} {at['loss']} {spent:.0f} s", file=sys.stderr)

    train_retriever(Job("retriever", name, asked.home, of, BASE, settings, rows), report)
    return model_folder(asked.home, name)


_LEARNT = ("contract_digest", "instruction", "positive", "text_digest")
_HARD = 4  # look-alikes a tool that training draws its hard negatives from


def cached(model: MiniLM, home: Path) -> Embed:
    """The model's embedding of a list of texts, kept under the digest of both."""

    def embed(texts: Sequence[str]) -> np.ndarray:
        path = home / "vectors" / f"{digest([model.id, list(texts)])}.npy"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, model.embed(texts))
        return np.load(path)

    return embed


def ranks(suite: Suite, embed: Embed) -> np.ndarray:
    """The rank of the right tool for each query; a tie counts against the model."""
    place = {text: at for at, text in enumerate(suite.pool)}
    gold = np.array([place[text] for text in suite.gold])
    scores = embed(suite.queries) @ embed(suite.pool).T
    return (scores >= scores[np.arange(len(gold)), gold][:, None]).sum(axis=1)


def _at(found: np.ndarray, suite: Suite, k: int) -> str:
    figure = bootstrap([float(rank <= k) for rank in found], suite.groups)
    return f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"


def _gain(after: np.ndarray, before: np.ndarray, suite: Suite, k: int) -> Figure:
    return paired(
        [float(rank <= k) for rank in after], [float(rank <= k) for rank in before], suite.groups
    )


def _signed(figure: Figure) -> str:
    return f"{figure.value:+.3f} [{figure.low:+.3f}, {figure.high:+.3f}]"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--queries", type=int, default=1000, help="MetaTool queries")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--home", type=Path, default=Path("var/bench_pairs"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
